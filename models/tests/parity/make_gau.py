"""GAU and FLASH: a float64 program of our own from the paper's equations.

The package there is (FLASH-pytorch) divides the bias by the length too. Rows are run one by one on their real part.
"""

import math

import torch
from torch.nn.functional import pad, silu

from case import lengths_mask, normal, write

SOURCE = "float64 program from arXiv:2202.10447"


def weigh(kind, q, k, bias):
    """All weights of one chunk."""
    if kind == "softmax":
        return torch.softmax(q @ k.T / math.sqrt(q.shape[1]) + bias, -1)
    scores = q @ k.T / k.shape[0] + bias
    if kind == "laplace":
        return 0.5 * (1 + torch.erf((scores - math.sqrt(0.5)) / (math.sqrt(2) * math.sqrt(0.25 / math.pi))))
    return torch.relu(scores) ** 2


def unit(hidden, shared, kind, chunk, linear):
    def run(params, x):
        length = x.shape[0]
        u, v, z = torch.split(silu(x @ params["inner.weight"].T + params["inner.bias"]), [hidden, hidden, shared], -1)
        q, k = (params["attention.scale"][i] * z + params["attention.shift"][i] for i in range(2))
        distance = params["attention.distance"]
        middle = len(distance) // 2
        y = []
        for start in range(0, length, chunk):
            stop = min(start + chunk, length)
            places = torch.arange(stop - start)
            bias = distance[middle + places[None, :] - places[:, None]]
            y.append(weigh(kind, q[start:stop], k[start:stop], bias) @ v[start:stop])
        y = torch.cat(y)
        if linear:
            q, k = (params["linear.scale"][i] * z + params["linear.shift"][i] for i in range(2))
            y = y + q @ (k.T @ v) / length
        return (u * y) @ params["outer.weight"].T + params["outer.bias"]

    return run


def parameters(seed, dim, hidden, shared, chunk, linear):
    params = {
        "inner.weight": normal(seed, 2 * hidden + shared, dim, scale=dim**-0.5),
        "inner.bias": normal(seed + 1, 2 * hidden + shared, scale=0.3),
        "outer.weight": normal(seed + 2, dim, hidden, scale=hidden**-0.5),
        "outer.bias": normal(seed + 3, dim, scale=0.3),
        "attention.scale": normal(seed + 4, 2, shared),
        "attention.shift": normal(seed + 5, 2, shared, scale=0.3),
        "attention.distance": normal(seed + 6, 2 * chunk - 1),
    }
    if linear:
        params["linear.scale"] = normal(seed + 7, 2, shared)
        params["linear.shift"] = normal(seed + 8, 2, shared, scale=0.3)
    return params


CASES = [
    # name, length, longest, D, e, s, chunk, attention, lengths
    ("gau-1", 9, 9, 6, 8, 4, 0, "relu2", [9, 9]),
    ("gau-2", 13, 20, 5, 7, 3, 0, "relu2", [13, 6, 1]),
    ("gau-3", 7, 7, 6, 4, 6, 0, "laplace", [7, 3]),
    ("gau-4", 11, 11, 6, 8, 4, 4, "softmax", [11, 7]),
    ("flash-1", 12, 12, 6, 8, 4, 4, "relu2", [12, 12]),
    ("flash-2", 13, 30, 5, 7, 3, 5, "relu2", [13, 6, 1]),
    ("flash-3", 6, 6, 6, 4, 6, 256, "relu2", [6, 5]),
    ("flash-4", 13, 16, 5, 7, 3, 4, "softmax", [13, 6, 1]),
]


def main():
    for index, (name, length, longest, dim, hidden, shared, chunk, kind, lengths) in enumerate(CASES, 1):
        linear = name.startswith("flash")
        run = unit(hidden, shared, kind, chunk or longest, linear)
        mask = None if min(lengths) == length else lengths_mask(lengths, length)

        def forward(params, x, run=run, lengths=lengths, length=length):
            return torch.stack([pad(run(params, x[row, :real]), (0, 0, 0, length - real)) for row, real in enumerate(lengths)])

        options = {"hidden": hidden, "shared": shared, "attention": kind, "chunk": chunk}
        write(name, mixer=name.split("-")[0], heads=1, source=SOURCE, options=options, mask=mask, max_length=longest, forward=forward,
              params=parameters(50 * index, dim, hidden, shared, chunk or longest, linear), x=normal(index, len(lengths), length, dim))


if __name__ == "__main__":
    main()
