"""Universal Transformer: halting by adaptive computation time, from the equations of Graves and of the paper in torch. Marks of positions are added
by what surrounds the encoder, so cases have those of steps alone."""

import torch
from torch.nn import functional as F

from case import lengths_mask, merge, normal, split, write_encoder

SOURCE = f"equations in torch {torch.__version__.split('+')[0]}"
EPSILON, HIDDEN = 1e-6, -1e30


def parameters(seed, dim, width, hidden, steps, act, learned, conv):
    at = 1000 * seed
    shapes = {f"0.mixer.{name}.weight": (width, dim) for name in ("query", "key", "value")} | {"0.mixer.output.weight": (dim, width)}
    shapes |= {"0.feed.inner.weight": (hidden, dim), "0.feed.inner.bias": (hidden,), "0.feed.outer.weight": (dim, hidden), "0.feed.outer.bias": (dim,)}
    if conv:
        shapes |= {"0.feed.inner.kernel": (dim, 3), "0.feed.outer.kernel": (hidden, 5)}
    if act:
        shapes |= {"halt.weight": (1, dim), "halt.bias": (1,)}
    if learned:
        shapes |= {"steps": (steps, dim)}
    params = {name: normal(at + index, *shape, scale=shape[-1] ** -0.5) for index, (name, shape) in enumerate(shapes.items())}
    for index, half in enumerate(("mixer", "feed")):
        params[f"0.{half}_norm.scale"] = 1 + normal(at + 50 + index, dim, scale=0.3)
        params[f"0.{half}_norm.shift"] = normal(at + 60 + index, dim, scale=0.3)
    return params


def sinusoid(steps, dim):
    channel = torch.arange(dim)
    angle = torch.arange(steps)[:, None] / 10000 ** ((channel - channel % 2) / dim)
    return torch.where(channel % 2 == 0, angle.sin(), angle.cos())


def block(params, x, mask, heads, conv, pre):
    def norm(x, half):
        return F.layer_norm(x, x.shape[-1:], params[f"0.{half}_norm.scale"], params[f"0.{half}_norm.shift"], EPSILON)

    def attention(x):
        q, k, v = (split(x @ params[f"0.mixer.{name}.weight"].T, heads) for name in ("query", "key", "value"))
        hidden = (1 - mask[:, None, None, :]) * HIDDEN
        return merge(F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)) @ params["0.mixer.output.weight"].T

    def layer(x, name):
        if conv:
            kernel = params[f"0.feed.{name}.kernel"]
            x = (x * mask[:, :, None]).transpose(1, 2)
            x = F.conv1d(x, kernel[:, None, :], padding=kernel.shape[1] // 2, groups=x.shape[1]).transpose(1, 2)
        return x @ params[f"0.feed.{name}.weight"].T + params[f"0.feed.{name}.bias"]

    def feed(x):
        return layer(F.relu(layer(x, "inner")), "outer")

    for half, f in (("mixer", attention), ("feed", feed)):
        x = x + f(norm(x, half)) if pre else norm(x + f(x), half)
    return x


def case(index, shape, heads, width, hidden, steps, lengths=None, act=False, basic=False, freeze=False, marks="sinusoid", conv=False, threshold=0.99):
    batch, length, dim = shape
    mask = None if lengths is None else lengths_mask(lengths, length)
    real = torch.ones(batch, length) if mask is None else mask
    params = parameters(index, dim, width, hidden, steps, act, marks == "learned", conv)

    def forward(params, x):
        table = {"sinusoid": sinusoid(steps, dim), "learned": params.get("steps"), "none": torch.zeros(steps, dim)}[marks]
        state, output = x, torch.zeros_like(x)
        total, ponder, running = torch.zeros(batch, length), torch.zeros(batch, length), real
        taken = []
        for step in range(steps):
            x = state + table[step]
            new = block(params, x, real, heads, conv, False)
            if not act:
                state = new
                continue
            p = torch.sigmoid(x @ params["halt.weight"][0] + params["halt.bias"])
            assert ((total + p - threshold).abs() > 1e-4)[running > 0].all(), "too near the threshold"
            halts = running * ((total + p > threshold).double() if step + 1 < steps else 1)
            weight = (running - halts) * p + halts * (1 - total)
            output = output * (1 - weight[:, :, None] if basic else 1) + weight[:, :, None] * new
            ponder = ponder + running + halts * (1 - total)
            total = total + (running - halts) * p
            state = torch.where(running[:, :, None] > 0, new, state) if freeze else new
            running = running - halts
            taken.append(halts.sum().item())
        if not act:
            return state, mask, {}
        print(index, "halting at each step", taken)
        return output, mask, {"ponder": (ponder.sum(1) / real.sum(1)).mean()}

    own = {"steps": steps, "step_embedding": marks, "threshold": threshold, "halting": "act" if act else "none",
           "accumulate": "basic" if basic else "mean", "freeze": freeze}
    sizes = {"layers": 2, "dim": dim, "qkv_dim": width, "heads": heads, "mlp_dim": hidden, "ffn": "conv" if conv else "dense"}
    write_encoder(f"universal-{index}", mixer="universal", source=SOURCE, options={"block": sizes, "model": own}, params=params,
                  x=normal(100 + index, *shape), mask=mask, forward=forward)


case(1, (2, 9, 8), 2, 8, 12, steps=3)
case(2, (3, 11, 8), 2, 6, 10, steps=6, lengths=[11, 6, 1], act=True)
case(3, (3, 11, 8), 4, 8, 10, steps=5, lengths=[11, 4, 2], act=True, basic=True, threshold=0.9)
case(4, (2, 13, 6), 3, 6, 8, steps=4, lengths=[13, 7], act=True, freeze=True, marks="learned")
case(5, (2, 10, 8), 2, 8, 12, steps=4, lengths=[10, 5], act=True, conv=True, marks="none", threshold=0.999)
