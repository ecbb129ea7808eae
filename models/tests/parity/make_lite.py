"""Lite Transformer: no package has it, so this is its two branches in torch operations, convolutions by unfolding (arXiv:2004.11886, and for dynamic kernels arXiv:1901.10430)."""

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = "arXiv:2004.11886, section 3.2, in torch operations"


def unfolded(x, taps):
    """(B, L, C) to (B, L, C, taps), zeros around the sequence."""
    before = (taps - 1) // 2
    return torch.nn.functional.pad(x, (0, 0, before, taps - 1 - before)).unfold(1, taps, 1)


def equation(heads, groups, taps, conv, mask):
    def attend(params, x):
        q, k, v = (split(x @ params[f"attention.{name}.weight"].T, heads) for name in ("query", "key", "value"))
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, -1e30)
        return merge(scores.softmax(-1) @ v) @ params["attention.output.weight"].T

    def convolve(params, x):
        if mask is not None:
            x = x * mask[:, :, None]
        x = torch.nn.functional.glu(x @ params["conv.gate.weight"].T, dim=-1)
        batch, length, channels = x.shape
        kernel = params["conv.kernel.weight"]
        scores = kernel.expand(batch, length, groups, taps) if conv == "light" else (x @ kernel.T).view(batch, length, groups, taps)
        near = unfolded(x, taps).view(batch, length, groups, channels // groups, taps)
        y = (near * scores.softmax(-1)[:, :, :, None]).sum(-1).reshape(batch, length, channels)
        return y @ params["conv.output.weight"].T

    def forward(params, x):
        half = x.shape[2] // 2
        return torch.cat([attend(params, x[..., :half]), convolve(params, x[..., half:])], dim=-1)

    return forward


def case(index, conv, heads, shape, taps, lengths=None, groups=0, kernel=None, qkv_dim=None):
    batch, length, dim = shape
    half, row, number = dim // 2, (qkv_dim or dim) // 2, groups or heads
    params = {f"attention.{name}": value for name, value in projections(10 * index, half, row).items()}
    params["conv.gate.weight"] = normal(300 + index, dim, half, scale=half**-0.5)
    params["conv.output.weight"] = normal(400 + index, half, half, scale=half**-0.5)
    shape_of_kernel = (number, taps) if conv == "light" else (number * taps, half)
    params["conv.kernel.weight"] = normal(500 + index, *shape_of_kernel)
    mask = None if lengths is None else lengths_mask(lengths, length)
    write(f"lite-{index}", mixer="lite", heads=heads, source=SOURCE, options={"conv": conv, "groups": groups, "kernel": taps if kernel is None else kernel},
          params=params, x=normal(index, batch, length, dim), mask=mask, forward=equation(heads, number, taps, conv, mask), qkv_dim=2 * row)


case(1, "light", 2, (2, 13, 8), 3, kernel=0)
case(2, "light", 2, (3, 17, 12), 5, [17, 9, 1], groups=3)
case(3, "light", 2, (1, 6, 8), 31)
case(4, "dynamic", 2, (2, 13, 8), 3, kernel=0)
case(5, "dynamic", 3, (3, 17, 12), 7, [17, 9, 2], groups=2)
case(6, "dynamic", 2, (2, 5, 12), 8, [5, 3], qkv_dim=8)
