//! Ranges of numeric options: declared beside the options, checked in one place.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, Result};

/// Largest value of options that count tokens: 65,536. No task has longer sequences.
pub const LONGEST: u64 = 1 << 16;

/// Largest width of a layer: 65,536 channels.
pub const WIDEST: u64 = 1 << 16;

/// Range of the values of a numeric option. They are whole numbers or real ones, as the option's
/// default is.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// Key of the option within its section, for example `dim` for `block.dim`.
    pub key: &'static str,
    min: f64,
    /// True if `min` itself is left out.
    above: bool,
    max: f64,
    /// True if `max` itself is left out.
    below: bool,
    /// True if 0 is a value, too: the option is off.
    zero: bool,
}

impl Range {
    /// Builds the range of the option `key` of whole numbers from `min` to `max`, both included.
    #[must_use]
    pub const fn int(key: &'static str, min: u64, max: u64) -> Self {
        Self {
            key,
            min: min as f64,
            above: false,
            max: max as f64,
            below: false,
            zero: false,
        }
    }

    /// Builds the range of the option `key` of a probability or a rate of decay: at least 0 and
    /// less than 1.
    #[must_use]
    pub const fn probability(key: &'static str) -> Self {
        Self {
            key,
            min: 0.0,
            above: false,
            max: 1.0,
            below: true,
            zero: false,
        }
    }

    /// Builds the range of the option `key` of all finite numbers that are not negative.
    #[must_use]
    pub const fn not_negative(key: &'static str) -> Self {
        Self {
            key,
            min: 0.0,
            above: false,
            max: f64::MAX,
            below: false,
            zero: false,
        }
    }

    /// Builds the range of the option `key` of numbers more than 0 and less than `max`.
    #[must_use]
    pub const fn positive(key: &'static str, max: f64) -> Self {
        Self {
            key,
            min: 0.0,
            above: true,
            max,
            below: true,
            zero: false,
        }
    }

    /// Builds the range of the option `key` of numbers from `min` to `max`, both included, and of 0,
    /// which turns the option off.
    #[must_use]
    pub const fn zero_or(key: &'static str, min: f64, max: f64) -> Self {
        Self {
            key,
            min,
            above: false,
            max,
            below: false,
            zero: true,
        }
    }

    /// Returns whether `number` is in the range. NaN is in none.
    #[must_use]
    pub fn contains(&self, number: f64) -> bool {
        let low = number > self.min || !self.above && number == self.min;
        let high = number < self.max || !self.below && number == self.max;
        low && high || self.zero && number == 0.0
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let min = if self.above { "more than" } else { "at least" };
        if self.zero {
            f.write_str("0, or ")?;
        }
        write!(f, "{min} {}", self.min)?;
        match (self.below, self.max == f64::MAX) {
            (_, true) => Ok(()),
            (true, _) => write!(f, " and less than {}", self.max),
            (false, _) => write!(f, " and at most {}", self.max),
        }
    }
}

/// Reads `options`, the JSON object of the section called `section`, such as `block`, as a value of
/// type `T`. `defaults` have every key of the section. `ranges` apply to numbers.
///
/// # Errors
/// [`Error::Option`] naming the key, its value and the values that are allowed; [`Error::Word`] for
/// a word that is none of the key's; [`Error::Unread`] for another value that is not one of the
/// key's type; [`Error::Options`] if a key is missing or unknown.
pub fn read<T: DeserializeOwned>(
    section: &str,
    options: &Value,
    defaults: &Value,
    ranges: &[Range],
) -> Result<T> {
    // One copy of all but the reading serves every type.
    check(section, options, ranges)?;
    T::deserialize(options).map_err(|error| {
        let can_be_read = |options: &Value| T::deserialize(options).is_ok();
        unread(section, options, defaults, &error.to_string(), &can_be_read)
    })
}

/// Checks that every number lies in its range.
fn check(section: &str, options: &Value, ranges: &[Range]) -> Result<()> {
    for (key, value) in entries(options) {
        let range = ranges.iter().find(|range| range.key == key);
        if let (Some(range), Some(number)) = (range, value.as_f64())
            && !range.contains(number)
        {
            return Err(refused(section, options, key, range.to_string()));
        }
    }
    Ok(())
}

/// Returns the error for options that the reader refused with the message `told`.
fn unread(
    section: &str,
    options: &Value,
    defaults: &Value,
    told: &str,
    can_be_read: &dyn Fn(&Value) -> bool,
) -> Error {
    // The reader does not say which key it was at: the one that spoils the defaults.
    let spoils = |key: &&String| {
        let mut alone = defaults.clone();
        alone[key.as_str()] = options[key.as_str()].clone();
        defaults.get(key.as_str()).is_some() && !can_be_read(&alone)
    };
    match entries(options).map(|(key, _)| key).find(spoils) {
        Some(key) => match (options[key].as_str(), words(told)) {
            (Some(value), Some(known)) => Error::Word {
                key: format!("{section}.{key}"),
                value: value.to_owned(),
                known,
            },
            _ => Error::Unread {
                key: format!("{section}.{key}"),
                value: options[key].to_string(),
                reason: told.to_owned(),
            },
        },
        None => Error::Options {
            section: section.to_owned(),
            reason: told.to_owned(),
        },
    }
}

fn entries(options: &Value) -> impl Iterator<Item = (&String, &Value)> {
    options.as_object().into_iter().flatten()
}

fn refused(section: &str, options: &Value, key: &str, allowed: String) -> Error {
    Error::Option {
        key: format!("{section}.{key}"),
        value: options[key].to_string(),
        allowed,
    }
}

/// Returns the words that the reader expected, from its message for an unknown one, "unknown
/// variant `a`, expected one of `b`, `c`"; `None` for any other message.
fn words(message: &str) -> Option<Vec<String>> {
    let (_, expected) = message
        .strip_prefix("unknown variant ")?
        .rsplit_once("expected ")?;
    let quoted = expected.split('`').skip(1).step_by(2);
    Some(quoted.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_in_or_out_as_they_say() {
        let holds = |range: Range, numbers: &[f64]| -> Vec<bool> {
            numbers
                .iter()
                .map(|&number| range.contains(number))
                .collect()
        };
        assert_eq!(
            holds(Range::int("n", 1, 3), &[0.0, 1.0, 3.0, 4.0, f64::NAN]),
            [false, true, true, false, false]
        );
        assert_eq!(
            holds(Range::probability("p"), &[-0.1, 0.0, 0.9, 1.0]),
            [false, true, true, false]
        );
        assert_eq!(
            holds(Range::positive("t", 9.0), &[0.0, 1e-300, 8.9, 9.0]),
            [false, true, true, false]
        );
        assert_eq!(
            holds(
                Range::not_negative("r"),
                &[-1.0, 0.0, f64::MAX, f64::INFINITY]
            ),
            [false, true, true, false]
        );
        assert_eq!(
            Range::int("n", 1, 3).to_string(),
            "at least 1 and at most 3"
        );
        assert_eq!(Range::not_negative("r").to_string(), "at least 0");
        let off = Range::zero_or("c", 0.5, 2.0);
        assert_eq!(
            holds(off, &[-0.5, 0.0, 0.4, 0.5, 2.0, 2.1]),
            [false, true, false, true, true, false]
        );
        assert_eq!(off.to_string(), "0, or at least 0.5 and at most 2");
    }
}
