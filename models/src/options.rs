//! Every number that a model's construction depends on, with its range.

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::range::{LONGEST, Range, WIDEST, read};
use crate::{Model, Result, error::require};

/// The losses that axes of the block add to the cross-entropy, with the weights that they usually have.
pub const LOSSES: &[(&str, f64)] = &[("balance", 0.01), ("router_z", 0.0)];

/// All options of a classifier: what surrounds the mixer, and the mixer's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// From token ids to vectors.
    pub embed: EmbedOptions,
    /// The residual blocks.
    pub block: BlockOptions,
    /// From hidden states to logits.
    pub head: HeadOptions,
    /// The mixer's own options, with every key present: overlay changes on [`Model::defaults`].
    pub model: Value,
}

/// How positions are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// Fixed sines and cosines, interleaved, wavelengths up to 10000 x 2 pi.
    Sinusoid,
    /// A learned vector per position, initially N(0, 0.02^2).
    Learned,
    /// Not at all.
    None,
}

/// From token ids to vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedOptions {
    /// How positions are marked.
    pub positions: Positions,
    /// Whether positions are marked anew before every block.
    #[serde(default)]
    pub every_layer: bool,
    /// Dropout on the sum of embedding and position, in [0, 1).
    pub dropout: f64,
    /// Whether id 0 stands for padding where the task has none: the 2021 code hides black pixels so.
    #[serde(default)]
    pub zero_is_padding: bool,
}

/// Where a block normalises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormPlace {
    /// Before mixer and feed-forward, and once after the last block.
    Pre,
    /// After each residual sum.
    Post,
}

/// How a block's sums are carried on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Residual {
    /// One stream; the backward pass uses what the forward pass kept.
    Plain,
    /// Two streams whose steps can be undone; the backward pass recomputes everything. Pre-norm only.
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

/// What normalises the rows of a block's input or output; the definitions are in [`crate::block::norm`].
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
    /// Nothing.
    None,
}

/// What a block does to each position by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChannelKind {
    /// The feed-forward network.
    Dense,
    /// One of several feed-forward networks for each position, in every second block.
    Switch,
    /// Two of several, in every second block.
    Moe,
    /// Nothing: positions are mixed and that is all.
    None,
}

/// What the hidden layer of a feed-forward network is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Nothing.
    None,
    /// Another linear layer of the input: with `block.activation` = gelu GEGLU, silu SwiGLU, sigmoid GLU, identity Bilinear.
    Glu,
}

/// Which hidden states are pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layers {
    /// Those of the last block.
    Last,
    /// A softmax-weighted sum of the embedding and of every block's output (transparent attention, arXiv:1808.07561).
    Mix,
}

/// The feed-forward's non-linearity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// GELU in its tanh approximation (JAX's default, and the 2021 code's).
    Gelu,
    /// GELU by the error function (PyTorch's default).
    GeluErf,
    /// max(x, 0).
    Relu,
    /// x / (1 + exp(-x)), also called Swish.
    Silu,
    /// 1 / (1 + exp(-x)).
    Sigmoid,
    /// max(x, 0)².
    ReluSquared,
    /// x.
    Identity,
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
    /// What normalises.
    #[serde(default = "neutral::norm")]
    pub norm: NormKind,
    /// Where the block normalises.
    pub norm_place: NormPlace,
    /// How its sums are carried on.
    pub residual: Residual,
    /// Added to the variance in LayerNorm; what keeps the other norms' denominators from 0.
    pub norm_epsilon: f64,
    /// What is done to each position by itself.
    #[serde(default = "neutral::ffn")]
    pub ffn: ChannelKind,
    /// What the feed-forward's hidden layer is multiplied with.
    #[serde(default = "neutral::gate")]
    pub gate: Gate,
    /// Feed-forward networks to choose from, for ffn = switch and moe.
    #[serde(default = "neutral::experts")]
    pub experts: usize,
    /// Every how many blocks have experts; the others have one network.
    #[serde(default = "neutral::expert_period")]
    pub expert_period: usize,
    /// Tokens that an expert takes in training, as a multiple of its even share of a sequence; 0 for any number.
    #[serde(default = "neutral::expert_capacity")]
    pub expert_capacity: f64,
    /// Whether all blocks have the same weights.
    #[serde(default)]
    pub share: bool,
    /// The feed-forward's non-linearity.
    pub activation: Activation,
    /// Dropout on the mixer's output and twice in the feed-forward, in [0, 1).
    pub dropout: f64,
    /// Dropout on attention weights, where the mixer has any, in [0, 1).
    pub attention_dropout: f64,
}

