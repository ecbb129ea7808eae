//! Checkpoints: one safetensors file with parameters, buffers and moments, and the state of the
//! loop as JSON in its header. The file is written to a temporary name and renamed, so it holds
//! either the old state or the new one. The header also has the digest of the settings of the run
//! that the file belongs to, and the SHA-256 of the whole file, computed with zeros in place of the
//! checksum. The best weights are a file of the same form without the state.

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;

use anyhow::Context;
use candle_core::{DType, Device, Shape, Tensor, Var};
use models::Parameters;
use models::auxiliary::AUXILIARY;
use models::classifier::DENSE;
use models::pretraining::DECODER;
use results::record::{number, numbers};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};

use crate::damaged::Damaged;
use crate::digest::sha256;
use crate::optim::Updater;

/// State that the training loop needs to resume as if it had never stopped.
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
    /// Positions of their sequences, padding included: each batch is as long as its longest row
    /// where rows are sorted by length.
    #[serde(default)]
    pub tokens: u64,
    /// Floating point operations of their forward passes, by formula.
    #[serde(default)]
    pub flops: u64,
    /// Mean training loss of the last logged interval.
    pub train_loss: Option<f64>,
    /// Sums since the last line of the metrics log.
    pub interval: Interval,
    /// Length of the metrics log in bytes; later lines belong to steps that will be repeated.
    pub metrics_bytes: u64,
    /// Length of the timings log in bytes.
    pub timings_bytes: u64,
    /// SHA-256 of the metrics log up to that length; older checkpoints have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics_sha256: Option<String>,
    /// SHA-256 of the timings log up to that length; older checkpoints have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timings_sha256: Option<String>,
}

/// A validation score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Updates made before it.
    pub step: usize,
    /// Fraction of examples classified correctly.
    #[serde(deserialize_with = "number")]
    pub accuracy: f64,
    /// Mean cross-entropy in nats.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Fraction of all labels that are predicted correctly, if positions have labels too: see
    /// [`results::record::Dense`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighted_accuracy: Option<f64>,
}

impl Evaluation {
    /// Returns the accuracy by which weights are selected.
    pub fn deciding_accuracy(&self) -> f64 {
        self.weighted_accuracy.unwrap_or(self.accuracy)
    }

    /// Returns whether loss and accuracy are finite. Those of older versions may not be.
    pub fn is_finite(&self) -> bool {
        self.loss.is_finite() && self.accuracy.is_finite()
    }
}

/// Sums over the steps since the last line of the metrics log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Steps summed.
    pub steps: usize,
    /// Examples summed.
    pub examples: usize,
    /// Sum of losses over examples.
    pub loss: f64,
    /// Sums of the model's other losses over examples, by name.
    #[serde(
        default,
        deserialize_with = "numbers",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub aux: BTreeMap<String, f64>,
    /// Examples that each of these sums is over: a loss may stop within the interval.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aux_examples: BTreeMap<String, usize>,
    /// Sum over examples of the loss of all labels, where positions have labels too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weighted_loss: Option<f64>,
    /// Sum of gradient norms over steps.
    pub gradient_norm: f64,
}

/// Key of the header. There is at most one: a map of several keys would be written in an order that
/// changes from run to run. So the state of training contains its checksum.
const STATE: &str = "state";
/// Key of the header of weights without a state.
const WEIGHTS: &str = "weights";
/// Key of the header of weights in older files, whose value is the checksum itself.
const CHECKSUM: &str = "sha256";
/// Placeholder for a checksum while it is computed.
const UNKNOWN: &str = "0000000000000000000000000000000000000000000000000000000000000000";

const PARAMETER: &str = "parameter/";
const BUFFER: &str = "buffer/";

/// Entry of the header under [`STATE`] or [`WEIGHTS`]. The step of weights has the key that the
/// state has for its own.
#[derive(Serialize)]
struct Entry<'a> {
    sha256: &'a str,
    run: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<usize>,
    #[serde(flatten)]
    state: Option<&'a State>,
}

/// Checksum of the file, the digest of the settings of the run that wrote it, and the number of
/// updates made before. Files of older versions lack one or more.
#[derive(Default, Deserialize)]
struct Seal {
    sha256: Option<String>,
    run: Option<String>,
    step: Option<usize>,
}

