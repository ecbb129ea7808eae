//! Merging of settings into defaults. The defaults hold every key, so an unknown key, or a value of
//! another kind, is an error that names the nearest known key.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::suggest;

/// Replaces the values of `base` by those of `over`, section by section; `origin` names the origin
/// of `over` in messages.
///
/// # Errors
/// A key that `base` lacks, or a value of another kind than the one it replaces.
pub fn merge(base: &mut Value, over: &Value, origin: &str) -> Result<()> {
    merge_at(base, over, origin, "").map_err(|refused| match refused {
        Refused::Unknown(path) => unknown_key(&path, base, origin),
        Refused::Error(error) => error,
    })
}

/// Reason why a value cannot be set.
enum Refused {
    /// There is no setting at this path.
    Unknown(String),
    /// Another reason.
    Error(Error),
}

fn merge_at(base: &mut Value, over: &Value, origin: &str, path: &str) -> Result<(), Refused> {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                let path = join(path, key);
                match base.get_mut(key) {
                    Some(slot) => merge_at(slot, value, origin, &path)?,
                    None => return Err(Refused::Unknown(leaf(path, value))),
                }
            }
            Ok(())
        }
        (slot, value) if same_kind(slot, value) || is_size(slot, value, path) => {
            *slot = match (slot.is_f64(), value.as_f64()) {
                // 0, 0.0 and -0.0 are the same setting, and the text of the settings names a run.
                (true, Some(number)) => Value::from(number + 0.0),
                _ => value.clone(),
            };
            Ok(())
        }
        (slot, value) => {
            // The default of a size may be a function of the length, which is no word.
            let takes = match is_size(slot, slot, path) && slot.is_string() {
                true => "a whole number, or a function of the length such as L/4",
                false => kind(slot),
            };
            Err(Refused::Error(Error::usage(format!(
                "{origin}: {path} takes {takes}, so it cannot be {value}"
            ))))
        }
    }
}

/// Returns the path of the setting that `value`, at `path`, holds, as deep as it holds a single
/// one.
fn leaf(path: String, value: &Value) -> String {
    let section = value.as_object().filter(|section| section.len() == 1);
    match section.and_then(|section| section.iter().next()) {
        Some((key, value)) => leaf(join(&path, key), value),
        None => path,
    }
}

fn join(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// Returns the setting that an assignment is about: `train.steps` for `train.steps=80`.
pub fn key(assignment: &str) -> &str {
    assignment.split('=').next().unwrap_or_default().trim()
}

/// Checks that no setting gets two different values.
///
/// # Errors
/// One does; the message names both.
pub fn check_once<'a>(assignments: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for assignment in assignments {
        let before = seen.insert(key(assignment), assignment);
        if let Some(before) = before.filter(|before| before != assignment) {
            return Err(Error::usage(format!(
                "{before} and {assignment}: the setting has two values; give one"
            )));
        }
    }
    Ok(())
}

/// Returns the assignments without those that a later one of the same setting replaces.
pub fn effective(assignments: &[String]) -> Vec<String> {
    let replaced = |place: usize| {
        let later = assignments[place + 1..].iter();
        later
            .map(|it| key(it))
            .any(|it| it == key(&assignments[place]))
    };
    let all = assignments.iter().enumerate();
    let kept = all.filter(|(place, _)| !replaced(*place));
    kept.map(|(_, assignment)| assignment.clone()).collect()
}

/// Returns the `assignments` whose settings have the same values before and after all of them.
pub fn repeated(assignments: &[String], before: &Value, after: &Value) -> Result<Vec<String>> {
    let mut repeated = Vec::new();
    for assignment in assignments {
        let same = matches(&parse_assignment(assignment)?, before, after);
        repeated.extend(same.then(|| assignment.clone()));
    }
    Ok(repeated)
}

/// Returns whether two trees of settings have the same values wherever `over` has one.
fn matches(over: &Value, before: &Value, after: &Value) -> bool {
    match over.as_object() {
        Some(section) => section
            .iter()
            .all(|(key, value)| matches(value, &before[key], &after[key])),
        None => before == after && !before.is_null(),
    }
}

/// Deepest nesting of a setting: a section and a name, and some room to grow.
const MAX_DEPTH: usize = 8;

