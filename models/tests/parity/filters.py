"""Two pre-norm blocks around a filter, with BatchNorm in training. Padding is among its positions, as in the published code of state spaces: what stands there
behind a filter that gets zeros is the filter's tail, which the output layer and the residual carry into the next norm."""

import torch

from case import lengths_mask, normal, write_encoder

EPSILON = 1e-5
LAYERS = 2


def norm(params, at, x):
    rows = x.reshape(-1, x.shape[-1])
    y = (x - rows.mean(0)) / (rows.var(0, unbiased=False) + EPSILON).sqrt()
    return y * params[f"{at}.scale"] + params[f"{at}.shift"]


def write_batch(name, *, mixer, source, seed, dim, lengths, parameters, layer, model, activation):
    """parameters(seed) are those of a mixer, layer(params, x, mask) what it computes; `model` are its options."""
    length = max(lengths)
    mask = lengths_mask(lengths, length)
    params = {}
    for block in range(LAYERS):
        params |= {f"{block}.mixer.{path}": value for path, value in parameters(seed + block).items()}
    for place, at in enumerate([f"{block}.mixer_norm" for block in range(LAYERS)] + ["last_norm"]):
        params[f"{at}.scale"] = 1 + normal(1000 * seed + 900 + place, dim, scale=0.3)
        params[f"{at}.shift"] = normal(1000 * seed + 950 + place, dim, scale=0.3)
    params = {path: value.float().double() for path, value in params.items()}

    def forward(params, x):
        for block in range(LAYERS):
            at = f"{block}.mixer."
            own = {path.removeprefix(at): value for path, value in params.items() if path.startswith(at)}
            x = x + layer(own, norm(params, f"{block}.mixer_norm", x), mask)
        return norm(params, "last_norm", x), mask, {}

    block = {"layers": LAYERS, "dim": dim, "qkv_dim": dim, "heads": 1, "norm": "batch", "norm_epsilon": EPSILON, "activation": activation}
    write_encoder(name, mixer=mixer, source=source, options={"block": block, "model": model}, params=params,
                  x=normal(seed, len(lengths), length, dim), mask=mask, forward=forward, max_length=length, train=True)
