"""LSTM: torch.nn.LSTM in float64, on each row's real part; it knows no mask. Its second bias is 0."""

import torch

from case import lengths_mask, normal, write

SOURCE = f"torch {torch.__version__.split('+')[0]}, torch.nn.LSTM"

NAMES = {"input.weight": "weight_ih_l0", "weight": "weight_hh_l0", "input.bias": "bias_ih_l0"}
WAYS = {"ahead": "", "back": "_reverse"}


def lstm(dim, options, lengths):
    ways = WAYS if options["direction"] == "both" else {"ahead": ""}
    module = torch.nn.LSTM(dim, options["width"], batch_first=True, bidirectional=len(ways) == 2).double()

    def run(params, x):
        weights = {f"{theirs}{end}": params[f"{way}.{ours}"] for way, end in ways.items() for ours, theirs in NAMES.items()}
        weights |= {f"bias_hh_l0{end}": torch.zeros(4 * options["width"]) for end in ways.values()}
        h, _ = torch.func.functional_call(module, weights, (x,))
        return h @ params["output.weight"].T

    def forward(params, x):
        rows = [run(params, x[row : row + 1, :length]) for row, length in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


def parameters(seed, dim, options):
    width, both = options["width"], options["direction"] == "both"
    params = {}
    for index, way in enumerate(["ahead", "back"] if both else ["ahead"]):
        params[f"{way}.input.weight"] = normal(seed + 4 * index, 4 * width, dim, scale=dim**-0.5)
        params[f"{way}.input.bias"] = normal(seed + 4 * index + 1, 4 * width, scale=0.3)
        params[f"{way}.weight"] = normal(seed + 4 * index + 2, 4 * width, width, scale=width**-0.5)
    row = 2 * width if both else width
    params["output.weight"] = normal(seed + 9, dim, row, scale=row**-0.5)
    return params


CASES = [
    (19, 6, {"width": 5, "direction": "both", "forget": 0.0}, [19, 7]),
    (33, 4, {"width": 8, "direction": "forward", "forget": 0.0}, [33]),
    (17, 3, {"width": 3, "direction": "both", "forget": 1.0}, [17, 1, 16]),
]


def main():
    for index, (length, dim, options, lengths) in enumerate(CASES, 1):
        mask = None if min(lengths) == length else lengths_mask(lengths, length)
        write(f"lstm-{index}", mixer="lstm", heads=1, source=SOURCE, options=options, params=parameters(30_000 + 30 * index, dim, options),
              x=normal(30_000 + index, len(lengths), length, dim), mask=mask, forward=lstm(dim, options, lengths))


if __name__ == "__main__":
    main()
