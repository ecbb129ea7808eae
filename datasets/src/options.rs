//! Conversion of a JSON object of options to a task's own struct.

use std::fmt::Display;
use std::ops::RangeInclusive;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::words::{known_values, of_json};
use crate::{Source, TaskInfo};

/// Reads `options` into a task's struct. As JSON, `defaults` has every key, with a value of the
/// right type.
///
/// # Errors
/// [`Error::UnknownOption`], [`Error::Word`] for a word that is none of the option's, or
/// [`Error::Option`] naming the key that is missing or of another type.
pub fn parse<T: Serialize + DeserializeOwned>(
    info: &TaskInfo,
    defaults: &T,
    options: &Value,
) -> Result<T> {
    let defaults = json!(defaults);
    let bad = |key: &str, value: String, allowed: String| refused(info, key, value, allowed);
    let (Some(known), Some(given)) = (defaults.as_object(), options.as_object()) else {
        return Err(bad(
            "options",
            options.to_string(),
            "a JSON object".to_owned(),
        ));
    };
    if let Some(key) = given.keys().find(|key| !known.contains_key(*key)) {
        let names: Vec<_> = known.keys().map(String::as_str).collect();
        return Err(Error::UnknownOption {
            task: info.name,
            key: key.clone(),
            known: names.join(", "),
        });
    }
    for (key, default) in known {
        let (fits, wanted) = match (default, given.get(key)) {
            (_, None) => {
                return Err(bad(
                    key,
                    "left out".to_owned(),
                    format!("for example {default}"),
                ));
            }
            (Value::Number(number), Some(value)) if number.is_u64() => {
                // The largest integer that TOML can hold.
                let whole = value.as_i64().is_some_and(|number| number >= 0);
                (whole, "a whole number from 0 to 9223372036854775807")
            }
            (Value::Number(_), Some(value)) => (value.is_number(), "a number"),
            (Value::Bool(_), Some(value)) => (value.is_boolean(), "true or false"),
            (Value::String(_), Some(value)) => (value.is_string(), "text"),
            _ => (true, ""),
        };
        if !fits {
            return Err(bad(key, given[key].to_string(), wanted.to_owned()));
        }
    }
    T::deserialize(options).map_err(|error| {
        // The reader does not name the wrong key. It is the one whose value makes the defaults
        // unreadable. A number can do so only by its size.
        let spoils = |key: &&String| {
            let mut alone = defaults.clone();
            alone[key.as_str()] = given[key.as_str()].clone();
            T::deserialize(&alone).is_err()
        };
        match known.keys().find(spoils) {
            Some(key) if given[key].is_number() => {
                bad(key, given[key].to_string(), format!("at most {}", u32::MAX))
            }
            Some(key) => {
                let message = error.to_string();
                match (given[key].as_str(), known_values(&message)) {
                    (Some(value), known) if !known.is_empty() => none_of(info, key, value, &known),
                    _ => bad(key, given[key].to_string(), of_json(&error)),
                }
            }
            None => bad("options", options.to_string(), of_json(&error)),
        }
    })
}

/// Checks that an option lies in a range.
///
/// # Errors
/// [`Error::Option`] naming key, value and range.
pub fn within<T: PartialOrd + Display>(
    info: &TaskInfo,
    key: &str,
    value: T,
    range: RangeInclusive<T>,
) -> Result<()> {
    if range.contains(&value) {
        return Ok(());
    }
    let allowed = format!("{} to {}", range.start(), range.end());
    Err(refused(info, key, value, allowed))
}

/// Returns the error for a word that is none of an option's.
pub(crate) fn none_of(info: &TaskInfo, key: &str, word: &str, known: &[&str]) -> Error {
    Error::Word {
        task: info.name,
        key: key.to_owned(),
        value: word.to_owned(),
        known: known.iter().map(|word| (*word).to_owned()).collect(),
    }
}

/// Returns the error for a value that an option cannot have.
pub(crate) fn refused(
    info: &TaskInfo,
    key: &str,
    value: impl Display,
    allowed: impl Into<String>,
) -> Error {
    Error::Option {
        task: info.name,
        key: key.to_owned(),
        value: value.to_string(),
        allowed: allowed.into(),
    }
}

/// Checks that the task has this source.
///
/// # Errors
/// [`Error::Source`].
pub(crate) fn has_source(info: &TaskInfo, source: Source) -> Result<()> {
    if info.sources.contains(&source) {
        return Ok(());
    }
    let known: Vec<_> = info.sources.iter().map(|source| source.name()).collect();
    Err(Error::Source {
        task: info.name,
        wanted: source.to_string(),
        known: known.join(", "),
    })
}
