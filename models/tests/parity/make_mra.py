"""MRA-2 and MRA-2-s: all weights of a row of the batch at once, from the equations of mlpen/mra-attention (mra2_kernel/attention.py).

Rows are computed on their real part, which is padded with zeros to whole blocks; the number of chosen pairs is that of the longest length, as there. That no
pair is chosen by a hair is asserted; the best pairs of rows are equals, of which the first are taken. 1e-6 is added neither to counts nor to sums.
"""

import math

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"equations of mlpen/mra-attention, mra2_attention, dense, torch {torch.__version__.split('+')[0]}"


def chosen_pairs(low, count, first, diagonal):
    """(M, M) of scores to (M, M) of whether a pair of blocks is chosen."""
    blocks = len(low)
    place = torch.arange(blocks)
    merit = low - low.max(1, keepdim=True).values
    merit = merit + 5e3 * (place < first)[:, None] + 5e3 * (place < first)[None, :]
    if diagonal:
        merit = merit + 5e3 * ((place[:, None] - place[None, :]).abs() <= diagonal // 2)
    order = merit.flatten().sort(descending=True, stable=True)
    count = min(count, blocks * blocks)
    if 0 < count < blocks * blocks:
        gap = order.values[count - 1] - order.values[count]
        assert gap > 1e-4 or gap == 0, "chosen by a hair"
    chosen = torch.zeros(blocks * blocks, dtype=torch.bool)
    chosen[order.indices[:count]] = True
    return chosen.view(blocks, blocks)


def head(q, k, v, size, count, first, diagonal, sparse):
    """(n, E) each."""
    n, width = q.shape
    blocks = -(-n // size)
    block = torch.arange(n) // size
    average = torch.nn.functional.one_hot(block, blocks).double().T
    average = average / average.sum(1, keepdim=True)
    low = (average @ q) @ (average @ k).T / math.sqrt(width)
    chosen = chosen_pairs(low.detach(), count, first, diagonal)[block][:, block]
    fine = q @ k.T / math.sqrt(width)
    # A block's mean value times its number of tokens is the sum of their values.
    coarse = torch.full_like(fine, -math.inf) if sparse else low[block][:, block]
    scores = torch.where(chosen, fine, coarse)
    most = scores.detach().max(1, keepdim=True).values
    weights = torch.exp(scores - torch.where(most.isinf(), torch.zeros_like(most), most))
    total = weights.sum(1, keepdim=True)
    return weights @ v / torch.where(total == 0, torch.ones_like(total), total)


def mra(heads, longest, lengths, block, blocks_per_row, first, diagonal, mode):
    count = blocks_per_row * -(-longest // block)

    def row(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads)[0] for name in ("query", "key", "value"))
        y = [head(q[h], k[h], v[h], block, count, first, diagonal, mode == "sparse") for h in range(heads)]
        return merge(torch.stack(y)[None]) @ params["output.weight"].T

    def forward(params, x):
        rows = [row(params, x[index : index + 1, :n]) for index, n in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


for index, (length, dim, heads, longest, lengths, block, per_row, first, diagonal, mode) in enumerate(
        [(24, 8, 2, 24, [24, 24], 4, 3, 1, 0, "full"), (37, 12, 3, 40, [37, 22, 3], 5, 2, 1, 1, "full"), (23, 8, 2, 23, [23, 11], 4, 2, 1, 0, "sparse"),
         (30, 8, 1, 30, [30, 9], 3, 1, 0, 1, "sparse"), (29, 8, 2, 29, [29, 17, 1], 4, 2, 0, 0, "full"), (70, 8, 2, 70, [70], 32, 8, 1, 0, "full"),
         (11, 6, 2, 11, [11, 5], 3, 0, 0, 0, "full")], 1):
    options = {"block": block, "blocks_per_row": per_row, "first": first, "diagonal": diagonal, "mode": mode}
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    write(f"mra-{index}", mixer="mra", heads=heads, source=SOURCE, options=options, params=projections(20 * index, dim, dim),
          x=normal(index, len(lengths), length, dim), mask=mask, max_length=longest, forward=mra(heads, longest, lengths, **options))
