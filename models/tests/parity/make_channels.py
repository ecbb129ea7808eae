"""Transformers whose channels are mixed otherwise: whole encoders in plain torch, written from the equations of the papers."""

import math

import torch

from case import lengths_mask, merge, normal, split, write_encoder

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"
DIM, HEADS, HIDDEN, LAYERS = 8, 2, 12, 2


def norm(params, at, x, eps=1e-6):
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + eps)
    return y * params[f"{at}.scale"] + params[f"{at}.shift"]


def linear(params, at, x):
    y = x @ params[f"{at}.weight"].T
    return y + params[f"{at}.bias"] if f"{at}.bias" in params else y


def attention(params, at, x, mask):
    q, k, v = (split(linear(params, f"{at}.{name}", x), HEADS) for name in ("query", "key", "value"))
    scores = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
    return linear(params, f"{at}.output", merge(torch.softmax(scores, -1) @ v))


def dense(params, at, x, mask):
    return linear(params, f"{at}.outer", torch.relu(linear(params, f"{at}.inner", x)))


def separable(params, at, x, mask, width):
    if mask is not None:
        x = x * mask[:, :, None]
    kernel = params[f"{at}.kernel"]
    y = torch.nn.functional.conv1d(x.transpose(1, 2), kernel[:, None, :], padding=width // 2, groups=kernel.shape[0])
    return linear(params, at, y.transpose(1, 2))


def conv(params, at, x, mask):
    return separable(params, f"{at}.outer", torch.relu(separable(params, f"{at}.inner", x, mask, 3)), mask, 5)


def product_keys(top):
    """Every one of the n² sums, and the largest `top` of them."""

    def forward(params, at, x, mask):
        keys, values = params[f"{at}.keys"], params[f"{at}.values"]
        half = keys.shape[2]
        q = linear(params, f"{at}.query", x).unflatten(-1, (2 * HEADS, half))
        q = norm(params, f"{at}.norm", q)
        y = 0.0
        for head in range(HEADS):
            a = q[..., 2 * head, :] @ keys[2 * head].T
            b = q[..., 2 * head + 1, :] @ keys[2 * head + 1].T
            sums = (a[..., :, None] + b[..., None, :]).flatten(-2)
            best, numbers = sums.topk(top, -1)
            y = y + (torch.softmax(best, -1)[..., None] * values[numbers]).sum(-2)
        return y

    return forward


def encoder(mask, channels):
    def forward(params, x):
        for block, channel in enumerate(channels):
            x = x + attention(params, f"{block}.mixer", norm(params, f"{block}.mixer_norm", x), mask)
            x = x + channel(params, f"{block}.feed", norm(params, f"{block}.feed_norm", x), mask)
        return norm(params, "last_norm", x), mask, {}

    return forward


def norms(at, seed, width=DIM):
    return {f"{at}.scale": 1 + normal(seed, width, scale=0.3), f"{at}.shift": normal(seed + 1, width, scale=0.3)}


def affine(at, seed, inputs, outputs):
    return {f"{at}.weight": normal(seed, outputs, inputs, scale=inputs**-0.5), f"{at}.bias": normal(seed + 1, outputs, scale=0.3)}


def dense_parameters(at, seed):
    return affine(f"{at}.inner", seed, DIM, HIDDEN) | affine(f"{at}.outer", seed + 2, HIDDEN, DIM)


def conv_parameters(at, seed):
    kernels = {f"{at}.inner.kernel": normal(seed + 4, DIM, 3), f"{at}.outer.kernel": normal(seed + 5, HIDDEN, 5)}
    return dense_parameters(at, seed) | kernels


def key_parameters(count):
    def parameters(at, seed):
        half = DIM // 2
        return {
            f"{at}.query.weight": normal(seed, 2 * HEADS * half, DIM, scale=DIM**-0.5),
            f"{at}.keys": normal(seed + 1, 2 * HEADS, count, half),
            f"{at}.values": normal(seed + 2, count**2, DIM),
        } | norms(f"{at}.norm", seed + 3, half)

    return parameters


def cases(ffn, channels, parameters, options=None):
    block = {"layers": LAYERS, "dim": DIM, "qkv_dim": DIM, "heads": HEADS, "mlp_dim": HIDDEN, "activation": "relu", "ffn": ffn}
    for index, (batch, lengths, longest) in enumerate([(2, None, 13), (3, [17, 9, 1], 17), (2, None, 1)], 1):
        seed = 10 * sum(map(ord, ffn)) + index
        mask = None if lengths is None else lengths_mask(lengths, longest)
        params = norms("last_norm", 1000 * seed + 999)
        for number, of_feed in enumerate(parameters):
            at = 1000 * seed + 100 * number
            for place, name in enumerate(("query", "key", "value", "output")):
                params[f"{number}.mixer.{name}.weight"] = normal(at + place, DIM, DIM, scale=DIM**-0.5)
            params |= norms(f"{number}.mixer_norm", at + 10) | norms(f"{number}.feed_norm", at + 12) | of_feed(f"{number}.feed", at + 20)
        write_encoder(f"transformer-{ffn}-{index}", mixer="transformer", source=SOURCE, options={"block": {**block, **(options or {})}},
                      params=params, x=normal(seed, batch, longest, DIM), mask=mask, forward=encoder(mask, channels))


cases("conv", [conv, conv], [conv_parameters, conv_parameters])
cases("product_keys", [dense, product_keys(3)], [dense_parameters, key_parameters(5)], {"product_keys": 5, "product_top": 3})