/// Parses `key=value` as given to `--set`; the value is read as TOML, and as plain text if it is
/// not TOML.
pub fn parse_assignment(text: &str) -> Result<Value> {
    let (key, value) = text
        .split_once('=')
        .filter(|(key, _)| !key.trim().is_empty())
        .ok_or_else(|| {
            Error::usage(format!(
                "--set {text}: this is not KEY=VALUE, such as train.steps=500"
            ))
        })?;
    let (key, value) = (key.trim(), value.trim());
    if key.split('.').count() > MAX_DEPTH {
        let start: String = key.chars().take(40).collect();
        return Err(Error::usage(format!(
            "--set {start}...: too many dots; a setting is called section.name"
        )));
    }
    let parsed = toml::from_str::<Map<String, Value>>(&format!("value = {value}"))
        .ok()
        .filter(|table| table.len() == 1)
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    // JSON has no notation for these numbers, and TOML none for JSON's null.
    if parsed.is_null() {
        return Err(Error::usage(format!(
            "--set {text}: the value is not a finite number"
        )));
    }
    let nested = key.rsplit('.').fold(parsed, |inner, part| {
        Value::Object([(part.to_owned(), inner)].into_iter().collect())
    });
    Ok(nested)
}

fn unknown_key(path: &str, settings: &Value, origin: &str) -> Error {
    let mut known = Vec::new();
    paths(settings, "", &mut known);
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let value = |path: &str| settings.pointer(&format!("/{}", path.replace('.', "/")));
    let takes_word = |path: &&str| value(path).is_some_and(Value::is_string);
    let words: Vec<&str> = known.iter().copied().filter(takes_word).collect();
    let message = suggest::unknown_setting(path, &known, &words);
    Error::usage(format!("{origin}: {message}"))
}

/// Adds the paths of all settings below `path`.
fn paths(settings: &Value, path: &str, found: &mut Vec<String>) {
    match settings.as_object().filter(|section| !section.is_empty()) {
        Some(section) => {
            for (key, value) in section {
                paths(value, &join(path, key), found);
            }
        }
        None => found.push(path.to_owned()),
    }
}

fn same_kind(slot: &Value, value: &Value) -> bool {
    match (slot, value) {
        // An integer is accepted for a real number, but not the other way round.
        (Value::Number(slot), Value::Number(value)) => slot.is_f64() || !value.is_f64(),
        (Value::Bool(_), Value::Bool(_))
        | (Value::String(_), Value::String(_))
        | (Value::Array(_), Value::Array(_)) => true,
        (Value::Null, value) => !value.is_object(),
        _ => false,
    }
}

