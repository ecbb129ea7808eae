//! Which models a benchmark measures: registry entries, each with options of its own.

use std::fmt;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::suggest;

/// A model with some of its own options set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// Registry name.
    pub model: &'static str,
    /// Options, such as `attention=materialised`.
    pub options: Vec<String>,
}

/// The option that says whether attention weights are kept in memory, and its value for the published way.
const MATERIALISED: (&str, &str) = ("attention", "materialised");

impl ModelChoice {
    /// Parses `model` or `model:key=value`, with as many options as are wanted.
    pub fn parse(text: &str) -> Result<ModelChoice> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let model = *suggest::find("model", name, models::MODELS, |model| model.name)?;
        let options: Vec<String> = parts.map(str::to_owned).collect();
        if let Some(wrong) = options.iter().find(|option| !option.contains('=')) {
            return Err(Error::usage(format!(
                "'{text}': '{wrong}' is not an option such as variant=tay2021"
            )));
        }
        Ok(ModelChoice {
            model: model.name,
            options,
        })
    }

    /// Every registered model.
    pub fn registered() -> Vec<ModelChoice> {
        let plain = |model: &&'static models::Model| ModelChoice {
            model: model.name,
            options: Vec::new(),
        };
        models::MODELS.iter().map(plain).collect()
    }

    /// Every registered model; one that can keep its attention weights in memory comes both ways.
    pub fn both_ways() -> Vec<ModelChoice> {
        let mut choices = Vec::new();
        let (key, value) = MATERIALISED;
        for (model, choice) in models::MODELS.iter().zip(ModelChoice::registered()) {
            choices.push(choice.clone());
            if model.defaults().get(key).is_some_and(Value::is_string) {
                choices.push(ModelChoice {
                    options: vec![format!("{key}={value}")],
                    ..choice
                });
            }
        }
        choices
    }

    /// The options as assignments to settings.
    pub fn assignments(&self) -> impl Iterator<Item = String> + '_ {
        self.options.iter().map(|option| format!("model.{option}"))
    }
}

impl fmt::Display for ModelChoice {
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
        let choice = ModelChoice::parse("performer:variant=tay2021").unwrap();
        assert_eq!(choice.model, "performer");
        let assignments: Vec<_> = choice.assignments().collect();
        assert_eq!(assignments, ["model.variant=tay2021"]);
        assert!(ModelChoice::parse("performer:fast").is_err());
        assert!(ModelChoice::parse("perfomer").is_err());
    }

    #[test]
    fn softmax_attention_is_measured_both_ways_and_every_model_at_least_once() {
        let all = ModelChoice::both_ways();
        assert!(all.contains(&ModelChoice::parse("transformer:attention=materialised").unwrap()));
        for model in models::MODELS {
            assert!(all.contains(&ModelChoice::parse(model.name).unwrap()));
        }
    }
}
