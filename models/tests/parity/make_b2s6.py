"""B2S6: a program of our own in float64, from sections 2 and 6 of arXiv:2505.09022 (Algorithm 2; zero-order hold, footnote 2), one position
after the other, on each row's real part. No public code was found."""

import torch
from torch.nn.functional import gelu, pad, sigmoid, softplus

from case import lengths_mask, normal, write

SOURCE = "equations, float64, one position after the other"


def unit(params, at, u, options):
    """2 Re(C S) of one direction."""
    blocks, modes = options["blocks"], options["state"] // 2
    width = u.shape[1] // blocks
    u = u.reshape(len(u), blocks, width)
    rows = torch.einsum("ljp,jop->ljo", u, params[f"{at}.step.weight"])
    step = softplus(rows + params[f"{at}.step.bias"].reshape(blocks, width))  # (L, J, P)
    b_re, b_im, c = torch.einsum("ljp,jop->ljo", u, params[f"{at}.selection.weight"]).split(modes, -1)
    bias = torch.complex(*params[f"{at}.b"].split(modes, 1))  # (J, N/2, P)
    a = torch.complex(-params[f"{at}.log_a_real"].exp(), params[f"{at}.a_imag"])
    state, y = torch.zeros_like(bias), []
    for t in range(len(u)):
        decay = (step[t][:, None] * a[:, None]).exp()  # (J, N/2, P)
        written = (decay - 1) / a[:, None] * (torch.complex(b_re, b_im)[t][:, :, None] + bias)
        state = decay * state + written * u[t][:, None]
        y.append(2 * (c[t][:, :, None] * state.real).sum(1))
    return torch.stack(y).flatten(1)


def b2s6(params, x, options):
    y = params["d"] * x + unit(params, "forward", x, options)
    if options["direction"] == "both":
        y = y + unit(params, "backward", x.flip(0), options).flip(0)
    out = gelu(y) @ params["output.weight"].T + params["output.bias"]
    value, gate = out.chunk(2, -1)
    return value * sigmoid(gate)


def parameters(seed, dim, options):
    at, params = iter(range(seed, seed + 100)), {}
    blocks, modes = options["blocks"], options["state"] // 2
    width = dim // blocks

    def add(path, *shape, scale, mean=0.0):
        # Sums are rounded again.
        params[path] = (mean + normal(next(at), *shape, scale=scale)).float().double()

    for name in ("forward", "backward")[: 2 if options["direction"] == "both" else 1]:
        add(f"{name}.step.weight", blocks, 1, width, scale=width**-0.5)
        add(f"{name}.step.bias", dim, scale=0.5, mean=-1.0)
        add(f"{name}.selection.weight", blocks, 3 * modes, width, scale=0.5 * width**-0.5)
        add(f"{name}.b", blocks, 2 * modes, width, scale=0.3)
        add(f"{name}.log_a_real", modes, scale=0.4, mean=-0.7)
        add(f"{name}.a_imag", modes, scale=3.0)
    add("d", dim, scale=0.5)
    add("output.weight", 2 * dim, dim, scale=dim**-0.5)
    add("output.bias", 2 * dim, scale=0.3)
    return params


CASES = [
    (37, 8, {"blocks": 2, "state": 6, "direction": "both"}, [37, 9]),
    (70, 6, {"blocks": 1, "state": 4, "direction": "forward"}, [70]),
    (17, 6, {"blocks": 3, "state": 2, "direction": "both"}, [17, 1, 16]),
]


def main():
    for number, (length, dim, options, lengths) in enumerate(CASES, 1):
        seed = 57_000 + 200 * number

        def forward(params, x, options=options, lengths=lengths, length=length):
            rows = [b2s6(params, x[row, :real], options) for row, real in enumerate(lengths)]
            return torch.stack([pad(y, (0, 0, 0, length - len(y))) for y in rows])

        write(f"b2s6-{number}", mixer="b2s6", heads=1, source=SOURCE, options=options, params=parameters(seed, dim, options), forward=forward,
              x=normal(seed + 199, len(lengths), length, dim), mask=None if min(lengths) == length else lengths_mask(lengths, length),
              block='{"activation": "gelu_erf"}')


if __name__ == "__main__":
    main()
