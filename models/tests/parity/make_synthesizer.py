"""Synthesizer: no maintained package, so the paper's equations in plain tensor algebra, written from arXiv:2005.00743 alone (sections 3.1 to 3.2)."""

import math

import torch

from case import lengths_mask, merge, normal, projections, split, write

SOURCE = "arXiv:2005.00743 sections 3.1 and 3.2, written out in torch tensors"


def synthetic(kind, params, x, heads, fixed=None):
    """S (B or 1, H, L, N)."""

    def dense(name):
        hidden = split(torch.relu(x @ params[f"scores.{name}.inner.weight"].T + params[f"scores.{name}.inner.bias"]), heads)
        return torch.einsum("bhie,hej->bhij", hidden, params[f"scores.{name}.weight"]) + params[f"scores.{name}.bias"]

    if kind == "fixed_random":
        return fixed[None, :, : x.shape[1]]
    if kind == "random":
        return params["scores.random"][None, :, : x.shape[1]]
    if kind == "factorised_random":
        return torch.einsum("hik,hjk->hij", params["scores.left"], params["scores.right"])[None, :, : x.shape[1]]
    if kind == "dense":
        return dense("dense")
    slow, fast = dense("slow"), dense("fast")
    return slow.repeat_interleave(fast.shape[-1], -1) * fast.repeat(1, 1, 1, slow.shape[-1])


def synthesizer(kind, heads, dot_product, mask=None, mixed=True, fixed=None):
    def forward(params, x):
        length = x.shape[1]
        scores = synthetic(kind, params, x, heads, fixed)[..., :length]
        if dot_product:
            q, k = (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key"))
            product = torch.einsum("bhie,bhje->bhij", q, k) / math.sqrt(q.shape[-1])
            share = torch.softmax(params["mixture"], 0) if mixed else (1.0, 1.0)
            scores = share[0] * product + share[1] * scores
        scores = scores.expand(x.shape[0], -1, -1, -1)
        if mask is not None:
            scores = scores.masked_fill(mask[:, None, None, :] == 0, -math.inf)
        v = split(x @ params["value.weight"].T, heads)
        return merge(torch.softmax(scores, -1) @ v) @ params["output.weight"].T

    return forward


def parameters(seed, kind, dim, heads, longest, rank=4, dot_product=False, mixed=True):
    names = ("query", "key", "value") if dot_product else ("value",)
    params = projections(seed, dim, dim, names)
    width = dim // heads
    if dot_product and mixed:
        params["mixture"] = normal(seed + 20, 2)

    def dense(name, columns, at):
        params[f"scores.{name}.inner.weight"] = normal(at, dim, dim, scale=dim**-0.5)
        params[f"scores.{name}.inner.bias"] = normal(at + 1, dim, scale=0.3)
        params[f"scores.{name}.weight"] = normal(at + 2, heads, width, columns)
        params[f"scores.{name}.bias"] = normal(at + 3, heads, 1, columns, scale=0.3)

    if kind == "random":
        params["scores.random"] = normal(seed + 30, heads, longest, longest)
    elif kind == "factorised_random":
        params["scores.left"], params["scores.right"] = (normal(seed + at, heads, longest, rank) for at in (30, 31))
    elif kind == "dense":
        dense("dense", longest, seed + 30)
    elif kind == "factorised_dense":
        fast = math.ceil(math.sqrt(longest))
        dense("slow", math.ceil(longest / fast), seed + 30)
        dense("fast", fast, seed + 40)
    return params


def case(index, kind, batch, length, longest, dim, heads, dot_product, lengths=None, variant="paper", rank=4):
    mixed = variant == "paper"
    mask = None if lengths is None else lengths_mask(lengths, length)
    draws = {"random": normal(100 * index + 50, heads, longest, longest)} if kind == "fixed_random" else {}
    write(f"synthesizer-{index}", mixer="synthesizer", heads=heads, source=SOURCE, max_length=longest,
          options={"scores": kind, "dot_product": dot_product, "variant": variant, "rank": rank},
          params=parameters(100 * index, kind, dim, heads, longest, rank, dot_product, mixed), x=normal(index, batch, length, dim),
          mask=mask, draws=draws, forward=synthesizer(kind, heads, dot_product, mask, mixed, draws.get("random")))


case(1, "random", 2, 16, 16, 8, 2, False)
case(2, "random", 2, 13, 17, 8, 2, True, [13, 6])
case(3, "factorised_random", 1, 19, 23, 12, 3, False)
case(4, "dense", 2, 11, 14, 8, 2, False, [11, 3])
case(5, "factorised_dense", 2, 15, 15, 8, 2, True)
case(6, "random", 2, 9, 9, 8, 2, True, [9, 1], "tay2021")
case(7, "fixed_random", 2, 13, 15, 8, 2, False, [13, 5])
case(8, "fixed_random", 1, 33, 33, 6, 3, True)
