//! Errors of this crate, with messages that a user can act on.

/// Result of every function in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of the functions of this crate.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An option has a value that it cannot have: a number outside its range, or a choice that
    /// others rule out.
    #[error("{key} = {value} {} {allowed}", verdict(value))]
    Option {
        /// Full key as in `--set`, for example `block.heads`.
        key: String,
        /// The value that was given.
        value: String,
        /// Description of the accepted values.
        allowed: String,
    },
    /// An option has a word that is none of its choices.
    #[error("{key} = {value:?} is none of its values: {}", known.join(", "))]
    Word {
        /// Full key as in `--set`, for example `block.norm`.
        key: String,
        /// The word that was given.
        value: String,
        /// The words that it can be.
        known: Vec<String>,
    },
    /// An option has a value that cannot be read, such as a list with an incomplete entry.
    #[error("{key} = {value}: {reason}")]
    Unread {
        /// Full key as in `--set`, for example `train.groups`.
        key: String,
        /// The value that was given, as JSON.
        value: String,
        /// Message of the JSON reader.
        reason: String,
    },
    /// The options of a section are not an object with exactly the known keys.
    #[error("the options {section}.*: {reason}")]
    Options {
        /// Name of the section, such as `block` or `model`.
        section: String,
        /// Message of the JSON reader, with the known keys.
        reason: String,
    },
    /// Two layers asked for one parameter path with different shapes.
    #[error(
        "parameter {path} was created with shape {first:?} and is asked for again with shape {second:?}"
    )]
    ShapeConflict {
        /// Path of the parameter.
        path: String,
        /// Shape at the first request.
        first: Vec<usize>,
        /// Shape at this request.
        second: Vec<usize>,
    },
    /// Saved tensors do not fit the model's parameters.
    #[error("saved parameters do not fit this model: {path}: {reason}")]
    Load {
        /// Path of the parameter.
        path: String,
        /// Fault of the tensor: it is missing, unknown, or of another shape.
        reason: String,
    },
    /// An input does not have the shape or content that the model was built for. The text describes
    /// the fault.
    #[error("input: {0}")]
    Input(String),
    /// A file is not a parity case that can be run. A parity case has reference numbers that a
    /// model is compared with. The text describes the fault.
    #[error("parity case: {0}")]
    Case(String),
    /// A tensor operation failed.
    #[error(transparent)]
    Tensor(#[from] candle_core::Error),
}

impl Error {
    /// Returns whether the options are at fault: they, or one of them, cannot have that value.
    #[must_use]
    pub fn is_of_options(&self) -> bool {
        matches!(
            self,
            Self::Option { .. } | Self::Word { .. } | Self::Unread { .. } | Self::Options { .. }
        )
    }
}

/// Returns what is wrong with a value, up to the allowed ones: a number has a range, a word has
/// none.
fn verdict(value: &str) -> &'static str {
    match value.parse::<f64>() {
        Ok(_) => "is out of range:",
        Err(_) => "is not possible: it must be",
    }
}

/// Lets our errors cross candle interfaces (parameter backends, custom operations).
impl From<Error> for candle_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Tensor(error) => error,
            other => Self::wrap(other),
        }
    }
}

/// Refuses `value` of the option `key` unless `holds`. `allowed` describes the values that it can
/// have.
///
/// # Errors
/// [`Error::Option`] naming the key, the value and the values that are allowed.
pub fn require(
    holds: bool,
    key: &str,
    value: impl std::fmt::Display,
    allowed: impl Into<String>,
) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Option {
        key: key.to_owned(),
        value: value.to_string(),
        allowed: allowed.into(),
    })
}
