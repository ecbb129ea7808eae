//! Suggestions for settings that do not exist, or that the chosen model or task does not have.

use super::Likeness;
use models::options::{BlockOptions, EmbedOptions, HeadOptions};
use serde_json::{Value, json};

use super::aliases::{Alias, SETTINGS};
use super::{Guess, aliases_of, fold, likeliest, similar};

/// Properties of a task's data that public configurations repeat.
const OF_TASKS: [&str; 8] = [
    "num_classes",
    "n_classes",
    "num_labels",
    "d_output",
    "vocab_size",
    "vocabulary_size",
    "num_tokens",
    "n_tokens",
];

/// Sections that every model has, beside those of its head.
const COMMON: [&str; 3] = ["train", "block", "embed"];

/// Most models or tasks that are named as having a setting.
const MOST_HOLDERS: usize = 6;

/// Most settings of a section that are named in place of the command that lists them.
const MOST_NAMED: usize = 8;

/// Returns the message for a setting at `path`, such as `train.stpes`, that is not among `known`,
/// the paths of all settings. Those among `words` take a word, not a number. Case says nothing.
pub fn unknown_setting<'a>(path: &str, known: &[&'a str], words: &[&str]) -> String {
    let lower = path.to_lowercase();
    let (section, leaf) = (section_of(&lower), leaf_of(&lower));
    let fits = |name: &str| !(is_of_number(leaf) && words.contains(&name));
    let mut guess = Guess::default();
    let spelt = known.iter().find(|known| fold(known) == fold(path));
    if let Some(spelt) = spelt {
        guess.add(&[*spelt]);
        return guess.message("setting", path, "");
    }
    let same_leaf = |name: &&&str| fold(leaf_of(name)) == fold(leaf);
    let elsewhere: Vec<&str> = known.iter().filter(same_leaf).copied().collect();
    // What other models have by this very name is meant, unless it is a setting of every model.
    let is_general = |name: &&str| COMMON.contains(&section_of(name));
    if !elsewhere.iter().any(is_general)
        && let Some(told) = ["model", "data"]
            .iter()
            .find(|of| **of == section)
            .and_then(|of| holders(of, &fold(leaf), None))
    {
        let elsewhere = alias_of(&lower).filter(|alias| alias.to.is_empty());
        let note = elsewhere.map_or(String::new(), |alias| format!("; {}", alias.note));
        return guess.message("setting", path, &(told + &note));
    }
    let alias = alias_of(&lower);
    if let Some(alias) = alias {
        if alias.to.is_empty() && elsewhere.is_empty() {
            return guess.message("setting", path, alias.note);
        }
        let there = |name: &&&str| name.starts_with("--") || known.contains(name) && fits(name);
        let targets: Vec<&str> = alias.to.iter().filter(there).copied().collect();
        let of_section = |name: &&&str| !name.starts_with("--") && section_of(name) == section;
        let own = targets.iter().find(of_section);
        // What the chosen model has itself is meant rather than a setting of every model.
        let own = own.or_else(|| targets.iter().find(|name| section_of(name) == "model"));
        let targets = own.map_or(&targets[..1.min(targets.len())], std::slice::from_ref);
        guess.add(targets);
        if !targets.is_empty() {
            alias.note.clone_into(&mut guess.note);
        }
    }
    guess.add(&elsewhere);
    if guess.names.is_empty()
        && let Some(told) = of_others(&lower, alias)
    {
        return guess.message("setting", path, &told);
    }
    if guess.names.is_empty() {
        let near = known.iter().filter(|name| fits(name)).filter_map(|name| {
            let own = similar(leaf, leaf_of(name))?;
            let of_section = match section.is_empty() {
                true => None,
                false => Some(similar(section, section_of(name))?),
            };
            let edits = own.edits + of_section.map_or(0, |it| it.edits);
            let share = own.share + of_section.map_or(0.0, |it| it.share);
            Some((Likeness { edits, share }, *name))
        });
        guess.names = likeliest(near.collect());
    }
    if guess.names.is_empty() && OF_TASKS.iter().any(|it| fold(it) == fold(leaf)) {
        let told = "the task itself has it, and no setting changes it";
        return guess.message("setting", path, told);
    }
    let of_section = known.iter().filter(|name| section_of(name) == section);
    let own: Vec<&str> = of_section.map(|name| leaf_of(name)).collect();
    let top = |name: &&'a str| name.split('.').next().unwrap_or_default();
    let mut sections: Vec<&str> = known.iter().map(top).collect();
    sections.dedup();
    let listing = match guess.names.is_empty() {
        false => String::new(),
        true if section.is_empty() || own.is_empty() => {
            format!("the sections of settings are {}", sections.join(", "))
        }
        true if own.len() <= MOST_NAMED => {
            format!("the settings of section {section} are {}", own.join(", "))
        }
        true => {
            let list = match section {
                "model" => "models MODEL".to_owned(),
                "data" => "tasks TASK".to_owned(),
                section => format!("settings {section}"),
            };
            let number = own.len();
            format!("section {section} has {number} settings; `lra list {list}` names them all")
        }
    };
    guess.message("setting", path, &listing)
}

