"""Nyströmformer: nystrom_attention.NystromAttention, sequence by sequence, and NystromformerSelfAttention of transformers for the published variant.

Both scale the first pseudo-inverse by the largest column sum of all matrices at hand unless told otherwise. transformers' `exact` option
scales each by its own (its configuration's way to it raises an error, so the attribute is set); the package's function is called matrix by matrix.
"""

import importlib.metadata

import nystrom_attention.nystrom_attention as package
import torch
from transformers import NystromformerConfig
from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

from case import lengths_mask, merge, normal, projections, split, write

VERSION = importlib.metadata.version("nystrom-attention")
SOURCE = f"nystrom-attention {VERSION}, NystromAttention, changed: pseudo-inverse of each matrix by itself"
FUNCTION = f"equations, with nystrom-attention {VERSION}, moore_penrose_iter_pinv"
TRANSFORMERS = "transformers 4.40.2, NystromformerSelfAttention, changed: init_option = exact"
whole_batch = package.moore_penrose_iter_pinv


def inverses(a, iters=6):
    """The package's pseudo-inverse of each matrix by itself."""
    size = a.shape[-1]
    return torch.stack([whole_batch(each[None], iters)[0] for each in a.reshape(-1, size, size)]).view_as(a)


package.moore_penrose_iter_pinv = inverses


def by_package(dim, qkv_dim, heads, landmarks, iterations, taps, lengths=None):
    def run(params, x, count):
        module = package.NystromAttention(dim, dim_head=qkv_dim // heads, heads=heads, num_landmarks=count, pinv_iterations=iterations,
                                          residual=taps > 0, residual_conv_kernel=taps)
        weights = {
            "to_qkv.weight": torch.cat([params[f"{name}.weight"] for name in ("query", "key", "value")]),
            "to_out.0.weight": params["output.weight"],
            "to_out.0.bias": torch.zeros(dim),
        }
        if taps > 0:
            weights["res_conv.weight"] = params["conv.weight"][:, None, :, None]
        return torch.func.functional_call(module, weights, (x,))

    def forward(params, x):
        if lengths is None:
            return run(params, x, landmarks)
        rows = []
        for row, length in enumerate(lengths):
            # Its segments are equal only so; others are left to the equations.
            count = min(landmarks, length)
            assert length % count == 0
            y = run(params, x[row : row + 1, :length], count)
            rows.append(torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - length)))
        return torch.cat(rows)

    return forward


def by_equations(heads, landmarks, iterations, taps, lengths):
    def forward(params, x):
        rows = []
        for row, length in enumerate(lengths):
            each = x[row : row + 1, :length]
            q, k, v = (split(each @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
            count = min(landmarks, length)
            segment = torch.arange(length) * count // length
            means = torch.nn.functional.one_hot(segment, count).double().T
            means = means / means.sum(1, keepdim=True)
            q_means, k_means, scale = means @ q, means @ k, q.shape[-1] ** -0.5
            f = torch.softmax(q @ k_means.mT * scale, -1)
            a = torch.softmax(q_means @ k_means.mT * scale, -1)
            g = torch.softmax(q_means @ k.mT * scale, -1)
            y = f @ inverses(a, iterations) @ (g @ v)
            weight = params["conv.weight"][:, None, :, None]
            y = y + torch.nn.functional.conv2d(v, weight, padding=(taps // 2, 0), groups=heads)
            rows.append(torch.nn.functional.pad(merge(y) @ params["output.weight"].T, (0, 0, 0, x.shape[1] - length)))
        return torch.cat(rows)

    return forward


def published(dim, heads, landmarks, taps, longest, mask):
    """Positions up to `longest`, a power of two, hold zeros: without biases their queries, keys and values are zeros too."""
    config = NystromformerConfig(hidden_size=dim, num_attention_heads=heads, num_landmarks=landmarks, segment_means_seq_len=longest,
                                 conv_kernel_size=taps, attention_probs_dropout_prob=0.0)
    module = NystromformerSelfAttention(config).eval()
    module.init_option = "exact"

    def forward(params, x):
        length = x.shape[1]
        real = torch.ones(x.shape[:2]) if mask is None else mask
        x, real = x * real[:, :, None], torch.nn.functional.pad(real, (0, longest - length))
        x = torch.nn.functional.pad(x, (0, 0, 0, longest - length))
        weights = {f"{name}.weight": params[f"{name}.weight"] for name in ("query", "key", "value")}
        weights |= {f"{name}.bias": torch.zeros(dim) for name in ("query", "key", "value")}
        weights["conv.weight"] = params["conv.weight"][:, None, :, None]
        hidden = ((1 - real) * -1e9)[:, None, None, :]
        y = torch.func.functional_call(module, weights, (x, hidden))[0]
        return y[:, :length] @ params["output.weight"].T

    return forward


def parameters(seed, dim, qkv_dim, heads, taps):
    params = projections(seed, dim, qkv_dim)
    if taps > 0:
        params["conv.weight"] = normal(seed + 5, heads, taps, scale=taps**-0.5)
    return params


for index, (batch, length, dim, qkv_dim, heads, landmarks, iterations, taps) in enumerate(
        [(2, 24, 12, 12, 3, 6, 6, 5), (1, 35, 8, 16, 2, 7, 4, 3), (3, 9, 8, 8, 4, 9, 6, 0)], 1):
    write(f"nystromformer-{index}", mixer="nystromformer", heads=heads, source=SOURCE,
          options={"landmarks": landmarks, "iterations": iterations, "conv": taps}, params=parameters(10 * index, dim, qkv_dim, heads, taps),
          x=normal(index, batch, length, dim), qkv_dim=qkv_dim, forward=by_package(dim, qkv_dim, heads, landmarks, iterations, taps))
lengths = [21, 14, 5, 1]
write("nystromformer-4", mixer="nystromformer", heads=2, source=SOURCE, options={"landmarks": 7, "conv": 5}, params=parameters(40, 12, 12, 2, 5),
      x=normal(4, 4, 21, 12), mask=lengths_mask(lengths, 21), forward=by_package(12, 12, 2, 7, 6, 5, lengths))
lengths = [37, 29, 10, 3]
write("nystromformer-5", mixer="nystromformer", heads=3, source=FUNCTION, options={"landmarks": 8, "conv": 35},
      params=parameters(50, 12, 12, 3, 35), x=normal(5, 4, 37, 12), mask=lengths_mask(lengths, 37),
      forward=by_equations(3, 8, 6, 35, lengths))
for index, (batch, length, dim, heads, landmarks, taps, longest, lengths) in enumerate(
        [(2, 32, 8, 2, 8, 5, 32, None), (3, 27, 12, 3, 4, 3, 32, [27, 13, 2]), (2, 13, 8, 2, 16, 3, 16, [13, 6])], 6):
    mask = None if lengths is None else lengths_mask(lengths, length)
    write(f"nystromformer-{index}", mixer="nystromformer", heads=heads, source=TRANSFORMERS,
          options={"variant": "xiong2021", "landmarks": landmarks, "conv": taps}, params=parameters(10 * index, dim, dim, heads, taps),
          x=normal(index, batch, length, dim), mask=mask, max_length=max(length, longest - 3), forward=published(dim, heads, landmarks, taps, longest, mask))
