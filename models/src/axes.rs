//! The axes: choices of the embedding, the block and the head that go around any mixer.
//!
//! An axis is documented where it is computed; this module lists the axes, so that listings and
//! tests need no list of their own.

use serde_json::{Value, json};

use crate::{
    Error, Options, Result,
    block::channel::experts,
    loss::Loss,
    options::{overlay, to_json},
};

/// An axis of options.
pub struct Axis {
    /// Key of the axis, as in `--set`.
    pub key: &'static str,
    /// Values of the axis; the first is the default.
    pub values: &'static [Choice],
}

/// One value of an axis.
pub struct Choice {
    /// Name of the value in settings.
    pub value: &'static str,
    /// Short description of its effect.
    pub summary: &'static str,
    /// Values of other axes that it requires.
    pub wants: &'static [(&'static str, &'static str)],
    /// Losses that it adds to the cross-entropy.
    pub losses: &'static [Loss],
}

const fn choice(value: &'static str, summary: &'static str) -> Choice {
    Choice {
        value,
        summary,
        wants: &[],
        losses: &[],
    }
}

impl Choice {
    const fn wants(self, wants: &'static [(&'static str, &'static str)]) -> Self {
        Self { wants, ..self }
    }

    const fn adds(self, losses: &'static [Loss]) -> Self {
        Self { losses, ..self }
    }
}

/// All axes.
pub static AXES: &[Axis] = &[
    Axis {
        key: "block.norm",
        values: &[
            choice("layer", "LayerNorm"),
            choice("rms", "RMSNorm"),
            choice("scale", "ScaleNorm: one gain for the row's length"),
            choice("ada", "AdaNorm: no parameters"),
            choice("power", "PowerNorm: running statistics by channel"),
            choice("batch", "BatchNorm, padding counted as published"),
            choice("batch_masked", "BatchNorm over real positions"),
            choice("none", "no norm"),
        ],
    },
    Axis {
        key: "block.norm_place",
        values: &[
            choice("pre", "before each sublayer, and after the last block"),
            choice("post", "after each residual sum"),
        ],
    },
    Axis {
        key: "block.last_norm",
        values: &[
            choice("true", "a norm after the last of pre-norm blocks"),
            choice("false", "none (S5, ChordMixer)"),
        ],
    },
    Axis {
        key: "block.residual",
        values: &[
            choice("plain", "x + y"),
            choice("reversible", "two streams that can be undone (Reformer)"),
            choice("gru", "a GRU's gate (GTrXL)"),
            choice("rezero", "x + α y, α = 0 at first (ReZero)").wants(&[("block.norm", "none")]),
            choice("admin", "ω x + y (Admin)").wants(&[("block.norm_place", "post")]),
            choice("layerscale", "x + λ y, by channel (LayerScale)"),
        ],
    },
    Axis {
        key: "block.ffn",
        values: &[
            choice("dense", "two linear layers with an activation between"),
            choice("switch", "one of several experts per token (Switch)").adds(experts::LOSSES),
            choice("moe", "two of several experts per token (GShard)").adds(experts::LOSSES),
            choice("product_keys", "a few values of a large memory (PKM)"),
            choice("conv", "separable convolutions (Universal Transformer)"),
            choice("none", "positions are mixed and that is all"),
        ],
    },
    Axis {
        key: "block.gate",
        values: &[
            choice("none", "no gate"),
            choice("glu", "the hidden layer times another (GLU, GEGLU, SwiGLU)"),
        ],
    },
    Axis {
        key: "block.activation",
        values: &[
            choice("gelu", "GELU, tanh form"),
            choice("gelu_erf", "GELU, exact"),
            choice("relu", "max(x, 0)"),
            choice("silu", "x σ(x), Swish"),
            choice("sigmoid", "σ(x)"),
            choice("relu_squared", "max(x, 0)²"),
            choice("identity", "x"),
        ],
    },
    Axis {
        key: "block.dropout_tied",
        values: &[
            choice("false", "dropout of each element by itself"),
            Choice {
                value: "true",
                summary: "of a channel at all positions (S4)",
                wants: &[("block.ffn", "none")],
                losses: &[],
            },
        ],
    },
    Axis {
        key: "block.share",
        values: &[
            choice("false", "weights of its own for each block"),
            choice(
                "true",
                "one block's weights for all (Universal Transformer, ALBERT)",
            ),
        ],
    },
    Axis {
        key: "block.bias",
        values: &[
            choice("none", "scores are products of query and key"),
            choice("t5", "a learned number by bucket of distances (T5)"),
            choice("alibi", "less by fixed steps with distance (ALiBi)"),
            choice("gauss", "a Gaussian around the query, of learned width"),
            choice("shaw", "the query times a vector by distance (Shaw)"),
            choice("xl", "contents and sines of distances (Transformer-XL)"),
            choice("deberta", "contents and distances, disentangled (DeBERTa)"),
            choice(
                "deberta_paper",
                "the same as the paper prints its third term",
            ),
        ],
    },
    Axis {
        key: "block.rotary",
        values: &[
            choice("false", "queries and keys as they are"),
            choice("true", "rotated by position (RoFormer)"),
        ],
    },
    Axis {
        key: "block.memory",
        values: &[
            choice("0", "every key is a token's"),
            choice(
                "8",
                "so many learned keys and values beside (all-attention)",
            ),
        ],
    },
    Axis {
        key: "embed.input",
        values: &[
            choice("ids", "a vector for each token id"),
            choice("scalar", "a linear map of the id as a number (pixels)"),
        ],
    },
    Axis {
        key: "embed.positions",
        values: &[
            choice("sinusoid", "sines and cosines"),
            choice("learned", "a learned vector per position"),
            choice("complex", "token vectors that turn with the position"),
            choice(
                "conditional",
                "by a convolution after the first block (CPVT)",
            ),
            choice("none", "not marked"),
        ],
    },
    Axis {
        key: "embed.every_layer",
        values: &[
            choice("false", "positions are added once"),
            choice("true", "positions are added before every block"),
        ],
    },
    Axis {
        key: "head.layers",
        values: &[
            choice("last", "the last block's states are pooled"),
            choice(
                "mix",
                "a weighted sum of all blocks' (transparent attention)",
            ),
        ],
    },
];

