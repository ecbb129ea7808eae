//! Options of the way from hidden states to logits.

use lra_derive::Options;
use serde::{Deserialize, Serialize};

use super::{Choices, WIDEST};

/// Reduction of the hidden states (B, L, D) of B sequences to one vector for each sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// A learned CLS token is put before the sequence, and its hidden state is taken.
    Cls,
    /// The hidden state of the first valid token is taken, as in the dual encoder of the
    /// benchmark's code of 2021.
    First,
    /// The mean of the hidden states over valid tokens is taken.
    Mean,
    /// The sum of the hidden states over valid tokens is divided by the length with padding. A
    /// short text gives a small vector, as in the code of Xiong et al., 2021.
    PaddedMean,
    /// The sum of the hidden states over valid tokens is taken.
    Sum,
    /// The largest value of each channel over valid tokens is taken.
    Max,
    /// A learned vector attends to the hidden states. This is the Set Transformer's pooling by
    /// multihead attention, with one seed (arXiv:1810.00825). It is `block.qkv_dim` wide.
    Attention,
}

/// Combination of the vectors a and b of an example's two sequences, for tasks that compare them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Features {
    /// `[a, b]`, as in the benchmark's code of 2021.
    Concat,
    /// `[a, b, a * b, a - b]`, as in the benchmark's paper (arXiv:2011.04006).
    Nli,
}

/// Selection of the hidden states that are pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layers {
    /// The last block's states are pooled.
    Last,
    /// A weighted sum of all blocks' (transparent attention).
    ///
    /// The weights are a softmax over the embedding and every block's output (arXiv:1808.07561).
    Mix,
}

/// Options of the way from hidden states to logits.
#[derive(Clone, Debug, PartialEq, Options, Serialize, Deserialize)]
#[options(section = "head")]
#[serde(default, deny_unknown_fields)]
pub struct HeadOptions {
    /// Reduction of a sequence to one vector.
    #[option(default = Pooling::Mean)]
    pub pooling: Pooling,
    /// Selection of the hidden states that are pooled.
    #[option(default = Layers::Last, component)]
    pub layers: Layers,
    /// Width of the head's hidden layer (two towers: a second one of half the width follows). 0: a
    /// single linear layer.
    #[option(default = 128, range = int(0, WIDEST))]
    pub hidden: usize,
    /// Combination of two towers' vectors; without effect for one tower.
    #[option(default = Features::Concat)]
    pub features: Features,
}
