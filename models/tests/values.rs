//! What every model computes, against `values.csv`: initial values, logits, losses and gradients for
//! fixed tokens, by default and with other values of its options. The numbers are this crate's own,
//! written when the parity cases and all other tests passed. They show that something has changed,
//! not that it was right. `LRA_RENEW_VALUES=1` writes them again: review which rows have changed.
//!
//! A row is a model and settings, which are laid over those of a small classifier. Besides the
//! sections of options, settings may have `towers`, `aux` (the weights of auxiliary losses), and
//! `padding`: false for a batch without a mask. For a new model, add the line `NAME;{}`, and renew.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::PathBuf, sync::LazyLock};

use candle_core::{DType, Device, Tensor};
use lra_cpu::isa::Isa;
use lra_models::{
    Auxiliary, Classifier, Error, Inputs, MODELS, Model, Options, Parameters, Pass, Result, RngKey,
    Shape, Tokens,
    loss::{AuxLosses, cross_entropy},
    mixers,
    params::Updates,
    pass::Supervision,
    rng::StreamKey,
};
use rayon::prelude::*;
use serde_json::{Value, json};

const RENEW: &str = "LRA_RENEW_VALUES";
const LONGEST: usize = 19;
const LENGTHS: [usize; 3] = [19, 12, 1];

/// Numbers of a row, in the order of their columns.
const COLUMNS: [&str; 8] = [
    "parameters",
    "operations",
    "initial",
    "evaluation",
    "training",
    "loss",
    "gradients",
    "buffers",
];

/// Largest difference, relative to the sum of the sizes of what was added: numbers are computed in
/// f64, and rounding depends on the instruction set.
const SLACK: f64 = 1e-7;

/// The same between f32 and f64.
const SINGLE: f64 = 1e-3;

/// Most operations of a row that is computed with each instruction set: without vectors, the
/// inverses of large matrices take longer than all other rows.
const EVERYWHERE: u64 = 100_000_000;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/values.csv")
}

struct Row {
    model: &'static Model,
    settings: String,
    known: Vec<String>,
}

impl Row {
    /// Returns the operations of a forward pass; 0 if they are not on file yet.
    fn operations(&self) -> u64 {
        self.known.get(1).map_or(0, |it| it.parse().unwrap_or(0))
    }
}

fn rows() -> Vec<Row> {
    let text = std::fs::read_to_string(path()).unwrap();
    let lines = text.lines().skip(1);
    lines
        .map(|line| {
            let mut cells = line.split(';').map(str::to_owned);
            let name = cells.next().unwrap();
            Row {
                model: mixers::find(&name).unwrap_or_else(|| panic!("no model {name}")),
                settings: cells.next().unwrap(),
                known: cells.collect(),
            }
        })
        .collect()
}

/// A number, and the size of what was added to make it.
#[derive(Clone, Copy, Default)]
struct Sum {
    sum: f64,
    size: f64,
}

