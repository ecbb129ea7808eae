//! Declarations of options: the values of an axis, and the options of a section or of a model.
//!
//! `#[derive(Options)]` and `#[derive(Choices)]` write them from a struct and an enum (see
//! [`lra_derive`]).

pub use lra_derive::Choices;
use serde::{Serialize, de::DeserializeOwned};

use crate::range::Range;

/// An axis: an option around any mixer with values that can be listed.
#[derive(Clone, Copy)]
pub struct Axis {
    /// Key of the axis, as in `--set`.
    pub key: &'static str,
    /// Values of the axis; the first is the default.
    pub values: &'static [Choice],
}

/// One value of an axis.
#[derive(Clone, Copy)]
pub struct Choice {
    /// Name of the value in settings.
    pub value: &'static str,
    /// Short description of its effect.
    pub summary: &'static str,
    /// Values of other axes that it requires.
    pub wants: &'static [(&'static str, &'static str)],
}

impl Choice {
    /// Returns a value that goes with all values of the other axes.
    #[must_use]
    pub const fn new(value: &'static str, summary: &'static str) -> Self {
        Self {
            value,
            summary,
            wants: &[],
        }
    }

    /// Returns this value, which requires these values of other axes.
    #[must_use]
    pub const fn wants(self, wants: &'static [(&'static str, &'static str)]) -> Self {
        Self { wants, ..self }
    }
}

/// An enum of the values of an option, by `#[derive(Choices)]`.
pub trait Choices {
    /// All values, in the order of the enum.
    const CHOICES: &'static [Choice];
}

/// A struct of options, by `#[derive(Options)]`.
pub trait OptionSet: Default + Serialize + DeserializeOwned {
    /// The range of every number, in the order of the struct.
    const RANGES: &'static [Range];
    /// The axes, in the order of the struct.
    const AXES: &'static [Axis];
}
