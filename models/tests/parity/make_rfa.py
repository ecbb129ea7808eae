"""Random feature attention, from its equations: all pairs without a gate, token by token with it. (The published repository cannot be imported.)

Each sequence is run on its real part. Denominators stay above the guard in these cases; the gated ones, of few tokens, are small, so that rounding shows more.
"""

import torch
from torch.nn.functional import pad

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = "equations of Peng et al. 2021, float64"


def recurrence(q, k, v, g):
    """q S_t and q z_t, token by token, for (1, H, L, .) and g (1, H, L)."""
    state, total, sums, totals = torch.zeros(k.shape[-1], v.shape[-1]), torch.zeros(k.shape[-1]), [], []
    state, total = state.expand(1, k.shape[1], -1, -1), total.expand(1, k.shape[1], -1)
    for t in range(q.shape[2]):
        keep = g[:, :, t, None]
        state = keep[..., None] * state + (1 - keep)[..., None] * k[:, :, t, :, None] * v[:, :, t, None, :]
        total = keep * total + (1 - keep) * k[:, :, t]
        sums.append(torch.einsum("bhf,bhfe->bhe", q[:, :, t], state))
        totals.append(torch.einsum("bhf,bhf->bh", q[:, :, t], total))
    return torch.stack(sums, 2), torch.stack(totals, 2)


def rfa(heads, directions, kernel, gated, epsilon, lengths):
    def features(x, scale):
        x = x / (x.norm(dim=-1, keepdim=True) + 1e-3)
        projected = torch.einsum("bhle,hme->bhlm", x, directions * scale.view(heads, 1, -1))
        mapped = torch.cat([projected.sin(), projected.cos()], -1) if kernel == "gaussian" else projected.relu()
        return mapped * directions.shape[1] ** -0.5

    def run(params, x):
        q, k, v = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))
        q, k = features(q, params["scale"]), features(k, params["scale"])
        if gated:
            g = torch.sigmoid(x @ params["gate.weight"].T + params["gate.bias"]).mT
            ahead = (heads + 1) // 2
            sums, totals = recurrence(*(t[:, :ahead] for t in (q, k, v, g)))
            if ahead < heads:
                behind = recurrence(*(t[:, ahead:].flip(2) for t in (q, k, v, g)))
                sums, totals = torch.cat([sums, behind[0].flip(2)], 1), torch.cat([totals, behind[1].flip(2)], 1)
        else:
            weights = q @ k.mT
            sums, totals = weights @ v, weights.sum(-1)
        assert totals.abs().min() > 5 * epsilon
        return merge(sums / totals.abs().clamp(min=epsilon)[..., None]) @ params["output.weight"].T

    def forward(params, x):
        rows = [run(params, x[row : row + 1, :length]) for row, length in enumerate(lengths)]
        return torch.cat([pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


def parameters(seed, dim, qkv_dim, heads, gated):
    params = projections(seed, dim, qkv_dim) | {"scale": (1 + normal(seed + 3, qkv_dim, scale=0.2)).float().double()}
    if gated:
        params["gate.weight"] = normal(seed + 4, heads, dim, scale=dim**-0.5)
        params["gate.bias"] = normal(seed + 5, heads, scale=0.5)
    return params


for index, (length, dim, qkv_dim, heads, count, kernel, gate, lengths) in enumerate(
        [(16, 8, 8, 2, 64, "gaussian", "none", [16, 16]), (37, 12, 6, 3, 48, "gaussian", "none", [37]),
         (23, 8, 8, 2, 64, "gaussian", "none", [23, 9, 1]), (19, 6, 6, 2, 96, "arccos", "none", [19, 8]),
         (70, 6, 6, 3, 256, "gaussian", "both", [70]), (21, 8, 8, 4, 64, "gaussian", "both", [21, 8, 1])], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    directions = normal(100 + index, heads, count, qkv_dim // heads)
    options = {"features": count, "kernel": kernel, "gate": gate, "epsilon": 1e-3}
    write(f"rfa-{index}", mixer="rfa", heads=heads, source=SOURCE, options=options, params=parameters(20 * index, dim, qkv_dim, heads, gate == "both"),
          x=normal(index, len(lengths), length, dim), mask=mask, qkv_dim=qkv_dim, draws={"directions": directions},
          forward=rfa(heads, directions, kernel, gate == "both", 1e-3, lengths), atol=1e-4 if gate == "both" else 1e-5)
