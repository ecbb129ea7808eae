"""Image Transformer: tensor2tensor has it for TensorFlow 1 only, so this is its local attention, both ways and with memories clipped at the image, in torch operations on
L x L weights."""

import json

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = "arXiv:1802.05751, section 3.2, both ways, in torch operations"


def near(count, block, memory):
    """(count, count): whether the block of the first coordinate, widened by the memory, has the second."""
    i, j = torch.arange(count)[:, None], torch.arange(count)[None, :]
    start = i // block * block
    return (j >= start - memory) & (j < start + block + memory)


def seen(options, pixels, width):
    if options["shape"] == "1d":
        return near(pixels, options["block"], options["memory"])
    rows = near(pixels // width, options["block_height"], options["memory_height"])
    columns = near(width, options["block_width"], options["memory_width"])
    return (rows[:, None, :, None] & columns[None, :, None, :]).reshape(pixels, pixels)


def equation(heads, options, width, mask, cls):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        length = x.shape[1]
        sees = torch.ones(length, length, dtype=torch.bool)
        sees[cls:, cls:] = seen(options, length - cls, width)
        sees = sees[None, None]
        if mask is not None:
            sees = sees & mask[:, None, None, :].bool()
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).exp() * sees
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
        return merge(weights @ v) @ params["output.weight"].T

    return forward


def line(block, memory):
    return {"shape": "1d", "block": block, "memory": memory}


def plane(block, memory, width=0):
    return {"shape": "2d", "block_height": block[0], "block_width": block[1], "memory_height": memory[0], "memory_width": memory[1], "width": width}


CASES = [  # heads, options, grid, CLS, (B, L, D), lengths
    (2, line(4, 2), None, False, (2, 15, 8), None),
    (3, line(5, 7), None, False, (3, 23, 12), [23, 11, 1]),
    (2, line(4, 3), None, True, (2, 18, 8), [18, 7]),
    (2, plane((2, 2), (1, 1)), (4, 6), False, (2, 24, 8), None),
    (2, plane((2, 3), (2, 1)), (5, 7), True, (1, 36, 8), None),
    (3, plane((3, 2), (0, 3)), (3, 8), False, (2, 24, 12), [24, 13]),
    (2, plane((2, 2), (1, 0), 4), (4, 6), False, (1, 24, 8), None),
]
for index, (heads, options, grid, cls, (batch, length, dim), lengths) in enumerate(CASES, 1):
    mask = None if lengths is None else lengths_mask(lengths, length)
    metadata = {} if grid is None else {"grid": json.dumps(grid)}
    if cls:
        metadata["cls"] = "true"
    width = options.get("width") or (grid[1] if grid else 0)
    write(f"image-{index}", mixer="image", heads=heads, source=SOURCE, options=options, params=projections(10 * index, dim, dim),
          x=normal(index, batch, length, dim), forward=equation(heads, options, width, mask, cls), mask=mask, **metadata)
