"""S4: its kernels by dense matrices of states, one power after the other, in float64, and matrices of lags instead of Fourier transforms. C comes from
what is learned in its place as class SSMKernelDPLR of state-spaces/s4@e757cef (models/s4/s4.py) has it: C (1 - A^T) for the longest length T."""

import json

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write

SOURCE = "equations, float64, dense matrices"


def complex_of(params, name):
    return torch.complex(params[f"{name}_real"], params[f"{name}_imag"])


def pairs(z):
    """(.., M) to (.., 2M), the conjugates behind."""
    return torch.cat([z, z.conj()], -1)


def kernels(params, longest):
    """(directions, H, T)."""
    directions, dim, _ = params["c_real"].shape
    pole = torch.complex(-params["log_a_real"].exp(), params["a_imag"])
    pole, b, p, c = map(pairs, (pole, complex_of(params, "b"), complex_of(params, "p"), complex_of(params, "c")))
    rows = []
    for channel in range(dim):
        place = channel % len(pole)
        step = params["log_dt"][channel].exp()
        a = torch.diag(pole[place]) - p[place][:, None] * p[place][None, :].conj()
        one = torch.eye(len(a), dtype=a.dtype)
        a_bar = torch.linalg.solve(one - step / 2 * a, one + step / 2 * a)
        b_bar = torch.linalg.solve(one - step / 2 * a, step * b[place])
        whole = torch.linalg.inv(one - torch.linalg.matrix_power(a_bar, longest))
        state, taps = b_bar, []
        for _ in range(longest):
            taps.append(torch.stack([(c[direction, channel] @ whole @ state).real for direction in range(directions)]))
            state = a_bar @ state
        rows.append(torch.stack(taps, -1))
    return torch.stack(rows, 1)


def row(params, x, longest):
    places = torch.arange(len(x))
    lag = places[:, None] - places[None, :]
    y = params["d"] * x
    for direction, taps in enumerate(kernels(params, longest)):
        apart = lag if direction == 0 else -lag - 1
        matrix = torch.where(apart >= 0, taps[:, apart.clamp(min=0)], torch.zeros(()))  # (H, L, L)
        y = y + torch.einsum("htj,jh->th", matrix, x)
    return F.glu(F.linear(F.gelu(y), params["output.weight"], params["output.bias"]))


def case(number, dim, modes, sets, directions, lengths, longest):
    seed, length = 41_000 + 100 * number, max(lengths)
    at = iter(range(seed, seed + 100))
    params = {
        "log_dt": -1 + normal(next(at), dim, scale=0.5),
        "log_a_real": -0.7 + normal(next(at), sets, modes, scale=0.3),
        "a_imag": 2.0 * torch.arange(modes) + 0.4 + normal(next(at), sets, modes, scale=0.1),
    }
    for name, shape, scale in (("b", (sets, modes), 1.0), ("p", (sets, modes), 0.6), ("c", (directions, dim, modes), 1.0)):
        for part in ("real", "imag"):
            params[f"{name}_{part}"] = normal(next(at), *shape, scale=scale)
    params |= {
        "d": normal(next(at), dim),
        "output.weight": normal(next(at), 2 * dim, dim, scale=dim**-0.5),
        "output.bias": normal(next(at), 2 * dim, scale=0.3),
    }
    params = {path: value.float().double() for path, value in params.items()}

    def forward(params, x):
        rows = [row(params, x[index, :length], longest) for index, length in enumerate(lengths)]
        return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    options = {"state": 2 * modes, "n_ssm": sets, "direction": {1: "forward", 2: "both"}[directions]}
    write(f"s4-{number}", mixer="s4", heads=1, source=SOURCE, params=params, x=normal(next(at), len(lengths), length, dim),
          mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward, max_length=longest, options=options,
          block=json.dumps({"activation": "gelu_erf"}))


def main():
    case(1, 4, 3, 1, 2, [13, 6], 15)
    case(2, 3, 2, 3, 1, [11], 11)
    case(3, 6, 4, 2, 2, [1, 10, 7], 16)


if __name__ == "__main__":
    main()
