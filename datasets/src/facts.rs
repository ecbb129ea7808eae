//! What a builder found in the raw files, held against what is known of the published ones.

use crate::{Check, Fact, Manifest};

/// One check per fact of the manifest. A fact with a known value has to have it, unless the data says that it is only
/// part of what is published.
pub(crate) fn check(manifest: &Manifest, known: &[Fact]) -> Vec<Check> {
    let check = |fact: &Fact| {
        let name = format!("raw files: {}", fact.name);
        let published = known.iter().find(|known| known.name == fact.name);
        match published {
            Some(known) if known.value == fact.value => {
                Check::new(name, true, format!("{}, as published", fact.value))
            }
            Some(known) => {
                let published = match manifest.partial {
                    true => "a part of the published",
                    false => "instead of",
                };
                let detail = format!("{}, {published} {}", fact.value, known.value);
                Check::new(name, manifest.partial, detail)
            }
            None => Check::new(name, true, fact.value.clone()),
        }
    };
    manifest.facts.iter().map(check).collect()
}
