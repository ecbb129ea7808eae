"""The 2021 variants: the attention layers of the benchmark's own code, run under JAX and the Flax that it was written for, in float32 as it was.

Run by make.sh in an environment of its own (requirements-tay2021.txt), with google-research/long-range-arena on the path. Two old names of JAX are
given back first: `custom_transforms`, by which the Reformer's permutations had gradients of their own (the same as those that JAX finds), and `tie_in`.
"""

import json
import math
import os

import jax
import jax.numpy as jnp
import numpy as np
from safetensors.numpy import save as serialize

import file

import jax._src.numpy.lax_numpy as lax_numpy

lax_numpy.isin = jnp.isin
jax.lax.tie_in = lambda _, value: value
jax.custom_transforms = lambda function: function
jax.defvjp_all = lambda function, rule: None

from flax.deprecated import nn
from lra_benchmarks.models.bigbird import bigbird_attention
from lra_benchmarks.models.linear_transformer import linear_attention
from lra_benchmarks.models.linformer import linformer_attention
from lra_benchmarks.models.local import local_attention
from lra_benchmarks.models.longformer import longformer_attention
from lra_benchmarks.models.performer import performer_attention
from lra_benchmarks.models.reformer import reformer_attention
from lra_benchmarks.models.sinkhorn_transformer import sinkhorn_attention
from lra_benchmarks.models.sparse_transformer import sparse_attention
from lra_benchmarks.models.synthesizer import synthesizer_attention

# What a case's package is not as it was published in.
CHANGED = {
    "ReformerAttention": ", changed: custom_transforms and tie_in, which JAX has dropped, are identities",
    "make_fast_softmax_attention": ", changed: its random features are the case's",
}
SOURCE = "google-research/long-range-arena " + os.environ.get("LRA_2021_COMMIT", "(commit unknown)")
jax.config.update("jax_default_matmul_precision", "highest")


def normal(seed, *shape, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float32)


def projections(seed, dim, qkv_dim, names=("query", "key", "value"), output=True):
    """The linear maps by our paths, weights (outputs, inputs)."""
    params = {f"{name}.weight": normal(seed + at, qkv_dim, dim, scale=dim**-0.5) for at, name in enumerate(names)}
    if output:
        params["output.weight"] = normal(seed + 9, dim, qkv_dim, scale=qkv_dim**-0.5)
    return params


def kernel(weight, heads):
    """(H E, D) to what `DenseGeneral` calls a kernel, (D, H, E)."""
    return weight.T.reshape(weight.shape[1], heads, -1)


def dense(params, heads, names=None):
    """Projections as the 2021 code keeps them; `names`: its name -> ours."""
    names = names or {"query": "query", "key": "key", "value": "value", "out": "output"}
    theirs = {}
    for name, ours in names.items():
        weight = params[f"{ours}.weight"]
        theirs[name] = {"kernel": weight.T.reshape(heads, -1, weight.shape[0]) if name == "out" else kernel(weight, heads)}
    return theirs


def write(name, mixer, *, heads, params, x, forward, options=None, lengths=None, draws=None, **metadata):
    """One case: y = forward(params, x, mask), mask (B, L, 1) or None, and the gradients of sum(y * seed)."""
    batch, length, _ = x.shape
    mask = None
    if lengths is not None:
        mask = np.arange(length)[None, :] < np.array(lengths)[:, None]
    y, pull = jax.vjp(lambda params, x: forward(params, x, None if mask is None else jnp.array(mask[..., None])), params, x)
    seed = normal(7, *y.shape)
    tensors = {"in/x": x}
    y = np.array(y)
    if mask is not None:
        seed, y = (np.where(mask[..., None], value, np.float32(0)) for value in (seed, y))
        tensors["in/mask"] = mask.astype(np.float32)
    gradients, dx = pull(jnp.array(seed))
    tensors |= {"out/y": y, "out/seed": seed, "grad/x": dx}
    for path, value in params.items():
        tensors |= {f"param/{path}": value, f"grad/param/{path}": gradients[path]}
    for draw, value in (draws or {}).items():
        tensors[f"draw/{draw}"] = value
    layer = forward.__qualname__.split(".")[0]
    metadata |= {"mixer": mixer, "heads": heads, "source": f"{SOURCE}, {layer}{CHANGED.get(layer, '')}", "atol": 2e-5, "rtol": 2e-4}
    metadata["options"] = json.dumps({"variant": "tay2021"} | (options or {}))
    tensors = {key: np.ascontiguousarray(value) for key, value in tensors.items()}
    file.write(f"tay2021-{name}", serialize, tensors, metadata)


def wide(params):
    """`qkv_features`."""
    return params["value.weight"].shape[0]


def ones(x, mask):
    """Some layers cannot do without a mask."""
    return jnp.ones((*x.shape[:2], 1), bool) if mask is None else mask


