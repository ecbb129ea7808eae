//! `lra parity`: compares mixers with third-party implementations, by case files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use candle_core::backprop::GradStore;
use models::Parameters;
use models::parity::{Case, Optimizer, Settings, Verdict};
use results::Format;
use results::table::{Cell, Column, Row, Table};
use serde_json::Value;

use crate::cli::ParityArgs;
use crate::error::{Class, Classify, Error, Result};
use crate::optim::Updater;
use crate::spec::{Decay, TrainOptions};
use crate::{cmd, runtime, stderr};

/// Runs the command: exit code 1 if any tensor differs by more than its tolerance.
pub fn run(arguments: &ParityArgs) -> Result<ExitCode> {
    runtime::set_up(None)?;
    let mut rows = Vec::new();
    let mut all_ok = true;
    for file in cases(&arguments.files) {
        for (index, row) in compare(file)?.into_iter().enumerate() {
            all_ok &= row.verdict == Verdict::Ok;
            rows.push(Row {
                rule: index == 0 && !rows.is_empty(),
                ..line(file, &row)
            });
        }
    }
    let table = Table {
        name: "parity".to_owned(),
        title: "Parity".to_owned(),
        unit: String::new(),
        columns: vec![
            Column::key("case").unbroken(),
            Column::key("tensor").unbroken(),
            Column::value("max abs"),
            Column::value("max rel"),
            Column::text("verdict"),
        ],
        rows,
        ..Table::default()
    };
    if arguments.json {
        cmd::print_json(&cmd::list::objects(&table))?;
    } else {
        cmd::print_tables(Format::Text, &[table])?;
    }
    Ok(if all_ok {
        ExitCode::SUCCESS
    } else {
        Class::Check.into()
    })
}

/// Returns the case files. Of a whole folder (`lra parity cases/*`), it skips the scripts and names
/// them in a line.
fn cases(files: &[PathBuf]) -> Vec<&Path> {
    // A file that is missing is reported as such, also if its name has another ending.
    let is_case =
        |file: &&PathBuf| file.extension().is_some_and(|it| it == "safetensors") || !file.exists();
    let (cases, others): (Vec<_>, Vec<_>) = files.iter().partition(is_case);
    if cases.is_empty() {
        return files.iter().map(PathBuf::as_path).collect();
    }
    if let Some(first) = others.first() {
        let (count, first) = (others.len(), first.display());
        stderr::line(format!(
            "left out, because the name does not end in .safetensors: {first} ({count} in all)"
        ));
    }
    cases.into_iter().map(PathBuf::as_path).collect()
}

fn compare(file: &Path) -> Result<Vec<models::parity::Row>> {
    let place = file.display();
    let bytes = disk::read(file).during(Class::Data, format!("reading {place}"))?;
    let run = |case: Case| {
        case.run(&|parameters, settings| Ok(Box::new(Ours::new(parameters, settings)?)))
    };
    let compared = Case::read(&bytes).and_then(run);
    // Words of the file are no lines of their own.
    compared
        .during(Class::Data, &place)
        .map_err(|error| Error::new(error.class, disk::escape(&error.to_string())))
}

fn line(file: &Path, row: &models::parity::Row) -> Row {
    let case = file.file_stem().unwrap_or_default().to_string_lossy();
    let figure = |value: Option<f64>, field: &'static str| match value {
        Some(value) => Cell::with(format!("{value:.1e}"), field, value),
        None => Cell::with("", field, Value::Null),
    };
    // As the case should have it.
    let verdict = match &row.shape {
        Some(shape) => format!("{}, here {shape:?}", row.verdict),
        None => row.verdict.to_string(),
    };
    Row::new(vec![
        Cell::with(case.clone(), "case", case.into_owned()),
        Cell::with(row.tensor.clone(), "tensor", row.tensor.clone()),
        figure(row.max_abs, "max_abs"),
        figure(row.max_rel, "max_rel"),
        Cell::with(verdict, "verdict", row.verdict.to_string()),
    ])
}

/// The optimizer that `lra run` trains with.
struct Ours {
    updater: Updater,
    rates: (f64, f64),
    updates: usize,
}

impl Ours {
    fn new(parameters: &Parameters, settings: &Settings) -> candle_core::Result<Self> {
        let options = TrainOptions {
            beta2: settings.beta2,
            epsilon: settings.epsilon,
            weight_decay: settings.weight_decay,
            decay: Decay::All,
            clip: 0.0,
            ..TrainOptions::default()
        };
        Ok(Self {
            updater: Updater::new(parameters, &options)?,
            rates: (settings.rate, settings.beta1),
            updates: 0,
        })
    }
}

impl Optimizer for Ours {
    fn update(&mut self, gradients: GradStore) -> models::Result<()> {
        self.updates += 1;
        let mut sum = self.updater.no_gradients();
        self.updater.accumulate(&mut sum, gradients)?;
        self.updater.update(sum, self.rates, self.updates)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../models/tests/parity")
            .join(name)
    }

    #[test]
    fn twenty_updates_of_our_adamw_follow_those_of_pytorch() {
        let rows = compare(&case("transformer-training.safetensors")).unwrap();
        assert!(rows.iter().any(|row| row.tensor == "out/losses"));
        for row in rows {
            assert_eq!(row.verdict, Verdict::Ok, "{row:?}");
        }
    }

    #[test]
    fn a_file_that_is_no_case_is_named() {
        let error = compare(&case("make.sh")).unwrap_err();
        assert_eq!(error.class, Class::Data);
        assert!(error.to_string().contains("make.sh"), "{error}");
    }
}
