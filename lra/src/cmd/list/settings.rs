//! `lra list settings`: every setting that does not belong to a task or a model.

use models::options::{self, BlockOptions, Choice, EmbedOptions, HeadOptions, OptionSet};
use results::table::or_null;
use results::{width, wrap};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::spec::{self, PretrainOptions, TrainOptions};
use crate::{cmd, suggest};

/// Prints the settings whose name begins with `part`, as text or as JSON.
pub(super) fn show(part: &str, as_json: bool) -> Result<()> {
    let found = find(part)?;
    match as_json {
        true => cmd::print_json(&json(&found)),
        false => cmd::print_prose(&text(&found)),
    }
}

/// Returns the settings whose name begins with `part`: a section such as `train`, or a setting such
/// as `train.steps`.
///
/// # Errors
/// No setting is called so.
fn find(part: &str) -> Result<Vec<Setting>> {
    let defaults = spec::general_defaults();
    let mut settings = Vec::new();
    settings.extend(section::<EmbedOptions>("embed", &defaults));
    settings.extend(section::<BlockOptions>("block", &defaults));
    settings.extend(section::<HeadOptions>("head", &defaults));
    settings.extend(section::<TrainOptions>("train", &defaults));
    settings.extend(section::<PretrainOptions>("pretrain", &defaults));
    let names: Vec<String> = settings.iter().map(|it| it.key.clone()).collect();
    settings.retain(|it| {
        let rest = it.key.strip_prefix(part);
        rest.is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('.'))
    });
    if !settings.is_empty() {
        return Ok(settings);
    }
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    Err(match part {
        "data" => Error::usage("the settings of data are those of a task: `lra list tasks NAME`"),
        "model" => Error::usage("the settings of a model: `lra list models NAME`"),
        _ => Error::usage(suggest::unknown_setting(part, &names, &[])),
    })
}

/// Returns settings as text: each with its default and values, its meaning below.
fn text(settings: &[Setting]) -> String {
    let mut text = "Settings (--set KEY=VALUE), with their defaults\n".to_owned();
    for it in settings {
        let values = match it.values.as_str() {
            "" => String::new(),
            values => format!("  ({values})"),
        };
        let first = format!("{} = {}{values}", it.key, it.default);
        text += &format!("\n  {}", wrap(&first, width(), 2, 6));
        text += &format!("\n      {}", wrap(it.meaning, width(), 6, 6));
    }
    text + "\n\nThose of a task, data.*: `lra list tasks NAME`. Those of a model, model.*: `lra list models NAME`.\n"
}

/// Returns settings for programs.
fn json(settings: &[Setting]) -> Vec<Value> {
    let one = |it: &Setting| {
        json!({
            "setting": it.key,
            "default": it.default,
            "values": or_null(&it.values),
            "meaning": it.meaning,
        })
    };
    settings.iter().map(one).collect()
}

/// A setting for the listing.
struct Setting {
    key: String,
    default: Value,
    values: String,
    meaning: &'static str,
}

/// Returns the settings of a section, in the order of its struct.
fn section<T: OptionSet>(name: &'static str, defaults: &Value) -> Vec<Setting> {
    let defaults = &defaults[name];
    let setting = |(key, meaning): &(&str, &'static str)| {
        let (full, default) = (format!("{name}.{key}"), defaults[*key].clone());
        let of_component = T::COMPONENTS.iter().find(|it| it.key == full);
        let range = T::RANGES.iter().find(|range| range.key == *key);
        let values = match (of_component, range) {
            (_, Some(range)) => range.to_string(),
            (Some(component), _) => joined(component.values),
            _ => words::<T>(name, key, defaults),
        };
        Setting {
            key: full,
            default,
            values,
            meaning,
        }
    };
    T::SUMMARIES.iter().map(setting).collect()
}

fn joined(values: &[Choice]) -> String {
    let values: Vec<&str> = values.iter().map(|choice| choice.value).collect();
    values.join(", ")
}

/// Returns the words that a setting can have, which the reader names if it gets another; empty if it
/// takes no words.
fn words<T: OptionSet>(section: &str, key: &str, defaults: &Value) -> String {
    if defaults[key].is_boolean() {
        return "true, false".to_owned();
    }
    let mut settings = defaults.clone();
    settings[key] = json!("?");
    match options::read::<T>(section, &settings, defaults, T::RANGES) {
        Err(models::Error::Word { known, .. }) => known.join(", "),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_has_a_meaning_and_those_of_a_kind_have_values() {
        let all = find("").unwrap();
        assert!(all.len() > 60, "{}", all.len());
        for it in &all {
            assert!(it.meaning.ends_with('.'), "{}: {}", it.key, it.meaning);
            let free = ["train.aux", "train.groups"].contains(&it.key.as_str());
            assert!(free || !it.values.is_empty(), "{} has no values", it.key);
            assert!(!it.default.is_null(), "{} has no default", it.key);
        }
        assert_eq!(find("train.steps").unwrap().len(), 1);
        assert!(find("train").unwrap().len() > 20);
        let unknown = find("train.stesp").err().unwrap().to_string();
        assert!(unknown.contains("train.steps"), "{unknown}");
    }

    #[test]
    fn the_text_fits_a_terminal() {
        let text = text(&find("block").unwrap());
        assert!(
            text.lines().all(|line| line.chars().count() <= width()),
            "{text}"
        );
        assert!(text.contains("\n  block.layers = "), "{text}");
    }
}