def LocalAttention(heads, block):
    def forward(params, x, mask):
        layer = local_attention.LocalSelfAttention.partial(num_heads=heads, block_size=block, bias=False, deterministic=True)
        return layer.call(dense(params, heads), x, qkv_features=wide(params), padding_mask=ones(x, mask))
    return forward


def SinkhornAttention(heads, block, blocks):
    def forward(params, x, mask):
        layer = sinkhorn_attention.SinkhornSelfAttention.partial(num_heads=heads, block_size=block, max_num_blocks=blocks, bias=False, deterministic=True)
        width = params["query.weight"].shape[0] // heads
        # The sorting network has no effect: any weights do.
        sorting = {"DenseGeneral_0": {"kernel": normal(99, width, blocks)}}
        return layer.call(dense(params, heads) | sorting, x, qkv_features=wide(params), padding_mask=mask)
    return forward


def ReformerAttention(heads):
    def forward(params, x, mask):
        layer = reformer_attention.ReformerSelfAttention.partial(num_heads=heads, bias=False, deterministic=True)
        return layer.call(dense(params, heads, {"query": "query", "value": "value"}), x, padding_mask=mask)
    return forward


def make_fast_softmax_attention(heads, directions):
    def forward(params, x, mask):
        width = params["query.weight"].shape[0] // heads
        draw = performer_attention.FastAttentionviaLowRankDecomposition.draw_weights
        performer_attention.FastAttentionviaLowRankDecomposition.draw_weights = lambda self, key: jnp.array(directions)
        try:
            attention = performer_attention.make_fast_softmax_attention(width, ortho_scaling=0.0, nb_features=len(directions), unidirectional=False)
            return self_attention(params, heads, x, mask, attention)
        finally:
            performer_attention.FastAttentionviaLowRankDecomposition.draw_weights = draw
    return forward


def make_fast_generalized_attention(heads):
    def forward(params, x, mask):
        width = params["query.weight"].shape[0] // heads
        return self_attention(params, heads, x, mask, performer_attention.make_fast_generalized_attention(width, unidirectional=False))
    return forward


def self_attention(params, heads, x, mask, attention):
    layer = nn.SelfAttention.partial(num_heads=heads, attention_axis=(1,), bias=False, deterministic=True, attention_fn=attention)
    return layer.call(dense(params, heads), x, qkv_features=wide(params), padding_mask=mask)


def rotations(width):
    """The constant rotation of the Reformer, (E, 1, 5): ten buckets, one round."""
    with nn.stochastic(jax.random.PRNGKey(0)):
        return np.array(jax.random.normal(nn.make_rng(), (width, 1, 5)))


def LinearAttention(heads):
    def forward(params, x, mask):
        layer = linear_attention.LinearSelfAttention.partial(num_heads=heads, bias=False, deterministic=True)
        return layer.call(dense(params, heads), x, qkv_features=wide(params), padding_mask=mask)
    return forward


def LinformerAttention(heads, rank, longest):
    def forward(params, x, mask):
        layer = linformer_attention.LinformerSelfAttention.partial(num_heads=heads, low_rank_features=rank, max_len=longest, bias=False, deterministic=True)
        return layer.call(dense(params, heads) | {"lr_kernel": params["length.key"][0]}, x, qkv_features=wide(params), padding_mask=mask)
    return forward


def SynthesizerAttention(heads, mode, longest, dot_product=True, rank=32):
    def forward(params, x, mask):
        layer = synthesizer_attention.SynthesizerSelfAttention.partial(
            num_heads=heads, max_length=longest, ignore_dot_product=not dot_product, synthesizer_mode=mode, k=rank, bias=False, deterministic=True)
        names = {"query": "query", "key": "key"} if dot_product else {}
        theirs = dense(params, heads, names | {"value": "value", "out": "output"})
        if mode == "random":
            theirs["random"] = params["scores.random"]
        else:
            theirs |= {"random1": params["scores.left"], "random2": params["scores.right"].transpose(0, 2, 1)}
        return layer.call(theirs, x, qkv_features=wide(params), padding_mask=mask)
    return forward


def LongformerAttention(heads, window):
    def forward(params, x, mask):
        layer = longformer_attention.LongformerSelfAttention.partial(num_heads=heads, sliding_window_size=window, bias=False, deterministic=True)
        names = {f"{name}_sliding_window": name for name in ("query", "key", "value")}
        # Computed and thrown away: any weights do.
        names |= {f"{name}_global": name for name in ("query", "key", "value")}
        return layer.call(dense(params, heads, names | {"out": "output"}), x, qkv_features=wide(params), padding_mask=mask)
    return forward


def SparseAttention(heads, block, summary, first):
    def forward(params, x, mask):
        patterns = [sparse_attention.Fixed1Pattern(block_size=block), sparse_attention.Fixed2Pattern(block_size=block, c=summary)]
        layer = sparse_attention.SparseSelfAttention.partial(num_heads=heads, attention_patterns=patterns, use_cls_token=first, bias=False, deterministic=True)
        return layer.call(dense(params, heads), x, qkv_features=wide(params), padding_mask=mask)
    return forward


