//! Initial weights taken from another run.

use std::collections::BTreeMap;

use candle_core::Tensor;
use models::Parameters;
use results::record::StartedFrom;
use serde_json::Value;

use crate::error::{Error, Result};

/// Most weights that an error lists.
const MOST_REASONS: usize = 4;

/// The weights of a finished run.
#[derive(Clone, Debug)]
pub struct Weights {
    /// The run's id.
    pub run: String,
    /// Name of its model.
    pub model: String,
    /// Parameters and buffers by path.
    pub tensors: BTreeMap<String, Tensor>,
    /// SHA-256 over the safetensors form of `tensors`.
    pub digest: String,
    /// The settings of the run.
    pub settings: Value,
    /// Differences in words between the program that trained them and this one.
    pub changes: Vec<String>,
}

/// Weights of a run, and their use as the initial weights of another.
#[derive(Clone, Debug)]
pub struct Initial {
    weights: Weights,
    /// Names of the tensors that are taken.
    taken: Vec<String>,
    /// The tensors that keep their random values, each with the reason.
    fresh: Vec<String>,
    /// Names of the run's tensors that the model has no place for.
    unused: Vec<String>,
    /// The other differences from that run, in words.
    differing: Vec<String>,
}

impl Initial {
    /// Compares the weights with the parameters and buffers of `model`, whose values do not matter.
    /// `differing` names the settings in which the two models differ.
    ///
    /// # Errors
    /// The weights are those of another model, or no tensor has the same name and shape.
    pub fn new(
        weights: &Weights,
        model: &str,
        parameters: &Parameters,
        differing: Vec<String>,
    ) -> Result<Self> {
        if weights.model != model {
            return Err(Error::usage(format!(
                "--from {}: its model is {1}, not {model}; train with --model {1}, or leave --from out",
                weights.run, weights.model
            )));
        }
        let (mut taken, mut fresh) = (Vec::new(), Vec::new());
        let shapes = parameters.shapes();
        for (name, dims) in &shapes {
            match weights.tensors.get(name) {
                None => fresh.push(format!("{name} is not in that run")),
                Some(there) if there.dims() != dims => fresh.push(format!(
                    "{name} is {} here and {} there",
                    in_words(dims),
                    in_words(there.dims())
                )),
                Some(_) => taken.push(name.clone()),
            }
        }
        if taken.is_empty() {
            let more = match fresh.len().saturating_sub(MOST_REASONS) {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            return Err(Error::usage(format!(
                "--from {}: no weight of that run has the name and the shape of one of this model: {}{more}",
                weights.run,
                fresh[..fresh.len().min(MOST_REASONS)].join("; ")
            )));
        }
        let unused = weights.tensors.keys();
        let unused = unused.filter(|name| !shapes.iter().any(|(here, _)| here == *name));
        Ok(Self {
            differing: weights.changes.iter().cloned().chain(differing).collect(),
            unused: unused.cloned().collect(),
            weights: weights.clone(),
            taken,
            fresh,
        })
    }

    /// Returns the digest of the weights.
    pub fn digest(&self) -> &str {
        &self.weights.digest
    }

    /// Sets the parameters and buffers that are taken.
    ///
    /// # Errors
    /// The device is out of memory.
    pub fn load(&self, parameters: &Parameters) -> models::Result<()> {
        let all = parameters.all().into_iter().chain(parameters.buffers());
        for (name, variable) in all {
            if self.taken.contains(&name) {
                variable.set(&self.weights.tensors[&name].to_device(variable.device())?)?;
            }
        }
        Ok(())
    }

    /// Returns the origin of the weights for the record.
    pub fn of_record(&self) -> StartedFrom {
        StartedFrom {
            run: self.weights.run.clone(),
            weights: self.weights.digest.clone(),
            taken: self.taken.len() as u64,
            fresh: self.fresh.clone(),
            unused: self.unused.clone(),
            differing: self.differing.clone(),
        }
    }
}

/// Returns a shape in words.
fn in_words(dims: &[usize]) -> String {
    match dims {
        [] => "one number".to_owned(),
        dims => {
            let sizes: Vec<String> = dims.iter().map(usize::to_string).collect();
            sizes.join(" x ")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::{DType, Device};
    use models::params::LECUN_NORMAL;

    use super::*;

    /// Returns parameters with these names and shapes.
    fn parameters(shapes: &[(&str, (usize, usize))]) -> Parameters {
        let parameters = Parameters::new(0, &Device::Cpu, DType::F32);
        for (name, shape) in shapes {
            let path = parameters.builder();
            path.get_with_hints(*shape, name, LECUN_NORMAL).unwrap();
        }
        parameters
    }

    fn weights() -> Weights {
        let ones = |rows, columns| Tensor::ones((rows, columns), DType::F32, &Device::Cpu).unwrap();
        let tensors = [("a", ones(2, 3)), ("b", ones(4, 3)), ("c", ones(1, 1))];
        Weights {
            run: "RUN".to_owned(),
            model: "bag".to_owned(),
            tensors: tensors.map(|(name, it)| (name.to_owned(), it)).into(),
            digest: "d".to_owned(),
            settings: Value::Null,
            changes: vec!["it was made by another build".to_owned()],
        }
    }

    #[test]
    fn what_has_the_same_name_and_shape_is_taken_and_the_rest_is_said() {
        let parameters = parameters(&[("a", (2, 3)), ("b", (5, 3)), ("new", (1, 2))]);
        let before = parameters.save().unwrap();
        let initial = Initial::new(&weights(), "bag", &parameters, Vec::new()).unwrap();
        let record = initial.of_record();
        assert_eq!(record.taken, 1);
        assert_eq!(
            record.fresh,
            ["b is 5 x 3 here and 4 x 3 there", "new is not in that run"]
        );
        assert_eq!(record.unused, ["c"]);
        initial.load(&parameters).unwrap();
        let after = parameters.save().unwrap();
        let numbers = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(numbers(&after["a"]), [1.0; 6]);
        for name in ["b", "new"] {
            assert_eq!(numbers(&after[name]), numbers(&before[name]));
        }
    }

    #[test]
    fn other_settings_and_builds_are_said() {
        let parameters = parameters(&[("a", (2, 3))]);
        let other = vec!["block.heads is 4 here and 2 there".to_owned()];
        let initial = Initial::new(&weights(), "bag", &parameters, other).unwrap();
        let expected = [
            "it was made by another build",
            "block.heads is 4 here and 2 there",
        ];
        assert_eq!(initial.of_record().differing, expected);
    }

    #[test]
    fn weights_of_another_model_or_without_a_match_are_refused() {
        let fitting = parameters(&[("a", (2, 3))]);
        let error = Initial::new(&weights(), "linear", &fitting, Vec::new()).unwrap_err();
        assert!(error.to_string().contains("its model is bag, not linear"));
        let other = parameters(&[("a", (3, 2))]);
        let error = Initial::new(&weights(), "bag", &other, Vec::new()).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("a is 3 x 2 here and 2 x 3 there"),
            "{error}"
        );
    }

    #[test]
    fn buffers_are_taken_with_the_parameters() {
        let parameters = parameters(&[("a", (2, 3))]);
        let commit = Arc::new(|_: &Tensor, value: &Tensor| Ok(value.clone()));
        let path = parameters.builder();
        path.buffer((4, 3), "b", LECUN_NORMAL, commit).unwrap();
        let initial = Initial::new(&weights(), "bag", &parameters, Vec::new()).unwrap();
        assert_eq!(initial.of_record().taken, 2);
        initial.load(&parameters).unwrap();
        let (_, buffer) = parameters.buffers().swap_remove(0);
        let numbers = buffer.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!(numbers, [1.0; 12]);
    }
}
