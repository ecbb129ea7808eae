//! Values of settings, as public configurations call them.

use super::{Alias, near, same};

/// Words that settings can have as values.
pub(in crate::suggest) const WORDS: &[Alias] = &[
    // block.norm
    same(
        &["layer"],
        &["layernorm", "layer-normalization", "ln", "nn.LayerNorm"],
    ),
    same(&["rms"], &["rmsnorm", "rms-normalization", "t5-norm"]),
    same(&["scale"], &["scalenorm"]),
    same(&["ada"], &["adanorm"]),
    same(&["power"], &["powernorm"]),
    same(
        &["batch"],
        &["batchnorm", "bn", "batchnorm1d", "batch-normalization"],
    ),
    same(&["batch_masked"], &["masked-batchnorm"]),
    same(
        &["none"],
        &["no", "off", "null", "false", "disabled", "nothing"],
    ),
    // block.norm_place
    same(&["pre"], &["prenorm", "pre-ln", "norm-first", "before"]),
    same(&["post"], &["postnorm", "post-ln", "after"]),
    // block.activation
    near(
        &["gelu"],
        &[
            "gelu_new",
            "gelu-tanh",
            "gelu-fast",
            "gelu_pytorch_tanh",
            "gelu-accurate",
        ],
        "its tanh form; gelu_erf is the exact one",
    ),
    same(&["gelu_erf"], &["gelu-exact", "gelu-python", "nn.GELU"]),
    same(&["relu"], &["nn.ReLU", "rectifier"]),
    same(&["silu"], &["swish", "nn.SiLU"]),
    same(
        &["relu_squared"],
        &["relu2", "squared-relu", "laplace-relu2"],
    ),
    // block.ffn, block.gate
    same(&["dense"], &["ffn", "mlp", "feed-forward"]),
    same(&["moe"], &["gshard", "mixture-of-experts"]),
    same(&["product_keys"], &["pkm", "product-key-memory"]),
    near(
        &["glu"],
        &["geglu", "swiglu", "reglu"],
        "with block.activation = gelu for GEGLU, silu for SwiGLU, relu for ReGLU",
    ),
    // train.optimizer
    near(
        &["adamw"],
        &[
            "adam",
            "adam-w",
            "optim.AdamW",
            "torch.optim.Adam",
            "fused-adam",
        ],
        "Adam with decoupled weight decay; with train.weight_decay = 0 it is Adam",
    ),
    // train.schedule
    same(&["constant"], &["fixed", "constant-with-warmup"]),
    near(
        &["constant"],
        &["plateau", "reduce-on-plateau", "ReduceLROnPlateau"],
        "no schedule lowers the rate when the score no longer rises",
    ),
    same(
        &["rsqrt"],
        &[
            "inverse-sqrt",
            "inverse-square-root",
            "rsqrt-decay",
            "rsqrt-normalized-decay",
            "noam",
        ],
    ),
    same(
        &["cosine"],
        &[
            "cosine-warmup",
            "cosine-annealing",
            "cosine-anneal",
            "cosine-decay",
            "cosine-with-warmup",
            "linear-warmup-cosine",
        ],
    ),
    same(
        &["linear"],
        &[
            "linear-decay",
            "linear-with-warmup",
            "polynomial",
            "polynomial-decay",
        ],
    ),
    same(&["one_cycle"], &["1cycle", "onecyclelr"]),
    // train.precision
    same(&["f32"], &["fp32", "float32", "float", "32", "full"]),
    same(&["bf16"], &["bfloat16", "bf16-mixed"]),
    near(
        &["bf16"],
        &[
            "fp16", "f16", "float16", "16", "16-mixed", "half", "amp", "mixed",
        ],
        "there is no fp16",
    ),
    same(&["tf32"], &["tensor-float-32"]),
    // head.pooling
    same(&["cls"], &["cls-token", "token", "bos"]),
    same(
        &["mean"],
        &[
            "avg",
            "average",
            "mp",
            "mean-pooling",
            "global-average",
            "gap",
        ],
    ),
    same(&["max"], &["max-pooling", "maximum"]),
    same(&["attention"], &["attention-pooling", "pma"]),
    // embed.positions
    same(
        &["sinusoid"],
        &["sinusoidal", "sin", "sine", "sincos", "sinusoids"],
    ),
    near(
        &["learned", "sinusoid"],
        &["absolute", "absolute-positions", "ape"],
        "absolute positions are learned in BERT's code, sinusoids in the first Transformer",
    ),
    same(&["learned"], &["learnable", "trainable", "embedding"]),
    same(&["conditional"], &["cpe", "convolutional"]),
    // block.residual
    same(&["plain"], &["residual", "standard", "add"]),
    same(&["reversible"], &["revnet"]),
    same(&["gru"], &["gate", "gated"]),
    // block.bias
    same(&["t5"], &["t5-bias", "relative", "bucketed"]),
    // train.select, pretrain.kind
    same(&["best"], &["best-val", "validation"]),
    same(&["last"], &["final", "end"]),
    same(&["masked"], &["mlm", "masked-lm", "bert"]),
    same(
        &["next"],
        &["clm", "lm", "causal-lm", "autoregressive", "next-token"],
    ),
    // train.decay
    same(&["all"], &["everything", "every"]),
    same(&["matrices"], &["weights", "no-bias", "kernels"]),
];
