//! The residual blocks.

use lra_derive::Options;
use serde::{Deserialize, Serialize};

use super::{Choice, Choices, LONGEST, WIDEST};
use crate::ops::activation::Activation;

/// Place of the norms in a block of mixer and feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Before each sublayer, and after the last block.
    Pre,
    /// After each residual sum.
    Post,
}

/// Way in which the output y of a sublayer is added to the stream x of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Residual {
    /// x + y.
    ///
    /// It is the usual residual connection. The backward pass uses the activations kept by the
    /// forward pass.
    Plain,
    /// Two streams, recomputed backward (Reformer).
    ///
    /// The backward pass recomputes all activations in place of keeping them (arXiv:2001.04451). It
    /// is for pre-norm blocks only.
    Reversible,
    /// A GRU's gate (GTrXL).
    ///
    /// The gate (arXiv:1910.06764) stands in place of each sum.
    Gru,
    /// x + α y, α = 0 at first (ReZero).
    ///
    /// α is one number for each block, which its sublayers share (arXiv:2003.04887). It is for
    /// blocks without norms.
    #[choice(wants = [("block.norm", "none")])]
    Rezero,
    /// ω x + y (Admin).
    ///
    /// ω is a learned vector (D) that begins well above 1 (arXiv:2004.08249). It is for post-norm
    /// blocks only.
    #[choice(wants = [("block.norm_place", "post")])]
    Admin,
    /// x + λ y, by channel (LayerScale).
    ///
    /// λ is a learned vector (D) that begins at 1, as in XCiT of 12 layers (arXiv:2106.09681). CaiT
    /// (arXiv:2103.17239), where it comes from, begins near 0.
    Layerscale,
}

/// Kind of norm of a block's rows x of width D. In the formulas, μ and σ² are the mean and the
/// variance of a row, and ε is `block.norm_epsilon`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// LayerNorm.
    ///
    /// It is (x - μ)/√(σ² + ε) ⊙ g + b (arXiv:1607.06450).
    Layer,
    /// RMSNorm.
    ///
    /// It is x/√(mean x² + ε) ⊙ g (arXiv:1910.07467).
    Rms,
    /// ScaleNorm: one gain for the row's length.
    ///
    /// It is g x/√(‖x‖² + ε²) with a number g (arXiv:1910.05895), or as `block.scale_norm` says.
    Scale,
    /// AdaNorm: no parameters.
    ///
    /// It is (1 - y/10) ⊙ y for y = (x - μ)/(s + ε), with no gradient through y/10
    /// (arXiv:1911.07013). s is the standard deviation of a row.
    Ada,
    /// PowerNorm: running statistics by channel.
    ///
    /// Each channel is divided by the root of a running mean of x² (arXiv:2003.07845).
    Power,
    /// BatchNorm, padding counted as published.
    ///
    /// Mean and variance of a channel are those of all positions of a batch in training, and
    /// running ones in evaluation (arXiv:1502.03167).
    Batch,
    /// BatchNorm over valid positions.
    ///
    /// It is `Batch` with padded positions left out of mean and variance.
    BatchMasked,
    /// No norm.
    None,
}

/// Divisor of a row x of width D in ScaleNorm. The gain begins such that rows have a mean square of
/// 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleNorm {
    /// Euclidean norm of the row. The gain begins at √D, as in the paper (arXiv:1910.05895).
    Norm,
    /// Root of the row's mean square. The gain begins at 1, as in the code of Mega.
    Rms,
}

/// Sublayer of a block behind the mixer. It maps each position by itself, or with its near
/// neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// Two linear layers with an activation between.
    ///
    /// It is the usual feed-forward network of a Transformer.
    Dense,
    /// One of several experts per token (Switch).
    ///
    /// An expert is a feed-forward network. Every second block has them by default (see
    /// `expert_period`).
    Switch,
    /// Two of several experts per token (GShard).
    ///
    /// Every second block has them by default (see `expert_period`).
    Moe,
    /// A few values of a large memory (PKM).
    ///
    /// Every second block has it by default (see `expert_period`).
    ProductKeys,
    /// Separable convolutions (Universal Transformer).
    ///
    /// They see a few positions to each side.
    Conv,
    /// No feed-forward network.
    ///
    /// Blocks have no sublayer after the mixer.
    None,
}

/// Gate: a factor by which the hidden layer of a feed-forward network is multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// No gate.
    None,
    /// The hidden layer times another (GLU, GEGLU, SwiGLU).
    ///
    /// The other is a linear layer of the input: with `block.activation` = gelu GEGLU, silu SwiGLU,
    /// sigmoid GLU, identity Bilinear.
    Glu,
}

