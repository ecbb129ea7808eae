//! Finished runs, whose weights are used again.

use std::path::{Path, PathBuf};

use candle_core::{DType, Device};
use datasets::{SplitName, Splits, Store, Task};
use models::{Model, Parameters, RngKey};
use results::{Outcome, Record};
use serde_json::json;

use crate::cell::changes::{self, StoredData};
use crate::error::{Class, Classify, Error, Result};
use crate::eval::{Score, Scorer};
use crate::initial::Weights;
use crate::progress::Reporter;
use crate::spec::{Select, Spec};
use crate::step::Network;
use crate::{checkpoint, device, overlay, permute, run_folder, suggest};

/// A run that ended with a score, and the data to score it on.
pub struct TrainedRun {
    /// The run's folder.
    pub path: PathBuf,
    /// Its record.
    pub record: Record,
    /// Its task.
    pub task: &'static dyn Task,
    model: &'static Model,
    spec: Spec,
    /// The settings with those of the data to score it on; its own unless they are changed.
    scored: Spec,
}

/// Relative difference up to which two losses of the same weights agree.
const AGREES: f64 = 1e-6;

/// The prediction for one example.
#[derive(Clone, Debug, PartialEq)]
pub struct Prediction {
    /// Number of the example in its split, from 0.
    pub row: usize,
    /// Its class.
    pub label: usize,
    /// One logit for each class.
    pub logits: Vec<f32>,
}

impl Prediction {
    /// Returns the class with the largest logit, the first of several.
    pub fn class(&self) -> usize {
        let larger = |best: usize, class: usize| match self.logits[class] > self.logits[best] {
            true => class,
            false => best,
        };
        (1..self.logits.len()).fold(0, larger)
    }

    /// Returns whether the prediction is right.
    pub fn is_right(&self) -> bool {
        self.class() == self.label
    }

    /// Returns the cross-entropy in nats.
    pub fn loss(&self) -> f64 {
        let logits = self.logits.iter().map(|logit| f64::from(*logit));
        let most = logits.clone().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.map(|logit| (logit - most).exp()).sum();
        sum.ln() + most - f64::from(self.logits[self.label])
    }
}

impl TrainedRun {
    /// Opens the run in the folder `path`, to be scored on its own data with `assignments` of
    /// `data.*` in place of its settings.
    ///
    /// # Errors
    /// The folder holds no run that ended with a score; an assignment is of another section.
    pub fn open(path: &Path, assignments: &[String]) -> Result<Self> {
        let place = path.display();
        if path.is_file() {
            return Err(Error::usage(format!(
                "{place} is a file: name the run's folder, such as runs/<id>"
            )));
        }
        let Some(spec) = run_folder::read_spec(path)? else {
            return Err(Error::usage(format!(
                "{place} holds no run: name a run folder, such as runs/<id>; `lra report` lists the runs under runs/"
            )));
        };
        // Without the task, a folder that is gone, the settings of the run are not known.
        let task = suggest::task(&spec.cell.task)?;
        let model = *suggest::find("model", &spec.cell.model, models::registry(), |it| it.name)?;
        let file = path.join(results::store::FILE);
        if !file.exists() {
            return Err(run_folder::unfinished(path));
        }
        let record = run_folder::read_record(&file, &spec)?;
        if record.outcome != Outcome::Scored {
            return Err(Error::usage(format!(
                "{place} holds a run without a score: {}",
                record.outcome
            )));
        }
        overlay::check_once(assignments)?;
        let mut settings = json!({ "data": task.defaults() });
        permute::add_default(&mut settings["data"]);
        overlay::merge(&mut settings, &json!({ "data": spec.data }), "spec.toml")?;
        for assignment in assignments {
            let given = overlay::parse_assignment(assignment)?;
            if given.get("data").is_none() {
                return Err(Error::usage(format!(
                    "--set {assignment}: the weights are those of the run; only settings of the data, data.*, can change"
                )));
            }
            overlay::merge(&mut settings, &given, "--set")?;
        }
        let seed = permute::take(&mut settings["data"])?;
        if seed > 0 {
            settings["data"][permute::KEY] = json!(seed);
        }
        let data = match assignments.is_empty() {
            true => spec.data.clone(),
            false => settings["data"].take(),
        };
        let scored = Spec {
            data,
            ..spec.clone()
        };
        let lengths = [&spec, &scored].map(|spec| spec.data_shape(task));
        if let (true, [Ok(own), Ok(other)]) = (seed > 0, &lengths)
            && own.max_length != other.max_length
        {
            return Err(Error::usage(format!(
                "data.{} = {seed} draws another permutation for sequences of up to {} tokens than for up to {}, those of the run {place}: \
                 rows would be permuted otherwise than in training",
                permute::KEY,
                other.max_length,
                own.max_length
            )));
        }
        Ok(TrainedRun {
            path: path.to_owned(),
            record,
            task,
            model,
            spec,
            scored,
        })
    }

