"""Memory-compressed attention: MemoryCompressedAttention of memory_compressed_attention, its projections and kernel ours.

The package divides scores by the root of the whole width, which W_Q is multiplied to undo; it puts padding before the sequence and mistakes masked queries
for keys, so that every sequence is run on its real part, filled up with zeros at its end, without mask. Its key and value of no token are `block.memory = 1`.
Two kinds of kernel that it does not have, and layers that are local, are equations in torch."""

import importlib.metadata

import torch
from memory_compressed_attention import MemoryCompressedAttention
from torch.func import functional_call

from case import lengths_mask, merge, normal, projections, split, write

PACKAGE = (f"memory-compressed-attention {importlib.metadata.version('memory-compressed-attention')}, MemoryCompressedAttention, "
           "changed: each sequence filled up with zeros at its end, queries scaled by √H")
PAPER = "arXiv:1801.10198, section 4.2.3, in torch operations"


def rows_alone(x, lengths, factor, attend):
    """attend(rows of one sequence, zeros up to a whole number of groups behind them), put together again."""
    rows = []
    for row, length in enumerate(lengths or [x.shape[1]] * len(x)):
        real = torch.nn.functional.pad(x[row : row + 1, :length], (0, 0, 0, -length % factor))
        rows.append(torch.nn.functional.pad(attend(real)[:, :length], (0, 0, 0, x.shape[1] - length)))
    return torch.cat(rows)


def package(heads, factor, lengths):
    def forward(params, x):
        dim = x.shape[2]
        module = MemoryCompressedAttention(dim, heads=heads, compression_factor=factor).double().eval()
        query = params["query.weight"] * heads**0.5
        own = {
            "to_qkv.weight": torch.cat([query, params["key.weight"], params["value.weight"]]),
            "to_out.weight": params["output.weight"],
            "to_out.bias": torch.zeros(dim),
            "compress_fn.conv.weight": params["compress.weight"],
            "compress_fn.conv.bias": torch.zeros(dim),
            "null_k": params["memory.key"][None] * (dim // heads) ** 0.5,
            "null_v": params["memory.value"][None],
        }
        return rows_alone(x, lengths, factor, lambda real: functional_call(module, own, (real,)))

    return forward


def equation(heads, factor, convolve, lengths):
    def shortened(params, x):
        """(1, L, W), L a multiple of the factor, to (1, L / factor, W)."""
        kernel = params["compress.weight"]
        groups = x.shape[2] // kernel.shape[1]
        return torch.nn.functional.conv1d(x.transpose(1, 2), kernel, stride=factor, groups=groups).transpose(1, 2)

    def attend(params, x):
        q = split(x @ params["query.weight"].T, heads)
        source = shortened(params, x) if convolve == "input" else x
        k, v = (source @ params[f"{name}.weight"].T for name in ("key", "value"))
        if convolve != "input":
            k, v = shortened(params, k), shortened(params, v)
        scores = q @ split(k, heads).transpose(-1, -2) / q.shape[-1] ** 0.5
        return merge(scores.softmax(-1) @ split(v, heads)) @ params["output.weight"].T

    return lambda params, x: rows_alone(x, lengths, factor, lambda real: attend(params, real))


def local(heads, size, mask):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        block = torch.arange(x.shape[1]) // size
        sees = (block[:, None] == block[None, :])[None, None] & mask[:, None, None, :].bool()
        scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~sees, -1e30)
        return merge(scores.softmax(-1) @ v) @ params["output.weight"].T

    return forward


def case(index, heads, factor, shape, lengths=None, convolve="heads", local_size=0, qkv_dim=None, memory=False):
    batch, length, dim = shape
    row = qkv_dim or dim
    params = projections(10 * index, dim, row)
    width = {"heads": row // heads, "all": row, "input": dim}[convolve]
    if not local_size:
        channels = dim if convolve == "input" else row
        params["compress.weight"] = normal(500 + index, channels, width, factor, scale=(width * factor) ** -0.5)
    metadata = {"qkv_dim": row}
    if memory:
        params["memory.key"] = normal(600 + index, 1, row, scale=0.5)
        params["memory.value"] = normal(700 + index, 1, row)
        metadata["block"] = '{"memory": 1}'
    mask = None if lengths is None else lengths_mask(lengths, length)
    if local_size:
        forward = local(heads, local_size, mask)
    elif memory:
        forward = package(heads, factor, lengths)
    else:
        forward = equation(heads, factor, convolve, lengths)
    write(f"compressed-{index}", mixer="compressed", heads=heads, source=PACKAGE if memory else PAPER,
          options={"factor": factor, "convolve": convolve, "local": local_size}, params=params,
          x=normal(index, batch, length, dim), forward=forward, mask=mask, **metadata)


case(1, 2, 3, (2, 12, 8), memory=True)
case(2, 3, 3, (3, 17, 12), [17, 9, 1], memory=True)
case(3, 2, 4, (2, 11, 8), [11, 6], memory=True)
case(4, 2, 3, (2, 13, 6), [13, 5], qkv_dim=8)
case(5, 2, 3, (2, 14, 6), [14, 7], "all", qkv_dim=8)
case(6, 2, 5, (3, 16, 6), [16, 11, 3], "input", qkv_dim=8)
case(7, 2, 3, (2, 13, 8), [13, 6], local_size=4)
