//! Lookup of names in a registry, with suggestions for an unknown name.
//!
//! A name is one word, in any case; records always hold it as the registry spells it. A name that
//! differs in dashes or underscores, one that public code uses ([`aliases`]), a task's label
//! ([`label`]) and a misspelling are errors that name the right one. A name that is like none is
//! answered with the command that lists them all.

mod aliases;
mod configuration;
mod label;
mod pathfinder;
mod setting;
#[cfg(test)]
mod tests;
mod word;

use std::fmt::Write as _;
use std::path::Path;

use datasets::Task;
use datasets::tasks::{self, mine};
use results::published::{self, Source};

use self::aliases::{Alias, COMMANDS, LISTS, MODELS, RECIPES, SETTINGS, SOURCES, TASKS};
pub use self::setting::{setting_called, unknown_setting};
pub use self::word::{of_model, of_task};
use crate::error::{Error, Result};
use crate::{signals, torch};

/// Largest number of suggestions for an unknown name.
const MOST_GUESSES: usize = 3;

/// Finds the entry called `name`, in any case; the error suggests the name that was probably meant.
pub fn find<'a, T>(
    kind: &str,
    name: &str,
    entries: &'a [T],
    name_of: impl Fn(&T) -> &str,
) -> Result<&'a T> {
    let exact = entries.iter().find(|entry| name_of(entry) == name);
    let folded = |entry: &&T| name_of(entry).eq_ignore_ascii_case(name);
    exact
        .or_else(|| entries.iter().find(folded))
        .ok_or_else(|| Error::usage(unknown(kind, name, entries.iter().map(&name_of))))
}

/// Finds the task called `name`: one of the registry, in any case, or a folder, `mine:FOLDER`.
///
/// # Errors
/// There is none; the message suggests the one that was probably meant. Or the folder is no task,
/// or a stop of this process is requested while it is read.
pub fn task(name: &str) -> Result<&'static dyn Task> {
    if mine::is_folder(name) {
        return Ok(mine::open_unless_stopped(name, &signals::Unshown)?);
    }
    let found = find("task", name, tasks::registry(), |task| task.info().name).copied();
    found.map_err(|error| match Path::new(name).is_dir() {
        true => Error::usage(format!(
            "unknown task '{name}'; for the folder {name} write mine:{name}"
        )),
        false => error,
    })
}

/// Names of the benchmark.
const BENCHMARK: [&str; 2] = ["lra", "longrangearena"];

/// Known names of other things, which are no misspellings of names here.
const OTHERS: &[&str] = &[
    "cifar100",
    "mamba3",
    "resnet",
    "s4nd",
    "status",
    "convnet",
    "vit",
    "swin",
    "transformertlb",
    "tlb",
    "transnormer",
    "transformerlg",
    "fouriertransformer",
    "gatedretnet",
];

/// Letters from which on a name may be a longer one of [`OTHERS`].
const STEM: usize = 8;

/// Returns whether a name is one of [`OTHERS`], or a long one of them with an addition, such as
/// `TransNormerLLM`.
fn is_other(name: &str) -> bool {
    let name = fold(name);
    let mut others = OTHERS.iter();
    others.any(|other| name == *other || other.len() >= STEM && name.starts_with(other))
}

/// Returns the message for a name that is not among `known`.
pub fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    let told = match kind {
        "task" => label::explained(name).or_else(|| pathfinder::explained(name)),
        _ if is_other(name) => Some(Guess::default()),
        "model" if torch::is_name(name) => Some(Guess::default()),
        _ => None,
    };
    let guess = told.unwrap_or_else(|| {
        let alias = Guess::of_alias(name, of_kind(kind), &known);
        let alias = alias.map(|guess| guess.sized(kind, name));
        let alias = alias.or_else(|| Guess::of_source(kind, name));
        let alias = alias.or_else(|| match kind {
            "recipe" => configuration::explained(name, &known),
            _ => None,
        });
        alias.unwrap_or_else(|| Guess {
            names: nearest(name, &known),
            note: String::new(),
        })
    });
    let is_task = kind == "model"
        && guess.names.is_empty()
        && (tasks::registry()
            .iter()
            .any(|it| fold(it.info().name) == fold(name))
            || aliases_of(name, TASKS).next().is_some());
    let listing = match kind {
        "model" if torch::is_name(name) => format!(
            "it is a mixer in PyTorch: set {}=FILE.py:FACTORY to the file and the function or class that made it",
            torch::VARIABLE
        ),
        "model" if name.contains(',') => format!(
            "one model is trained at a time; for several: lra sweep --tasks TASK --models {name}"
        ),
        "model" if is_task => {
            "this is the name of a task, not of a model; `lra list models` names all models"
                .to_owned()
        }
        "task" if BENCHMARK.contains(&fold(name).as_str()) => {
            "this is the benchmark, not one of its tasks; `lra list tasks` names them all"
                .to_owned()
        }
        "task" if fold(name) == fold(mine::PREFIX) => {
            "write a folder of your own after a colon: mine:FOLDER".to_owned()
        }
        "task" | "model" | "recipe" => format!("`lra list {kind}s` names them all"),
        "published source" => "`lra list published` names them all".to_owned(),
        _ => format!("known: {}", known.join(", ")),
    };
    guess.message(kind, name, &listing)
}