    /// Returns the label of the data to score it on, permuted if the settings say so.
    pub fn label(&self) -> String {
        let shape = self.scored.data_shape(self.task);
        shape.map_or_else(|_| self.record.task.label.clone(), |shape| shape.label)
    }

    /// Returns the width of its data's pictures of `pixels` pixels.
    pub fn width(&self, pixels: usize) -> usize {
        let shape = self.scored.data_shape(self.task).ok();
        let grid = shape.and_then(|shape| shape.grid);
        grid.map_or_else(|| pixels.isqrt(), |[_, width]| width)
    }

    /// Returns whether the run is scored on the data that it was trained on.
    pub fn is_own_data(&self) -> bool {
        self.scored.data == self.spec.data
    }

    /// Opens the data, which is built if it is not stored. Stored data that was made from other
    /// files than those that are there now is opened as it is.
    ///
    /// # Errors
    /// The data cannot be built.
    pub fn splits(&self, data: &Path, reporter: &Reporter) -> Result<Splits> {
        // [`changes`](Self::changes) names other files.
        Ok(Store::new(data).open_as_stored(self.task, &self.scored.data_key(), reporter)?)
    }

    /// Returns the differences in words between what made the run and what it is scored with here:
    /// the program, the device, and the data of the data directory `data`. If the run is scored on
    /// other data, its own are compared, too.
    ///
    /// # Errors
    /// Stored data are damaged or cannot be read.
    pub fn changes(
        &self,
        data: &Path,
        device: &Device,
        reporter: &Reporter,
    ) -> Result<Vec<String>> {
        let devices = [device::describe(device)];
        let mut changes = changes::of_program(&self.record, self.task, self.model, &devices)?;
        let own = StoredData::find(self.task, &self.spec.data_key(), data, reporter)?;
        changes.extend(own.changes(&self.record));
        if !self.is_own_data() {
            let key = self.scored.data_key();
            changes.extend(changes::other_raw_files(self.task, &key, data));
        }
        Ok(changes)
    }

    /// Returns the difference in words between a score on the first `limit` examples of a split
    /// (all for 0) and that of the record; `None` if they agree, or if the record has no such
    /// score.
    pub fn contradiction(&self, name: SplitName, limit: usize, score: &Score) -> Option<String> {
        let scores = self.record.scores.as_ref().filter(|_| self.is_own_data())?;
        let (examples, accuracy, loss) = match name {
            SplitName::Train => return None,
            SplitName::Val => {
                let examples = self.spec.train.eval_examples;
                (examples, scores.val_accuracy?, scores.val_loss?)
            }
            SplitName::Test => (0, scores.test_accuracy?, scores.test_loss?),
        };
        let same = accuracy == score.accuracy && (loss - score.loss).abs() <= AGREES * loss.abs();
        (limit == examples && !same).then(|| {
            format!(
                "the score is not that of the record, which has {:.2} % and a loss of {loss:.4} on {}: \
                 the weights, the data or the program are not those of the run",
                100.0 * accuracy,
                name.name()
            )
        })
    }

