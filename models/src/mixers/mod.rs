//! The registry. To add a model: one file here, its `mod` line, its entry in [`MODELS`].

use serde_json::Value;

use crate::{
    Result,
    encoder::{Build, Encoder},
};

mod bag;
mod bigbird;
mod linear;
mod linformer;
mod local;
mod longformer;
mod performer;
mod reformer;
mod sinkhorn;
mod sparse;
mod synthesizer;
mod transformer;

/// Every model, in the order of the published tables.
pub static MODELS: &[&Model] = &[
    &transformer::MODEL,
    &local::MODEL,
    &sparse::MODEL,
    &longformer::MODEL,
    &linformer::MODEL,
    &reformer::MODEL,
    &sinkhorn::MODEL,
    &synthesizer::MODEL,
    &bigbird::MODEL,
    &linear::MODEL,
    &performer::MODEL,
    &bag::MODEL,
];

/// One entry of the registry.
pub struct Model {
    /// What the command line calls it.
    pub name: &'static str,
    /// What tables call it.
    pub title: &'static str,
    /// Title of the paper.
    pub paper: &'static str,
    /// Year of its first version.
    pub year: u16,
    /// arXiv number; empty if it has none.
    pub arxiv: &'static str,
    /// Time per head over length L, for head width E.
    pub time: &'static str,
    /// Memory per head, parameters aside.
    pub memory: &'static str,
    /// Whether padded tokens are kept from influencing real ones.
    pub masks_padding: bool,
    /// Values of the option `variant`; the first is the default.
    pub variants: &'static [&'static str],
    /// The model's own options, every key with its default.
    pub defaults: fn() -> Value,
    /// Builds the encoder.
    pub build: fn(&Build) -> Result<Box<dyn Encoder>>,
    /// The file that defines it.
    source: &'static str,
}

impl Model {
    /// The model's documentation: the `//!` header of its file, without the marks.
    #[must_use]
    pub fn documentation(&self) -> String {
        self.source
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

/// The model called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Model> {
    MODELS.iter().copied().find(|model| model.name == name)
}
