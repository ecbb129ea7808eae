"""Compressive Transformer: the paper's two algorithms, segment after segment, around XLNetLayer, or the layer of the deprecated TransfoXL, which is
causal; their memory is then the compressed one and the plain one. Compression by torch, the rows that are most used by equations. Memories begin as
zeros, here hidden, so that each segment pushes out as many rows as it has."""

import math

import torch
from torch.nn import functional as F

from case import lengths_mask, merge, normal, split, write_encoder
from recurrent import VERSION, bias, both_ways, forward_in_time, stack_parameters

DIM, HIDDEN = 8, 12


def compressed(params, at, old, real, kind, rate):
    """old (B, n, D), real (B, n)."""
    groups = math.ceil(old.shape[1] / rate)
    missing = groups * rate - old.shape[1]
    old = old * real[..., None]
    if kind == "dilated":
        for i in range(math.ceil(math.log2(rate))):
            weight = params[f"{at}.{i}.weight"].reshape(DIM, 3, DIM).transpose(1, 2)
            y = F.conv1d(old.transpose(1, 2), weight, params[f"{at}.{i}.bias"], padding=2**i, dilation=2**i).transpose(1, 2)
            old = old + torch.relu(y) * real[..., None]
    old, real = F.pad(old, (0, 0, 0, missing)), F.pad(real, (0, missing))
    new_real = real.unflatten(1, (groups, rate)).amax(2)
    if kind in ("conv", "dilated"):
        weight = params[f"{at}.weight"].reshape(DIM, rate, DIM).transpose(1, 2)
        return F.conv1d(old.transpose(1, 2), weight, params[f"{at}.bias"], stride=rate).transpose(1, 2), new_real
    rows, there = old.unflatten(1, (groups, rate)), real.unflatten(1, (groups, rate))
    if kind == "max":
        most = rows.masked_fill(there[..., None] == 0, -math.inf).amax(2)
        return most.masked_fill(new_real[..., None] == 0, 0.0), new_real
    return rows.sum(2) / there.sum(2).clamp(min=1)[..., None], new_real


def content_attention(params, layer, h, to, real, heads):
    """Of h (B, S, D) on `to` (B, n, D) without positions; weights are constants."""
    of = lambda name, x: split(x @ params[f"{layer}.mixer.{name}.weight"].detach().T, heads)
    q, k, v = of("query", h), of("key", to), of("value", to)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) - 1e30 * (1 - real[:, None, None, :])
    return merge(torch.softmax(scores, -1) @ v) * real.amax(1)[:, None, None]


def weights(params, layer, h, keys, real, heads, causal):
    """Attention (B, H, S, n) of h (B, S, D), the last of `keys` (B, n, D), pair by pair."""
    count, before, width = keys.shape[1], keys.shape[1] - h.shape[1], DIM // heads
    by_head = lambda x: x.reshape(*x.shape[:-1], heads, width)
    q, k = by_head(h @ params[f"{layer}.mixer.query.weight"].T), by_head(keys @ params[f"{layer}.mixer.key.weight"].T)
    scores = torch.zeros(len(h), heads, h.shape[1], count)
    for i in range(h.shape[1]):
        for j in range(count):
            angles = (before + i - j) / 10000 ** (torch.arange(0, DIM, 2) / DIM)
            r = by_head(params[f"{layer}.mixer.bias.relative"] @ torch.cat([angles.sin(), angles.cos()]))
            content = ((q[:, i] + bias(params, layer, "content")) * k[:, j]).sum(-1)
            scores[:, :, i, j] = (content + ((q[:, i] + bias(params, layer, "position")) * r).sum(-1)) / math.sqrt(width)
    later = torch.ones(h.shape[1], count).triu(1 + before) * causal
    return torch.softmax(scores - 1e30 * torch.maximum(later, 1 - real[:, None, None, :]), -1)


def most_used(params, layer, h, seen, keys, real, old, rate, heads, causal):
    """The rows old[0] to old[1] of `keys` that count, in order; hidden ones come first if too few are real."""
    use = (weights(params, layer, h, keys, real, heads, causal).mean(1) * seen[..., None]).sum(1)[:, old[0] : old[1]]
    rows, there = keys[:, old[0] : old[1]], real[:, old[0] : old[1]]
    kept = math.ceil(use.shape[1] / rate)
    use = torch.where(there > 0, use, -1.0)
    chosen = use.argsort(1, descending=True)[:, :kept]
    chosen = torch.stack([torch.tensor(sorted(row.tolist(), key=lambda at: (there[b, at].item(), at))) for b, row in enumerate(chosen)])
    return torch.gather(rows, 1, chosen[..., None].expand(-1, -1, DIM)), torch.gather(there, 1, chosen)


