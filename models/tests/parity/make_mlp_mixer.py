"""MLP-Mixer: the network of positions of mlp_mixer_pytorch. It knows one length: shorter sequences are filled up with zeros, what is padding too."""

import importlib.metadata
from functools import partial

import torch
from mlp_mixer_pytorch.mlp_mixer_pytorch import FeedForward

from case import lengths_mask, normal, write

SOURCE = f"mlp-mixer-pytorch {importlib.metadata.version('mlp-mixer-pytorch')}, FeedForward of positions"


def mixer(longest, hidden, mask):
    network = FeedForward(longest, hidden, dense=partial(torch.nn.Conv1d, kernel_size=1))

    def forward(params, x):
        length = x.shape[1]
        if mask is not None:
            x = x * mask[:, :, None]
        weights = {f"{place}.weight": params[f"{name}.weight"][:, :, None] for place, name in ((0, "inner"), (3, "outer"))}
        weights |= {f"{place}.bias": params[f"{name}.bias"] for place, name in ((0, "inner"), (3, "outer"))}
        x = torch.nn.functional.pad(x, (0, 0, 0, longest - length))
        return torch.func.functional_call(network, weights, (x,))[:, :length]

    return forward


for index, (batch, length, longest, dim, hidden, lengths) in enumerate(
        [(2, 16, 16, 8, 12, None), (1, 13, 37, 5, 6, None), (3, 1, 4, 7, 9, None), (3, 21, 24, 6, 10, [21, 9, 1])], 1):
    seed, mask = 10 * index, None if lengths is None else lengths_mask(lengths, length)
    params = {
        "inner.weight": normal(seed, hidden, longest, scale=longest**-0.5),
        "inner.bias": normal(seed + 1, hidden, scale=0.3),
        "outer.weight": normal(seed + 2, longest, hidden, scale=hidden**-0.5),
        "outer.bias": normal(seed + 3, longest, scale=0.3),
    }
    write(f"mlp_mixer-{index}", mixer="mlp_mixer", heads=1, source=SOURCE, options={"hidden": hidden}, params=params,
          x=normal(index, batch, length, dim), mask=mask, max_length=longest, forward=mixer(longest, hidden, mask))
