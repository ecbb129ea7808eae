//! The residual blocks.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{LONGEST, Range, WIDEST};
use crate::ops::activation::Activation;

/// Place of the norm in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Norm before mixer and feed-forward, and once after the last block.
    Pre,
    /// Norm after each residual sum.
    Post,
}

/// Way in which a block's sums are carried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Residual {
    /// One stream; the backward pass uses the activations kept by the forward pass.
    Plain,
    /// Two streams whose steps can be undone; the backward pass recomputes everything. Pre-norm
    /// only.
    Reversible,
    /// A GRU's gate in place of each sum (GTrXL).
    Gru,
    /// Each branch times a number that begins at 0 (ReZero). Without norms.
    Rezero,
    /// The stream times a vector that begins well above 1 (Admin). Post-norm only.
    Admin,
    /// Each branch times a vector.
    Layerscale,
}

impl Residual {
    /// Returns whether branches are multiplied by a number that is 0 at first: then it alone has a
    /// gradient in the first step.
    #[must_use]
    pub fn starts_at_zero(self) -> bool {
        self == Self::Rezero
    }
}

/// Normalisation of the rows of a block's input or output; the definitions are in
/// [`crate::block::norm`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// LayerNorm.
    Layer,
    /// RMSNorm.
    Rms,
    /// ScaleNorm.
    Scale,
    /// AdaNorm.
    Ada,
    /// PowerNorm.
    Power,
    /// BatchNorm, with padding in its statistics.
    Batch,
    /// BatchNorm over the real positions.
    BatchMasked,
    /// No norm.
    None,
}

/// Divisor of a row in ScaleNorm; the gain begins such that rows have a mean square of 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScaleNorm {
    /// The row's Euclidean norm, the gain being √D at first, as in the paper.
    Norm,
    /// The root of its mean square, the gain being 1 at first, as in the code of Mega.
    Rms,
}

/// Computation of a block on each position by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// The feed-forward network.
    Dense,
    /// One of several feed-forward networks for each position, in every second block by default
    /// (see `expert_period`).
    Switch,
    /// Two of several feed-forward networks, in every second block by default (see
    /// `expert_period`).
    Moe,
    /// A large memory of which each position reads a few values, in every second block by default
    /// (see `expert_period`).
    ProductKeys,
    /// Separable convolutions, which see a few positions to each side.
    Conv,
    /// No layer: the block only mixes positions.
    None,
}

/// Factor of the hidden layer of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// No gate.
    None,
    /// Another linear layer of the input: with `block.activation` = gelu GEGLU, silu SwiGLU,
    /// sigmoid GLU, identity Bilinear.
    Glu,
}

/// Bias that is added to the scores of pairs; the definitions are in `layers/score_mods/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PairBias {
    /// No bias.
    None,
    /// A learned number by head and bucket of distances, for all layers (T5).
    T5,
    /// Less by fixed steps with distance (ALiBi).
    Alibi,
    /// A Gaussian around the query, of learned width for each head.
    Gauss,
    /// The query times a learned vector by distance (Shaw et al., 2018).
    Shaw,
    /// Contents and sines of distances, with a bias each (Transformer-XL).
    Xl,
    /// Contents and distances of both, disentangled (DeBERTa's code).
    Deberta,
    /// DeBERTa with the distance of key from query in the third term (DeBERTa's paper).
    DebertaPaper,
}

impl fmt::Display for PairBias {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::T5 => "t5",
            Self::Alibi => "alibi",
            Self::Gauss => "gauss",
            Self::Shaw => "shaw",
            Self::Xl => "xl",
            Self::Deberta => "deberta",
            Self::DebertaPaper => "deberta_paper",
        })
    }
}

