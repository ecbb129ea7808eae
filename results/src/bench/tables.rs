//! The efficiency tables: speed and memory over length beside the published ones.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use super::grid::{Grid, GridRow};
use super::setting::{self, info};
use super::{Bench, Outcome, range_words};
use crate::format::{ByteUnit, decimals, grouped};
use crate::published::{Figure, Source};
use crate::table::{Best, Cell, Column, MEASURED, Row, Schema, Table};
use crate::tone::Tone;

/// A quantity of a cell over its length, with its name in the published table.
struct Quantity {
    name: &'static str,
    title: String,
    /// Unit for machines: that of `value`.
    unit: &'static str,
    /// Names of its values for machines.
    schema: Schema,
    /// Metric of the published figures, before `@1k`.
    metric: &'static str,
    /// Unit of the published figures, and the size of that unit in units of a value.
    published_unit: (&'static str, f64),
    value: fn(&Bench) -> Option<f64>,
    /// Value of a cell over that of the reference model at the same length.
    ratio: fn(&Bench, &Bench) -> Option<f64>,
    /// Divides a value into the unit for people.
    size: f64,
    decimals: fn(f64) -> usize,
    best: Best,
}

/// Bytes in a gigabyte, the unit that papers print memory in.
const GIGABYTE: f64 = 1e9;

impl Quantity {
    /// Returns a published figure in the unit for machines, with its text, which is as printed if
    /// no conversion was needed.
    fn printed(&self, figure: f64) -> (f64, String) {
        let exact = figure * self.published_unit.1;
        let value = exact / self.size;
        match value == figure {
            true => (exact, figure.to_string()),
            false => (exact, format!("{value:.*}", (self.decimals)(value))),
        }
    }
}

/// Makes the tables of a session, beside the figures of `against`.
pub fn tables(cells: &[Bench], against: Option<&Source>) -> Vec<Table> {
    let grid = Grid::new(cells);
    let largest = cells.iter().filter_map(Bench::peak_bytes).max();
    let unit = ByteUnit::of(largest.unwrap_or(0) as f64);
    let speed = Quantity {
        name: "bench-speed",
        title: "Training speed on byte-level text, steps/s (times transformer)".to_owned(),
        unit: "steps/s",
        schema: Schema {
            info: info!("model", "from", "length"),
            found: &["value_steps_per_second", "ratio", "status"],
        },
        metric: "steps_per_sec",
        published_unit: ("steps/s", 1.0),
        value: |cell| Some(cell.steps_per_second()?.median),
        ratio: Bench::speed_over,
        size: 1.0,
        decimals,
        best: Best::Highest,
    };
    let memory = Quantity {
        name: "bench-memory",
        title: format!(
            "Peak memory of training on byte-level text, {} (times transformer)",
            unit.name
        ),
        unit: "bytes",
        schema: Schema {
            info: info!("model", "from", "length"),
            found: &["value_bytes", "ratio", "status"],
        },
        metric: "peak_mem_gb",
        published_unit: ("GB", GIGABYTE),
        value: |cell| cell.peak_bytes().map(|bytes| bytes as f64),
        ratio: Bench::memory_over,
        size: unit.bytes,
        decimals,
        best: Best::Lowest,
    };
    vec![
        grid.over_length(&speed, against),
        grid.over_length(&memory, against),
        grid.break_even(),
        grid.rates(),
        grid.costs(unit),
    ]
}

impl Grid<'_> {
    /// Returns the table of models by lengths. Published figures, if any, are below each model.
    fn over_length(&self, quantity: &Quantity, against: Option<&Source>) -> Table {
        let mut columns = vec![Column::key("model"), Column::key("from")];
        columns.extend(self.settings());
        columns.extend(self.lengths.iter().map(|length| {
            Column::value(length.to_string())
                .info(vec![("length", (*length).into())])
                .holding(&["value", "ratio", "status"])
        }));
        let mut rows = Vec::new();
        let mut suspects = Vec::new();
        for (index, row) in self.rows.iter().enumerate() {
            let model = row.first();
            let mut cells = vec![Cell::text(model.label()), Cell::text(MEASURED)];
            cells.extend(row.settings());
            cells.extend(self.lengths.iter().map(|length| {
                row.cell(*length)
                    .map_or_else(Cell::default, |cell| self.measured(quantity, row, cell))
            }));
            let rivals = row.facts.iter().map(|(_, value)| value.to_string());
            rows.push(Row {
                contest: Some(rivals.collect()),
                facts: row.facts.clone(),
                ..Row::new(cells)
            });
            // Below the last row of the model.
            let next = self.rows.get(index + 1).map(GridRow::first);
            let is_last = next
                .is_none_or(|next| (&next.model, &next.options) != (&model.model, &model.options));
            if let Some(source) = against.filter(|_| is_last && model.options.is_empty()) {
                rows.extend(self.published(quantity, source, model, &mut suspects));
            }
        }
        let mut notes = Vec::new();
        if quantity.name == "bench-speed" {
            notes.extend(self.protocol());
        }
        notes.extend(self.endings());
        let shown = |row: &Row| row.cells.get(1).is_some_and(|from| from.text != MEASURED);
        if let Some(source) = against.filter(|_| rows.iter().any(shown)) {
            notes.extend(published_notes(quantity, source));
        }
        notes.extend(suspects);
        let table = Table {
            name: quantity.name.to_owned(),
            title: quantity.title.clone(),
            unit: quantity.unit.to_owned(),
            columns,
            rows,
            notes,
            schema: quantity.schema,
        };
        table.with_best("value", quantity.best)
    }

