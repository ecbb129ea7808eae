"""Toeplitz neural network: the gated Toeplitz unit of arXiv:2305.04749 with its matrices written out, from the equations, each row on its real part.

The authors' package is not used: its files have several networks of the lag, none of them with a norm before every layer as in the paper's.
"""

import torch
from torch.nn.functional import layer_norm, silu

from case import lengths_mask, normal, write

SOURCE = f"equations of arXiv:2305.04749, dense, float64, torch {torch.__version__.split('+')[0]}"
EPSILON = 1e-6


def linear(params, name, x):
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def unit(layers, gamma, lengths):
    def row(params, x):
        n = x.shape[1]
        lag = torch.arange(n)[:, None] - torch.arange(n)[None, :]
        z = linear(params, "rpe.first", lag[:, :, None].double())
        for layer in range(layers + 1):
            z = layer_norm(z, z.shape[-1:], params[f"rpe.{layer}_norm.scale"], params[f"rpe.{layer}_norm.shift"], eps=EPSILON)
            z = linear(params, f"rpe.{layer}", torch.relu(z))
        weights = z * (gamma ** lag.abs().double())[:, :, None]  # (n, n, G)
        u, v = silu(linear(params, "gate", x)), silu(linear(params, "value", x))
        return linear(params, "output", u * torch.einsum("ijg,bjg->big", weights, v))

    def forward(params, x):
        rows = [row(params, x[index : index + 1, :n]) for index, n in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


def parameters(seed, dim, expand, width, layers):
    maps = {"gate": (expand * dim, dim), "value": (expand * dim, dim), "output": (dim, expand * dim), "rpe.first": (width, 1)}
    maps |= {f"rpe.{layer}": (expand * dim if layer == layers else width, width) for layer in range(layers + 1)}
    params = {}
    for place, (name, shape) in enumerate(maps.items()):
        params[f"{name}.weight"] = normal(seed + 2 * place, *shape, scale=shape[1] ** -0.5)
        params[f"{name}.bias"] = normal(seed + 2 * place + 1, shape[0], scale=0.3)
    for layer in range(layers + 1):
        params[f"rpe.{layer}_norm.scale"] = (1 + normal(seed + 50 + layer, width, scale=0.3)).float().double()
        params[f"rpe.{layer}_norm.shift"] = normal(seed + 60 + layer, width, scale=0.3)
    return params


for index, (length, dim, expand, width, layers, gamma, lengths) in enumerate(
        [(16, 8, 1, 8, 3, 0.9, [16, 16]), (37, 6, 2, 4, 2, 1.0, [37, 20, 1]), (23, 4, 3, 16, 0, 0.7, [23, 9]), (1, 4, 1, 4, 1, 0.99, [1]),
         (50, 6, 1, 8, 1, 0.999, [50, 33])], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    write(f"tnn-{index}", mixer="tnn", heads=1, source=SOURCE, options={"expand": expand, "rpe_dim": width, "rpe_layers": layers, "gamma": gamma},
          params=parameters(100 * index, dim, expand, width, layers), x=normal(index, len(lengths), length, dim), mask=mask,
          forward=unit(layers, gamma, lengths))
