"""Linear attention with decays and its kin: programs of our own in float64, one position after the other, on each row's real part.

The equations are those of the papers, with sizes, norms and gates as flash-linear-attention@bc3b101 (fla/layers), state-spaces/mamba@e9594ce
(mamba_ssm/modules/mamba2.py), goombalab/hydra@55bef74 (hydra/modules/hydra.py), Doraemonzzz/hgru2-pytorch@caf92f0 (modules/bihgru2_1d.py) and
LIONS-EPFL/LION@32a0136 have them: the originals need a GPU, or compute in float32 whatever they are given. Outputs are those of fla-core 0.6.0's naive
recurrences within 1e-14. `unit` adds to squared lengths what fla/modules/norm/l2norm.py adds.
"""

import json

import torch
from torch.nn.functional import logsigmoid, sigmoid, silu, softplus

from case import lengths_mask, normal, write
from ways import both_ways, directed

SOURCE = "equations, float64, one position after the other"
EPSILON = 1e-5


def linear(params, name, x):
    y = x @ params[f"{name}.weight"].T
    return y + params[f"{name}.bias"] if f"{name}.bias" in params else y


def heads_of(x, heads):
    """(L, H E) -> (L, H, E)."""
    return x.reshape(x.shape[0], heads, -1)


def rms(x, gain):
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * gain


def unit(x, epsilon=0.0):
    return x / (x.square().sum(-1, keepdim=True) + epsilon).sqrt()


def conv(params, name, x):
    """A causal convolution of each channel, and SiLU; x (L, C), weight (C, taps)."""
    weight = params[f"{name}.weight"]
    taps = weight.shape[1]
    padded = torch.cat([x.new_zeros(taps - 1, x.shape[1]), x])
    y = sum(padded[tap : tap + len(x)] * weight[:, tap] for tap in range(taps))
    return silu(y + params[f"{name}.bias"] if f"{name}.bias" in params else y)


def attend(q, k, v, decay, delta=None):
    """y (L, H, V) of q, k (L, H, K), v (L, H, V), decays that broadcast to (L, H, K), rates (L, H)."""
    state = v.new_zeros(v.shape[1], k.shape[2], v.shape[2])
    decay = decay.expand(k.shape)
    rows = []
    for t in range(len(v)):
        state = decay[t][:, :, None] * state
        value = v[t]
        if delta is not None:
            value = delta[t][:, None] * (value - (state * k[t][:, :, None]).sum(1))
        state = state + k[t][:, :, None] * value[:, None, :]
        rows.append((state * q[t][:, :, None]).sum(1))
    return torch.stack(rows)


def gated_heads(params, y, x):
    y = rms(y, params["gain"]).flatten(1)
    if "gate.weight" in params:
        y = y * silu(linear(params, "gate", x))
    return linear(params, "output", y)


def rotate(x):
    """Neighbouring columns of (L, H, E), by their position."""
    length, _, width = x.shape
    pairs = width // 2
    angles = torch.arange(length)[:, None] * 10000 ** (-2 * torch.arange(pairs) / width)
    cosines, sines = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    turned = torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(2)
    return torch.cat([turned, x[..., 2 * pairs :]], -1)


def retnet(params, x, heads, options):
    q, k, v = (heads_of(linear(params, name, x), heads) for name in ("query", "key", "value"))
    decay = 1 - 2.0 ** (-5 - torch.arange(heads))
    return gated_heads(params, attend(rotate(q) * q.shape[2] ** -0.5, rotate(k), v, decay[None, :, None]), x)


def gla(params, x, heads, options):
    q, k, v = (heads_of(linear(params, name, x), heads) for name in ("query", "key", "value"))
    log_decay = logsigmoid(linear(params, "decay.outer", linear(params, "decay.inner", x))) / options["temper"]
    return gated_heads(params, attend(q * q.shape[2] ** -0.5, k, v, heads_of(log_decay.exp(), heads)), x)


