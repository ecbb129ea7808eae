"""MultiresConv: its levels by torch.nn.functional.conv1d with dilation, as layers/multireslayer.py of thjashin/multires-conv@828089f has them
(`tree_select` = `fading`), in float64 on each row's real part, then GELU and the gated linear layer of its classification.py."""

import json
import math

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write

SOURCE = "equations, float64"


def transform(params, prefix, x):
    """(L, D) -> (L, D)."""
    at = lambda name: params[prefix + name]
    dim, kernel = at("low").shape
    levels = at("levels").shape[1] - 1
    low, y = x.T[None], at("skip")[None, :, None] * x.T[None]
    for level in range(levels):
        before = F.pad(low, (2**level * (kernel - 1), 0))
        high, low = (F.conv1d(before, at(name)[:, None], dilation=2**level, groups=dim) for name in ("high", "low"))
        y = y + at("levels")[None, :, levels - level, None] * high
    return (y + at("levels")[None, :, 0, None] * low)[0].T


def layer(params, prefix, x):
    y = F.gelu(transform(params, prefix, x))
    return F.glu(F.linear(y, params[f"{prefix}output.weight"], params[f"{prefix}output.bias"]))


def parameters(seed, dim, kernel, levels):
    return {
        "low": normal(seed, dim, kernel, scale=0.6),
        "high": normal(seed + 1, dim, kernel, scale=0.6),
        "levels": normal(seed + 2, dim, levels + 1, scale=0.6),
        "skip": normal(seed + 3, dim, scale=0.6),
        "output.weight": normal(seed + 4, 2 * dim, dim, scale=dim**-0.5),
        "output.bias": normal(seed + 5, 2 * dim, scale=0.3),
    }


def case(number, *, dim, kernel, lengths, levels=0):
    seed, length = 23_000 + 100 * number, max(lengths)
    depth = levels or math.ceil(math.log2((length - 1) / (kernel - 1) + 1))

    def forward(params, x):
        rows = [layer(params, "", x[index, :length]) for index, length in enumerate(lengths)]
        return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    write(f"multires-{number}", mixer="multires", heads=1, source=SOURCE, params=parameters(seed, dim, kernel, depth),
          x=normal(seed + 9, len(lengths), length, dim), mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward,
          options={"kernel": kernel, "levels": levels}, block=json.dumps({"activation": "gelu_erf"}))


if __name__ == "__main__":
    case(1, dim=4, kernel=4, lengths=[19, 8])
    case(2, dim=3, kernel=2, lengths=[17])
    case(3, dim=5, kernel=3, lengths=[12, 5, 1], levels=5)
