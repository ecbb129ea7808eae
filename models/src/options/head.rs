//! Options of the way from hidden states to logits.

use serde::{Deserialize, Serialize};

use super::{Range, WIDEST};

/// Reduction of a sequence to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pooling {
    /// A learned token is put before the sequence; its hidden state is taken.
    Cls,
    /// The hidden state of the first real token (as in the 2021 code's dual encoder).
    First,
    /// Mean over real tokens.
    Mean,
    /// Sum over real tokens, divided by the length with padding: a short text gives a small vector
    /// (as in the code of Xiong et al., 2021).
    PaddedMean,
    /// Sum over real tokens.
    Sum,
    /// Largest value of each channel over real tokens.
    Max,
    /// Attention of a learned vector over the states: the Set Transformer's pooling by multihead
    /// attention, with one seed (arXiv:1810.00825). `block.qkv_dim` wide.
    Attention,
}

/// Combination of two towers' vectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Features {
    /// `[a, b]`, as in the 2021 code.
    Concat,
    /// `[a, b, a * b, a - b]`, as in the paper.
    Nli,
}

/// Selection of the hidden states that are pooled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layers {
    /// Hidden states of the last block.
    Last,
    /// A softmax-weighted sum of the embedding and of every block's output (transparent attention,
    /// arXiv:1808.07561).
    Mix,
}

/// Options of the way from hidden states to logits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeadOptions {
    /// Reduction of a sequence to one vector.
    pub pooling: Pooling,
    /// Selection of the hidden states that are pooled.
    #[serde(default = "last_layer")]
    pub layers: Layers,
    /// Width of the head's hidden layer (two towers: a second one of half the width follows). 0: a
    /// single linear layer.
    pub hidden: usize,
    /// Combination of two towers' vectors; without effect for one tower.
    pub features: Features,
}

/// Returns the value for settings that were saved before the option existed.
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
