//! `lra list settings`: every setting that does not belong to a task or a model.

use models::options::{self, BlockOptions, Choice, EmbedOptions, HeadOptions, OptionSet};
use results::table::{Cell, Row, Table, or_null};
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::spec::{self, PretrainOptions, TrainOptions};
use crate::suggest;

/// Returns a row per setting whose name begins with `part`: a section such as `train`, or a setting
/// such as `train.steps`.
///
/// # Errors
/// No setting is called so.
pub(super) fn table(part: &str) -> Result<Table> {
    let defaults = spec::general_defaults();
    let mut settings = Vec::new();
    settings.extend(section::<EmbedOptions>("embed", &defaults));
    settings.extend(section::<BlockOptions>("block", &defaults));
    settings.extend(section::<HeadOptions>("head", &defaults));
    settings.extend(section::<TrainOptions>("train", &defaults));
    settings.extend(section::<PretrainOptions>("pretrain", &defaults));
    let is_meant = |it: &Setting| {
        let rest = it.key.strip_prefix(part);
        rest.is_some_and(|rest| part.is_empty() || rest.is_empty() || rest.starts_with('.'))
    };
    let names: Vec<&str> = settings.iter().map(|it| it.key.as_str()).collect();
    if !settings.iter().any(is_meant) {
        return Err(match part {
            "data" => {
                Error::usage("the settings of data are those of a task: `lra list tasks NAME`")
            }
            "model" => Error::usage("the settings of a model: `lra list models NAME`"),
            _ => Error::usage(suggest::unknown_setting(part, &names)),
        });
    }
    let mut table = super::listing(
        "settings",
        "Settings (--set KEY=VALUE)",
        &["setting", "default", "values", "meaning"],
        settings
            .iter()
            .filter(|it| is_meant(it))
            .map(Setting::row)
            .collect(),
    );
    table.notes = vec![
        "Settings of a task, data.*: `lra list tasks NAME`. Settings of a model, model.*: `lra list models NAME`."
            .to_owned(),
    ];
    Ok(table)
}

/// A setting for the listing.
struct Setting {
    key: String,
    default: Value,
    values: String,
    meaning: &'static str,
}

impl Setting {
    fn row(&self) -> Row {
        let default = match &self.default {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Row::new(vec![
            Cell::with(self.key.clone(), "setting", self.key.clone()),
            Cell::with(default, "default", self.default.clone()),
            Cell::with(self.values.clone(), "values", or_null(&self.values)),
            Cell::with(self.meaning, "meaning", self.meaning),
        ])
    }
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
        let table = table("").unwrap();
        assert!(table.rows.len() > 60, "{}", table.rows.len());
        for row in &table.rows {
            let text = |place: usize| row.cells[place].text.clone();
            assert!(text(3).ends_with('.'), "{}: {}", text(0), text(3));
            let free = ["train.aux", "train.groups"].contains(&text(0).as_str());
            assert!(free || !text(2).is_empty(), "{} has no values", text(0));
            assert!(text(1) != "null", "{} has no default", text(0));
        }
        assert_eq!(super::table("train.steps").unwrap().rows.len(), 1);
        assert!(super::table("train").unwrap().rows.len() > 20);
        assert!(
            super::table("train.stesp")
                .unwrap_err()
                .to_string()
                .contains("train.steps")
        );
    }
}
