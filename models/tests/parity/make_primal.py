"""Primal-Attention as PrimalAttention_LRA/PrimalFormer/attentions of yingyichen-cyy/PrimalAttention@084d122 computes it, with its loss of a layer, in float64 on
each row's real part; the loss is of each row (the code has one of the batch)."""

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write_encoder

SOURCE = "equations, float64"


def attention(params, x, heads, rank, samples):
    """(L, D) -> (L, D), and the loss of a layer."""
    length, dim = x.shape
    linear = lambda name, x: F.linear(x, params[f"{name}.weight"], params[f"{name}.bias"])
    split = lambda x: x.reshape(len(x), heads, -1).transpose(0, 1)  # (H, L, E)
    rows = torch.tensor([index * (length - 1) // max(samples - 1, 1) for index in range(samples)])
    # The code's way: features by positions, heads cut out of the features.
    sampled = x.T.reshape(heads, dim // heads, length)[:, :, rows]
    scores = []
    for name, weights in (("query", "w_e"), ("key", "w_r")):
        scores.append(F.normalize(split(linear(name, x)), dim=-1) @ (sampled @ params[weights]))
    y = linear("mix", torch.cat(scores, -1)).transpose(0, 1).flatten(1)
    energies = [0.5 * (score * params["lambda"][:, None]).square().sum(-1).mean() for score in scores]
    trace = torch.einsum("hps,hpd->hsd", params["w_e"], params["w_r"]).mean(0).trace()
    return linear("output", y), (sum(energies) - trace) ** 2


def norm(params, at, x):
    return F.layer_norm(x, x.shape[-1:], params[f"{at}.scale"], params[f"{at}.shift"], eps=1e-5)


def parameters(seed, layers, dim, heads, rank, samples):
    width, params = dim // heads, {}
    for layer in range(layers):
        at, base = f"{layer}.mixer", seed + 40 * layer
        sizes = {"query": (dim, dim), "key": (dim, dim), "mix": (width, 2 * rank), "output": (dim, dim)}
        for index, (name, (outputs, inputs)) in enumerate(sizes.items()):
            params[f"{at}.{name}.weight"] = normal(base + index, outputs, inputs, scale=inputs**-0.5)
            params[f"{at}.{name}.bias"] = normal(base + 10 + index, outputs, scale=0.3)
        for index, name in enumerate(("w_e", "w_r")):
            params[f"{at}.{name}"] = normal(base + 20 + index, heads, samples, rank, scale=0.4)
        params[f"{at}.lambda"] = normal(base + 22, heads, rank).abs()
        params[f"{layer}.mixer_norm.scale"] = 1 + normal(base + 23, dim, scale=0.3)
        params[f"{layer}.mixer_norm.shift"] = normal(base + 24, dim, scale=0.3)
    params["last_norm.scale"] = 1 + normal(seed + 900, dim, scale=0.3)
    params["last_norm.shift"] = normal(seed + 901, dim, scale=0.3)
    return {path: value.float().double() for path, value in params.items()}


def case(number, *, layers, dim, heads, rank, multi, lengths):
    seed, length, samples = 29_000 + 1000 * number, max(lengths), rank * multi
    mask = lengths_mask(lengths, length)

    def forward(params, x):
        rows, losses = [], []
        for index, length in enumerate(lengths):
            y, loss = x[index, :length], 0.0
            for layer in range(layers):
                own = {path.removeprefix(f"{layer}.mixer."): value for path, value in params.items() if path.startswith(f"{layer}.mixer.")}
                change, of_layer = attention(own, norm(params, f"{layer}.mixer_norm", y), heads, rank, samples)
                y, loss = y + change, loss + of_layer / layers
            y = norm(params, "last_norm", y)
            rows.append(F.pad(y, (0, 0, 0, x.shape[1] - len(y))))
            losses.append(loss)
        return torch.stack(rows), mask, {"ksvd": torch.stack(losses).mean()}

    block = {"layers": layers, "dim": dim, "qkv_dim": dim, "heads": heads, "ffn": "none", "norm_epsilon": 1e-5}
    write_encoder(f"primal-{number}", mixer="primal", source=SOURCE, options={"block": block, "model": {"low_rank": rank, "rank_multi": multi}},
                  params=parameters(seed, layers, dim, heads, rank, samples), x=normal(seed + 990, len(lengths), length, dim), mask=mask, forward=forward,
                  max_length=length)


if __name__ == "__main__":
    case(1, layers=2, dim=8, heads=2, rank=3, multi=2, lengths=[13, 6])
    case(2, layers=1, dim=6, heads=3, rank=2, multi=4, lengths=[5, 11, 1])
    case(3, layers=1, dim=5, heads=1, rank=4, multi=1, lengths=[9, 8])