/// How a sequence becomes one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// A learned token is put before the sequence; its hidden state is taken.
    Cls,
    /// The hidden state of the first real token (what the 2021 code's dual encoder does).
    First,
    /// Mean over real tokens.
    Mean,
    /// Sum over real tokens, divided by the length with padding: a short text gives a small vector (what the code of Xiong et al., 2021, does).
    PaddedMean,
    /// Sum over real tokens.
    Sum,
    /// Largest value of each channel over real tokens.
    Max,
}

/// How two towers' vectors are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Features {
    /// `[a, b]`, what the 2021 code runs.
    Concat,
    /// `[a, b, a * b, a - b]`, what the paper says.
    Nli,
}

/// From hidden states to logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadOptions {
    /// How a sequence becomes one vector.
    pub pooling: Pooling,
    /// Which hidden states are pooled.
    #[serde(default = "neutral::layers")]
    pub layers: Layers,
    /// Width of the head's hidden layer (two towers: a second one of half the width follows). 0: a single linear layer.
    pub hidden: usize,
    /// How two towers' vectors are combined; without effect for one tower.
    pub features: Features,
}

impl EmbedOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[Range::share("dropout")];
}

impl BlockOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[
        Range::whole("layers", 1, 1000),
        Range::whole("dim", 1, WIDEST),
        Range::whole("qkv_dim", 1, WIDEST),
        Range::whole("heads", 1, WIDEST),
        Range::whole("mlp_dim", 1, WIDEST),
        Range::positive("norm_epsilon", 1.0),
        Range::whole("experts", 1, 256),
        Range::whole("expert_period", 1, 1000),
        Range::not_negative("expert_capacity"),
        Range::share("dropout"),
        Range::share("attention_dropout"),
    ];
}

impl HeadOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[Range::whole("hidden", 0, WIDEST)];
}

/// What settings that were saved before an option existed stand for.
mod neutral {
    use super::{ChannelKind, Gate, Layers, NormKind};

    pub(super) fn norm() -> NormKind {
        NormKind::Layer
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

    pub(super) fn expert_capacity() -> f64 {
        1.25
    }

    pub(super) fn gate() -> Gate {
        Gate::None
    }

    pub(super) fn layers() -> Layers {
        Layers::Last
    }
}

impl Default for EmbedOptions {
    fn default() -> Self {
        Self {
            positions: Positions::Sinusoid,
            every_layer: false,
            dropout: 0.1,
            zero_is_padding: false,
        }
    }
}

impl Default for BlockOptions {
    /// The small protocol that most re-runs of the benchmark use: 2 layers, 64 wide.
    fn default() -> Self {
        Self {
            layers: 2,
            dim: 64,
            qkv_dim: 64,
            heads: 2,
            mlp_dim: 128,
            norm: NormKind::Layer,
            norm_place: NormPlace::Pre,
            residual: Residual::Plain,
            norm_epsilon: 1e-6,
            ffn: ChannelKind::Dense,
            gate: Gate::None,
            experts: neutral::experts(),
            expert_period: neutral::expert_period(),
            expert_capacity: neutral::expert_capacity(),
            share: false,
            activation: Activation::Gelu,
            dropout: 0.1,
            attention_dropout: 0.1,
        }
    }
}

impl Default for HeadOptions {
    fn default() -> Self {
        Self {
            pooling: Pooling::Mean,
            layers: Layers::Last,
            hidden: 128,
            features: Features::Concat,
        }
    }
}

impl BlockOptions {
    /// Width of one head.
    #[must_use]
    pub fn head_dim(&self) -> usize {
        self.qkv_dim / self.heads
    }
}

impl Options {
    /// The defaults for `model`.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        Self {
            embed: EmbedOptions::default(),
            block: BlockOptions::default(),
            head: HeadOptions::default(),
            model: model.defaults(),
        }
    }

    /// Checks every range except those of the mixer's own options, which its `build` checks.
    ///
    /// # Errors
    /// [`crate::Error::Option`] naming key, value and allowed range.
    pub fn validate(&self) -> Result<()> {
        let usual = (
            to_json(&EmbedOptions::default()),
            to_json(&BlockOptions::default()),
            to_json(&HeadOptions::default()),
        );
        let (embed, block, head) = (&self.embed, &self.block, &self.head);
        read::<EmbedOptions>("embed", &to_json(embed), &usual.0, EmbedOptions::RANGES)?;
        read::<BlockOptions>("block", &to_json(block), &usual.1, BlockOptions::RANGES)?;
        read::<HeadOptions>("head", &to_json(head), &usual.2, HeadOptions::RANGES)?;
        require(
            block.qkv_dim.is_multiple_of(block.heads),
            "block.qkv_dim",
            block.qkv_dim,
            format!("a multiple of block.heads = {}", block.heads),
        )?;
        self.check_block()
    }
}

