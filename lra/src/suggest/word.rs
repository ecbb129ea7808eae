//! Suggestions for words that are none of a setting's values.

use super::aliases::WORDS;
use super::{Guess, fold, nearest};
use crate::error::{Class, Error};

/// Returns the error of a model's settings, with the word that was probably meant.
pub fn of_model(error: models::Error) -> Error {
    match &error {
        models::Error::Word { key, value, known } => match meant(key, value, known) {
            Some(message) => Error::usage(message),
            None => Error::usage(error),
        },
        models::Error::Unread { key, value, reason } => {
            let told = datasets::of_deserializer(reason, "a table");
            Error::usage(format!("{key} = {value}: {told}"))
        }
        _ => Error {
            class: Class::Usage,
            cause: error.into(),
        },
    }
}

/// Returns the error of a task's settings, with the word that was probably meant.
pub fn of_task(error: datasets::Error) -> Error {
    let told = match &error {
        datasets::Error::Word {
            key, value, known, ..
        } => meant(&format!("data.{key}"), value, known),
        _ => None,
    };
    told.map_or_else(|| error.into(), Error::usage)
}

/// Values that other programs give to one setting and this one to another: key, words, and what to
/// set instead.
const ELSEWHERE: &[(&str, &[&str], &str)] = &[
    (
        "block.activation",
        &["glu", "geglu", "swiglu", "reglu"],
        "block.gate",
    ),
    (
        "embed.positions",
        &["rope", "rotary", "roformer"],
        "block.rotary=true",
    ),
    (
        "embed.positions",
        &[
            "alibi",
            "t5",
            "relative",
            "relative_key",
            "relative_key_query",
            "deberta",
        ],
        "block.bias",
    ),
];

/// Returns the message for a word that resembles one that the setting can have; `None` if it
/// resembles none.
fn meant(key: &str, word: &str, known: &[String]) -> Option<String> {
    let elsewhere = ELSEWHERE
        .iter()
        .find(|(of, words, _)| *of == key && words.iter().any(|other| fold(other) == fold(word)));
    if let Some((_, _, to)) = elsewhere {
        return Some(format!(
            "{key} cannot be '{word}'; that is set by {to} (`lra list components`)"
        ));
    }
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let guess = Guess::of_alias(word, WORDS, &known).unwrap_or_else(|| Guess {
        names: nearest(word, &known),
        note: String::new(),
    });
    let of = format!("value of {key}");
    (!guess.names.is_empty()).then(|| guess.message(&of, word, ""))
}
