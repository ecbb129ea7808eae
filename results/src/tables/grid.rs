//! The tables of accuracy, speed and memory: models by tasks, each cell the mean over its seeds.

use serde_json::json;

use super::{ONE_SEED, capped, endings, every_row, info, left_unsaid, origins, told};
use crate::equivalence::{LEVEL, Score};
use crate::format::{self, ByteUnit, counted};
use crate::pivot::{
    COMPUTING, MACHINE, METHOD, Pivot, PivotRow, SHARING, THREADING, TRAINING, mixture,
};
use crate::published::{Comparison, Source, compare_seeds};
use crate::record::{Baseline, Outcome, Record};
use crate::stats::Sample;
use crate::table::{Best, Cell, Column, Foreign, MEASURED, Row, Schema, Table};
use crate::tone::Tone;
use crate::verdict::Verdict;

/// The measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    Accuracy,
    Speed,
    Memory,
}

impl Quantity {
    /// Returns its name.
    fn name(self) -> &'static str {
        match self {
            Quantity::Accuracy => "accuracy",
            Quantity::Speed => "speed",
            Quantity::Memory => "memory",
        }
    }

    /// Returns the names of its values for machines.
    fn schema(self) -> Schema {
        match self {
            Quantity::Accuracy => Schema {
                info: info!(),
                found: &[
                    "mean_percent",
                    "deviation_percent",
                    "seeds",
                    "low_percent",
                    "high_percent",
                    "status",
                ],
            },
            Quantity::Speed => Schema {
                info: info!(
                    "computing",
                    "processor", "instructions", "cores", "accelerator", "threads", "jobs"
                ),
                found: &[
                    "mean_steps_per_second",
                    "deviation_steps_per_second",
                    "seeds",
                    "low_steps_per_second",
                    "high_steps_per_second",
                    "status",
                ],
            },
            Quantity::Memory => Schema {
                info: info!("computing", "threads", "method"),
                found: &[
                    "mean_bytes",
                    "deviation_bytes",
                    "seeds",
                    "low_bytes",
                    "high_bytes",
                    "status",
                ],
            },
        }
    }

    /// Returns the quantity of one record, in the unit for machines.
    fn value(self, record: &Record) -> Option<f64> {
        let value = match self {
            Quantity::Accuracy => record.test_accuracy().map(|accuracy| 100.0 * accuracy),
            Quantity::Speed => record.speed.as_ref().map(|s| s.steps_per_second.median),
            Quantity::Memory => record.memory.as_ref().map(|m| m.peak_bytes as f64),
        };
        value.filter(|value| value.is_finite())
    }
}

/// Format of the numbers of a table.
struct Scale {
    /// Unit for people.
    unit: &'static str,
    /// Factor from the values for machines to those for people.
    factor: f64,
    decimals: fn(f64) -> usize,
    /// Unit for machines, the same regardless of the size of the numbers.
    exact_unit: &'static str,
}

