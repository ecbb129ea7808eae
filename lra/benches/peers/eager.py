"""Plain eager PyTorch, where that is what a user would take."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from peer import Peer, peer


class Heads(Peer):
    """Queries, keys and values (B, H, L, E) by one product without bias, and the way back."""

    def __init__(self, sizes):
        super().__init__()
        self.sizes = sizes
        self.qkv = nn.Linear(sizes.dim, 3 * sizes.dim, bias=False)
        self.output = nn.Linear(sizes.dim, sizes.dim, bias=False)

    def forward(self, x, **mask):
        batch, length, dim = x.shape
        q, k, v = (
            part.view(batch, length, self.sizes.heads, self.sizes.width).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        )
        y = self.attend(q, k, v, **mask)
        return self.output(y.transpose(1, 2).reshape(batch, length, dim))


@peer("transformer", "PyTorch SDPA", masked=True)
class Transformer(Heads):
    """Scaled dot product attention of PyTorch, which is fused."""

    def attend(self, q, k, v, mask=None):
        keys = None if mask is None else mask[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, keys, self.sizes.attention_dropout)


@peer("transformer:attention=materialised", "PyTorch eager")
class Materialised(Heads):
    """The algorithm as published, with all weights in memory."""

    def attend(self, q, k, v):
        scores = (q * self.sizes.width**-0.5) @ k.transpose(2, 3)
        return scores.softmax(-1) @ v


@peer("linear", "PyTorch eager", masked=True)
class Linear(Heads):
    """elu + 1 features (arXiv 2006.16236), eager."""

    def attend(self, q, k, v, mask=None):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if mask is not None:
            k = k * mask[:, None, :, None]
        sums = k.transpose(2, 3) @ v
        totals = k.sum(2, keepdim=True)
        return (q @ sums) / ((q * totals).sum(3, keepdim=True) + 1e-6)


@peer("synthesizer", "PyTorch eager")
class Synthesizer(Heads):
    """Random scores mixed with those of dot products (arXiv 2005.00743), eager."""

    def __init__(self, sizes):
        super().__init__(sizes)
        scores = torch.empty(sizes.heads, sizes.length, sizes.length)
        self.scores = nn.Parameter(nn.init.xavier_uniform_(scores))
        self.mixture = nn.Parameter(torch.zeros(2))

    def attend(self, q, k, v):
        dot, random = self.mixture.softmax(0)
        scores = (q * self.sizes.width**-0.5) @ k.transpose(2, 3)
        return (dot * scores + random * self.scores).softmax(-1) @ v


@peer("sparse", "PyTorch eager")
class Sparse(Heads):
    """The fixed pattern (arXiv 1904.10509) in blocks, eager: a query's own block, and 8 summaries of every block."""

    SUMMARY = 8

    def __init__(self, sizes):
        super().__init__(sizes)
        self.block = math.ceil(math.ceil(math.sqrt(sizes.length)) / 8) * 8

    def attend(self, q, k, v):
        batch, heads, length, width = q.shape
        filled = -length % self.block
        q, k, v = (F.pad(x, (0, 0, 0, filled)) for x in (q, k, v))
        blocks = (length + filled) // self.block
        cut = lambda x: x.view(batch, heads, blocks, self.block, width)
        q, k, v = cut(q * width**-0.5), cut(k), cut(v)
        own = self.block - self.SUMMARY
        near = q @ k[:, :, :, :own].transpose(3, 4)
        far_keys, far_values = (
            x[:, :, :, own:].reshape(batch, heads, 1, -1, width) for x in (k, v)
        )
        far = q @ far_keys.transpose(3, 4)
        if filled:
            places = torch.arange(length + filled).view(blocks, self.block)
            hidden = places >= length
            near = near.masked_fill(hidden[:, None, :own], float("-inf"))
            far = far.masked_fill(hidden[:, own:].reshape(1, 1, 1, 1, -1), float("-inf"))
        weights = torch.cat([near, far], -1).softmax(-1)
        y = weights[..., :own] @ v[:, :, :, :own] + weights[..., own:] @ far_values
        return y.reshape(batch, heads, -1, width)[:, :, :length]


class Recurrent(Peer):
    """PyTorch's own layer, in one direction."""

    FEED_FORWARD = False
    POSITIONS = False
    KIND = None

    def __init__(self, sizes):
        super().__init__()
        self.layer = self.KIND(sizes.dim, sizes.dim, batch_first=True)

    def forward(self, x):
        return self.layer(x)[0]


@peer("lstm", "PyTorch nn.LSTM")
class Lstm(Recurrent):
    KIND = nn.LSTM


@peer("gru", "PyTorch nn.GRU")
class Gru(Recurrent):
    KIND = nn.GRU
