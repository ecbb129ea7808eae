"""Packages for one model each, or for a few."""

import functools
import math

import torch
from torch import nn
from torch.nn import functional as F

from eager import Heads
from peer import Peer, peer


@peer("local", "local-attention")
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


@peer("performer", "performer-pytorch", masked=True)
class Performer(Peer):
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


@peer("linformer", "linformer")
class Linformer(Peer):
    """linformer: rank 256, keys and values share their projection."""

    def __init__(self, sizes):
        super().__init__()
        from linformer import LinformerSelfAttention

        self.attention = LinformerSelfAttention(
            sizes.dim, sizes.length, k=256, heads=sizes.heads, share_kv=True
        )

    def forward(self, x):
        return self.attention(x)


@peer("reformer", "reformer-pytorch")
class Reformer(Peer):
    """reformer-pytorch: buckets of 32, two rounds."""

    def __init__(self, sizes):
        super().__init__()
        from reformer_pytorch import LSHSelfAttention

        self.attention = LSHSelfAttention(
            sizes.dim, heads=sizes.heads, bucket_size=32, n_hashes=2, causal=False
        )

    def forward(self, x):
        return self.attention(x)


@peer("sinkhorn", "sinkhorn-transformer")
class Sinkhorn(Peer):
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


@peer("nystromformer", "nystrom-attention")
class Nystromformer(Peer):
    """nystrom-attention: 64 landmarks, 6 iterations, a kernel of 35."""

    def __init__(self, sizes):
        super().__init__()
        from nystrom_attention import NystromAttention

        self.attention = NystromAttention(
            sizes.dim, dim_head=sizes.width, heads=sizes.heads, num_landmarks=64, residual_conv_kernel=35
        )

    def forward(self, x):
        return self.attention(x)


@peer("mlp_mixer", "mlp-mixer-pytorch")
class MlpMixer(Peer):
    """mlp-mixer-pytorch: the network of positions, 256 hidden."""

    def __init__(self, sizes):
        super().__init__()
        from mlp_mixer_pytorch.mlp_mixer_pytorch import FeedForward

        dense = functools.partial(nn.Conv1d, kernel_size=1)
        self.network = FeedForward(sizes.length, min(256, sizes.length), dense=dense)

    def forward(self, x):
        return self.network(x)


@peer("gmlp", "g-mlp-pytorch")
class GatedMlp(Peer):
    """g-mlp-pytorch: its block is all there is."""

    FEED_FORWARD = False

    def __init__(self, sizes):
        super().__init__()
        from g_mlp_pytorch import gMLPBlock

        self.block = gMLPBlock(dim=sizes.dim, dim_ff=sizes.mlp, seq_len=sizes.length)

    def forward(self, x):
        return self.block(x)


@peer("clustered", "fast-transformers")
class Clustered(Heads):
    """fast-transformers: 100 clusters by 63 bits, 10 rounds."""

    def __init__(self, sizes):
        super().__init__(sizes)
        from fast_transformers.attention import ClusteredAttention

        self.attention = ClusteredAttention(100, iterations=10, bits=63, attention_dropout=0.0)

    def attend(self, q, k, v):
        from fast_transformers.masking import FullMask, LengthMask

        batch, _, length, _ = q.shape
        lengths = LengthMask(torch.full((batch,), length), max_len=length)
        q, k, v = (part.transpose(1, 2).contiguous() for part in (q, k, v))
        return self.attention(q, k, v, FullMask(length, length), lengths, lengths).transpose(1, 2)


@peer("compressed", "memory-compressed-attention")
class Compressed(Peer):
    """memory-compressed-attention: three keys become one."""

    def __init__(self, sizes):
        super().__init__()
        from memory_compressed_attention import MemoryCompressedAttention

        self.attention = MemoryCompressedAttention(sizes.dim, heads=sizes.heads, compression_factor=3)

    def forward(self, x):
        return self.attention(x)


