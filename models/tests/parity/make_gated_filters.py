"""H3 and Hyena: programs of our own in float64 on each row's real part, with matrices of lags instead of Fourier transforms. The equations are those of
HazyResearch/safari@02220c6: src/models/sequence/h3.py with ssm/ss_kernel_shift.py and ss_kernel_diag.py, and standalone_hyena.py, whose own code takes
float32 in places."""

import math

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write
from ways import both_ways, directed

SOURCE = "equations, float64, matrices of lags"


def convolve(x, taps):
    """x (L, C) with causal taps (C, K)."""
    places = torch.arange(len(x))
    lag = places[:, None] - places[None, :]
    fits = (lag >= 0) & (lag < taps.shape[1])
    matrix = torch.where(fits, taps[:, lag.clamp(0, taps.shape[1] - 1)], torch.zeros(()))  # (C, L, L)
    return torch.einsum("ctj,jc->tc", matrix, x)


def linear(params, name, x):
    return F.linear(x, params[f"{name}.weight"], params.get(f"{name}.bias"))


def h3(params, x, options, longest):
    q, k, v = (linear(params, name, x) for name in ("query", "key", "value"))
    # A shift register of N numbers: b enters it, c reads it.
    b, c = params["shift.b"], params["shift.c"]
    state, taps = b, []
    for _ in range(b.shape[1]):
        taps.append((c * state).sum(1))
        state = F.pad(state, (1, 0))[:, :-1]
    k = convolve(k, torch.stack(taps, 1)) + params["shift.d"] * k
    pole = torch.complex(-params["memory.log_a_real"].exp(), params["memory.a_imag"])
    step = params["memory.log_dt"].exp()[:, None]
    enters = torch.complex(params["memory.b_real"], params["memory.b_imag"]) * step / (1 - step * pole / 2)
    factor = (1 + step * pole / 2) / (1 - step * pole / 2)
    read = torch.complex(params["memory.c_real"], params["memory.c_imag"])
    h, rows = torch.zeros_like(enters), []
    for u in k * v:
        h = factor * h + enters * u[:, None]
        rows.append(2 * (read * h).sum(1).real)
    y = torch.stack(rows) + params["memory.d"] * k * v
    return linear(params, "output", q * y)


def hyena(params, x, options, longest):
    dim = x.shape[1]
    taps = params["conv.weight"].flip(1)
    parts = (convolve(linear(params, "inner", x), taps) + params["conv.bias"]).split(dim, 1)
    *gates, v = parts
    bands = (options["positions"] - 1) // 2
    place = torch.linspace(0, longest - 1, longest)[:, None]
    time = torch.linspace(0, 1, longest)[:, None]
    angle = torch.linspace(1e-4, bands - 1, bands)[None] * 2 * math.pi * place / longest
    z = torch.cat([time, angle.cos(), -angle.sin()], 1)
    for layer in range(options["inner"] + 1):
        z = (params["filter.frequency"] * linear(params, f"filter.{layer}", z)).sin()
    filters = linear(params, "filter.last", z)
    decay = torch.linspace(math.log(0.01) / 1.5, math.log(0.01) / 0.3, filters.shape[1]).abs()
    filters = filters * (-time * decay).exp()
    for index, gate in enumerate(reversed(gates[1:])):
        u = v * gate
        v = convolve(u, filters[:, index * dim : (index + 1) * dim].T) + params["skip"][index] * u
    return linear(params, "outer", v * gates[0])


