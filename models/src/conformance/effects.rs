//! Options: each changes the model.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::{
    loss::AuxLosses,
    options::{BlockOptions, EmbedOptions, HeadOptions, OptionSet, to_json},
    params::Updates,
};

/// Longest sequence that options are tried on.
const LENGTH: usize = 81;

/// Values that are tried for a number, before the double, the half and the neighbours of its
/// default.
const NUMBERS: [f64; 14] = [
    2.0, 4.0, 1.0, 3.0, 0.0, 8.0, 16.0, 32.0, 5.0, 0.5, 0.25, 0.1, 0.01, 0.9,
];

/// Values of one option beside which those of another are tried, at most.
const BESIDE: usize = 24;

/// Checks that each of the model's own options has an effect, and each word that it can be. An
/// option that matters only beside a certain value of another one is tried beside all values of
/// each, and beside short blocks.
pub(super) fn every_option_has_an_effect(model: &'static Model) {
    let defaults = defaults(model);
    let Some(own) = defaults["model"].as_object() else {
        return;
    };
    let mut bases = vec![defaults.clone()];
    if own.contains_key("block") {
        bases.push(with(&defaults, "model", "block", json!(4)));
    }
    let mut contexts = bases.clone();
    for base in bases {
        for key in own.keys() {
            let values = candidates(model, &defaults, "model", key).into_iter();
            let values = values.take(BESIDE);
            contexts.extend(values.map(|value| with(&base, "model", key, value)));
        }
    }
    let mut digests = Digests::new(model);
    for key in own.keys() {
        digests.check(&contexts, "model", key);
    }
}

/// Returns the options of [`small`] with dropout, as JSON by section.
fn defaults(model: &Model) -> Value {
    let mut options = small(model);
    set_dropout(&mut options, 0.1);
    to_json(&options)
}

fn with(options: &Value, section: &str, key: &str, value: Value) -> Value {
    let mut options = options.clone();
    options[section][key] = value;
    options
}

/// Returns values of the option `key` of `section` other than its default.
fn candidates(model: &Model, defaults: &Value, section: &str, key: &str) -> Vec<Value> {
    let default = &defaults[section][key];
    let values: Vec<Value> = match default {
        Value::Bool(default) => vec![json!(!default)],
        // Variants of one mixer differ in nothing but what they are called.
        Value::String(_) if key == "variant" => {
            let mixer = |variant: &Variant| variant.mixer.map(|name| name());
            let first = mixer(&model.variants[0]);
            let others = model.variants.iter();
            let others = others.filter(|it| first.is_none() || mixer(it) != first);
            others.map(|variant| json!(variant.name)).collect()
        }
        Value::String(_) if section == "model" => {
            let mut options = small(model);
            options.model[key] = json!("");
            match without_weights(model, &options) {
                Err(Error::Word { known, .. }) => known.into_iter().map(Value::from).collect(),
                _ => panic!("{}: model.{key} may be an empty word", model.name),
            }
        }
        Value::Number(number) => {
            let default = number.as_f64().unwrap_or(0.0);
            let near = [default * 2.0, default / 2.0, default + 1.0, default - 1.0];
            let all = NUMBERS.into_iter().chain(near);
            let ranges = match section {
                "embed" => EmbedOptions::RANGES,
                "block" => BlockOptions::RANGES,
                "head" => HeadOptions::RANGES,
                _ => model.ranges,
            };
            let range = ranges.iter().find(|range| range.key == key);
            let inside = all.filter(|it| range.is_none_or(|range| range.contains(*it)));
            match number.is_f64() {
                true => inside.map(Value::from).collect(),
                false => {
                    let whole = inside.filter(|it| it.fract() == 0.0);
                    whole.map(|it| json!(it as u64)).collect()
                }
            }
        }
        _ => Vec::new(),
    };
    values.into_iter().filter(|it| it != default).collect()
}

/// Digests of a model by its options, as JSON, for sequences and for images.
struct Digests {
    model: &'static Model,
    known: BTreeMap<(bool, String), Option<u64>>,
}

impl Digests {
    fn new(model: &'static Model) -> Self {
        Self {
            model,
            known: BTreeMap::new(),
        }
    }

    /// Checks that the option `key` of `section` has an effect beside one of `contexts`, the first
    /// of which are the defaults.
    fn check(&mut self, contexts: &[Value], section: &str, key: &str) {
        let model = self.model;
        let default = &contexts[0][section][key];
        let values = candidates(model, &contexts[0], section, key);
        let tried = !values.is_empty();
        let mut effects = values
            .into_iter()
            .map(|value| (self.effect(contexts, section, key, &value), value));
        if default.is_string() {
            for (effect, value) in effects {
                assert!(
                    effect != Effect::Nothing,
                    "{}: {section}.{key} = {value} has no effect: initial values, logits, losses and gradients are those of {default}",
                    model.name
                );
            }
        } else {
            assert!(
                !tried || effects.any(|(effect, _)| effect == Effect::Something),
                "{}: {section}.{key} has no effect: initial values, logits, losses and gradients are the same at every value that was tried",
                model.name
            );
        }
    }

