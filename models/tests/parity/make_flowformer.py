"""Flow-Attention as Flow_Attention.py of thuml/Flowformer@61f5d8c prints it, and, as `released`, as its code for this benchmark does
(Flowformer_LRA/lra_benchmarks/models/flowformer/flow_attention.py), in float64 on each row's real part, the sums written as matrices of all pairs."""

import torch

from case import lengths_mask, normal, projections, write

SOURCE = "equations, float64, all pairs"
EPSILON = 1e-6


def head(q, k, v):
    """What a head of (L, E) allots to each query, its weights, how much flows out of each key, and its values."""
    pairs = lambda a, b: (a + EPSILON) @ (b + EPSILON)
    incoming, outgoing = pairs(q, k.sum(0)), pairs(k, q.sum(0))
    of_sinks = pairs(q, (k / outgoing[:, None]).sum(0))
    of_sources = pairs(k, (q / incoming[:, None]).sum(0))
    return torch.sigmoid(of_sinks), (q @ k.T) / incoming[:, None], of_sources, v


def row(params, x, heads, released):
    split = lambda name: (x @ params[f"{name}.weight"].T).reshape(len(x), heads, -1)
    q, k, v = split("query"), split("key"), split("value")
    q, k = (torch.relu(y) + EPSILON if released else torch.sigmoid(y) for y in (q, k))
    parts = [head(q[:, at], k[:, at], v[:, at]) for at in range(heads)]
    flows = torch.stack([part[2] for part in parts], -1)  # (L, H)
    if released:
        shares = flows.softmax(-1)
    else:
        gap = (flows - 1).abs().min()
        assert len(x) == 1 or gap > 1e-6, f"a flow is clipped by a hair: {gap}"
        shares = flows.clamp(-1, 1).softmax(0)
    y = [part[0][:, None] * (part[1] @ (part[3] * shares[:, at, None] * len(x))) for at, part in enumerate(parts)]
    return torch.cat(y, -1) @ params["output.weight"].T


def case(number, *, dim, qkv_dim, heads, lengths, released):
    seed, length = 24_000 + 100 * number, max(lengths)

    def forward(params, x):
        rows = [row(params, x[index, :length], heads, released) for index, length in enumerate(lengths)]
        return torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    write(f"flowformer-{number}", mixer="flowformer", heads=heads, source=SOURCE, params=projections(seed, dim, qkv_dim),
          x=normal(seed + 50, len(lengths), length, dim), mask=None if min(lengths) == length else lengths_mask(lengths, length), forward=forward,
          options={"variant": "released" if released else "paper"}, qkv_dim=qkv_dim)


if __name__ == "__main__":
    case(1, dim=8, qkv_dim=8, heads=2, lengths=[13, 6], released=False)
    case(2, dim=5, qkv_dim=6, heads=1, lengths=[9], released=False)
    case(3, dim=6, qkv_dim=6, heads=3, lengths=[11, 4], released=True)
    case(4, dim=7, qkv_dim=9, heads=3, lengths=[5, 10, 3], released=False)