def BigBirdAttention(heads, block, random, connectivity):
    def forward(params, x, mask):
        layer = bigbird_attention.BigBirdSelfAttention.partial(
            num_heads=heads, block_size=block, num_rand_blocks=random, connectivity_seed=connectivity, bias=False, deterministic=True)
        return layer.call(dense(params, heads), x, qkv_features=wide(params), padding_mask=ones(x, mask))
    return forward


def bigbird_blocks(heads, block, random, connectivity, length):
    """The random blocks that the layer draws from NumPy, (H, N - 2, r)."""
    full = length + block - length % block
    np.random.seed(connectivity)
    draw = lambda: bigbird_attention.get_block_rand_mask(full, full, block, block, random, last_idx=min(full, 1024))
    return np.stack([draw() for _ in range(heads)]).astype(np.uint8)


def cases():
    """A few of each layer, most with padding: what the mask hides, and how, is where the code of 2021 is its own."""

    def case(name, mixer, heads, shape, seed, *, lengths=None, names=("query", "key", "value"), output=True, more=None, **rest):
        dim = shape[-1]
        params = projections(seed, dim, dim, names, output) | (more or {})
        write(name, mixer, heads=heads, params=params, x=normal(seed + 50, *shape), lengths=lengths, **rest)

    case("local-1", "local", 2, (2, 23, 8), 10, lengths=[23, 9], forward=LocalAttention(2, 5), options={"block": 5})
    case("local-2", "local", 1, (2, 16, 8), 20, lengths=[6, 5], forward=LocalAttention(1, 4), options={"block": 4})
    case("local-3", "local", 4, (1, 13, 8), 30, forward=LocalAttention(4, 4), options={"block": 4})
    case("sinkhorn-1", "sinkhorn", 2, (2, 24, 8), 40, lengths=[24, 12], forward=SinkhornAttention(2, 4, 25), options={"block": 4})
    case("sinkhorn-2", "sinkhorn", 1, (2, 15, 8), 50, lengths=[4, 7], forward=SinkhornAttention(1, 5, 25), options={"block": 5})
    case("sinkhorn-3", "sinkhorn", 4, (1, 12, 8), 60, forward=SinkhornAttention(4, 3, 25), options={"block": 3})
    for at, (heads, shape, lengths) in enumerate([(2, (2, 23, 8), [23, 9]), (3, (1, 37, 12), None), (4, (2, 20, 8), [20, 3])], 1):
        case(f"reformer-{at}", "reformer", heads, shape, 60 + 10 * at, lengths=lengths, names=("query", "value"), output=False,
             forward=ReformerAttention(heads), draws={"rotations": rotations(shape[-1] // heads)})
    for at, (heads, features, lengths) in enumerate([(2, 2, [17, 8]), (4, 9, None)], 1):
        w = normal(100 + at, features, 8 // heads)
        case(f"performer-{at}", "performer", heads, (2, 17, 8), 100 + 10 * at, lengths=lengths, draws={"directions": w},
             options={"kernel": "favor", "features": features}, forward=make_fast_softmax_attention(heads, w))
    case("performer-3", "performer", 2, (2, 17, 8), 130, lengths=[17, 8], forward=make_fast_generalized_attention(2))
    case("linear", "linear", 2, (2, 17, 8), 140, lengths=[17, 8], forward=LinearAttention(2))
    case("linformer", "linformer", 2, (2, 17, 8), 150, lengths=[17, 8], more={"length.key": normal(151, 1, 19, 4)}, options={"rank": 4}, max_length=19,
         forward=LinformerAttention(2, 4, 19))
    case("synthesizer-1", "synthesizer", 2, (2, 11, 8), 160, lengths=[11, 5], more={"scores.random": normal(161, 2, 13, 13)}, max_length=13,
         forward=SynthesizerAttention(2, "random", 13))
    factors = {f"scores.{name}": normal(171 + at, 2, 13, 3) for at, name in enumerate(("left", "right"))}
    case("synthesizer-2", "synthesizer", 2, (2, 11, 8), 170, lengths=[11, 5], more=factors, max_length=13,
         options={"scores": "factorised_random", "rank": 3}, forward=SynthesizerAttention(2, "factorized_random", 13, rank=3))
    case("longformer", "longformer", 2, (2, 19, 8), 180, lengths=[19, 8], forward=LongformerAttention(2, 6), options={"window": 6})
    for at, first in enumerate((False, True), 1):
        case(f"sparse-{at}", "sparse", 2, (2, 19, 8), 180 + 10 * at, lengths=[19, 8], forward=SparseAttention(2, 5, 2, first),
             options={"block": 5, "summary": 2, "first": first})
    case("bigbird", "bigbird", 2, (2, 25, 8), 210, lengths=[25, 14], forward=BigBirdAttention(2, 3, 1, 5), options={"block": 3, "random": 1},
         draws={"blocks": bigbird_blocks(2, 3, 1, 5, 25)})


if __name__ == "__main__":
    cases()
