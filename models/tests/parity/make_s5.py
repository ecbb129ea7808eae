"""S5: the layer in plain torch with complex numbers, state by state, from the equations."""

import json

import torch
from torch.nn import functional as F

from case import lengths_mask, normal, write
from filters import write_batch

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"


def states(factor, entering, backwards):
    """All h_t = factor h_{t-1} + entering_t, (B, L, P)."""
    rows = range(entering.shape[1])
    h, all_states = torch.zeros_like(entering[:, 0]), []
    for t in reversed(rows) if backwards else rows:
        h = factor * h + entering[:, t]
        all_states.append(h)
    return torch.stack(all_states[::-1] if backwards else all_states, 1)


def layer(p, x, mask, gate, clip):
    u = x if mask is None else x * mask[:, :, None]
    real = p["lambda_re"].clamp(max=-1e-4) if clip else p["lambda_re"]
    pole, step = torch.complex(real, p["lambda_im"]), p["log_step"].exp()
    factor = (pole * step).exp()
    b = ((factor - 1) / pole)[:, None] * torch.complex(p["b_re"], p["b_im"])
    entering = u.to(b.dtype) @ b.T
    c = torch.complex(p["c_re"], p["c_im"])
    h = [states(factor, entering, backwards) for backwards in (False, True)[: c.shape[1] // pole.shape[0]]]
    y = 2 * (torch.cat(h, -1) @ c.T).real + p["d"] * u
    z = F.gelu(y, approximate="tanh")
    if gate == "full":
        value, share = (z @ p["output.weight"].T + p["output.bias"]).chunk(2, -1)
        return value * torch.sigmoid(share)
    share = torch.sigmoid(z @ p["output.weight"].T + p["output.bias"])
    return (z if gate == "half" else y) * share


def parameters(seed, dim, count, directions, gate="half"):
    outputs = 2 * dim if gate == "full" else dim
    at = iter(range(1000 * seed, 1000 * seed + 100))
    return {
        "lambda_re": -0.5 + normal(next(at), count, scale=0.1),
        "lambda_im": -3.0 * torch.arange(1, count + 1) + normal(next(at), count, scale=0.1),
        "log_step": normal(next(at), count, scale=0.5) - 2.5,
        "b_re": normal(next(at), count, dim), "b_im": normal(next(at), count, dim),
        "c_re": normal(next(at), dim, directions * count), "c_im": normal(next(at), dim, directions * count),
        "d": normal(next(at), dim),
        "output.weight": normal(next(at), outputs, dim, scale=dim**-0.5),
        "output.bias": normal(next(at), outputs, scale=0.3),
    }


if __name__ == "__main__":
    for name, seed, batch, length, dim, state, blocks, lengths, options in [
        ("s5_both", 1, 3, 27, 6, 8, 2, [27, 13, 1], {}),
        ("s5_forward", 2, 2, 33, 5, 6, 3, [33, 20], {"direction": "forward", "gate": "half_linear"}),
        ("s5_clip", 3, 2, 19, 4, 4, 1, None, {"clip": True, "gate": "half_linear"}),
        ("s5_full", 5, 2, 21, 6, 8, 2, [21, 9], {"gate": "full"}),
    ]:
        params = parameters(seed, dim, state // 2, 1 if options.get("direction") == "forward" else 2, options.get("gate", "half"))
        if options.get("clip"):
            params["lambda_re"][0] = 0.25
        params = {path: value.float().double() for path, value in params.items()}
        mask = None if lengths is None else lengths_mask(lengths, length)
        write(
            name, mixer="s5", heads=1, source=SOURCE, params=params, x=normal(seed, batch, length, dim), mask=mask,
            options={"state": state, "blocks": blocks, **options}, block=json.dumps({"activation": "gelu"}),
            forward=lambda p, x: layer(p, x, mask, options.get("gate", "half"), options.get("clip", False)),
        )
    write_batch(
        "s5_batch", mixer="s5", source=SOURCE, seed=4, dim=5, lengths=[29, 12, 2], activation="gelu",
        parameters=lambda seed: parameters(seed, 5, 4, 2), model={"state": 8, "blocks": 2},
        layer=lambda p, x, mask: layer(p, x, mask, "half", False),
    )