    /// Scores the selected weights on a split, or on its first `limit` examples (all for 0).
    ///
    /// # Errors
    /// The weights are missing, damaged or of another shape than the data asks for; the score is not
    /// finite.
    pub fn score(
        &self,
        splits: &Splits,
        name: SplitName,
        limit: usize,
        device: &Device,
        reporter: &Reporter,
    ) -> Result<(Score, Vec<Prediction>)> {
        device::set_precision(device, self.spec.train.precision)?;
        let shape = self.scored.data_shape(self.task)?;
        let parameters = Parameters::new(self.spec.cell.seed, device, DType::F32);
        let own_length = self.spec.data_shape(self.task).map(|own| own.max_length);
        let own_length = own_length.unwrap_or(shape.max_length);
        let mut asked = self.spec.model_shape(self.task.info(), &shape);
        // Kernels, layers and constants of some models depend on the longest length: that of the
        // run is kept unless the data has longer rows.
        asked.max_length = asked.max_length.max(own_length);
        if asked.max_length > own_length {
            reporter.note_once(&format!(
                "the run was trained for sequences of up to {own_length} tokens, and its model is built for up to {} here; whatever it derives from this number differs from training",
                asked.max_length
            ));
        }
        let build = |parameters: &Parameters| {
            let built = self
                .spec
                .scorer(self.model, &asked, shape.dense.as_ref(), parameters);
            built.map_err(|error| {
                suggest::of_model(error).during("the model cannot be built for this data")
            })
        };
        build(&parameters)?;
        let step = self.load(&parameters).map_err(|error| {
            if own_length == asked.max_length || !self.fits_own_length(device) {
                return error;
            }
            Error::usage(format!(
                "{}: the weights are for sequences of up to {own_length} tokens, and {} has other weights for up to {}; leave data.max_length as it was in the run",
                self.path.display(),
                self.model.name,
                asked.max_length
            ))
        })?;
        let classifier = build(&parameters.detached())?;
        let layouts = self.scored.layouts(self.task, &shape);
        let [training, test] = layouts.map(|layout| layout.bucketed(self.spec.train.bucket));
        let scorer = Scorer {
            network: Network::Classes(&classifier),
            layout: training,
            batch: self.spec.train.batch,
            part: self.spec.train.forward_examples(),
            dense: splits.manifest.dense.clone(),
            sequence_weight: self.spec.train.sequence_weight,
            device,
        };
        let scorer = match name {
            SplitName::Test => scorer.of_longer_rows(training, test),
            _ => scorer,
        };
        let split = splits.get(name);
        let rows = match limit {
            0 => split.len(),
            limit => limit.min(split.len()),
        };
        let rng = RngKey::new(self.spec.cell.seed, step.saturating_sub(1), 0);
        reporter.start(name.name(), 0, Some(rows as u64));
        let mut predictions = Vec::with_capacity(rows);
        let tell = |done| {
            reporter.at(done as u64, "");
            true
        };
        let score = scorer.score_with_logits(split, limit, rng, tell, |rows, logits| {
            let logits = logits.to_dtype(DType::F32)?.to_vec2::<f32>()?;
            predictions.extend(rows.iter().zip(logits).map(|(row, logits)| Prediction {
                row: *row,
                label: usize::from(split.label(*row)),
                logits,
            }));
            Ok(())
        });
        reporter.stop();
        let score = score.during(Class::Run, "scoring")?;
        let finite = |score: &Score| score.is_finite();
        let score = score.filter(finite).ok_or_else(|| {
            Error::new(
                Class::Run,
                format!("the score on {} is not finite", name.name()),
            )
        })?;
        predictions.sort_by_key(|prediction| prediction.row);
        Ok((score, predictions))
    }

    /// Returns the selected weights, for a run that starts from them.
    ///
    /// # Errors
    /// They are missing or damaged.
    pub fn weights(&self) -> Result<Weights> {
        let file = self.selected()?;
        let tensors = checkpoint::read_weights(&file, &self.record.provenance.spec_digest);
        let tensors = tensors.class(Class::Data)?;
        let mut changes = changes::of_code(&self.record, self.model)?;
        if let Some(unproven) = checkpoint::unproven(&file) {
            changes.push(format!(
                "the file of its weights {unproven}: an older version or another program wrote it"
            ));
        }
        let other = tensors
            .iter()
            .find(|(_, it)| matches!(it.dtype(), DType::F16 | DType::BF16 | DType::F64));
        if let Some((name, tensor)) = other {
            return Err(Error::new(
                Class::Data,
                format!(
                    "{}: {name} has the type {}, and weights are float32",
                    file.display(),
                    tensor.dtype().as_str()
                ),
            ));
        }
        Ok(Weights {
            run: self.record.id.clone(),
            model: self.model.name.to_owned(),
            digest: checkpoint::digest_of(&tensors).class(Class::Data)?,
            tensors,
            settings: self.spec.document(),
            changes,
        })
    }

    /// Returns the file with the selected weights.
    ///
    /// # Errors
    /// It is missing.
    fn selected(&self) -> Result<PathBuf> {
        let files = run_folder::training_files(&self.path);
        let file = match self.spec.train.select {
            Select::Best => files.best,
            Select::Last => files.checkpoint,
        };
        match file.exists() {
            true => Ok(file),
            false => Err(Error::new(
                Class::Data,
                format!(
                    "the weights of the run are gone: {} is missing; train it again with `lra run --force`",
                    file.display()
                ),
            )),
        }
    }