/// Number that is added to the attention score of query i and key j. E is the width of a head.
/// Exact definitions are in `layers/score_mods/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairBias {
    /// Scores are products of query and key.
    ///
    /// Nothing is added.
    None,
    /// A learned number by bucket of distances (T5).
    ///
    /// Each head has its own numbers, and all layers share them (arXiv:1910.10683).
    T5,
    /// Falls linearly with distance (ALiBi).
    ///
    /// If the number of heads H is a power of two, head h, from 1, adds -2^(-8 h / H) times the
    /// distance (arXiv:2108.12409).
    Alibi,
    /// A Gaussian around the query, of learned width.
    ///
    /// At distance δ it adds -abs(w δ² + b), with learned w >= 0 and b <= 0 for each head (Guo et
    /// al., 2019, "Gaussian Transformer").
    Gauss,
    /// The query times a vector by distance (Shaw).
    ///
    /// It adds q_i·a / √E, with a learned vector a for each distance up to `block.bias_distance`
    /// (arXiv:1803.02155).
    Shaw,
    /// Content, and sinusoids of distances (Transformer-XL).
    ///
    /// It adds a product of the query with a learned map of sines and cosines of the distance.
    /// Contents and distances each have a learned bias, which is added to the query
    /// (arXiv:1901.02860).
    Xl,
    /// Contents and distances, disentangled (DeBERTa).
    ///
    /// It adds a product of the query with a vector for the distance, and one of the key with such
    /// a vector (arXiv:2006.03654). This is the computation of DeBERTa's code.
    Deberta,
    /// The same as the paper prints its third term.
    ///
    /// In the product with the key, it has the distance of the key from the query, where `Deberta`
    /// has that of the query from the key.
    DebertaPaper,
}

