//! Entries of the registry: name, cost, variants and constructor of a model.

use std::{any::type_name, fmt, panic::Location};

use serde_json::{Map, Value, json};

use crate::{
    Encoder, Error, Family, LayerContext, Mixer, ModelContext, Options, Result, VarBuilder,
    context::{Geometry, OwnOptions},
    encoder,
    loss::Loss,
    options::{
        BlockOptions, EmbedOptions, HeadOptions, Layers, OptionSet, Range, overlay, to_json,
    },
};

/// One entry of the registry.
pub struct Model {
    /// Name on the command line.
    pub name: &'static str,
    /// Name in tables.
    pub title: &'static str,
    /// Title of the paper.
    pub paper: &'static str,
    /// Year of its first version.
    pub year: u16,
    /// arXiv number; empty if it has none.
    pub arxiv: &'static str,
    /// Time per head over length L, for head width E.
    pub time: Cost,
    /// Memory per head, parameters aside.
    pub memory: Cost,
    /// Origin of its parity cases.
    pub reference: Reference,
    /// Settings that its authors put around the mixer, for recipes that have settings for each
    /// family.
    pub family: Family,
    /// Settings of its own, laid over all defaults before the recipe: JSON, an object of sections
    /// as in a recipe. Empty for none.
    pub settings: &'static str,
    /// Values of its option `variant`, which select its computation; the first is the default.
    pub variants: &'static [Variant],
    /// The options of its own that all variants share, every key with its default.
    pub options: fn() -> Value,
    /// The range of every numeric option.
    pub ranges: &'static [Range],
}

/// Growth of a cost with the length L: the O() that a paper gives, with the symbols of the model's
/// documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Proportional to L or L log L.
    Linear(&'static str),
    /// Proportional to L √L.
    Sqrt(&'static str),
    /// A linear and a quadratic part; which of them weighs more depends on the sizes.
    Mixed(&'static str),
    /// Proportional to L².
    Quadratic(&'static str),
}

impl fmt::Display for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Linear(text) | Self::Sqrt(text) | Self::Mixed(text) | Self::Quadratic(text)) =
            self;
        f.pad(text)
    }
}

/// Reference that a model's numbers are compared with (`models/tests/parity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// A package by other authors; at least three cases.
    Package,
    /// A float64 program of our own, written from the paper's equations where no package can be
    /// used; at least three cases.
    Equations,
    /// The cases of the model whose computation this is, with other settings.
    Shared,
    /// No reference: no paper describes the model.
    None,
}

impl Reference {
    /// Returns its name in listings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Package => "package",
            Self::Equations => "equations",
            Self::Shared => "shared",
            Self::None => "none",
        }
    }
}

/// One computation of a model.
pub struct Variant {
    /// Value of the option `variant`.
    pub name: &'static str,
    /// Whether padded tokens cannot influence valid ones.
    pub masks_padding: bool,
    /// Builds the encoder; options that have a default of 0 have one of the variant's own in its
    /// place.
    pub build: fn(&ModelContext) -> Result<Box<dyn Encoder>>,
    /// The losses that it can add to the cross-entropy; its options select those that it adds (see
    /// [`crate::Mixer::losses`]).
    pub losses: &'static [Loss],
    /// Returns the name of the type of its mixer; `None` if it has a builder of its own.
    pub mixer: Option<fn() -> &'static str>,
    /// The text of the file that defines it; the header of `//!` lines is its documentation.
    pub source: &'static str,
    /// The line of that file where it is declared.
    pub declared: &'static Location<'static>,
}

/// Headings in the documentation of a model, in this order: its own options, what happens to padded
/// positions, and where it departs from the paper or from published code.
pub const HEADINGS: [&str; 3] = ["Options", "Padding", "Departures"];

/// A mixer that makes a model: a stack of residual blocks around it.
///
/// The entry of the registry follows from it: [`Model::mixer`] has its options, and
/// [`Variant::mixer`] builds the stack. A model with another skeleton has a function that builds
/// its [`Encoder`], see [`Variant::paper`] and [`Model::with_options`].
pub trait MixerModel: Mixer + Sized + 'static {
    /// Options of the model, with their defaults and ranges.
    type Options: OptionSet;

    /// Refuses options that do not go together or do not fit the block.
    ///
    /// # Errors
    /// [`Error::Option`] naming the option, by [`crate::prelude::require`].
    fn check(_options: &Self::Options, _context: &ModelContext) -> Result<()> {
        Ok(())
    }

    /// Creates the mixer of one layer, with parameters under `layer.vb`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    fn new(layer: &LayerContext, options: &Self::Options) -> Result<Self>;
}

/// Builds a stack of residual blocks around a mixer.
fn stack<M: MixerModel>(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: M::Options = context.options()?;
    M::check(&options, context)?;
    encoder::blocks(context, |layer| Ok(Box::new(M::new(layer, &options)?)))
}

/// Returns the options of a model by their defaults.
fn defaults<O: OptionSet>() -> Value {
    to_json(&O::default())
}

/// The option that names a variant.
const KEY: &str = "variant";

impl Model {
    /// Returns the part of an entry that follows from a mixer: its options. The rest, the card, is
    /// to be filled in: `Model { name: "bag", .., ..Model::mixer::<Bag>() }`.
    #[must_use]
    pub const fn mixer<M: MixerModel>() -> Self {
        Self::with_options::<M::Options>()
    }