impl Seal {
    fn of(header: &HashMap<String, String>) -> serde_json::Result<Seal> {
        match header.get(STATE).or_else(|| header.get(WEIGHTS)) {
            Some(entry) => serde_json::from_str(entry),
            None => Ok(Seal {
                sha256: header.get(CHECKSUM).cloned(),
                run: None,
                step: None,
            }),
        }
    }
}

/// Returns the seal of a file of weights; `None` if the file is absent or damaged, which its reader
/// finds.
fn seal_of(path: &Path) -> Option<Seal> {
    let bytes = disk::read(path).ok()?;
    let (_, metadata) = SafeTensors::read_metadata(&bytes).ok()?;
    Seal::of(&metadata.metadata().clone().unwrap_or_default()).ok()
}

/// Returns whether a file of weights lacks the name of its run, as those of older versions do.
/// Nothing is said about a file that is damaged.
pub fn is_nameless(path: &Path) -> bool {
    seal_of(path).is_some_and(|seal| seal.run.is_none())
}

/// Returns what keeps a file of weights from being known as that of its run, in words: it does not
/// name it, or has no checksum. Nothing is said about a file that is damaged.
pub fn unproven(path: &Path) -> Option<&'static str> {
    let seal = seal_of(path)?;
    match (seal.run, seal.sha256) {
        (None, _) => Some("names no run"),
        (_, None) => Some("has no checksum"),
        _ => None,
    }
}

/// Writes the whole state of training of `run`, the digest of its settings, to `path`.
pub fn save(
    path: &Path,
    run: &str,
    state: &State,
    parameters: &Parameters,
    optimizer: &Updater,
) -> anyhow::Result<()> {
    let buffers = parameters.buffers().into_iter();
    let mut tensors: BTreeMap<String, Tensor> = buffers
        .map(|(path, buffer)| (format!("{BUFFER}{path}"), buffer.as_detached_tensor()))
        .collect();
    for slot in &optimizer.slots {
        tensors.insert(
            format!("{PARAMETER}{}", slot.path),
            slot.parameter.as_detached_tensor(),
        );
        for (name, moment) in optimizer.moments().iter().zip(&slot.moments) {
            tensors.insert(format!("{name}/{}", slot.path), moment.clone());
        }
    }
    let entry = Entry {
        sha256: UNKNOWN,
        run,
        step: None,
        state: Some(state),
    };
    write(path, &tensors, STATE, &entry)
}

/// Reads a state written by [`save`] into the parameters and the optimizer.
///
/// # Errors
/// [`Damaged`], which includes a file of another run; or the file cannot be read.
pub fn load(
    path: &Path,
    run: &str,
    parameters: &Parameters,
    optimizer: &mut Updater,
) -> anyhow::Result<State> {
    let file = Sealed::read(path, run)?;
    let state = file.state()?;
    let tensors = file.tensors()?;
    for (path, buffer) in parameters.buffers() {
        let found = file.find(&tensors, &format!("{BUFFER}{path}"), buffer.shape())?;
        buffer.set(&found.to_device(buffer.device())?)?;
    }
    let names = optimizer.moments();
    for slot in &mut optimizer.slots {
        let find = |prefix: &str| {
            let name = format!("{prefix}{}", slot.path);
            file.find(&tensors, &name, slot.parameter.shape())
        };
        let device = slot.parameter.device().clone();
        let moments = names
            .iter()
            .map(|name| Ok(find(&format!("{name}/"))?.to_device(&device)?))
            .collect::<anyhow::Result<_>>()?;
        slot.parameter.set(&find(PARAMETER)?.to_device(&device)?)?;
        slot.moments = moments;
    }
    Ok(state)
}

/// Returns the tensors that stay when training is over: all parameters but those of heads that are
/// used in training only, and the buffers.
fn staying(parameters: &Parameters) -> impl Iterator<Item = (String, Var)> {
    let all = parameters.all().into_iter().chain(parameters.buffers());
    all.filter(|(path, _)| stays(path))
}

/// Returns whether the tensor at this path stays when training is over.
fn stays(path: &str) -> bool {
    let place = path.split('.').next();
    place != Some(AUXILIARY) && place != Some(DECODER)
}

