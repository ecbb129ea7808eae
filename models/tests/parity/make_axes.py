"""Components around a Transformer (`axes-*` for short): whole classifiers in plain torch, written from the papers' equations, with a few updates by torch.optim.AdamW."""

import json
import math

import torch
from torch.nn import functional as F

from case import lengths_mask, merge, normal, save, split

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}, torch.optim.AdamW"
DIM, HEADS, HIDDEN, LAYERS, HEAD = 8, 2, 12, 2, 6
VOCABULARY, CLASSES, LENGTH = 7, 3, 11
LENGTHS = [11, 6, 1]
EPSILON = 1e-6
STEPS = 4
SETTINGS = {"rate": 3e-3, "beta1": 0.9, "beta2": 0.98, "epsilon": 1e-8, "weight_decay": 0.1}
DEFAULTS = {
    "embed": {"positions": "learned", "dropout": 0.0},
    "block": {
        "layers": LAYERS, "dim": DIM, "qkv_dim": DIM, "heads": HEADS, "mlp_dim": HIDDEN, "activation": "gelu", "norm": "layer",
        "norm_place": "pre", "norm_epsilon": EPSILON, "residual": "plain", "ffn": "dense", "gate": "none", "share": False,
        "bias": "none", "rotary": False, "memory": 0, "dropout": 0.0, "attention_dropout": 0.0,
    },
    "head": {"pooling": "mean", "hidden": HEAD, "layers": "last"},
}

ACTIVATIONS = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": torch.relu,
    "silu": lambda x: x * torch.sigmoid(x),
    "sigmoid": torch.sigmoid,
    "relu_squared": lambda x: torch.relu(x) ** 2,
    "identity": lambda x: x,
}


class Parameters:
    """Path -> leaf. A path that is asked for twice is one parameter."""

    def __init__(self):
        self.leaves = {}

    def __call__(self, path, *shape, mean=0.0, scale=0.3):
        if path not in self.leaves:
            value = mean + normal(100 + len(self.leaves), *shape, scale=scale)
            self.leaves[path] = value.float().double().requires_grad_(True)
        return self.leaves[path]

    def linear(self, path, x, width, bias=True):
        y = x @ self(f"{path}.weight", width, x.shape[-1], scale=x.shape[-1] ** -0.5).T
        return y + self(f"{path}.bias", width) if bias else y


