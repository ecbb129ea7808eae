"""Local attention: local-attention's LocalAttention, without rotary positions, which the benchmark does not have."""

import importlib.metadata

import torch
from local_attention import LocalAttention

from case import lengths_mask, merge, normal, projections, split, write

VERSION = f"local-attention {importlib.metadata.version('local-attention')}, LocalAttention"


def package(heads, block, neighbours, exact, mask):
    # Without neighbours the block is the window; counted exactly, the package would leave each query its own key alone.
    attention = LocalAttention(block, look_backward=neighbours, look_forward=neighbours, exact_windowsize=exact and neighbours > 0,
                               autopad=True, use_rotary_pos_emb=False)

    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads).contiguous() for name in ("query", "key", "value"))
        # Without a mask the package takes the zeros that fill up the last block for keys.
        real = torch.ones(x.shape[:2]) if mask is None else mask
        return merge(attention(q, k, v, mask=real.bool())) @ params["output.weight"].T

    return forward


CASES = [  # heads, block, neighbours, exact, (B, L, D), lengths
    (2, 4, 0, True, (2, 16, 12), None),
    (3, 8, 0, True, (2, 29, 12), [29, 13]),
    (2, 4, 1, True, (2, 16, 12), None),
    (2, 4, 1, True, (3, 23, 8), [23, 9, 1]),
    (1, 3, 2, True, (1, 20, 6), None),
    (4, 4, 1, False, (2, 19, 16), [19, 6]),
    (2, 64, 1, True, (1, 33, 8), None),
]
for index, (heads, block, neighbours, exact, (batch, length, dim), lengths) in enumerate(CASES, 1):
    mask = None if lengths is None else lengths_mask(lengths, length)
    write(f"local-{index}", mixer="local", heads=heads, source=VERSION,
          options={"block": block, "neighbours": neighbours, "exact": exact},
          params=projections(10 * index, dim, dim), x=normal(index, batch, length, dim),
          forward=package(heads, block, neighbours, exact, mask), mask=mask)