    /// Returns the part of an entry that follows from a struct of options. The rest, the card, is
    /// to be filled in.
    #[must_use]
    pub const fn with_options<O: OptionSet>() -> Self {
        Self {
            name: "",
            title: "",
            paper: "",
            year: 0,
            arxiv: "",
            time: Cost::Linear(""),
            memory: Cost::Linear(""),
            reference: Reference::None,
            family: Family::Xformer,
            settings: "",
            variants: &[],
            options: defaults::<O>,
            ranges: O::RANGES,
        }
    }

    /// Returns the model's own options, every key with its default; `variant` is one where there
    /// are several.
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

    /// Returns the settings that the model has in place of the defaults, by section.
    ///
    /// # Errors
    /// [`Error::Options`] if they are no JSON.
    pub fn settings(&self) -> Result<Value> {
        if self.settings.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        serde_json::from_str(self.settings).map_err(|error| Error::Options {
            section: self.name.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Returns the variant that the model's own `options` ask for; the first if they name none.
    ///
    /// # Errors
    /// [`crate::Error::Word`] with the names that there are.
    pub fn variant(&self, options: &Value) -> Result<&'static Variant> {
        let Some(expected) = options.get(KEY) else {
            return Ok(&self.variants[0]);
        };
        let actual = self.variants.iter();
        let mut actual = actual.filter(|variant| Some(variant.name) == expected.as_str());
        actual.next().ok_or_else(|| {
            let known = self.variants.iter().map(|variant| variant.name.to_owned());
            Error::Word {
                key: format!("model.{KEY}"),
                value: expected
                    .as_str()
                    .map_or_else(|| expected.to_string(), str::to_owned),
                known: known.collect(),
            }
        })
    }

    /// Returns the declaration of its own options.
    #[must_use]
    pub(crate) const fn own_options(&self) -> OwnOptions {
        OwnOptions {
            defaults: self.options,
            ranges: self.ranges,
        }
    }

    /// Builds the encoder of the variant that the options ask for.
    ///
    /// # Errors
    /// [`crate::Error::Option`] or [`crate::Error::Options`] for options out of range or unknown.
    pub fn build(&self, context: &ModelContext) -> Result<Box<dyn Encoder>> {
        (self.variant(context.model)?.build)(context)
    }

    /// Returns the model's documentation: that of its default variant.
    #[must_use]
    pub fn documentation(&self) -> String {
        self.variants[0].documentation()
    }
}

impl Variant {
    /// Builds the variant that the model's paper describes, which leaves padding out. `source` is
    /// the text of the file that documents it, by `include_str!`.
    #[must_use]
    #[track_caller]
    pub const fn paper(
        build: fn(&ModelContext) -> Result<Box<dyn Encoder>>,
        source: &'static str,
    ) -> Self {
        Self {
            name: "paper",
            masks_padding: true,
            build,
            losses: &[],
            mixer: None,
            source,
            declared: Location::caller(),
        }
    }

    /// Builds [`Variant::paper`] of a stack of residual blocks around a mixer. `source` is the text
    /// of the file that documents it, by `include_str!`.
    #[must_use]
    #[track_caller]
    pub const fn mixer<M: MixerModel>(source: &'static str) -> Self {
        Self {
            mixer: Some(type_name::<M>),
            ..Self::paper(stack::<M>, source)
        }
    }

    /// Returns this variant with losses beside the cross-entropy.
    #[must_use]
    pub const fn with_losses(self, losses: &'static [Loss]) -> Self {
        Self { losses, ..self }
    }

    /// Returns the variant's documentation: the `//!` header of its file, without the marks.
    #[must_use]
    pub fn documentation(&self) -> String {
        self.source
            .lines()
            .map_while(|line| line.strip_prefix("//!"))
            .map(|line| line.strip_prefix(' ').unwrap_or(line))
            .collect::<Vec<_>>()
            .join("\n")
    }

    /// Returns the text below one of the [`HEADINGS`] in the variant's documentation; none if it
    /// has no such heading.
    #[must_use]
    pub fn section(&self, heading: &str) -> Option<String> {
        let text = self.documentation();
        let mut lines = text.lines();
        lines.find(|line| line.strip_prefix("# ") == Some(heading))?;
        let lines: Vec<&str> = lines.take_while(|line| !line.starts_with("# ")).collect();
        Some(lines.join("\n").trim().to_owned())
    }
}

impl Options {
    /// Returns the defaults for `model`.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        let mut settings = json!({
            "embed": EmbedOptions::default(),
            "block": BlockOptions::default(),
            "head": HeadOptions::default(),
            "model": model.defaults(),
        });
        if let Ok(Value::Object(mut own)) = model.settings() {
            own.remove("train");
            overlay(&mut settings, &Value::Object(own));
        }
        // A test of the registry reads every entry's settings.
        serde_json::from_value(settings).expect("settings of a registry's entry")
    }
}

impl<'a> ModelContext<'a> {
    /// Builds `model` with its `options`, for sequences without CLS slot, grid and second tower.
    /// Only the embedding marks positions, and only the last hidden states are returned.
    #[must_use]
    pub fn new(
        vb: VarBuilder,
        block: &'a BlockOptions,
        model: &Model,
        options: &'a Value,
        max_length: usize,
    ) -> Self {
        Self {
            vb,
            block,
            model: options,
            max_length,
            cls: false,
            geometry: Geometry::default(),
            positions: None,
            conditional: false,
            layers: Layers::Last,
            own: model.own_options(),
        }
    }
}
