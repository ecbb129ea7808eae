//! Whole trainings against a plain loop that makes every update by its formula and scores every
//! row alone.

use std::collections::BTreeMap;

use candle_core::{D, DType, Tensor};
use datasets::{Protocol, Source, Split, Store};
use models::loss::{AuxLosses, DenseLosses, cross_entropy};
use models::params::{Projection, Updates};
use models::pass::Supervision;
use models::{Classifier, Pass};
use results::record::Rows;

use super::*;
use crate::batch::HostBatch;
use crate::schedule::cycled_momentum;
use crate::spec::{Decay, ParameterGroup, Resolved, RunRequest};

/// Settings of every case: batches of an epoch are of 6, 6, 6 and 2 rows, the steps are no multiple
/// of any period, and an epoch ends between two of them.
const COMMON: &[&str] = &[
    "data.train=20",
    "data.val=9",
    "data.test=7",
    "train.steps=10",
    "train.schedule_steps=13",
    "train.warmup=3",
    "train.batch=6",
    "train.eval_every=3",
    "train.eval_examples=5",
    "train.log_every=4",
    "train.learning_rate=0.02",
    "train.weight_decay=0.5",
    // Gradients that are nearly zero are no more than that.
    "train.epsilon=1e-4",
    "block.layers=2",
];

/// A training as its settings say.
struct Trained {
    state: State,
    outcome: TrainOutcome,
    log: Vec<Line>,
    weights: BTreeMap<String, Tensor>,
}

/// Holds the log, scores and weights of the plain loop.
struct Expected {
    /// Number of updates and learning rate of every line of the log, with its means.
    log: Vec<(usize, f64, Means)>,
    /// Step and score of every evaluation.
    evaluations: Vec<(usize, Plain)>,
    best: usize,
    val: Plain,
    test: Plain,
    weights: BTreeMap<String, Tensor>,
}

/// Numbers of an update, or means over several.
#[derive(Default)]
struct Means {
    examples: f64,
    loss: f64,
    /// Losses of the model beside it, by name.
    aux: BTreeMap<String, f64>,
    /// Loss of all labels.
    weighted: f64,
    norm: f64,
}

impl Means {
    /// Returns the means over updates: of losses over the examples that have them, of norms over
    /// the updates.
    fn of(updates: &[Means]) -> Means {
        let examples: f64 = updates.iter().map(|it| it.examples).sum();
        let mut means = Means {
            examples,
            ..Means::default()
        };
        for it in updates {
            let share = it.examples / examples;
            means.loss += share * it.loss;
            means.weighted += share * it.weighted;
            means.norm += it.norm / updates.len() as f64;
            for (name, loss) in &it.aux {
                let having = updates.iter().filter(|it| it.aux.contains_key(name));
                let having: f64 = having.map(|it| it.examples).sum();
                *means.aux.entry(name.clone()).or_default() += it.examples / having * loss;
            }
        }
        means
    }
}

/// A score.
#[derive(Clone, Copy, Debug)]
struct Plain {
    accuracy: f64,
    loss: f64,
    /// Accuracy and loss over all labels, where positions have labels too.
    weighted: Option<(f64, f64)>,
}

impl Plain {
    fn deciding(&self) -> f64 {
        self.weighted
            .map_or(self.accuracy, |(accuracy, _)| accuracy)
    }
}

/// A case with its data.
struct Case {
    resolved: Resolved,
    shape: datasets::Shape,
    splits: Arc<Splits>,
    milestones: Vec<Milestone>,
}

fn case(task: &str, model: &str, settings: &[&str]) -> Case {
    let assignments = COMMON.iter().chain(settings);
    let assignments: Vec<String> = assignments.map(|it| (*it).to_owned()).collect();
    let request = RunRequest {
        task,
        model,
        recipe: "smoke",
        // The published files are not at hand.
        source: (task == "retrieval").then_some(Source::Synthetic),
        protocol: Protocol::Clean,
        seed: 3,
        assignments: &assignments,
    };
    let resolved = request.resolve().unwrap();
    let place = tempfile::tempdir().unwrap();
    let store = Store::new(place.path());
    let splits = store.open_or_build(resolved.task, &resolved.spec.data_key(), None, &());
    Case {
        shape: resolved.data_shape().unwrap(),
        splits: Arc::new(splits.unwrap()),
        resolved,
        milestones: Vec::new(),
    }
}