def mamba2(params, x, _, options):
    width, state = params["gain"].shape[0], options["state"]
    heads = params["skip"].shape[0]
    z, mixed, step = linear(params, "inner", x).split([width, width + 2 * state, heads], -1)
    u, b, c = conv(params, "conv", mixed).split([width, state, state], -1)
    step = softplus(step + params["step"])
    decay = (-step * params["a_log"].exp()).exp()
    u = heads_of(u, heads)
    y = attend(c[:, None].expand(-1, heads, -1), step[:, :, None] * b[:, None], u, decay[:, :, None])
    y = (y + params["skip"][:, None] * u).flatten(1)
    return linear(params, "outer", rms(y * silu(z), params["gain"]))


def hydra(params, x, _, options):
    width, state = params["gain"].shape[0], options["state"]
    heads = params["skip"].shape[0]
    z, mixed, step, step_back = linear(params, "inner", x).split([width, width + 4 * state, heads, heads], -1)
    around = options["taps"] // 2
    padded = torch.nn.functional.pad(mixed.T[None], (around, around))
    u, b, c, b_back, c_back = (
        silu(torch.nn.functional.conv1d(padded, params["conv.weight"][:, None], params["conv.bias"], groups=mixed.shape[1]))[0]
        .T.split([width, state, state, state, state], -1)
    )
    values = heads_of(u, heads)

    def read(v, b, c, step):
        """Outputs from the first position on, each at the position behind its own."""
        step = softplus(step + params["step"])
        decay = (-step * params["a_log"].exp()).exp()
        y = attend(c[:, None].expand(-1, heads, -1), step[:, :, None] * b[:, None], v, decay[:, :, None])
        return torch.cat([torch.zeros_like(y[:1]), y[:-1]])

    y = read(values, b, c, step) + read(values.flip(0), b_back.flip(0), c_back.flip(0), step_back.flip(0)).flip(0)
    y = y + values * (linear(params, "diagonal", u) + params["skip"])[:, :, None]
    return linear(params, "outer", rms(y.flatten(1), params["gain"]) * silu(z))


