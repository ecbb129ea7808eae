"""Routing Transformer: KmeansAttention of routing-transformer, between projections of our own; heads that see what is near by its equations.

Each row is run on its real part alone: the module chooses before it masks. Its means over clusters divide by their number plus 1e-5, here by the
number alone.
"""

from functools import partial

import torch
from routing_transformer import routing_transformer as package
from torch.nn import functional as F

from case import lengths_mask, merge, normal, projections, split, write, write_encoder

SOURCE = "routing-transformer 1.6.1, KmeansAttention, changed: means divide by the number alone, without 1e-5"
package.scatter_mean = partial(package.scatter_mean, eps=1e-30)


def routed(q, k, v, centroids, window):
    """(1, H, n, E), and the module's mean of squared distances from centroids."""
    heads, clusters, width = centroids.shape
    for x in (q, k):
        affinities = torch.einsum("bhld,hcd->bhcl", F.normalize(x, dim=-1), centroids).sort(-1, descending=True).values
        if window < x.shape[2]:
            gaps = affinities[..., window - 1] - affinities[..., window]
            assert gaps.min() > 1e-5, "members are chosen by a hair"
    module = package.KmeansAttention(clusters, window, heads, width, commitment=1.0).eval()
    module.kmeans.means.copy_(centroids)
    module.kmeans.initted.fill_(True)
    return module(q, k, v)


def near(q, k, v, window):
    place = torch.arange(q.shape[2]) // window
    hidden = ((place[:, None] - place[None, :]).abs() > 1) * -1e30
    return F.scaled_dot_product_attention(q, k, v, attn_mask=hidden)


def attention(params, x, heads, local, centroids, window, lengths, prefix="", local_window=0):
    batch, length, _ = x.shape
    rows, losses = [], []
    for row, real in enumerate(lengths or [length] * batch):
        q, k, v = (split(x[row : row + 1, :real] @ params[f"{prefix}{name}.weight"].T, heads) for name in ("query", "key", "value"))
        far, loss = routed(q[:, local:], k[:, local:], v[:, local:], centroids, window)
        y = torch.cat([near(q[:, :local], k[:, :local], v[:, :local], local_window or window), far], 1) if local else far
        rows.append(F.pad(merge(y), (0, 0, 0, length - real)))
        losses.append(loss)
    return torch.cat(rows) @ params[f"{prefix}output.weight"].T, torch.stack(losses).mean()


def directions(seed, *shape):
    return F.normalize(normal(seed, *shape), dim=-1).float().double()


def case(index, shape, heads, width, clusters, window, local=0, lengths=None, local_window=0):
    batch, length, dim = shape
    centroids = directions(500 + index, heads - local, clusters, width // heads)
    write(f"routing-{index}", mixer="routing", heads=heads, qkv_dim=width, source=SOURCE,
          options={"clusters": clusters, "window": window, "routed_heads": heads - local} | ({"local_window": local_window} if local_window else {}),
          params=projections(1000 * index, dim, width),
          x=normal(100 + index, *shape), mask=None if lengths is None else lengths_mask(lengths, length), draws={"means": centroids},
          forward=lambda params, x: attention(params, x, heads, local, centroids, window, lengths, local_window=local_window)[0])


def with_loss(index, shape, heads, clusters, window, lengths):
    """A block without a feed-forward network, in training."""
    batch, length, dim = shape
    mask, centroids = lengths_mask(lengths, length), directions(500 + index, heads, clusters, dim // heads)
    params = {f"0.mixer.{name}": value for name, value in projections(1000 * index, dim, dim).items()}
    for place, name in enumerate(("0.mixer_norm", "last_norm")):
        params |= {f"{name}.scale": 1 + normal(index + place, dim, scale=0.3), f"{name}.shift": normal(index + 9 + place, dim, scale=0.3)}

    def forward(params, x):
        norm = lambda x, name: F.layer_norm(x, (dim,), params[f"{name}.scale"], params[f"{name}.shift"], 1e-6)
        y, loss = attention(params, norm(x, "0.mixer_norm"), heads, 0, centroids, window, lengths, "0.mixer.")
        return norm(x + y, "last_norm"), mask, {"commit": loss}

    sizes = {"layers": 1, "dim": dim, "qkv_dim": dim, "heads": heads, "ffn": "none"}
    options = {"block": sizes, "model": {"clusters": clusters, "window": window, "routed_heads": heads}}
    write_encoder(f"routing-{index}", mixer="routing", source=SOURCE, options=options, params=params, x=normal(100 + index, *shape), mask=mask,
                  draws={"means": centroids}, forward=forward, train=True)


case(1, (2, 12, 8), 2, 8, clusters=3, window=4)
case(2, (3, 21, 8), 2, 6, clusters=5, window=5, lengths=[21, 9, 3])
case(3, (2, 19, 12), 4, 12, clusters=4, window=3, local=2, lengths=[19, 14])
case(4, (1, 150, 6), 3, 6, clusters=2, window=80, local=1)
case(5, (2, 7, 8), 2, 8, clusters=1, window=9, lengths=[7, 4])
with_loss(6, (3, 17, 8), 2, clusters=4, window=5, lengths=[17, 6, 1])
case(7, (3, 23, 5), 5, 10, clusters=3, window=7, local=4, lengths=[23, 9, 1], local_window=2)
case(8, (2, 17, 6), 3, 6, clusters=2, window=3, local=1, lengths=[17, 14], local_window=100)
