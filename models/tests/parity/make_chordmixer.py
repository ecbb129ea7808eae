"""ChordMixer: a float64 program of our own from the paper's equations; no package holds it.

Rows are run one by one: on their real part where padding is left out, on all of the batch's length where it is rolled along.
"""

import math

import torch

from case import lengths_mask, normal, write_encoder

SOURCE = "float64 program from arXiv:2206.05852"


def layer_norm(params, name, x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], params[f"{name}.scale"], params[f"{name}.shift"], eps=1e-5)


def rms_norm(params, name, x):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * params[f"{name}.scale"]


NORMS = {"layer": layer_norm, "rms": rms_norm, "none": lambda params, name, x: x}


def rotate(x, widths):
    """x (L, D): track i looks 2^(i - 1) ahead."""
    tracks = torch.split(x, widths, dim=-1)
    return torch.cat([tracks[0]] + [torch.roll(track, -(2**place), 0) for place, track in enumerate(tracks[1:])], -1)


def layers(longest):
    return math.ceil(math.log2(longest))


def widths(dim, track, longest):
    """Tracks as wide as they are said to be, or as even as they come."""
    if track:
        return [min(track, dim - start) for start in range(0, dim, track)]
    count = layers(longest) + 1
    ends = [place * dim // count for place in range(count + 1)]
    return [end - start for start, end in zip(ends, ends[1:])]


def chordmixer(count, cut, norm, norm_after, lengths):
    def run(params, x):
        for layer in range(count):
            at = lambda name: params[f"{layer}.{name}"]
            hidden = NORMS[norm](params, f"{layer}.norm", x) @ at("inner.weight").T + at("inner.bias")
            hidden = 0.5 * hidden * (1 + torch.erf(hidden / math.sqrt(2)))
            y = hidden @ at("outer.weight").T + at("outer.bias")
            x = NORMS[norm_after](params, f"{layer}.norm_after", x + rotate(y, cut))
        return x

    def forward(params, x, mask):
        rows = [run(params, x[row, :length]) for row, length in enumerate(lengths)]
        hidden = torch.stack([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[0])) for y in rows])
        return hidden, mask, {}

    return forward


def parameters(seed, count, dim, hidden, norm, norm_after):
    params = {}
    for layer in range(count):
        base = seed + 20 * layer
        params |= {
            f"{layer}.inner.weight": normal(base, hidden, dim, scale=dim**-0.5),
            f"{layer}.inner.bias": normal(base + 1, hidden, scale=0.3),
            f"{layer}.outer.weight": normal(base + 2, dim, hidden, scale=hidden**-0.5),
            f"{layer}.outer.bias": normal(base + 3, dim, scale=0.3),
        }
        for place, (name, kind) in enumerate((("norm", norm), ("norm_after", norm_after))):
            if kind != "none":
                params[f"{layer}.{name}.scale"] = 1 + normal(base + 4 + place, dim, scale=0.3)
            if kind == "layer":
                params[f"{layer}.{name}.shift"] = normal(base + 6 + place, dim, scale=0.3)
    # Shifted numbers are rounded again.
    return {path: value.float().double() for path, value in params.items()}


def main():
    for index, (length, longest, dim, hidden, own, norm, norm_after, lengths) in enumerate([
            (16, 16, 10, 7, {}, "layer", "layer", [16, 16]),
            (13, 21, 12, 9, {"track": 2}, "layer", "layer", [13, 6, 1]),
            (11, 11, 9, 5, {"layers": 2}, "none", "rms", [11, 4]),
            (9, 9, 10, 6, {"variant": "padded"}, "rms", "none", [9, 9]),
            (7, 40, 8, 6, {"track": 3, "layers": 3}, "layer", "none", [7, 2, 5])], 1):
        count = own.get("layers") or layers(longest)
        mask = None if min(lengths) == length else lengths_mask(lengths, length)
        run = chordmixer(count, widths(dim, own.get("track", 0), longest), norm, norm_after, lengths)
        options = {"block": {"dim": dim, "mlp_dim": hidden, "norm": norm}, "model": {**own, "norm_after": norm_after}}
        write_encoder(f"chordmixer-{index}", mixer="chordmixer", source=SOURCE, options=options, mask=mask, max_length=longest,
                      params=parameters(1000 * index, count, dim, hidden, norm, norm_after), x=normal(index, len(lengths), length, dim),
                      forward=lambda params, x, run=run, mask=mask: run(params, x, mask))


if __name__ == "__main__":
    main()
