"""Hrrformer: the attention of listops/hrrformer_mgpu.py of FutureComputing4AI/Hrrformer@8a127d1 around the operations of package hrr, in float64 on each row's
real part. The package's functions for torch are those that the authors' flax modules of the same names compute."""

import torch
from HRR.with_pytorch import binding, cosine_similarity, unbinding

from case import lengths_mask, normal, projections, write

SOURCE = "hrr 1.2.3, binding, unbinding and cosine_similarity"


def row(params, x, heads):
    split = lambda name: (x @ params[f"{name}.weight"].T).reshape(len(x), heads, -1).transpose(0, 1)
    q, k, v = split("query"), split("key"), split("value")
    bound = binding(k, v, dim=-1).sum(-2, keepdim=True)
    recalled = unbinding(bound, q, dim=-1)
    weights = cosine_similarity(v, recalled, dim=-1, keepdim=True).softmax(-2)
    return (weights * v).transpose(0, 1).flatten(1) @ params["output.weight"].T


def case(number, *, dim, qkv_dim, heads, lengths):
    seed, length = 25_000 + 100 * number, max(lengths)

    def forward(params, x):
        rows = [row(params, x[index, :length], heads) for index, length in enumerate(lengths)]
        return torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    write(f"hrrformer-{number}", mixer="hrrformer", heads=heads, source=SOURCE, params=projections(seed, dim, qkv_dim),
          x=normal(seed + 50, len(lengths), length, dim), mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward,
          qkv_dim=qkv_dim)


if __name__ == "__main__":
    case(1, dim=8, qkv_dim=8, heads=2, lengths=[13, 6])
    case(2, dim=5, qkv_dim=7, heads=1, lengths=[9])
    case(3, dim=6, qkv_dim=9, heads=3, lengths=[1, 11, 4])
