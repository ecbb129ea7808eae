//! Which models a benchmark measures: registry entries, each with options of its own.

use std::fmt;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::names;

/// A model with some of its own options set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Registry name.
    pub model: &'static str,
    /// Options, such as `attention=materialised`.
    pub options: Vec<String>,
}

/// The option that says whether attention weights are kept in memory, and its value for the published way.
const MATERIALISED: (&str, &str) = ("attention", "materialised");

impl Entry {
    /// Parses `model` or `model:key=value`, with as many options as are wanted.
    pub fn parse(text: &str) -> Result<Entry> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let model = *names::find("model", name, models::MODELS, |model| model.name)?;
        let options: Vec<String> = parts.map(str::to_owned).collect();
        if let Some(wrong) = options.iter().find(|option| !option.contains('=')) {
            return Err(Error::usage(format!(
                "'{text}': '{wrong}' is not an option such as variant=tay2021"
            )));
        }
        Ok(Entry {
            model: model.name,
            options,
        })
    }

    /// Every registered model.
    pub fn registered() -> Vec<Entry> {
        let entry = |model: &&'static models::Model| Entry {
            model: model.name,
            options: Vec::new(),
        };
        models::MODELS.iter().map(entry).collect()
    }

    /// Every registered model; one that can keep its attention weights in memory comes both ways.
    pub fn both_ways() -> Vec<Entry> {
        let mut entries = Vec::new();
        let (key, value) = MATERIALISED;
        for (model, entry) in models::MODELS.iter().zip(Entry::registered()) {
            entries.push(entry.clone());
            if model.defaults().get(key).is_some_and(Value::is_string) {
                entries.push(Entry {
                    options: vec![format!("{key}={value}")],
                    ..entry
                });
            }
        }
        entries
    }

    /// The options as assignments to settings.
    pub fn assignments(&self) -> impl Iterator<Item = String> + '_ {
        self.options.iter().map(|option| format!("model.{option}"))
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model)?;
        self.options
            .iter()
            .try_for_each(|option| write!(f, ":{option}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_come_with_options() {
        let entry = Entry::parse("performer:variant=tay2021").unwrap();
        assert_eq!(entry.model, "performer");
        let assignments: Vec<_> = entry.assignments().collect();
        assert_eq!(assignments, ["model.variant=tay2021"]);
        assert!(Entry::parse("performer:fast").is_err());
        assert!(Entry::parse("perfomer").is_err());
    }

    #[test]
    fn softmax_attention_is_measured_both_ways_and_every_model_at_least_once() {
        let all = Entry::both_ways();
        assert!(all.contains(&Entry::parse("transformer:attention=materialised").unwrap()));
        for model in models::MODELS {
            assert!(all.contains(&Entry::parse(model.name).unwrap()));
        }
    }
}
