"""Long-Short Transformer, from the equations of its published code with dense masks. (The package of that name on PyPI computes another function.)

Each sequence is run on its real part. Without biases, and without the CLS vector that enters in the last layer.
"""

import torch
from torch.nn.functional import layer_norm, pad

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = "equations of transformer-ls (attention_transformer_ls.py), dense, float64"


def window_mask(length, window):
    """(L, L): a block of `window` queries sees itself and max(window / 2, 1) positions on either side."""
    position = torch.arange(length)
    if window == 0:
        return position[:, None] == position[None, :]
    first, reach = position // window * window, max(window // 2, 1)
    return (position[None, :] >= (first - reach)[:, None]) & (position[None, :] < (first + window + reach)[:, None])


def long_short(heads, rank, window, lengths):
    def run(params, x):
        length = x.shape[1]
        q, k, v = (x @ params[f"{name}.weight"].T for name in ("query", "key", "value"))

        def norm(name, x):
            return layer_norm(x, x.shape[-1:], params[f"{name}.scale"], params[f"{name}.shift"], eps=1e-6)

        k, v = norm("near_norm", k), norm("near_norm", v)
        seen = window_mask(length, window)
        if rank:
            # (1, H, r, L): softmax over the length of the r columns of each head.
            p = torch.softmax((x @ params["far.weight"].T).view(1, length, heads, rank), 1).permute(0, 2, 3, 1)
            k, v = (torch.cat([norm("far_norm", merge(p @ split(x, heads))), x], 1) for x in (k, v))
            seen = torch.cat([torch.ones(length, rank, dtype=torch.bool), seen], 1)
        q, k, v = (split(x, heads) for x in (q, k, v))
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
        return merge(torch.softmax(scores, -1) @ v) @ params["output.weight"].T

    def forward(params, x):
        rows = [run(params, x[row : row + 1, :length]) for row, length in enumerate(lengths)]
        return torch.cat([pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


def parameters(seed, dim, qkv_dim, heads, rank):
    params = projections(seed, dim, qkv_dim)
    names = ["near_norm"]
    if rank:
        params["far.weight"] = normal(seed + 3, heads * rank, dim, scale=dim**-0.5)
        names.append("far_norm")
    for place, name in enumerate(names):
        params[f"{name}.scale"] = 1 + normal(seed + 4 + place, qkv_dim, scale=0.3)
        params[f"{name}.shift"] = normal(seed + 6 + place, qkv_dim, scale=0.3)
    # Shifted numbers are rounded again.
    return {path: value.float().double() for path, value in params.items()}


for index, (length, dim, qkv_dim, heads, rank, window, lengths) in enumerate(
        [(16, 8, 8, 2, 4, 4, [16, 16]), (37, 12, 12, 3, 5, 8, [37]), (23, 8, 12, 4, 3, 3, [23, 9, 1]), (21, 6, 6, 2, 0, 5, [21, 12]),
         (11, 6, 6, 1, 16, 1, [11, 4]), (9, 4, 4, 2, 2, 0, [9, 5])], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    write(f"long_short-{index}", mixer="long_short", heads=heads, source=SOURCE, options={"rank": rank, "window": window},
          params=parameters(20 * index, dim, qkv_dim, heads, rank), x=normal(index, len(lengths), length, dim), mask=mask, qkv_dim=qkv_dim,
          forward=long_short(heads, rank, window, lengths))
