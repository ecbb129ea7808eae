//! Declarations of options: the values of a component, and the options of a section or of a model.
//!
//! `#[derive(Options)]` and `#[derive(Choices)]` write them from a struct and an enum (see
//! [`lra_derive`]).

pub use lra_derive::Choices;
use serde::{Serialize, de::DeserializeOwned};

use crate::range::Range;

/// Option of the embedding, the block or the head, around any mixer, with the list of its values.
#[derive(Clone, Copy)]
pub struct Component {
    /// Key of the component, as in `--set`.
    pub key: &'static str,
    /// Values of the component; the first is the default.
    pub values: &'static [Choice],
}

/// Value of a [`Component`].
#[derive(Clone, Copy)]
pub struct Choice {
    /// Name of the value in settings.
    pub value: &'static str,
    /// Short description of its effect.
    pub summary: &'static str,
    /// Values of other components that it requires.
    pub wants: &'static [(&'static str, &'static str)],
}

impl Choice {
    /// Returns the value `value` with its `summary`. It goes with all values of the other
    /// components.
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
    /// All values, in the order of the enum.
    const CHOICES: &'static [Choice];
}

/// Struct of options, those of a section or a model's own. `#[derive(Options)]` implements it.
pub trait OptionSet: Default + Serialize + DeserializeOwned {
    /// The ranges of all numeric options, in the order of the struct.
    const RANGES: &'static [Range];
    /// The components, in the order of the struct.
    const COMPONENTS: &'static [Component];
    /// The documentation of every option by its key, in the order of the struct.
    const SUMMARIES: &'static [(&'static str, &'static str)];
}
