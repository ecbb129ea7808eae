"""LRU: the layer in plain torch with complex numbers, state by state, from the equations."""

import json

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write
from filters import write_batch
from make_s5 import SOURCE, states


def layer(p, x, mask, gate="full"):
    u = x if mask is None else x * mask[:, :, None]
    factor = torch.exp(torch.complex(-p["nu_log"].exp(), p["theta_log"].exp()))
    b = p["gamma_log"].exp()[:, None] * torch.complex(p["b_re"], p["b_im"])
    entering = u.to(b.dtype) @ b.T
    c = torch.complex(p["c_re"], p["c_im"])
    h = [states(factor, entering, backwards) for backwards in (False, True)[: c.shape[1] // factor.shape[0]]]
    y = (torch.cat(h, -1) @ c.T).real + p["d"] * u
    y, inner = F.gelu(y, approximate="tanh"), y
    if gate == "half_linear":
        return inner * torch.sigmoid(y @ p["output.weight"].T + p["output.bias"])
    a, g = (y @ p["output.weight"].T + p["output.bias"]).chunk(2, -1)
    return a * torch.sigmoid(g)


def parameters(seed, dim, count, directions, gate="full"):
    at = iter(range(1000 * seed, 1000 * seed + 100))
    return {
        "nu_log": normal(next(at), count, scale=0.5) - 2.0,
        "theta_log": normal(next(at), count, scale=0.5),
        "gamma_log": normal(next(at), count, scale=0.3) - 0.5,
        "b_re": normal(next(at), count, dim, scale=0.5), "b_im": normal(next(at), count, dim, scale=0.5),
        "c_re": normal(next(at), dim, directions * count, scale=0.5), "c_im": normal(next(at), dim, directions * count, scale=0.5),
        "d": normal(next(at), dim),
        "output.weight": normal(next(at), (2 if gate == "full" else 1) * dim, dim, scale=dim**-0.5),
        "output.bias": normal(next(at), (2 if gate == "full" else 1) * dim, scale=0.3),
    }


if __name__ == "__main__":
    for name, seed, batch, length, dim, count, lengths, options in [
        ("lru_forward", 11, 3, 27, 6, 5, [27, 13, 1], {}),
        ("lru_both", 12, 2, 33, 4, 7, [33, 20], {"direction": "both"}),
        ("lru_whole", 13, 2, 19, 5, 3, None, {}),
        ("lru_half_linear", 15, 3, 13, 5, 4, [13, 6, 1], {"gate": "half_linear"}),
    ]:
        gate = options.get("gate", "full")
        params = parameters(seed, dim, count, 2 if options.get("direction") == "both" else 1, gate)
        params = {path: value.float().double() for path, value in params.items()}
        mask = None if lengths is None else lengths_mask(lengths, length)
        write(
            name, mixer="lru", heads=1, source=SOURCE, params=params, x=normal(seed, batch, length, dim), mask=mask,
            options={"state": count, **options}, block=json.dumps({"activation": "gelu"}),
            forward=lambda p, x: layer(p, x, mask, gate),
        )
    write_batch(
        "lru_batch", mixer="lru", source=SOURCE, seed=14, dim=5, lengths=[29, 12, 2], activation="gelu",
        parameters=lambda seed: parameters(seed, 5, 4, 2), model={"state": 4, "direction": "both"}, layer=layer,
    )
