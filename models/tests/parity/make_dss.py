"""Diagonal state spaces and diagonal linear RNNs: their kernels with complex numbers as classes DSSKernel and DLRKernel of ag1988/dlr@580d854
(src/models/sequence/ss/standalone/dss.py) have them, in float64 and written down over all lags, then matrices of lags instead of Fourier transforms."""

import json
import math

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write

SOURCE = "equations, float64"


def softmax_kernel(params, weight, length, longest):
    """The softmax over all lags of the longest length."""
    pole = torch.complex(params["lambda_re"], params["lambda_im"])
    step = params["log_dt"].exp()[:, None] * pole
    grows = pole.real > 0
    signed = torch.where(grows, -step, step)
    # A mode that grows has its largest number last. (The code leaves this shift out of the gradient.)
    shift = torch.where(grows, step * (longest - 1), torch.zeros_like(step))
    waves = (step[..., None] * torch.arange(longest) - shift[..., None]).exp()  # (H, M, N)
    below = ((signed * longest).exp() - 1) * pole
    scale = weight * (signed.exp() - 1) * below.conj() / (below.abs().square() + 1e-7)
    return (scale[..., None] * waves).sum(1).real[:, :length]


def exp_kernel(params, weight, length, _):
    pole = torch.complex(-params["log_lambda_re"].exp(), params["lambda_im"])
    step = params["log_dt"].exp()[:, None] * pole
    waves = (step[..., None] * torch.arange(length)).exp()
    return (weight[..., None] * ((step.exp() - 1) / pole)[..., None] * waves).sum(1).real


def dlr_kernel(params, weight, length, _):
    pole = torch.complex(-params["lambda_root"].square(), params["lambda_im"])
    return (weight[..., None] * (pole[:, None] * torch.arange(length)).exp()).sum(1).real


def row(kernel, params, x, longest):
    length = len(x)
    places = torch.arange(length)
    lag = places[:, None] - places[None, :]
    y = params["d"] * x
    for direction in range(len(params["w_re"])):
        weight = torch.complex(params["w_re"][direction], params["w_im"][direction])
        taps = kernel(params, weight, length, longest)
        apart = lag if direction == 0 else -lag - 1
        matrix = torch.where(apart >= 0, taps[:, apart.clamp(min=0)], torch.zeros(()))  # (H, L, L)
        y = y + torch.einsum("htj,jh->th", matrix, x)
    return F.glu(F.linear(F.gelu(y), params["output.weight"], params["output.bias"]))


def case(name, *, mixer, kernel, own, dim, modes, directions, lengths, longest, options):
    seed, length = 28_000 + sum(map(ord, name)), max(lengths)
    params = own | {
        "w_re": normal(seed, directions, dim, modes),
        "w_im": normal(seed + 1, directions, dim, modes),
        "d": normal(seed + 2, dim),
        "output.weight": normal(seed + 3, 2 * dim, dim, scale=dim**-0.5),
        "output.bias": normal(seed + 4, 2 * dim, scale=0.3),
    }
    params = {path: value.float().double() for path, value in params.items()}

    def forward(params, x):
        rows = [row(kernel, params, x[index, :length], longest) for index, length in enumerate(lengths)]
        return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    direction = {1: "forward", 2: "both"}[directions]
    write(name, mixer=mixer, heads=1, source=SOURCE, params=params, x=normal(seed + 5, len(lengths), length, dim),
          mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward, max_length=longest,
          options={"state": modes, "direction": direction} | options, block=json.dumps({"activation": "gelu_erf"}))


def steps(seed, dim, shift=-1.0):
    return shift + normal(seed, dim, scale=0.5)


def main():
    waves = lambda modes: math.pi * torch.arange(modes) + 0.3
    falling = {"lambda_re": -0.5 + normal(1, 6, scale=0.1), "lambda_im": waves(6), "log_dt": steps(2, 4)}
    case("dss-1", mixer="dss", kernel=softmax_kernel, own=falling, dim=4, modes=6, directions=2, lengths=[13, 6], longest=15,
         options={"kernel": "softmax"})
    mixed = {"lambda_re": torch.tensor([-0.4, 0.3, 0.0, 0.7, -1.2]), "lambda_im": waves(5), "log_dt": steps(3, 3)}
    case("dss-2", mixer="dss", kernel=softmax_kernel, own=mixed, dim=3, modes=5, directions=2, lengths=[9, 4], longest=9, options={"kernel": "softmax"})
    own = {"log_lambda_re": -0.5 + normal(4, 4, scale=0.3), "lambda_im": waves(4), "log_dt": steps(5, 5)}
    case("dss-3", mixer="dss", kernel=exp_kernel, own=own, dim=5, modes=4, directions=1, lengths=[11], longest=11, options={"kernel": "exp"})
    own = {"log_lambda_re": -0.5 + normal(6, 7, scale=0.3), "lambda_im": waves(7), "log_dt": steps(7, 2)}
    case("dss-4", mixer="dss", kernel=exp_kernel, own=own, dim=2, modes=7, directions=2, lengths=[7, 12, 1], longest=14, options={"kernel": "exp"})
    for number, (dim, modes, directions, lengths) in enumerate([(4, 6, 2, [13, 6]), (3, 9, 1, [11]), (5, 3, 2, [1, 10, 7])], 1):
        own = {
            "lambda_root": normal(10 + number, modes, scale=0.3),
            "lambda_im": 2 * math.pi * torch.arange(modes) / modes + normal(20 + number, modes, scale=0.1),
        }
        case(f"dlr-{number}", mixer="dlr", kernel=dlr_kernel, own=own, dim=dim, modes=modes, directions=directions, lengths=lengths,
             longest=max(lengths), options={})


if __name__ == "__main__":
    main()
