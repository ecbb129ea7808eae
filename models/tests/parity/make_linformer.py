"""Linformer: linformer.LinformerSelfAttention. Its projections are shared by heads; its output map has a bias, which is set to zero."""

import importlib.metadata

import torch
from linformer import LinformerSelfAttention

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"linformer {importlib.metadata.version('linformer')}, LinformerSelfAttention"


def module(dim, heads, longest, rank, lengths=None, tied=False):
    attention = LinformerSelfAttention(dim, longest, k=rank, heads=heads)

    def run(params, x):
        key = params["length.key"][0]
        weights = {
            "to_q.weight": params["query.weight"],
            "to_k.weight": params["key.weight"],
            "to_v.weight": params["value.weight"],
            "proj_k": key,
            "proj_v": key if tied else params["length.value"][0],
            "to_out.weight": params["output.weight"],
            "to_out.bias": torch.zeros(dim),
        }
        return torch.func.functional_call(attention, weights, (x,), tie_weights=False)

    def forward(params, x):
        if lengths is None:
            return run(params, x)
        # The package knows no mask: each sequence is run on its real part, with the first rows of the projections.
        rows = []
        for row, length in enumerate(lengths):
            y = run(params, x[row : row + 1, :length])
            rows.append(torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - length)))
        return torch.cat(rows)

    return forward


def parameters(seed, dim, longest, rank, tied=False):
    params = projections(seed, dim, dim)
    params["length.key"] = normal(seed + 3, 1, longest, rank, scale=rank**-0.5)
    if not tied:
        params["length.value"] = normal(seed + 4, 1, longest, rank, scale=rank**-0.5)
    return params


def by_equations(heads, lengths, key, value):
    """With a projection for each head, or one for all of them, of these names."""

    def row(params, x):
        q, k, v = (split(x[None] @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        short = lambda x, name: params[name][:, : x.shape[2]].mT @ x
        weights = torch.softmax(q @ short(k, key).mT / q.shape[-1] ** 0.5, -1)
        return (merge(weights @ short(v, value)) @ params["output.weight"].T)[0]

    def forward(params, x):
        rows = [row(params, x[index, :length]) for index, length in enumerate(lengths)]
        return torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    return forward


for index, (batch, length, longest, dim, heads, rank) in enumerate([(2, 32, 32, 16, 4, 8), (1, 21, 40, 12, 3, 5), (2, 1, 7, 8, 2, 3)], 1):
    write(f"linformer-{index}", mixer="linformer", heads=heads, source=SOURCE, options={"rank": rank, "sharing": "headwise"},
          params=parameters(10 * index, dim, longest, rank), x=normal(index, batch, length, dim), max_length=longest,
          forward=module(dim, heads, longest, rank))
write("linformer-4", mixer="linformer", heads=2, source=SOURCE, options={"rank": 6, "sharing": "key_value"},
      params=parameters(40, 16, 25, 6, tied=True), x=normal(4, 2, 25, 16), forward=module(16, 2, 25, 6, tied=True))
lengths = [23, 10, 1]
write("linformer-5", mixer="linformer", heads=4, source=SOURCE, options={"rank": 7, "sharing": "headwise"},
      params=parameters(50, 16, 23, 7), x=normal(5, 3, 23, 16), mask=lengths_mask(lengths, 23), forward=module(16, 4, 23, 7, lengths))
write("linformer-6", mixer="linformer", heads=2, source=SOURCE, options={"variant": "tay2021"},
      params=parameters(60, 8, 30, 16, tied=True), x=normal(6, 2, 30, 8), forward=module(8, 2, 30, 16, tied=True))
lengths = [13, 6, 1]
for index, sharing, copies, key, value in [(7, "none", 2, "length.key", "length.value"), (8, "layerwise", 1, "length.key", "length.key")]:
    params = projections(10 * index, 6, 8)
    params |= {name: normal(10 * index + 3 + place, copies, 15, 4, scale=0.5) for place, name in enumerate(dict.fromkeys((key, value)))}
    write(f"linformer-{index}", mixer="linformer", heads=2, source=f"equations, torch {torch.__version__.split('+')[0]}",
          options={"rank": 4, "sharing": sharing}, params=params, x=normal(index, 3, 13, 6), mask=lengths_mask(lengths, 13), qkv_dim=8, max_length=15,
          forward=by_equations(2, lengths, key, value))
