"""HGRN and HGRN2 with the lower bounds of decays that their layers share: whole encoders around the layers of make_recurrent_units.py and
make_recurrences.py, with the bounds of flash-linear-attention@bc3b101 (fla/models/hgrn/modeling_hgrn.py and fla/models/hgrn2/modeling_hgrn2.py): softmax
over layers, its running sum less that of the first layer."""

import torch
from torch.nn.functional import layer_norm, pad, silu

from case import lengths_mask, normal, write_encoder
from make_recurrences import hgrn2, linear
from make_recurrences import parameters as of_hgrn2
from make_recurrent_units import EQUATIONS, hgrn
from make_recurrent_units import parameters as of_hgrn

LAYERS, DIM, HIDDEN, EPSILON = 3, 4, 5, 1e-5


def norm(params, at, x):
    return layer_norm(x, (DIM,), params[f"{at}.scale"], params[f"{at}.shift"], EPSILON)


def parameters(seed, model, of_mixer, options):
    at, params = iter(range(seed + 500, seed + 1000)), {"bias.bound": normal(seed + 499, LAYERS, DIM)}

    def norms(path):
        params[f"{path}.scale"], params[f"{path}.shift"] = 1 + normal(next(at), DIM, scale=0.3), normal(next(at), DIM, scale=0.3)

    for layer in range(LAYERS):
        mixer = of_mixer(seed + 100 * layer, model, (DIM, 1, options))
        params |= {f"{layer}.mixer.{path}": value for path, value in mixer.items()}
        norms(f"{layer}.mixer_norm")
        norms(f"{layer}.feed_norm")
        for name, inputs, outputs in (("inner", DIM, HIDDEN), ("gate", DIM, HIDDEN), ("outer", HIDDEN, DIM)):
            params[f"{layer}.feed.{name}.weight"] = normal(next(at), outputs, inputs, scale=inputs**-0.5)
            params[f"{layer}.feed.{name}.bias"] = normal(next(at), outputs, scale=0.3)
    norms("last_norm")
    # Sums are rounded again.
    return {path: value.float().double() for path, value in params.items()}


def case(number, model, of_mixer, options, lengths, seed):
    length, mask = max(lengths), lengths_mask(lengths, max(lengths))

    def row(params, x):
        shares = torch.softmax(params["bias.bound"], 0)
        bounds = shares.cumsum(0) - shares[0]
        for layer in range(LAYERS):
            own = {path.removeprefix(f"{layer}.mixer."): value for path, value in params.items() if path.startswith(f"{layer}.mixer.")}
            x = x + model(own, norm(params, f"{layer}.mixer_norm", x), 1, options, bounds[layer])
            y = norm(params, f"{layer}.feed_norm", x)
            x = x + linear(params, f"{layer}.feed.outer", silu(linear(params, f"{layer}.feed.inner", y)) * linear(params, f"{layer}.feed.gate", y))
        return norm(params, "last_norm", x)

    def forward(params, x):
        rows = [row(params, x[index, :real]) for index, real in enumerate(lengths)]
        return torch.stack([pad(y, (0, 0, 0, length - len(y))) for y in rows]), mask, {}

    block = {"layers": LAYERS, "dim": DIM, "qkv_dim": DIM, "heads": 1, "mlp_dim": HIDDEN, "norm_epsilon": EPSILON}
    write_encoder(f"{model.__name__}-{number}", mixer=model.__name__, source=EQUATIONS, params=parameters(seed, model, of_mixer, options),
                  x=normal(seed + 999, len(lengths), length, DIM), mask=mask, forward=forward, options={"block": block, "model": options})


if __name__ == "__main__":
    case(4, hgrn, of_hgrn, {"direction": "both"}, [13, 6], 62_000)
    case(4, hgrn2, of_hgrn2, {"direction": "forward", "head_width": 2}, [13, 1, 6], 63_000)
