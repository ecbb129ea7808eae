"""Long convolutions, SGConv and RTF: the layers in plain torch, their kernels from the equations, and the convolutions written out pair by pair."""

import json
import math

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write
from filters import write_batch

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"


def filtered(u, kernels, d=None):
    """kernels: (H, K) looking back and perhaps one looking ahead."""
    length = u.shape[1]
    lag = torch.arange(length)[:, None] - torch.arange(length)[None, :]
    y = 0.0 if d is None else d * u
    for kernel, apart in zip(kernels, (lag, -lag - 1)):
        matrix = torch.where(apart >= 0, kernel[:, apart.clamp(min=0, max=kernel.shape[1] - 1)], torch.zeros(()))
        y = y + torch.einsum("htj,bjh->bth", matrix, u)
    return y


def output(p, y):
    a, g = (F.gelu(y) @ p["output.weight"].T + p["output.bias"]).chunk(2, -1)
    return a * torch.sigmoid(g)


def long_conv(p, options, longest):
    w = p["kernel"]
    k = w.sign() * (w.abs() - options["squash"]).clamp(min=0)
    return k.split(longest, 1), p["d"]


def sgconv(p, options, longest):
    kernels, scale = [], 0
    while f"kernel.{scale}" in p:
        kernels.append(p[f"kernel.{scale}"])
        scale += 1
    dim = kernels[0].shape[1]
    rho = torch.linspace(options["decay_min"], options["decay_max"], dim)[:, None]
    parts = []
    for i, w in enumerate(kernels):
        taps = options["kernel"] * 2 ** (max(0, i - 1) + options["first_scale"])
        parts.append(F.interpolate(w, size=taps, mode="linear", align_corners=False) * rho ** (scale - 1 - i))
    # The norm is that of the whole kernel, as in class GConv of ctlllll/SGConv@0c2b3ab (src/models/sequence/gconv.py).
    k = torch.cat(parts, -1)
    k = (k / k.detach().norm(dim=-1, keepdim=True))[..., :longest]
    assert k.shape[-1] == longest
    return k.unbind(0), p["d"]


def rtf(p, options, longest):
    kernels, size = [], longest + longest % 2
    for a, b, h0 in zip(p["a"], p["b"], p["h0"]):
        zero, one = torch.zeros(b.shape[0], 1), torch.ones(a.shape[0], 1)
        top = torch.fft.rfft(torch.cat([zero, b], 1)[:, :size], n=size)
        bottom = torch.fft.rfft(torch.cat([one, a], 1)[:, :size], n=size)
        kernels.append(torch.fft.irfft(top / bottom + h0[:, None], n=size)[:, :longest])
    return kernels, None


def parameters(seed, dim, shapes):
    at = iter(range(1000 * seed, 1000 * seed + 100))
    params = {path: normal(next(at), *shape, scale=scale) for path, (shape, scale) in shapes.items()}
    params["output.weight"] = normal(next(at), 2 * dim, dim, scale=dim**-0.5)
    params["output.bias"] = normal(next(at), 2 * dim, scale=0.3)
    return params


def layer(p, x, mask, kernels_of, options, longest):
    u = x if mask is None else x * mask[:, :, None]
    kernels, d = kernels_of(p, options, longest)
    return output(p, filtered(u, kernels, d))


def batch_case(name, mixer, kernels_of, seed, dim, lengths, shapes, options):
    write_batch(name, mixer=mixer, source=SOURCE, seed=seed, dim=dim, lengths=lengths, activation="gelu_erf", model=options,
                parameters=lambda seed: parameters(seed, dim, shapes),
                layer=lambda p, x, mask: layer(p, x, mask, kernels_of, options, max(lengths)))


