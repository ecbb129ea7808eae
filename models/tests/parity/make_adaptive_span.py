"""Adaptive attention span, from the paper's equations in torch: softmax over all keys, times m, divided by the sum of what is left."""

import math

import torch

from case import lengths_mask, merge, normal, projections, split, write, write_encoder

SOURCE = f"equations in torch {torch.__version__.split('+')[0]}"
HIDDEN = -1e30


def attention(params, x, heads, longest, ramp, span, mask, prefix=""):
    """Outputs before the output projection, and the mean span of each row."""
    batch, length, _ = x.shape
    real = torch.ones(batch, length) if mask is None else mask
    q, k, v = (split(x @ params[f"{prefix}{name}.weight"].T, heads) for name in ("query", "key", "value"))
    apart = (torch.arange(length)[None, :] - torch.arange(length)[:, None]).abs().double()
    if span == "fixed":
        z = None
        windows = torch.tensor([math.floor(longest ** (head / heads)) for head in range(1, heads + 1)])
        m = (apart[None] <= windows[:, None, None]).double()[None]
    else:
        share = params[f"{prefix}span"].expand(batch, length, heads) if span == "adaptive" else \
            torch.sigmoid(x @ params[f"{prefix}span.weight"].T + params[f"{prefix}span.bias"])
        z = longest * share.transpose(1, 2)  # (B, H, L)
        m = ((ramp + z[..., None] - apart) / ramp).clamp(0, 1)
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + (1 - real[:, None, None, :]) * HIDDEN
    weights = torch.softmax(scores, -1) * m
    # A padded query may see nothing; what it gets is not read.
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-200)
    loss = None if z is None else ((z.mean(1) * real).sum(1) / real.sum(1)).mean()
    return merge(weights @ v), loss


def parameters(seed, dim, width, heads, longest, span):
    params = projections(1000 * seed, dim, width)
    if span == "adaptive":
        params["span"] = torch.sigmoid(normal(1000 * seed + 20, heads) - 2).float().double()
    if span == "dynamic":
        params |= {"span.weight": normal(1000 * seed + 20, heads, dim, scale=dim**-0.5), "span.bias": normal(1000 * seed + 21, heads) - 2}
    return params


def case(index, shape, heads, width, longest, ramp, span, lengths=None):
    batch, length, dim = shape
    mask = None if lengths is None else lengths_mask(lengths, length)

    def forward(params, x):
        y, _ = attention(params, x, heads, longest, ramp, span, mask)
        return y @ params["output.weight"].T

    write(f"adaptive_span-{index}", mixer="adaptive_span", heads=heads, qkv_dim=width, max_length=longest, source=SOURCE,
          options={"span": span, "ramp": ramp}, params=parameters(index, dim, width, heads, longest, span), x=normal(100 + index, *shape), mask=mask,
          forward=forward)


def with_loss(index, shape, heads, longest, ramp, span, lengths):
    """A block without a feed-forward network, pre-norm, in training."""
    batch, length, dim = shape
    mask = lengths_mask(lengths, length)
    inner = parameters(index, dim, dim, heads, longest, span)
    params = {f"0.mixer.{name}": value for name, value in inner.items()}
    for place, name in enumerate(("0.mixer_norm", "last_norm")):
        params |= {f"{name}.scale": 1 + normal(index + place, dim, scale=0.3), f"{name}.shift": normal(index + 9 + place, dim, scale=0.3)}

    def forward(params, x):
        norm = lambda x, name: torch.nn.functional.layer_norm(x, (dim,), params[f"{name}.scale"], params[f"{name}.shift"], 1e-6)
        y, loss = attention(params, norm(x, "0.mixer_norm"), heads, longest, ramp, span, mask, "0.mixer.")
        return norm(x + y @ params["0.mixer.output.weight"].T, "last_norm"), mask, {"span": loss}

    sizes = {"layers": 1, "dim": dim, "qkv_dim": dim, "heads": heads, "ffn": "none", "norm_place": "pre"}
    write_encoder(f"adaptive_span-{index}", mixer="adaptive_span", source=SOURCE, options={"block": sizes, "model": {"span": span, "ramp": ramp}},
                  params=params, x=normal(100 + index, *shape), mask=mask, forward=forward, max_length=longest, train=True)


case(1, (3, 19, 8), 2, 8, 37, 5.0, "adaptive", lengths=[19, 7, 1])
case(2, (1, 201, 6), 3, 6, 201, 20.5, "adaptive")
case(3, (3, 19, 8), 2, 4, 37, 6.0, "dynamic", lengths=[19, 11, 2])
case(4, (2, 75, 8), 4, 8, 75, 32.0, "fixed", lengths=[75, 31])
with_loss(5, (3, 13, 8), 2, 20, 4.0, "adaptive", [13, 5, 1])
with_loss(6, (2, 13, 6), 3, 20, 4.0, "dynamic", [13, 6])