impl Sum {
    /// Adds all elements with weights that no exchange of elements leaves as they are.
    fn add(&mut self, place: usize, x: &Tensor) -> Result<()> {
        let x = x.detach().to_dtype(DType::F64)?.flatten_all()?;
        for (at, x) in x.to_vec1::<f64>()?.into_iter().enumerate() {
            let weight = (0.7 * at as f64 + 1.3 * place as f64 + 0.4).sin() + 0.1;
            self.sum += weight * x;
            self.size += (weight * x).abs();
        }
        Ok(())
    }
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn overlay(base: &mut Value, over: &Value) {
    match (base, over) {
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                overlay(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

struct Subject {
    classifier: Classifier,
    parameters: Parameters,
    weights: BTreeMap<&'static str, f64>,
    towers: usize,
    /// Whether padding is marked as such.
    masked: bool,
}

fn small(model: &Model) -> Options {
    let mut options = Options::of(model);
    (options.block.layers, options.block.dim) = (2, 8);
    (options.block.qkv_dim, options.block.mlp_dim) = (8, 12);
    options.head.hidden = 6;
    options.embed.dropout = 0.1;
    options.block.dropout = 0.1;
    options.block.attention_dropout = 0.1;
    options
}

fn subject(model: &Model, settings: &Value, dtype: DType) -> Result<Subject> {
    let mut sections = settings.as_object().unwrap().clone();
    let towers = sections.remove("towers");
    let towers = towers.map_or(1, |towers| towers.as_u64().unwrap() as usize);
    let aux = sections.remove("aux").unwrap_or_default();
    let masked = sections.remove("padding") != Some(json!(false));
    let mut options = serde_json::to_value(small(model)).unwrap();
    overlay(&mut options, &Value::Object(sections));
    let options: Options =
        serde_json::from_value(options).map_err(|error| Error::Input(error.to_string()))?;
    let shape = Shape {
        vocabulary: 64,
        classes: 5,
        towers,
        max_length: LONGEST,
        padding: true,
        grid: None,
    };
    let parameters = Parameters::new(11, &Device::Cpu, dtype);
    let classifier = Classifier::new(model, &shape, &options, &parameters)?;
    let auxiliary = Auxiliary::new(|name| aux[name].as_f64().unwrap_or(0.0));
    let classifier = classifier.with_auxiliary(&auxiliary, &shape, &options, &parameters)?;
    let weights = classifier.losses().into_iter();
    let weights = weights.map(|loss| {
        let weight = aux[loss.name].as_f64().unwrap_or(loss.weight);
        // What is not part of the loss by default is part of it here.
        (loss.name, if weight == 0.0 { 0.3 } else { weight })
    });
    Ok(Subject {
        weights: weights.collect(),
        classifier,
        parameters,
        towers,
        masked,
    })
}

/// Returns tokens of which no two in a row are the same, so that nothing is decided by rounding.
fn inputs(towers: usize, masked: bool) -> Inputs {
    let shape = (LENGTHS.len(), LONGEST);
    let tower = |tower: usize| {
        let (mut ids, mut valid) = (Vec::new(), Vec::new());
        for (row, length) in LENGTHS.into_iter().enumerate() {
            for at in 0..LONGEST {
                let id = 1 + (5 * at + 11 * row + 17 * tower) % 63;
                ids.push(if at < length { id as u32 } else { 0 });
                valid.push(if at < length { 1f32 } else { 0.0 });
            }
        }
        Tokens {
            ids: Tensor::from_vec(ids, shape, &Device::Cpu).unwrap(),
            mask: masked.then(|| Tensor::from_vec(valid, shape, &Device::Cpu).unwrap()),
        }
    };
    Inputs {
        towers: (0..towers).map(tower).collect(),
    }
}

impl Subject {
    /// Moves every parameter away from the zeros and ones of the first step, which hide mistakes.
    fn shift(&self) -> Result<()> {
        for (path, var, attributes) in self.parameters.with_attributes() {
            let stream = RngKey::new(11, 1, 0).shared(StreamKey::new(&path));
            let numbers = stream.normal(1, var.elem_count());
            let numbers = Tensor::from_vec(numbers, var.shape(), &Device::Cpu)?;
            let numbers = numbers.affine(0.1, 0.0)?.to_dtype(var.dtype())?;
            let moved = (var.as_detached_tensor() + numbers)?;
            var.set(&match attributes.projection {
                Some(projection) => projection.apply(&moved)?,
                None => moved,
            })?;
        }
        Ok(())
    }

    /// Returns the columns of a row.
    fn numbers(&self) -> Result<Vec<Number>> {
        let (mut initial, mut description) = (Sum::default(), String::new());
        for (place, (path, var, attributes)) in
            self.parameters.with_attributes().into_iter().enumerate()
        {
            initial.add(place, &var)?;
            description += &format!("{path} {:?} {attributes:?}\n", var.dims());
        }
        self.shift()?;
        let inputs = inputs(self.towers, self.masked);
        let logits = |pass: &Pass| self.classifier.forward(&inputs, pass);
        let (mut evaluation, mut training) = (Sum::default(), Sum::default());
        // Not step 0 and row 0.
        let rng = RngKey::new(11, 7, 2);
        evaluation.add(0, &logits(&Pass::new(false, rng))?)?;
        let labels = Tensor::new(&[3u32, 0, 1], &Device::Cpu)?;
        let (losses, updates) = (AuxLosses::default(), Updates::default());
        let supervision = Supervision {
            labels: labels.clone(),
            progress: 0.1,
        };
        let pass = Pass::new(true, rng)
            .with_losses(&losses)
            .with_updates(&updates)
            .with_supervision(&supervision);
        let trained = logits(&pass)?;
        training.add(0, &trained)?;
        let mut loss = cross_entropy(&trained, &labels)?;
        for (name, mean) in losses.means()? {
            let mean = mean.to_dtype(loss.dtype())?;
            loss = (loss + (mean * self.weights[name])?)?;
        }
        let mut all = Sum::default();
        all.add(0, &loss)?;
        let (mut gradients, mut buffers) = (Sum::default(), Sum::default());
        let found = lra_models::ops::backward(&loss)?;
        for (place, (_, var)) in self.parameters.all().into_iter().enumerate() {
            if let Some(gradient) = found.get(&var) {
                gradients.add(place, gradient)?;
            }
        }
        updates.commit(&self.parameters)?;
        for (place, (_, var)) in self.parameters.buffers().into_iter().enumerate() {
            buffers.add(place, &var)?;
        }
        let operations = self.classifier.flops(1, LONGEST);
        Ok(vec![
            Number::Exact(format!("{:016x}", hash(&description))),
            Number::Exact(operations.to_string()),
            Number::Near(initial),
            Number::Near(evaluation),
            Number::Near(training),
            Number::Near(all),
            Number::Near(gradients),
            Number::Near(buffers),
        ])
    }
}

enum Number {
    Exact(String),
    Near(Sum),
}

impl Number {
    fn text(&self) -> String {
        match self {
            Self::Exact(text) => text.clone(),
            Self::Near(sum) => format!("{:.9e}", sum.sum),
        }
    }

    fn agrees(&self, known: &str) -> bool {
        match self {
            Self::Exact(text) => text == known,
            Self::Near(sum) => {
                let known: f64 = known.parse().unwrap();
                (sum.sum - known).abs() <= SLACK * sum.size + 1e-9 * known.abs()
            }
        }
    }
}

fn numbers(row: &Row, dtype: DType) -> Vec<Number> {
    let place = format!("{} {}", row.model.name, row.settings);
    let settings: Value = serde_json::from_str(&row.settings).unwrap();
    let subject = subject(row.model, &settings, dtype);
    let subject = subject.unwrap_or_else(|error| panic!("{place}: {error}"));
    let numbers = subject.numbers();
    numbers.unwrap_or_else(|error| panic!("{place}: {error}"))
}

/// Returns all rows, each with its numbers in f64.
fn found() -> &'static [(Row, Vec<Number>)] {
    static FOUND: LazyLock<Vec<(Row, Vec<Number>)>> = LazyLock::new(|| {
        let found = rows().into_par_iter().map(|row| {
            let numbers = numbers(&row, DType::F64);
            (row, numbers)
        });
        found.collect()
    });
    &FOUND
}

#[test]
fn models_compute_what_they_did_when_all_was_proven() {
    if std::env::var_os(RENEW).is_some() {
        let mut text = format!("model;settings;{}\n", COLUMNS.join(";"));
        for (row, found) in found() {
            let cells: Vec<String> = found.iter().map(Number::text).collect();
            text += &format!("{};{};{}\n", row.model.name, row.settings, cells.join(";"));
        }
        std::fs::write(path(), text).unwrap();
        return;
    }
    let mut changed = Vec::new();
    for (row, found) in found() {
        let place = format!("{} {}", row.model.name, row.settings);
        assert_eq!(
            row.known.len(),
            COLUMNS.len(),
            "{place}: {RENEW}=1 fills it"
        );
        for ((column, known), found) in COLUMNS.iter().zip(&row.known).zip(found) {
            if !found.agrees(known) {
                changed.push(format!("{place}: {column} {}, not {known}", found.text()));
            }
        }
    }
    assert!(
        changed.is_empty(),
        "{} numbers have changed. If they should, {RENEW}=1 writes the new ones:\n{}",
        changed.len(),
        changed.join("\n")
    );
}

#[test]
fn kernels_compute_the_same_on_every_instruction_set() {
    // The rows of a model take turns: one instruction set each.
    let apart = |(index, (row, double)): (usize, &(Row, Vec<Number>))| {
        let all = Isa::all();
        let isa = all[index % all.len()];
        let single = isa.force(|| numbers(row, DType::F32));
        let mut apart = Vec::new();
        for (column, both) in COLUMNS.iter().zip(double.iter().zip(&single)) {
            let (Number::Near(double), Number::Near(single)) = both else {
                continue;
            };
            let by = (double.sum - single.sum).abs();
            if by.is_nan() || by > SINGLE * double.size + 1e-6 {
                let (name, settings, size) = (row.model.name, &row.settings, double.size);
                apart.push(format!(
                    "{name} {settings}, {isa:?}: {column} {by:e} of {size:e}"
                ));
            }
        }
        apart
    };
    let rows = found().par_iter().enumerate();
    let short = rows.filter(|(_, (row, _))| row.operations() <= EVERYWHERE);
    let apart: Vec<String> = short.flat_map_iter(apart).collect();
    assert!(apart.is_empty(), "{}", apart.join("\n"));
}

#[test]
fn every_model_has_a_row_of_its_defaults() {
    let rows = rows();
    for model in MODELS {
        let mut own = rows.iter().filter(|row| row.model.name == model.name);
        assert!(own.any(|row| row.settings == "{}"), "{}", model.name);
    }
}