def run(params, x, real, layers, segment, memory, slots, rate, kind, heads, causal):
    batch, layer_of = len(x), forward_in_time if causal else both_ways
    m, cm = [torch.zeros(batch, memory, DIM)] * layers, [x[:, :0]] * layers
    m_real, cm_real = torch.zeros(batch, memory), [real[:, :0]] * layers
    squares, counted, states = torch.zeros(batch), torch.zeros(batch), []
    for index, (h, seen) in enumerate(zip(x.split(segment, 1), real.split(segment, 1))):
        for layer in range(layers):
            inputs = h
            all_before, all_real = torch.cat([cm[layer], m[layer]], 1), torch.cat([cm_real[layer], m_real], 1)
            keys_real = torch.cat([all_real, seen], 1)
            hidden = (1 - keys_real.T)[None].expand(h.shape[1], -1, -1)
            h = layer_of(params, layer, h.transpose(0, 1), all_before.transpose(0, 1), hidden, DIM, heads).transpose(0, 1)
            inputs = inputs.detach()
            grown, grown_real = torch.cat([m[layer], inputs], 1), torch.cat([m_real, seen], 1)
            if kind != "none" and index >= memory // segment:
                # The last segment may be shorter: what it pushes out is not seen, but is in the loss.
                missing = max(0, segment - grown.shape[1])
                old, old_real = F.pad(grown[:, :segment], (0, 0, 0, missing)), F.pad(grown_real[:, :segment], (0, missing))
                at = f"{layer}.mixer.compress"
                if kind == "most_used":
                    first = cm[layer].shape[1]
                    keys, pushed = torch.cat([all_before, inputs], 1), (first, first + segment)
                    if missing:
                        continue
                    new, new_real = most_used(params, layer, inputs, seen, keys, keys_real, pushed, rate, heads, causal)
                else:
                    new, new_real = compressed(params, at, old, old_real, kind, rate)
                if kind in ("conv", "dilated"):
                    wanted = content_attention(params, layer, inputs, old, old_real, heads)
                    found = content_attention(params, layer, inputs, new, new_real, heads)
                    squares = squares + (((found - wanted) ** 2).mean(2) * seen).sum(1)
                    counted = counted + seen.sum(1) * (layer == 0)
                cm[layer] = torch.cat([cm[layer], new.detach()], 1)[:, -slots:]
                cm_real[layer] = torch.cat([cm_real[layer], new_real], 1)[:, -slots:]
            m[layer] = grown[:, grown.shape[1] - memory :]
        m_real = torch.cat([m_real, seen], 1)[:, -memory:]
        states.append(h)
    losses = {"reconstruct": (squares / counted.clamp(min=1)).mean()} if kind in ("conv", "dilated") else {}
    return torch.cat(states, 1), losses


def case(index, shape, *, segment, memory, slots, rate, kind="conv", layers=2, heads=2, lengths=None, model=None, causal=False, untie=False,
         **metadata):
    """`model` are the options that say so, all of them if it is left out."""
    batch, length = shape
    mask = None if lengths is None else lengths_mask(lengths, length)
    real = torch.ones(batch, length) if mask is None else mask
    params = stack_parameters(index, layers, DIM, heads, HIDDEN, not untie)
    for layer in range(layers):
        at, seed = f"{layer}.mixer.compress", 1000 * index + 900 + 10 * layer
        if kind in ("conv", "dilated"):
            params[f"{at}.weight"], params[f"{at}.bias"] = normal(seed, DIM, rate * DIM, scale=(rate * DIM) ** -0.5), normal(seed + 1, DIM, scale=0.3)
        if kind == "dilated":
            for i in range(math.ceil(math.log2(rate))):
                params[f"{at}.{i}.weight"] = normal(seed + 2 + 2 * i, DIM, 3 * DIM, scale=(3 * DIM) ** -0.5)
                params[f"{at}.{i}.bias"] = normal(seed + 3 + 2 * i, DIM, scale=0.3)

    def forward(params, x):
        y, losses = run(params, x, real, layers, segment, memory, slots, rate, kind, heads, causal)
        return y, mask, losses

    if model is None:
        model = {"segment": segment, "memory": memory, "compressed": slots, "rate": rate, "compression": kind}
        model |= {"causal": True} if causal else {}
        model |= {"untie": True} if untie else {}
    block = {"layers": layers, "dim": DIM, "qkv_dim": DIM, "heads": heads, "mlp_dim": HIDDEN} | ({"activation": "relu"} if causal else {})
    layer = "RelPartialLearnableDecoderLayer, changed: float64 where it casts to float32" if causal else "XLNetLayer"
    write_encoder(f"compressive-{index}", mixer="compressive", source=f"{VERSION}, {layer}; equations", options={"block": block, "model": model},
                  params=params, x=normal(index, batch, length, DIM), mask=mask, forward=forward, **metadata)


case(1, (2, 16), segment=4, memory=4, slots=4, rate=4, model={}, max_length=16)
case(2, (4, 23), segment=4, memory=8, slots=3, rate=2, heads=4, lengths=[23, 17, 12, 3])
case(3, (2, 17), segment=3, memory=3, slots=5, rate=2, kind="mean", lengths=[17, 10])
case(4, (2, 20), segment=5, memory=5, slots=4, rate=3, kind="max", lengths=[20, 16])
case(5, (3, 19), segment=6, memory=6, slots=4, rate=4, kind="dilated", lengths=[19, 14, 7])
case(6, (2, 18), segment=4, memory=4, slots=3, rate=2, kind="most_used", lengths=[18, 11])
# A memory that is no multiple of the segment, and one that is less.
case(7, (3, 23), segment=3, memory=7, slots=2, rate=2, heads=4, lengths=[23, 11, 2], causal=True, untie=True)
case(8, (2, 20), segment=6, memory=2, slots=3, rate=4, kind="dilated", lengths=[20, 13])
case(9, (2, 19), segment=4, memory=6, slots=4, rate=2, kind="most_used", lengths=[19, 9], causal=True)
case(10, (2, 19), segment=4, memory=6, slots=4, rate=2, kind="none", lengths=[19, 8], causal=True)
case(11, (2, 13), segment=5, memory=7, slots=4, rate=2, kind="none", heads=1, lengths=[13, 6])