/// Returns the name here of what another program calls `name`, of kind `task` or `model`; `None` if
/// there is none, or if a remark says how the two differ.
pub fn called(kind: &str, name: &str) -> Option<&'static str> {
    let known: Vec<&'static str> = match kind {
        "task" => tasks::registry().iter().map(|it| it.info().name).collect(),
        _ => models::registry().iter().map(|it| it.name).collect(),
    };
    let set = pathfinder::parsed(name).filter(|_| kind == "task");
    if let Some((task, settings)) = set {
        return settings.is_empty().then_some(task);
    }
    let same = remark(kind, name).is_none();
    one_called(name, of_kind(kind), &known).filter(|found| same || fold(found) == fold(name))
}

/// Returns the one known name that `name` stands for: the name itself, or that of an alias.
fn one_called<'a>(name: &str, aliases: &'static [Alias], known: &[&'a str]) -> Option<&'a str> {
    let find = |wanted: &str| known.iter().copied().find(|it| fold(it) == fold(wanted));
    let one = |name: &str| {
        find(name).or_else(|| {
            let is_it = |alias: &&Alias| alias.names.iter().any(|other| fold(other) == name);
            match aliases.iter().find(is_it)?.to {
                [only] => find(only),
                _ => None,
            }
        })
    };
    let name = fold(name);
    // Other code bases write the benchmark's name before those of its tasks.
    let plain = PREFIXES.iter().find_map(|prefix| name.strip_prefix(prefix));
    one(&name).or_else(|| one(plain?))
}

/// Returns the published source called `name`, by its short name or its key in any case; the error
/// suggests the one that was probably meant.
pub fn source(name: &str) -> Result<&'static Source> {
    published::source(name).map_err(|_| {
        let short = published::sources().iter().map(|source| source.alias);
        let keys = published::sources().iter().map(|source| source.key);
        Error::usage(unknown("published source", name, short.chain(keys)))
    })
}

/// Returns the list of `lra list` that is called `word` elsewhere.
pub fn list(word: &str) -> Option<&'static str> {
    let alias = aliases_of(word, LISTS).next()?;
    alias.to.first().copied()
}

/// Returns what a flag of other programs stands for: flags and settings here, the likeliest first,
/// and a remark; no setting if there is none like it.
pub fn flag(word: &str) -> Option<(&'static [&'static str], &'static str)> {
    aliases_of(word, SETTINGS)
        .next()
        .map(|alias| (alias.to, alias.note))
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
        "published source" => SOURCES,
        _ => &[],
    }
}

/// Returns the command here that another program calls `word`, and a remark: one that begins with
/// `parent`, such as `data `, if there is one. A misspelling of such a word counts, too, unless it
/// is nearer to a command of `parent`, which are `own`.
pub fn command(word: &str, parent: &str, own: &[&str]) -> Option<(&'static str, &'static str)> {
    let leads = |alias: &&Alias| {
        let names = alias.names.iter().chain(alias.to);
        names.clone().any(|name| fold(name) == fold(word))
    };
    let misspelt = |alias: &&Alias| {
        alias.names.iter().any(|name| {
            let likeness = similar(word, name);
            // A short word that lacks a letter is another word.
            let is_whole = word.len() >= name.len() || name.len() >= 8;
            likeness.is_some_and(|it| it.edits <= 1 && is_whole)
        })
    };
    let within = |alias: &&Alias| !parent.is_empty() && alias.to[0].starts_with(parent);
    let found = COMMANDS.iter().filter(within).find(leads);
    let found = found.or_else(|| aliases_of(word, COMMANDS).next());
    let is_own = || {
        own.iter()
            .any(|name| similar(word, name).is_some_and(|it| it.edits <= 1))
    };
    let found = found.or_else(|| COMMANDS.iter().find(misspelt).filter(|_| !is_own()));
    let found = found.filter(|alias| alias.to[0] != word);
    found.map(|alias| (alias.to[0], alias.note))
}

/// Returns the known names of which `word` may be a misspelling: those with the fewest letters
/// changed. Two letters in each other's place are one change.
pub fn misspelt(word: &str, known: &[&str]) -> Vec<String> {
    nearest(word, known)
}

