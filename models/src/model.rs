//! Entries of the registry: name, cost, variants and constructor of a model.

use std::{any::type_name, fmt, panic::Location};

use serde_json::{Map, Value, json};

use crate::{
    Encoder, Error, Family, LayerContext, Mixer, ModelContext, Options, Result, VarBuilder,
    context::{Geometry, OwnOptions},
    encoder,
    loss::Loss,
    options::{
        self, BlockOptions, EmbedOptions, HeadOptions, Layers, OptionSet, Range, overlay, to_json,
    },
};

/// Entry of the registry: a model's description in listings, its options and its variants.
pub struct Model {
    /// Name on the command line, such as `linear`.
    pub name: &'static str,
    /// Name in tables of results.
    pub title: &'static str,
    /// Title of the paper.
    pub paper: &'static str,
    /// Year of the paper's first version.
    pub year: u16,
    /// arXiv number of the paper; empty if it has none.
    pub arxiv: &'static str,
    /// Growth of the time of one head with the length L and the width E of the head.
    pub time: Cost,
    /// Growth of the memory of one head with the length L and the width E, without parameters.
    pub memory: Cost,
    /// Origin of the reference numbers that the model is compared with in tests.
    pub reference: Reference,
    /// Family of blocks that its authors put around the mixer. A recipe may have settings for each
    /// family.
    pub family: Family,
    /// Settings of the model itself, as JSON: an object of sections, as in a recipe. They replace
    /// defaults, and a recipe's settings replace them. Empty for none.
    pub settings: &'static str,
    /// Computations among which the option `variant` chooses. The first is the default.
    pub variants: &'static [Variant],
    /// Function that returns the model's own options that all variants share, every key with its
    /// default.
    pub options: fn() -> Value,
    /// Range of every numeric option of the model's own.
    pub ranges: &'static [Range],
}

