"""Hierarchical Transformer: whole encoders in plain torch, written from the equations, sequence by sequence and segment by segment on real positions
alone."""

import math

import torch
from torch.nn import functional as F

from case import lengths_mask, merge, normal, split, write_encoder

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"
DIM, HIDDEN = 8, 12


def linear(params, at, x):
    y = x @ params[f"{at}.weight"].T
    return y + params[f"{at}.bias"] if f"{at}.bias" in params else y


def norm(params, at, x):
    return F.layer_norm(x, (DIM,), params[f"{at}.scale"], params[f"{at}.shift"], 1e-6)


def softmax(q, k, v):
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def features(q, k, v):
    """Linear attention's kernel."""
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(-1, -2)
    return weights @ v / weights.sum(-1, keepdim=True)


def stack(params, at, x, layers, heads, post, attend):
    """x (n, D), all of it real."""
    for layer in range(layers):
        here = f"{at}.{layer}"

        def mix(x):
            q, k, v = (split(linear(params, f"{here}.mixer.{name}", x)[None], heads) for name in ("query", "key", "value"))
            return linear(params, f"{here}.mixer.output", merge(attend(q, k, v))[0])

        def feed(x):
            return linear(params, f"{here}.feed.outer", F.gelu(linear(params, f"{here}.feed.inner", x), approximate="tanh"))

        for name, half in (("mixer", mix), ("feed", feed)):
            around = f"{here}.{name}_norm"
            x = norm(params, around, x + half(x)) if post else x + half(norm(params, around, x))
    return x if post or layers == 0 else norm(params, f"{at}.last_norm", x)


def aggregated(params, h, kind, heads):
    if kind == "mean":
        return h.mean(0)
    if kind == "first":
        return h[0]
    q = linear(params, "aggregate.query", params["aggregate.seeds"])
    k, v = linear(params, "aggregate.key", h), linear(params, "aggregate.value", h)
    o = q + merge(softmax(*(split(x[None], heads) for x in (q, k, v))))[0]
    return linear(params, "aggregate.output", o + torch.relu(linear(params, "aggregate.feed", o)))[0]


def sinusoid(count):
    table = torch.zeros(count, DIM)
    for position in range(count):
        for channel in range(DIM):
            angle = position / 10000 ** ((channel - channel % 2) / DIM)
            table[position, channel] = math.cos(angle) if channel % 2 else math.sin(angle)
    return table


def parameters(seed, lower, upper, width, kind, post):
    params, at = {}, iter(range(1000 * seed, 1000 * seed + 1000))
    matrix = lambda outputs, inputs: normal(next(at), outputs, inputs, scale=inputs**-0.5)

    def norms(path):
        params[f"{path}.scale"], params[f"{path}.shift"] = 1 + normal(next(at), DIM, scale=0.3), normal(next(at), DIM, scale=0.3)

    for name, layers in (("lower", lower), ("upper", upper)):
        for layer in range(layers):
            here = f"{name}.{layer}"
            for projection in ("query", "key", "value"):
                params[f"{here}.mixer.{projection}.weight"] = matrix(width, DIM)
            params[f"{here}.mixer.output.weight"] = matrix(DIM, width)
            params[f"{here}.feed.inner.weight"], params[f"{here}.feed.inner.bias"] = matrix(HIDDEN, DIM), normal(next(at), HIDDEN, scale=0.3)
            params[f"{here}.feed.outer.weight"], params[f"{here}.feed.outer.bias"] = matrix(DIM, HIDDEN), normal(next(at), DIM, scale=0.3)
            for half in ("mixer", "feed"):
                norms(f"{here}.{half}_norm")
        if layers and not post:
            norms(f"{name}.last_norm")
    if kind == "attention":
        params["aggregate.seeds"] = normal(next(at), 1, DIM)
        for projection in ("query", "key", "value"):
            params[f"aggregate.{projection}.weight"] = matrix(width, DIM)
        params["aggregate.feed.weight"], params["aggregate.feed.bias"] = matrix(width, width), normal(next(at), width, scale=0.3)
        params["aggregate.output.weight"] = matrix(DIM, width)
    return params


def case(index, shape, *, segment, layers, heads, width=DIM, kind="mean", post=False, lengths=None, model=None, mixer=softmax, **metadata):
    """`layers` are lower and upper ones, `model` the options that say so."""
    (batch, length), (lower, upper) = shape, layers
    mask = None if lengths is None else lengths_mask(lengths, length)
    segments = math.ceil(length / segment)
    hidden_mask = None if mask is None else lengths_mask([math.ceil(n / segment) for n in lengths], segments)

    def forward(params, x):
        rows = []
        for row in range(batch):
            real = x[row, : length if lengths is None else lengths[row]]
            states = [stack(params, "lower", part, lower, heads, post, mixer) for part in real.split(segment)]
            v = torch.stack([aggregated(params, h, kind, heads) for h in states])
            if upper:
                v = stack(params, "upper", v + sinusoid(len(v)), upper, heads, post, softmax)
            rows.append(F.pad(v, (0, 0, 0, segments - len(v))))
        return torch.stack(rows), hidden_mask, {}

    block = {"layers": sum(layers), "dim": DIM, "qkv_dim": width, "heads": heads, "mlp_dim": HIDDEN, "norm_place": "post" if post else "pre"}
    write_encoder(f"hierarchical-{index}", mixer="hierarchical", source=SOURCE, options={"block": block, "model": {"aggregate": kind, **(model or {})}},
                  params=parameters(index, lower, upper, width, kind, post), x=normal(index, batch, length, DIM), mask=mask, forward=forward, **metadata)


case(1, (2, 14), segment=4, layers=(1, 1), heads=2, model={"segment": 4})
case(2, (4, 13), segment=5, layers=(2, 1), heads=3, width=6, kind="attention", lengths=[13, 10, 6, 1], max_length=21)
case(3, (3, 17), segment=3, layers=(1, 2), heads=2, kind="first", post=True, lengths=[17, 8, 3], model={"segment": 3, "lower": 1})
case(4, (2, 11), segment=11, layers=(2, 0), heads=4, lengths=[11, 5], model={"segment": 64, "lower": 2})
case(5, (3, 19), segment=6, layers=(1, 1), heads=2, lengths=[19, 7, 2], model={"segment": 6, "mixer": "linear"}, mixer=features)
