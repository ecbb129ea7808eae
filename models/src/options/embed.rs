//! Options of the way from token ids to vectors.

use serde::{Deserialize, Serialize};

use super::Range;

/// Marking of positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// Fixed sines and cosines, interleaved, wavelengths up to 10000 x 2 pi.
    Sinusoid,
    /// A learned vector per position, initially N(0, `position_std`^2).
    Learned,
    /// Complex token vectors that turn with the position, see [`crate::layers::ComplexEmbedding`].
    Complex,
    /// A convolution after the first block, see [`crate::layers::ConditionalPositions`].
    Conditional,
    /// No marks.
    None,
}

/// Meaning of a token id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// The id selects one of so many vectors.
    Ids,
    /// A real number, such as a pixel's grey.
    Scalar,
}

/// Initial values of the linear map of a number, weight w (D) and bias b (D).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalarInit {
    /// w, b ~ U(-1, 1): `torch.nn.Linear(1, D)`, which is Kaiming-uniform with gain 1/√3 for a
    /// fan-in of 1 (S4, RTF).
    KaimingUniform,
    /// w LeCun-normal for a fan-in of 1, variance 1 and cut at two standard deviations, b = 0:
    /// `flax.linen.Dense` (S5, s5/seq_model.py of lindermanlab/S5, commit 3c18fdb).
    LecunNormal,
    /// w ~ N(0, 1), b ~ N(0, 0.1²): `RealNumberEmbedding` in
    /// fairseq/modules/real_number_embedding.py of facebookresearch/mega, commit aeaa4b4.
    Normal,
}

/// Options of the way from token ids to vectors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EmbedOptions {
    /// Meaning of a token id.
    #[serde(default = "neutral::input")]
    pub input: Input,
    /// Subtracted from the number, for input = scalar: an id is first divided by the largest one,
    /// so that white is 1.
    #[serde(default = "neutral::half")]
    pub mean: f64,
    /// Divisor of the difference.
    #[serde(default = "neutral::half")]
    pub std: f64,
    /// Initial values of the linear map, for input = scalar.
    #[serde(default = "neutral::scalar_init")]
    pub scalar_init: ScalarInit,
    /// Standard deviation of the initial token vectors, for input = ids: 1 in the 2021 code.
    #[serde(default = "neutral::token_std")]
    pub token_std: f64,
    /// Marking of positions.
    pub positions: Positions,
    /// Standard deviation of the initial vectors of learned positions: 0.02 in the 2021 code.
    #[serde(default = "neutral::position_std")]
    pub position_std: f64,
    /// Whether positions are marked anew before every block.
    #[serde(default)]
    pub every_layer: bool,
    /// Dropout on the sum of embedding and position, in [0, 1).
    pub dropout: f64,
    /// Whether id 0 stands for padding if the task has none: the 2021 code hides black pixels so.
    #[serde(default)]
    pub zero_is_padding: bool,
}

impl EmbedOptions {
    /// The ranges of its numbers.
    pub const RANGES: &[Range] = &[
        Range::probability("dropout"),
        Range::not_negative("mean"),
        Range::positive("std", 1e3),
        Range::positive("token_std", 1e3),
        Range::positive("position_std", 1e3),
    ];
}

/// Values of options that are missing from settings saved before the option existed.
mod neutral {
    use super::{Input, ScalarInit};

    pub(super) fn input() -> Input {
        Input::Ids
    }

    pub(super) fn half() -> f64 {
        0.5
    }

    pub(super) fn scalar_init() -> ScalarInit {
        ScalarInit::KaimingUniform
    }

    pub(super) fn token_std() -> f64 {
        1.0
    }

    pub(super) fn position_std() -> f64 {
        0.02
    }
}

impl Default for EmbedOptions {
    fn default() -> Self {
        Self {
            input: neutral::input(),
            mean: neutral::half(),
            std: neutral::half(),
            scalar_init: neutral::scalar_init(),
            token_std: neutral::token_std(),
            positions: Positions::Sinusoid,
            position_std: neutral::position_std(),
            every_layer: false,
            dropout: 0.1,
            zero_is_padding: false,
        }
    }
}