/// Growth of a time or memory with the length L. The text of a variant is the O() that a paper
/// gives, with the symbols of the model's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Proportional to L or L log L.
    Linear(&'static str),
    /// Proportional to L √L.
    Sqrt(&'static str),
    /// A part proportional to L and one proportional to L². Their shares depend on the sizes.
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

/// Origin of the reference numbers that a model is compared with (`models/tests/parity`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reference {
    /// At least three cases computed by a package of other authors.
    Package,
    /// At least three cases computed by a float64 program of this project. It is written from the
    /// paper's equations, where no package can be used.
    Equations,
    /// Cases of another model, whose computation this model is with other settings.
    Shared,
    /// No reference: no paper describes the model.
    None,
}

impl Reference {
    /// Returns the name of this kind of reference in listings.
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

/// One of the computations of a model, between which its option `variant` chooses.
pub struct Variant {
    /// Value of the option `variant`.
    pub name: &'static str,
    /// True if padded tokens cannot influence valid ones.
    pub masks_padding: bool,
    /// Function that builds the encoder. Where an option is 0 by default, the variant may put its
    /// own default in place of the 0.
    pub build: fn(&ModelContext) -> Result<Box<dyn Encoder>>,
    /// Losses that the variant can add to the cross-entropy. Its options select those that it adds
    /// (see [`crate::Mixer::losses`]).
    pub losses: &'static [Loss],
    /// Function that returns the name of the mixer's type. `None` if the variant is not a stack of
    /// blocks around one mixer.
    pub mixer: Option<fn() -> &'static str>,
    /// Text of the file that defines the variant. The header of `//!` lines is its documentation.
    pub source: &'static str,
    /// Line of the source file where the variant is declared.
    pub declared: &'static Location<'static>,
}

/// Mixer from which a model is made: a stack of residual blocks around it.
///
/// The entry of the registry follows from it. [`Model::mixer`] has its options, and
/// [`Variant::mixer`] builds the stack. A model that is not such a stack has a function that builds
/// its [`Encoder`]. See [`Variant::paper`] and [`Model::with_options`].
pub trait MixerModel: Mixer + Sized + 'static {
    /// Options of the model, with their defaults and ranges.
    type Options: OptionSet;

    /// Checks that the options go together and fit the block. By default it accepts all.
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
    /// Returns an entry with the options of the mixer `M` and an empty card. The card is to be
    /// filled in: `Model { name: "bag", .., ..Model::mixer::<Bag>() }`.
    #[must_use]
    pub const fn mixer<M: MixerModel>() -> Self {
        Self::with_options::<M::Options>()
    }

    /// Returns an entry with the options `O` and an empty card, which is to be filled in.
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

    /// Returns the model's own options, every key with its default. The key `variant` is among them
    /// if there are several variants.
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

    /// Returns the settings of the model itself, as an object of sections. They replace the
    /// defaults.
    ///
    /// # Errors
    /// [`Error::Options`] if they are not JSON.
    pub fn settings(&self) -> Result<Value> {
        if self.settings.is_empty() {
            return Ok(Value::Object(Map::new()));
        }
        serde_json::from_str(self.settings).map_err(|error| Error::Options {
            section: self.name.to_owned(),
            reason: error.to_string(),
        })
    }

    /// Returns the variant that the model's own `options` name, or the first if they name none.
    ///
    /// # Errors
    /// [`crate::Error::Word`] with the names of all variants if `options` name another.
    ///
    /// # Panics
    /// If the entry has no variants.
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

    /// Builds the encoder of the variant that the options of `context` name.
    ///
    /// # Errors
    /// [`crate::Error::Option`], [`crate::Error::Options`] or [`crate::Error::Word`] for options
    /// that are out of range or unknown.
    pub fn build(&self, context: &ModelContext) -> Result<Box<dyn Encoder>> {
        (self.variant(context.model)?.build)(context)
    }
}

impl Variant {
    /// Returns a variant called `paper`, which masks padding and whose encoder `build` builds.
    /// `source` is the text of the file that documents it, by `include_str!`.
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

    /// Returns [`Variant::paper`] with a stack of residual blocks around the mixer `M`. `source` is
    /// the text of the file that documents it, by `include_str!`.
    #[must_use]
    #[track_caller]
    pub const fn mixer<M: MixerModel>(source: &'static str) -> Self {
        Self {
            mixer: Some(type_name::<M>),
            ..Self::paper(stack::<M>, source)
        }
    }

    /// Returns this variant, declaring `losses` as those that it can add to the cross-entropy.
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

    /// Returns the text below `heading`, such as `Options`, in the variant's documentation.
    /// `None` if it has no such heading.
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
    /// Returns the default options for `model`, as [`Options::try_of`] does, where its settings are
    /// known to be right: those of this crate's models are.
    ///
    /// # Panics
    /// If [`Options::try_of`] fails.
    #[must_use]
    pub fn of(model: &Model) -> Self {
        Self::try_of(model).unwrap_or_else(|error| panic!("model {}: {error}", model.name))
    }

    /// Returns the default options for `model`: the defaults of all sections, with the model's own
    /// settings ([`Model::settings()`]) in place of some of them. Those of the section `train` are
    /// left to the program that trains.
    ///
    /// # Errors
    /// [`Error::Options`] if the settings are no object of sections, or name an unknown section or
    /// an unknown option of the embedding, the block or the head; errors of [`options::read`] for a
    /// value that such an option cannot have.
    pub fn try_of(model: &Model) -> Result<Self> {
        let mut settings = json!({
            "embed": EmbedOptions::default(),
            "block": BlockOptions::default(),
            "head": HeadOptions::default(),
            "model": model.defaults(),
        });
        let refuse = |reason: String| {
            Err(Error::Options {
                section: model.name.to_owned(),
                reason,
            })
        };
        let Value::Object(own) = model.settings()? else {
            return refuse("the settings are no object of sections".to_owned());
        };
        for (name, values) in &own {
            match settings.get_mut(name) {
                Some(section) => overlay(section, values),
                None if name == "train" => {}
                None => return refuse(format!("unknown section `{name}`")),
            }
        }
        Ok(Self {
            embed: section("embed", &settings)?,
            block: section("block", &settings)?,
            head: section("head", &settings)?,
            model: settings["model"].take(),
        })
    }
}

/// Reads the section called `name`.
fn section<T: OptionSet>(name: &str, settings: &Value) -> Result<T> {
    let usual = to_json(&T::default());
    options::read(name, &settings[name], &usual, T::RANGES)
}

impl<'a> ModelContext<'a> {
    /// Returns the context from which `model` is built with its `options`, for sequences without a
    /// CLS slot, an image grid or a second tower. Only the embedding marks positions, and only the
    /// last hidden states are returned.
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
