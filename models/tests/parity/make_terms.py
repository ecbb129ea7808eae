"""What scores have beside products: T5's and ALiBi's biases, a Gaussian, Shaw's, Transformer-XL's and DeBERTa's relative positions, rotations,
persistent memory; by modules of transformers where there are some, else by torch from the equations."""

import json

import torch
import transformers
from torch.nn import functional as F
from transformers import DebertaConfig, RoFormerConfig, T5Config, Wav2Vec2BertConfig, XLNetConfig
from transformers.models.bloom.modeling_bloom import build_alibi_tensor
from transformers.models.deberta.modeling_deberta import DisentangledSelfAttention, build_relative_position
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention, RoFormerSinusoidalPositionalEmbedding
from transformers.models.t5.modeling_t5 import T5Attention
from transformers.models.wav2vec2_bert.modeling_wav2vec2_bert import Wav2Vec2BertSelfAttention
from transformers.models.xlnet.modeling_xlnet import XLNetRelativeAttention

from case import lengths_mask, merge, normal, projections, split, write

VERSION = f"transformers {transformers.__version__}"
EQUATIONS = f"equations in torch {torch.__version__.split('+')[0]}"
HIDDEN = -1e30


def qkv(params, x, heads):
    return (split(x @ params[f"{name}.weight"].T, heads) for name in ("query", "key", "value"))


def hidden(mask):
    """(B, 1, 1, L) to add to scores."""
    return 0.0 if mask is None else (1 - mask[:, None, None, :]) * HIDDEN


def future(length, causal):
    """(L, L) to add to scores."""
    return torch.ones(length, length).triu(1) * HIDDEN if causal else torch.zeros(length, length)


def distances(length):
    """(L, L), j - i."""
    place = torch.arange(length)
    return place[None, :] - place[:, None]


def biased(heads, bias, mask=None, window=None, causal=False):
    """Attention with bias(params, distances) (H, L, L) added to scores, in a window on either side if there is one."""
    def forward(params, x):
        apart = distances(x.shape[1])
        q, k, v = qkv(params, x, heads)
        scores = bias(params, apart)[None] + hidden(mask) + future(len(apart), causal)
        if window is not None:
            scores = scores + (apart.abs() > window) * HIDDEN
        return merge(F.scaled_dot_product_attention(q, k, v, attn_mask=scores)) @ params["output.weight"].T

    return forward


def t5(dim, heads, width, mask=None, causal=False):
    """Causal, it is the decoder's, all of whose buckets are for keys before the query."""
    config = T5Config(d_model=dim, d_kv=width, num_heads=heads, dropout_rate=0.0, is_decoder=causal)
    module = T5Attention(config, has_relative_attention_bias=True)
    names = {"q": "query", "k": "key", "v": "value", "o": "output"}

    def forward(params, x):
        weights = {f"{theirs}.weight": params[f"{ours}.weight"] for theirs, ours in names.items()}
        weights["relative_attention_bias.weight"] = params["bias.t5"]
        scores = None if mask is None and not causal else hidden(mask) + future(x.shape[1], causal)[None, None]
        return torch.func.functional_call(module, weights, (x,), {"mask": scores})[0]

    return forward


def alibi(heads):
    # The numbers of position 1 are the slopes.
    slopes = build_alibi_tensor(torch.ones(1, 2), heads, torch.float64)[:, 0, 1]
    return lambda params, apart: -slopes[:, None, None] * apart.abs()


def gauss(params, apart):
    width, offset = F.softplus(params["bias.width"]), -F.softplus(params["bias.offset"])
    return -(width[:, None, None] * apart.double() ** 2 + offset[:, None, None]).abs()


def shaw(dim, heads, reach, mask=None, causal=False):
    config = Wav2Vec2BertConfig(hidden_size=dim, num_attention_heads=heads, attention_dropout=0.0,
                                position_embeddings_type="relative_key", left_max_position_embeddings=reach,
                                right_max_position_embeddings=reach)
    module = Wav2Vec2BertSelfAttention(config)
    names = {"linear_q": "query", "linear_k": "key", "linear_v": "value", "linear_out": "output"}

    def forward(params, x):
        weights = {f"{theirs}.weight": params[f"{ours}.weight"] for theirs, ours in names.items()}
        weights |= {f"{theirs}.bias": torch.zeros(dim) for theirs in names}
        weights["distance_embedding.weight"] = params["bias.shaw"]
        scores = None if mask is None and not causal else hidden(mask) + future(x.shape[1], causal)[None, None]
        return torch.func.functional_call(module, weights, (x,), {"attention_mask": scores})[0]

    return forward


