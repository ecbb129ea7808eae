//! Efficient Transformers on candle, behind one interface: a mixer maps (B, L, D) to (B, L, D).
//!
//! # Symbols
//! B batch, L length (with the CLS slot, where there is one), D width of the residual stream
//! (`dim`), H heads, E width of one head (`qkv_dim / heads`), C classes.
//!
//! # From tokens to logits
//! [`Classifier`]: token ids (B, L) -> embedding + positions (B, L, D) -> [`Encoder`] -> pooling
//! (B, D) -> head (B, C). [`encoder::blocks`] lifts a [`Mixer`] to an encoder; a model with another
//! skeleton implements [`Encoder`] itself. [`MODELS`] lists all models of this crate,
//! [`registry()`] also those that a program has added by [`register`].
//!
//! # Masks
//! A mask is (B, L), 1 for valid tokens and 0 for padding. A mixer that can leave out padded *keys*
//! does so. Its outputs at padded positions are read only by `block.norm = batch`, whose published
//! statistics count padding, because pooling leaves them out too. A row with no valid token gives
//! zeros, not NaN.
//!
//! # Randomness
//! No generator has a state: initial values depend on (seed, path), and all random numbers of a
//! forward pass on (seed, step, path, row). See [`rng`] and [`params`].
//!
//! # A mixer of your own
//! [`prelude`] has the names that it needs, [`MixerModel`] makes a registry entry of it,
//! [`testing`] and [`conformance`] check it.
//!
//! # Outside this crate
//! This crate has no task names, reads no files and no clock, and prints nothing.

#![cfg_attr(test, allow(clippy::unwrap_used))]

// Derived code names this crate as others do.
extern crate self as lra_models;

mod autograd;
pub mod auxiliary;
mod backbone;
mod block;
mod choice;
pub mod classifier;
pub mod components;
pub mod conformance;
pub mod context;
// In a build for the CPU only nothing reads what would be launched.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
mod cuda;
pub mod encoder;
mod error;
mod family;
mod head;
mod hippo;
mod inputs;
pub mod layers;
pub mod loss;
pub mod mask;
mod mixer;
pub mod mixers;
mod model;
pub mod ops;
pub mod options;
pub mod params;
pub mod parity;
pub mod pass;
mod prediction;
pub mod prelude;
pub mod pretraining;
mod range;
pub mod reference;
pub mod registry;
pub mod rng;
pub mod size;
pub mod source;
mod supports;
pub mod testing;

pub use auxiliary::Auxiliary;
pub use classifier::Classifier;
pub use components::COMPONENTS;
pub use context::{LayerContext, ModelContext};
pub use encoder::{Encoded, Encoder};
pub use error::{Error, Result};
pub use family::Family;
pub use inputs::{DenseLabels, Inputs, Logits, Shape, Tokens};
pub use mask::Mask;
pub use mixer::Mixer;
pub use mixers::{MODELS, register, registry};
pub use model::{Cost, MixerModel, Model, Reference, Variant};
pub use ops::packing;
pub use ops::packing::Packing;
pub use options::{Component, Options};
pub use params::{Parameters, VarBuilder};
pub use pass::Pass;
pub use pretraining::{Objective, TokenModel};
pub use rng::RngKey;
pub use source::Place;
