//! From hidden states to logits.

use serde::{Deserialize, Serialize};

use super::{Range, WIDEST};

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
    /// What a learned vector gathers by attention: the Set Transformer's pooling by multihead attention, with one seed (arXiv:1810.00825). `block.qkv_dim` wide.
    Attention,
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

/// Which hidden states are pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layers {
    /// Those of the last block.
    Last,
    /// A softmax-weighted sum of the embedding and of every block's output (transparent attention, arXiv:1808.07561).
    Mix,
}

/// From hidden states to logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadOptions {
    /// How a sequence becomes one vector.
    pub pooling: Pooling,
    /// Which hidden states are pooled.
    #[serde(default = "last_layer")]
    pub layers: Layers,
    /// Width of the head's hidden layer (two towers: a second one of half the width follows). 0: a single linear layer.
    pub hidden: usize,
    /// How two towers' vectors are combined; without effect for one tower.
    pub features: Features,
}

/// What settings that were saved before the option existed stand for.
fn last_layer() -> Layers {
    Layers::Last
}

impl HeadOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[Range::int("hidden", 0, WIDEST)];
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
