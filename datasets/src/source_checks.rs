//! Checks of the source files: the builder's facts (counts, sums, digests) against the published
//! values.

use crate::{Check, Fact, Known, Manifest, SplitName};

/// Note of a reader whose published files have no known checksum.
pub(crate) const UNPROVED: &str = "unproved: no checksum of the published files is known, so these cannot be shown to be the published ones";

/// Returns the split that has no examples if so many of those of train are held out for validation.
pub(crate) fn without_examples(all: usize, held_out: usize) -> Option<SplitName> {
    match held_out {
        _ if all == held_out => Some(SplitName::Train),
        0 => Some(SplitName::Val),
        _ => None,
    }
}

/// Result of comparing one fact with its published value.
enum Verdict<'a> {
    AsPublished,
    /// The published files have another value.
    Contradicts(&'a str),
    /// The published files have another value, but only a part of them is present.
    Unproved(&'a str),
    /// No published value is known.
    Unknown,
}

fn judge<'a>(fact: &Fact, known: &'a [Known], partial: bool) -> Verdict<'a> {
    let Some(known) = known.iter().find(|known| known.fact.name == fact.name) else {
        return Verdict::Unknown;
    };
    let value = known.fact.value.as_str();
    match value == fact.value {
        true => Verdict::AsPublished,
        false if partial && !known.of_parts => Verdict::Unproved(value),
        false => Verdict::Contradicts(value),
    }
}

/// Returns a contradiction as a sentence.
fn sentence(fact: &Fact, published: &str) -> String {
    format!("{}: {} instead of {published}", fact.name, fact.value)
}

/// Marks data as altered where its facts contradict the published values, in addition to the
/// builder's marks.
pub(crate) fn mark(manifest: &mut Manifest, known: &[Known]) {
    for fact in &manifest.facts {
        if let Verdict::Contradicts(published) = judge(fact, known, manifest.partial) {
            let sentence = sentence(fact, published);
            if !manifest.altered.contains(&sentence) {
                manifest.altered.push(sentence);
            }
        }
    }
}

/// Returns one check per fact of the manifest, one that says that the data is a part of the
/// published data where no fact does, and one per other reason why the data is marked as altered.
/// A fact must have its published value, if there is one, unless the data is only a part of the
/// published data.
pub(crate) fn check(manifest: &Manifest, known: &[Known]) -> Vec<Check> {
    let mut reported = Vec::new();
    let mut tells_part = false;
    let mut check = |fact: &Fact| {
        let name = format!("raw files: {}", fact.name);
        let found = &fact.value;
        match judge(fact, known, manifest.partial) {
            Verdict::AsPublished => Check::new(name, true, format!("{found}, as published")),
            Verdict::Unproved(published) => {
                tells_part = true;
                let detail = format!("{found}, a part of the published {published}: unproved");
                Check::new(name, true, detail)
            }
            Verdict::Contradicts(published) => {
                reported.push(sentence(fact, published));
                Check::new(name, false, format!("{found}, instead of {published}"))
            }
            Verdict::Unknown => Check::new(name, true, found.clone()),
        }
    };
    let mut checks: Vec<Check> = manifest.facts.iter().map(&mut check).collect();
    if manifest.partial && !tells_part {
        let rows = SplitName::ALL.map(|split| manifest.splits.get(split).rows);
        let detail = format!(
            "{}, a part of the published data: unproved",
            rows.iter().sum::<usize>()
        );
        checks.push(Check::new("raw files: examples", true, detail));
        let notes = manifest.notes.iter();
        checks.extend(notes.map(|note| Check::new("raw files: note", true, note)));
    }
    let others = manifest
        .altered
        .iter()
        .filter(|how| !reported.contains(how));
    checks.extend(others.map(|how| Check::new("raw files: altered", false, how)));
    checks
}

/// Returns the difference between two entries of one key, if there is one: in their rows, or in a
/// fact that both have.
pub(crate) fn difference(one: &Manifest, other: &Manifest) -> Option<String> {
    let short = |manifest: &Manifest| manifest.digest[..manifest.digest.len().min(12)].to_owned();
    if one.digest != other.digest {
        return Some(format!("digest {} instead of {}", short(one), short(other)));
    }
    one.facts.iter().find_map(|fact| {
        let same_name = |other: &&Fact| other.name == fact.name;
        let there = other.facts.iter().find(same_name)?;
        let differs = there.value != fact.value;
        differs.then(|| format!("{}: {} instead of {}", fact.name, fact.value, there.value))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn manifest(digest: &str, facts: &[(&str, &str)]) -> Manifest {
        let split = json!({"rows": 1, "labels": [1], "bytes": 9, "sha256": "0"});
        let mut manifest: Manifest = serde_json::from_value(json!({
            "task": "text",
            "version": 1,
            "source": "official",
            "protocol": "clean",
            "options": {},
            "label": "text",
            "max_length": 9,
            "splits": {"train": split, "val": split, "test": split},
            "digest": digest,
        }))
        .unwrap();
        let facts = facts.iter().map(|(name, value)| Fact::new(*name, value));
        manifest.facts = facts.collect();
        manifest
    }

    #[test]
    fn entries_differ_in_rows_or_in_facts_that_both_have() {
        let one = manifest("abc", &[("bytes", "5"), ("ratings", "1:2")]);
        for (other, told) in [
            (manifest("abc", &[("bytes", "5")]), None),
            (manifest("abc", &[("other", "6")]), None),
            (
                manifest("abc", &[("ratings", "2:1"), ("bytes", "5")]),
                Some("ratings: 1:2 instead of 2:1"),
            ),
            (
                manifest("abd", &[("bytes", "6")]),
                Some("digest abc instead of abd"),
            ),
        ] {
            assert_eq!(difference(&one, &other).as_deref(), told);
        }
    }

    #[test]
    fn facts_of_a_part_contradict_only_where_parts_are_known() {
        let known = [Known::whole("bytes", 5), Known::part("first", "a")];
        let marked = |partial: bool, facts: &[(&str, &str)]| {
            let mut manifest = manifest("abc", facts);
            manifest.partial = partial;
            mark(&mut manifest, &known);
            // Marked once.
            mark(&mut manifest, &known);
            let passed = check(&manifest, &known).iter().all(|check| check.ok);
            assert_eq!(passed, manifest.altered.is_empty());
            manifest.altered
        };
        let right = [("bytes", "5"), ("first", "a"), ("unknown", "7")];
        let wrong = [("bytes", "4"), ("first", "b"), ("unknown", "7")];
        for partial in [false, true] {
            assert!(marked(partial, &right).is_empty());
        }
        let told = ["bytes: 4 instead of 5", "first: b instead of a"];
        assert_eq!(marked(false, &wrong), told);
        assert_eq!(marked(true, &wrong), told[1..]);
    }
}
