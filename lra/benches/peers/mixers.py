"""The peers: each maps (B, L, D) to (B, L, D), with projections, at the sizes that lra's defaults have.

A peer is a class built from a `Sizes`. Packages are used as published; where there is none, plain eager PyTorch. Those that
are set beside lra on padded sequences take a mask (B, L), true where a token is real.
"""

import dataclasses
import math

import torch
from torch import nn
from torch.nn import functional as F


@dataclasses.dataclass
class Sizes:
    dim: int
    heads: int
    length: int
    dropout: float = 0.0

    @property
    def width(self):
        return self.dim // self.heads


class Heads(nn.Module):
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


class Transformer(Heads):
    """Scaled dot product attention of PyTorch, which is fused."""

    def attend(self, q, k, v, mask=None):
        keys = None if mask is None else mask[:, None, None, :]
        return F.scaled_dot_product_attention(q, k, v, keys, self.sizes.dropout)


class Materialised(Heads):
    """The algorithm as published, with all weights in memory."""

    def attend(self, q, k, v):
        scores = (q * self.sizes.width**-0.5) @ k.transpose(2, 3)
        return scores.softmax(-1) @ v


class Linear(Heads):
    """elu + 1 features (arXiv 2006.16236), eager."""

    def attend(self, q, k, v, mask=None):
        q, k = F.elu(q) + 1, F.elu(k) + 1
        if mask is not None:
            k = k * mask[:, None, :, None]
        sums = k.transpose(2, 3) @ v
        totals = k.sum(2, keepdim=True)
        return (q @ sums) / ((q * totals).sum(3, keepdim=True) + 1e-6)


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


class Local(Heads):
    """local-attention: blocks of 64 apart from each other."""

    def __init__(self, sizes):
        super().__init__(sizes)
        from local_attention import LocalAttention

        self.local = LocalAttention(
            window_size=64,
            causal=False,
            look_backward=0,
            look_forward=0,
            autopad=True,
            use_rotary_pos_emb=False,
        )

    def attend(self, q, k, v):
        return self.local(q, k, v)


class Performer(nn.Module):
    """performer-pytorch: FAVOR+."""

    def __init__(self, sizes):
        super().__init__()
        from performer_pytorch import SelfAttention

        features = math.ceil(sizes.width * math.log(sizes.width) / 8) * 8
        self.attention = SelfAttention(
            sizes.dim, heads=sizes.heads, dim_head=sizes.width, causal=False, nb_features=features
        )

    def forward(self, x, mask=None):
        return self.attention(x, mask=mask)


class Linformer(nn.Module):
    """linformer: rank 256, keys and values share their projection."""

    def __init__(self, sizes):
        super().__init__()
        from linformer import LinformerSelfAttention

        self.attention = LinformerSelfAttention(
            sizes.dim, sizes.length, k=256, heads=sizes.heads, share_kv=True
        )

    def forward(self, x):
        return self.attention(x)


class Reformer(nn.Module):
    """reformer-pytorch: buckets of 32, two rounds."""

    def __init__(self, sizes):
        super().__init__()
        from reformer_pytorch import LSHSelfAttention

        self.attention = LSHSelfAttention(
            sizes.dim, heads=sizes.heads, bucket_size=32, n_hashes=2, causal=False
        )

    def forward(self, x):
        return self.attention(x)


class Sinkhorn(nn.Module):
    """sinkhorn-transformer: blocks of the square root of the length, rounded up to a power of two."""

    def __init__(self, sizes):
        super().__init__()
        from sinkhorn_transformer.sinkhorn_transformer import SinkhornSelfAttention

        block = 2 ** math.ceil(math.log2(math.sqrt(sizes.length)))
        self.attention = SinkhornSelfAttention(
            sizes.dim,
            block,
            sizes.length,
            heads=sizes.heads,
            causal=False,
            sinkhorn_iter=7,
            temperature=0.75,
        )

    def forward(self, x):
        return self.attention(x)


class Longformer(nn.Module):
    """Hugging Face transformers: a window of 512, the first position global."""

    def __init__(self, sizes):
        super().__init__()
        from transformers import LongformerConfig
        from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

        config = LongformerConfig(
            hidden_size=sizes.dim,
            num_attention_heads=sizes.heads,
            attention_window=[512],
            attention_probs_dropout_prob=0.0,
        )
        self.attention = LongformerSelfAttention(config, 0)
        self.output = nn.Linear(sizes.dim, sizes.dim, bias=False)

    def forward(self, x):
        mask = x.new_zeros(x.shape[:2])
        mask[:, 0] = 10000.0
        y = self.attention(
            x,
            attention_mask=mask,
            is_index_masked=mask < 0,
            is_index_global_attn=mask > 0,
            is_global_attn=True,
        )
        return self.output(y[0])


class BigBird(nn.Module):
    """Hugging Face transformers: blocks of 64, three random ones, global first and last."""

    BLOCK = 64

    def __init__(self, sizes):
        super().__init__()
        from transformers import BigBirdConfig
        from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

        config = BigBirdConfig(
            hidden_size=sizes.dim,
            num_attention_heads=sizes.heads,
            block_size=self.BLOCK,
            num_random_blocks=3,
            use_bias=False,
            max_position_embeddings=sizes.length,
            attention_probs_dropout_prob=0.0,
        )
        self.attention = BigBirdBlockSparseAttention(config, seed=0)
        self.output = nn.Linear(sizes.dim, sizes.dim, bias=False)

    def forward(self, x):
        from transformers.models.big_bird.modeling_big_bird import BigBirdModel

        mask = x.new_ones(x.shape[:2])
        masks = BigBirdModel.create_masks_for_block_sparse_attn(mask, self.BLOCK)
        blocked, band, rows, columns = masks
        y = self.attention(
            x,
            band_mask=band,
            from_mask=rows,
            to_mask=columns,
            from_blocked_mask=blocked,
            to_blocked_mask=blocked,
        )
        return self.output(y[0])


# (lra's model, what it is set beside): class, whether torch.compile is put around the whole model.
PEERS = {
    ("transformer", "PyTorch SDPA"): (Transformer, False),
    ("transformer", "PyTorch SDPA, torch.compile"): (Transformer, True),
    ("transformer:attention=materialised", "PyTorch eager"): (Materialised, False),
    ("local", "local-attention"): (Local, False),
    ("sparse", "PyTorch eager"): (Sparse, False),
    ("longformer", "transformers"): (Longformer, False),
    ("linformer", "linformer"): (Linformer, False),
    ("reformer", "reformer-pytorch"): (Reformer, False),
    ("sinkhorn", "sinkhorn-transformer"): (Sinkhorn, False),
    ("synthesizer", "PyTorch eager"): (Synthesizer, False),
    ("bigbird", "transformers"): (BigBird, False),
    ("linear", "PyTorch eager"): (Linear, False),
    ("performer", "performer-pytorch"): (Performer, False),
}

# Models whose peers take masks.
MASKED = ["transformer", "linear", "performer"]
