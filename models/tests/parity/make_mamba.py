"""Mamba: MambaBlock of mambapy, on each row's real part; it knows no mask."""

import importlib.metadata

import torch
from mambapy.mamba import MambaBlock, MambaConfig

from case import lengths_mask, normal, write
from ways import both_ways, directed

SOURCE = f"mambapy {importlib.metadata.version('mambapy')}, MambaBlock, changed: float64, one position after the other"

NAMES = {
    "inner.weight": "in_proj.weight",
    "conv.weight": "conv1d.weight",
    "conv.bias": "conv1d.bias",
    "selection.weight": "x_proj.weight",
    "step.weight": "dt_proj.weight",
    "step.bias": "dt_proj.bias",
    "a_log": "A_log",
    "skip": "D",
    "outer.weight": "out_proj.weight",
}


class Block(MambaBlock):
    """In float64 throughout, and one position after the other."""

    def ssm(self, x, z):
        at = self.config
        step, b, c = torch.split(self.x_proj(x), [at.dt_rank, at.d_state, at.d_state], dim=-1)
        step = torch.nn.functional.softplus(self.dt_proj(step))
        return self.selective_scan_seq(x, step, -torch.exp(self.A_log), b, c, self.D)


def mamba(dim, options, lengths):
    config = MambaConfig(d_model=dim, n_layers=1, dt_rank=options["rank"] or "auto", d_state=options["state"], expand_factor=options["expand"],
                         d_conv=options["taps"], pscan=False)

    def run(params, x):
        block = Block(config)
        weights = {theirs: params[ours] for ours, theirs in NAMES.items()}
        weights["conv1d.weight"] = weights["conv1d.weight"][:, None, :]
        return torch.func.functional_call(block, weights, (x,))

    whole = directed(lambda params, row, _, __: run(params, row[None])[0])

    def forward(params, x):
        rows = [whole(params, x[row, :length], 1, options) for row, length in enumerate(lengths)]
        return torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[0])) for y in rows])

    return forward


def parameters(seed, dim, options):
    width, state = options["expand"] * dim, options["state"]
    rank = options["rank"] or -(-dim // 16)
    params = {
        "inner.weight": normal(seed, 2 * width, dim, scale=dim**-0.5),
        "conv.weight": normal(seed + 1, width, options["taps"], scale=0.6),
        "conv.bias": normal(seed + 2, width, scale=0.3),
        "selection.weight": normal(seed + 3, rank + 2 * state, width, scale=width**-0.5),
        "step.weight": normal(seed + 4, width, rank),
        "step.bias": normal(seed + 5, width) - 2,
        "a_log": torch.log(torch.arange(1, state + 1))[None] + normal(seed + 6, width, state, scale=0.3),
        "skip": 1 + normal(seed + 7, width, scale=0.3),
        "outer.weight": normal(seed + 8, dim, width, scale=width**-0.5),
    }
    # Sums are rounded again.
    return {path: value.float().double() for path, value in params.items()}


CASES = [
    (12, 6, {"state": 16, "expand": 2, "taps": 4, "rank": 0}, [12, 12]),
    (37, 3, {"state": 4, "expand": 2, "taps": 4, "rank": 2}, [37, 11, 1]),
    (9, 17, {"state": 3, "expand": 1, "taps": 3, "rank": 0}, [9, 2]),
    (5, 4, {"state": 2, "expand": 3, "taps": 7, "rank": 1}, [5]),
    (11, 4, {"state": 3, "expand": 2, "taps": 4, "rank": 2, "direction": "two"}, [11, 1, 6]),
    (13, 5, {"state": 7, "expand": 3, "taps": 5, "rank": 3, "direction": "sum"}, [13, 1, 6]),
]


def main():
    for index, (length, dim, options, lengths) in enumerate(CASES, 1):
        mask = None if min(lengths) == length else lengths_mask(lengths, length)
        params = parameters(30 * index, dim, options)
        if options.get("direction") == "two":
            params = both_ways(params, parameters(30 * index + 15, dim, options))
        write(f"mamba-{index}", mixer="mamba", heads=1, source=SOURCE, options=options, params=params,
              x=normal(index, len(lengths), length, dim), mask=mask, forward=mamba(dim, options, lengths))


if __name__ == "__main__":
    main()
