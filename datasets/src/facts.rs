//! What a builder found in the raw files, held against what is known of the published ones.

use crate::{Check, Manifest};

/// A known finding: its name, and the value that the published files give.
pub(crate) type Known = (String, String);

/// One check per fact of the manifest. A fact with a known value has to have it, unless the data says that it is only
/// part of what is published.
pub(crate) fn check(manifest: &Manifest, known: &[Known]) -> Vec<Check> {
    let check = |fact: &crate::Fact| {
        let name = format!("raw files: {}", fact.name);
        let published = known.iter().find(|(name, _)| name == &fact.name);
        match published {
            Some((_, value)) if value == &fact.value => {
                Check::new(name, true, format!("{}, as published", fact.value))
            }
            Some((_, value)) => Check::new(
                name,
                manifest.partial,
                format!("{} instead of {value}", fact.value),
            ),
            None => Check::new(name, true, fact.value.clone()),
        }
    };
    manifest.facts.iter().map(check).collect()
}
