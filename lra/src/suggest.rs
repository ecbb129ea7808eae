//! Looks names up in a registry, and suggests the nearest one for an unknown name.

use crate::error::{Error, Result};

/// Finds the entry called `name`, or says which name was probably meant.
pub fn find<'a, T>(
    kind: &str,
    name: &str,
    entries: &'a [T],
    name_of: impl Fn(&T) -> &str,
) -> Result<&'a T> {
    entries
        .iter()
        .find(|entry| name_of(entry) == name)
        .ok_or_else(|| Error::usage(unknown(kind, name, entries.iter().map(&name_of))))
}

/// The message for a name that is not among `known`.
pub fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match nearest(name, &known) {
        Some(guess) => format!(
            "unknown {kind} '{name}'; did you mean '{guess}'? (known: {})",
            known.join(", ")
        ),
        None => format!("unknown {kind} '{name}' (known: {})", known.join(", ")),
    }
}

/// The known name most like `name`, if any is like it at all.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(name, candidate), *candidate))
        .filter(|(likeness, _)| *likeness > 0.6)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_name_is_answered_with_the_nearest_one() {
        let message = unknown(
            "model",
            "perfomer",
            ["transformer", "performer", "bag"].into_iter(),
        );
        assert!(message.contains("did you mean 'performer'?"), "{message}");
    }

    #[test]
    fn a_strange_name_is_answered_with_the_list_alone() {
        let message = unknown("model", "zzz", ["transformer", "performer"].into_iter());
        assert_eq!(
            message,
            "unknown model 'zzz' (known: transformer, performer)"
        );
    }
}
