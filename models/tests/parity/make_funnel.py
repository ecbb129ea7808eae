"""Funnel-Transformer: FunnelEncoder of transformers without its relative positions, whose parameters are zeros.

Real lengths are such that no pair has a real and a padded position: there the module's means take padding in. Its scores pass through float32.
"""

import torch
from transformers import FunnelConfig
from transformers.models.funnel.modeling_funnel import FunnelEncoder

from case import lengths_mask, normal, write_encoder

SOURCE = "transformers 4.40.2, FunnelEncoder"
DIM, HEADS, HIDDEN = 8, 2, 12


def parameters(seed, layers):
    params = {}
    for layer in range(layers):
        at = 1000 * seed + 100 * layer
        for index, name in enumerate(("query", "key", "value", "output")):
            params[f"{layer}.mixer.{name}.weight"] = normal(at + index, DIM, DIM, scale=DIM**-0.5)
        params[f"{layer}.feed.inner.weight"] = normal(at + 10, HIDDEN, DIM, scale=DIM**-0.5)
        params[f"{layer}.feed.inner.bias"] = normal(at + 11, HIDDEN, scale=0.3)
        params[f"{layer}.feed.outer.weight"] = normal(at + 12, DIM, HIDDEN, scale=HIDDEN**-0.5)
        params[f"{layer}.feed.outer.bias"] = normal(at + 13, DIM, scale=0.3)
        for index, half in enumerate(("mixer", "feed")):
            params[f"{layer}.{half}_norm.scale"] = 1 + normal(at + 20 + index, DIM, scale=0.3)
            params[f"{layer}.{half}_norm.shift"] = normal(at + 30 + index, DIM, scale=0.3)
    return params


NAMES = {
    "attention.q_head.weight": "mixer.query.weight",
    "attention.k_head.weight": "mixer.key.weight",
    "attention.v_head.weight": "mixer.value.weight",
    "attention.post_proj.weight": "mixer.output.weight",
    "attention.layer_norm.weight": "mixer_norm.scale",
    "attention.layer_norm.bias": "mixer_norm.shift",
    "ffn.linear_1.weight": "feed.inner.weight",
    "ffn.linear_1.bias": "feed.inner.bias",
    "ffn.linear_2.weight": "feed.outer.weight",
    "ffn.linear_2.bias": "feed.outer.bias",
    "ffn.layer_norm.weight": "feed_norm.scale",
    "ffn.layer_norm.bias": "feed_norm.shift",
}


def case(index, batch, length, stages, cls, lengths=None):
    config = FunnelConfig(
        block_sizes=stages, d_model=DIM, n_head=HEADS, d_head=DIM // HEADS, d_inner=HIDDEN, hidden_act="gelu_new", layer_norm_eps=1e-6,
        separate_cls=cls, truncate_seq=False, pool_q_only=True, hidden_dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    encoder = FunnelEncoder(config)
    mask = None if lengths is None else lengths_mask(lengths, length)
    places = [f"blocks.{stage}.{layer}" for stage, size in enumerate(stages) for layer in range(size)]

    def forward(params, x):
        theirs = {name: torch.zeros_like(value) for name, value in encoder.named_parameters()}
        for layer, place in enumerate(places):
            theirs.update({f"{place}.{name}": params[f"{layer}.{ours}"] for name, ours in NAMES.items()})
        real = torch.ones(x.shape[:2]) if mask is None else mask
        hidden = torch.func.functional_call(encoder, theirs, (x, real)).last_hidden_state
        for _ in stages[1:]:
            real = encoder.attention_structure.pool_tensor(real, mode="min")
        return hidden, None if mask is None else real, {}

    sizes = {"layers": sum(stages), "dim": DIM, "qkv_dim": DIM, "heads": HEADS, "mlp_dim": HIDDEN}
    write_encoder(f"funnel-{index}", mixer="funnel", source=SOURCE, options={"block": sizes, "model": {"stages": len(stages)}},
                  params=parameters(index, sum(stages)), x=normal(index, batch, length, DIM), mask=mask, forward=forward, cls=cls)


case(1, 2, 16, [1, 1], cls=True)
case(2, 4, 17, [1, 1, 1], cls=True, lengths=[17, 9, 5, 1])
case(3, 2, 19, [2, 1, 1], cls=False)
case(4, 3, 16, [1, 1], cls=False, lengths=[16, 8, 2])