    /// Returns whether the weights can be read into the model of the run's own length.
    fn fits_own_length(&self, device: &Device) -> bool {
        let Ok(shape) = self.spec.data_shape(self.task) else {
            return false;
        };
        let parameters = Parameters::new(self.spec.cell.seed, device, DType::F32);
        let asked = self.spec.model_shape(self.task.info(), &shape);
        let built = self
            .spec
            .scorer(self.model, &asked, shape.dense.as_ref(), &parameters);
        built.is_ok() && self.load(&parameters).is_ok()
    }

    /// Reads the selected weights. Returns the number of the step that made them.
    fn load(&self, parameters: &Parameters) -> Result<u64> {
        let file = self.selected()?;
        let run = &self.record.provenance.spec_digest;
        let scores = self.record.scores.as_ref();
        let steps = scores.map_or(0, |scores| scores.steps);
        let (read, step) = match self.spec.train.select {
            Select::Best => (
                checkpoint::load_parameters(&file, run, parameters),
                scores.and_then(|it| it.best_step).unwrap_or(steps),
            ),
            Select::Last => (checkpoint::load_from_state(&file, run, parameters), steps),
        };
        read.class(Class::Data)?;
        Ok(step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prediction_is_the_first_largest_logit_and_its_loss_the_cross_entropy() {
        let prediction = Prediction {
            row: 0,
            label: 2,
            logits: vec![1.0, 3.0, 3.0],
        };
        assert_eq!((prediction.class(), prediction.is_right()), (1, false));
        let expected = (1f64.exp() + 2.0 * 3f64.exp()).ln() - 3.0;
        assert!((prediction.loss() - expected).abs() < 1e-12);
    }

    /// Returns a run of Toy with a score on 40 validation examples and on the test split, scored
    /// with these settings of the data.
    fn run(data: &[&str]) -> TrainedRun {
        let resolve = |more: &[&str]| {
            let assignments = ["train.eval_examples=40"].into_iter();
            let assignments: Vec<String> = assignments
                .chain(more.iter().copied())
                .map(str::to_owned)
                .collect();
            let request = crate::spec::RunRequest {
                task: "toy",
                model: "bag",
                recipe: "smoke",
                source: None,
                protocol: datasets::Protocol::Clean,
                seed: 0,
                assignments: &assignments,
            };
            request.resolve().unwrap()
        };
        let record = json!({
            "schema": 1,
            "id": "toy-bag-smoke-s0-0a1b2c3d",
            "outcome": { "status": "scored" },
            "task": { "name": "toy", "label": "toy", "source": "generated" },
            "model": { "name": "bag" },
            "recipe": { "name": "smoke" },
            "scores": {
                "val_accuracy": 0.5, "val_loss": 2.0, "test_accuracy": 0.25, "test_loss": 4.0,
                "best_step": 10, "steps": 20, "examples_seen": 160, "evaluations": 2,
            },
        });
        let own = resolve(&[]);
        TrainedRun {
            path: PathBuf::from("runs/toy"),
            record: serde_json::from_value(record).unwrap(),
            task: own.task,
            model: own.model,
            spec: own.spec,
            scored: resolve(data).spec,
        }
    }

    #[test]
    fn a_score_is_compared_with_that_of_the_record_on_the_same_examples() {
        let (own, other) = (run(&[]), run(&["data.seed=1"]));
        let score = |accuracy, loss| Score {
            accuracy,
            loss,
            examples: 1,
            dense: None,
        };
        let told = |run: &TrainedRun, name, limit, accuracy, loss| {
            run.contradiction(name, limit, &score(accuracy, loss))
                .is_some()
        };
        let (val, test) = (SplitName::Val, SplitName::Test);
        for (name, limit, accuracy, loss, wanted) in [
            (val, 40, 0.5, 2.0, false),
            (val, 40, 0.5, 2.000_001, false),
            (val, 40, 0.5, 2.000_01, true),
            (val, 40, 0.525, 2.0, true),
            // Of other examples nothing is known.
            (val, 0, 0.525, 2.5, false),
            (val, 39, 0.525, 2.5, false),
            (test, 0, 0.25, 4.0, false),
            (test, 0, 0.25, 4.000_01, true),
            (test, 0, 0.5, 2.0, true),
            (test, 40, 0.5, 2.0, false),
            (SplitName::Train, 0, 1.0, 0.0, false),
        ] {
            let found = told(&own, name, limit, accuracy, loss);
            assert_eq!(found, wanted, "{} {limit} {accuracy} {loss}", name.name());
        }
        assert!(
            !told(&other, test, 0, 1.0, 0.0),
            "other data have another score"
        );
    }
}
