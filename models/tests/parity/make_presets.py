"""Transformers with other axes: whole encoders in plain torch, written from the equations of the papers, experts token by token."""

import math

import torch

from case import lengths_mask, merge, normal, split, write_encoder

SOURCE = f"equations, torch {torch.__version__.split('+')[0]}"
DIM, HEADS, HIDDEN, LAYERS = 8, 2, 12, 2
SIZES = {"layers": LAYERS, "dim": DIM, "qkv_dim": DIM, "heads": HEADS, "mlp_dim": HIDDEN, "activation": "relu"}


def feed_parameters(at, seed):
    return {
        f"{at}.inner.weight": normal(seed, HIDDEN, DIM, scale=DIM**-0.5),
        f"{at}.inner.bias": normal(seed + 1, HIDDEN, scale=0.3),
        f"{at}.outer.weight": normal(seed + 2, DIM, HIDDEN, scale=HIDDEN**-0.5),
        f"{at}.outer.bias": normal(seed + 3, DIM, scale=0.3),
    }


def norm_parameters(at, seed):
    return {f"{at}.scale": 1 + normal(seed, DIM, scale=0.3), f"{at}.shift": normal(seed + 1, DIM, scale=0.3)}


def parameters(seed, experts=0, norm=True, last_norm=True, join=lambda at, seed: {}, layers=LAYERS, period=2):
    """Of the whole stack; with experts in every `period`-th block if there are any."""
    params = {}
    for block in range(layers):
        at = 1000 * seed + 100 * block
        for index, name in enumerate(("query", "key", "value", "output")):
            params[f"{block}.mixer.{name}.weight"] = normal(at + index, DIM, DIM, scale=DIM**-0.5)
        if experts and (block + 1) % period == 0:
            params[f"{block}.feed.router.weight"] = normal(at + 10, experts, DIM)
            for expert in range(experts):
                params.update(feed_parameters(f"{block}.feed.expert.{expert}", at + 20 + 4 * expert))
        else:
            params.update(feed_parameters(f"{block}.feed", at + 20))
        for index, half in enumerate(("mixer", "feed")):
            if norm:
                params.update(norm_parameters(f"{block}.{half}_norm", at + 60 + 2 * index))
            params.update(join(f"{block}.{half}_join", at + 70 + 10 * index))
    if norm and last_norm:
        params.update(norm_parameters("last_norm", 1000 * seed + 999))
    return params


def layer_norm(params, at, x):
    if f"{at}.scale" not in params:
        return x
    centred = x - x.mean(-1, keepdim=True)
    y = centred / torch.sqrt((centred**2).mean(-1, keepdim=True) + 1e-6)
    return y * params[f"{at}.scale"] + params[f"{at}.shift"]


