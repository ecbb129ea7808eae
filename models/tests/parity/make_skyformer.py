"""Skyformer: attention_skyformer.py of pkuzengqi/Skyformer in plain operations, from its equations, each row on its real part.

The inverse starts from the largest column sum of each matrix by itself, where that code takes the largest of the whole batch. Landmarks are at the places to
which the case's numbers point; the script asserts that none is near the border of two.
"""

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = f"equations of pkuzengqi/Skyformer, attention_skyformer.py, torch {torch.__version__.split('+')[0]}"


def gaussian(x, y):
    return torch.exp(-((x[..., :, None, :] - y[..., None, :, :]) ** 2).sum(-1) / 2)


def inverse(a, iterations):
    identity = torch.eye(a.shape[-1])
    x = a.mT / a.sum(-2).max(-1).values[..., None, None]
    for _ in range(iterations):
        ax = a @ x
        x = 0.25 * x @ (13 * identity - ax @ (15 * identity - ax @ (7 * identity - ax)))
    return x


def skyformer(heads, lengths, draws, width, iterations, ridge):
    def row(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        divisor = (width or q.shape[-1]) ** 0.25
        q, k, n = q / divisor, k / divisor, x.shape[1]
        places, half = (draws * n).long(), len(draws) // 2
        assert ((draws * n - (draws * n).round()).abs() > 1e-4).all(), "near a border"
        landmarks = torch.cat([q[:, :, places[:half]], k[:, :, places[half:]]], 2)
        gram = gaussian(landmarks, landmarks) + ridge * torch.eye(len(draws))
        d = gram.sum(-1) ** -0.5
        z = d[..., :, None] * inverse(d[..., :, None] * gram * d[..., None, :], iterations) * d[..., None, :]
        return merge(gaussian(q, landmarks) @ z @ gaussian(landmarks, k) @ v) @ params["output.weight"].T

    def forward(params, x):
        rows = [row(params, x[index : index + 1, :n]) for index, n in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


for index, (length, dim, qkv_dim, heads, lengths, landmarks, width, iterations, ridge) in enumerate(
        [(24, 8, 8, 2, [24, 24], 8, 32, 6, 0.1), (37, 12, 24, 3, [37, 20, 1], 9, 32, 6, 0.1), (19, 8, 8, 1, [19, 11], 5, 0, 6, 0.1),
         (15, 6, 12, 2, [15, 8], 40, 32, 4, 0.5), (21, 8, 16, 2, [21], 6, 32, 12, 0.01)], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    draws = torch.rand(landmarks, generator=torch.Generator().manual_seed(700 + index)).clamp(max=0.999).float().double()
    options = {"width": width, "iterations": iterations, "ridge": ridge}
    write(f"skyformer-{index}", mixer="skyformer", heads=heads, source=SOURCE, options={"landmarks": landmarks, **options}, draws={"landmarks": draws},
          params=projections(20 * index, dim, qkv_dim), x=normal(index, len(lengths), length, dim), mask=mask, qkv_dim=qkv_dim,
          forward=skyformer(heads, lengths, draws, **options))
