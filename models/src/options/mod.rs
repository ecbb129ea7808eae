//! Every number that a model's construction depends on, with its range.

mod block;
mod embed;
mod head;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::block::{
    BlockOptions, ChannelKind, Gate, NormKind, NormPlace, PairBias, Residual, ScaleNorm,
};
pub use self::embed::{EmbedOptions, Input, Positions, ScalarInit};
pub use self::head::{Features, HeadOptions, Layers, Pooling};
pub use crate::choice::{Choice, Choices, Component, OptionSet};
pub use crate::ops::activation::Activation;
pub use crate::range::{LONGEST, Range, WIDEST, read};
use crate::{Result, error::require};

/// All options of a classifier: those around the mixer, and the mixer's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// The way from token ids to vectors.
    pub embed: EmbedOptions,
    /// The residual blocks.
    pub block: BlockOptions,
    /// The way from hidden states to logits.
    pub head: HeadOptions,
    /// The mixer's own options, with every key present: overlay changes on
    /// [`crate::Model::defaults`].
    pub model: Value,
}

impl Options {
    /// Checks every range, and refuses combinations of components that cannot be computed or that
    /// no paper defines. The mixer's own options are checked by its `build`.
    ///
    /// # Errors
    /// [`crate::Error::Option`] naming key, value and allowed values; [`crate::Error::Unread`] for
    /// a number that is not finite.
    pub fn validate(&self) -> Result<()> {
        let block = &self.block;
        check("embed", &self.embed)?;
        check("block", block)?;
        check("head", &self.head)?;
        require(
            block.qkv_dim.is_multiple_of(block.heads),
            "block.qkv_dim",
            block.qkv_dim,
            format!("a multiple of block.heads = {}", block.heads),
        )?;
        self.check_block()
    }

    /// Refuses combinations of the block's components that no paper defines or that cannot be computed.
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
            Residual::Reversible if block.has_running_norm() => refuse(
                "reversible",
                "plain where block.norm = power, batch or batch_masked, whose state is updated by the passes that are run again",
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
            Residual::Reversible if self.embed.positions == Positions::Conditional => refuse(
                "reversible",
                "plain where embed.positions = conditional, which cannot be undone",
            ),
            Residual::Admin if !post => {
                refuse("admin", "another one unless block.norm_place = post")
            }
            Residual::Rezero if !bare => refuse("rezero", "another one unless block.norm = none"),
            _ => Ok(()),
        }?;
        require(
            block.norm != NormKind::Ada || block.dim >= 2,
            "block.norm",
            "ada",
            "another norm unless block.dim is at least 2",
        )?;
        require(
            block.gate == Gate::None || !matches!(block.ffn, ChannelKind::None | ChannelKind::Conv),
            "block.gate",
            "glu",
            "none where block.ffn = none or conv",
        )?;
        require(
            block.ffn != ChannelKind::ProductKeys || block.product_top <= block.product_keys,
            "block.product_top",
            block.product_top,
            format!("at most block.product_keys = {}", block.product_keys),
        )?;
        require(
            !block.dropout_tied || block.ffn == ChannelKind::None,
            "block.dropout_tied",
            true,
            "false unless block.ffn = none",
        )?;
        require(
            block.last_norm || block.norm_place == NormPlace::Pre,
            "block.last_norm",
            false,
            "true where block.norm_place = post, which has none to leave out",
        )?;
        require(
            self.head.layers == Layers::Last || !block.has_running_last_norm(),
            "head.layers",
            "mix",
            "last where block.norm = power, batch or batch_masked, since the last norm's running statistics are of one layer",
        )?;
        require(
            self.embed.input == Input::Ids || self.embed.positions != Positions::Complex,
            "embed.input",
            "scalar",
            "ids where embed.positions = complex",
        )?;
        let table = matches!(
            self.embed.positions,
            Positions::Sinusoid | Positions::Learned
        );
        require(
            !self.embed.every_layer || table,
            "embed.every_layer",
            true,
            "false unless embed.positions is sinusoid or learned",
        )?;
        require(
            self.embed.positions != Positions::Complex || block.dim.is_multiple_of(2),
            "embed.positions",
            "complex",
            "another one unless block.dim is even",
        )
    }
}

/// Checks the ranges of a section.
pub(crate) fn check<T: OptionSet>(section: &str, options: &T) -> Result<()> {
    let usual = to_json(&T::default());
    read::<T>(section, &to_json(options), &usual, T::RANGES).map(drop)
}

/// Returns `options` as a JSON object with every key.
#[must_use]
pub fn to_json(options: &impl Serialize) -> Value {
    // A struct of numbers and names always has a JSON form.
    serde_json::to_value(options).unwrap_or(Value::Null)
}

/// Replaces values of `base` by those of `over`, object by object. Unknown keys are kept, for
/// deserialization to refuse.
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
