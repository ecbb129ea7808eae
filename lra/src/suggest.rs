//! Lookup of names in a registry, with suggestions for an unknown name.
//!
//! A name is one exact word, so that records and scripts always use the same one. A name that
//! differs in case, dashes or underscores, one that public code uses ([`aliases`]), a task's label
//! ([`label`]) and a misspelling are errors that name the right one.

mod aliases;
mod label;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use results::published;

use self::aliases::{Alias, COMMANDS, MODELS, RECIPES, SETTINGS, TASKS};
use crate::error::{Error, Result};

/// Most names that are suggested for an unknown one.
const MOST_GUESSES: usize = 3;

/// Finds the entry called `name`; the error suggests the name that was probably meant.
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

/// Returns the message for a name that is not among `known`.
pub fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let told = match kind {
        "task" => label::explained(name),
        _ => None,
    };
    let guess = told.unwrap_or_else(|| {
        let alias = Guess::of_alias(name, of_kind(kind), &known);
        let alias = alias.or_else(|| Guess::of_source(kind, name));
        alias.unwrap_or_else(|| Guess {
            names: nearest(name, &known),
            note: String::new(),
        })
    });
    let listing = match kind {
        "task" | "model" | "recipe" => format!("`lra list {kind}s` names them all"),
        _ => format!("known: {}", known.join(", ")),
    };
    guess.message(kind, name, &listing)
}

/// Returns the message for a setting at `path`, such as `train.stpes`, that is not among `known`,
/// the paths of all settings.
pub fn unknown_setting<'a>(path: &str, known: &[&'a str]) -> String {
    let (section, leaf) = path.rsplit_once('.').unwrap_or(("", path));
    let mut guess = Guess::default();
    let spelt = known.iter().find(|known| fold(known) == fold(path));
    guess.names.extend(spelt.map(|known| (*known).to_owned()));
    if let Some(alias) = aliases_of(leaf, SETTINGS).next() {
        let there = |name: &&&str| name.starts_with("--") || known.contains(name);
        let targets: Vec<&str> = alias.to.iter().filter(there).copied().collect();
        let own = targets.iter().find(|name| section_of(name) == section);
        let targets = own.map_or(&targets[..1.min(targets.len())], std::slice::from_ref);
        guess.add(targets);
        if !targets.is_empty() {
            alias.note.clone_into(&mut guess.note);
        }
    }
    let same_leaf = |name: &&&str| fold(leaf_of(name)) == fold(leaf);
    let elsewhere: Vec<&str> = known.iter().filter(same_leaf).copied().collect();
    guess.add(&elsewhere);
    if guess.names.is_empty() {
        let near = |name: &&&str| {
            let sections = section.is_empty() || similar(section, section_of(name)).is_some();
            sections && similar(leaf, leaf_of(name)).is_some()
        };
        let mut near: Vec<&str> = known.iter().filter(near).copied().collect();
        let likeness = |name: &str| {
            let leaf = similar(leaf, leaf_of(name)).unwrap_or_default();
            leaf + similar(section, section_of(name)).unwrap_or_default()
        };
        near.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
        guess.add(&near);
    }
    let siblings = |section: &str| -> Vec<&str> {
        let siblings = known.iter().filter(|name| section_of(name) == section);
        siblings.map(|name| leaf_of(name)).collect()
    };
    let own = siblings(section);
    let top = |name: &&'a str| name.split('.').next().unwrap_or_default();
    let mut sections: Vec<&str> = known.iter().map(top).collect();
    sections.dedup();
    let listing = match guess.names.is_empty() {
        false => String::new(),
        true if own.is_empty() => format!("sections: {}", sections.join(", ")),
        true => format!("{section} has: {}", own.join(", ")),
    };
    guess.message("setting", path, &listing)
}

/// Returns the meaning of a flag of other programs that does not exist here: the flag here, or the
/// setting; and a remark.
pub fn flag(word: &str) -> Option<(String, &'static str)> {
    let alias = aliases_of(word, SETTINGS).next()?;
    let to = alias.to[0];
    let to = match to.starts_with("--") {
        true => to.to_owned(),
        false => format!("--set {to}=VALUE"),
    };
    Some((to, alias.note))
}

/// Returns the remark on a name that is not in use here, if there is one.
pub fn remark(kind: &str, name: &str) -> Option<&'static str> {
    let alias = aliases_of(name, of_kind(kind)).next()?;
    (!alias.note.is_empty()).then_some(alias.note)
}

/// Returns the other names of the entries of a registry.
fn of_kind(kind: &str) -> &'static [Alias] {
    match kind {
        "task" => TASKS,
        "model" => MODELS,
        "recipe" => RECIPES,
        _ => &[],
    }
}

/// Returns the command here that another program calls `word`, and a remark.
pub fn command(word: &str) -> Option<(&'static str, &'static str)> {
    let alias = aliases_of(word, COMMANDS).next()?;
    Some((alias.to[0], alias.note))
}

fn section_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(section, _)| section)
}

fn leaf_of(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, leaf)| leaf)
}

/// A guess at the name that was meant.
#[derive(Default)]
struct Guess {
    /// Suggested names, the likeliest first.
    names: Vec<String>,
    /// Remark on the suggestion.
    note: String,
}

