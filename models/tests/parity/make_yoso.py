"""YOSO in expectation: class YOSOEAttention of mlpen/YOSO@6000487 (encoders/backbones/efficient_attentions/yoso/yoso_v1/yoso.py) without its own backward pass,
in float64 on each row's real part. Outputs are compared with those of transformers' YosoCumulation, whose gradient is another function's."""

import math

import torch

from case import lengths_mask, normal, projections, write

SOURCE = "equations, float64, all pairs"


def row(params, x, heads, tau, window):
    split = lambda name: (x @ params[f"{name}.weight"].T).reshape(len(x), heads, -1).transpose(0, 1)
    q, k, v = split("query"), split("key"), split("value")
    unit = lambda x: x / x.norm(dim=-1, keepdim=True)
    cosines = unit(q) @ unit(k).transpose(1, 2)
    assert cosines.abs().max() < 1 - 1e-5
    y = unit((1 - torch.acos(cosines) / math.pi) ** tau @ v)
    if window:
        kernel = params["conv.weight"][:, None, :, None]
        y = y + torch.nn.functional.conv2d(v[None], kernel, padding=(window // 2, 0), groups=heads)[0]
    return y.transpose(0, 1).flatten(1) @ params["output.weight"].T


def case(number, *, dim, qkv_dim, heads, lengths, tau, window=0):
    seed, length = 27_000 + 100 * number, max(lengths)
    params = projections(seed, dim, qkv_dim)
    if window:
        params["conv.weight"] = normal(seed + 20, heads, window, scale=0.5)

    def forward(params, x):
        rows = [row(params, x[index, :length], heads, tau, window) for index, length in enumerate(lengths)]
        return torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    write(f"yoso-{number}", mixer="yoso", heads=heads, source=SOURCE, params=params, x=normal(seed + 50, len(lengths), length, dim),
          mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward,
          options={"hash_code_len": tau, "conv_window": window}, qkv_dim=qkv_dim)


def same_as_transformers():
    from transformers.models.yoso.modeling_yoso import YosoCumulation

    q, k, v = (normal(index, 2, 7, 5) for index in range(3))
    q, k = (x / x.norm(dim=-1, keepdim=True) for x in (q, k))
    ones = torch.ones(2, 7, dtype=torch.int)
    theirs = YosoCumulation.apply(ones, ones, q, k, v, {"hash_code_len": 9})
    ours = (1 - torch.acos(q @ k.transpose(1, 2)) / math.pi) ** 9 @ v
    assert torch.allclose(theirs, ours, atol=1e-12)


if __name__ == "__main__":
    same_as_transformers()
    case(1, dim=8, qkv_dim=8, heads=2, lengths=[13, 6], tau=11)
    case(2, dim=5, qkv_dim=7, heads=1, lengths=[9], tau=4, window=5)
    case(3, dim=6, qkv_dim=9, heads=3, lengths=[1, 11, 4], tau=12, window=3)
