"""Models of Hugging Face transformers."""

import math

import torch
from torch import nn

from peer import Peer, peer


@peer("longformer", "transformers")
class Longformer(Peer):
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


@peer("bigbird", "transformers")
class BigBird(Peer):
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


@peer("nystromformer", "transformers")
class Nystromformer(Peer):
    """64 landmarks, 6 iterations, a kernel of 35."""

    def __init__(self, sizes):
        super().__init__()
        from transformers import NystromformerConfig
        from transformers.models.nystromformer.modeling_nystromformer import NystromformerSelfAttention

        config = NystromformerConfig(
            hidden_size=sizes.dim,
            num_attention_heads=sizes.heads,
            num_landmarks=64,
            segment_means_seq_len=sizes.length,
            conv_kernel_size=35,
            attention_probs_dropout_prob=0.0,
        )
        self.attention = NystromformerSelfAttention(config)
        self.output = nn.Linear(sizes.dim, sizes.dim)

    def forward(self, x):
        return self.output(self.attention(x)[0])


@peer("fnet", "transformers")
class FNet(Peer):
    """Fourier transforms."""

    def __init__(self, sizes):
        super().__init__()
        from transformers import FNetConfig
        from transformers.models.fnet.modeling_fnet import FNetBasicFourierTransform

        config = FNetConfig(hidden_size=sizes.dim, max_position_embeddings=sizes.length)
        self.transform = FNetBasicFourierTransform(config)

    def forward(self, x):
        return self.transform(x)[0]


@peer("informer", "transformers")
class Informer(Peer):
    """The measure of a query takes all keys there; it is meant to take a few."""

    def __init__(self, sizes):
        super().__init__()
        from transformers.models.informer.modeling_informer import InformerProbSparseAttention

        self.attention = InformerProbSparseAttention(sizes.dim, sizes.heads)

    def forward(self, x):
        return self.attention(x)[0]


@peer("griffin", "transformers")
class Griffin(Peer):
    """Hugging Face transformers: the recurrent block of RecurrentGemma, one position after the other."""

    NORM = nn.RMSNorm
    POSITIONS = False

    def __init__(self, sizes):
        super().__init__()
        from transformers import RecurrentGemmaConfig
        from transformers.models.recurrent_gemma.modeling_recurrent_gemma import RecurrentGemmaRecurrentBlock

        config = RecurrentGemmaConfig(hidden_size=sizes.dim, num_attention_heads=sizes.heads)
        self.block = RecurrentGemmaRecurrentBlock(config, 0)
        for weight in self.block.rg_lru.parameters():
            nn.init.normal_(weight, std=0.02)

    def forward(self, x):
        positions = torch.arange(x.shape[1])[None].expand(x.shape[:2])
        return self.block(x, positions, None, use_cache=False)[0]


@peer("rwkv4", "transformers")
class Rwkv4(Peer):
    """Hugging Face transformers: the form for processors, one position after the other."""

    POSITIONS = False

    def __init__(self, sizes):
        super().__init__()
        from transformers import RwkvConfig
        from transformers.models.rwkv.modeling_rwkv import RwkvSelfAttention

        config = RwkvConfig(hidden_size=sizes.dim, attention_hidden_size=sizes.dim)
        self.attention = RwkvSelfAttention(config)
        own = ("time_decay", "time_first", "time_mix_key", "time_mix_value", "time_mix_receptance")
        for name in own:
            nn.init.constant_(getattr(self.attention, name), 0.5)

    def forward(self, x):
        return self.attention(x)[0]


@peer("funnel", "transformers")
class Funnel(Peer):
    """Up to three stages; with relative positions, which lra's has not."""

    WHOLE = True

    def __init__(self, sizes):
        super().__init__()
        from transformers import FunnelConfig
        from transformers.models.funnel.modeling_funnel import FunnelEncoder

        stages = min(3, sizes.layers)
        config = FunnelConfig(
            block_sizes=[(sizes.layers + stages - 1 - stage) // stages for stage in range(stages)],
            d_model=sizes.dim,
            n_head=sizes.heads,
            d_head=sizes.width,
            d_inner=sizes.mlp,
            hidden_dropout=0.0,
            attention_dropout=0.0,
            activation_dropout=0.0,
            separate_cls=False,
        )
        self.encoder = FunnelEncoder(config)
        for weight in self.encoder.parameters():
            nn.init.normal_(weight, std=0.02)

    def forward(self, x):
        mask = x.new_ones(x.shape[:2])
        return self.encoder(x, attention_mask=mask).last_hidden_state


@peer("transformer_xl", "transformers, XLNet")
class TransformerXl(Peer):
    """Segment after segment, with the memory of the one before."""

    POSITIONS = False
    WHOLE = True

    def __init__(self, sizes):
        super().__init__()
        from transformers import XLNetConfig, XLNetModel

        self.segment = min(math.ceil(sizes.length / 4), 256)
        config = XLNetConfig(
            vocab_size=8,
            d_model=sizes.dim,
            n_layer=sizes.layers,
            n_head=sizes.heads,
            d_inner=sizes.mlp,
            dropout=0.0,
            mem_len=self.segment,
        )
        self.model = XLNetModel(config)

    def forward(self, x):
        states, memory = [], None
        for segment in x.split(self.segment, 1):
            y = self.model(inputs_embeds=segment, mems=memory, use_mems=True)
            memory = y.mems
            states.append(y.last_hidden_state)
        return torch.cat(states, 1)


@peer("mega", "transformers 4.57", older=True)
class Mega(Peer):
    """Both ways in time, without chunks; with kernels as long as the sequence, where lra's end after 1,024 taps."""

    POSITIONS = False
    WHOLE = True

    def __init__(self, sizes):
        super().__init__()
        from transformers.models.deprecated.mega.configuration_mega import MegaConfig
        from transformers.models.deprecated.mega.modeling_mega import MegaModel

        config = MegaConfig(
            vocab_size=8,
            hidden_size=sizes.dim,
            num_hidden_layers=sizes.layers,
            intermediate_size=sizes.mlp,
            nffn_hidden_size=sizes.mlp,
            shared_representation_size=sizes.dim // 2,
            ema_projection_size=16,
            max_positions=sizes.length,
            bidirectional=True,
            normalize_before_mega=False,
            normalize_before_ffn=False,
            dropout_prob=0.0,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        self.model = MegaModel(config, add_pooling_layer=False)

    def forward(self, x):
        return self.model(inputs_embeds=x).last_hidden_state
