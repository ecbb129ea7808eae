"""Sparse Transformer: no package has it both ways in time, so this is sections 4.2 and 4.3 of the paper in torch operations on L x L weights."""

import torch

import blocks
from case import lengths_mask, merge, normal, projections, split, write, write_encoder

SOURCE = "arXiv:1904.10509, sections 4.2 and 4.3, in torch operations"


def sets(pattern, length, block, summary):
    """The two sets of keys, A(1) and A(2), as (L, L) of bool; the paper's, with keys after the query added."""
    i, j = torch.arange(length)[:, None], torch.arange(length)[None, :]
    if pattern == "strided":
        return (i - j).abs() <= block, (i - j) % block == 0
    return i // block == j // block, ((j % block) >= block - summary).expand(length, length)


def equation(heads, pattern, form, block, summary, mask):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        near, far = sets(pattern, x.shape[1], block, summary)
        half = (heads + 1) // 2
        sees = torch.stack([near | far if form == "merged" else near if head < half else far for head in range(heads)])[None]
        if mask is not None:
            sees = sees & mask[:, None, None, :].bool()
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~sees, -1e30)
        return merge(scores.softmax(-1) @ v) @ params["output.weight"].T

    return forward


CASES = [  # heads, pattern, heads' form, block, summary, (B, L, D), lengths
    (2, "fixed", "merged", 4, 1, (2, 16, 12), None),
    (2, "fixed", "merged", 5, 2, (2, 23, 8), [23, 11]),
    (3, "fixed", "split", 4, 2, (1, 19, 12), None),
    (2, "strided", "merged", 4, 1, (2, 16, 12), None),
    (2, "strided", "merged", 5, 1, (3, 27, 8), [27, 14, 1]),
    (4, "strided", "split", 3, 1, (2, 17, 16), [17, 8]),
]
for index, (heads, pattern, form, block, summary, (batch, length, dim), lengths) in enumerate(CASES, 1):
    mask = None if lengths is None else lengths_mask(lengths, length)
    write(f"sparse-{index}", mixer="sparse", heads=heads, source=SOURCE,
          options={"pattern": pattern, "heads": form, "block": block, "summary": summary},
          params=projections(10 * index, dim, dim), x=normal(index, batch, length, dim),
          forward=equation(heads, pattern, form, block, summary, mask), mask=mask)

# Sets that alternate from block to block.
for index, (pattern, layers, batch, length, lengths) in enumerate([("fixed", 3, 2, 17, [17, 9]), ("strided", 2, 2, 13, None)], len(CASES) + 1):
    mask = None if lengths is None else lengths_mask(lengths, length)

    def weights(params, block, x, before):
        sees = sets(pattern, x.shape[1], 4, 1)[block % 2]
        scores = blocks.pair(params, f"{block}.mixer", x).masked_fill(~sees, -1e30)
        return torch.softmax(blocks.hidden(scores, mask), -1), None

    write_encoder(f"sparse-{index}", mixer="sparse", source=SOURCE,
                  options={"block": blocks.sizes(layers) | {"norm_place": "post"}, "model": {"pattern": pattern, "heads": "alternate", "block": 4, "summary": 1}},
                  params=blocks.parameters(700 + index, layers), x=normal(index, batch, length, blocks.DIM), mask=mask,
                  forward=blocks.stack(layers, mask, weights))
