//! Initial values of parameters, checked against `initial_values.md`: mean, deviation and range for
//! every model that the table names, with the source of each. A model is added by its rows.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, fmt, path::Path};

use candle_core::{DType, Device};
use lra_models::{
    Classifier, MODELS, Options, Parameters, Shape, mixers,
    options::{Input, Pooling},
};
use serde_json::Value;

/// One row of the table.
struct Row {
    model: String,
    settings: String,
    /// Path below `encoder.`, or from the root where it starts with `embed.`; `*` stands for any
    /// text.
    parameter: String,
    mean: f64,
    deviation: f64,
    /// Least and largest value; none of a distribution without ends.
    range: Option<[f64; 2]>,
    /// Where it was read; begins with `ours` for a deliberate difference.
    source: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.model, self.settings, self.parameter)
    }
}

/// Returns the rows, in order. Columns: model, settings, parameter, distribution (for readers),
/// mean, deviation, least, most, source.
fn table() -> Vec<Row> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/initial_values.md");
    let text = std::fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("| "));
    let rows: Vec<Row> = lines
        .skip(1)
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [
                model,
                settings,
                parameter,
                _,
                mean,
                deviation,
                least,
                most,
                source,
            ] = cells[..]
            else {
                panic!("nine columns: {line}");
            };
            assert!(!source.is_empty(), "read where? {line}");
            let plain = |cell: &str| cell.trim_matches('`').to_owned();
            let number = |cell: &str| cell.parse::<f64>().unwrap();
            Row {
                model: model.to_owned(),
                settings: plain(settings),
                parameter: plain(parameter),
                mean: number(mean),
                deviation: number(deviation),
                range: (least != "-").then(|| [number(least), number(most)]),
                source: source.to_owned(),
            }
        })
        .collect();
    assert!(!rows.is_empty());
    rows
}

/// Returns whether `path` matches `pattern`.
fn fits(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|path| {
            let mut ends = path.char_indices().map(|(at, _)| at).chain([path.len()]);
            ends.any(|at| fits(rest, &path[at..]))
        }),
    }
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

/// Returns all values at step 0 of eight seeds, by path: two blocks of width 64, four heads,
/// feed-forward 128, 64 positions.
fn values(model: &str, settings: &str) -> BTreeMap<String, Vec<f64>> {
    let model = mixers::find(model).unwrap_or_else(|| panic!("no model {model}"));
    let mut options = Options::of(model);
    (
        options.block.layers,
        options.block.dim,
        options.block.qkv_dim,
    ) = (2, 64, 64);
    (options.block.heads, options.block.mlp_dim) = (4, 128);
    options.head.pooling = Pooling::Mean;
    let mut options = serde_json::to_value(options).unwrap();
    overlay(&mut options, &serde_json::from_str(settings).unwrap());
    let options: Options = serde_json::from_value(options).unwrap();
    let shape = Shape {
        vocabulary: 256,
        classes: 10,
        towers: 1,
        max_length: 64,
        padding: true,
        grid: None,
    };
    let mut all: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    for seed in 0..8 {
        let parameters = Parameters::new(seed, &Device::Cpu, DType::F64);
        Classifier::new(model, &shape, &options, &parameters).unwrap();
        for (path, var) in parameters.all() {
            let own = match path.strip_prefix("encoder.") {
                Some(own) => own.to_owned(),
                // Initial values of tokens belong to the embedding, except for numbers.
                None if path.starts_with("embed.") && options.embed.input == Input::Scalar => path,
                None => continue,
            };
            let values = var.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            all.entry(own).or_default().extend(values);
        }
    }
    all
}

/// Checks one row against `values`.
fn check(row: &Row, values: &[f64]) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let square = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
    let near = |what: &str, actual: f64, expected: f64| {
        // Six standard errors, of a distribution with ends that are not far out; and rounding.
        let slack = 6.0 * row.deviation / count.sqrt() + 2e-5 * expected.abs() + 1e-9;
        assert!(
            (actual - expected).abs() <= slack,
            "{row}: {what} {actual}, not {expected} (± {slack}) in {count} numbers"
        );
    };
    near("mean", mean, row.mean);
    near("deviation", square.sqrt(), row.deviation);
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    match row.range {
        Some([from, to]) => {
            let slack = 2e-5 * from.abs().max(to.abs());
            assert!(
                least >= from - slack && most <= to + slack,
                "{row}: from {least} to {most}, not within {from} and {to}"
            );
        }
        // A normal distribution goes beyond two deviations.
        None => assert!(
            most - row.mean > 2.0 * row.deviation || count < 100.0,
            "{row}: no more than {most}"
        ),
    }
}

#[test]
fn parameters_begin_as_the_table_says() {
    let mut groups: BTreeMap<(String, String), Vec<Row>> = BTreeMap::new();
    for row in table() {
        let key = (row.model.clone(), row.settings.clone());
        groups.entry(key).or_default().push(row);
    }
    for ((model, settings), rows) in groups {
        let all = values(&model, &settings);
        for row in &rows {
            let fitting = all.iter().filter(|(path, _)| fits(&row.parameter, path));
            let values: Vec<f64> = fitting.flat_map(|(_, values)| values.clone()).collect();
            assert!(!values.is_empty(), "{row}: there is no such parameter");
            check(row, &values);
        }
        for path in all.keys() {
            let known = rows.iter().any(|row| fits(&row.parameter, path));
            assert!(known, "{model} {settings}: no row for {path}");
        }
    }
}

#[test]
fn every_model_has_rows_and_its_card_names_what_differs() {
    let table = table();
    for model in MODELS {
        let rows: Vec<&Row> = table.iter().filter(|row| row.model == model.name).collect();
        assert!(!rows.is_empty(), "no row for {}", model.name);
        let differs = rows.iter().find(|row| row.source.starts_with("ours"));
        let card = model.variants[0].section("Departures").unwrap_or_default();
        let named = ["begin", "initial"].iter().any(|word| card.contains(word));
        if let Some(row) = differs {
            assert!(named, "the card says nothing of initial values, but {row}");
        }
    }
}

#[test]
fn a_star_stands_for_any_text() {
    for (pattern, path, fit) in [
        ("*.mixer.b_*", "0.mixer.b_re", true),
        ("*.mixer.b_*", "0.mixer.bias", false),
        ("last_norm.scale", "last_norm.scale", true),
        ("*norm.scale", "1.feed_norm.scale", true),
        ("*.weight", "0.mixer.query.weights", false),
    ] {
        assert_eq!(fits(pattern, path), fit, "{pattern} {path}");
    }
}
