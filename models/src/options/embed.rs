//! Options of the way from token ids to vectors.

use lra_derive::Options;
use serde::{Deserialize, Serialize};

use super::{Choice, Choices};

/// Way in which the embedding marks the position of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// Sines and cosines.
    ///
    /// They are fixed and interleaved, with wavelengths up to 10000 x 2 pi.
    Sinusoid,
    /// A learned vector per position.
    ///
    /// Initially N(0, `position_std`^2).
    Learned,
    /// Token vectors that turn with the position.
    ///
    /// They are complex: r e^{i(ω t + θ)} at position t, with trained r, ω and θ per token and
    /// channel.
    Complex,
    /// By a convolution after the first block (CPVT).
    ///
    /// The convolution's output is added to the states of the block (arXiv:2102.10882).
    Conditional,
    /// No position embedding.
    ///
    /// Only the mixer can tell positions apart.
    None,
}

/// Way in which a token id is embedded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Choices, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// A vector for each token id.
    Ids,
    /// A linear map of the id as a number (pixels).
    Scalar,
}

/// Initial values of the linear map of an id as a number, with weight w (D) and bias b (D). They
/// are for `embed.input` = scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScalarInit {
    /// w, b ~ U(-1, 1): `torch.nn.Linear(1, D)`, which is Kaiming-uniform with gain 1/√3 for a
    /// fan-in of 1 (S4, RTF).
    KaimingUniform,
    /// w LeCun-normal for a fan-in of 1, variance 1 and cut at two standard deviations, b = 0:
    /// `flax.linen.Dense` (S5, s5/seq_model.py of lindermanlab/S5, commit 3c18fdb).
    LecunNormal,
    /// w Xavier-uniform, bound (6 / (1 + D))^½, b = 0: `_init_weights` in models/chordmixer.py of
    /// RuslanKhalitov/ChordMixer, commit b46a994.
    XavierUniform,
    /// w ~ N(0, 1), b ~ N(0, 0.1²): `RealNumberEmbedding` in
    /// fairseq/modules/real_number_embedding.py of facebookresearch/mega, commit aeaa4b4.
    Normal,
}

/// Options of the way from token ids to vectors.
#[derive(Clone, Debug, PartialEq, Options, Serialize, Deserialize)]
#[options(section = "embed")]
#[serde(default, deny_unknown_fields)]
pub struct EmbedOptions {
    /// Meaning of a token id.
    #[option(default = Input::Ids, component)]
    pub input: Input,
    /// Number subtracted from the pixel, for input = scalar. An id is first divided by the largest,
    /// so white is 1.
    #[option(default = 0.5, range = not_negative)]
    pub mean: f64,
    /// Divisor after `mean` is subtracted, for input = scalar.
    #[option(default = 0.5, range = positive(1e3))]
    pub std: f64,
    /// Initial values of the linear map, for input = scalar.
    #[option(default = ScalarInit::KaimingUniform)]
    pub scalar_init: ScalarInit,
    /// Standard deviation of the initial token vectors, for input = ids: 1 in the 2021 code.
    #[option(default = 1.0, range = positive(1e3))]
    pub token_std: f64,
    /// Kind of position embedding.
    #[option(default = Positions::Sinusoid, component)]
    pub positions: Positions,
    /// Standard deviation of the initial vectors of learned positions: 0.02 in the 2021 code.
    #[option(default = 0.02, range = positive(1e3))]
    pub position_std: f64,
    /// Whether position embeddings are added again before every block.
    #[option(default = false, component = [
        Choice::new("false", "positions are added once"),
        Choice::new("true", "positions are added before every block"),
    ])]
    pub every_layer: bool,
    /// Dropout on the sum of embedding and position, in [0, 1).
    #[option(default = 0.1, range = probability)]
    pub dropout: f64,
    /// Whether id 0 stands for padding if the task has none. The 2021 code hides black pixels this
    /// way.
    pub zero_is_padding: bool,
}