/// Makes a table of models by tasks; each cell is the mean over the seeds on file.
///
/// Runs that differ in anything but the seed never share a cell. Published figures of `against` are
/// below the accuracies they may be compared with. A note gives the reason why others are not.
pub(super) fn table(quantity: Quantity, records: &[Record], against: Option<&Source>) -> Table {
    let pivot = match quantity {
        Quantity::Accuracy => Pivot::new(records, &[TRAINING]),
        Quantity::Speed => Pivot::new(records, &[TRAINING, COMPUTING, MACHINE, THREADING, SHARING]),
        Quantity::Memory => Pivot::new(records, &[TRAINING, COMPUTING, THREADING, METHOD]),
    };
    let scale = match quantity {
        Quantity::Accuracy => Scale {
            unit: "%",
            factor: 1.0,
            decimals: |_| 2,
            exact_unit: "%",
        },
        Quantity::Speed => Scale {
            unit: "steps/s",
            factor: 1.0,
            decimals: format::decimals,
            exact_unit: "steps/s",
        },
        Quantity::Memory => {
            let values = records.iter().filter_map(|record| quantity.value(record));
            let unit = ByteUnit::of(values.fold(0.0, f64::max));
            let decimals: fn(f64) -> usize = match unit.decimals {
                2 => |value| if value < 0.1 { 3 } else { 2 },
                _ => |_| 1,
            };
            Scale {
                unit: unit.name,
                factor: 1.0 / unit.bytes,
                decimals,
                exact_unit: "bytes",
            }
        }
    };
    let title = match quantity {
        Quantity::Accuracy => "Test accuracy",
        Quantity::Speed => "Training speed",
        Quantity::Memory => "Peak memory",
    };

    let mut columns = vec![Column::key("model"), Column::key("from")];
    columns.extend(pivot.varying.iter().copied().map(Column::key));
    let values = pivot.columns.iter().zip(&pivot.facts);
    columns.extend(values.map(|(name, facts)| {
        let fields = &["mean", "deviation", "seeds", "low", "high", "status"];
        Column::value(name).info(facts.clone()).holding(fields)
    }));
    let mut maker = Maker::new(quantity, scale, &pivot);
    let mut rows = Vec::new();
    for row in &pivot.rows {
        rows.push(maker.measured(row));
        if let (Quantity::Accuracy, Some(source)) = (quantity, against) {
            rows.extend(maker.published(row, source));
        }
    }
    if quantity == Quantity::Accuracy {
        rows.extend(maker.baselines());
    }
    let best = match quantity {
        Quantity::Accuracy | Quantity::Speed => Best::Highest,
        Quantity::Memory => Best::Lowest,
    };
    let table = Table {
        name: quantity.name().to_owned(),
        title: format!("{title}, {}", maker.scale.unit),
        unit: maker.scale.exact_unit.to_owned(),
        columns,
        rows,
        notes: maker.notes(against),
        schema: quantity.schema(),
    };
    table.with_best("mean", best)
}

/// Makes the rows, and collects facts for the notes.
struct Maker<'a> {
    quantity: Quantity,
    scale: Scale,
    pivot: &'a Pivot<'a>,
    /// The number of seeds, if it is the same in every cell.
    seeds: Option<usize>,
    /// A cell was printed as FAIL.
    failed: bool,
    /// Reasons why runs ended early.
    endings: Vec<String>,
    /// Cells whose seeds do not share what a score may depend on.
    mixtures: Vec<String>,
    /// Notes on the published figures that are shown.
    caveats: Vec<String>,
    /// Figures that are not shown.
    withheld: Vec<Withheld<'a>>,
}

/// Published figures that may not be compared with ours.
struct Withheld<'a> {
    reason: String,
    models: Vec<&'a str>,
    columns: Vec<&'a str>,
}

