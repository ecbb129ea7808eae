"""Performer: performer_pytorch's softmax_kernel, generalized_kernel and linear_attention, with directions that the case hands over."""

import importlib.metadata

from performer_pytorch.performer_pytorch import gaussian_orthogonal_random_matrix, generalized_kernel, linear_attention, softmax_kernel

import torch
from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"performer-pytorch {importlib.metadata.version('performer-pytorch')}, softmax_kernel and linear_attention"


def favor(heads, directions, epsilon, lengths=None):
    """The package knows no mask, so each padded sequence is run on its real part."""

    def attend(q, k, v):
        q = softmax_kernel(q, projection_matrix=directions, is_query=True, eps=epsilon)
        k = softmax_kernel(k, projection_matrix=directions, is_query=False, eps=epsilon)
        return linear_attention(q, k, v)

    return forward_of(heads, attend, lengths)


def relu(heads):
    def attend(q, k, v):
        q, k = (generalized_kernel(t, projection_matrix=None, normalize_data=False) for t in (q, k))
        return linear_attention(q, k, v)

    return forward_of(heads, attend)


def trig(heads, directions, lengths=None):
    """Sines and cosines, by the equations: the package has none."""

    def attend(q, k, v):
        width = q.shape[-1]
        features = []
        for x in (q, k):
            x = x / width**0.25
            waves = x @ directions.T
            features.append(torch.exp((x**2).sum(-1, keepdim=True) / 2) * torch.cat([waves.sin(), waves.cos()], -1))
        weights = features[0] @ features[1].transpose(-1, -2)
        total = weights.sum(-1, keepdim=True)
        assert (total.abs() / len(directions) > 0.05).all(), "a denominator near zero"
        return weights @ v / total

    return forward_of(heads, attend, lengths)


def forward_of(heads, attend, lengths=None):
    def forward(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        if lengths is None:
            return merge(attend(q, k, v)) @ params["output.weight"].T
        rows = []
        for row, length in enumerate(lengths):
            y = attend(*(t[row : row + 1, :, :length] for t in (q, k, v)))
            rows.append(torch.nn.functional.pad(merge(y), (0, 0, 0, x.shape[1] - length)))
        return torch.cat(rows) @ params["output.weight"].T

    return forward


def directions(seed, features, width):
    torch.manual_seed(seed)
    return gaussian_orthogonal_random_matrix(features, width).float().double()


for index, (batch, length, dim, heads, features) in enumerate([(2, 16, 16, 2, 16), (1, 35, 24, 3, 20), (2, 3, 8, 2, 8)], 1):
    w = directions(index, features, dim // heads)
    write(f"performer-{index}", mixer="performer", heads=heads, source=SOURCE, options={"features": features, "epsilon": 1e-4},
          params=projections(10 * index, dim, dim), x=normal(index, batch, length, dim), draws={"directions": w},
          forward=favor(heads, w, 1e-4))
lengths = [27, 9, 1]
w = directions(4, 24, 8)
write("performer-4", mixer="performer", heads=2, source=SOURCE, options={"features": 24, "epsilon": 1e-6},
      params=projections(40, 16, 16), x=normal(4, 3, 27, 16), draws={"directions": w}, mask=lengths_mask(lengths, 27),
      forward=favor(2, w, 1e-6, lengths))
write("performer-5", mixer="performer", heads=2, source=SOURCE.replace("softmax_kernel", "generalized_kernel"), options={"variant": "tay2021"},
      params=projections(50, 16, 16), x=normal(5, 2, 21, 16), forward=relu(2))
for index, (lengths, features) in enumerate([(None, 64), ([19, 8, 1], 100)], 6):
    w = directions(index, features, 4)
    length = 19
    mask = None if lengths is None else lengths_mask(lengths, length)
    write(f"performer-{index}", mixer="performer", heads=2, source=f"equations in torch {torch.__version__.split('+')[0]}",
          options={"features": features, "kernel": "trig"}, params=projections(10 * index, 8, 8), x=normal(index, 3, length, 8, scale=0.5),
          draws={"directions": w}, mask=mask, forward=trig(2, w, lengths))
