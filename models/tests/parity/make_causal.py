"""Causal attention, each token on itself and those before it, by torch's scaled_dot_product_attention; ALiBi's slopes and rotations from the equations."""

import json

import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"torch {torch.__version__.split('+')[0]}, scaled_dot_product_attention"


def rotated(x):
    """Columns 2c and 2c + 1 of (1, H, L, E) by the angle t 10000^(-2c/E)."""
    width = x.shape[-1]
    angle = torch.arange(x.shape[2])[:, None] * 10000 ** (-torch.arange(0, width, 2) / width)
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(z).flatten(-2)


def row(params, x, heads, block):
    q, k, v = (split(x[None] @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
    if block.get("rotary"):
        q, k = rotated(q), rotated(k)
    if block.get("bias") != "alibi":
        y = scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        place = torch.arange(len(x))
        slopes = 2 ** (-8 * torch.arange(1, heads + 1) / heads)
        scores = (slopes[:, None, None] * (place[None, :] - place[:, None])).masked_fill(place[None, :] > place[:, None], float("-inf"))
        y = scaled_dot_product_attention(q, k, v, attn_mask=scores[None])
    return (merge(y) @ params["output.weight"].T)[0]


def case(number, *, dim, qkv_dim, heads, lengths, block):
    seed, length = 64_000 + 100 * number, max(lengths)

    def forward(params, x):
        rows = [row(params, x[index, :real], heads, block) for index, real in enumerate(lengths)]
        return torch.stack([pad(y, (0, 0, 0, length - len(y))) for y in rows])

    write(f"transformer-causal-{number}", mixer="transformer", heads=heads, source=SOURCE, options={"attention": "causal"}, qkv_dim=qkv_dim,
          params=projections(seed, dim, qkv_dim), x=normal(seed + 50, len(lengths), length, dim), forward=forward, block=json.dumps(block),
          mask=None if min(lengths) == length else lengths_mask(lengths, length))


if __name__ == "__main__":
    case(1, dim=6, qkv_dim=8, heads=2, lengths=[13, 6, 1], block={})
    case(2, dim=4, qkv_dim=8, heads=2, lengths=[70, 33], block={"rotary": True})
    case(3, dim=6, qkv_dim=8, heads=4, lengths=[17], block={"bias": "alibi"})
