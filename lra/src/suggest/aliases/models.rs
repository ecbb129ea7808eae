//! Models, as public code bases and papers call them.

use super::{Alias, near, same};

/// Models.
pub(in crate::suggest) const MODELS: &[Alias] = &[
    same(
        &["transformer"],
        &[
            "softmax",
            "softmax-attention",
            "vanilla",
            "vanila",
            "vanilla-transformer",
            "vanila-transformer",
            "standard",
            "attention",
            "self-attention",
            "full-attention",
            "mha",
            "multi-head-attention",
            "transformer-encoder",
            "transformer-softmax",
            "sdpa",
            "bert",
        ],
    ),
    near(
        &["transformer"],
        &["flash-attention", "flash-attn", "flashattention2"],
        "FlashAttention computes softmax attention exactly, and so does transformer; flash is another model",
    ),
    same(
        &["local"],
        &[
            "local-attention",
            "local-transformer",
            "block-local",
            "window-attention",
        ],
    ),
    near(
        &["local"],
        &["sliding-window"],
        "local has blocks, longformer a window that slides",
    ),
    same(&["sparse"], &["sparse-transformer", "sparse-attention"]),
    same(&["longformer"], &["longformer-attention"]),
    same(&["linformer"], &["linformer-attention"]),
    same(&["reformer"], &["lsh", "lsh-attention", "lsh-transformer"]),
    same(
        &["sinkhorn"],
        &["sinkhorn-transformer", "sinkhorn-attention"],
    ),
    same(
        &["synthesizer"],
        &[
            "synthesiser",
            "dense-synthesizer",
            "random-synthesizer",
            "synthesizer-attention",
        ],
    ),
    same(
        &["bigbird"],
        &["big-bird", "bigbird-attention", "big-bird-transformer"],
    ),
    same(
        &["linear"],
        &[
            "linear-transformer",
            "linear-attention",
            "linear-trans",
            "linear-elu",
            "linearized-attention",
        ],
    ),
    same(
        &["performer"],
        &[
            "favor",
            "favor-plus",
            "fast-attention",
            "performer-fast",
            "performer-relu",
            "performer-softmax",
            "performer-attention",
            "performer-pytorch",
        ],
    ),
    same(
        &["nystromformer"],
        &[
            "nystrom",
            "nystrom-attention",
            "nystroformer",
            "nystrom-transformer",
            "nyströmformer",
            "nyström",
        ],
    ),
    same(
        &["long_short"],
        &[
            "transformer-ls",
            "long-short-transformer",
            "lstransformer",
            "ls-attention",
        ],
    ),
    same(&["rfa"], &["random-feature-attention", "rf-attention"]),
    same(
        &["fnet"],
        &["fourier", "fourier-transformer", "fourier-net"],
    ),
    same(&["mlp_mixer"], &["mixer", "mlp"]),
    same(&["gmlp"], &["gated-mlp", "g-mlp"]),
    same(
        &["xcit"],
        &["xca", "cross-covariance", "cross-covariance-attention"],
    ),
    same(&["switch"], &["switch-transformer"]),
    same(
        &["moe"],
        &["gshard", "mixture-of-experts", "moe-transformer"],
    ),
    same(&["gtrxl"], &["gated-transformer-xl", "gtr-xl"]),
    same(&["t5"], &["t5-bias", "relative-bias"]),
    same(&["alibi"], &["attention-with-linear-biases"]),
    same(&["roformer"], &["rope", "rotary", "rotary-transformer"]),
    same(&["deberta"], &["disentangled-attention", "deberta-v1"]),
    same(
        &["all_attention"],
        &["persistent-memory", "all-attention-network"],
    ),
    same(
        &["product_keys"],
        &["pkm", "product-key-memory", "product-key"],
    ),
    same(&["set"], &["set-transformer", "isab"]),
    same(
        &["talking_heads"],
        &["talking-head", "talking-heads-attention"],
    ),
    same(&["funnel"], &["funnel-transformer"]),
    same(
        &["compressed"],
        &["memory-compressed", "memory-compressed-attention", "mca"],
    ),
    same(&["image"], &["image-transformer"]),
    same(
        &["clustered"],
        &[
            "clustered-attention",
            "improved-clustered",
            "i-clustered",
            "improved-clustered-attention",
        ],
    ),
    same(
        &["lite"],
        &["lite-transformer", "long-short-range-attention", "lsra"],
    ),
    same(&["hierarchical"], &["hibert", "hierarchical-transformer"]),
    same(&["transformer_xl"], &["txl", "transfo-xl", "transformerxl"]),
    same(&["compressive"], &["compressive-transformer"]),
    same(&["universal"], &["universal-transformer", "ut"]),
    same(
        &["adaptive_span"],
        &["adaptive-attention-span", "adaptive-span-transformer"],
    ),
    same(&["routing"], &["routing-transformer"]),
    same(
        &["informer"],
        &["probsparse", "prob-attention", "probsparse-attention"],
    ),
    same(
        &["mega"],
        &[
            "mega-lra",
            "mega-pure",
            "mega-ema",
            "moving-average-gated-attention",
        ],
    ),
    same(&["gau"], &["flash-quad", "gated-attention-unit"]),
    same(
        &["flash"],
        &["flash-transformer", "flash-linear", "flash-mixed-chunk"],
    ),
    same(&["cosformer"], &["cosformer-attention"]),
    same(
        &["luna"],
        &["luna-transformer", "luna-attention", "luna-lra"],
    ),
    same(
        &["mra"],
        &["mra-2", "mra-attention", "multi-resolution-analysis"],
    ),
    same(&["h_transformer_1d"], &["htransformer", "h1d"]),
    same(&["tnn"], &["toeplitz", "toeplitz-neural-network", "tno"]),
    same(&["mamba"], &["s6", "selective-ssm", "mamba-1"]),
    same(&["mamba2"], &["ssd"]),
    same(&["retnet"], &["retention", "multi-scale-retention"]),
    same(&["gla"], &["gated-linear-attention"]),
    same(&["hgrn2"], &["hgru2"]),
    same(&["lion"], &["lion-s", "lion-d", "lion-lit"]),
    same(&["deltanet"], &["delta-rule"]),
    same(&["gated_deltanet"], &["gdn", "gated-delta-rule"]),
    same(
        &["s4d"],
        &[
            "s4d-lin",
            "s4d-inv",
            "s4d-legs",
            "s4-diag",
            "s4d-real",
            "diagonal-s4",
        ],
    ),
    near(
        &["s4d"],
        &["s4", "s4-v2", "s4-legs", "dplr", "nplr", "hippo", "s4-lssl"],
        "S4 itself is DPLR, diagonal plus low rank; s4d is its diagonal form",
    ),
    near(
        &["s4d"],
        &["dss", "dss-exp", "dss-softmax"],
        "another diagonal state space, which is not here",
    ),
    near(
        &["s4d"],
        &["liquid-s4", "liquid", "liquidssm"],
        "Liquid-S4's term of products of inputs is not here; recipe liquid-s4 trains s4d by its settings",
    ),
    same(&["s5"], &["s5-ssm", "simplified-state-space"]),
    same(&["lru"], &["linear-recurrent-unit", "lru-minimal"]),
    same(
        &["rtf"],
        &["transfer-function", "rational-transfer-function", "ssm-rtf"],
    ),
    same(
        &["sgconv"],
        &["gconv", "structured-global-convolution", "sgconvnet"],
    ),
    same(
        &["long_conv"],
        &["long-convolution", "long-convs", "long-conv-lra"],
    ),
    same(&["bag"], &["bag-of-words", "bow", "bag-of-tokens", "none"]),
];