/// Returns the path of a parameter or buffer that stays and holds a number that is not finite.
pub fn not_finite(parameters: &Parameters) -> anyhow::Result<Option<String>> {
    for (path, tensor) in staying(parameters) {
        if !tensor.dtype().is_float() {
            continue;
        }
        let numbers = tensor.as_detached_tensor().flatten_all()?;
        let numbers = numbers.to_dtype(DType::F32)?.to_vec1::<f32>()?;
        if !numbers.iter().all(|number| number.is_finite()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Writes the parameters and buffers of `run` that stay after this number of updates to `path`.
pub fn save_parameters(
    path: &Path,
    run: &str,
    step: usize,
    parameters: &Parameters,
) -> anyhow::Result<()> {
    let tensors = staying(parameters)
        .map(|(name, tensor)| (name, tensor.as_detached_tensor()))
        .collect();
    let entry = Entry {
        sha256: UNKNOWN,
        run,
        step: Some(step),
        state: None,
    };
    write(path, &tensors, WEIGHTS, &entry)
}

/// Reads parameters and buffers written by [`save_parameters`].
///
/// # Errors
/// [`Damaged`], which includes a file of another run; or the file cannot be read.
pub fn load_parameters(path: &Path, run: &str, parameters: &Parameters) -> anyhow::Result<()> {
    read_into(path, run, staying(parameters))
}

/// Reads the parameters and buffers that stay from a file written by [`save`].
///
/// # Errors
/// Errors of [`load_parameters`].
pub fn load_from_state(path: &Path, run: &str, parameters: &Parameters) -> anyhow::Result<()> {
    let named = |prefix: &str, all: Vec<(String, Var)>| {
        let named = all.into_iter();
        let named = named.map(|(path, tensor)| (format!("{prefix}{path}"), tensor));
        named.collect::<Vec<_>>()
    };
    let all = named(PARAMETER, parameters.all());
    read_into(
        path,
        run,
        all.into_iter().chain(named(BUFFER, parameters.buffers())),
    )
}

/// Reads the weights that a pretraining wrote by [`save_parameters`] into `parameters`; the
/// classifier's own, `pool` and `head`, keep their initial values.
///
/// # Errors
/// Errors of [`load_parameters`].
pub fn load_pretrained(path: &Path, run: &str, parameters: &Parameters) -> anyhow::Result<()> {
    let learned = staying(parameters).filter(|(name, _)| {
        let place = name.split('.').next();
        !["pool", "head", DENSE].map(Some).contains(&place)
    });
    read_into(path, run, learned)
}

/// Reads the parameters and buffers of `run` that stay, by path, from a file written by [`save`] or
/// [`save_parameters`].
///
/// # Errors
/// Errors of [`load_parameters`].
pub fn read_weights(path: &Path, run: &str) -> anyhow::Result<BTreeMap<String, Tensor>> {
    let file = Sealed::read(path, run)?;
    let is_state = file.header.contains_key(STATE);
    let own = |name: &str| match is_state {
        true => {
            let name = name.strip_prefix(PARAMETER).or(name.strip_prefix(BUFFER))?;
            stays(name).then(|| name.to_owned())
        }
        false => Some(name.to_owned()),
    };
    let tensors = file.tensors()?.into_iter();
    Ok(tensors
        .filter_map(|(name, tensor)| Some((own(&name)?, tensor)))
        .collect())
}

/// Returns the SHA-256 over the safetensors form of tensors, which depends on names, types, shapes
/// and numbers.
///
/// # Errors
/// A tensor cannot be read from its device.
pub fn digest_of(tensors: &BTreeMap<String, Tensor>) -> anyhow::Result<String> {
    Ok(sha256(&safetensors::serialize(tensors, None)?))
}

fn read_into(
    path: &Path,
    run: &str,
    wanted: impl Iterator<Item = (String, Var)>,
) -> anyhow::Result<()> {
    let file = Sealed::read(path, run)?;
    let tensors = file.tensors()?;
    for (name, parameter) in wanted {
        let tensor = file.find(&tensors, &name, parameter.shape())?;
        parameter.set(&tensor.to_device(parameter.device())?)?;
    }
    Ok(())
}

/// Checks that parameters written by [`save_parameters`] are present and intact. Returns the number
/// of updates made before, which files of older versions do not have.
///
/// # Errors
/// Errors of [`load_parameters`].
pub fn check_parameters(path: &Path, run: &str) -> anyhow::Result<Option<usize>> {
    Sealed::read(path, run).map(|file| file.step)
}

/// Writes tensors with one header entry, whose checksum is [`UNKNOWN`], which is then replaced by
/// the checksum.
fn write(
    path: &Path,
    tensors: &BTreeMap<String, Tensor>,
    key: &str,
    entry: &Entry,
) -> anyhow::Result<()> {
    let entry = HashMap::from([(key.to_owned(), serde_json::to_string(entry)?)]);
    let mut bytes = safetensors::serialize(tensors, Some(entry))
        .with_context(|| format!("writing {}", path.display()))?;
    let sum = sha256(&bytes);
    let place = within_header(&bytes, UNKNOWN).context("the header lost its checksum")?;
    bytes[place].copy_from_slice(sum.as_bytes());
    Ok(results::write(path, &bytes)?)
}

/// A file whose checksum is correct, or that has none because an older version wrote it.
struct Sealed<'a> {
    path: &'a Path,
    bytes: Vec<u8>,
    header: HashMap<String, String>,
    step: Option<usize>,
}

impl<'a> Sealed<'a> {
    /// Reads a file of `run`.
    fn read(path: &'a Path, run: &str) -> anyhow::Result<Self> {
        let damaged = |problem: String| Damaged {
            path: path.to_owned(),
            problem,
        };
        let mut bytes = match disk::read(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Err(damaged("it is gone".to_owned()).into());
            }
            other => other.map_err(|error| Damaged::or_io(path, "reading", error))?,
        };
        let (_, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| damaged(error.to_string()))?;
        let header = metadata.metadata().clone().unwrap_or_default();
        let seal = Seal::of(&header).map_err(|error| damaged(error.to_string()))?;
        if let Some(said) = seal.sha256 {
            let place = within_header(&bytes, &said).filter(|place| place.len() == UNKNOWN.len());
            let place = place.ok_or_else(|| damaged("its checksum is none".to_owned()))?;
            bytes[place].copy_from_slice(UNKNOWN.as_bytes());
            if sha256(&bytes) != said {
                return Err(damaged("its SHA-256 is not the one in its header".to_owned()).into());
            }
        }
        if let Some(other) = seal.run.filter(|other| other != run) {
            let short = |digest: &str| digest.get(..8).unwrap_or(digest).to_owned();
            return Err(damaged(format!(
                "it is a file of another run, whose settings have the digest {} instead of {}",
                short(&other),
                short(run)
            ))
            .into());
        }
        Ok(Sealed {
            path,
            bytes,
            header,
            step: seal.step,
        })
    }

    fn state(&self) -> Result<State, Damaged> {
        let text = self.header.get(STATE);
        let text = text.ok_or_else(|| self.damaged("it has no state of training"))?;
        serde_json::from_str(text).map_err(|error| self.damaged(error))
    }

    fn tensors(&self) -> Result<HashMap<String, Tensor>, Damaged> {
        candle_core::safetensors::load_buffer(&self.bytes, &Device::Cpu)
            .map_err(|error| self.damaged(error))
    }

    fn find<'t>(
        &self,
        tensors: &'t HashMap<String, Tensor>,
        name: &str,
        shape: &Shape,
    ) -> Result<&'t Tensor, Damaged> {
        let found = tensors.get(name).filter(|tensor| tensor.shape() == shape);
        found.ok_or_else(|| self.damaged(format!("tensor {name} is missing or has another shape")))
    }

    fn damaged(&self, problem: impl ToString) -> Damaged {
        Damaged {
            path: self.path.to_owned(),
            problem: problem.to_string(),
        }
    }
}

