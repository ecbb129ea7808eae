"""PoNet: the poolings of examples/LRA/code/attention_ponet.py of lxchtan/PoNet@cc9a29a, by torch's own max_pool1d and segment by segment, in float64 on each
row's real part, segments being those of the longest length. No maximum is one by a hair."""

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write

SOURCE = "equations, float64"
NAMES = ("query", "key", "gate", "segment", "local")


def clear(values):
    """values (.., n): the largest of them stands out."""
    if values.shape[-1] > 1:
        best = values.topk(2, -1).values
        assert (best[..., 0] - best[..., 1]).min() > 1e-5


def row(params, x, heads, stretch):
    linear = lambda name, x: F.linear(x, params[f"{name}.weight"], params[f"{name}.bias"])
    q, k, o, u, c = (linear(name, x) for name in NAMES)
    by_head = lambda x: x.reshape(len(x), heads, -1).transpose(0, 1)
    q, k = by_head(q), by_head(k)
    weights = (q.mean(1, keepdim=True) @ k.transpose(1, 2) / q.shape[2] ** 0.5).softmax(-1)
    everywhere = (weights @ k).flatten()
    segments = torch.split(u, stretch)
    for segment in segments:
        clear(segment.T)
    clear(F.pad(c.T, (1, 1), value=-1e4).unfold(1, 3, 1))
    segment = torch.cat([part.max(0, keepdim=True).values.expand_as(part) for part in segments])
    local = F.max_pool1d(c.T[None], 3, stride=1, padding=1)[0].T
    return linear("output", (everywhere + segment) * o + local)


def case(number, *, dim, qkv_dim, heads, lengths, segments, longest):
    seed, length = 26_000 + 100 * number, max(lengths)
    params = {}
    for index, name in enumerate(NAMES):
        params[f"{name}.weight"] = normal(seed + index, qkv_dim, dim, scale=dim**-0.5)
        params[f"{name}.bias"] = normal(seed + 10 + index, qkv_dim, scale=0.3)
    params["output.weight"] = normal(seed + 20, dim, qkv_dim, scale=qkv_dim**-0.5)
    params["output.bias"] = normal(seed + 21, dim, scale=0.3)

    def forward(params, x):
        rows = [row(params, x[index, :length], heads, longest // segments + 1) for index, length in enumerate(lengths)]
        return torch.stack([F.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    write(f"ponet-{number}", mixer="ponet", heads=heads, source=SOURCE, params=params, x=normal(seed + 50, len(lengths), length, dim),
          mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward, options={"segments": segments}, qkv_dim=qkv_dim,
          max_length=longest)


if __name__ == "__main__":
    case(1, dim=8, qkv_dim=8, heads=2, lengths=[13, 6], segments=4, longest=13)
    case(2, dim=5, qkv_dim=6, heads=3, lengths=[9], segments=1, longest=20)
    case(3, dim=6, qkv_dim=6, heads=1, lengths=[1, 12, 5], segments=4, longest=14)
