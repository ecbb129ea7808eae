//! The names that a mixer needs: `use lra_models::prelude::*;`.
//!
//! Here are the traits and the registry's entry, the inputs of construction and of a pass, layers
//! with weights, and [`ops`]. Operations of one field, such as [`ops::attention`], have further
//! names of their own.

#[doc(no_inline)]
pub use candle_core::{D, DType, Device, Tensor};
#[doc(no_inline)]
pub use candle_nn::Init;
pub use lra_derive::Options;
#[doc(no_inline)]
pub use serde::{Deserialize, Serialize};

pub use crate::{
    Cost, Encoder, Error, Family, LayerContext, Mask, Mixer, MixerModel, Model, ModelContext, Pass,
    Reference, Result, VarBuilder, Variant, encoder,
    error::require,
    layers::{Dropout, Linear, Projections, Supports},
    loss::Loss,
    mask::zero_padding,
    ops::{
        self, add,
        attention::{self, AttentionOptions, BlockMasks, partial_softmax},
        cat, cumsum, matmul, softmax, swap_axes, take,
    },
    options::{BlockOptions, LONGEST, Residual, WIDEST, to_json},
    params::{Attributes, xavier_uniform},
    rng::StreamKey,
};

/// Options of a mixer that has no options.
#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoOptions {}