/// Returns the position of a word in the header of a safetensors file, which begins with the
/// header's length in eight bytes.
fn within_header(bytes: &[u8], word: &str) -> Option<Range<usize>> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let header = rest.get(..length)?;
    let start = header
        .windows(word.len().max(1))
        .position(|window| window == word.as_bytes())?;
    Some(8 + start..8 + start + word.len())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use candle_core::Device;
    use candle_nn::Init;
    use models::params::{Commit, LECUN_NORMAL};

    use super::*;
    use crate::spec::{OptimizerKind, TrainOptions};

    fn parameters() -> Parameters {
        let parameters = Parameters::new(0, &Device::Cpu, DType::F32);
        let path = parameters.builder().pp("head");
        path.get_with_hints((3, 4), "weight", LECUN_NORMAL).unwrap();
        parameters
    }

    /// Adds what a pretraining learns: a matrix, and a buffer beside it.
    fn add_encoder(parameters: &Parameters) {
        let vb = parameters.builder().pp("encoder");
        vb.get_with_hints((2, 2), "weight", LECUN_NORMAL).unwrap();
        let commit: Commit = Arc::new(|_, sum| Ok(sum.clone()));
        vb.buffer(2, "mean", Init::Const(0.0), commit).unwrap();
    }

    /// Returns the parameters of a classifier with labels at positions.
    fn classifier() -> Parameters {
        let parameters = parameters();
        add_encoder(&parameters);
        let dense = parameters.builder().pp(DENSE);
        dense
            .get_with_hints((3, 2), "weight", LECUN_NORMAL)
            .unwrap();
        parameters
    }

    fn set_buffer(parameters: &Parameters, numbers: [f32; 2]) {
        let (_, buffer) = parameters.buffers().swap_remove(0);
        buffer
            .set(&Tensor::new(&numbers, &Device::Cpu).unwrap())
            .unwrap();
    }

    #[test]
    fn buffers_come_back_from_every_file() {
        type Read = fn(&Path, &str, &Parameters) -> anyhow::Result<()>;
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let trained = classifier();
        set_buffer(&trained, [0.5, -2.0]);
        let mut updater = Updater::new(&trained, &TrainOptions::default()).unwrap();
        let state = State::default();
        save(&place("state"), RUN, &state, &trained, &updater).unwrap();
        save_parameters(&place("best"), RUN, 1, &trained).unwrap();
        let found = |parameters: &Parameters| {
            let (_, buffer) = parameters.buffers().swap_remove(0);
            buffer.to_vec1::<f32>().unwrap()
        };
        for (file, read) in [
            ("state", load_from_state as Read),
            ("best", load_parameters as Read),
            ("best", load_pretrained as Read),
        ] {
            let fresh = classifier();
            read(&place(file), RUN, &fresh).unwrap();
            assert_eq!(found(&fresh), [0.5, -2.0], "{file}");
            let weights = read_weights(&place(file), RUN).unwrap();
            let mean = weights.get("encoder.mean").unwrap();
            assert_eq!(mean.to_vec1::<f32>().unwrap(), [0.5, -2.0], "{file}");
        }
        let fresh = classifier();
        load(&place("state"), RUN, &fresh, &mut updater).unwrap();
        assert_eq!(found(&fresh), [0.5, -2.0]);
    }

    /// The head for whole sequences and that for positions belong to the classifier.
    #[test]
    fn a_pretraining_has_no_head() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pretrained");
        let pretrained = Parameters::new(1, &Device::Cpu, DType::F32);
        add_encoder(&pretrained);
        save_parameters(&file, RUN, 1, &pretrained).unwrap();
        let fresh = classifier();
        let before = fresh.save().unwrap();
        load_pretrained(&file, RUN, &fresh).unwrap();
        let numbers = |tensor: &Tensor| {
            let numbers = tensor.flatten_all().unwrap();
            numbers.to_vec1::<f32>().unwrap()
        };
        let (after, learned) = (fresh.save().unwrap(), pretrained.save().unwrap());
        for (path, tensor) in &after {
            let expected = learned.get(path).unwrap_or(&before[path]);
            assert_eq!(numbers(tensor), numbers(expected), "{path}");
        }
    }

    /// Makes the updates `steps` with the gradients of a loss that depends on the parameter and the
    /// step.
    fn train(parameters: &Parameters, updater: &mut Updater, steps: Range<usize>) {
        for step in steps {
            let (_, parameter) = parameters.all().swap_remove(0);
            let loss = (parameter.as_tensor() - 0.1 * step as f64).unwrap();
            let loss = loss.sqr().unwrap().sum_all().unwrap();
            let mut gradients = updater.no_gradients();
            updater
                .accumulate(&mut gradients, loss.backward().unwrap())
                .unwrap();
            updater.update(gradients, (0.01, 0.9), step + 1).unwrap();
        }
    }

    const RUN: &str = "0123456789abcdef";

    #[test]
    fn weights_of_another_run_are_damage() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let parameters = parameters();
        let mut updater = Updater::new(&parameters, &TrainOptions::default()).unwrap();
        save(
            &place("state"),
            RUN,
            &State::default(),
            &parameters,
            &updater,
        )
        .unwrap();
        save_parameters(&place("best"), RUN, 1, &parameters).unwrap();
        load_parameters(&place("best"), RUN, &parameters).unwrap();
        let other = "fedcba9876543210";
        let errors = [
            load(&place("state"), other, &parameters, &mut updater).map(drop),
            load_parameters(&place("best"), other, &parameters),
            load_pretrained(&place("best"), other, &parameters),
            check_parameters(&place("best"), other).map(drop),
        ];
        for error in errors.map(Result::unwrap_err) {
            assert!(error.is::<Damaged>(), "{error}");
            let error = error.to_string();
            assert!(
                error.contains("digest 01234567 instead of fedcba98") && error.contains("--force"),
                "{error}"
            );
        }
        assert!(!is_nameless(&place("state")) && !is_nameless(&place("best")));
        assert_eq!(unproven(&place("best")), None);
        let tensor = Tensor::zeros(2, DType::F32, &Device::Cpu).unwrap();
        safetensors::serialize_to_file([("a", &tensor)], None, &place("bare")).unwrap();
        assert_eq!(unproven(&place("bare")), Some("names no run"));
        assert!(!is_nameless(&place("absent")));
    }

    #[test]
    fn a_number_that_is_not_finite_is_named() {
        let parameters = parameters();
        assert_eq!(not_finite(&parameters).unwrap(), None);
        for number in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (path, parameter) = parameters.all().swap_remove(0);
            let mut numbers = vec![0.0; 12];
            numbers[11] = number;
            let numbers = Tensor::from_vec(numbers, (3, 4), &Device::Cpu).unwrap();
            parameter
                .set(&numbers.reshape(parameter.shape()).unwrap())
                .unwrap();
            assert_eq!(not_finite(&parameters).unwrap(), Some(path), "{number}");
        }
        let parameters = classifier();
        set_buffer(&parameters, [1.0, f32::INFINITY]);
        let found = not_finite(&parameters).unwrap();
        assert_eq!(found.as_deref(), Some("encoder.mean"));
    }

    fn bits(parameters: &Parameters) -> Vec<u32> {
        let (_, parameter) = parameters.all().swap_remove(0);
        let numbers = parameter.flatten_all().unwrap().to_vec1::<f32>().unwrap();
        numbers.into_iter().map(f32::to_bits).collect()
    }

    #[test]
    fn training_goes_on_from_a_checkpoint_bit_for_bit_with_every_optimizer() {
        let folder = tempfile::tempdir().unwrap();
        for optimizer in [OptimizerKind::Adamw, OptimizerKind::Lion] {
            let options = TrainOptions {
                optimizer,
                ..TrainOptions::default()
            };
            let path = folder.path().join(format!("{optimizer:?}"));
            let whole = parameters();
            let mut updater = Updater::new(&whole, &options).unwrap();
            train(&whole, &mut updater, 0..3);
            save(&path, RUN, &State::default(), &whole, &updater).unwrap();
            train(&whole, &mut updater, 3..6);

            let resumed = parameters();
            let mut updater = Updater::new(&resumed, &options).unwrap();
            load(&path, RUN, &resumed, &mut updater).unwrap();
            train(&resumed, &mut updater, 3..6);
            assert_eq!(bits(&resumed), bits(&whole), "{optimizer:?}");
        }
        // The moments of one optimizer are not those of another.
        let parameters = parameters();
        let mut adamw = Updater::new(&parameters, &TrainOptions::default()).unwrap();
        assert!(load(&folder.path().join("Lion"), RUN, &parameters, &mut adamw).is_err());
    }
}
