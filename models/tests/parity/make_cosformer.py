"""cosFormer: all weights at once, from the equations of arXiv:2202.08791, row by row on the real part.

The published file is on no registry. It clips the denominator at 1e-6, which no query here comes near unless it shares no feature with any key: the
script asserts so. `longest` divides positions by the longest length, `padded` by that of the batch, `real` by the row's own.
"""

import math

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"equations of arXiv:2202.08791, float64, torch {torch.__version__.split('+')[0]}"


def cosformer(heads, horizon, longest, lengths):
    def row(params, x, padded):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        n = x.shape[1]
        place = torch.arange(1, n + 1) * 1.0
        angle = math.pi / 2 * place / {"longest": longest, "padded": padded, "real": n}[horizon]
        weights = torch.relu(q) @ torch.relu(k).mT * torch.cos(angle[:, None] - angle[None, :])
        total = weights.sum(-1, keepdim=True)
        assert ((total > 1e-3) | (total == 0)).all(), "clipped"
        return merge(weights @ v / total.clamp_min(1e-6)) @ params["output.weight"].T

    def forward(params, x):
        padded = x.shape[1]
        rows = [row(params, x[index : index + 1, :n], padded) for index, n in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, padded - y.shape[1])) for y in rows])

    return forward


for index, (length, dim, qkv_dim, heads, horizon, longest, lengths) in enumerate(
        [(16, 8, 8, 2, "longest", 16, [16, 16]), (37, 12, 24, 3, "longest", 50, [37, 20, 1]), (23, 8, 16, 2, "padded", 64, [23, 9]),
         (19, 8, 8, 1, "real", 40, [19, 12, 2]), (1, 6, 8, 2, "longest", 1, [1])], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    write(f"cosformer-{index}", mixer="cosformer", heads=heads, source=SOURCE, options={"horizon": horizon}, params=projections(20 * index, dim, qkv_dim),
          x=normal(index, len(lengths), length, dim), mask=mask, qkv_dim=qkv_dim, max_length=longest, forward=cosformer(heads, horizon, longest, lengths))
