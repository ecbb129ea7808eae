//! Inputs from which a model, and one layer of it, is built.

use candle_core::Tensor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Result, VarBuilder,
    error::require,
    options::{self, BlockOptions, Layers, Range, Residual, to_json},
    supports::Supports,
};

/// Structure of a task's examples, beside the length of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Height and width of the image whose pixels a sequence is, row by row, without the CLS slot.
    /// `None` if sequences are no images.
    pub grid: Option<[usize; 2]>,
    /// Number of sequences in an example: 1 or 2.
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

/// Way in which a model declares its own options.
#[derive(Clone, Copy)]
pub(crate) struct OwnOptions {
    /// Every key with its default.
    pub defaults: fn() -> Value,
    /// The range of every numeric option.
    pub ranges: &'static [Range],
}

/// Inputs from which a model is built.
pub struct ModelContext<'a> {
    /// Builder of the model's parameters.
    pub vb: VarBuilder,
    /// The residual blocks' options, already validated.
    pub block: &'a BlockOptions,
    /// The model's own options, with every key present.
    pub model: &'a Value,
    /// Largest length that the model will get, with the CLS slot.
    pub max_length: usize,
    /// True if position 0 is a CLS token.
    pub cls: bool,
    /// Structure of the task's examples: image grid and number of sequences.
    pub geometry: Geometry,
    /// Position vectors (S, D) that are added to the input of every block but the first. S is the
    /// largest number of slots of a sequence. `None` if positions are not marked anew before each
    /// block.
    pub positions: Option<Tensor>,
    /// True if a convolution that marks positions is to follow the first block.
    pub conditional: bool,
    /// Selection of the hidden states that the encoder returns.
    pub layers: Layers,
    /// Declaration of the model's own options.
    pub(crate) own: OwnOptions,
}

impl ModelContext<'_> {
    /// Returns the model's own options as a value of type `T`. The option `variant` is left out,
    /// since it has selected the `build` that runs.
    ///
    /// # Errors
    /// Errors of [`options::read`].
    pub fn options<T: DeserializeOwned>(&self) -> Result<T> {
        let mut own = self.model.clone();
        if let Value::Object(own) = &mut own {
            own.shift_remove("variant");
        }
        options::read("model", &own, &(self.own.defaults)(), self.own.ranges)
    }
}

impl ModelContext<'_> {
    /// Refuses options that only a stack of residual blocks supports, for encoders whose layers are
    /// none; `reason` begins with "because".
    ///
    /// # Errors
    /// [`crate::Error::Option`] naming the component.
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

    /// Refuses options that need all blocks to have one length, for encoders whose blocks have
    /// several; `reason` begins with "because".
    ///
    /// # Errors
    /// [`crate::Error::Option`] naming the component.
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

/// Inputs from which one mixer of a stack is built.
pub struct LayerContext<'a> {
    /// Builder of the mixer's parameters; its path names the mixer's random streams.
    pub vb: VarBuilder,
    /// Builder of the parameters that all layers share.
    pub shared: VarBuilder,
    /// Options of the residual blocks, such as widths, heads and dropout rates.
    pub block: &'a BlockOptions,
    /// Largest length that the mixer will get, with the CLS slot.
    pub max_length: usize,
    /// True if position 0 is a CLS token.
    pub cls: bool,
    /// Structure of the task's examples: image grid and number of sequences.
    pub geometry: Geometry,
    /// Index of the block, from 0.
    pub index: usize,
}

impl<'a> LayerContext<'a> {
    /// Returns the context of layer 0 at `vb`, for sequences without a CLS slot, an image grid or a
    /// second tower. Parameters that all layers share are created at `vb`, too.
    #[must_use]
    pub fn new(vb: VarBuilder, block: &'a BlockOptions, max_length: usize) -> Self {
        Self {
            shared: vb.clone(),
            vb,
            block,
            max_length,
            cls: false,
            geometry: Geometry::default(),
            index: 0,
        }
    }
}
