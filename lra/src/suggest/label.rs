//! Labels of reduced tasks, such as `text@512`, given in place of a task.

use datasets::Task;
use serde_json::{Map, Value, json};

use super::Guess;
use super::aliases::TASKS;

/// Returns the task of a label and the settings that make it; `None` if `name` is not a label.
pub(super) fn explained(name: &str) -> Option<Guess> {
    let (head, tail) = name.split_once('@')?;
    let known: Vec<&str> = datasets::TASKS.iter().map(|it| it.info().name).collect();
    let exact = known.iter().position(|known| *known == head);
    let index = exact.or_else(|| {
        let guess = Guess::of_alias(head, TASKS, &known)?;
        known.iter().position(|known| guess.names[0] == *known)
    })?;
    let task = datasets::TASKS[index];
    let note = match settings(task, tail) {
        None if tail.ends_with('*') => format!(
            "'{name}' is the label of {} at its published length, with other settings of its data that it does not name",
            known[index]
        ),
        Some(settings) => format!("'{name}' is the label of {} with {settings}", known[index]),
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

/// Returns the assignments that give a task the label `tail`, as words for the command line; `None`
/// if no setting does.
fn settings(task: &dyn Task, tail: &str) -> Option<String> {
    let defaults = task.defaults();
    let keys = defaults.as_object()?;
    let mut options = defaults.clone();
    let mut words = Vec::new();
    for part in tail.split('-') {
        let mut set = |key: &str, value: &Value| {
            options[key] = value.clone();
            words.push(format!("--set data.{key}={}", plain(value)));
        };
        if let Some((low, high)) = range(keys, part) {
            set(low.0, &low.1);
            set(high.0, &high.1);
            continue;
        }
        let (key, value) = option(keys, part)?;
        set(key, &value);
        // Generated sequences have a shortest length too, which must fit under a small longest one.
        if key == "max_length" && keys.contains_key("min_length") {
            let shortest = value.as_u64()? / 4;
            options["min_length"] = json!(shortest);
            words.push(format!("--set data.min_length={shortest}"));
        }
    }
    let label = task.shape(&options).ok()?.label;
    (label == format!("{}@{tail}", task.info().name)).then(|| words.join(" "))
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
