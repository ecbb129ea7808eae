"""SeqBoat: a program of our own in float64, pair by pair on each row's real part, with the equations of SeqBoatLayer of renll/SeqBoat@5a34aed
(standalone_seqboat.py), which transforms in float32; with transforms in float64 it is within 1e-9 of `layer` here. The choice of active positions
does not hang on rounding: options are apart by more than 1e-4 everywhere."""

import torch
from torch.nn.functional import layer_norm, pad, sigmoid, silu

from case import lengths_mask, normal, write_encoder

SOURCE = "equations of renll/SeqBoat@5a34aed, float64"
EPSILON = 1e-5
GAP = 1e-4


def linear(params, name, x):
    return x @ params[f"{name}.weight"].T + params[f"{name}.bias"]


def norm(params, name, x, kind):
    if kind == "layer":
        return layer_norm(x, x.shape[1:], params[f"{name}.scale"], params[f"{name}.shift"], EPSILON)
    return x / (x.square().mean(-1, keepdim=True) + EPSILON).sqrt() * params[f"{name}.scale"]


def average(params, name, x, taps):
    """SiLU of the average in both directions, whose kernels end after `taps`."""
    length, dim = x.shape
    delta, alpha, beta, gamma = (params[f"{name}.{part}"] for part in ("delta", "alpha", "beta", "gamma"))
    p = sigmoid(delta)
    q = 1 - p * sigmoid(alpha)
    lags = torch.arange(length)
    kernel = ((p * beta * gamma)[:, :, None] * q[:, :, None] ** lags).sum(1) * delta.shape[1] ** -0.5
    kernel = kernel * (lags < (taps or length))
    y = x * params[f"{name}.omega"]
    apart = lags[:, None] - lags
    for direction, apart in enumerate((apart, -apart)):
        rows = kernel[direction * dim : (direction + 1) * dim]
        weights = torch.where(apart >= 0, rows[:, apart.clamp(min=0)], 0.0)  # (D, L, L)
        y = y + torch.einsum("dij,jd->id", weights, x)
    return silu(y)


def layer(params, at, x, options, longest, kind, place):
    """One layer on one sequence (L, D)."""
    inner = norm(params, f"{at}.norm", x, kind) if place == "pre" else x
    m = average(params, f"{at}.average", inner, options["taps"])
    routed = linear(params, f"{at}.route", m)
    u, own = routed[:, :2], routed[:, 2:]
    assert ((u[:, 1] - u[:, 0]).abs() > GAP).all(), "a choice hangs on rounding"
    share = (u / params[f"{at}.log_temperature"].exp()).softmax(-1)[:, 1:]
    places = (u[:, 1] > u[:, 0]).nonzero()[:, 0]
    shared, values = options["shared"], options["values"]
    z, r, v = silu(linear(params, f"{at}.inner", m[places])).split([shared, values, values], -1)
    scale, shift, table = (params[f"{at}.attention.{part}"] for part in ("scale", "shift", "distance"))
    q, k = (z * scale[part] + shift[part] for part in (0, 1))
    order = torch.arange(len(places))
    seen = (order[:, None] - order).abs() <= options["window"]
    if options["distance"] == "position":
        added = table[places - places[:, None] + longest - 1]
    else:
        added = table[(order - order[:, None]).clamp(-options["window"], options["window"]) + options["window"]]
    if options["attention"] == "softmax":
        scores = q @ k.T * shared**-0.5 + added
        weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    else:
        scores = q @ k.T / (2 * options["window"]) + added
        weights = scores.relu().square() * seen
    h = linear(params, f"{at}.outer", weights @ v * r)
    y = silu(x + own + torch.zeros_like(x).index_put((places,), h) * share)
    return norm(params, f"{at}.norm", y, kind) if place == "post" else y


def parameters(seed, layers, dim, options, longest, kind, place):
    at, params = iter(range(seed, seed + 500)), {}

    def add(path, *shape, scale, mean=0.0):
        # Sums are rounded again.
        params[path] = (mean + normal(next(at), *shape, scale=scale)).float().double()

    def norm_of(path):
        add(f"{path}.scale", dim if kind == "layer" else 1, scale=0.3, mean=1.0)
        if kind == "layer":
            add(f"{path}.shift", dim, scale=0.3)

    def linear_of(path, inputs, outputs):
        add(f"{path}.weight", outputs, inputs, scale=inputs**-0.5)
        add(f"{path}.bias", outputs, scale=0.3)

    shared, values = options["shared"], options["values"]
    for index in range(layers):
        mixer = f"{index}.mixer"
        norm_of(f"{mixer}.norm")
        for name in ("delta", "alpha", "beta", "gamma"):
            add(f"{mixer}.average.{name}", 2 * dim, options["modes"], scale=1.0)
        add(f"{mixer}.average.omega", dim, scale=1.0)
        linear_of(f"{mixer}.route", dim, 2 + dim)
        linear_of(f"{mixer}.inner", dim, shared + 2 * values)
        linear_of(f"{mixer}.outer", values, dim)
        add(f"{mixer}.log_temperature", 1, scale=0.3)
        add(f"{mixer}.attention.scale", 2, shared, scale=1.0)
        add(f"{mixer}.attention.shift", 2, shared, scale=0.3)
        distances = 2 * longest - 1 if options["distance"] == "position" else 2 * options["window"] + 1
        add(f"{mixer}.attention.distance", distances, scale=0.5)
    if place == "pre":
        norm_of("last_norm")
    return params


CASES = [
    # Length, longest, layers, D, options, norm, its place, lengths of the rows.
    (19, 19, 1, 6, {"attention": "softmax", "distance": "position", "window": 3, "shared": 4, "values": 5, "modes": 3, "taps": 0}, "layer", "post", [19, 8]),
    (23, 30, 2, 4, {"attention": "relu2", "distance": "position", "window": 2, "shared": 3, "values": 6, "modes": 4, "taps": 5}, "layer", "pre", [23, 9, 2]),
    (17, 17, 1, 5, {"attention": "softmax", "distance": "order", "window": 4, "shared": 6, "values": 3, "modes": 16, "taps": 0}, "scale", "post", [17, 11]),
    (15, 20, 1, 6, {"attention": "relu2", "distance": "order", "window": 40, "shared": 2, "values": 4, "modes": 2, "taps": 0}, "layer", "post", [15]),
]


def main():
    for number, (length, longest, layers, dim, options, kind, place, lengths) in enumerate(CASES, 1):
        seed = 60_000 + 1000 * number
        mask = None if min(lengths) == length else lengths_mask(lengths, length)

        def forward(params, x):
            rows = []
            for row, real in enumerate(lengths):
                y = x[row, :real]
                for index in range(layers):
                    y = layer(params, f"{index}.mixer", y, options, longest, kind, place)
                if place == "pre":
                    y = norm(params, "last_norm", y, kind)
                rows.append(pad(y, (0, 0, 0, length - real)))
            return torch.stack(rows), mask, {}

        block = {"layers": layers, "dim": dim, "norm": kind, "norm_place": place}
        write_encoder(f"seqboat-{number}", mixer="seqboat", source=SOURCE, params=parameters(seed, layers, dim, options, longest, kind, place),
                      x=normal(seed + 999, len(lengths), length, dim), forward=forward, mask=mask, max_length=longest,
                      options={"block": block, "model": options})


if __name__ == "__main__":
    main()
