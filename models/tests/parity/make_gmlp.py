"""gMLP: gMLPBlock of g_mlp_pytorch, with its attention or without.

It knows one length and no mask: each sequence is run on its real part, with the first rows and columns of W. The Toeplitz form is its full one with
a matrix of that form. The output map of its attention has a bias, which is set to zero.
"""

import importlib.metadata

import torch
from g_mlp_pytorch.g_mlp_pytorch import gMLPBlock

from case import lengths_mask, normal, write

SOURCE = f"g-mlp-pytorch {importlib.metadata.version('g-mlp-pytorch')}, gMLPBlock, changed: epsilon 1e-6 in its gate's norm"


def toeplitz(weight, longest):
    """W_ij is the weight of distance i - j; those ahead come after those behind."""
    distance = torch.arange(longest)[:, None] - torch.arange(longest)[None, :]
    return weight[torch.where(distance >= 0, distance, longest - 1 - distance)]


def gmlp(dim, hidden, longest, attention, lengths):
    def run(params, x):
        length = x.shape[1]
        block = gMLPBlock(dim=dim, dim_ff=2 * hidden, seq_len=length, attn_dim=attention or None)
        block.sgu.norm.eps = 1e-6
        matrix = params["spatial.weight"]
        if matrix.dim() == 1:
            matrix = toeplitz(matrix, longest)
        weights = {
            "proj_in.0.weight": params["inner.weight"],
            "proj_in.0.bias": params["inner.bias"],
            "proj_out.weight": params["outer.weight"],
            "proj_out.bias": params["outer.bias"],
            "sgu.norm.weight": params["gate_norm.scale"],
            "sgu.norm.bias": params["gate_norm.shift"],
            "sgu.weight": matrix[None, :length, :length],
            "sgu.bias": params["spatial.bias"][None, :length],
        }
        if attention:
            weights["attn.to_qkv.weight"] = torch.cat([params[f"attention.{name}.weight"] for name in ("query", "key", "value")])
            weights["attn.to_out.weight"] = params["attention.output.weight"]
            weights["attn.to_out.bias"] = torch.zeros(hidden)
        return torch.func.functional_call(block, weights, (x,))

    def forward(params, x):
        rows = [run(params, x[row : row + 1, :length]) for row, length in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


def parameters(seed, dim, hidden, longest, attention, spatial):
    shape = (longest, longest) if spatial == "full" else (2 * longest - 1,)
    params = {
        "inner.weight": normal(seed, 2 * hidden, dim, scale=dim**-0.5),
        "inner.bias": normal(seed + 1, 2 * hidden, scale=0.3),
        "outer.weight": normal(seed + 2, dim, hidden, scale=hidden**-0.5),
        "outer.bias": normal(seed + 3, dim, scale=0.3),
        "gate_norm.scale": 1 + normal(seed + 4, hidden, scale=0.3),
        "gate_norm.shift": normal(seed + 5, hidden, scale=0.3),
        "spatial.weight": normal(seed + 6, *shape, scale=longest**-0.5),
        "spatial.bias": 1 + normal(seed + 7, longest, scale=0.3),
    }
    if attention:
        for place, name in enumerate(("query", "key", "value")):
            params[f"attention.{name}.weight"] = normal(seed + 8 + place, attention, dim, scale=dim**-0.5)
        params["attention.output.weight"] = normal(seed + 11, hidden, attention, scale=attention**-0.5)
    # Shifted numbers are rounded again.
    return {path: value.float().double() for path, value in params.items()}


for index, (length, longest, dim, hidden, attention, spatial, lengths) in enumerate(
        [(16, 16, 8, 12, 0, "full", [16, 16]), (13, 20, 6, 9, 5, "full", [13]), (23, 23, 8, 8, 4, "full", [23, 10, 1]),
         (21, 30, 6, 7, 0, "toeplitz", [21, 8, 1])], 1):
    options = {"hidden": hidden, "spatial": spatial, "attention": attention}
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    write(f"gmlp-{index}", mixer="gmlp", heads=1, source=SOURCE, options=options,
          params=parameters(20 * index, dim, hidden, longest, attention, spatial), x=normal(index, len(lengths), length, dim), mask=mask,
          max_length=longest, forward=gmlp(dim, hidden, longest, attention, lengths))
