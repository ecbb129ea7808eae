//! Declarations of options: the values of a component, and the options of a section or of a model.
//!
//! `#[derive(Options)]` and `#[derive(Choices)]` write them from a struct and an enum (see
//! [`lra_derive`]).

pub use lra_derive::Choices;
use serde::{Serialize, de::DeserializeOwned};

use crate::range::Range;

/// Option of the classifier around the mixer that takes one of a list of values, such as
/// `block.norm`. It belongs to the embedding, the block or the head.
#[derive(Clone, Copy)]
pub struct Component {
    /// Key of the component, as in `--set`, for example `block.norm`.
    pub key: &'static str,
    /// Values that the component can have. The first is the default.
    pub values: &'static [Choice],
}

/// One of the values that a [`Component`] can have.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Name of the value in settings, for example `rms`.
    pub value: &'static str,
    /// Short description of its effect.
    pub summary: &'static str,
    /// Values of other components that this value requires. Each pair is a component's key and the
    /// value that it must have.
    pub wants: &'static [(&'static str, &'static str)],
}

impl Choice {
    /// Returns the choice of `value`, with its short description `summary`. It requires no value of
    /// another component.
    #[must_use]
    pub const fn new(value: &'static str, summary: &'static str) -> Self {
        Self {
            value,
            summary,
            wants: &[],
        }
    }

    /// Returns this value with requirements: `wants` are pairs of another component's key and the
    /// value that it must have.
    #[must_use]
    pub const fn wants(self, wants: &'static [(&'static str, &'static str)]) -> Self {
        Self { wants, ..self }
    }
}

/// Enum of the values of an option. `#[derive(Choices)]` implements it.
pub trait Choices {
    /// All values, in the order of the enum's variants.
    const CHOICES: &'static [Choice];
}

/// Struct of options: those of a section, such as `block`, or a model's own. `#[derive(Options)]`
/// implements it.
pub trait OptionSet: Default + Serialize + DeserializeOwned {
    /// Ranges of all numeric options, in the order of the struct's fields.
    const RANGES: &'static [Range];
    /// Options that are components, in the order of the struct's fields.
    const COMPONENTS: &'static [Component];
    /// Key and documentation of every option, in the order of the struct's fields.
    const SUMMARIES: &'static [(&'static str, &'static str)];
}
