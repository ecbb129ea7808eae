"""Whole encoders in plain torch: post-norm blocks around attention whose weights, (B, H, L, L), a model makes."""

import math

import torch

from case import merge, normal, split

DIM, HEADS, HIDDEN = 8, 2, 12


def sizes(layers):
    """Those of the block that has these sizes."""
    return {"layers": layers, "dim": DIM, "qkv_dim": DIM, "heads": HEADS, "mlp_dim": HIDDEN, "activation": "relu"}


def linear(params, name, x):
    return x @ params[f"{name}.weight"].T


def hidden(scores, mask):
    return scores if mask is None else scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)


def norm(params, at, x):
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-6)
    return y * params[f"{at}.scale"] + params[f"{at}.shift"]


def feed(params, at, x):
    inner = torch.relu(linear(params, f"{at}.inner", x) + params[f"{at}.inner.bias"])
    return linear(params, f"{at}.outer", inner) + params[f"{at}.outer.bias"]


def pair(params, at, x):
    q, k = (split(linear(params, f"{at}.{name}", x), HEADS) for name in ("query", "key"))
    return q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)


def stack(layers, mask, weights):
    """weights(params, block, x, before) gives the weights of a block, and what the next one is given."""

    def forward(params, x):
        before = None
        for block in range(layers):
            a, before = weights(params, block, x, before)
            v = split(linear(params, f"{block}.mixer.value", x), HEADS)
            x = norm(params, f"{block}.mixer_norm", x + linear(params, f"{block}.mixer.output", merge(a @ v)))
            x = norm(params, f"{block}.feed_norm", x + feed(params, f"{block}.feed", x))
        return x, mask, {}

    return forward


def parameters(seed, layers, paired=lambda block: True):
    params = {}
    for block in range(layers):
        at = 1000 * seed + 100 * block
        names = ("query", "key", "value", "output") if paired(block) else ("value", "output")
        for index, name in enumerate(names):
            params[f"{block}.mixer.{name}.weight"] = normal(at + index, DIM, DIM, scale=DIM**-0.5)
        params[f"{block}.feed.inner.weight"] = normal(at + 10, HIDDEN, DIM, scale=DIM**-0.5)
        params[f"{block}.feed.inner.bias"] = normal(at + 11, HIDDEN, scale=0.3)
        params[f"{block}.feed.outer.weight"] = normal(at + 12, DIM, HIDDEN, scale=HIDDEN**-0.5)
        params[f"{block}.feed.outer.bias"] = normal(at + 13, DIM, scale=0.3)
        for index, half in enumerate(("mixer", "feed")):
            params[f"{block}.{half}_norm.scale"] = 1 + normal(at + 20 + index, DIM, scale=0.3)
            params[f"{block}.{half}_norm.shift"] = normal(at + 30 + index, DIM, scale=0.3)
    return params