/// The residual blocks.
///
/// The defaults are the small protocol that most re-runs of the benchmark use: 2 layers, 64 wide.
#[derive(Clone, Debug, PartialEq, Options, Serialize, Deserialize)]
#[options(section = "block")]
#[serde(default, deny_unknown_fields)]
pub struct BlockOptions {
    /// Number of blocks, at least 1.
    #[option(default = 2, range = int(1, 1000))]
    pub layers: usize,
    /// Width of the residual stream.
    #[option(default = 64, range = int(1, WIDEST))]
    pub dim: usize,
    /// Width of queries, keys and values over all heads; a multiple of `heads`.
    #[option(default = 64, range = int(1, WIDEST))]
    pub qkv_dim: usize,
    /// Attention heads.
    #[option(default = 2, range = int(1, WIDEST))]
    pub heads: usize,
    /// Width of the feed-forward's hidden layer.
    #[option(default = 128, range = int(1, WIDEST))]
    pub mlp_dim: usize,
    /// Kind of norm.
    #[option(default = NormKind::Layer, component)]
    pub norm: NormKind,
    /// Divisor of ScaleNorm, for norm = scale. Both values compute the same function at first. The
    /// gain begins at √D with norm and at 1 with rms, so a step of Adam changes it by a √D times
    /// larger share with rms.
    #[option(default = ScaleNorm::Norm)]
    pub scale_norm: ScaleNorm,
    /// Place of the norm in the block.
    #[option(default = NormPlace::Pre, component)]
    pub norm_place: NormPlace,
    /// Whether there is a norm after the last block, where blocks are pre-norm.
    #[option(default = true, component = [
        Choice::new("true", "a norm after the last of pre-norm blocks"),
        Choice::new("false", "none (S5, ChordMixer)"),
    ])]
    pub last_norm: bool,
    /// The share of a batch's statistics in the running ones, for norm = batch and batch_masked
    /// (PyTorch's `momentum`).
    #[option(default = 0.1, range = positive(1.0))]
    pub norm_momentum: f64,
    /// Kind of residual connection.
    #[option(default = Residual::Plain, component)]
    pub residual: Residual,
    /// Added to the variance in LayerNorm; in the other norms it keeps the denominators from 0.
    #[option(default = 1e-6, range = positive(1.0))]
    pub norm_epsilon: f64,
    /// Kind of feed-forward network.
    #[option(default = ChannelKind::Dense, component)]
    pub ffn: ChannelKind,
    /// Gate that multiplies the hidden layer of the feed-forward network.
    #[option(default = Gate::None, component)]
    pub gate: Gate,
    /// Feed-forward networks to choose from, for ffn = switch and moe.
    #[option(default = 4, range = int(2, 256))]
    pub experts: usize,
    /// Period of blocks with experts: with 2, every second block has them. If there are fewer
    /// blocks than that, the last one has them. The other blocks have one network.
    #[option(default = 2, range = int(1, 1000))]
    pub expert_period: usize,
    /// Tokens that an expert takes in training, as a multiple of its even share of a sequence; 0
    /// for any number.
    #[option(default = 1.25, range = not_negative)]
    pub expert_capacity: f64,
    /// Sub-keys of each half of a query, for ffn = product_keys: the memory has as many values as
    /// their square. `expert_period` selects the blocks that have it.
    #[option(default = 32, range = int(2, 4096))]
    pub product_keys: usize,
    /// Number of values that a head reads from this memory; at most `product_keys`. A single value
    /// would have the weight 1 whatever its key, so that keys would not learn.
    #[option(default = 8, range = int(2, 4096))]
    pub product_top: usize,
    /// The feed-forward's non-linearity.
    #[option(default = Activation::Gelu, component)]
    pub activation: Activation,
    /// Dropout on the mixer's output, before its gated output layer where it has one, and twice in
    /// the feed-forward, in [0, 1).
    #[option(default = 0.1, range = probability)]
    pub dropout: f64,
    /// Drops a channel at all positions of a sequence or at none, instead of single elements; for
    /// blocks that consist of the mixer alone. Attention weights are dropped one by one.
    #[option(default = false, component = [
        Choice::new("false", "dropout of each element by itself"),
        Choice::new("true", "of a channel at all positions (S4)").wants(&[("block.ffn", "none")]),
    ])]
    pub dropout_tied: bool,
    /// Dropout on attention weights, where the mixer has any, in [0, 1).
    #[option(default = 0.1, range = probability)]
    pub attention_dropout: f64,
    /// Whether all blocks have the same weights.
    #[option(default = false, component = [
        Choice::new("false", "weights of its own for each block"),
        Choice::new("true", "one block's weights for all (Universal Transformer, ALBERT)"),
    ])]
    pub share: bool,
    /// Bias that is added to the scores of pairs.
    #[option(default = PairBias::None, component)]
    pub bias: PairBias,
    /// K, the largest distance that bias = shaw, deberta and deberta_paper distinguish; DeBERTa's
    /// paper has 512.
    #[option(default = 16, range = int(1, LONGEST))]
    pub bias_distance: usize,
    /// Whether queries and keys are rotated by position (RoFormer).
    #[option(default = false, component = [
        Choice::new("false", "queries and keys as they are"),
        Choice::new("true", "rotated by position (RoFormer)"),
    ])]
    pub rotary: bool,
    /// Number of keys and values of each head that belong to no token (all-attention). They have no
    /// position: `bias` adds nothing by distance, and `rotary` does not rotate them, so that they
    /// are to each query as keys at the first position.
    #[option(default = 0, range = int(0, LONGEST), component = [
        Choice::new("0", "every key is a token's"),
        Choice::new("8", "this many learned keys and values (all-attention)"),
    ])]
    pub memory: usize,
    /// c, which bounds attention scores after all additions: c tanh(z / c); 0 for no bound (Gemma
    /// 2).
    #[option(default = 0.0, range = zero_or(1e-3, 1e6), component = [
        Choice::new("0", "scores as they are"),
        Choice::new("50", "c tanh(z / c) with c = 50, or another number (Gemma 2)"),
    ])]
    pub soft_cap: f64,
}

impl BlockOptions {
    /// Returns E, the width of one head: `qkv_dim` divided by `heads`.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.qkv_dim / self.heads
    }

    /// Returns the options that change the scores of pairs: the key of each, its value if it is on,
    /// and the value that turns it off.
    pub(crate) fn on_scores(&self) -> [(&'static str, Option<String>, &'static str); 2] {
        let bias = (self.bias != PairBias::None).then(|| self.bias.to_string());
        let soft_cap = (self.soft_cap > 0.0).then(|| self.soft_cap.to_string());
        [
            ("block.bias", bias, "none"),
            ("block.soft_cap", soft_cap, "0"),
        ]
    }

    /// Returns whether norms keep running statistics, which fit the states of one depth only.
    pub(crate) fn has_running_norm(&self) -> bool {
        matches!(
            self.norm,
            NormKind::Power | NormKind::Batch | NormKind::BatchMasked
        )
    }

    /// Returns whether the norm behind the last block keeps running statistics.
    pub(crate) fn has_running_last_norm(&self) -> bool {
        self.has_running_norm() && self.norm_place == NormPlace::Pre && self.last_norm
    }
}
