"""Mixers that do something else with the scores of pairs or the heads: plain torch, written from the equations of the papers."""

import math

import torch

from blocks import DIM, hidden, linear, pair, parameters, sizes, stack
from case import lengths_mask, merge, normal, projections, split, write, write_encoder

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"


def shapes(mixer):
    """Batch, lengths, longest, width, heads, qkv_dim: without and with padding, one token, an odd number of heads."""
    kinds = [(2, None, 13, 8, 2, 8), (3, [17, 9, 1], 17, 8, 4, 8), (2, None, 1, 6, 2, 8), (2, [11, 4], 11, 5, 3, 9)]
    for index, (batch, lengths, longest, dim, heads, qkv_dim) in enumerate(kinds, 1):
        seed = 10 * sum(map(ord, mixer)) + index
        yield index, seed, normal(seed, batch, longest, dim), None if lengths is None else lengths_mask(lengths, longest), dim, heads, qkv_dim


def talking_heads(mask, heads):
    def forward(params, x):
        q, k, v = (split(linear(params, name, x), heads) for name in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        eye = torch.eye(heads)
        scores = torch.einsum("hg,bgij->bhij", params["before"] + eye, scores)
        weights = torch.einsum("hg,bgij->bhij", params["after"] + eye, torch.softmax(hidden(scores, mask), -1))
        return linear(params, "output", merge(weights @ v))

    return forward


for index, seed, x, mask, dim, heads, qkv_dim in shapes("talking_heads"):
    params = projections(seed, dim, qkv_dim)
    params |= {"before": normal(seed + 20, heads, heads, scale=0.5), "after": normal(seed + 21, heads, heads, scale=0.5)}
    write(f"talking_heads-{index}", mixer="talking_heads", heads=heads, source=SOURCE, params=params, x=x, mask=mask,
          forward=talking_heads(mask, heads), qkv_dim=qkv_dim)


def collaborative(mask, heads):
    def forward(params, x):
        q, k = linear(params, "query", x), linear(params, "key", x)
        content = linear(params, "content", x)
        outputs = []
        for head, v in enumerate(split(linear(params, "value", x), heads).unbind(1)):
            scores = (q * params["mixing"][head]) @ k.transpose(-1, -2) + content[:, None, :, head]
            scores = scores / math.sqrt(q.shape[-1] / heads)
            outputs.append(torch.softmax(hidden(scores[:, None], mask)[:, 0], -1) @ v)
        return linear(params, "output", torch.cat(outputs, -1))

    return forward


for index, seed, x, mask, dim, heads, qkv_dim in shapes("collaborative"):
    shared = {1: qkv_dim, 2: 5, 3: qkv_dim, 4: 12}[index]
    params = projections(seed, dim, qkv_dim, names=("value",))
    params |= {
        "query.weight": normal(seed + 20, shared, dim, scale=dim**-0.5),
        "key.weight": normal(seed + 21, shared, dim, scale=dim**-0.5),
        "mixing": normal(seed + 22, heads, shared),
        "content.weight": normal(seed + 23, heads, dim, scale=dim**-0.5),
    }
    write(f"collaborative-{index}", mixer="collaborative", heads=heads, source=SOURCE, params=params, x=x, mask=mask,
          forward=collaborative(mask, heads), qkv_dim=qkv_dim, options={"shared": 0 if shared == qkv_dim else shared})


def hard_coded(mask, heads, offset, deviation):
    def forward(params, x):
        v = linear(params, "value", x)
        if mask is not None:
            v = v * mask[:, :, None]
        position = torch.arange(x.shape[1]).double()
        outputs = []
        for head, v in enumerate(split(v, heads).unbind(1)):
            centre = position + (offset if head % 2 else -offset)
            distance = (position[None, :] - centre[:, None]) / deviation
            outputs.append(torch.exp(-distance**2 / 2) / (deviation * math.sqrt(2 * math.pi)) @ v)
        return linear(params, "output", torch.cat(outputs, -1))

    return forward


for index, seed, x, mask, dim, heads, qkv_dim in shapes("hard_coded"):
    options = {"offset": {1: 1, 2: 3, 3: 1, 4: 0}[index], "deviation": {1: 1.0, 2: 2.5, 3: 1.0, 4: 0.7}[index]}
    write(f"hard_coded-{index}", mixer="hard_coded", heads=heads, source=SOURCE, params=projections(seed, dim, qkv_dim, names=("value",)),
          x=x, mask=mask, forward=hard_coded(mask, heads, **options), qkv_dim=qkv_dim, options=options)


# Blocks that hand scores or weights on: whole encoders, post-norm.
def realformer(mask):
    def weights(params, block, x, before):
        scores = pair(params, f"{block}.mixer", x)
        scores = scores if before is None else scores + before
        return torch.softmax(hidden(scores, mask), -1), scores

    return weights


def lazyformer(mask, reuse):
    def weights(params, block, x, before):
        if block % reuse:
            return before, before
        a = torch.softmax(hidden(pair(params, f"{block}.mixer", x), mask), -1)
        return a, a

    return weights


def cases(mixer, layers, weights, paired=lambda block: True, model=None):
    for index, (batch, lengths, longest) in enumerate([(2, None, 13), (3, [17, 9, 1], 17), (2, None, 1)], 1):
        seed = 10 * sum(map(ord, mixer)) + index
        mask = None if lengths is None else lengths_mask(lengths, longest)
        write_encoder(f"{mixer}-{index}", mixer=mixer, source=SOURCE, options={"block": sizes(layers), "model": model or {}},
                      params=parameters(seed, layers, paired), x=normal(seed, batch, longest, DIM), mask=mask,
                      forward=stack(layers, mask, weights(mask)))


cases("realformer", 3, realformer)
cases("lazyformer", 5, lambda mask: lazyformer(mask, 3), paired=lambda block: block % 3 == 0, model={"reuse": 3})
