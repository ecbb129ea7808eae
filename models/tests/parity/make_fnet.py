"""FNet: FNetBasicFourierTransform of transformers, a two-dimensional transform over length and width, unnormalised and without masks."""

import torch
from transformers import FNetConfig
from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

from case import lengths_mask, normal, write

SOURCE = "transformers 4.40.2, FNetBasicFourierTransform"


def fnet(mask=None, longest=None):
    transform = FNetBasicFourierTransform(FNetConfig(use_tpu_fourier_optimizations=False))

    def forward(params, x):
        length = x.shape[1]
        if mask is not None:
            x = x * mask[:, :, None]
        if longest is not None:
            # As in the paper, where every sequence is padded to the longest; with zeros.
            x = torch.nn.functional.pad(x, (0, 0, 0, longest - length))
        return transform(x)[0][:, :length]

    return forward


def case(index, batch, length, dim, longest=None, lengths=None):
    mask = None if lengths is None else lengths_mask(lengths, length)
    metadata = {} if longest is None else {"max_length": longest}
    write(f"fnet-{index}", mixer="fnet", heads=1, source=SOURCE, options={"scale": 1.0}, params={},
          x=normal(index, batch, length, dim), mask=mask, forward=fnet(mask, longest), atol=1e-4, **metadata)


case(1, 2, 16, 8)
case(2, 1, 37, 5)
case(3, 3, 1, 12)
case(4, 2, 13, 6, longest=29)
case(5, 3, 21, 8, longest=21, lengths=[21, 9, 1])