/// The residual blocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BlockOptions {
    /// Number of blocks, at least 1.
    pub layers: usize,
    /// Width of the residual stream.
    pub dim: usize,
    /// Width of queries, keys and values over all heads; a multiple of `heads`.
    pub qkv_dim: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of the feed-forward's hidden layer.
    pub mlp_dim: usize,
    /// Kind of norm.
    #[serde(default = "neutral::norm")]
    pub norm: NormKind,
    /// Divisor of ScaleNorm, for norm = scale. The function is the same at first, but an optimizer
    /// whose steps have the size of its rate, such as Adam, moves a gain of 1 by a √D times larger
    /// share than one of √D.
    #[serde(default = "neutral::scale_norm")]
    pub scale_norm: ScaleNorm,
    /// Place of the norm in the block.
    pub norm_place: NormPlace,
    /// Whether there is a norm after the last block, where blocks are pre-norm.
    #[serde(default = "neutral::last_norm")]
    pub last_norm: bool,
    /// The share of a batch's statistics in the running ones, for norm = batch and batch_masked
    /// (PyTorch's `momentum`).
    #[serde(default = "neutral::norm_momentum")]
    pub norm_momentum: f64,
    /// Way in which its sums are carried on.
    pub residual: Residual,
    /// Added to the variance in LayerNorm; in the other norms it keeps the denominators from 0.
    pub norm_epsilon: f64,
    /// Computation on each position by itself.
    #[serde(default = "neutral::ffn")]
    pub ffn: ChannelKind,
    /// Factor of the feed-forward's hidden layer.
    #[serde(default = "neutral::gate")]
    pub gate: Gate,
    /// Feed-forward networks to choose from, for ffn = switch and moe.
    #[serde(default = "neutral::experts")]
    pub experts: usize,
    /// Period of blocks with experts: one block of so many has them, the last of each; the last
    /// block of all if there are fewer. The others have one network.
    #[serde(default = "neutral::expert_period")]
    pub expert_period: usize,
    /// Tokens that an expert takes in training, as a multiple of its even share of a sequence; 0
    /// for any number.
    #[serde(default = "neutral::expert_capacity")]
    pub expert_capacity: f64,
    /// Sub-keys of each half of a query, for ffn = product_keys: the memory has as many values as
    /// their square. `expert_period` selects the blocks that have it.
    #[serde(default = "neutral::product_keys")]
    pub product_keys: usize,
    /// Number of values that a head reads from this memory.
    #[serde(default = "neutral::product_top")]
    pub product_top: usize,
    /// Whether all blocks have the same weights.
    #[serde(default)]
    pub share: bool,
    /// The feed-forward's non-linearity.
    pub activation: Activation,
    /// Dropout on the mixer's output and twice in the feed-forward, in [0, 1).
    pub dropout: f64,
    /// Whether dropout drops a channel of the mixer's output at all positions of a sequence or at
    /// none; for blocks that consist of the mixer alone.
    #[serde(default)]
    pub dropout_tied: bool,
    /// Dropout on attention weights, where the mixer has any, in [0, 1).
    pub attention_dropout: f64,
    /// Bias that is added to the scores of pairs.
    #[serde(default = "neutral::bias")]
    pub bias: PairBias,
    /// K, the largest distance that bias = shaw, deberta and deberta_paper distinguish; DeBERTa's
    /// paper has 512.
    #[serde(default = "neutral::bias_distance")]
    pub bias_distance: usize,
    /// Whether queries and keys are rotated by position (RoFormer).
    #[serde(default)]
    pub rotary: bool,
    /// Number of keys and values of each head that belong to no token (all-attention).
    #[serde(default)]
    pub memory: usize,
}

impl BlockOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[
        Range::int("layers", 1, 1000),
        Range::int("dim", 1, WIDEST),
        Range::int("qkv_dim", 1, WIDEST),
        Range::int("heads", 1, WIDEST),
        Range::int("mlp_dim", 1, WIDEST),
        Range::positive("norm_epsilon", 1.0),
        Range::positive("norm_momentum", 1.0),
        Range::int("experts", 1, 256),
        Range::int("expert_period", 1, 1000),
        Range::not_negative("expert_capacity"),
        Range::int("product_keys", 1, 4096),
        Range::int("product_top", 1, 4096),
        Range::probability("dropout"),
        Range::probability("attention_dropout"),
        Range::int("bias_distance", 1, LONGEST),
        Range::int("memory", 0, LONGEST),
    ];
}

/// Values of options that are missing from settings saved before the option existed.
mod neutral {
    use super::{ChannelKind, Gate, NormKind, PairBias, ScaleNorm};

    pub(super) fn norm() -> NormKind {
        NormKind::Layer
    }

    pub(super) fn scale_norm() -> ScaleNorm {
        ScaleNorm::Norm
    }

    pub(super) fn last_norm() -> bool {
        true
    }

    pub(super) fn norm_momentum() -> f64 {
        0.1
    }

    pub(super) fn ffn() -> ChannelKind {
        ChannelKind::Dense
    }

    pub(super) fn experts() -> usize {
        4
    }

    pub(super) fn expert_period() -> usize {
        2
    }

    pub(super) fn product_keys() -> usize {
        32
    }

    pub(super) fn product_top() -> usize {
        8
    }

    pub(super) fn expert_capacity() -> f64 {
        1.25
    }

    pub(super) fn gate() -> Gate {
        Gate::None
    }

    pub(super) fn bias() -> PairBias {
        PairBias::None
    }

    pub(super) fn bias_distance() -> usize {
        16
    }
}

impl Default for BlockOptions {
    /// Returns the small protocol that most re-runs of the benchmark use: 2 layers, 64 wide.
    fn default() -> Self {
        Self {
            layers: 2,
            dim: 64,
            qkv_dim: 64,
            heads: 2,
            mlp_dim: 128,
            norm: NormKind::Layer,
            scale_norm: neutral::scale_norm(),
            norm_place: NormPlace::Pre,
            last_norm: neutral::last_norm(),
            norm_momentum: neutral::norm_momentum(),
            residual: Residual::Plain,
            norm_epsilon: 1e-6,
            ffn: ChannelKind::Dense,
            gate: Gate::None,
            experts: neutral::experts(),
            expert_period: neutral::expert_period(),
            expert_capacity: neutral::expert_capacity(),
            product_keys: neutral::product_keys(),
            product_top: neutral::product_top(),
            share: false,
            activation: Activation::Gelu,
            dropout: 0.1,
            dropout_tied: false,
            attention_dropout: 0.1,
            bias: PairBias::None,
            bias_distance: neutral::bias_distance(),
            rotary: false,
            memory: 0,
        }
    }
}

impl BlockOptions {
    /// Returns the width of one head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.qkv_dim / self.heads
    }
}