    fn measured(&self, quantity: &Quantity, row: &GridRow, cell: &Bench) -> Cell {
        let Some(value) = (quantity.value)(cell) else {
            return Cell::with(cell.outcome.word(), "status", cell.outcome.word()).toned(Tone::Bad);
        };
        let shown = value / quantity.size;
        let ratio = self.reference(row, cell.length);
        let ratio = ratio.and_then(|reference| (quantity.ratio)(cell, reference));
        let mut text = format!("{shown:.*}", (quantity.decimals)(shown));
        if let Some(ratio) = ratio {
            text += &format!(" ({}×)", times(ratio));
        }
        Cell {
            text,
            fields: vec![
                ("value", json!(value)),
                ("ratio", json!(ratio)),
                ("status", json!(null)),
            ],
            ..Cell::default()
        }
    }

    /// Returns the published figures of a model, if there are any at these lengths.
    fn published(
        &self,
        quantity: &Quantity,
        source: &Source,
        model: &Bench,
        suspects: &mut Vec<String>,
    ) -> Option<Row> {
        let mut any = false;
        let mut cells = vec![Cell::text(model.label()), Cell::text(source.alias)];
        cells.extend(self.varying.iter().map(|_| Cell::default()));
        for length in &self.lengths {
            let figure = |name: &str| figure(source, name, quantity.metric, *length);
            let Some((figure, value)) = figure(&model.model) else {
                cells.push(Cell::default());
                continue;
            };
            any = true;
            let ratio = figure_ratio(value, figure_of_reference(source, quantity, *length));
            let (value, mut text) = quantity.printed(value);
            if !figure.defect.is_empty() {
                text.push('*');
                suspects.push(format!(
                    "* {} at {length} in {}: {}.",
                    model.label(),
                    source.alias,
                    figure.defect
                ));
            }
            if let Some(ratio) = ratio {
                text += &format!(" ({}×)", times(ratio));
            }
            cells.push(Cell {
                text,
                fields: vec![("value", json!(value)), ("ratio", json!(ratio))],
                ..Cell::default()
            });
        }
        any.then(|| Row::new(cells))
    }

    /// Returns notes on how the numbers were measured.
    fn protocol(&self) -> Vec<String> {
        let Some(cell) = self.cells().next() else {
            return Vec::new();
        };
        let measured = || {
            self.cells()
                .filter(|cell| cell.outcome == Outcome::Measured)
        };
        let steps = |cell: &Bench| cell.rounds.iter().map(|it| it.seconds.len()).sum();
        let rounds = range_words(measured().map(|cell| cell.rounds.len()), "round");
        let steps = range_words(measured().map(steps), "training step");
        let warm_up = range_words(measured().map(|cell| cell.warmup_steps), "step");
        let shared = setting::shared(cell, &self.varying).join(", ");
        let mut notes = Vec::new();
        if !shared.is_empty() {
            notes.push(format!("Every measured row: {shared}."));
        }
        if let (Some(rounds), Some(steps), Some(warm_up)) = (rounds, steps, warm_up) {
            notes.push(format!(
                "Medians over {rounds} of one process each, with {steps} in all, after a warm-up of {warm_up} a process; models take \
                 turns; ratios are medians of ratios within a round."
            ));
        }
        // A session measures every cell as often, unless it is stopped.
        let mut sessions: BTreeMap<&str, BTreeSet<usize>> = BTreeMap::new();
        for cell in measured() {
            let counts = sessions.entry(&cell.session).or_default();
            counts.insert(cell.rounds.len());
        }
        if sessions.values().any(|counts| counts.len() > 1) {
            notes.push(
                "A session was stopped within a round: ratios of cells with fewer rounds are over these rounds alone."
                    .to_owned(),
            );
        }
        notes
    }

    /// Returns notes on the reasons why cells have no number.
    fn endings(&self) -> Vec<String> {
        let failed = self
            .cells()
            .filter(|cell| cell.outcome != Outcome::Measured);
        failed
            .map(|cell| format!("{} at {}: {}.", cell.label(), cell.length, cell.outcome))
            .collect()
    }
}

/// Returns the published figure for a length, given in units of 1024 or 1000 tokens there.
fn figure(
    source: &Source,
    model: &str,
    metric: &str,
    length: usize,
) -> Option<(&'static Figure, f64)> {
    let thousands = [1024, 1000]
        .into_iter()
        .find(|unit| length.is_multiple_of(*unit))?;
    let metric = format!("{metric}@{}k", length / thousands);
    let figure = source.cell(model, "text_speed", &metric)?;
    Some((figure, figure.value?))
}

fn figure_of_reference(source: &Source, quantity: &Quantity, length: usize) -> Option<f64> {
    let (_, value) = figure(source, super::REFERENCE, quantity.metric, length)?;
    Some(value)
}

fn figure_ratio(value: f64, reference: Option<f64>) -> Option<f64> {
    reference.map(|reference| value / reference)
}

/// Returns notes to read before comparing with the published rows.
fn published_notes(quantity: &Quantity, source: &Source) -> Option<String> {
    let figures = source.figures.iter().copied();
    let mut figures = figures.filter(|figure| figure.task == "text_speed");
    let found = figures.find(|figure| figure.metric.starts_with(quantity.metric))?;
    let (unit, size) = quantity.published_unit;
    let unit = match size == quantity.size {
        true => unit.to_owned(),
        false => format!("printed in {unit} of {} bytes", grouped(size as u64)),
    };
    Some(format!(
        "{}: {unit}, {}. Another machine, and another size unless the recipe is its own: compare ratios.",
        source.alias, found.notes
    ))
}

/// Returns a ratio with two significant digits or more.
pub(super) fn times(ratio: f64) -> String {
    let decimals = match ratio {
        ratio if ratio >= 9.95 => 0,
        ratio if ratio >= 0.095 => 2,
        _ => 3,
    };
    format!("{ratio:.decimals$}")
}