impl Case {
    fn layouts(&self) -> [Layout; 2] {
        let spec = &self.resolved.spec;
        let layouts = spec.layouts(self.resolved.task, &self.shape);
        layouts.map(|layout| layout.bucketed(spec.train.bucket))
    }

    fn parameters(&self) -> Parameters {
        Parameters::new(self.resolved.spec.cell.seed, &Device::Cpu, DType::F32)
    }

    fn train(&self) -> Trained {
        let shape = self.resolved.model_shape(&self.shape);
        self.with_run(&shape, |run| {
            let (state, outcome) = run.run(false).unwrap();
            Trained {
                state,
                outcome,
                log: results::metrics::read(run.folder.path()).unwrap(),
                weights: run.parameters.save().unwrap(),
            }
        })
    }

    /// Calls `act` with the training, whose weights are scored by a model of shape `scored`.
    fn with_run<T>(&self, scored: &models::Shape, act: impl FnOnce(&TrainRun<'_>) -> T) -> T {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(place.path(), "run").unwrap();
        let spec = &self.resolved.spec;
        let shape = self.resolved.model_shape(&self.shape);
        let parameters = self.parameters();
        let classifier = self.resolved.classifier(&shape, &parameters).unwrap();
        let scoring = self
            .resolved
            .scorer(scored, &parameters.detached())
            .unwrap();
        let rows = Rows {
            train: self.splits.train.len(),
            val: self.splits.val.len(),
            test: self.splits.test.len(),
        };
        let run = TrainRun {
            options: &spec.train,
            seed: spec.cell.seed,
            digest: "0123456789abcdef",
            splits: Arc::clone(&self.splits),
            layouts: self.layouts(),
            parameters: &parameters,
            network: Network::Classes(&classifier),
            scoring: Network::Classes(&scoring),
            device: &Device::Cpu,
            folder: &folder,
            files: folder.training(),
            reporter: &Reporter::new(true),
            stop: &Stop::never(),
            workload: Workload::new(&spec.train, rows),
            tensorboard: false,
            milestones: self.milestones.clone(),
        };
        act(&run)
    }

    /// Does the same in a plain way.
    fn expected(&self) -> Expected {
        let spec = &self.resolved.spec;
        let (options, seed) = (&spec.train, spec.cell.seed);
        let shape = self.resolved.model_shape(&self.shape);
        let parameters = self.parameters();
        let classifier = self.resolved.classifier(&shape, &parameters).unwrap();
        let scoring = self
            .resolved
            .scorer(&shape, &parameters.detached())
            .unwrap();
        let [layout, _] = self.layouts();
        let numbers = |x: &Tensor| {
            let x = x.detach().to_dtype(DType::F64).unwrap();
            x.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        };
        let number = |x: &Tensor| numbers(x)[0];
        let rows = self.splits.train.len();
        let per_epoch = rows.div_ceil(options.batch);
        let mut moments: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
        let mut found = Expected {
            log: Vec::new(),
            evaluations: Vec::new(),
            best: 0,
            val: NOTHING,
            test: NOTHING,
            weights: BTreeMap::new(),
        };
        let mut best = f64::NEG_INFINITY;
        // The updates since the last line of the log.
        let mut interval = Vec::new();
        for step in 0..options.steps {
            let order = datasets::shuffle::permutation(rows, seed, (step / per_epoch) as u64);
            let order: Vec<usize> = order.iter().map(|row| *row as usize).collect();
            let chunk = order.chunks(options.batch).nth(step % per_epoch).unwrap();
            let host = HostBatch::assemble(&self.splits.train, chunk.iter().copied(), layout);
            let batch = host.to_device(0..chunk.len(), &Device::Cpu).unwrap();
            let (aux, updates) = (AuxLosses::default(), Updates::default());
            let supervision = Supervision {
                labels: batch.labels,
                progress: step as f64 / options.steps as f64,
            };
            let pass = Pass::new(true, RngKey::new(seed, step as u64, 0));
            let pass = pass.with_updates(&updates).with_losses(&aux);
            let pass = pass.with_supervision(&supervision);
            let (own, mut loss) = match &batch.dense {
                Some(dense) => {
                    let logits = classifier.forward_dense(&batch.inputs, &dense.labels, &pass);
                    let losses = DenseLosses::of(
                        &logits.unwrap(),
                        &supervision.labels,
                        &dense.labels,
                        options.sequence_weight,
                    )
                    .unwrap();
                    (losses.sequence.mean_all().unwrap(), losses.weighted)
                }
                None => {
                    let logits = classifier.forward(&batch.inputs, &pass).unwrap();
                    let loss = cross_entropy(&logits, &supervision.labels).unwrap();
                    (loss.clone(), loss)
                }
            };
            let weighted = number(&loss);
            let mut others = BTreeMap::new();
            for (name, mean) in aux.means().unwrap() {
                others.insert(name.to_owned(), number(&mean));
                loss = (loss + (mean * options.aux[name]).unwrap()).unwrap();
            }
            let mut gradients = models::ops::backward(&loss).unwrap();
            let all: Vec<_> = parameters
                .with_attributes()
                .into_iter()
                .map(|(path, variable, attributes)| {
                    let gradient = gradients.remove(variable.as_tensor());
                    let gradient = gradient.map_or_else(
                        || vec![0.0; variable.elem_count()],
                        |gradient| numbers(&gradient),
                    );
                    (path, variable, attributes, gradient)
                })
                .collect();
            let squares = all.iter().flat_map(|(.., gradient)| gradient);
            let norm = squares.map(|x| x * x).sum::<f64>().sqrt();
            let clips = options.clip > 0.0 && norm > options.clip;
            let scale = if clips { options.clip / norm } else { 1.0 };
            let planned = options.schedule_steps;
            let rate = options
                .schedule
                .rate(options.learning_rate, step, options.warmup, planned);
            let beta1 = match options.cycle_momentum {
                true => cycled_momentum(step, options.warmup, planned),
                false => options.beta1,
            };
            let t = (step + 1) as i32;
            for (path, variable, attributes, gradient) in all {
                let has = |group: &&ParameterGroup| group.has(&path);
                let group = options.groups.iter().find(has);
                let decays = attributes.decay || options.decay == Decay::All;
                let decay = group.and_then(|group| group.weight_decay);
                let decay = decay.unwrap_or(if decays { options.weight_decay } else { 0.0 });
                let factor = group.and_then(|group| group.learning_rate);
                let factor =
                    factor.map_or(attributes.rate_factor, |own| own / options.learning_rate);
                let rate = rate * factor;
                let zeros = || vec![0.0; gradient.len()];
                let (m, v) = moments.entry(path).or_insert_with(|| (zeros(), zeros()));
                let mut weights = numbers(variable.as_tensor());
                for (i, gradient) in gradient.iter().enumerate() {
                    let g = scale * gradient;
                    m[i] = beta1 * m[i] + (1.0 - beta1) * g;
                    v[i] = options.beta2 * v[i] + (1.0 - options.beta2) * g * g;
                    let size = (v[i] / (1.0 - options.beta2.powi(t))).sqrt() + options.epsilon;
                    let change = m[i] / (1.0 - beta1.powi(t)) / size;
                    weights[i] -= rate * (change + decay * weights[i]);
                    if let Some(Projection::Clamp { least, most }) = attributes.projection {
                        weights[i] = weights[i].clamp(least, most);
                    }
                }
                let weights =
                    Tensor::from_vec(weights, variable.shape().clone(), &Device::Cpu).unwrap();
                variable
                    .set(&weights.to_dtype(DType::F32).unwrap())
                    .unwrap();
            }
            updates.commit(&parameters).unwrap();

            let done = step + 1;
            interval.push(Means {
                examples: chunk.len() as f64,
                loss: number(&own),
                aux: others,
                weighted,
                norm,
            });
            let is_last = done == options.steps;
            if done.is_multiple_of(options.log_every) || is_last {
                let means = Means::of(&std::mem::take(&mut interval));
                found.log.push((done, rate, means));
            }
            if done.is_multiple_of(options.eval_every) || is_last {
                let score = self.score(&scoring, step, &self.splits.val, options.eval_examples, 0);
                if score.deciding() > best {
                    (best, found.best) = (score.deciding(), done);
                    found.weights = parameters.save().unwrap();
                }
                found.evaluations.push((done, score));
            }
        }
        match options.select {
            Select::Best => parameters.load(&found.weights).unwrap(),
            Select::Last => found.weights = parameters.save().unwrap(),
        }
        let step = match options.select {
            Select::Best => found.best - 1,
            Select::Last => options.steps - 1,
        };
        found.val = self.score(&scoring, step, &self.splits.val, options.eval_examples, 0);
        found.test = self.score(&scoring, step, &self.splits.test, usize::MAX, 1);
        found
    }

    /// Scores the first rows of a split one by one, with the random numbers of update `step`.
    fn score(
        &self,
        classifier: &Classifier,
        step: usize,
        split: &Split,
        limit: usize,
        layout: usize,
    ) -> Plain {
        let spec = &self.resolved.spec;
        let rows = split.len().min(limit);
        let pass = Pass::new(false, RngKey::new(spec.cell.seed, step as u64, 0));
        let (mut right, mut loss, mut all_right, mut all_loss) = (0.0, 0.0, 0.0, 0.0);
        let hit = |logits: &Tensor, label: &Tensor| {
            let found = logits.argmax(D::Minus1).unwrap().to_vec1::<u32>().unwrap();
            let hits = found.iter().zip(label.to_vec1::<u32>().unwrap());
            hits.map(|(found, label)| f64::from(u8::from(*found == label)))
                .collect::<Vec<_>>()
        };
        let number = |x: &Tensor| f64::from(x.to_scalar::<f32>().unwrap());
        for row in 0..rows {
            let host = HostBatch::assemble(split, std::iter::once(row), self.layouts()[layout]);
            let batch = host.to_device(0..1, &Device::Cpu).unwrap();
            match &batch.dense {
                Some(dense) => {
                    let logits = classifier.forward_dense(&batch.inputs, &dense.labels, &pass);
                    let logits = logits.unwrap();
                    let own = cross_entropy(&logits.sequence, &batch.labels).unwrap();
                    let own_hit = hit(&logits.sequence, &batch.labels)[0];
                    let labels = Tensor::new(dense.labels.labels.as_slice(), &Device::Cpu).unwrap();
                    let at = logits.positions.unwrap();
                    let count = dense.labels.labels.len() as f64;
                    let losses = number(&cross_entropy(&at, &labels).unwrap()) * count;
                    let hits = hit(&at, &labels).iter().sum::<f64>();
                    let weight = spec.train.sequence_weight;
                    all_loss += (losses + weight * number(&own)) / (count + weight);
                    all_right += (hits + weight * own_hit) / (count + weight);
                    loss += number(&own);
                    right += own_hit;
                }
                None => {
                    let logits = classifier.forward(&batch.inputs, &pass).unwrap();
                    loss += number(&cross_entropy(&logits, &batch.labels).unwrap());
                    right += hit(&logits, &batch.labels)[0];
                }
            }
        }
        let count = rows as f64;
        let is_dense = self.splits.manifest.dense.is_some();
        Plain {
            accuracy: right / count,
            loss: loss / count,
            weighted: is_dense.then_some((all_right / count, all_loss / count)),
        }
    }

    /// Compares both. Returns what the plain loop found.
    fn check(&self) -> Expected {
        let (found, expected) = (self.train(), self.expected());
        let options = &self.resolved.spec.train;
        let near = |a: f64, b: f64, what: &str| {
            assert!(
                (a - b).abs() <= 2e-3 * b.abs().max(0.1),
                "{what}: {a}, not {b}"
            );
        };
        let (mut lines, mut evaluations) = (expected.log.iter(), expected.evaluations.iter());
        for line in &found.log {
            match line {
                Line::Train {
                    step,
                    loss,
                    aux,
                    weighted_loss,
                    gradient_norm,
                    learning_rate,
                    ..
                } => {
                    let (at, rate, means) = lines.next().unwrap();
                    assert_eq!(step, at);
                    near(*loss, means.loss, "loss");
                    near(*gradient_norm, means.norm, "norm");
                    near(*learning_rate, *rate, "rate");
                    if let Some(loss) = weighted_loss {
                        near(*loss, means.weighted, "loss of all labels");
                    }
                    assert!(aux.keys().eq(means.aux.keys()), "{aux:?} {:?}", means.aux);
                    for (name, mean) in aux {
                        near(*mean, means.aux[name], name);
                    }
                }
                Line::Validation {
                    step,
                    loss,
                    accuracy,
                    examples,
                    dense,
                } => {
                    let (at, score) = evaluations.next().unwrap();
                    assert_eq!((step, *examples), (at, options.eval_examples));
                    near(*loss, score.loss, "validation loss");
                    near(*accuracy, score.accuracy, "validation accuracy");
                    let all = dense.as_ref();
                    let all = all.map(|it| (it.weighted_accuracy, it.weighted_loss));
                    assert_eq!(all.is_some(), score.weighted.is_some());
                    if let (Some(found), Some(wanted)) = (all, score.weighted) {
                        near(found.0, wanted.0, "accuracy over all labels");
                        near(found.1, wanted.1, "loss over all labels");
                    }
                }
                Line::Unknown => panic!("a line of another version"),
            }
        }
        assert!(lines.next().is_none() && evaluations.next().is_none());
        let best = found.state.best.map(|best| best.step);
        assert_eq!(best, Some(expected.best), "{:?}", expected.evaluations);
        assert_eq!(found.state.evaluations, expected.evaluations.len());
        assert_eq!(found.state.examples, 2 * 20 + 2 * 6);
        let TrainOutcome::Scored { val, test } = &found.outcome else {
            panic!("{:?}", found.outcome);
        };
        assert_eq!((val.examples, test.examples), (options.eval_examples, 7));
        for (found, wanted) in [(val, expected.val), (test, expected.test)] {
            near(found.accuracy, wanted.accuracy, "accuracy");
            near(found.loss, wanted.loss, "loss");
            near(
                found.deciding_accuracy(),
                wanted.deciding(),
                "accuracy over all labels",
            );
        }
        assert!(found.weights.keys().eq(expected.weights.keys()));
        for (path, found) in &found.weights {
            let apart = (found - &expected.weights[path]).unwrap().abs().unwrap();
            let most = apart.flatten_all().unwrap().max(0).unwrap();
            let most = most.to_scalar::<f32>().unwrap();
            assert!(most < 1e-3, "{path}: {most}");
        }
        expected
    }
}

const NOTHING: Plain = Plain {
    accuracy: 0.0,
    loss: 0.0,
    weighted: None,
};

/// Micro-batches, whose last one is smaller, with dropout, clipping, a group of parameters and
/// random features that are drawn anew at each update.
#[test]
fn the_best_weights_of_a_training_are_those_of_a_plain_loop() {
    let case = case(
        "toy",
        "performer",
        &[
            "model.redraw=1",
            "train.micro_batch=4",
            "train.schedule=linear",
            "train.clip=1.0",
            "train.groups=[{ parameters = \"head.*\", learning_rate = 0.01, weight_decay = 0.25 }, { parameters = \"*.weight\", weight_decay = 0.1 }]",
        ],
    );
    let expected = case.check();
    assert!(expected.best < 10, "{:?}", expected.evaluations);
    let norms: Vec<f64> = expected.log.iter().map(|(.., means)| means.norm).collect();
    assert!(norms.iter().any(|norm| *norm > 1.0), "{norms:?}");
}

/// Statistics of a norm, losses of auxiliary heads that begin and end on the way, decay of all
/// parameters, a momentum that changes with the rate, and batches sorted by length.
#[test]
fn the_last_weights_of_a_training_are_those_of_a_plain_loop() {
    let case = case(
        "toy",
        "adaptive_span",
        &[
            "train.select=last",
            "train.schedule=one_cycle",
            "train.cycle_momentum=true",
            "train.decay=all",
            "train.clip=0.0",
            "train.aux.layers=0.5",
            "block.norm=batch_masked",
            "train.bucket=1",
        ],
    );
    case.check();
}

/// Labels at positions, whose accuracy selects the weights.
#[test]
fn a_training_on_labels_at_positions_is_that_of_a_plain_loop() {
    let case = case(
        "listops",
        "linear",
        &[
            "data.dense=true",
            "data.min_length=8",
            "data.max_length=24",
            "train.sequence_weight=1.5",
            "train.schedule=cosine",
            "train.micro_batch=4",
        ],
    );
    case.check();
}

/// The first norm reads the embedding, which is the same however the batch is cut.
#[test]
fn running_statistics_are_of_the_whole_batch_however_it_is_cut() {
    let first_norm = |cut: &str| {
        let case = case("toy", "bag", &["block.norm=batch_masked", cut]);
        let spec = &case.resolved.spec;
        let shape = case.resolved.model_shape(&case.shape);
        let parameters = case.parameters();
        let classifier = case.resolved.classifier(&shape, &parameters).unwrap();
        let mut trainer = Trainer {
            network: Network::Classes(&classifier),
            parameters: &parameters,
            updater: Updater::new(&parameters, &spec.train).unwrap(),
            options: &spec.train,
            seed: spec.cell.seed,
            device: &Device::Cpu,
        };
        let host = HostBatch::assemble(&case.splits.train, 0..6, case.layouts()[0]);
        trainer.step(0, false, || Ok(host)).unwrap();
        let saved = parameters.save().unwrap();
        ["mean", "variance"].map(|name| {
            let buffer = &saved[&format!("encoder.0.mixer_norm.{name}")];
            buffer.to_vec1::<f32>().unwrap()
        })
    };
    let [whole, parts] = ["train.micro_batch=0", "train.micro_batch=2"].map(first_norm);
    for (whole, part) in whole.iter().flatten().zip(parts.iter().flatten()) {
        assert!((whole - part).abs() < 1e-5, "{whole} {part}");
    }
}

#[test]
fn tokens_of_both_sequences_of_an_example_are_counted() {
    let settings = ["data.max_length=64", "train.steps=2", "train.warmup=0"];
    let trained = case("retrieval", "bag", &settings).train();
    assert_eq!(trained.state.tokens, 2 * 6 * 2 * 64);
}

/// The model that scores takes no sequence of this length.
#[test]
fn a_run_that_fails_in_its_first_evaluation_has_a_checkpoint() {
    let case = case("toy", "bag", &["train.eval_every=1"]);
    let scored = models::Shape {
        max_length: 3,
        ..case.resolved.model_shape(&case.shape)
    };
    case.with_run(&scored, |run| {
        assert!(run.run(false).is_err());
        assert!(run.files.checkpoint.exists());
    });
}

/// Evaluations are after updates 3, 6, 9 and 10.
#[test]
fn a_milestone_is_told_once_by_the_first_evaluation_that_is_not_before_it() {
    let mut case = case("toy", "bag", &[]);
    let milestone = |step| Milestone {
        step,
        accuracy: 0.5,
        whose: "a source".to_owned(),
    };
    case.milestones = [1, 3, 4, 6, 10, 11].map(milestone).to_vec();
    let shape = case.resolved.model_shape(&case.shape);
    let told = case.with_run(&shape, |run| {
        // The end of the training is the same for a run that was resumed there.
        for resume in [false, true] {
            run.run(resume).unwrap();
        }
        run.reporter.said()
    });
    let told = told.iter().filter_map(|line| {
        let (_, rest) = line.strip_prefix("milestone ")?.split_once("by update ")?;
        rest.split(' ').next()?.parse::<usize>().ok()
    });
    assert_eq!(told.collect::<Vec<_>>(), [1, 3, 4, 6, 10]);
}

/// Pretrains on Toy. Returns the state and the validations of the log: step, loss and accuracy.
fn pretrained(settings: &[&str]) -> (State, Vec<(usize, f64, f64)>) {
    let settings = [&["pretrain.kind=masked"], settings].concat();
    let case = case("toy", "linear", &settings);
    let spec = &case.resolved.spec;
    let options = spec.pretrain.training(&spec.train);
    let shape = case.resolved.model_shape(&case.shape);
    let parameters = case.parameters();
    let model = |parameters: &Parameters| {
        let objective = spec.pretrain.objective().unwrap();
        let model = case.resolved.token_model(objective, &shape, parameters);
        model.unwrap()
    };
    let (learning, scoring) = (model(&parameters), model(&parameters.detached()));
    let place = tempfile::tempdir().unwrap();
    let folder = RunFolder::open(place.path(), "run").unwrap();
    let run = TrainRun {
        options: &options,
        seed: spec.cell.seed,
        digest: "0123456789abcdef",
        splits: Arc::clone(&case.splits),
        layouts: case.layouts(),
        parameters: &parameters,
        network: Network::Tokens(&learning),
        scoring: Network::Tokens(&scoring),
        device: &Device::Cpu,
        folder: &folder,
        files: folder.training(),
        reporter: &Reporter::new(true),
        stop: &Stop::never(),
        workload: Workload::new(&options, Rows::default()),
        tensorboard: false,
        milestones: Vec::new(),
    };
    let (state, ending) = run.pretrain(false).unwrap();
    assert_eq!(ending, None);
    let log = results::metrics::read(folder.path()).unwrap();
    let validations = log.into_iter().filter_map(|line| match line {
        Line::Validation {
            step,
            loss,
            accuracy,
            ..
        } => Some((step, loss, accuracy)),
        _ => None,
    });
    (state, validations.collect())
}

/// Losses that go up and down, while the accuracy is best elsewhere.
#[test]
fn a_pretraining_keeps_the_weights_with_the_least_loss() {
    let (state, validations) = pretrained(&[
        "train.eval_every=1",
        "train.eval_examples=3",
        "train.warmup=0",
        "train.schedule=constant",
        "train.schedule_steps=0",
        "pretrain.steps=16",
        "pretrain.learning_rate=0.2",
    ]);
    let least = validations.iter().min_by(|a, b| a.1.total_cmp(&b.1));
    let best = state.best.unwrap();
    assert_eq!(best.step, least.unwrap().0, "{validations:?}");
    let more = |best: usize, (step, _, accuracy): &(usize, f64, f64)| match *accuracy
        > validations[best - 1].2
    {
        true => *step,
        false => best,
    };
    let by_accuracy = validations.iter().fold(1, more);
    assert_ne!(best.step, by_accuracy, "{validations:?}");
}

#[test]
fn hidden_tokens_of_a_validation_do_not_depend_on_batches() {
    let losses = |batch: &str| {
        let (_, validations) = pretrained(&[
            "train.eval_examples=0",
            "pretrain.steps=1",
            "train.learning_rate=0",
            batch,
        ]);
        validations[0].1
    };
    let (few, all) = (losses("pretrain.batch=2"), losses("pretrain.batch=9"));
    assert!((few - all).abs() < 1e-6 * all, "{few} is not {all}");
}