class Model:
    """The classifier of these options. Parameters come to be as they are used."""

    def __init__(self, options):
        self.p = Parameters()
        self.embed, self.block, self.head = options["embed"], options["block"], options["head"]

    def norm(self, path, x):
        kind = self.block["norm"]
        if kind in ("batch", "batch_masked"):
            rows = x if kind == "batch" else x[self.mask == 1]
            rows = rows.reshape(-1, DIM)
            y = (x - rows.mean(0)) / (rows.var(0, unbiased=False) + EPSILON).sqrt()
            return y * self.p(f"{path}.scale", DIM, mean=1.0) + self.p(f"{path}.shift", DIM)
        if kind == "layer":
            return F.layer_norm(x, (DIM,), self.p(f"{path}.scale", DIM, mean=1.0), self.p(f"{path}.shift", DIM), EPSILON)
        if kind == "rms":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.p(f"{path}.scale", DIM, mean=1.0)
        if kind == "scale":
            length = x.norm(dim=-1, keepdim=True).clamp(min=EPSILON)
            return self.p(f"{path}.scale", 1, mean=DIM**0.5) * x / length
        if kind == "ada":
            y = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + EPSILON)
            return (1 - y.detach() / 10) * y
        if kind == "power":
            # The state as it is at first: nobody commits it here.
            return x / math.sqrt(1 + EPSILON) * self.p(f"{path}.scale", DIM, mean=1.0) + self.p(f"{path}.shift", DIM)
        return x

    def join(self, at, half, x, y):
        kind = self.block["residual"]
        if kind == "gru":
            path = f"{at}.{half}_join"
            y = torch.relu(y)
            w_r, w_z, w_h = self.p(f"{path}.from_y.weight", 3 * DIM, DIM).chunk(3)
            u_r, u_z = self.p(f"{path}.from_x.weight", 2 * DIM, DIM).chunk(2)
            r = torch.sigmoid(y @ w_r.T + x @ u_r.T)
            z = torch.sigmoid(y @ w_z.T + x @ u_z.T - self.p(f"{path}.bias", DIM, mean=2.0))
            h = torch.tanh(y @ w_h.T + (r * x) @ self.p(f"{path}.from_reset.weight", DIM, DIM).T)
            return (1 - z) * x + z * h
        if kind == "rezero":
            return x + self.p(f"{at}.alpha", 1) * y
        if kind == "admin":
            return self.p(f"{at}.{half}_join.omega", DIM, mean=1.2) * x + y
        if kind == "layerscale":
            return x + self.p(f"{at}.{half}_join.lambda", DIM, mean=1.0) * y
        return x + y

    def rotate(self, x):
        """Columns 2c and 2c + 1 of each head by the angle t 10000^(-2c/E)."""
        width = x.shape[-1]
        angle = torch.arange(x.shape[2])[:, None] * 10000 ** (-torch.arange(0, width, 2) / width)
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = (even * angle.cos() - odd * angle.sin(), even * angle.sin() + odd * angle.cos())
        return torch.stack(turned, -1).flatten(-2)

    def scores_by_distance(self, at, length):
        distance = (torch.arange(length)[None, :] - torch.arange(length)[:, None]).double()
        if self.block["bias"] == "alibi":
            slopes = torch.tensor([2 ** (-8 * (head + 1) / HEADS) for head in range(HEADS)])
            return -slopes[:, None, None] * distance.abs()
        if self.block["bias"] == "gauss":
            width = F.softplus(self.p(f"{at}.bias.width", HEADS, mean=-4.0))
            offset = -F.softplus(self.p(f"{at}.bias.offset", HEADS, mean=-4.0))
            return -(width[:, None, None] * distance**2 + offset[:, None, None]).abs()
        return 0.0

    def attention(self, at, x, mask):
        at = f"{at}.mixer"
        q, k, v = (split(self.p.linear(f"{at}.{name}", x, DIM, bias=False), HEADS) for name in ("query", "key", "value"))
        if self.block["rotary"]:
            q, k = self.rotate(q), self.rotate(k)
        scores = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS) + self.scores_by_distance(at, x.shape[1])
        if cap := self.block.get("soft_cap"):
            scores = torch.tanh(scores / cap) * cap
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
        slots = self.block["memory"]
        if slots:
            rows = x.shape[0]
            stored = (self.p(f"{at}.memory.key", slots, DIM) * math.sqrt(DIM // HEADS), self.p(f"{at}.memory.value", slots, DIM) * math.sqrt(slots))
            mk, mv = (split(memory.expand(rows, -1, -1), HEADS) for memory in stored)
            scores = torch.cat([q @ mk.transpose(-1, -2) / math.sqrt(DIM // HEADS), scores], -1)
            v = torch.cat([mv, v], 2)
        return self.p.linear(f"{at}.output", merge(torch.softmax(scores, -1) @ v), DIM, bias=False)

    def separable(self, path, x, width, reach, mask):
        x = x * mask[:, :, None]
        kernel = self.p(f"{path}.kernel", x.shape[-1], reach)
        x = F.conv1d(x.transpose(1, 2), kernel[:, None, :], padding=reach // 2, groups=x.shape[-1]).transpose(1, 2)
        return self.p.linear(path, x, width)

    def feed(self, at, x, mask):
        at, activation = f"{at}.feed", ACTIVATIONS[self.block["activation"]]
        if self.block["ffn"] == "conv":
            return self.separable(f"{at}.outer", activation(self.separable(f"{at}.inner", x, HIDDEN, 3, mask)), DIM, 5, mask)
        hidden = activation(self.p.linear(f"{at}.inner", x, HIDDEN))
        if self.block["gate"] == "glu":
            hidden = hidden * self.p.linear(f"{at}.gate", x, HIDDEN)
        return self.p.linear(f"{at}.outer", hidden, DIM)

    def halves(self, at, mask):
        yield "mixer", lambda x: self.attention(at, x, mask)
        if self.block["ffn"] != "none":
            yield "feed", lambda x: self.feed(at, x, mask)

    def run_block(self, at, x, mask):
        for half, layer in self.halves(at, mask):
            norm = f"{at}.{half}_norm"
            if self.block["norm_place"] == "post":
                x = self.norm(norm, self.join(at, half, x, layer(x)))
            else:
                x = self.join(at, half, x, layer(self.norm(norm, x)))
        return x

    def last(self, x):
        bare = self.block["norm_place"] == "post" or not self.block.get("last_norm", True)
        return x if bare else self.norm("encoder.last_norm", x)

    def encoder(self, x, mask, positions):
        if self.block["residual"] == "reversible":
            a = b = x
            for layer in range(LAYERS):
                (_, mix), (_, feed) = self.halves(f"encoder.{layer}", mask)
                a = a + mix(self.norm(f"encoder.{layer}.mixer_norm", b))
                b = b + feed(self.norm(f"encoder.{layer}.feed_norm", a))
            return self.last((a + b) / 2)
        states = [x]
        for layer in range(LAYERS):
            at = "encoder.0" if self.block["share"] else f"encoder.{layer}"
            if layer and self.embed.get("every_layer"):
                x = x + positions
            x = self.run_block(at, x, mask)
            if layer == 0 and self.embed["positions"] == "conditional":
                kernel, bias = self.p(f"{at}.positions.kernel", DIM, 3), self.p(f"{at}.positions.bias", DIM)
                real = (x * mask[:, :, None]).transpose(1, 2)
                x = x + F.conv1d(real, kernel[:, None, :], bias, padding=1, groups=DIM).transpose(1, 2)
            states.append(x)
        if self.head["layers"] == "mix":
            weights = torch.softmax(self.p("encoder.layer_scores", LAYERS + 1), 0)
            return sum(weight * self.last(state) for weight, state in zip(weights, states))
        return self.last(x)

    def embedded(self, ids):
        """Token vectors with their positions, and the positions."""
        kind, t = self.embed["positions"], torch.arange(LENGTH).double()
        if kind == "complex":
            half = DIM // 2
            r, turn, phase = (self.p(f"embed.tokens.{name}", VOCABULARY, half)[ids] for name in ("amplitude", "frequency", "phase"))
            frequency = 10000 ** (-2 * torch.arange(half) / DIM) + turn
            z = torch.polar(torch.ones_like(r), frequency * t[None, :, None] + phase) * r
            return torch.cat([z.real, z.imag], -1), None
        if self.embed.get("input") == "scalar":
            number = (ids / (VOCABULARY - 1) - self.embed["mean"]) / self.embed["std"]
            tokens = number[..., None] * self.p("embed.tokens.weight", DIM) + self.p("embed.tokens.bias", DIM)
        else:
            tokens = self.p("embed.tokens", VOCABULARY, DIM, scale=1.0)[ids]
        if kind == "learned":
            positions = self.p("embed.positions", LENGTH, DIM)
        elif kind == "sinusoid":
            angle = t[:, None] * 10000 ** (-torch.arange(0, DIM, 2) / DIM)
            positions = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        else:
            return tokens, None
        return tokens + positions, positions

    def pooled(self, x, mask):
        kind = self.head["pooling"]
        if kind == "max":
            return x.masked_fill(mask[:, :, None] == 0, -math.inf).amax(1)
        if kind == "first":
            return x[:, 0]
        total = (x * mask[:, :, None]).sum(1)
        return total / mask.sum(1, keepdim=True) if kind == "mean" else total

    def __call__(self, ids, mask):
        self.mask = mask
        x, positions = self.embedded(ids)
        x = self.pooled(self.encoder(x, mask, positions), mask)
        return self.p.linear("head.1", torch.relu(self.p.linear("head.0", x, HEAD)), CLASSES)


def case(name, train=False, **changes):
    options = {section: {**values, **changes.get(section, {})} for section, values in DEFAULTS.items()}
    model = Model(options)
    mask = lengths_mask(LENGTHS, LENGTH)
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(1, VOCABULARY, mask.shape, generator=generator) * mask.long()
    labels = torch.arange(len(LENGTHS)) % CLASSES
    model(ids, mask)
    leaves = model.p.leaves
    tensors = {f"param/{path}": leaf.detach().clone() for path, leaf in leaves.items()}
    optimizer = torch.optim.AdamW(
        leaves.values(), lr=SETTINGS["rate"], betas=(SETTINGS["beta1"], SETTINGS["beta2"]),
        eps=SETTINGS["epsilon"], weight_decay=SETTINGS["weight_decay"],
    )
    losses = []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = model(ids, mask)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            tensors |= {f"grad/param/{path}": leaf.grad.clone() for path, leaf in leaves.items()}
            tensors["out/logits"] = logits
        optimizer.step()
    tensors |= {"in/ids": ids, "in/mask": mask, "in/labels": labels, "out/losses": torch.stack(losses)}
    how = {"train": "true"} if train else {}
    save(f"axes-{name}", tensors, kind="training", **how, mixer="transformer", options=json.dumps(options),
         shape=json.dumps({"vocabulary": VOCABULARY, "classes": CLASSES, "max_length": LENGTH}),
         optimizer=json.dumps(SETTINGS), source=SOURCE, atol=1e-4, rtol=1e-4)


for kind in ("rms", "scale", "ada", "power", "none"):
    case(f"norm-{kind}", block={"norm": kind})
for kind in ("batch", "batch_masked"):
    case(f"norm-{kind}", train=True, block={"norm": kind})
case("last_norm", block={"last_norm": False})
case("dropout_tied", block={"dropout_tied": True, "ffn": "none"})
case("input-scalar", embed={"input": "scalar", "mean": 0.4, "std": 0.3})
case("norm-post", block={"norm_place": "post"})
for kind in ("reversible", "gru", "layerscale"):
    case(f"residual-{kind}", block={"residual": kind})
case("residual-rezero", block={"residual": "rezero", "norm": "none"})
case("residual-admin", block={"residual": "admin", "norm_place": "post"})
for kind in ("gelu_erf", "relu", "silu", "sigmoid", "relu_squared", "identity"):
    case(f"activation-{kind}", block={"activation": kind})
for kind, activation in (("glu", "sigmoid"), ("geglu", "gelu"), ("swiglu", "silu"), ("bilinear", "identity")):
    case(f"gate-{kind}", block={"gate": "glu", "activation": activation})
for kind in ("conv", "none"):
    case(f"ffn-{kind}", block={"ffn": kind})
case("share", block={"share": True})
for kind in ("alibi", "gauss"):
    case(f"bias-{kind}", block={"bias": kind})
case("rotary", block={"rotary": True})
case("memory", block={"memory": 3})
case("soft_cap", block={"soft_cap": 0.75, "bias": "alibi"})
for kind in ("sinusoid", "complex", "conditional", "none"):
    case(f"positions-{kind}", embed={"positions": kind})
case("positions-every_layer", embed={"every_layer": True})
case("layers-mix", head={"layers": "mix"})
for kind in ("max", "sum", "first"):
    case(f"pooling-{kind}", head={"pooling": kind})