impl<'a> Maker<'a> {
    fn new(quantity: Quantity, scale: Scale, pivot: &'a Pivot<'a>) -> Maker<'a> {
        let cells = pivot.rows.iter().flat_map(|row| &row.cells);
        let mut counts: Vec<usize> = cells.map(|runs| scored(quantity, runs).len()).collect();
        counts.retain(|count| *count > 0);
        counts.sort_unstable();
        counts.dedup();
        Maker {
            quantity,
            scale,
            pivot,
            seeds: (counts.len() == 1).then(|| counts[0]),
            failed: false,
            endings: Vec::new(),
            mixtures: Vec::new(),
            caveats: Vec::new(),
            withheld: Vec::new(),
        }
    }

    fn measured(&mut self, row: &PivotRow<'a>) -> Row {
        let mut cells = vec![Cell::text(row.model), Cell::text(MEASURED)];
        cells.extend(row.varying.iter().map(Cell::text));
        for (runs, column) in row.cells.iter().zip(&self.pivot.columns) {
            self.endings.extend(told(row.model, column, runs));
            if let Some(mixture) = mixture(runs) {
                self.mixtures
                    .push(format!("{} on {column}: seeds of {mixture}.", row.model));
            }
            cells.push(self.cell(runs));
        }
        Row {
            facts: row.facts.clone(),
            contest: Some(row.contest()),
            ..Row::new(cells)
        }
    }

    /// Returns mean, spread and count of the scored runs, and a word for each other run.
    fn cell(&mut self, runs: &[&Record]) -> Cell {
        let values: Vec<f64> = scored(self.quantity, runs);
        let mut words = endings(runs, !values.is_empty());
        let mut text = String::new();
        let sample = Sample::of(&values);
        if let Some(sample) = &sample {
            let factor = self.scale.factor;
            let decimals = (self.scale.decimals)(factor * sample.mean);
            text = format!("{:.decimals$}", factor * sample.mean);
            if let Some(deviation) = sample.deviation {
                text += &format!(" ±{:.decimals$}", factor * deviation);
            }
            if self.seeds.is_none() {
                text += &format!(" ({})", sample.count);
            }
            let verdict = match self.quantity {
                Quantity::Accuracy => Verdict::of_seeds(sample.mean / 100.0, runs),
                Quantity::Speed | Quantity::Memory => None,
            };
            if verdict.is_some_and(|verdict| verdict.fail) {
                self.failed = true;
                words.insert(0, "FAIL".to_owned());
            }
        } else if runs.is_empty() {
            return Cell::default();
        }
        let status = words.join(", ");
        if !text.is_empty() && !status.is_empty() {
            text.push(' ');
        }
        text += &status;
        let tone = (!status.is_empty()).then_some(Tone::Bad);
        let interval = match self.quantity {
            Quantity::Accuracy => Score::of(runs)
                .filter(|score| score.seeds > 1)
                .and_then(|score| score.interval),
            // No speed and no memory is below 0.
            Quantity::Speed | Quantity::Memory => sample
                .and_then(|it| it.interval(LEVEL))
                .map(|(low, high)| (low.max(0.0), high)),
        };
        let fields = vec![
            ("mean", json!(sample.map(|sample| sample.mean))),
            (
                "deviation",
                json!(sample.and_then(|sample| sample.deviation)),
            ),
            ("seeds", json!(values.len())),
            ("low", json!(interval.map(|(low, _)| low))),
            ("high", json!(interval.map(|(_, high)| high))),
            ("status", json!((!status.is_empty()).then_some(status))),
        ];
        Cell {
            text,
            fields,
            tone,
            ..Cell::default()
        }
    }

    /// Returns the published figures below a row, if any of them may stand there.
    fn published(&mut self, row: &PivotRow<'a>, source: &Source) -> Option<Row> {
        let mut cells = vec![Cell::text(row.model), Cell::text(source.alias)];
        cells.extend(row.varying.iter().map(|_| Cell::default()));
        let mut any = false;
        for (runs, column) in row.cells.iter().zip(&self.pivot.columns) {
            cells.push(match compare_seeds(runs, source) {
                Comparison::Beside {
                    figure, caveats, ..
                } => {
                    any = true;
                    for caveat in caveats {
                        let caveat = format!(
                            "{} on {column} beside {}: {caveat}.",
                            row.model, source.alias
                        );
                        self.caveats.push(caveat);
                    }
                    match figure.value {
                        Some(value) => Cell::with(figure.text(), "mean", value),
                        None => {
                            Cell::with(figure.text(), "status", figure.text()).toned(figure.tone())
                        }
                    }
                }
                Comparison::Apart { reasons, .. } => {
                    self.withhold(reasons.join(", "), row.model, column);
                    Cell::default()
                }
                Comparison::Absent => Cell::default(),
            });
        }
        any.then(|| Row {
            foreign: Some(Foreign::Published),
            ..Row::new(cells)
        })
    }

    /// Notes the reason why a published figure is not shown.
    fn withhold(&mut self, reason: String, model: &'a str, column: &'a str) {
        let known = self
            .withheld
            .iter_mut()
            .find(|withheld| withheld.reason == reason);
        let withheld = match known {
            Some(withheld) => withheld,
            None => self.withheld.push_mut(Withheld {
                reason,
                models: vec![],
                columns: vec![],
            }),
        };
        if !withheld.models.contains(&model) {
            withheld.models.push(model);
        }
        if !withheld.columns.contains(&column) {
            withheld.columns.push(column);
        }
    }

    /// Returns the runs on the data of a column.
    fn runs_on(&self, column: usize) -> impl Iterator<Item = &'a Record> {
        let rows = self.pivot.rows.iter();
        rows.flat_map(move |row| row.cells[column].iter().copied())
    }

    /// Returns the predictors without a model on the data of a column.
    fn trivial(&self, column: usize) -> &'a [Baseline] {
        Baseline::of_data(self.runs_on(column))
    }

    /// Returns a sentence on the trivial predictors whose accuracies differ between runs.
    fn choices(&self) -> Option<String> {
        let columns = self.pivot.columns.iter().enumerate();
        let choices = columns.flat_map(|(column, title)| {
            self.trivial(column).iter().filter_map(move |it| {
                let which = Baseline::which(self.runs_on(column), &it.name);
                (!which.is_empty()).then(|| format!("{} on {title}{which}", it.name))
            })
        });
        let choices: Vec<String> = choices.collect();
        (!choices.is_empty()).then(|| {
            let choices = choices.join(", ");
            format!("Builds of the program measured trivial predictors differently: {choices}.")
        })
    }

    /// Returns one row per trivial predictor.
    fn baselines(&self) -> Vec<Row> {
        let columns = (0..self.pivot.columns.len()).map(|column| self.trivial(column));
        let columns: Vec<_> = columns.collect();
        let mut names: Vec<&str> = Vec::new();
        for baseline in columns.iter().copied().flatten() {
            if !names.contains(&baseline.name.as_str()) {
                names.push(&baseline.name);
            }
        }
        let rows = names.iter().enumerate().map(|(index, name)| {
            let mut cells = vec![Cell::text(*name), Cell::text("trivial")];
            cells.extend(self.pivot.varying.iter().map(|_| Cell::default()));
            cells.extend(columns.iter().map(|baselines| {
                let found = baselines.iter().find(|baseline| baseline.name == *name);
                found.map_or_else(Cell::default, |baseline| {
                    let value = 100.0 * baseline.accuracy;
                    Cell::with(format::percent(baseline.accuracy), "mean", value)
                })
            }));
            Row {
                rule: index == 0,
                ..Row::new(cells)
            }
        });
        rows.collect()
    }

    /// Returns the sentences below the table.
    fn notes(self, against: Option<&Source>) -> Vec<String> {
        let mut notes = Vec::new();
        if self.pivot.rows.is_empty() {
            return vec!["No records.".to_owned()];
        }
        match self.seeds {
            Some(1) => notes.push(ONE_SEED.to_owned()),
            Some(count) => notes.push(format!(
                "Mean ± sample standard deviation over {}.",
                counted(count as u64, "seed")
            )),
            None => notes.push(
                "Mean ± sample standard deviation; in brackets the number of seeds.".to_owned(),
            ),
        }
        if self.failed {
            notes.push(Verdict::RULE.to_owned());
        }
        notes.extend(every_row(self.pivot));
        notes.extend(origins(self.pivot));
        notes.extend(left_unsaid(self.pivot));
        if self.quantity == Quantity::Accuracy {
            notes.extend(self.choices());
        }
        capped(&mut notes, self.mixtures);
        capped(&mut notes, self.endings);
        if let Some(source) = against.filter(|_| self.quantity == Quantity::Accuracy) {
            let withheld = self.withheld.iter().map(|withheld| {
                format!(
                    "{} on {}: not comparable with {}: {}.",
                    withheld.models.join(", "),
                    withheld.columns.join(", "),
                    source.alias,
                    withheld.reason
                )
            });
            capped(&mut notes, withheld.collect());
            capped(&mut notes, self.caveats);
        }
        notes
    }
}

fn scored(quantity: Quantity, runs: &[&Record]) -> Vec<f64> {
    runs.iter()
        .filter(|run| run.outcome == Outcome::Scored)
        .filter_map(|run| quantity.value(run))
        .collect()
}
