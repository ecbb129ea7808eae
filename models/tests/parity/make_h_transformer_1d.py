"""H-Transformer-1D: all pairs of tokens at once, each with the score of the level that covers it, from the equations of arXiv:2107.11906.

The level of a pair is the first at which the two are in the same block or in neighbouring ones; the script asserts that this leaves no pair out. Means are over the
real tokens of a part. (The package of this name on PyPI computes another function.)
"""

import math

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"equations of arXiv:2107.11906, dense, float64, torch {torch.__version__.split('+')[0]}"


def hierarchical(heads, block, lengths):
    def row(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads)[0] for name in ("query", "key", "value"))
        n, width = q.shape[1:]
        place = torch.arange(n)
        levels = max(1, math.ceil(math.log2(math.ceil(n / block)))) if n > block else 1
        scores = torch.full((heads, n, n), -math.inf)
        for level in reversed(range(levels)):
            part = place // 2**level
            same = (part[:, None] == part[None, :]).double()
            average = same / same.sum(1, keepdim=True)
            of_parts = (average @ q) @ (average @ k).mT / math.sqrt(width)
            near = ((part // block)[:, None] - (part // block)[None, :]).abs() <= 1
            scores = torch.where(near, of_parts, scores)
        assert torch.isfinite(scores).all(), "a pair is left out"
        return merge((torch.softmax(scores, -1) @ v)[None]) @ params["output.weight"].T

    def forward(params, x):
        rows = [row(params, x[index : index + 1, :n]) for index, n in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


for index, (length, dim, qkv_dim, heads, block, lengths) in enumerate(
        [(64, 8, 8, 2, 4, [64]), (37, 12, 24, 3, 2, [37, 21, 1]), (50, 8, 8, 1, 4, [50, 33]), (23, 6, 12, 2, 16, [23, 9]),
         (41, 8, 8, 2, 6, [41, 26]), (100, 4, 4, 2, 16, [100])], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    write(f"h_transformer_1d-{index}", mixer="h_transformer_1d", heads=heads, source=SOURCE, options={"block": block}, qkv_dim=qkv_dim,
          params=projections(20 * index, dim, qkv_dim), x=normal(index, len(lengths), length, dim), mask=mask, forward=hierarchical(heads, block, lengths))
