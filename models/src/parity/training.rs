//! Cases of a whole classifier: embedding, blocks, pooling, head, and some updates of its
//! parameters.

use candle_core::{DType, Tensor, backprop::GradStore};
use serde::Deserialize;

use super::{Case, Row, json};
use crate::{Classifier, Error, Inputs, Parameters, Pass, Result, RngKey, Shape, Tokens, loss};

/// Settings of AdamW with which a training case was made.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Learning rate, the same at every update and more than 0.
    pub rate: f64,
    /// Share of the running mean of gradients that is kept at each update, in [0, 1).
    pub beta1: f64,
    /// Share of the running mean of squared gradients that is kept at each update, in [0, 1).
    pub beta2: f64,
    /// Number that is added to the square root of the running mean of squared gradients.
    pub epsilon: f64,
    /// Weight decay of every parameter. At each update, learning rate times weight decay times the
    /// parameter is subtracted from it.
    pub weight_decay: f64,
}

/// Optimizer of the parameters of a training case. The caller brings it, since this crate has none.
pub trait Optimizer {
    /// Updates the parameters once by their `gradients`.
    ///
    /// # Errors
    /// If a tensor operation fails.
    fn update(&mut self, gradients: GradStore) -> Result<()>;
}

/// Function that creates the optimizer of a training case from its parameters and settings.
pub type MakeOptimizer<'a> = dyn Fn(&Parameters, &Settings) -> Result<Box<dyn Optimizer>> + 'a;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Task {
    vocabulary: usize,
    classes: usize,
    max_length: usize,
}

impl Case {
    pub(super) fn train(&self, optimizer: &MakeOptimizer<'_>) -> Result<Vec<Row>> {
        let typed = |key: &str, error| Error::Case(format!("{key}: {error}"));
        let task = json(&self.metadata, "shape")?;
        let task = Task::deserialize(task).map_err(|error| typed("shape", error))?;
        let settings = json(&self.metadata, "optimizer")?;
        let settings =
            Settings::deserialize(settings).map_err(|error| typed("optimizer", error))?;
        let options = self.whole_options()?;
        let mask = self.tensors.get("in/mask").cloned();
        let shape = Shape {
            vocabulary: task.vocabulary,
            classes: task.classes,
            towers: 1,
            max_length: task.max_length,
            padding: mask.is_some(),
            grid: None,
        };
        let parameters = Parameters::new(0, &candle_core::Device::Cpu, DType::F32);
        let classifier = Classifier::new(self.model, &shape, &options, &parameters)?;
        let mut rows = Vec::new();
        let ours = parameters.all();
        if !self.set_parameters(&ours, &mut rows)? {
            return Ok(rows);
        }
        let inputs = Inputs {
            towers: vec![Tokens {
                ids: self.tensor("in/ids")?.to_dtype(DType::U32)?,
                mask,
            }],
        };
        let labels = self.tensor("in/labels")?.to_dtype(DType::U32)?;
        let expected = self.tensor("out/losses")?;
        let mut optimizer = optimizer(&parameters, &settings)?;
        let mut losses = Vec::new();
        let train = self.flag("train")?;
        for step in 0..expected.dims1()? {
            let pass = Pass::new(train, RngKey::new(0, step as u64, 0));
            let logits = classifier.forward(&inputs, &pass)?;
            let loss = loss::cross_entropy(&logits, &labels)?;
            let gradients = loss.backward()?;
            losses.push(loss.to_scalar::<f32>()?);
            if step == 0 {
                rows.push(self.compare("out/logits", &logits, self.tensor("out/logits")?)?);
                for (path, var) in &ours {
                    rows.push(self.gradient(&format!("grad/param/{path}"), gradients.get(var))?);
                }
            }
            optimizer.update(gradients)?;
        }
        let losses = Tensor::new(losses, expected.device())?;
        rows.push(self.compare("out/losses", &losses, expected)?);
        Ok(rows)
    }
}