def shapes(model, dim, options):
    """Parameters of a layer, with the deviation of each and the number it lies around."""
    weight = lambda inputs, outputs: ((outputs, inputs), inputs**-0.5, 0.0)
    if model is h3:
        state = options["state"]
        half = (dim, state // 2)
        layers = {f"{name}.weight": weight(dim, dim) for name in ("query", "key", "value", "output")}
        layers |= {f"{name}.bias": ((dim,), 0.4, 0.0) for name in ("query", "key", "value", "output")}
        return layers | {
            "shift.b": ((dim, state), 0.5, 0.0),
            "shift.c": ((dim, state), 0.5, 0.0),
            "shift.d": ((dim,), 1.0, 0.0),
            "memory.log_dt": ((dim,), 0.5, -1.0),
            "memory.log_a_real": (half, 0.3, -0.7),
            "memory.a_imag": (half, 2.0, 0.0),
            "memory.b_real": (half, 0.5, 1.0),
            "memory.b_imag": (half, 0.5, 0.0),
            "memory.c_real": (half, 0.7, 0.0),
            "memory.c_imag": (half, 0.7, 0.0),
            "memory.d": ((dim,), 1.0, 0.0),
        }
    order, width = options["order"], options["filter_width"]
    row = dim * (order + 1)
    own = {
        "inner.weight": weight(dim, row),
        "inner.bias": ((row,), 0.4, 0.0),
        "conv.weight": ((row, options["taps"]), 0.6, 0.0),
        "conv.bias": ((row,), 0.4, 0.0),
        "skip": ((order - 1, dim), 1.0, 0.0),
        "outer.weight": weight(dim, dim),
        "outer.bias": ((dim,), 0.4, 0.0),
        "filter.frequency": ((width,), 0.3, options["frequency"]),
        "filter.last.weight": weight(width, dim * (order - 1)),
    }
    for layer in range(options["inner"] + 1):
        inputs = width if layer else options["positions"]
        own |= {f"filter.{layer}.weight": weight(inputs, width), f"filter.{layer}.bias": ((width,), 0.3, 0.0)}
    return own


def parameters(seed, model, dim, options):
    params = {}
    for offset, (path, (shape, deviation, mean)) in enumerate(shapes(model, dim, options).items()):
        # Sums are rounded again.
        params[path] = (mean + normal(seed + offset, *shape, scale=deviation)).float().double()
    return params


CASES = [
    (h3, 4, {"state": 6}, [13, 6], 15),
    (h3, 3, {"state": 16}, [11], 11),
    (h3, 5, {"state": 2}, [1, 10, 7], 10),
    (hyena, 4, {"order": 2, "taps": 3, "filter_width": 6, "positions": 5, "inner": 2, "frequency": 1.0}, [13, 6], 15),
    (hyena, 3, {"order": 3, "taps": 4, "filter_width": 4, "positions": 3, "inner": 0, "frequency": 2.0}, [11], 11),
    (hyena, 2, {"order": 4, "taps": 1, "filter_width": 5, "positions": 7, "inner": 1, "frequency": 3.0}, [1, 10, 7], 12),
    (hyena, 2, {"order": 2, "taps": 3, "filter_width": 4, "positions": 3, "inner": 1, "frequency": 2.0, "direction": "two"}, [9, 1, 4], 12),
    (hyena, 3, {"order": 3, "taps": 9, "filter_width": 3, "positions": 9, "inner": 1, "frequency": 1.0, "direction": "sum"}, [13, 1, 6], 17),
    (h3, 3, {"state": 34, "direction": "sum"}, [9, 1, 4], 13),
    (h3, 3, {"state": 6, "direction": "two"}, [9, 1, 4], 9),
]


def main():
    counts = {}
    for index, (model, dim, options, lengths, longest) in enumerate(CASES):
        name = model.__name__
        counts[name] = counts.get(name, 0) + 1
        seed, length = 43_000 + 100 * index, max(lengths)
        params = parameters(seed, model, dim, options)
        if options.get("direction") == "two":
            params = both_ways(params, parameters(seed + 50, model, dim, options))
        run = directed(lambda params, x, _, options: model(params, x, options, longest))

        def forward(params, x):
            rows = [run(params, x[row, :count], 1, options) for row, count in enumerate(lengths)]
            return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

        write(f"{name}-{counts[name]}", mixer=name, heads=1, source=SOURCE, options=options, params=params,
              x=normal(seed + 99, len(lengths), length, dim), mask=None if min(lengths) == length else lengths_mask(lengths, length),
              forward=forward, max_length=longest)


if __name__ == "__main__":
    main()
