//! Checkpoints: one safetensors file holding parameters and moments, with the state of the loop as JSON in its
//! header. One file, written beside the old one and renamed over it, is either the old state or the new one.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use candle_core::{Device, Tensor};
use models::Parameters;
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use crate::optim::AdamW;

/// What the loop must know to go on as if it had never stopped.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Updates made.
    pub step: usize,
    /// The best evaluation so far.
    pub best: Option<Evaluation>,
    /// The last evaluation.
    pub last: Option<Evaluation>,
    /// Evaluations made.
    pub evaluations: usize,
    /// Training examples seen.
    pub examples: u64,
    /// Mean training loss of the last logged interval.
    pub train_loss: Option<f64>,
    /// What was gathered since the last line of the metrics log.
    pub interval: Interval,
    /// Length of the metrics log in bytes; later lines belong to steps that will be made again.
    pub metrics_bytes: u64,
    /// Length of the timings log in bytes.
    pub timings_bytes: u64,
}

/// A validation score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Updates made before it.
    pub step: usize,
    /// Share of examples classified rightly.
    pub accuracy: f64,
    /// Mean cross-entropy in nats.
    pub loss: f64,
}

/// Sums over the steps since the last line of the metrics log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Steps summed.
    pub steps: usize,
    /// Examples summed.
    pub examples: usize,
    /// Sum of losses over examples.
    pub loss: f64,
    /// Sum of gradient norms over steps.
    pub gradient_norm: f64,
}

const STATE: &str = "state";
const PARAMETER: &str = "parameter/";
const FIRST_MOMENT: &str = "first_moment/";
const SECOND_MOMENT: &str = "second_moment/";

/// Writes the whole state of training to `path`.
pub fn save(path: &Path, state: &State, optimizer: &AdamW) -> anyhow::Result<()> {
    let mut tensors = BTreeMap::new();
    for slot in &optimizer.slots {
        tensors.insert(
            format!("{PARAMETER}{}", slot.path),
            slot.parameter.as_detached_tensor(),
        );
        tensors.insert(
            format!("{FIRST_MOMENT}{}", slot.path),
            slot.first_moment.clone(),
        );
        tensors.insert(
            format!("{SECOND_MOMENT}{}", slot.path),
            slot.second_moment.clone(),
        );
    }
    write(path, &tensors, Some(serde_json::to_string(state)?))
}

/// Reads a state written by [`save`] into the parameters and the optimizer.
pub fn load(path: &Path, optimizer: &mut AdamW) -> anyhow::Result<State> {
    let remedy = "start over with --force";
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let broken = |what: String| anyhow!("{}: {what}; {remedy}", path.display());
    let (_, header) =
        SafeTensors::read_metadata(&bytes).map_err(|error| broken(error.to_string()))?;
    let text = header
        .metadata()
        .as_ref()
        .and_then(|metadata| metadata.get(STATE));
    let text = text.ok_or_else(|| broken("no training state in the header".to_owned()))?;
    let state: State = serde_json::from_str(text).map_err(|error| broken(error.to_string()))?;
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)
        .map_err(|error| broken(error.to_string()))?;
    for slot in &mut optimizer.slots {
        let find = |prefix: &str| {
            let name = format!("{prefix}{}", slot.path);
            let found = tensors
                .get(&name)
                .filter(|tensor| tensor.shape() == slot.parameter.shape());
            found.ok_or_else(|| broken(format!("tensor {name} is missing or has another shape")))
        };
        let device = slot.parameter.device().clone();
        let (first, second) = (
            find(FIRST_MOMENT)?.to_device(&device)?,
            find(SECOND_MOMENT)?.to_device(&device)?,
        );
        slot.parameter.set(&find(PARAMETER)?.to_device(&device)?)?;
        (slot.first_moment, slot.second_moment) = (first, second);
    }
    Ok(state)
}

/// Writes the parameters alone to `path`.
pub fn save_parameters(path: &Path, parameters: &Parameters) -> anyhow::Result<()> {
    let tensors = parameters
        .all()
        .into_iter()
        .map(|(name, parameter)| (name, parameter.as_detached_tensor()))
        .collect();
    write(path, &tensors, None)
}

/// Reads parameters written by [`save_parameters`].
pub fn load_parameters(path: &Path, parameters: &Parameters) -> anyhow::Result<()> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let tensors = candle_core::safetensors::load_buffer(&bytes, &Device::Cpu)
        .with_context(|| format!("{}: not a weights file", path.display()))?;
    for (name, parameter) in parameters.all().into_iter() {
        match tensors
            .get(&name)
            .filter(|tensor| tensor.shape() == parameter.shape())
        {
            Some(tensor) => parameter.set(&tensor.to_device(parameter.device())?)?,
            None => bail!(
                "{}: tensor {name} is missing or has another shape",
                path.display()
            ),
        }
    }
    Ok(())
}

fn write(
    path: &Path,
    tensors: &BTreeMap<String, Tensor>,
    state: Option<String>,
) -> anyhow::Result<()> {
    // One key at most: a map of several would be written in an order that changes from run to run.
    let metadata = state.map(|state| HashMap::from([(STATE.to_owned(), state)]));
    let bytes = safetensors::serialize(tensors, metadata)
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(results::write(path, &bytes)?)
}