impl Axis {
    /// Returns its value in `settings`, an object of sections; none if that is no value of the
    /// list.
    pub(crate) fn value_in(&self, settings: &Value) -> Option<&'static Choice> {
        let (section, name) = self.key.split_once('.')?;
        let value = &settings[section][name];
        let text = value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned);
        self.values.iter().find(|choice| choice.value == text)
    }

    /// Returns `options` with this axis at `choice`, and the other axes as the choice requires
    /// them.
    ///
    /// # Errors
    /// [`Error::Option`] if there is no such value.
    pub fn set(&self, options: &Options, choice: &Choice) -> Result<Options> {
        let mut settings = to_json(options);
        let wanted = choice.wants.iter().copied();
        for (key, value) in wanted.chain([(self.key, choice.value)]) {
            let Some((section, name)) = key.split_once('.') else {
                return Err(Error::Input(format!("{key} is no key of an axis")));
            };
            // Numbers and truth values as such, names as text.
            let value: Value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
            overlay(&mut settings, &json!({ section: { name: value } }));
        }
        serde_json::from_value(settings).map_err(|error| Error::Option {
            key: self.key.to_owned(),
            value: choice.value.to_owned(),
            allowed: error.to_string(),
        })
    }
}

impl Options {
    /// Returns the losses that the axes bring with them; the model may have others (see
    /// [`crate::Classifier::losses`]).
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let settings = to_json(self);
        let choices = AXES.iter().filter_map(|axis| axis.value_in(&settings));
        choices.flat_map(|choice| choice.losses).copied().collect()
    }
}
