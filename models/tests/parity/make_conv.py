"""Short convolutions: torch.nn.functional.conv1d in float64 on zeros around each row's real part, then GELU and the gated linear layer."""

import json

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write

SOURCE = "equations, float64"


def forward_of(kind, direction, kernel, lengths):
    groups = {"depthwise": lambda dim: dim, "full": lambda dim: 1}[kind]
    before = {"both": kernel // 2, "forward": kernel - 1}[direction]

    def row(params, x):
        weight = params["conv.weight"]
        weight = weight[:, None] if kind == "depthwise" else weight
        around = F.pad(x.T[None], (before, kernel - 1 - before))
        y = F.conv1d(around, weight, params["conv.bias"], groups=groups(x.shape[1]))[0].T
        return F.glu(F.linear(F.gelu(y), params["output.weight"], params["output.bias"]))

    def forward(params, x):
        rows = [row(params, x[index, :length]) for index, length in enumerate(lengths)]
        return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    return forward


def case(number, *, dim, kernel, kind, direction, lengths):
    seed, length = 21_000 + 100 * number, max(lengths)
    taps = (dim, kernel) if kind == "depthwise" else (dim, dim, kernel)
    params = {
        "conv.weight": normal(seed, *taps, scale=0.5),
        "conv.bias": normal(seed + 1, dim, scale=0.3),
        "output.weight": normal(seed + 2, 2 * dim, dim, scale=dim**-0.5),
        "output.bias": normal(seed + 3, 2 * dim, scale=0.3),
    }
    write(f"conv-{number}", mixer="conv", heads=1, source=SOURCE, params=params, x=normal(seed + 4, len(lengths), length, dim),
          mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward_of(kind, direction, kernel, lengths),
          options={"kernel": kernel, "kind": kind, "direction": direction}, block=json.dumps({"activation": "gelu_erf"}))


if __name__ == "__main__":
    case(1, dim=5, kernel=5, kind="depthwise", direction="both", lengths=[13, 6, 1])
    case(2, dim=3, kernel=4, kind="depthwise", direction="forward", lengths=[9])
    case(3, dim=4, kernel=7, kind="full", direction="both", lengths=[11, 3])
    case(4, dim=3, kernel=2, kind="full", direction="forward", lengths=[8, 7])