def hgrn2(params, x, _, options, bound=0.0):
    width, head = x.shape[1], options["head_width"]
    v, q, f = linear(params, "inner", x).split(width, -1)
    v, q, decay = (heads_of(y, width // head) for y in (silu(v), sigmoid(q), bound + (1 - bound) * sigmoid(f)))
    y = attend(q, 1 - decay, v, decay)
    if options["direction"] == "both":
        y = y + attend(q.flip(0), (1 - decay).flip(0), v.flip(0), decay.flip(0)).flip(0)
    y = torch.nn.functional.layer_norm(y.flatten(1), (width,), params["norm.scale"], params["norm.shift"], 1e-5)
    return linear(params, "outer", y)


def lion(params, x, heads, options):
    """By the whole matrix of weights."""
    q, k, v = (heads_of(linear(params, name, x), heads) for name in ("query", "key", "value"))
    q, k = unit(silu(q) + 0.5), unit(silu(k) + 0.5)
    log_decay = torch.zeros_like(k)
    if options["variant"] == "d":
        log_decay = log_decay - softplus(params["decay.bias"])[None, :, None]
    if options["variant"] == "s":
        log_decay = -softplus(heads_of(linear(params, "decay", x), heads))
    length = len(x)
    rows = []
    for i in range(length):
        between = [log_decay[j:i].sum(0) if j < i else log_decay[i + 1 : j + 1].sum(0) for j in range(length)]
        weights = (q[i] * k * torch.stack(between).exp()).sum(-1)  # (L, H)
        rows.append((weights[:, :, None] * v).sum(0) / weights.sum(0)[:, None])
    return linear(params, "output", torch.stack(rows).flatten(1))


def delta_inputs(params, x, heads, options):
    q, k, v = (heads_of(conv(params, f"{name}.conv", linear(params, name, x)), heads) for name in ("query", "key", "value"))
    return unit(q, 1e-6) * q.shape[2] ** -0.5, unit(k, 1e-6), v, sigmoid(linear(params, "rate", x)) * (2 if options["negative"] else 1)


def deltanet(params, x, heads, options):
    q, k, v, delta = delta_inputs(params, x, heads, options)
    return gated_heads(params, attend(q, k, v, torch.ones(1, 1, 1), delta), x)


def gated_deltanet(params, x, heads, options):
    q, k, v, delta = delta_inputs(params, x, heads, options)
    log_decay = -params["a_log"].exp() * softplus(linear(params, "step", x) + params["step_bias"])
    return gated_heads(params, attend(q, k, v, log_decay.exp()[:, :, None], delta), x)


def kda(params, x, heads, options):
    q, k, v, delta = delta_inputs(params, x, heads, options)
    low_rank = lambda name: linear(params, f"{name}.outer", linear(params, f"{name}.inner", x))
    decay = -params["a_log"].exp()[:, None] * heads_of(softplus(low_rank("decay") + params["step_bias"]), heads)
    y = rms(attend(q, k, v, decay.exp(), delta), params["gain"]).flatten(1)
    return linear(params, "output", y * sigmoid(low_rank("gate")))


def min_gru(params, x, _, options):
    u, z = linear(params, "inner", x), sigmoid(linear(params, "gate", x))
    u = torch.where(u >= 0, u + 0.5, sigmoid(u))
    h, rows = torch.zeros_like(u[0]), []
    for t in range(len(x)):
        h = (1 - z[t]) * h + z[t] * u[t]
        rows.append(h)
    return linear(params, "outer", torch.stack(rows))


def shapes(model, dim, heads, options):
    """Parameters of a layer, with the deviation of each; vectors lie around the second number."""
    width = dim // heads
    weight = lambda inputs, outputs: ((outputs, inputs), inputs**-0.5, 0)
    vector = lambda count, mean=0.0: ((count,), 0.4, mean)
    gated = lambda values: {"gate.weight": weight(dim, heads * values), "gain": vector(values, 1), "output.weight": weight(heads * values, dim)}
    inputs = lambda keys, values: {
        f"{name}.weight": weight(dim, heads * size) for name, size in (("query", keys), ("key", keys), ("value", values))
    }
    convs = lambda keys, values: {
        f"{name}.conv.weight": ((heads * size, options["taps"]), 0.6, 0) for name, size in (("query", keys), ("key", keys), ("value", values))
    }
    if model == "retnet":
        values = options["expand"] * width
        return inputs(width, values) | gated(values)
    if model == "gla":
        keys = -(-width // 2)
        low = {"decay.inner.weight": weight(dim, options["rank"]), "decay.outer.weight": weight(options["rank"], heads * keys)}
        return inputs(keys, width) | low | {"decay.outer.bias": vector(heads * keys)} | gated(width)
    if model == "mamba2":
        inner, state = options["expand"] * dim, options["state"]
        own = inner // options["head_width"]
        return {
            "inner.weight": weight(dim, 2 * inner + 2 * state + own),
            "conv.weight": ((inner + 2 * state, options["taps"]), 0.6, 0),
            "conv.bias": vector(inner + 2 * state),
            "step": vector(own, -1),
            "a_log": vector(own),
            "skip": vector(own, 1),
            "gain": vector(inner, 1),
            "outer.weight": weight(inner, dim),
        }
    if model == "hydra":
        inner, state = options["expand"] * dim, options["state"]
        own = inner // options["head_width"]
        return {
            "inner.weight": weight(dim, 2 * inner + 4 * state + 2 * own),
            "conv.weight": ((inner + 4 * state, options["taps"]), 0.6, 0),
            "conv.bias": vector(inner + 4 * state),
            "step": vector(own, -1),
            "a_log": vector(own),
            "diagonal.weight": weight(inner, own),
            "skip": vector(own, 1),
            "gain": vector(inner, 1),
            "outer.weight": weight(inner, dim),
        }
    if model == "hgrn2":
        return {
            "inner.weight": weight(dim, 3 * dim),
            "inner.bias": vector(3 * dim),
            "norm.scale": vector(dim, 1),
            "norm.shift": vector(dim),
            "outer.weight": weight(dim, dim),
            "outer.bias": vector(dim),
        }
    if model == "lion":
        own = {"s": {"decay.weight": weight(dim, dim), "decay.bias": vector(dim)}, "d": {"decay.bias": vector(heads)}, "lit": {}}
        return inputs(width, width) | own[options["variant"]] | {"output.weight": weight(dim, dim)}
    if model == "deltanet":
        out = gated(width)
        del out["gate.weight"]
        return inputs(width, width) | convs(width, width) | {"rate.weight": weight(dim, heads)} | out
    if model == "gated_deltanet":
        keys = -(-3 * width // 4)
        values = options["expand"] * keys
        own = {"rate.weight": weight(dim, heads), "step.weight": weight(dim, heads), "step_bias": vector(heads, -1), "a_log": vector(heads)}
        return inputs(keys, values) | convs(keys, values) | own | gated(values)
    if model == "kda":
        values = options["expand"] * width
        return inputs(width, values) | convs(width, values) | {
            "rate.weight": weight(dim, heads),
            "decay.inner.weight": weight(dim, values),
            "decay.outer.weight": weight(values, heads * width),
            "step_bias": vector(heads * width, -1),
            "a_log": vector(heads),
            "gate.inner.weight": weight(dim, values),
            "gate.outer.weight": weight(values, heads * values),
            "gate.outer.bias": vector(heads * values),
            "gain": vector(values, 1),
            "output.weight": weight(heads * values, dim),
        }
    inner = options["width"]
    return {
        "inner.weight": weight(dim, inner),
        "gate.weight": weight(dim, inner),
        "gate.bias": vector(inner),
        "outer.weight": weight(inner, dim),
    }


# Length, width, heads, options, lengths of the rows.
CASES = {
    retnet: [
        (19, 8, 2, {"expand": 2}, [19, 7]),
        (33, 6, 1, {"expand": 1}, [33]),
        (17, 9, 3, {"expand": 3}, [17, 1, 16]),
        (13, 4, 2, {"expand": 2, "direction": "two"}, [13, 1, 6]),
        (13, 6, 3, {"expand": 1, "direction": "sum"}, [13, 1, 6]),
    ],
    gla: [
        (19, 8, 2, {"rank": 3, "temper": 16.0}, [19, 7]),
        (33, 6, 2, {"rank": 2, "temper": 1.0}, [33]),
        (17, 5, 1, {"rank": 16, "temper": 0.2}, [17, 1, 16]),
        (13, 9, 3, {"rank": 2, "temper": 4.0, "direction": "sum"}, [13, 1, 6]),
        (13, 7, 1, {"rank": 2, "temper": 1.0, "direction": "two"}, [13, 5]),
    ],
    mamba2: [
        (19, 4, 1, {"state": 5, "expand": 2, "taps": 4, "head_width": 4}, [19, 7]),
        (33, 3, 1, {"state": 3, "expand": 2, "taps": 2, "head_width": 3}, [33]),
        (17, 6, 1, {"state": 16, "expand": 1, "taps": 3, "head_width": 6}, [17, 1, 16]),
        (13, 4, 1, {"state": 5, "expand": 2, "taps": 4, "head_width": 4, "direction": "sum"}, [13, 1, 6]),
        (13, 3, 1, {"state": 1, "expand": 3, "taps": 1, "head_width": 3, "direction": "two"}, [13, 1, 6]),
    ],
    hgrn2: [
        (19, 8, 1, {"head_width": 4, "direction": "both"}, [19, 7]),
        (33, 6, 1, {"head_width": 2, "direction": "forward"}, [33]),
        (17, 9, 1, {"head_width": 3, "direction": "both"}, [17, 1, 16]),
    ],
    lion: [
        (19, 8, 2, {"variant": "s"}, [19, 7]),
        (33, 6, 3, {"variant": "d"}, [33]),
        (17, 5, 1, {"variant": "lit"}, [17, 1, 16]),
        (35, 6, 1, {"variant": "s"}, [35, 34]),
        (16, 8, 2, {"variant": "d"}, [16, 3]),
    ],
    deltanet: [
        (19, 8, 2, {"taps": 4, "negative": False}, [19, 7]),
        (33, 6, 1, {"taps": 2, "negative": True}, [33]),
        (17, 9, 3, {"taps": 3, "negative": False}, [17, 1, 16]),
        (13, 9, 3, {"taps": 7, "negative": True, "direction": "sum"}, [13, 1, 6]),
        (13, 4, 2, {"taps": 1, "negative": False, "direction": "two"}, [13, 1, 6]),
    ],
    gated_deltanet: [
        (19, 8, 2, {"expand": 2, "taps": 4, "negative": False}, [19, 7]),
        (33, 5, 1, {"expand": 1, "taps": 2, "negative": True}, [33]),
        (17, 9, 3, {"expand": 2, "taps": 3, "negative": False}, [17, 1, 16]),
        (13, 8, 2, {"expand": 2, "taps": 4, "negative": True, "direction": "sum"}, [13, 2, 6]),
        (13, 9, 3, {"expand": 1, "taps": 3, "negative": False, "direction": "two"}, [13, 1, 6]),
    ],
    min_gru: [
        (19, 8, 1, {"width": 12, "memory": 0.0}, [19, 7]),
        (33, 5, 1, {"width": 3, "memory": 9.0}, [33]),
        (17, 6, 1, {"width": 7, "memory": 0.0}, [17, 1, 16]),
    ],
    kda: [
        (19, 8, 2, {"expand": 1, "taps": 4, "negative": False}, [19, 7]),
        (33, 5, 1, {"expand": 2, "taps": 2, "negative": True}, [33]),
        (17, 9, 3, {"expand": 1, "taps": 3, "negative": False}, [17, 1, 16]),
        (13, 4, 2, {"expand": 1, "taps": 4, "negative": False, "direction": "two"}, [13, 2, 6]),
        (13, 9, 3, {"expand": 2, "taps": 1, "negative": True, "direction": "sum"}, [13, 1, 6]),
    ],
    hydra: [
        (19, 4, 1, {"state": 5, "expand": 2, "taps": 7, "head_width": 4}, [19, 7]),
        (33, 3, 1, {"state": 3, "expand": 2, "taps": 3, "head_width": 3}, [33]),
        (17, 6, 1, {"state": 16, "expand": 1, "taps": 5, "head_width": 2}, [17, 1, 16]),
    ],
}


def parameters(seed, model, sizes):
    params = {}
    for index, (path, (shape, deviation, mean)) in enumerate(shapes(model.__name__, *sizes).items()):
        # Sums are rounded again.
        params[path] = (mean + normal(seed + index, *shape, scale=deviation)).float().double()
    return params


def parameters_of_ways(seed, model, sizes):
    params = parameters(seed, model, sizes)
    return both_ways(params, parameters(seed + 50, model, sizes)) if sizes[2].get("direction") == "two" else params


def on_rows(model, heads, options, lengths):
    def forward(params, x):
        rows = [model(params, x[row, :length], heads, options) for row, length in enumerate(lengths)]
        return torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - len(y))) for y in rows])

    return forward


def main():
    for number, (model, cases) in enumerate(CASES.items()):
        for index, (length, dim, heads, options, lengths) in enumerate(cases, 1):
            seed = 10_000 + 1000 * number + 100 * index
            mask = None if min(lengths) == length else lengths_mask(lengths, length)
            params = parameters_of_ways(seed, model, (dim, heads, options))
            x = normal(seed + 99, len(lengths), length, dim)
            write(f"{model.__name__}-{index}", mixer=model.__name__, heads=heads, source=SOURCE, options=options, params=params, x=x, mask=mask,
                  forward=on_rows(directed(model), heads, options, lengths), block=json.dumps({"norm_epsilon": EPSILON}))


if __name__ == "__main__":
    main()
