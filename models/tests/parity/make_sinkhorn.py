"""Sinkhorn: sinkhorn_transformer's SinkhornAttention with its SimpleSortNet, unchanged but for four names of the package that are set from here:
- `sample_gumbel` gives the case's noise (or zeros);
- `log`, which the package takes of the sorting scores, is the identity: the paper exponentiates the scores themselves.
The package takes sorted *keys* for the values of sorted blocks (`b_v_r = b_k_r`). So each vector is handed over twice as wide, key and value side
by side, with queries that are zero on the second half; the values are then the second half of what comes out."""

import importlib.metadata
import math

import torch
from sinkhorn_transformer import sinkhorn_transformer as package

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"sinkhorn-transformer {importlib.metadata.version('sinkhorn-transformer')}, SinkhornAttention and SimpleSortNet, " \
    "changed: no logarithm of sorting scores, noise of the case, sorted values in place of sorted keys"
ITERATIONS, TEMPERATURE = 5, 0.8


def attend(q, k, v, weight, block, sortcut, noise):
    """q, k, v (B, H, L, E), weight (H, 2E, n)."""
    batch, heads, length, width = q.shape
    blocks = length // block
    attention = package.SinkhornAttention(block, heads * width, 2 * width, heads, length, temperature=TEMPERATURE, non_permutative=False,
                                          sinkhorn_iter=ITERATIONS, n_sortcut=sortcut, use_simple_sort_net=True)
    # Where a vector is [k; v], a row of weights for q stays zero on the second half.
    zeros = torch.zeros(heads, width, blocks)
    wide = torch.cat([weight[:, :width, :blocks] / math.sqrt(2), zeros, weight[:, width:, :blocks], zeros], 1)
    del attention.sort_net.linear
    attention.sort_net.linear = wide[None]
    package.log = lambda t, eps=0.0: t
    package.sample_gumbel = lambda shape, device, dtype: torch.zeros(shape) if noise is None else noise.reshape(shape)
    # The package divides scores by sqrt(2E).
    q = torch.cat([q * math.sqrt(2), torch.zeros_like(q)], -1)
    k = torch.cat([k, v], -1)
    return attention(q, k, k)[..., width:]


def forward_of(heads, block, sortcut=0, noise=None, lengths=None):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        weight = params["sorting.weight"]
        if lengths is None:
            return merge(attend(q, k, v, weight, block, sortcut, noise)) @ params["output.weight"].T
        # The package sorts padded blocks too, so each sequence is run on its real part.
        rows = []
        for row, length in enumerate(lengths):
            y = attend(*(t[row : row + 1, :, :length] for t in (q, k, v)), weight, block, sortcut, None)
            rows.append(torch.nn.functional.pad(merge(y), (0, 0, 0, x.shape[1] - length)))
        return torch.cat(rows) @ params["output.weight"].T

    return forward


def case(index, batch, length, dim, heads, block, sortcut=0, noisy=False, lengths=None, longest=None):
    longest = longest or length
    params = projections(10 * index, dim, dim)
    params["sorting.weight"] = normal(10 * index + 5, heads, 2 * dim // heads, -(-longest // block), scale=0.3)
    blocks = length // block
    noise = normal(90 + index, batch, heads, blocks, blocks) if noisy else None
    write(f"sinkhorn-{index}", mixer="sinkhorn", heads=heads, source=SOURCE, max_length=longest,
          options={"block": block, "iterations": ITERATIONS, "temperature": TEMPERATURE, "sortcut": sortcut},
          params=params, x=normal(index, batch, length, dim), draws={"gumbel": noise} if noisy else None,
          mask=None if lengths is None else lengths_mask(lengths, length), forward=forward_of(heads, block, sortcut, noise, lengths))


case(1, 2, 24, 8, 2, 6)
case(2, 1, 35, 12, 3, 5, noisy=True)
case(3, 2, 21, 8, 2, 7, noisy=True, longest=30)
case(4, 2, 20, 8, 2, 4, sortcut=2)
case(5, 3, 27, 8, 2, 9, lengths=[27, 18, 9])
