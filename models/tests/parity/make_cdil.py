"""CDIL-CNN: the layers that experiments/Models/net_conv.py of LeiCheng-no/CDIL-CNN@18639fe builds of torch's own modules (a circular Conv1d under weight_norm,
ReLU, the sum), in float64 on each row's real part. Rows are long enough for torch, whose circle closes once at most."""

import warnings

import torch
from torch.nn import Conv1d
from torch.nn import functional as F
from torch.nn.utils import weight_norm

from case import lengths_mask, normal, write_encoder

warnings.filterwarnings("ignore", category=FutureWarning)
SOURCE = "equations, float64, torch's circular Conv1d under weight_norm"


def layer(params, at, x, dilation):
    outputs, inputs, kernel = params[f"{at}.weight"].shape
    conv = weight_norm(Conv1d(inputs, outputs, kernel, padding=dilation * (kernel - 1) // 2, dilation=dilation, padding_mode="circular"))
    values = {
        "weight_v": params[f"{at}.weight"],
        "weight_g": params[f"{at}.gain"][:, None, None],
        "bias": params[f"{at}.bias"],
    }
    return torch.func.functional_call(conv, values, (x,))


def forward_of(layers, lengths):
    def row(params, x):
        x = x.T[None]
        for index in range(layers):
            x = F.relu(layer(params, f"{index}.mixer.conv", x, 2**index)) + x
        return x[0].T

    def forward(params, x):
        mask = lengths_mask(lengths, x.shape[1])
        rows = [row(params, x[index, :length]) for index, length in enumerate(lengths)]
        return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows]), mask, {}

    return forward


def case(number, *, dim, kernel, layers, lengths, asked=0):
    seed, length = 22_000 + 100 * number, max(lengths)
    params = {}
    for index in range(layers):
        at, base = f"{index}.mixer.conv", seed + 10 * index
        params[f"{at}.weight"] = normal(base, dim, dim, kernel)
        params[f"{at}.gain"] = (0.7 + normal(base + 1, dim, scale=0.3)).float().double()
        params[f"{at}.bias"] = normal(base + 2, dim, scale=0.3)
    block = {"dim": dim, "qkv_dim": dim, "heads": 1}
    write_encoder(f"cdil-{number}", mixer="cdil", source=SOURCE, options={"block": block, "model": {"kernel": kernel, "layers": asked}}, params=params,
                  x=normal(seed + 99, len(lengths), length, dim), mask=lengths_mask(lengths, length), forward=forward_of(layers, lengths),
                  max_length=length)


if __name__ == "__main__":
    case(1, dim=4, kernel=3, layers=3, lengths=[13, 5], asked=3)
    case(2, dim=3, kernel=3, layers=4, lengths=[17, 8, 11])
    case(3, dim=2, kernel=5, layers=2, lengths=[9, 7], asked=2)
