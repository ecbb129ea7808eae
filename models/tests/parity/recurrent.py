"""Segments with memory by modules of transformers, as Transformer-XL's authors run them: segment after segment, each layer's inputs kept for the next."""

from unittest import mock

import torch
import transformers
from torch.func import functional_call
from transformers import XLNetConfig
from transformers.models.deprecated.transfo_xl.modeling_transfo_xl import RelPartialLearnableDecoderLayer
from transformers.models.xlnet.modeling_xlnet import XLNetLayer

from case import normal

VERSION = f"transformers {transformers.__version__}"


def stack_parameters(seed, layers, dim, heads, hidden, tied=True, width=None):
    width = width or dim
    params, at = {}, iter(range(1000 * seed, 1000 * seed + 1000))
    small = lambda *shape: normal(next(at), *shape, scale=0.5)
    if tied:
        params["bias.content"], params["bias.position"] = small(heads, width // heads), small(heads, width // heads)
    for layer in range(layers):
        for name in ("query", "key", "value"):
            params[f"{layer}.mixer.{name}.weight"] = normal(next(at), width, dim, scale=dim**-0.5)
        params[f"{layer}.mixer.output.weight"] = normal(next(at), dim, width, scale=width**-0.5)
        params[f"{layer}.mixer.bias.relative"] = small(width, dim)
        if not tied:
            params[f"{layer}.mixer.bias.content"], params[f"{layer}.mixer.bias.position"] = small(heads, width // heads), small(heads, width // heads)
        params[f"{layer}.feed.inner.weight"], params[f"{layer}.feed.inner.bias"] = normal(next(at), hidden, dim, scale=dim**-0.5), small(hidden)
        params[f"{layer}.feed.outer.weight"], params[f"{layer}.feed.outer.bias"] = normal(next(at), dim, hidden, scale=hidden**-0.5), small(dim)
        for half in ("mixer", "feed"):
            params[f"{layer}.{half}_norm.scale"], params[f"{layer}.{half}_norm.shift"] = 1 + small(dim), small(dim)
    return params


def bias(params, layer, name):
    return params.get(f"{layer}.mixer.bias.{name}", params.get(f"bias.{name}"))


def both_ways(params, layer, h, memory, hidden, dim, heads):
    """One XLNetLayer: h (S, B, D) with memory (M, B, D); hidden (S, M + S, B), 1 for pairs that do not see each other."""
    inner = params[f"{layer}.feed.inner.weight"].shape[0]
    module = XLNetLayer(XLNetConfig(d_model=dim, n_head=heads, d_inner=inner, ff_activation="gelu_new", dropout=0.0, layer_norm_eps=1e-6))
    width = dim // heads
    by_head = lambda name: params[f"{layer}.mixer.{name}.weight"].T.reshape(dim, heads, width)
    keys, queries = len(memory) + len(h), len(h)
    # As XLNetModel.relative_positional_encoding has it, both ways in time.
    rates = 1 / torch.pow(10000, torch.arange(0, dim, 2.0) / dim)
    angles = torch.arange(keys, -queries, -1.0)[:, None] * rates[None, :]
    r = torch.cat([angles.sin(), angles.cos()], -1)[:, None, :].expand(-1, h.shape[1], -1)
    theirs = {f"rel_attn.{name}": by_head(ours) for name, ours in (("q", "query"), ("k", "key"), ("v", "value"))}
    theirs["rel_attn.o"] = params[f"{layer}.mixer.output.weight"].reshape(dim, heads, width)
    theirs["rel_attn.r"] = params[f"{layer}.mixer.bias.relative"].T.reshape(dim, heads, width)
    theirs["rel_attn.r_w_bias"], theirs["rel_attn.r_r_bias"] = bias(params, layer, "content"), bias(params, layer, "position")
    for name, ours in (("rel_attn.layer_norm", "mixer_norm"), ("ff.layer_norm", "feed_norm")):
        theirs |= {f"{name}.weight": params[f"{layer}.{ours}.scale"], f"{name}.bias": params[f"{layer}.{ours}.shift"]}
    for name, ours in (("layer_1", "inner"), ("layer_2", "outer")):
        theirs |= {f"ff.{name}.{kind}": params[f"{layer}.feed.{ours}.{kind}"] for kind in ("weight", "bias")}
    return functional_call(module, theirs, (h, None, hidden[..., None].double(), None, r, None), {"mems": memory})[0]


def forward_in_time(params, layer, h, memory, hidden, dim, heads):
    """One layer of the deprecated TransfoXL, which is causal, without its detour through float32."""
    inner, width = params[f"{layer}.feed.inner.weight"].shape[0], params[f"{layer}.mixer.query.weight"].shape[0]
    module = RelPartialLearnableDecoderLayer(heads, dim, width // heads, inner, 0.0, layer_norm_epsilon=1e-6)
    keys, queries = len(memory) + len(h), len(h)
    rates = 1 / torch.pow(10000, torch.arange(0, dim, 2.0) / dim)
    angles = torch.arange(keys - 1, -1, -1.0)[:, None] * rates[None, :]
    r = torch.cat([angles.sin(), angles.cos()], -1)[:, None, :]
    later = torch.ones(queries, keys).triu(1 + len(memory))[..., None]
    theirs = {
        "dec_attn.qkv_net.weight": torch.cat([params[f"{layer}.mixer.{name}.weight"] for name in ("query", "key", "value")]),
        "dec_attn.o_net.weight": params[f"{layer}.mixer.output.weight"],
        "dec_attn.r_net.weight": params[f"{layer}.mixer.bias.relative"],
        "dec_attn.r_w_bias": bias(params, layer, "content"),
        "dec_attn.r_r_bias": bias(params, layer, "position"),
    }
    for name, ours in (("dec_attn.layer_norm", "mixer_norm"), ("pos_ff.layer_norm", "feed_norm")):
        theirs |= {f"{name}.weight": params[f"{layer}.{ours}.scale"], f"{name}.bias": params[f"{layer}.{ours}.shift"]}
    for name, ours in (("0", "inner"), ("3", "outer")):
        theirs |= {f"pos_ff.CoreNet.{name}.{kind}": params[f"{layer}.feed.{ours}.{kind}"] for kind in ("weight", "bias")}
    with mock.patch.object(torch.Tensor, "float", torch.Tensor.double):
        return functional_call(module, theirs, (h, r), {"dec_attn_mask": torch.maximum(later, hidden), "mems": memory})[0]


def run(layer_of, params, x, real, layers, segment, memory, detach, *sizes):
    """x (B, L, D), real (B, L): hidden states of all segments."""
    x, real = x.transpose(0, 1), real.T
    kept, kept_real = [x[:0]] * layers, real[:0]
    states = []
    for h, seen in zip(x.split(segment), real.split(segment)):
        keys_real = torch.cat([kept_real, seen])
        hidden = (1 - keys_real)[None].expand(len(h), -1, -1)
        for layer in range(layers):
            before, inputs = kept[layer], torch.cat([kept[layer], h])
            kept[layer] = inputs[max(0, len(inputs) - memory) :]
            if detach:
                kept[layer] = kept[layer].detach()
            h = layer_of(params, layer, h, before, hidden, *sizes)
        kept_real = keys_real[max(0, len(keys_real) - memory) :]
        states.append(h)
    return torch.cat(states).transpose(0, 1)