def xl(dim, heads, mask=None, causal=False):
    width = dim // heads
    module = XLNetRelativeAttention(XLNetConfig(d_model=dim, n_head=heads, d_head=width, d_inner=dim, dropout=0.0))

    def forward(params, x):
        batch, length, _ = x.shape
        # As XLNetModel.relative_positional_encoding has it, both ways in time.
        rates = 1 / torch.pow(10000, torch.arange(0, dim, 2.0) / dim)
        angles = torch.arange(length, -length, -1.0)[:, None] * rates[None, :]
        r = torch.cat([angles.sin(), angles.cos()], -1)[:, None, :].expand(-1, batch, -1)
        by_head = lambda name: params[name].T.reshape(dim, heads, width)
        head = lambda x, name: torch.einsum("ibh,hnd->ibnd", x, by_head(name))
        x = x.transpose(0, 1)
        attention = None if mask is None else (1 - mask).T[None, :, :, None].expand(length, -1, -1, -1)
        if causal:
            later = torch.ones(length, length).triu(1)[:, :, None, None]
            attention = later if attention is None else torch.maximum(attention, later)
        module.forward = lambda: module.rel_attn_core(head(x, "query.weight"), head(x, "key.weight"), head(x, "value.weight"),
                                                      head(r, "bias.relative"), attn_mask=attention)
        y = torch.func.functional_call(module, {"r_w_bias": params["bias.content"], "r_r_bias": params["bias.position"]}, ())
        return y.transpose(0, 1).reshape(batch, length, dim) @ params["output.weight"].T

    return forward