@peer("routing", "routing-transformer")
class Routing(Heads):
    """routing-transformer: half the heads by k-means, the others near, windows and clusters of the root of the length."""

    def __init__(self, sizes):
        super().__init__(sizes)
        from local_attention import LocalAttention
        from routing_transformer.routing_transformer import KmeansAttention

        clusters = math.ceil(math.sqrt(sizes.length))
        window = math.ceil(sizes.length / clusters)
        self.near = sizes.heads - math.ceil(sizes.heads / 2)
        self.far = KmeansAttention(clusters, window, sizes.heads - self.near, sizes.width)
        self.local = LocalAttention(window, look_forward=1, autopad=True, use_rotary_pos_emb=False)

    def attend(self, q, k, v):
        kmeans = self.far.kmeans
        if kmeans.new_means is not None:
            kmeans.update()
        far, self.loss = self.far(*(part[:, self.near :] for part in (q, k, v)))
        near = self.local(*(part[:, : self.near].contiguous() for part in (q, k, v)))
        return torch.cat([near, far], 1)


@peer("xcit", "timm")
class Xcit(Peer):
    """timm: its blocks, whose convolutions of 3 x 3 see a picture of one row."""

    WHOLE = True

    def __init__(self, sizes):
        super().__init__()
        from timm.models.xcit import XCABlock

        block = functools.partial(XCABlock, sizes.dim, sizes.heads, mlp_ratio=sizes.mlp / sizes.dim)
        self.blocks = nn.ModuleList(block() for _ in range(sizes.layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x, 1, x.shape[1])
        return x


@peer("s5", "s5-pytorch")
class S5(Peer):
    """s5-pytorch: both directions, 32 complex states, as many as lra's 64 that stand for themselves and their conjugates, in 4 blocks.

    Its block has a feed-forward network and no gate; around its operator is the gate that lra and the published code have.
    """

    FEED_FORWARD = False
    POSITIONS = False

    def __init__(self, sizes):
        super().__init__()
        from s5 import S5 as Operator

        self.operator = Operator(sizes.dim, 32, block_count=4, bidir=True)
        self.output = nn.Linear(sizes.dim, sizes.dim)

    def forward(self, x):
        z = F.gelu(self.operator(x))
        return z * torch.sigmoid(self.output(z))


@peer("min_lstm", "minGRU-pytorch")
class MinLstm(Peer):
    """minGRU-pytorch: its parallel scan in logarithms, an inner width of 3/2."""

    NORM = nn.RMSNorm
    POSITIONS = False

    def __init__(self, sizes):
        super().__init__()
        from minGRU_pytorch.minLSTM import minLSTM

        self.layer = minLSTM(sizes.dim, expansion_factor=1.5)

    def forward(self, x):
        return self.layer(x)


@peer("xlstm", "xlstm")
class Xlstm(Peer):
    """xlstm: its parallel form, which has a weight for each pair of positions."""

    FEED_FORWARD = False
    POSITIONS = False

    def __init__(self, sizes):
        super().__init__()
        from xlstm.blocks.mlstm.layer import mLSTMLayer, mLSTMLayerConfig

        config = mLSTMLayerConfig(
            embedding_dim=sizes.dim, num_heads=sizes.heads, context_length=sizes.length
        )
        self.layer = mLSTMLayer(config)

    def forward(self, x):
        return self.layer(x)


@peer("mamba", "mambapy")
class Mamba(Peer):
    """mambapy: its parallel scan, 16 states for each of twice as many channels, a convolution of 4 taps."""

    FEED_FORWARD = False
    NORM = nn.RMSNorm
    POSITIONS = False

    def __init__(self, sizes):
        super().__init__()
        from mambapy.mamba import MambaBlock, MambaConfig

        self.block = MambaBlock(MambaConfig(d_model=sizes.dim, n_layers=sizes.layers))

    def forward(self, x):
        return self.block(x)