impl Guess {
    /// Returns the names here for what public code calls `name`, as far as they are among `known`.
    fn of_alias(name: &str, aliases: &'static [Alias], known: &[&str]) -> Option<Guess> {
        let spelt = known.iter().find(|known| fold(known) == fold(name));
        if let Some(known) = spelt {
            return Some(Guess {
                names: vec![(*known).to_owned()],
                note: String::new(),
            });
        }
        aliases_of(name, aliases).find_map(|alias| {
            let there = alias.to.iter().filter(|to| known.contains(to));
            let names: Vec<String> = there.map(|to| (*to).to_owned()).collect();
            let note = alias.note.to_owned();
            (!names.is_empty()).then_some(Guess { names, note })
        })
    }

    /// Returns the recipes that follow the published source `name`, if a recipe is wanted.
    fn of_source(kind: &str, name: &str) -> Option<Guess> {
        let source = published::source(name).ok().filter(|_| kind == "recipe")?;
        let names: Vec<String> = source.recipes.iter().map(|it| (*it).to_owned()).collect();
        let note = format!("it follows the source {}", source.alias);
        (!names.is_empty()).then_some(Guess { names, note })
    }

    /// Adds names that are not there yet, as long as there is room.
    fn add(&mut self, names: &[&str]) {
        for name in names {
            if self.names.len() < MOST_GUESSES && self.names.iter().all(|known| known != name) {
                self.names.push((*name).to_owned());
            }
        }
    }

    fn message(&self, kind: &str, name: &str, listing: &str) -> String {
        let mut text = format!("unknown {kind} '{name}'");
        let quoted: Vec<String> = self.names.iter().map(|name| format!("'{name}'")).collect();
        match quoted.split_last() {
            None => {
                // Writing to a String cannot fail.
                let _ = write!(text, "; {listing}");
                return text;
            }
            Some((only, [])) => text += &format!("; did you mean {only}?"),
            Some((last, others)) => {
                text += &format!("; did you mean {} or {last}?", others.join(", "));
            }
        }
        let remarks = [self.note.as_str(), listing].into_iter();
        let remarks: Vec<&str> = remarks.filter(|remark| !remark.is_empty()).collect();
        if !remarks.is_empty() {
            text += &format!(" ({})", remarks.join("; "));
        }
        text
    }
}

/// Returns the letters and digits of a name, in lower case.
fn fold(name: &str) -> String {
    let letters = name.chars().filter(|c| c.is_alphanumeric());
    letters.flat_map(char::to_lowercase).collect()
}

/// Prefixes of names in public code that carry no meaning.
const PREFIXES: [&str; 3] = ["longrangearena", "lrarelease", "lra"];
const SUFFIXES: [&str; 5] = [
    "classification",
    "encoder",
    "base",
    "attention",
    "transformer",
];

/// Returns the aliases that contain `name`: as it is, without meaningless affixes, or without a
/// number at its end (`nystrom-64`).
fn aliases_of<'a>(name: &str, aliases: &'a [Alias]) -> impl Iterator<Item = &'a Alias> {
    let mut forms = vec![fold(name)];
    for prefix in PREFIXES {
        let short = forms[0].strip_prefix(prefix).map(str::to_owned);
        forms.extend(short);
    }
    for suffix in SUFFIXES {
        let short = forms.iter().filter_map(|form| form.strip_suffix(suffix));
        let short: Vec<String> = short.map(str::to_owned).collect();
        forms.extend(short);
    }
    let numbered: Vec<String> = forms
        .iter()
        .map(|form| form.trim_end_matches(|c: char| c.is_ascii_digit()))
        // In a name such as `s4` the number is essential.
        .filter(|form| form.len() > 2)
        .map(str::to_owned)
        .collect();
    forms.extend(numbered);
    forms.into_iter().filter_map(|form| {
        aliases.iter().find(|alias| {
            let own = alias.to.iter().any(|to| fold(to) == form);
            own || alias.names.iter().any(|other| fold(other) == form)
        })
    })
}

/// Returns the known names most similar to `name`, the likeliest first; empty if none is similar.
fn nearest(name: &str, known: &[&str]) -> Vec<String> {
    let mut near: Vec<(f64, &str)> = known
        .iter()
        .filter_map(|known| Some((similar(name, known)?, *known)))
        .collect();
    near.sort_by(|a, b| b.0.total_cmp(&a.0));
    near.truncate(MOST_GUESSES);
    near.into_iter().map(|(_, name)| name.to_owned()).collect()
}

/// Returns the similarity of two names, from 0 to 1, if one can be a misspelling of the other: at
/// most one letter in three is replaced, left out, added or swapped with the next, and most begin
/// alike.
fn similar(name: &str, known: &str) -> Option<f64> {
    const LEAST: f64 = 0.85;
    let (name, known) = (fold(name), fold(known));
    let longest = name.chars().count().max(known.chars().count());
    let edits = strsim::osa_distance(&name, &known);
    let likeness = strsim::jaro_winkler(&name, &known);
    // The beginning of a name, such as `perform`.
    let begins = name.len() >= 4 && known.starts_with(&name);
    ((3 * edits <= longest && likeness >= LEAST) || begins).then_some(likeness)
}

/// Returns every command that an alias leads to.
#[cfg(test)]
pub fn commands() -> impl Iterator<Item = &'static str> {
    COMMANDS.iter().flat_map(|alias| alias.to).copied()
}

/// Returns every flag that an alias leads to.
#[cfg(test)]
pub fn flags() -> impl Iterator<Item = &'static str> {
    let all = SETTINGS.iter().flat_map(|alias| alias.to).copied();
    all.filter(|to| to.starts_with("--"))
}
