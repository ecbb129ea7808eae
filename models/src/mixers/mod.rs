//! The registry. To add a model: one file here, its `mod` line, its entry in [`MODELS`]. To add a variant: its entry in the model's list.

use serde_json::{Map, Value};

use crate::{
    Error, Result,
    encoder::{Build, Encoder},
    options::Range,
};

mod bag;
mod bigbird;
mod fnet;
mod linear;
mod linformer;
mod local;
mod longformer;
mod performer;
mod reformer;
mod sinkhorn;
mod sparse;
mod synthesizer;
mod tay2021;
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
    &fnet::MODEL,
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
    /// What it can compute, by the values of its option `variant`; the first is the default.
    pub variants: &'static [Variant],
    /// The options of its own that all variants share, every key with its default.
    pub(crate) options: fn() -> Value,
    /// The range of every number among them.
    pub ranges: &'static [Range],
}

/// One computation of a model.
pub struct Variant {
    /// What the option `variant` calls it.
    pub name: &'static str,
    /// Whether padded tokens are kept from influencing real ones.
    pub masks_padding: bool,
    /// Builds the encoder; options that have a default of 0 have one of the variant's own in its place.
    build: fn(&Build) -> Result<Box<dyn Encoder>>,
    /// The file that defines it.
    source: &'static str,
}

/// The option that names a variant.
const KEY: &str = "variant";

impl Model {
    /// The model's own options, every key with its default; `variant` is one where there are several.
    #[must_use]
    pub fn defaults(&self) -> Value {
        let mut all = Map::new();
        if self.variants.len() > 1 {
            all.insert(KEY.to_owned(), self.variants[0].name.into());
        }
        if let Value::Object(own) = (self.options)() {
            all.extend(own);
        }
        Value::Object(all)
    }

    /// The variant that the model's own `options` ask for; the first if they name none.
    ///
    /// # Errors
    /// [`crate::Error::Option`] with the names that there are.
    pub fn variant(&self, options: &Value) -> Result<&'static Variant> {
        let Some(wanted) = options.get(KEY) else {
            return Ok(&self.variants[0]);
        };
        let found = self.variants.iter();
        let mut found = found.filter(|variant| Some(variant.name) == wanted.as_str());
        found.next().ok_or_else(|| {
            let known: Vec<&str> = self.variants.iter().map(|variant| variant.name).collect();
            Error::Option {
                key: format!("model.{KEY}"),
                value: wanted.to_string(),
                allowed: known.join(" or "),
            }
        })
    }

    /// Builds the encoder of the variant that the options ask for.
    ///
    /// # Errors
    /// [`crate::Error::Option`] or [`crate::Error::Options`] for options out of range or unknown.
    pub fn build(&self, build: &Build) -> Result<Box<dyn Encoder>> {
        (self.variant(build.model)?.build)(build)
    }

    /// The model's documentation: that of its default variant.
    #[must_use]
    pub fn documentation(&self) -> String {
        self.variants[0].documentation()
    }
}

impl Variant {
    /// What the model's paper says, padding left out.
    const fn paper(build: fn(&Build) -> Result<Box<dyn Encoder>>, source: &'static str) -> Self {
        Self {
            name: "paper",
            masks_padding: true,
            build,
            source,
        }
    }

    /// The variant's documentation: the `//!` header of its file, without the marks.
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
