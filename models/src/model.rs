//! What an entry of the registry says: who the model is, what it computes, how it is built.

use serde_json::{Map, Value};

use crate::{Encoder, Error, ModelContext, Result, options::Range};

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
    pub(crate) build: fn(&ModelContext) -> Result<Box<dyn Encoder>>,
    /// The file that defines it.
    pub(crate) source: &'static str,
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
    pub fn build(&self, context: &ModelContext) -> Result<Box<dyn Encoder>> {
        (self.variant(context.model)?.build)(context)
    }

    /// The model's documentation: that of its default variant.
    #[must_use]
    pub fn documentation(&self) -> String {
        self.variants[0].documentation()
    }
}

impl Variant {
    /// What the model's paper says, padding left out.
    pub(crate) const fn paper(
        build: fn(&ModelContext) -> Result<Box<dyn Encoder>>,
        source: &'static str,
    ) -> Self {
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
