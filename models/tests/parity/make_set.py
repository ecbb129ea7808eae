"""Set Transformer: an induced set attention block whose second half is plain attention, in torch from the equations of the authors' modules."""

import math

import torch

from case import lengths_mask, merge, normal, split, write

SOURCE = f"equations of juho-lee/set_transformer modules.py, torch {torch.__version__.split('+')[0]}"


def attend(q, k, v, heads, mask=None):
    q, k, v = (split(x, heads) for x in (q, k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
    return merge(torch.softmax(scores, -1) @ v)


def induced(heads, mask=None):
    def forward(params, x):
        q = (params["induce.seeds"] @ params["induce.query.weight"].T).expand(x.shape[0], -1, -1)
        k, v = (x @ params[f"induce.{name}.weight"].T for name in ("key", "value"))
        o = q + attend(q, k, v, heads, mask)
        h = o + torch.relu(o @ params["induce.feed.weight"].T + params["induce.feed.bias"])
        y = attend(x @ params["query.weight"].T, h @ params["key.weight"].T, h @ params["value.weight"].T, heads)
        return y @ params["output.weight"].T

    return forward


def case(index, batch, length, dim, width, heads, points, lengths=None):
    seed = 100 * index
    mask = None if lengths is None else lengths_mask(lengths, length)
    params = {"induce.seeds": normal(seed, points, dim), "induce.feed.bias": normal(seed + 1, width, scale=0.3)}
    maps = {"induce.query": (width, dim), "induce.key": (width, dim), "induce.value": (width, dim), "induce.feed": (width, width),
            "query": (width, dim), "key": (width, width), "value": (width, width), "output": (dim, width)}
    for offset, (name, shape) in enumerate(maps.items(), 2):
        params[f"{name}.weight"] = normal(seed + offset, *shape, scale=shape[1] ** -0.5)
    write(f"set-{index}", mixer="set", heads=heads, qkv_dim=width, source=SOURCE, options={"points": points}, params=params,
          x=normal(seed + 20, batch, length, dim), mask=mask, forward=induced(heads, mask))


case(1, 2, 19, 8, 8, 2, 5)
case(2, 3, 17, 6, 12, 3, 4, lengths=[17, 8, 1])
case(3, 2, 1, 8, 4, 1, 1)
