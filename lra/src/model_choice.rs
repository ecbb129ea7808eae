//! Models of a benchmark or a sweep: registry entries, each with its own settings.

use std::fmt;

use serde_json::Value;

use crate::error::{Error, Result};
use crate::{overlay, suggest};

/// A model with some settings changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelChoice {
    /// Registry name.
    pub model: &'static str,
    /// Options of the model, such as `attention=materialised`, and settings with their section,
    /// such as `block.norm=rms`.
    pub options: Vec<String>,
}

/// The option that controls whether attention weights are kept in memory, and its value for the
/// published computation.
const MATERIALISED: (&str, &str) = ("attention", "materialised");

impl ModelChoice {
    /// Parses `model` or `model:key=value`, with any number of options.
    pub fn parse(text: &str) -> Result<ModelChoice> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let model = *suggest::find("model", name, models::registry(), |model| model.name)?;
        let options: Vec<String> = parts.map(str::to_owned).collect();
        if let Some(wrong) = options.iter().find(|option| !option.contains('=')) {
            return Err(Error::usage(format!(
                "'{text}': '{wrong}' is not an option such as variant=tay2021"
            )));
        }
        let choice = ModelChoice {
            model: model.name,
            options,
        };
        overlay::check_once(&choice.assignments().collect::<Vec<_>>())?;
        Ok(choice)
    }

    /// Returns every registered model.
    pub fn registered() -> Vec<ModelChoice> {
        let plain = |model: &&'static models::Model| ModelChoice {
            model: model.name,
            options: Vec::new(),
        };
        models::registry().iter().map(plain).collect()
    }

    /// Returns this model with each value of each component that it supports, one at a time, except for
    /// the defaults.
    pub fn with_each_component(&self) -> Vec<ModelChoice> {
        let mut choices = Vec::new();
        let model = models::mixers::find(self.model);
        for (model, component) in model.iter().flat_map(|model| {
            let components = models::COMPONENTS.iter();
            components.map(move |component| (model, component))
        }) {
            let others = component.values.iter().skip(1);
            for choice in others.filter(|choice| component.try_around(model, choice).is_ok()) {
                let wanted = choice.wants.iter().copied();
                let settings = wanted.chain([(component.key, choice.value)]);
                let settings = settings.map(|(key, value)| format!("{key}={value}"));
                choices.push(ModelChoice {
                    model: self.model,
                    options: self.options.iter().cloned().chain(settings).collect(),
                });
            }
        }
        choices
    }

    /// Returns every registered model; one that can keep its attention weights in memory comes in
    /// both forms.
    pub fn both_ways() -> Vec<ModelChoice> {
        let mut choices = Vec::new();
        let (key, value) = MATERIALISED;
        for (model, choice) in models::registry().iter().zip(ModelChoice::registered()) {
            choices.push(choice.clone());
            // A Transformer with other components would only repeat the materialised form of the
            // Transformer.
            let own = model.settings.is_empty();
            if own && model.defaults().get(key).is_some_and(Value::is_string) {
                choices.push(ModelChoice {
                    options: vec![format!("{key}={value}")],
                    ..choice
                });
            }
        }
        choices
    }

    /// Returns the options as assignments to settings.
    pub fn assignments(&self) -> impl Iterator<Item = String> + '_ {
        self.options.iter().map(|option| {
            let key = option.split('=').next().unwrap_or_default();
            match key.contains('.') {
                true => option.clone(),
                false => format!("model.{option}"),
            }
        })
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
        let choice = ModelChoice::parse("linear:block.norm=rms").unwrap();
        assert_eq!(choice.assignments().collect::<Vec<_>>(), ["block.norm=rms"]);
        assert!(ModelChoice::parse("performer:fast").is_err());
        assert!(ModelChoice::parse("perfomer").is_err());
    }

    #[test]
    fn axes_come_one_at_a_time_with_what_they_want() {
        let choices = ModelChoice::parse("linear").unwrap().with_each_component();
        let names: Vec<String> = choices.iter().map(ModelChoice::to_string).collect();
        let wanted = "linear:block.norm=none:block.residual=rezero".to_owned();
        assert!(names.contains(&wanted), "{names:?}");
        assert!(names.len() > 20 && !names.contains(&"linear:block.norm=layer".to_owned()));
    }

    #[test]
    fn softmax_attention_is_measured_both_ways_and_every_model_at_least_once() {
        let all = ModelChoice::both_ways();
        assert!(all.contains(&ModelChoice::parse("transformer:attention=materialised").unwrap()));
        assert!(!all.contains(&ModelChoice::parse("t5:attention=materialised").unwrap()));
        for model in models::registry() {
            assert!(all.contains(&ModelChoice::parse(model.name).unwrap()));
        }
    }
}