    /// Returns the effect of `value` in place of the default of `key`, beside the first of
    /// `contexts` in which it has one.
    fn effect(&mut self, contexts: &[Value], section: &str, key: &str, value: &Value) -> Effect {
        let default = &contexts[0][section][key];
        let mut most = Effect::Refused;
        for context in contexts.iter().filter(|it| it[section][key] == *default) {
            let changed = with(context, section, key, value.clone());
            for images in [false, true] {
                match (self.of(context, images), self.of(&changed, images)) {
                    (Some(base), Some(changed)) if base != changed => return Effect::Something,
                    (Some(_), Some(_)) => most = Effect::Nothing,
                    _ => (),
                }
            }
        }
        most
    }

    /// Returns a digest of all that the model does with `options`. `None` if it refuses them.
    fn of(&mut self, options: &Value, images: bool) -> Option<u64> {
        let key = (images, options.to_string());
        if let Some(digest) = self.known.get(&key) {
            return *digest;
        }
        let shape = Shape {
            max_length: LENGTH,
            grid: images.then_some([9, LENGTH / 9]),
            ..shape(1)
        };
        let options: Result<Options, _> = serde_json::from_value(options.clone());
        let digest = options
            .ok()
            .and_then(|it| behaviour(self.model, &it, &shape).ok());
        self.known.insert(key, digest);
        digest
    }
}

/// Effect of a value in place of the default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Effect {
    /// The model is another one.
    Something,
    /// The model is the same.
    Nothing,
    /// The model refuses the value.
    Refused,
}

/// Returns a digest of the initial values of a small classifier, of the logits of evaluations and
/// of training passes, of the losses and the updates that they add, and of the gradients.
///
/// # Errors
/// If the model refuses the options.
fn behaviour(model: &'static Model, options: &Options, shape: &Shape) -> crate::Result<u64> {
    let parameters = Parameters::new(SEED, &Device::Cpu, DType::F32);
    let classifier = Classifier::new(model, shape, options, &parameters)?;
    let mut numbers = Vec::new();
    let mut names = String::new();
    let all = || parameters.all().into_iter().chain(parameters.buffers());
    for (path, var) in all() {
        names += &path;
        numbers.extend(values(var.as_tensor()));
    }
    shift_zeros(&parameters);
    let inputs = one(tokens(&[LENGTH, 20], LENGTH, 0));
    let loss = whole_loss(&classifier, &inputs, &labels(0..2), &training(0, 0));
    let gradients = ops::backward(&loss)?;
    for (_, var) in parameters.all() {
        numbers.extend(gradients.get(&var).map(values).unwrap_or_default());
    }
    // Steps after which something may be drawn anew, or has been learned.
    for step in [0, 9] {
        let (aux, updates) = (AuxLosses::default(), Updates::default());
        let pass = training(step, 0);
        let pass = pass.with_losses(&aux);
        let pass = pass.with_updates(&updates);
        numbers.extend(values(&classifier.forward(&inputs, &pass)?));
        updates.commit(&parameters)?;
        for (name, mean) in aux.means()? {
            names += name;
            numbers.extend(values(&mean));
        }
        for (_, var) in parameters.buffers() {
            numbers.extend(values(var.as_tensor()));
        }
    }
    let short = one(tokens(&[20, 9], 30, 0));
    numbers.extend(values(&classifier.forward(&short, &evaluation())?));
    let zeros = one(Tokens {
        ids: Tensor::zeros((1, LENGTH), DType::U32, &Device::Cpu)?,
        mask: None,
    });
    numbers.extend(values(&classifier.forward(&zeros, &evaluation())?));
    // Far from the initial values, where something may be cut off.
    for (_, var) in parameters.all() {
        var.set(&var.as_detached_tensor().affine(-2.0, 0.0)?)?;
    }
    numbers.extend(values(&classifier.forward(&short, &evaluation())?));
    let bits = numbers.iter().map(|number| u64::from(number.to_bits()));
    Ok(fnv(names.bytes().map(u64::from).chain(bits)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{COMPONENTS, mixers};

    #[test]
    fn every_option_around_a_mixer_has_an_effect() {
        let model = mixers::find("transformer").unwrap();
        let defaults = defaults(model);
        let options: Options = serde_json::from_value(defaults.clone()).unwrap();
        let mut contexts = vec![defaults.clone()];
        for component in COMPONENTS {
            for choice in component.values {
                contexts.push(to_json(&component.set(&options, choice).unwrap()));
            }
        }
        let mut digests = Digests::new(model);
        for section in ["embed", "block", "head"] {
            for (key, default) in defaults[section].as_object().unwrap() {
                if !default.is_string() {
                    digests.check(&contexts, section, key);
                }
            }
        }
    }
}