/// Returns whether a name says that its value is a number.
fn is_of_number(leaf: &str) -> bool {
    let leaf = fold(leaf);
    let ends = ["dim", "size", "lr", "rate", "length"];
    ends.iter().any(|end| leaf.ends_with(end)) || leaf.starts_with("num")
}

/// Returns the alias of the last two parts of `path`, such as `decoder.mode`, else of the last one.
fn alias_of(path: &str) -> Option<&'static Alias> {
    let (parent, leaf) = (leaf_of(section_of(path)), leaf_of(path));
    let both = fold(parent) + &fold(leaf);
    let is_it = |alias: &&Alias| alias.names.iter().any(|name| fold(name) == both);
    let of_both = SETTINGS.iter().filter(|_| !parent.is_empty()).find(is_it);
    of_both.or_else(|| aliases_of(leaf, SETTINGS).next())
}

/// Returns who has a setting that the chosen model or task lacks: one called as the last part of
/// `path`, or one that `alias` leads to; `None` if none has.
fn of_others(path: &str, alias: Option<&Alias>) -> Option<String> {
    let top = section_of(path).split('.').next().unwrap_or_default();
    // The other sections are the same for all models and tasks.
    if COMMON.contains(&top) || ["head", "pretrain"].contains(&top) {
        return None;
    }
    let leaf = fold(leaf_of(path));
    ["model", "data"]
        .iter()
        .find_map(|of| holders(of, &leaf, alias))
}

/// Returns who has a setting of section `of`, `model` or `data`, called `leaf`, or one of that
/// section that `alias` leads to; `None` if none has.
fn holders(of: &str, leaf: &str, alias: Option<&Alias>) -> Option<String> {
    let (one, several, all): (_, _, Vec<(&str, Value)>) = match of {
        "model" => {
            let models = models::registry().iter();
            let options = models.map(|it| (it.name, it.defaults()));
            ("model", "models", options.collect())
        }
        _ => {
            let tasks = datasets::tasks::registry().iter();
            let options = tasks.map(|it| (it.info().name, it.defaults()));
            ("task", "tasks", options.collect())
        }
    };
    let keys = all.iter().flat_map(|(_, options)| options.as_object());
    let keys: Vec<&str> = keys
        .flat_map(|options| options.keys().map(String::as_str))
        .collect();
    // The name itself comes before what others call so.
    let own = keys.iter().copied().find(|key| fold(key) == leaf);
    let aliased = alias.into_iter().flat_map(|alias| alias.to);
    let aliased = aliased.filter(|to| section_of(to) == of);
    let mut aliased = aliased.map(|to| leaf_of(to));
    let key = own.or_else(|| aliased.find(|key| keys.contains(key)))?;
    let fits = |value: &Value| !(is_of_number(leaf) && value.is_string());
    let has = all
        .iter()
        .filter(|(_, options)| options.get(key).is_some_and(fits));
    let has: Vec<&str> = has.map(|(name, _)| *name).collect();
    let more = match has.len().saturating_sub(MOST_HOLDERS) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    if has.is_empty() {
        return None;
    }
    let named = has[..has.len().min(MOST_HOLDERS)].join(", ");
    let kind = if has.len() == 1 { one } else { several };
    Some(format!("this is {of}.{key} of the {kind} {named}{more}"))
}

/// Returns the path of the setting whose last part is `word`, dashes or underscores: one of every
/// run, else one of some models, else one of some tasks. `train` has the
/// settings of training.
pub fn setting_called(word: &str, train: Value) -> Option<String> {
    let models = models::registry().iter().map(|it| ("model", it.defaults()));
    let tasks = datasets::tasks::registry()
        .iter()
        .map(|it| ("data", it.defaults()));
    let general = [
        ("train", train),
        ("block", json!(BlockOptions::default())),
        ("embed", json!(EmbedOptions::default())),
        ("head", json!(HeadOptions::default())),
    ];
    let more = [
        "optimizer",
        "bucket",
        "schedule_steps",
        "cycle_momentum",
        "sequence_weight",
    ];
    let mut sections = general.into_iter().chain(models).chain(tasks);
    let found = sections.find_map(|(section, options)| {
        let keys = options.as_object()?;
        let key = keys.keys().find(|key| fold(key) == fold(word))?;
        Some(format!("{section}.{key}"))
    });
    let unset = more.iter().find(|key| fold(key) == fold(word));
    unset.map(|key| format!("train.{key}")).or(found)
}

fn section_of(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(section, _)| section)
}

fn leaf_of(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(_, leaf)| leaf)
}
