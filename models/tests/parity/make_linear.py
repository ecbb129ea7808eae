"""Linear attention: LinearAttention of fast-transformers, whose compiled parts (other attentions') do not build on current PyTorch and are not needed here."""

import torch

import fast_transformers_python  # noqa: F401
from case import lengths_mask, normal, projections, write
from fast_transformers.attention.linear_attention import LinearAttention
from fast_transformers.masking import FullMask, LengthMask

SOURCE = "pytorch-fast-transformers 0.4.0, LinearAttention"


def linear(heads, lengths=None):
    def forward(params, x):
        batch, length, dim = x.shape
        q, k, v = ((x @ params[f"{name}.weight"].T).view(batch, length, heads, -1) for name in ("query", "key", "value"))
        keys = LengthMask(torch.tensor(lengths or [length] * batch), max_len=length)
        y = LinearAttention(dim // heads)(q, k, v, FullMask(length, length), keys, keys)
        return y.reshape(batch, length, dim) @ params["output.weight"].T

    return forward


for index, (batch, length, dim, heads) in enumerate([(2, 16, 16, 4), (1, 37, 12, 3), (3, 3, 8, 2)], 1):
    write(f"linear-{index}", mixer="linear", heads=heads, source=SOURCE, params=projections(10 * index, dim, dim),
          x=normal(index, batch, length, dim), forward=linear(heads))
lengths = [29, 11, 1]
write("linear-4", mixer="linear", heads=2, source=SOURCE, params=projections(40, 16, 16), x=normal(4, 3, 29, 16),
      forward=linear(2, lengths), mask=lengths_mask(lengths, 29))
