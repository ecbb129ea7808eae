"""Megalodon: a program of our own in float64, on each row's real part, with the equations of XuezheMax/megalodon@cff8ba5 (megalodon/modules and
megalodon/model/mega.py), whose kernels need a GPU; the package megalodon-jax 0.2.2 computes in float32 whatever it is given, and its MegalodonBlock is within 1e-6 of
`block` here. Cases in one direction are the published language model's; those in both directions add an average from the end and let a chunk see itself whole, as Mega does."""

import torch
from torch.nn.functional import layer_norm, pad, sigmoid, silu

from case import lengths_mask, normal, write_encoder

SOURCE = "equations of XuezheMax/megalodon@cff8ba5, float64"
EPSILON = 1e-5


def linear(params, name, x):
    y = x @ params[f"{name}.weight"].T
    return y + params[f"{name}.bias"] if f"{name}.bias" in params else y


def rms(x):
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt()


def timestep_norm(params, name, x, groups):
    """By the numbers of a group up to each position, all of them again."""
    rows = []
    for t in range(len(x)):
        seen = x[: t + 1].reshape(t + 1, groups, -1).transpose(0, 1).flatten(1)  # (G, ..)
        own = x[t].reshape(groups, -1)
        mean, variance = seen.mean(1, keepdim=True), seen.var(1, unbiased=False, keepdim=True)
        rows.append(((own - mean) / (variance + EPSILON).sqrt()).flatten())
    return torch.stack(rows) * params[f"{name}.scale"] + params[f"{name}.shift"]


def average(params, name, x, directions):
    """One position after the other, in complex numbers."""
    length, dim = x.shape
    alpha, delta, theta = (params[f"{name}.{part}"] for part in ("alpha", "delta", "theta"))
    modes = alpha.shape[1]
    p = sigmoid(alpha)
    phase = torch.arange(1, modes + 1) * (sigmoid(theta)[:, None] * 2 * torch.pi / modes)
    q = torch.polar(1 - p * sigmoid(delta), phase)
    gamma = torch.complex(params[f"{name}.gamma_real"], params[f"{name}.gamma_imag"]) * modes**-0.5
    y = x * params[f"{name}.omega"]
    for direction in range(directions):
        own = slice(direction * dim, (direction + 1) * dim)
        h = torch.zeros_like(q[own])
        rows = []
        for t in range(length) if direction == 0 else reversed(range(length)):
            h = q[own] * h + p[own] * x[t][:, None]
            rows.append((h * gamma[own]).real.sum(1))
        y = y + torch.stack(rows if direction == 0 else rows[::-1])
    return y


def rotate(x):
    """Neighbouring columns of (C, H, E), by their position."""
    length, _, width = x.shape
    pairs = width // 2
    angles = torch.arange(length)[:, None] * 10000 ** (-2 * torch.arange(pairs) / width)
    cosines, sines = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x[..., 0 : 2 * pairs : 2], x[..., 1 : 2 * pairs : 2]
    turned = torch.stack([a * cosines - b * sines, a * sines + b * cosines], -1).flatten(2)
    return torch.cat([turned, x[..., 2 * pairs :]], -1)


def block(params, at, x, options, heads):
    """One layer on one sequence (L, D)."""
    directions = 2 if options["direction"] == "both" else 1
    mixer = f"{at}.mixer"
    if options["norm"] == "timestep":
        tsn = timestep_norm(params, f"{mixer}.norm", x, options["groups"])
    else:
        tsn = layer_norm(x, x.shape[1:], params[f"{mixer}.norm.scale"], params[f"{mixer}.norm.shift"], EPSILON)
    mx = rms(average(params, f"{mixer}.average", tsn, directions)) * params[f"{mixer}.average_norm.scale"]
    shared, values = options["shared"], options["values"]
    z, r, own = linear(params, f"{mixer}.gates", mx).split([shared, values, x.shape[1]], -1)
    z = rms(z.reshape(len(x), heads, -1))
    scale = (params[f"{mixer}.attention.scale"] / z.shape[2] ** 0.5).reshape(2, heads, -1)
    shift = params[f"{mixer}.attention.shift"].reshape(2, heads, -1)
    q, k = (z * scale[part] + shift[part] for part in (0, 1))
    v = silu(linear(params, f"{mixer}.values", tsn)).reshape(len(x), heads, -1)
    chunk = options["chunk"] or len(x)
    parts = []
    for start in range(0, len(x), chunk):
        rows = slice(start, start + chunk)
        scores = torch.einsum("ihe,jhe->hij", rotate(q[rows]), rotate(k[rows]))
        if directions == 1:
            later = torch.ones(scores.shape[1:]).triu(1) > 0
            scores = scores.masked_fill(later, float("-inf"))
        parts.append(torch.einsum("hij,jhe->ihe", scores.softmax(-1), v[rows]))
    gathered = torch.cat(parts).flatten(1) * silu(r)
    y = x + own + linear(params, f"{mixer}.hidden", gathered)
    y = layer_norm(y, y.shape[1:], params[f"{at}.feed.norm.scale"], params[f"{at}.feed.norm.shift"], EPSILON)
    hidden = silu(linear(params, f"{at}.feed.inner", y))
    if f"{at}.feed.gate.weight" in params:
        hidden = hidden * linear(params, f"{at}.feed.gate", y)
    return x + linear(params, f"{at}.feed.outer", hidden)