def deberta(dim, heads, reach, mask=None, paper=False, causal=False):
    """The module's terms; `paper` turns the sign of the distance in its third one, which then is that of key from query as the paper prints it."""
    config = DebertaConfig(hidden_size=dim, num_attention_heads=heads, relative_attention=True, max_relative_positions=reach,
                           pos_att_type=["c2p", "p2c"], hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    module = DisentangledSelfAttention(config).eval()

    def forward(params, x):
        q, k, v = qkv(params, x, heads)
        apart = build_relative_position(x.shape[1], x.shape[1], x.device)
        weights = {"pos_proj.weight": params["bias.key.weight"], "pos_q_proj.weight": params["bias.query.weight"],
                   "pos_q_proj.bias": torch.zeros(dim)}
        q = q / (3 * q.shape[-1]) ** 0.5
        terms = q @ k.transpose(-1, -2)
        for kind, relative in (("c2p", apart), ("p2c", -apart if paper else apart)):
            module.pos_att_type = [kind]
            # Of a table for longer sequences the module takes the rows around its middle.
            beyond = reach - params["bias.deberta"].shape[0] // 2
            table = F.pad(params["bias.deberta"], (0, 0, beyond, beyond), value=1e3)
            module.forward = lambda: module.disentangled_att_bias(q, k, relative, table, 3)
            terms = terms + torch.func.functional_call(module, weights, ())
        return merge(torch.softmax(terms + hidden(mask) + future(x.shape[1], causal), -1) @ v) @ params["output.weight"].T

    return forward


def roformer(dim, heads, mask=None):
    width = dim // heads
    module = RoFormerSelfAttention(RoFormerConfig(hidden_size=dim, num_attention_heads=heads, attention_probs_dropout_prob=0.0))

    def forward(params, x):
        weights = {f"{name}.weight": params[f"{name}.weight"] for name in ("query", "key", "value")}
        weights |= {f"{name}.bias": torch.zeros(dim) for name in ("query", "key", "value")}
        angles = RoFormerSinusoidalPositionalEmbedding(x.shape[1], width).weight.detach().double()
        y = torch.func.functional_call(module, weights, (x,), {
            "attention_mask": None if mask is None else hidden(mask), "sinusoidal_pos": angles[None, None]})
        return y[0] @ params["output.weight"].T

    return forward


def rotated_features(dim, heads, mask):
    """Linear attention's features of rotated queries and keys."""
    def forward(params, x):
        q, k, v = qkv(params, x, heads)
        angles = RoFormerSinusoidalPositionalEmbedding(x.shape[1], dim // heads).weight.detach().double()
        q, k = RoFormerSelfAttention.apply_rotary_position_embeddings(angles[None, None], q, k)
        q, k = F.elu(q) + 1, (F.elu(k) + 1) * mask[:, None, :, None]
        weights = q @ k.transpose(-1, -2)
        return merge(weights @ v / weights.sum(-1, keepdim=True)) @ params["output.weight"].T

    return forward


def remembered(params, k, v, heads, slots):
    width = k.shape[-1]
    of_head = lambda x: x.view(1, slots, heads, width).transpose(1, 2).expand(k.shape[0], -1, -1, -1)
    key, value = of_head(params["memory.key"]) * width**0.5, of_head(params["memory.value"]) * slots**0.5
    return torch.cat([k, key], 2), torch.cat([v, value], 2)


def persistent(heads, slots, mask, window=None):
    def forward(params, x):
        length = x.shape[1]
        q, k, v = qkv(params, x, heads)
        k, v = remembered(params, k, v, heads, slots)
        scores = torch.zeros(1, 1, length, length) + hidden(mask)
        if window is not None:
            scores = scores + (distances(length).abs() > window) * HIDDEN
        scores = F.pad(scores, (0, slots))
        return merge(F.scaled_dot_product_attention(q, k, v, attn_mask=scores)) @ params["output.weight"].T

    return forward


def remembered_features(heads, slots, mask):
    def forward(params, x):
        q, k, v = qkv(params, x, heads)
        k, v = remembered(params, k, v, heads, slots)
        q, k = F.elu(q) + 1, (F.elu(k) + 1) * F.pad(mask, (0, slots), value=1.0)[:, None, :, None]
        weights = q @ k.transpose(-1, -2)
        return merge(weights @ v / weights.sum(-1, keepdim=True)) @ params["output.weight"].T

    return forward


def case(name, block, params, forward, source, shape, heads, mask, mixer="transformer", options=None):
    """`forward` is of the mask, `params` are those beside the projections."""
    seed = sum(name.encode())
    batch, length, dim = shape
    write(f"terms-{name}", mixer=mixer, heads=heads, source=source, options=options, block=json.dumps(block),
          params=projections(seed, dim, dim) | params, x=normal(seed + 20, *shape), forward=forward, mask=mask)


def small(seed, *shape):
    return normal(seed, *shape, scale=0.5)


window = {"block": 3, "neighbours": 1}
mask = lengths_mask([150, 40], 150)
case("t5-1", {"bias": "t5"}, {"bias.t5": normal(1, 32, 2)}, t5(8, 2, 4, mask), f"{VERSION}, T5Attention", (2, 150, 8), 2, mask)
case("t5-2", {"bias": "t5"}, {"bias.t5": normal(2, 32, 3)}, t5(12, 3, 4), f"{VERSION}, T5Attention", (1, 17, 12), 3, None)
mask = lengths_mask([19, 7, 1], 19)
ALIBI = f"{VERSION}, build_alibi_tensor of modeling_bloom both ways in time"
case("alibi-1", {"bias": "alibi"}, {}, biased(4, alibi(4), mask), ALIBI, (3, 19, 16), 4, mask)
case("alibi-2", {"bias": "alibi"}, {}, biased(6, alibi(6)), ALIBI, (2, 70, 12), 6, None)
case("alibi-3", {"bias": "alibi"}, {}, biased(2, alibi(2), mask, 3), ALIBI, (3, 19, 8), 2, mask, "local", window)
case("gauss-1", {"bias": "gauss"}, {"bias.width": normal(3, 2) - 3, "bias.offset": normal(4, 2) - 2}, biased(2, gauss, mask), EQUATIONS, (3, 19, 8), 2,
     mask)
for index, (heads, reach, shape, mask) in enumerate([(2, 4, (3, 19, 8), mask), (3, 16, (1, 80, 12), None)], 1):
    block = {"bias": "shaw", "bias_distance": reach}
    case(f"shaw-{index}", block, {"bias.shaw": small(5, 2 * reach + 1, shape[2] // heads)}, shaw(shape[2], heads, reach, mask),
         f"{VERSION}, Wav2Vec2BertSelfAttention", shape, heads, mask)
    params = {"bias.content": small(6, heads, shape[2] // heads), "bias.position": small(7, heads, shape[2] // heads),
              "bias.relative": small(8, shape[2], shape[2])}
    case(f"xl-{index}", {"bias": "xl"}, params, xl(shape[2], heads, mask), f"{VERSION}, XLNetRelativeAttention", shape, heads, mask)
    params = {"bias.deberta": small(9, 2 * reach, shape[2]), "bias.key.weight": small(10, shape[2], shape[2]),
              "bias.query.weight": small(11, shape[2], shape[2])}
    case(f"deberta-{index}", block | {"bias": "deberta"}, params, deberta(shape[2], heads, reach, mask),
         f"{VERSION}, DisentangledSelfAttention", shape, heads, mask)
    case(f"deberta_paper-{index}", block | {"bias": "deberta_paper"}, params, deberta(shape[2], heads, reach, mask, True),
         f"{VERSION}, DisentangledSelfAttention, changed: relative_pos negated in its third term, as the paper prints it", shape, heads, mask)
# Shorter than the distances that are told apart.
mask = lengths_mask([9, 5], 9)
params = {"bias.deberta": small(9, 2 * 9, 8), "bias.key.weight": small(10, 8, 8), "bias.query.weight": small(11, 8, 8)}
case("deberta-3", {"bias": "deberta", "bias_distance": 16}, params, deberta(8, 2, 16, mask), f"{VERSION}, DisentangledSelfAttention", (2, 9, 8), 2, mask)
mask = lengths_mask([19, 7, 1], 19)
ROFORMER = f"{VERSION}, RoFormerSelfAttention"
case("rotary-1", {"rotary": True}, {}, roformer(16, 2, mask), ROFORMER, (3, 19, 16), 2, mask)
case("rotary-2", {"rotary": True}, {}, roformer(12, 3), ROFORMER, (1, 90, 12), 3, None)
case("rotary-3", {"rotary": True}, {}, rotated_features(8, 2, mask), f"{VERSION}, RoFormerSelfAttention.apply_rotary_position_embeddings",
     (3, 19, 8), 2, mask, "linear")
memory = {"memory.key": small(12, 5, 8), "memory.value": small(13, 5, 8)}
case("memory-1", {"memory": 5}, memory, persistent(2, 5, mask), EQUATIONS, (3, 19, 8), 2, mask)
case("memory-2", {"memory": 5}, memory, persistent(2, 5, mask, 3), EQUATIONS, (3, 19, 8), 2, mask, "local", window)
case("memory-3", {"memory": 5}, memory, remembered_features(2, 5, mask), EQUATIONS, (3, 19, 8), 2, mask, "linear")

# Causal, with what looks ahead left out of every term.
for index, (heads, reach, shape, lengths) in enumerate([(2, 4, (3, 19, 8), [19, 7, 1]), (3, 100, (2, 70, 12), [70, 33])], 1):
    mask, dim, causal = lengths_mask(lengths, shape[1]), shape[2], {"attention": "causal"}
    most = min(reach, shape[1] - 1)
    case(f"t5-causal-{index}", {"bias": "t5"}, {"bias.t5": normal(20 + index, 32, heads)}, t5(dim, heads, dim // heads, mask, True),
         f"{VERSION}, T5Attention of a decoder", shape, heads, mask, options=causal)
    case(f"alibi-causal-{index}", {"bias": "alibi"}, {}, biased(heads, alibi(heads), mask, causal=True), ALIBI, shape, heads, mask, options=causal)
    case(f"gauss-causal-{index}", {"bias": "gauss"}, {"bias.width": normal(3, heads) - 3, "bias.offset": normal(4, heads) - 2},
         biased(heads, gauss, mask, causal=True), EQUATIONS, shape, heads, mask, options=causal)
    case(f"shaw-causal-{index}", {"bias": "shaw", "bias_distance": most}, {"bias.shaw": small(5, 2 * most + 1, dim // heads)},
         shaw(dim, heads, most, mask, True), f"{VERSION}, Wav2Vec2BertSelfAttention", shape, heads, mask, options=causal)
    params = {"bias.content": small(6, heads, dim // heads), "bias.position": small(7, heads, dim // heads), "bias.relative": small(8, dim, dim)}
    case(f"xl-causal-{index}", {"bias": "xl"}, params, xl(dim, heads, mask, True), f"{VERSION}, XLNetRelativeAttention", shape, heads, mask,
         options=causal)
    most = min(reach, shape[1])
    params = {"bias.deberta": small(9, 2 * most, dim), "bias.key.weight": small(10, dim, dim), "bias.query.weight": small(11, dim, dim)}
    case(f"deberta-causal-{index}", {"bias": "deberta", "bias_distance": reach}, params, deberta(dim, heads, reach, mask, causal=True),
         f"{VERSION}, DisentangledSelfAttention", shape, heads, mask, options=causal)