/// Models with a setting that public code writes as a number at the end of their name.
const SIZES: &[(&str, &str)] = &[
    ("linformer", "model.rank"),
    ("luna", "model.length"),
    ("nystromformer", "model.landmarks"),
    ("performer", "model.features"),
];

/// A guess at the name that was meant.
#[derive(Default)]
struct Guess {
    /// Suggested names, the likeliest first.
    names: Vec<String>,
    /// Remark on the suggestion.
    note: String,
}

impl Guess {
    /// Returns the names here for the name `name` of public code, as far as they are among `known`.
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

    /// Adds the setting that a number at the end of a model's name stands for, as in `nystrom-128`.
    fn sized(mut self, kind: &str, name: &str) -> Guess {
        let name = fold(name);
        let number = without_size(&name).and_then(|stem| name.strip_prefix(stem));
        let number = number.filter(|it| kind == "model" && !it.ends_with('k'));
        let mut sizes = SIZES.iter();
        let size = sizes.find(|(model, _)| self.names.iter().any(|name| name == model));
        if self.note.is_empty()
            && let (Some(number), Some((model, setting))) = (number, size)
        {
            self.note = format!("{model} with --set {setting}={number}");
        }
        self
    }

    /// Adds new names up to the limit.
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
/// size at its end (`nystrom-64`, `text_4k`). A number of one digit is that of a version.
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
        .filter(|_| !is_other(name))
        .filter_map(|form| without_size(form))
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

/// Returns a name without the size at its end: two digits or more, or thousands, such as `4k`.
fn without_size(name: &str) -> Option<&str> {
    let digits =
        |text: &str| text.len() - text.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (number, least) = match name.strip_suffix('k') {
        Some(number) => (number, 1),
        None => (name, 2),
    };
    let stem = &number[..number.len() - digits(number)];
    (digits(number) >= least && stem.len() > 2).then_some(stem)
}

/// Returns the known names most similar to `name`, the likeliest first; empty if none is similar.
fn nearest(name: &str, known: &[&str]) -> Vec<String> {
    let near = known
        .iter()
        .filter_map(|known| Some((similar(name, known)?, *known)));
    likeliest(near.collect())
}

/// Returns the names with the fewest edits, the likeliest first, as many as are suggested.
fn likeliest(mut near: Vec<(Likeness, &str)>) -> Vec<String> {
    let fewest = near.iter().map(|(it, _)| it.edits).min();
    near.retain(|(it, _)| Some(it.edits) == fewest);
    near.sort_by(|a, b| b.0.share.total_cmp(&a.0.share));
    near.truncate(MOST_GUESSES);
    near.into_iter().map(|(_, name)| name.to_owned()).collect()
}

/// Likeness of a name to a known one.
#[derive(Clone, Copy)]
struct Likeness {
    /// Letters replaced, left out, added or swapped with the next; 0 for a name that is cut off.
    edits: usize,
    /// Similarity, from 0 to 1.
    share: f64,
}

/// Returns the likeness of two names, if one can be a misspelling of the other: at most one letter
/// in four is replaced, left out, added or swapped with the next, and most begin alike. Names with
/// other digits are of other things.
fn similar(name: &str, known: &str) -> Option<Likeness> {
    const LEAST: f64 = 0.85;
    if is_other(name) {
        return None;
    }
    let (mut name, mut known) = (fold(name), fold(known));
    // Many names end alike, and only their beginnings tell them apart.
    if let (Some(one), Some(other)) = (name.strip_suffix(ENDING), known.strip_suffix(ENDING)) {
        (name, known) = (one.to_owned(), other.to_owned());
    }
    let longest = name.chars().count().max(known.chars().count());
    let edits = strsim::osa_distance(&name, &known);
    let share = strsim::jaro_winkler(&name, &known);
    // One letter for another in a short word, such as `lint` for `list`, makes another word.
    let is_swap = || sorted(&name) == sorted(&known);
    if edits > 0 && name.len() == known.len() && name.len() <= SHORT && !is_swap() {
        return None;
    }
    // The beginning of a name, such as `perform`.
    if name.len() >= LEAST_BEGINNING && known.starts_with(&name) {
        return Some(Likeness { edits: 0, share });
    }
    let digits = |text: &str| -> String { text.chars().filter(char::is_ascii_digit).collect() };
    let is_near = 4 * edits <= longest && share >= LEAST && digits(&name) == digits(&known);
    is_near.then_some(Likeness { edits, share })
}

/// The end of the names of many models.
const ENDING: &str = "former";

/// Letters from which on a word can be the beginning of a name.
const LEAST_BEGINNING: usize = 3;

/// Letters up to which a word is short.
const SHORT: usize = 4;

/// Returns the letters of a word in their order in the alphabet.
fn sorted(word: &str) -> Vec<char> {
    let mut letters: Vec<char> = word.chars().collect();
    letters.sort_unstable();
    letters
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
