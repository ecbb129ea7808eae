//! Labels of reduced tasks, such as `text@512`, given in place of a task.

use datasets::{Source, Task};
use serde_json::{Map, Value, json};

use super::Guess;
use super::aliases::TASKS;
use crate::permute;

/// Returns the task of a label and the settings that make it; `None` if `name` is not a label.
pub(super) fn explained(name: &str) -> Option<Guess> {
    let (head, tail) = name.split_once('@')?;
    let known: Vec<&str> = datasets::tasks::registry()
        .iter()
        .map(|it| it.info().name)
        .collect();
    let exact = known.iter().position(|known| *known == head);
    let index = exact.or_else(|| {
        let guess = Guess::of_alias(head, TASKS, &known)?;
        known.iter().position(|known| guess.names[0] == *known)
    })?;
    let task = datasets::tasks::registry()[index];
    let note = match described(task, tail) {
        Some(words) => {
            let label = format!("{}@{tail}", known[index]);
            let told = match label == name {
                true => format!("'{label}' is the label"),
                false => format!("'{name}' is {label}, the label"),
            };
            format!("{told} of {} {words}", known[index])
        }
        None => format!(
            "a name with @ is the label of a task with other settings of its data; its settings: `lra list tasks {}`",
            known[index]
        ),
    };
    Some(Guess {
        names: vec![known[index].to_owned()],
        note,
    })
}

/// Returns what the label `tail` says of a task's data, in words; `None` if it is no label. The
/// length that the task has anyway, or a star, stands for settings that no label names.
fn described(task: &dyn Task, tail: &str) -> Option<String> {
    if let Some(settings) = settings(task, tail) {
        return Some(format!("with {settings}"));
    }
    const UNNAMED: &str = "other settings of its data that it does not name";
    let plain = tail.strip_suffix('*').unwrap_or(tail);
    let defaults = task.defaults();
    let lengths = ["size", "max_length"].map(|key| defaults[key].as_u64());
    if lengths
        .into_iter()
        .flatten()
        .any(|length| length.to_string() == plain)
    {
        let length = match task.info().sources.contains(&Source::Official) {
            true => "published length",
            false => "own length",
        };
        return Some(format!("at its {length}, with {UNNAMED}"));
    }
    let (words, _) = assignments(task, plain).filter(|_| plain != tail)?;
    Some(format!("with {} and {UNNAMED}", words.join(" ")))
}

/// Returns the assignments that give a task the label `tail`, as words for the command line; `None`
/// if no setting does.
fn settings(task: &dyn Task, tail: &str) -> Option<String> {
    let (words, (options, permuted)) = assignments(task, tail)?;
    let label = permute::shape(task.shape(&options).ok()?, permuted).label;
    (label == format!("{}@{tail}", task.info().name)).then(|| words.join(" "))
}

/// Options of a task, and the seed by which its positions are permuted.
type Options = (Value, u64);

/// Returns the assignments that the parts of a label describe, as words for the command line, and
/// what they make of the task's options; `None` if a part describes none.
fn assignments(task: &dyn Task, tail: &str) -> Option<(Vec<String>, Options)> {
    let defaults = task.defaults();
    let keys = defaults.as_object()?;
    let mut options = defaults.clone();
    let mut words = Vec::new();
    let mut permuted = 0;
    for part in tail.split('-') {
        if let Some(seed) = permute::of_label(part) {
            permuted = seed;
            words.push(format!("--set data.{}={seed}", permute::KEY));
            continue;
        }
        if let Some((low, high)) = range(keys, part) {
            for (key, value) in [low, high] {
                words.push(set(&mut options, key, &value));
            }
            continue;
        }
        let (key, value) = option(keys, part)?;
        words.push(set(&mut options, key, &value));
        // Generated sequences have a shortest length too, which must fit under a small longest one.
        let least = options.get("min_length").and_then(Value::as_u64);
        if key == "max_length" && least.is_some_and(|least| least + 2 > value.as_u64().unwrap_or(0))
        {
            let shortest = value.as_u64()? / 4;
            options["min_length"] = json!(shortest);
            words.push(format!("--set data.min_length={shortest}"));
        }
    }
    Some((words, (options, permuted)))
}

/// Sets an option; returns the words that set it on the command line.
fn set(options: &mut Value, key: &str, value: &Value) -> String {
    options[key] = value.clone();
    format!("--set data.{key}={}", plain(value))
}

/// An option and its value.
type Set = (&'static str, Value);

/// Returns the options that a part such as `5to9` describes: the least and the largest number.
fn range(keys: &Map<String, Value>, part: &str) -> Option<(Set, Set)> {
    let (low, high) = part.split_once("to")?;
    let number = |digits: &str| digits.parse::<u64>().ok();
    let (low, high) = (number(low)?, number(high)?);
    let has = ["min_dashes", "max_dashes"].map(|key| keys.contains_key(key));
    (has == [true; 2]).then(|| (("min_dashes", json!(low)), ("max_dashes", json!(high))))
}

/// Returns the option that a part of a label describes.
fn option(keys: &Map<String, Value>, part: &str) -> Option<(&'static str, Value)> {
    let has = |key: &&str| keys.contains_key(*key);
    let number = |digits: &str| digits.parse::<u64>().ok();
    if let Some(length) = number(part) {
        let key = ["size", "max_length"].into_iter().find(has)?;
        return Some((key, json!(length)));
    }
    if let Some(rows) = part.strip_prefix('n').and_then(number) {
        return has(&"train").then(|| ("train", json!(rows)));
    }
    let (key, value) = match part {
        "decoded" => ("decode", json!(true)),
        "dense" => ("dense", json!(true)),
        "whole" => ("dense", json!(false)),
        "parity" | "z60" | "s5" => ("group", json!(part)),
        "anagrams" => ("topics", json!(part)),
        "easy" | "intermediate" | "hard" => ("difficulty", json!(part)),
        _ => ("pixels", json!(part)),
    };
    has(&key).then_some((key, value))
}

fn plain(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