/// Returns whether a model's integer is given as a function of the length, such as `L/4`, to be
/// evaluated when the length is known.
fn is_size(slot: &Value, value: &Value, path: &str) -> bool {
    let is_size = |value: &Value| {
        let expression = value.as_str().is_some_and(models::size::is_expression);
        value.is_u64() || expression
    };
    path.starts_with("model.") && is_size(slot) && is_size(value)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "a single value",
        Value::Bool(_) => "true or false",
        Value::Number(number) if number.is_f64() => "a number",
        Value::Number(_) => "a whole number",
        Value::String(_) => "a word",
        Value::Array(_) => "a list",
        Value::Object(_) => "a section",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn base() -> Value {
        json!({"train": {"steps": 10, "learning_rate": 0.5, "schedule": "cosine"}, "block": {"dim": 64}})
    }

    fn set(text: &str) -> Result<Value> {
        let mut base = base();
        merge(&mut base, &parse_assignment(text)?, "--set")?;
        Ok(base)
    }

    #[test]
    fn known_keys_are_replaced_and_the_others_stay() {
        let merged = set("train.steps=20").unwrap();
        assert_eq!(merged["train"]["steps"], 20);
        assert_eq!(merged["train"]["learning_rate"], 0.5);
        assert_eq!(
            set("train.learning_rate=1").unwrap()["train"]["learning_rate"],
            1.0
        );
        assert_eq!(
            set("train.learning_rate=1e-3").unwrap()["train"]["learning_rate"],
            1e-3
        );
        assert_eq!(
            set("train.schedule=linear").unwrap()["train"]["schedule"],
            "linear"
        );
        assert_eq!(
            set("train.schedule=\"linear\"").unwrap()["train"]["schedule"],
            "linear"
        );
    }

    #[test]
    fn a_real_number_is_one_setting_however_it_is_spelt() {
        for text in ["0", "0.0", "0e0", "-0", "-0.0"] {
            let merged = set(&format!("train.learning_rate={text}")).unwrap();
            assert_eq!(
                merged["train"]["learning_rate"].to_string(),
                "0.0",
                "{text}"
            );
        }
        assert_eq!(
            set("train.learning_rate=2").unwrap(),
            set("train.learning_rate=2.0").unwrap()
        );
    }

    #[test]
    fn unknown_keys_offer_the_nearest() {
        let message = set("train.stpes=20").unwrap_err().to_string();
        assert!(message.contains("did you mean 'train.steps'?"), "{message}");
        let message = set("trian.steps=20").unwrap_err().to_string();
        assert!(message.contains("did you mean 'train.steps'?"), "{message}");
        let message = set("optimizer.lr=0.1").unwrap_err().to_string();
        assert!(
            message.contains("unknown setting 'optimizer.lr'; did you mean 'train.learning_rate'?"),
            "{message}"
        );
        let message = set("train.zzzz=1").unwrap_err().to_string();
        assert!(
            message.ends_with(
                "unknown setting 'train.zzzz'; the settings of section train are steps, learning_rate, schedule"
            ),
            "{message}"
        );
    }

    #[test]
    fn values_of_another_kind_are_refused() {
        for text in [
            "train.steps=many",
            "train.steps=1.5",
            "train.schedule=3",
            "train=3",
            "block.dim.x=1",
            "train.learning_rate=nan",
            "train.learning_rate=-inf",
            "train.steps=18446744073709551616",
            "a.b.c.d.e.f.g.h.i=1",
            "steps",
            "=3",
        ] {
            assert!(set(text).is_err(), "{text}");
        }
    }

    #[test]
    fn of_two_values_of_a_setting_the_later_one_is_effective_and_two_are_a_mistake() {
        let owned = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let given = owned(&["a.b=1", "c=2", " a.b = 3", "a.bc=4"]);
        assert_eq!(effective(&given), ["c=2", " a.b = 3", "a.bc=4"]);
        assert!(check_once(&owned(&["a.b=1", "c=2", "a.b=1"])).is_ok());
        let error = check_once(&given).unwrap_err().to_string();
        assert!(error.contains("a.b=1 and  a.b = 3"), "{error}");
    }

    #[test]
    fn an_assignment_repeats_a_value_that_was_there_and_stays() {
        let of = |text: &str| {
            let mut after = base();
            let parsed = parse_assignment(text).unwrap();
            // Another setting changes, too; an unknown one is nothing that could be repeated.
            merge(&mut after, &json!({ "block": { "dim": 32 } }), "--set").unwrap();
            let _ = merge(&mut after, &parsed, "--set");
            !repeated(&[text.to_owned()], &base(), &after)
                .unwrap()
                .is_empty()
        };
        for (text, wanted) in [
            ("train.steps=10", true),
            ("train.learning_rate=5e-1", true),
            ("train.steps=11", false),
            ("block.dim=32", false),
            ("train.zzz=1", false),
        ] {
            assert_eq!(of(text), wanted, "{text}");
        }
    }

    #[test]
    fn sizes_of_the_model_alone_are_functions_of_the_length() {
        let with = |path: &str, value: Value| {
            let (section, key) = path.split_once('.').unwrap();
            let mut base = json!({ section: { key: 64 } });
            merge(&mut base, &json!({ section: { key: value } }), "--set").is_ok()
        };
        assert!(with("model.size", json!("L/4")) && with("model.size", json!(8)));
        for wrong in [json!("many"), json!(-1.5), json!(true)] {
            assert!(!with("model.size", wrong));
        }
        assert!(!with("block.dim", json!("L/4")));
    }

    #[test]
    fn a_size_is_told_as_such_whatever_its_default() {
        let mut base = json!({ "model": { "rank": "L/4", "kind": "paper" } });
        let mut told = |key: &str| {
            let value = json!({ "model": { key: 1.5 } });
            merge(&mut base, &value, "--set").unwrap_err().to_string()
        };
        assert!(told("rank").contains("rank takes a whole number, or a function of the length"));
        assert!(told("kind").contains("kind takes a word, so it cannot be 1.5"));
    }
}
