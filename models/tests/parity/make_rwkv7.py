"""RWKV-7's time mixing: a program of our own in float64, one position after the other, on each row's real part, with the equations of class
RWKV_Tmix_x070 of BlinkDL/RWKV-LM@d4a6c3b (RWKV-v7/train_temp/src/model.py), whose kernel needs a GPU and bfloat16. One case is of two blocks, the
second of which mixes its values with those of the first."""

import torch
from torch.nn.functional import layer_norm, normalize, pad, sigmoid, softplus

from case import lengths_mask, normal, write, write_encoder

SOURCE = "equations, float64, one position after the other"
INPUTS = ("receptance", "decay", "key", "value", "rate", "gate")
LOW_RANK = ("decay", "rate", "mix", "gate")


def time_mix(params, x, heads, first=None):
    """The output, and the values that the blocks behind the first one mix theirs with."""
    linear = lambda name, y: y @ params[f"{name}.weight"].T + params.get(f"{name}.bias", 0.0)
    by_head = lambda y: y.reshape(len(x), heads, -1)
    change = torch.cat([torch.zeros_like(x[:1]), x[:-1]]) - x
    mixed = {name: x + change * params[f"share.{name}"] for name in INPUTS}
    low = lambda name, y, between=lambda y: y: linear(f"{name}.outer", between(linear(f"{name}.inner", y)))
    r = linear("receptance", mixed["receptance"])
    w = -softplus(-low("decay", mixed["decay"], torch.tanh)) - 0.5
    k = linear("key", mixed["key"])
    v = linear("value", mixed["value"])
    if first is None:
        first = v
    else:
        v = v + (first - v) * sigmoid(low("mix", mixed["value"]))
    a = sigmoid(low("rate", mixed["rate"]))
    g = low("gate", mixed["gate"], sigmoid)
    kk = normalize(by_head(k * params["read"]), dim=-1)
    k = k * (1 + (a - 1) * params["write"])
    r, w, k, v, a = (by_head(y) for y in (r, torch.exp(-torch.exp(w)), k, v, a))
    state, rows = x.new_zeros(heads, k.shape[2], v.shape[2]), []
    for t in range(len(x)):
        read = (state * -kk[t][:, :, None]).sum(1)
        state = w[t][:, :, None] * state + (kk[t] * a[t])[:, :, None] * read[:, None] + k[t][:, :, None] * v[t][:, None]
        rows.append((state * r[t][:, :, None]).sum(1))
    y = layer_norm(torch.stack(rows), (v.shape[2],), eps=64e-5).flatten(1) * params["norm.scale"] + params["norm.shift"]
    y = y + ((r * k * params["bonus"]).sum(-1, keepdim=True) * v).flatten(1)
    return linear("output", y * g), first


def parameters(seed, dim, heads, ranks, later=False):
    at, params = iter(range(seed, seed + 100)), {}

    def add(path, shape, deviation, mean=0.0):
        # Sums are rounded again.
        params[path] = (mean + normal(next(at), *shape, scale=deviation)).float().double()

    for name in INPUTS:
        add(f"share.{name}", (dim,), 0.4, 0.5)
    for name in ("receptance", "key", "value", "output"):
        add(f"{name}.weight", (dim, dim), dim**-0.5)
    for name in LOW_RANK:
        if name == "mix" and not later:
            continue
        add(f"{name}.inner.weight", (ranks[name], dim), dim**-0.5)
        add(f"{name}.outer.weight", (dim, ranks[name]), ranks[name] ** -0.5)
        if name != "gate":
            add(f"{name}.outer.bias", (dim,), 0.4)
    add("read", (dim,), 0.4, 0.7)
    add("write", (dim,), 0.4, 1.0)
    add("bonus", (heads, dim // heads), 0.4)
    add("norm.scale", (dim,), 0.4, 1.0)
    add("norm.shift", (dim,), 0.4)
    return params


def options_of(ranks):
    return {{"mix": "value_rank"}.get(name, f"{name}_rank"): rank for name, rank in ranks.items()}


def rows_of(function, x, lengths):
    rows = [function(x[row, :length]) for row, length in enumerate(lengths)]
    return torch.stack([pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])


def main():
    cases = [
        (19, 8, 2, (3, 2, 4, 5), [19, 7]),
        (37, 6, 1, (2, 7, 1, 3), [37]),
        (17, 9, 3, (1, 3, 2, 2), [17, 1, 16]),
    ]
    for number, (length, dim, heads, ranks, lengths) in enumerate(cases, 1):
        ranks = dict(zip(LOW_RANK, ranks))
        seed = 47_000 + 200 * number
        write(f"rwkv7-{number}", mixer="rwkv7", heads=heads, source=SOURCE, options=options_of(ranks), params=parameters(seed, dim, heads, ranks),
              x=normal(seed + 199, len(lengths), length, dim), mask=None if min(lengths) == length else lengths_mask(lengths, length),
              forward=lambda params, x: rows_of(lambda row: time_mix(params, row, heads)[0], x, lengths))
    length, dim, heads, lengths, ranks = 13, 8, 2, [13, 6], dict(zip(LOW_RANK, (3, 2, 4, 5)))
    params = {f"0.mixer.{path}": value for path, value in parameters(48_000, dim, heads, ranks).items()}
    params |= {f"1.mixer.{path}": value for path, value in parameters(48_200, dim, heads, ranks, later=True).items()}
    mask = lengths_mask(lengths, length)

    def forward(params, x):
        first, second = ({path[8:]: value for path, value in params.items() if path.startswith(f"{block}.mixer.")} for block in (0, 1))

        def stack(row):
            y, values = time_mix(first, row, heads)
            row = row + y
            return row + time_mix(second, row, heads, values)[0]

        return rows_of(stack, x, lengths), mask, {}

    block = {"dim": dim, "qkv_dim": dim, "heads": heads, "layers": 2, "norm": "none", "ffn": "none"}
    write_encoder("rwkv7-4", mixer="rwkv7", source=SOURCE, params=params, x=normal(48_399, len(lengths), length, dim), forward=forward, mask=mask,
                  options={"model": options_of(ranks), "block": block})


if __name__ == "__main__":
    main()