def parameters(seed, layers, dim, mlp, options, gate):
    at, params = iter(range(seed, seed + 500)), {}
    directions = 2 if options["direction"] == "both" else 1

    def add(path, *shape, scale, mean=0.0):
        # Sums are rounded again.
        params[path] = (mean + normal(next(at), *shape, scale=scale)).float().double()

    def norm(path):
        add(f"{path}.scale", dim, scale=0.3, mean=1.0)
        add(f"{path}.shift", dim, scale=0.3)

    def layer(path, inputs, outputs, bias=True):
        add(f"{path}.weight", outputs, inputs, scale=inputs**-0.5)
        if bias:
            add(f"{path}.bias", outputs, scale=0.3)

    shared, values, modes = options["shared"], options["values"], options["modes"]
    for index in range(layers):
        mixer = f"{index}.mixer"
        norm(f"{mixer}.norm")
        for name in ("alpha", "delta", "gamma_real", "gamma_imag"):
            add(f"{mixer}.average.{name}", directions * dim, modes, scale=1.0)
        add(f"{mixer}.average.theta", directions * dim, scale=1.0)
        add(f"{mixer}.average.omega", dim, scale=0.5)
        add(f"{mixer}.average_norm.scale", dim, scale=0.3, mean=1.0)
        layer(f"{mixer}.gates", dim, shared + values + dim)
        layer(f"{mixer}.values", dim, values)
        layer(f"{mixer}.hidden", values, dim, bias=False)
        add(f"{mixer}.attention.scale", 2, shared, scale=0.5, mean=1.0)
        add(f"{mixer}.attention.shift", 2, shared, scale=0.3)
        norm(f"{index}.feed.norm")
        layer(f"{index}.feed.inner", dim, mlp)
        if gate == "glu":
            layer(f"{index}.feed.gate", dim, mlp)
        layer(f"{index}.feed.outer", mlp, dim)
    norm("last_norm")
    return params


CASES = [
    # Length, layers, D, feed-forward width, heads, options, gate, lengths of the rows.
    (19, 1, 6, 5, 1, {"direction": "forward", "norm": "timestep", "groups": 2, "shared": 4, "values": 5, "modes": 3, "chunk": 7}, "none", [19, 8]),
    (13, 2, 4, 6, 2, {"direction": "both", "norm": "timestep", "groups": 4, "shared": 6, "values": 8, "modes": 4, "chunk": 0}, "glu", [13, 5, 1]),
    (17, 1, 6, 4, 1, {"direction": "both", "norm": "block", "groups": 0, "shared": 5, "values": 3, "modes": 16, "chunk": 4}, "none", [17, 9]),
    (15, 1, 8, 3, 2, {"direction": "forward", "norm": "timestep", "groups": 1, "shared": 8, "values": 6, "modes": 2, "chunk": 0}, "glu", [15]),
]


def case(seed, length, layers, dim, mlp, heads, options, gate, lengths):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)

    def forward(params, x):
        rows = []
        for row, real in enumerate(lengths):
            y = x[row, :real]
            for index in range(layers):
                y = block(params, str(index), y, options, heads)
            y = layer_norm(y, (dim,), params["last_norm.scale"], params["last_norm.shift"], EPSILON)
            rows.append(pad(y, (0, 0, 0, length - real)))
        return torch.stack(rows), mask, {}

    params = parameters(seed, layers, dim, mlp, options, gate)
    return params, normal(seed + 999, len(lengths), length, dim), forward, mask


def main():
    for number, (length, layers, dim, mlp, heads, options, gate, lengths) in enumerate(CASES, 1):
        params, x, forward, mask = case(52_000 + 1000 * number, length, layers, dim, mlp, heads, options, gate, lengths)
        block_options = {"layers": layers, "dim": dim, "mlp_dim": mlp, "heads": heads, "gate": gate}
        write_encoder(f"megalodon-{number}", mixer="megalodon", source=SOURCE, params=params, x=x, forward=forward, mask=mask,
                      options={"block": block_options, "model": options})


if __name__ == "__main__":
    main()
