//! What a model, and one layer of it, is built from.

use candle_core::Tensor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Result, VarBuilder,
    error::require,
    options::{self, BlockOptions, Layers, Range, Residual, to_json},
    supports::Supports,
};

/// What the sequences of a task are, beside tokens in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Height and width of the image whose pixels they are, row by row, the CLS slot aside; none where they are no image.
    pub grid: Option<[usize; 2]>,
    /// How many of them an example has.
    pub towers: usize,
}

impl Default for Geometry {
    fn default() -> Self {
        Self {
            grid: None,
            towers: 1,
        }
    }
}

/// How a model declares its own options.
#[derive(Clone, Copy)]
pub struct OwnOptions {
    /// Every key with its default.
    pub defaults: fn() -> Value,
    /// The range of every number among them.
    pub ranges: &'static [Range],
}

/// What a model is built from.
pub struct ModelContext<'a> {
    /// Where the parameters go.
    pub vb: VarBuilder,
    /// The residual blocks' options, already validated.
    pub block: &'a BlockOptions,
    /// The model's own options, every key present.
    pub model: &'a Value,
    /// Largest length it will meet, with the CLS slot.
    pub max_length: usize,
    /// Whether position 0 is a CLS token.
    pub cls: bool,
    /// What the task's sequences are.
    pub geometry: Geometry,
    /// What is to be added to the input of every block but the first, (slots, D).
    pub positions: Option<Tensor>,
    /// Whether the first block is to be followed by [`crate::layers::ConditionalPositions`].
    pub conditional: bool,
    /// Which hidden states are wanted.
    pub layers: Layers,
    /// How the model declares its own options.
    pub own: OwnOptions,
}

impl ModelContext<'_> {
    /// The model's own options, typed; without `variant`, which has said whose `build` this is.
    ///
    /// # Errors
    /// As [`options::read`].
    pub fn options<T: DeserializeOwned>(&self) -> Result<T> {
        let mut own = self.model.clone();
        if let Value::Object(own) = &mut own {
            own.shift_remove("variant");
        }
        options::read("model", &own, &(self.own.defaults)(), self.own.ranges)
    }
}

impl ModelContext<'_> {
    /// Refuses what only a stack of residual blocks has a place for, for encoders whose layers are none; `reason` begins with "because".
    ///
    /// # Errors
    /// [`crate::Error::Option`] naming the axis.
    pub(crate) fn refuse_block_axes(&self, reason: &str) -> Result<()> {
        Supports::none("no form of this model is defined with it").check(self.block)?;
        require(
            self.block.residual == Residual::Plain,
            "block.residual",
            to_json(&self.block.residual),
            format!("plain, {reason}"),
        )?;
        require(
            !self.conditional,
            "embed.positions",
            "conditional",
            format!("none, {reason}"),
        )?;
        self.refuse_one_length(reason)
    }

    /// Refuses what wants all blocks to have one length, for encoders whose blocks have several; `reason` begins with "because".
    ///
    /// # Errors
    /// [`crate::Error::Option`] naming the axis.
    pub(crate) fn refuse_one_length(&self, reason: &str) -> Result<()> {
        require(
            self.layers == Layers::Last,
            "head.layers",
            "mix",
            format!("last, {reason}"),
        )?;
        require(
            self.positions.is_none(),
            "embed.every_layer",
            true,
            format!("false, {reason}"),
        )
    }
}

/// Where one mixer of a stack is built.
pub struct LayerContext<'a> {
    /// Where the mixer's parameters go; its path names its random streams.
    pub vb: VarBuilder,
    /// Where the parameters go that all layers have in common.
    pub shared: VarBuilder,
    /// Widths, heads and dropout rates.
    pub block: &'a BlockOptions,
    /// Largest length it will meet, with the CLS slot.
    pub max_length: usize,
    /// Whether position 0 is a CLS token.
    pub cls: bool,
    /// What the task's sequences are.
    pub geometry: Geometry,
    /// Index of the block, from 0.
    pub layer: usize,
}

impl<'a> LayerContext<'a> {
    /// The first layer, at `vb`, of sequences without CLS slot, grid and second tower; what all layers have in common goes to the same place.
    #[must_use]
    pub fn new(vb: VarBuilder, block: &'a BlockOptions, max_length: usize) -> Self {
        Self {
            shared: vb.clone(),
            vb,
            block,
            max_length,
            cls: false,
            geometry: Geometry::default(),
            layer: 0,
        }
    }
}
