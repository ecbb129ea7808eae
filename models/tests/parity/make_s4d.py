"""S4D: the layer in plain torch with complex numbers, by its convolution kernel written down over all positions, and independently of it the recurrence step
by step for one of the cases."""

import math

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write
from filters import write_batch

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"


def modes(params, real):
    """A (H, M) of every channel and step (H, 1)."""
    dim = params["log_dt"].shape[0]
    a = -params["log_a_real"].exp()
    if not real:
        a = torch.complex(a, params["a_imag"])
    return a.repeat(dim // a.shape[0], 1), params["log_dt"].exp()[:, None]


def read_out(params, real, direction):
    return params["c"][direction] if real else torch.complex(params["c_real"][direction], params["c_imag"][direction])


def kernel(params, real, direction, length):
    """(H, L)."""
    a, dt = modes(params, real)
    c = read_out(params, real, direction) * ((a * dt).exp() - 1) / a
    powers = (a * dt)[..., None] * torch.arange(length)
    taps = (c[..., None] * powers.exp()).sum(1)
    return taps if real else 2 * taps.real


def filtered(params, u, real, taps):
    batch, length, dim = u.shape
    y = params["d"] * u
    directions = (params["c"] if real else params["c_real"]).shape[0]
    rows = torch.arange(length)
    lag = rows[:, None] - rows[None, :]  # of query t and key j
    for direction in range(directions):
        k = kernel(params, real, direction, length)
        if taps:
            k = k * (torch.arange(length) < taps)
        apart = lag if direction == 0 else -lag - 1
        matrix = torch.where(apart >= 0, k[:, apart.clamp(min=0)], torch.zeros(()))  # (H, L, L)
        y = y + torch.einsum("htj,bjh->bth", matrix, u)
    return y


def stepwise(params, u, real):
    """The same without taps, state by state."""
    a, dt = modes(params, real)
    factor = (a * dt).exp()
    enter = (factor - 1) / a
    directions = (params["c"] if real else params["c_real"]).shape[0]
    y = params["d"] * u
    for direction in range(directions):
        c, outputs = read_out(params, real, direction), []
        state = torch.zeros(u.shape[0], *a.shape, dtype=a.dtype)
        rows = range(u.shape[1]) if direction == 0 else reversed(range(u.shape[1]))
        for t in rows:
            before, state = state, factor * state + enter * u[:, t, :, None]
            seen = ((state if direction == 0 else before) * c).sum(-1)
            outputs.append(seen if real else 2 * seen.real)
        y = y + torch.stack(outputs if direction == 0 else outputs[::-1], 1)
    return y


def layer(params, x, mask, real, taps, activation):
    u = x if mask is None else x * mask[:, :, None]
    y = filtered(params, u, real, taps)
    if not taps:
        assert (y - stepwise(params, u, real)).abs().max() < 1e-10
    z = F.gelu(y, approximate="tanh" if activation == "gelu" else "none")
    a, g = (z @ params["output.weight"].T + params["output.bias"]).chunk(2, -1)
    return a * torch.sigmoid(g)


def parameters(seed, dim, m, sets, directions, real):
    at = iter(range(1000 * seed, 1000 * seed + 100))
    params = {
        "log_dt": normal(next(at), dim, scale=0.5) - 2.5,
        "log_a_real": normal(next(at), sets, m, scale=0.3) + math.log(0.5),
        "d": normal(next(at), dim),
        "output.weight": normal(next(at), 2 * dim, dim, scale=dim**-0.5),
        "output.bias": normal(next(at), 2 * dim, scale=0.3),
    }
    if real:
        params["c"] = normal(next(at), directions, dim, m)
    else:
        params["a_imag"] = normal(next(at), sets, m, scale=0.3) + math.pi * torch.arange(m)
        params["c_real"], params["c_imag"] = (normal(next(at), directions, dim, m, scale=0.5**0.5) for _ in range(2))
    return params


CASES = [
    # name, seed, B, L, H, N, sets, options, lengths, activation
    ("s4d_both", 1, 3, 37, 6, 4, 1, {}, [37, 20, 1], "gelu_erf"),
    ("s4d_forward_own", 2, 2, 29, 4, 6, 4, {"direction": "forward", "n_ssm": 0}, None, "gelu_erf"),
    ("s4d_fft_sets", 3, 2, 45, 6, 32, 2, {"n_ssm": 2, "init": "legs"}, [45, 9], "gelu_erf"),
    ("s4d_real", 4, 2, 23, 5, 3, 1, {"init": "real"}, [23, 11], "gelu"),
    ("s4d_taps", 5, 2, 31, 4, 4, 1, {"taps": 5}, [31, 12], "gelu_erf"),
]

for name, seed, batch, length, dim, state, sets, options, lengths, activation in CASES:
    real = options.get("init") == "real"
    directions = 1 if options.get("direction") == "forward" else 2
    params = parameters(seed, dim, state if real else state // 2, sets, directions, real)
    mask = None if lengths is None else lengths_mask(lengths, length)
    write(
        name, mixer="s4d", heads=1, source=SOURCE, params=params, x=normal(seed, batch, length, dim), mask=mask,
        options={"state": state, **options}, block=f'{{"activation": "{activation}"}}',
        forward=lambda p, x: layer(p, x, mask, real, options.get("taps", 0), activation),
    )

# By both ways to compute the filter, for which padded positions are the same.
for compute in ("scan", "fft"):
    write_batch(
        f"s4d_batch_{compute}", mixer="s4d", source=SOURCE, seed=6, dim=5, lengths=[33, 14, 2], activation="gelu_erf",
        parameters=lambda seed: parameters(seed, 5, 2, 1, 2, False), model={"compute": compute},
        layer=lambda p, x, mask: layer(p, x, mask, False, 0, "gelu_erf"),
    )
