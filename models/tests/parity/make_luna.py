"""Luna: a stack of layers as in LunaSentenceEncoderLayer and LunarMultiheadAttention of facebookresearch/mega (tie_kv = False), from their equations.

The packed vectors are read before their residual is added, which has a norm of its own. Each row is run on its real part. Without biases; p is as it is
drawn, neither scaled nor marked by positions.
"""

import json
import math

import torch

from blocks import DIM, HEADS, feed, linear, norm, sizes
from blocks import parameters as of_blocks
from case import lengths_mask, merge, normal, split, write, write_encoder

SOURCE = f"equations of facebookresearch/mega, luna_attention.py and luna_sentence_encoder.py, torch {torch.__version__.split('+')[0]}"


def attend(params, at, queries, x, heads, used=None):
    q, k, v = (split(linear(params, f"{at}.{name}", z), heads) for name, z in (("query", queries), ("key", x), ("value", x)))
    k, v = k[:, :, :used], v[:, :, :used]
    return merge(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1) @ v)


def mix(params, at, x, p, heads, dynamic):
    """(1, n, D) and (1, l, W): what x takes, and p'."""
    packed = attend(params, f"{at}pack", p, x, heads)
    used = x.shape[1] if dynamic else None
    return linear(params, f"{at}output", attend(params, f"{at}unpack", x, packed, heads, used)), packed


def stack(layers, lengths, dynamic, pre, shared=False):
    def row(params, x):
        p = params["0.mixer.p"][None]
        for layer in range(layers):
            at = 0 if shared else layer
            last = layer + 1 == layers
            if pre:
                asking = norm(params, f"{at}.mixer.p_norm", p)
                y, packed = mix(params, f"{at}.mixer.", norm(params, f"{at}.mixer_norm", x), asking, HEADS, dynamic)
                x, p = x + y, p + packed
                x = x + feed(params, f"{at}.feed", norm(params, f"{at}.feed_norm", x))
            else:
                y, packed = mix(params, f"{at}.mixer.", x, p, HEADS, dynamic)
                x = norm(params, f"{at}.mixer_norm", x + y)
                p = p + packed if last else norm(params, f"{at}.mixer.p_norm", p + packed)
                x = norm(params, f"{at}.feed_norm", x + feed(params, f"{at}.feed", x))
        return norm(params, "last_norm", x) if pre else x

    def forward(params, x):
        rows = [row(params, x[index : index + 1, :n]) for index, n in enumerate(lengths)]
        hidden = torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])
        return hidden, None if min(lengths) == x.shape[1] else lengths_mask(lengths, x.shape[1]), {}

    return forward


def projections(seed, dim, row, at=""):
    params = {}
    widths = {"pack.query": row, "pack.key": dim, "pack.value": dim, "unpack.query": dim, "unpack.key": row, "unpack.value": row}
    for index, (name, width) in enumerate(widths.items()):
        params[f"{at}{name}.weight"] = normal(seed + index, row, width, scale=width**-0.5)
    params[f"{at}output.weight"] = normal(seed + 7, dim, row, scale=row**-0.5)
    return params


def parameters(seed, layers, own, pre, shared):
    count = 1 if shared else layers
    params = of_blocks(seed, count, paired=lambda block: False)
    params = {path: value for path, value in params.items() if ".mixer." not in path}
    for layer in range(count):
        params |= projections(1000 * seed + 100 * layer + 50, DIM, DIM, f"{layer}.mixer.")
        if pre or shared or layer + 1 < layers:
            params[f"{layer}.mixer.p_norm.scale"] = (1 + normal(1000 * seed + layer + 90, DIM, scale=0.3)).float().double()
            params[f"{layer}.mixer.p_norm.shift"] = normal(1000 * seed + layer + 95, DIM, scale=0.3)
    params["0.mixer.p"] = normal(seed, own, DIM)
    if pre:
        params["last_norm.scale"] = (1 + normal(seed + 70, DIM, scale=0.3)).float().double()
        params["last_norm.shift"] = normal(seed + 71, DIM, scale=0.3)
    return params


def encoder(index, layers, length, own, lengths, dynamic=False, pre=False, shared=False):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    block = {**sizes(layers), "norm_place": "pre" if pre else "post", "share": shared}
    write_encoder(f"luna-{index}", mixer="luna", source=SOURCE, options={"block": block, "model": {"length": own, "dynamic": dynamic}},
                  params=parameters(index, layers, own, pre, shared), x=normal(index, len(lengths), length, DIM), mask=mask,
                  forward=stack(layers, lengths, dynamic, pre, shared))


encoder(1, 2, 19, 5, [19, 19])
encoder(2, 3, 17, 6, [17, 8, 1])
encoder(3, 2, 13, 9, [13, 6, 2], dynamic=True)
encoder(4, 2, 11, 4, [11, 7], pre=True)
encoder(5, 3, 14, 5, [14, 9], shared=True)
params = {**projections(60, 6, 12), "p": normal(69, 4, 12)}
write("luna-6", mixer="luna", heads=3, qkv_dim=12, block=json.dumps({"norm_place": "post"}), source=SOURCE, options={"length": 4}, params=params, x=normal(6, 2, 15, 6),
      forward=lambda params, x: mix(params, "", x, params["p"].expand(2, -1, -1), 3, False)[0])