impl Options {
    /// Those of [`LOSSES`] that these options bring with them.
    #[must_use]
    pub fn losses(&self) -> &'static [(&'static str, f64)] {
        match self.block.ffn {
            ChannelKind::Switch | ChannelKind::Moe => LOSSES,
            ChannelKind::Dense | ChannelKind::None => &[],
        }
    }

    /// Refuses combinations of the block's axes that no paper defines or that cannot be computed.
    fn check_block(&self) -> Result<()> {
        let block = &self.block;
        let post = block.norm_place == NormPlace::Post;
        let bare = block.norm == NormKind::None;
        let refuse = |value: &str, allowed: &str| require(false, "block.residual", value, allowed);
        match block.residual {
            Residual::Reversible if post => {
                refuse("reversible", "plain where block.norm_place = post")
            }
            Residual::Reversible if !self.losses().is_empty() => refuse(
                "reversible",
                "plain where block.ffn = switch or moe, whose losses need every block's state",
            ),
            Residual::Reversible if block.share => {
                refuse("reversible", "plain where block.share = true")
            }
            Residual::Reversible if self.embed.every_layer || self.head.layers == Layers::Mix => {
                refuse(
                    "reversible",
                    "plain where embed.every_layer = true or head.layers = mix, which need every block's state",
                )
            }
            Residual::Admin if !post => refuse("admin", "wants block.norm_place = post"),
            Residual::Rezero if !bare => refuse("rezero", "wants block.norm = none"),
            _ => Ok(()),
        }?;
        require(
            block.norm != NormKind::Ada || block.dim >= 2,
            "block.norm",
            "ada",
            "wants block.dim of at least 2",
        )?;
        require(
            block.gate == Gate::None || block.ffn != ChannelKind::None,
            "block.gate",
            "glu",
            "wants a block.ffn that is not none",
        )?;
        require(
            (1..=block.layers).contains(&block.expert_period)
                || !matches!(block.ffn, ChannelKind::Switch | ChannelKind::Moe),
            "block.expert_period",
            block.expert_period,
            format!("from 1 to block.layers = {}", block.layers),
        )?;
        require(
            !self.embed.every_layer || self.embed.positions != Positions::None,
            "embed.every_layer",
            true,
            "false where embed.positions = none",
        )
    }
}

/// An options object with every key, as JSON.
pub(crate) fn to_json(options: &impl Serialize) -> Value {
    // A struct of numbers and names always has a JSON form.
    serde_json::to_value(options).unwrap_or(Value::Null)
}

/// Replaces values of `base` by those of `over`, object by object. Unknown keys are kept, for deserialization to refuse.
pub(crate) fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                overlay(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}