def attention(params, at, x, mask):
    q, k, v = (split(x @ params[f"{at}.{name}.weight"].T, HEADS) for name in ("query", "key", "value"))
    scores = q @ k.transpose(-1, -2) / math.sqrt(DIM // HEADS)
    if mask is not None:
        scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
    return merge(torch.softmax(scores, -1) @ v) @ params[f"{at}.output.weight"].T


def feed_forward(params, at, x):
    hidden = torch.relu(x @ params[f"{at}.inner.weight"].T + params[f"{at}.inner.bias"])
    return hidden @ params[f"{at}.outer.weight"].T + params[f"{at}.outer.bias"]


def experts(params, at, x, mask, chosen, capacity, losses):
    """Token by token. capacity: an expert's places as a multiple of its even share of a sequence; None for any number."""
    router = params[f"{at}.router.weight"]
    count = router.shape[0]
    rows, balance, router_z = [], [], []
    for row in range(x.shape[0]):
        real = x.shape[1] if mask is None else int(mask[row].sum())
        logits = x[row, :real] @ router.T
        p = torch.softmax(logits, -1)
        order = [sorted(range(count), key=lambda e, token=token: -p[token, e].item())[:chosen] for token in range(real)]
        places = math.inf if capacity is None else math.ceil(capacity * real / count)
        taken, kept = [0] * count, set()
        for turn in range(chosen):
            for token in range(real):
                if taken[order[token][turn]] < places:
                    taken[order[token][turn]] += 1
                    kept.add((token, turn))
        assert capacity is None or len(kept) < real * chosen, "nobody is turned away"
        outputs = []
        for token in range(real):
            total = sum(p[token, e] for e in order[token]) if chosen > 1 else 1.0
            terms = [
                p[token, e] / total * feed_forward(params, f"{at}.expert.{e}", x[row, token])
                for turn, e in enumerate(order[token])
                if (token, turn) in kept
            ]
            outputs.append(sum(terms, torch.zeros(DIM)))
        outputs.extend([torch.zeros(DIM)] * (x.shape[1] - real))
        rows.append(torch.stack(outputs))
        share = torch.tensor([sum(choice[0] == e for choice in order) / real for e in range(count)])
        balance.append(count * (share * p.mean(0)).sum())
        router_z.append((torch.logsumexp(logits, -1) ** 2).mean())
    losses["balance"] = losses.get("balance", 0.0) + torch.stack(balance).mean()
    losses["router_z"] = losses.get("router_z", 0.0) + torch.stack(router_z).mean()
    return torch.stack(rows)


def plain(params, block, half, x, y):
    return x + y


def gru(params, block, half, x, y):
    at = f"{block}.{half}_join"
    y = torch.relu(y)
    w_r, w_z, w_h = params[f"{at}.from_y.weight"].chunk(3)
    u_r, u_z = params[f"{at}.from_x.weight"].chunk(2)
    r = torch.sigmoid(y @ w_r.T + x @ u_r.T)
    z = torch.sigmoid(y @ w_z.T + x @ u_z.T - params[f"{at}.bias"])
    h = torch.tanh(y @ w_h.T + (r * x) @ params[f"{at}.from_reset.weight"].T)
    return (1 - z) * x + z * h


def rezero(params, block, half, x, y):
    return x + params[f"{block}.alpha"] * y


def admin(params, block, half, x, y):
    return params[f"{block}.{half}_join.omega"] * x + y


def encoder(mask=None, join=plain, post=False, chosen=0, capacity=None, layers=LAYERS):
    def forward(params, x):
        losses = {}

        def feed(params, at, x):
            if f"{at}.router.weight" in params:
                return experts(params, at, x, mask, chosen, capacity, losses)
            return feed_forward(params, at, x)

        for block in range(layers):
            for half, layer in (("mixer", lambda p, at, x: attention(p, at, x, mask)), ("feed", feed)):
                norm = f"{block}.{half}_norm"
                if post:
                    x = layer_norm(params, norm, join(params, block, half, x, layer(params, f"{block}.{half}", x)))
                else:
                    x = join(params, block, half, x, layer(params, f"{block}.{half}", layer_norm(params, norm, x)))
        return x if post else layer_norm(params, "last_norm", x), mask, losses

    return forward


def cases(mixer, params, options=None, **kind):
    """Without padding, with padding, one token."""
    for index, (shape, lengths) in enumerate([((2, 13), None), ((3, 17), [17, 9, 1]), ((2, 1), None)], 1):
        seed = 10 * sum(map(ord, mixer)) + 5 + index
        mask = None if lengths is None else lengths_mask(lengths, shape[1])
        settings = {"block": {**SIZES, **(options or {})}}
        write_encoder(f"{mixer}-{index}", mixer=mixer, source=SOURCE, options=settings, params=params(seed),
                      x=normal(seed, *shape, DIM), mask=mask, forward=encoder(mask, **kind))


def in_training(mixer, experts, lengths, capacity, chosen):
    """Experts turn tokens away."""
    seed = 10 * sum(map(ord, mixer)) + 4
    mask = lengths_mask(lengths, max(lengths))
    settings = {"block": {**SIZES, "experts": experts, "expert_capacity": capacity}}
    write_encoder(f"{mixer}-4", mixer=mixer, source=SOURCE, options=settings, params=parameters(seed, experts=experts),
                  x=normal(seed, *mask.shape, DIM), mask=mask, forward=encoder(mask, chosen=chosen, capacity=capacity), train=True)


def in_other_blocks(mixer, experts, layers, period, lengths, chosen):
    seed = 10 * sum(map(ord, mixer)) + 5
    mask = lengths_mask(lengths, max(lengths))
    settings = {"block": {**SIZES, "layers": layers, "experts": experts, "expert_period": period}}
    write_encoder(f"{mixer}-5", mixer=mixer, source=SOURCE, options=settings, params=parameters(seed, experts=experts, layers=layers, period=period),
                  x=normal(seed, *mask.shape, DIM), mask=mask, forward=encoder(mask, chosen=chosen, layers=layers))


def gru_parameters(at, seed):
    return {
        f"{at}.from_y.weight": normal(seed, 3 * DIM, DIM, scale=DIM**-0.5),
        f"{at}.from_x.weight": normal(seed + 1, 2 * DIM, DIM, scale=DIM**-0.5),
        f"{at}.from_reset.weight": normal(seed + 2, DIM, DIM, scale=DIM**-0.5),
        f"{at}.bias": normal(seed + 3, DIM),
    }


def rezero_parameters(seed):
    params = parameters(seed, norm=False)
    for block in range(LAYERS):
        params[f"{block}.alpha"] = normal(seed + block, 1)
    return params


cases("switch", lambda seed: parameters(seed, experts=3), {"experts": 3}, chosen=1)
in_training("switch", 3, [17, 14], 0.75, 1)
in_other_blocks("switch", 5, 3, 3, [9, 1], 1)
cases("moe", lambda seed: parameters(seed, experts=3), {"experts": 3}, chosen=2)
in_training("moe", 3, [17, 14], 1.5, 2)
in_other_blocks("moe", 2, 2, 1, [13, 6], 2)
cases("gtrxl", lambda seed: parameters(seed, join=gru_parameters), join=gru)
cases("rezero", rezero_parameters, join=rezero)
cases("admin", lambda seed: parameters(seed, last_norm=False, join=lambda at, s: {f"{at}.omega": 1 + normal(s, DIM, scale=0.3)}),
      join=admin, post=True)