def case(name, mixer, kernels_of, seed, batch, length, dim, longest, lengths, shapes, options, **other):
    params = parameters(seed, dim, shapes)
    mask = None if lengths is None else lengths_mask(lengths, length)

    def forward(p, x):
        return layer(p, x, mask, kernels_of, options, longest)

    write(name, mixer=mixer, heads=1, source=SOURCE, params=params, x=normal(seed, batch, length, dim), mask=mask,
          options={key: value for key, value in options.items()}, block=json.dumps({"activation": "gelu_erf"}),
          max_length=longest, forward=forward, **other)


for name, seed, batch, length, dim, longest, lengths, directions, squash in [
    ("long_conv_both", 21, 3, 19, 5, 23, [19, 7, 1], 2, 0.3), ("long_conv_forward", 22, 2, 17, 4, 17, None, 1, 0.0),
    ("long_conv_short", 23, 2, 9, 3, 40, [9, 4], 2, 0.1),
]:
    options = {"squash": squash, "direction": "both" if directions == 2 else "forward"}
    case(name, "long_conv", long_conv, seed, batch, length, dim, longest, lengths,
         {"kernel": ((dim, directions * longest), 1.0), "d": ((dim,), 1.0)}, options)

for name, seed, batch, length, dim, longest, lengths, kernel, first, rho in [
    ("sgconv_both", 31, 3, 19, 5, 23, [19, 7, 1], 2, 0, (2.0, 2.0)), ("sgconv_decays", 32, 2, 30, 4, 37, [30, 11], 4, 1, (1.0, 3.0)),
    ("sgconv_short", 33, 2, 5, 3, 6, None, 8, 0, (2.0, 2.0)),
]:
    count = 1 + max(0, math.ceil(math.log2(longest / kernel))) - first
    shapes = {f"kernel.{i}": ((2, dim, kernel), 1.0) for i in range(max(count, 1))}
    options = {"kernel": kernel, "first_scale": first, "decay_min": rho[0], "decay_max": rho[1]}
    case(name, "sgconv", sgconv, seed, batch, length, dim, longest, lengths, shapes | {"d": ((dim,), 1.0)}, options)
case("sgconv_forward", "sgconv", sgconv, 35, 3, 13, 4, 15, [13, 6, 1], {f"kernel.{i}": ((1, 4, 2), 1.0) for i in range(4)} | {"d": ((4,), 1.0)},
     {"kernel": 2, "first_scale": 0, "decay_min": 2.0, "decay_max": 2.0, "direction": "forward"})

for name, seed, batch, length, dim, longest, lengths, state, shared, directions in [
    ("rtf_both", 41, 3, 19, 5, 24, [19, 7, 1], 4, False, 2), ("rtf_shared", 42, 2, 17, 4, 17, None, 3, True, 1),
    ("rtf_long_state", 43, 2, 8, 3, 10, [8, 3], 12, False, 2),
]:
    options = {"state": state, "shared": shared, "direction": "both" if directions == 2 else "forward"}
    case(name, "rtf", rtf, seed, batch, length, dim, longest, lengths,
         {"a": ((directions, 1 if shared else dim, state), 0.15), "b": ((directions, dim, state), 0.5), "h0": ((directions, dim), 1.0)}, options)

batch_case("sgconv_batch", "sgconv", sgconv, 34, 4, [23, 10, 2], {f"kernel.{i}": ((2, 4, 4), 1.0) for i in range(4)} | {"d": ((4,), 1.0)},
           {"kernel": 4, "first_scale": 0, "decay_min": 2.0, "decay_max": 2.0})
batch_case("rtf_batch", "rtf", rtf, 44, 4, [23, 10, 2], {"a": ((2, 4, 3), 0.15), "b": ((2, 4, 3), 0.5), "h0": ((2, 4), 1.0)},
           {"state": 3, "shared": False, "direction": "both"})
batch_case("long_conv_batch", "long_conv", long_conv, 24, 4, [23, 10, 2], {"kernel": ((4, 46), 1.0), "d": ((4,), 1.0)},
           {"squash": 0.1, "direction": "both"})
