//! Tables of every cell of a benchmark: speed and cost.

use serde_json::json;

use super::grid::{Grid, GridRow};
use super::setting::info;
use super::tables::times;
use super::{Bench, BreakEven, Outcome, REFERENCE};
use crate::format::{ByteUnit, grouped, scaled, short};
use crate::table::{Cell, Column, Row, Schema, Table};

impl Grid<'_> {
    /// Returns the table of the length from which each model beats softmax attention, in the form
    /// of the reference and in other forms.
    pub(super) fn break_even(&self) -> Table {
        let is_softmax = |row: &&GridRow| row.first().model == REFERENCE;
        // Forms of softmax attention, each in one setting or several.
        let mut forms: Vec<String> = Vec::new();
        for label in self
            .rows
            .iter()
            .filter(is_softmax)
            .map(|row| row.first().label())
        {
            if !forms.contains(&label) {
                forms.push(label);
            }
        }
        let mut columns = vec![Column::key("model")];
        columns.extend(self.settings());
        for opponent in &forms {
            for cost in ["time", "memory"] {
                let facts = vec![
                    ("cost", cost.into()),
                    ("opponent", opponent.as_str().into()),
                ];
                let column = Column::value(format!("{cost} of {opponent}"));
                columns.push(column.info(facts).holding(&["tokens", "verdict"]));
            }
        }
        // Without an opponent there is nothing to say of any model.
        let rivals = self
            .rows
            .iter()
            .filter(|row| !is_softmax(row) && !forms.is_empty());
        let any = rivals.clone().next().is_some();
        let rows = rivals.map(|row| {
            let mut cells = vec![Cell::text(row.first().label())];
            cells.extend(row.settings());
            for form in &forms {
                let mut others = self.rows.iter().filter(is_softmax);
                let opponent =
                    others.find(|it| it.first().label() == *form && it.facts == row.facts);
                let against = |cost: fn(&Bench, &Bench) -> Option<f64>,
                               is_dearer: fn(&Outcome) -> bool| {
                    let ratios: Vec<(usize, f64)> = self
                        .lengths
                        .iter()
                        .filter_map(|length| {
                            let (mine, theirs) = (row.cell(*length)?, opponent?.cell(*length)?);
                            let dearer =
                                theirs.outcome == Outcome::Measured && is_dearer(&mine.outcome);
                            let ratio = cost(mine, theirs);
                            Some((*length, ratio.or(dearer.then_some(f64::INFINITY))?))
                        })
                        .collect();
                    break_even_cell(BreakEven::of(&ratios))
                };
                let slowness = |mine: &Bench, theirs: &Bench| Some(1.0 / mine.speed_over(theirs)?);
                cells.push(against(slowness, |ending| {
                    matches!(
                        ending,
                        Outcome::TimedOut { .. } | Outcome::OutOfMemory { .. }
                    )
                }));
                cells.push(against(Bench::memory_over, |ending| {
                    matches!(ending, Outcome::OutOfMemory { .. })
                }));
            }
            Row {
                facts: row.facts.clone(),
                ..Row::new(cells)
            }
        });
        Table {
            name: "bench-break-even".to_owned(),
            title: "Break-even with softmax attention, tokens".to_owned(),
            unit: "tokens".to_owned(),
            rows: rows.collect(),
            columns,
            schema: Schema {
                info: info!("model", "cost", "opponent"),
                found: &["tokens", "verdict"],
            },
            notes: vec![match (forms.is_empty(), any) {
                (true, _) => format!("No {REFERENCE} was measured, so there is nothing to compare with."),
                (false, false) => "Only softmax attention was measured.".to_owned(),
                (false, true) => "The length from which a model takes less time, or less memory, than softmax attention at every \
                 longer length measured; between two lengths interpolated on logarithmic scales."
                    .to_owned(),
            }],
        }
    }

    /// Returns the table of the speed of every cell.
    pub(super) fn rates(&self) -> Table {
        let columns = vec![
            Column::value("steps/s").holding(&["steps_per_second", "status"]),
            Column::value("p10–p90").holding(&["p10_steps_per_second", "p90_steps_per_second"]),
            Column::value("times").holding(&["times"]),
            Column::value("examples/s").holding(&["examples_per_second"]),
            Column::value("tokens/s").holding(&["tokens_per_second"]),
        ];
        let found = &[
            "steps_per_second",
            "status",
            "p10_steps_per_second",
            "p90_steps_per_second",
            "times",
            "examples_per_second",
            "tokens_per_second",
        ];
        self.in_full(
            "bench-rates",
            "Speed of every cell",
            columns,
            found,
            |row, cell| {
                let rate = cell.steps_per_second()?;
                let examples = rate.median * cell.batch as f64;
                let tokens = examples * cell.length as f64;
                let (digits, prefix) = scaled(tokens);
                let ratio = self.reference(row, cell.length);
                let ratio = ratio.and_then(|reference| cell.speed_over(reference));
                Some(vec![
                    number("steps_per_second", rate.median),
                    Cell {
                        text: format!("{}–{}", short(rate.p10), short(rate.p90)),
                        fields: vec![
                            ("p10_steps_per_second", json!(rate.p10)),
                            ("p90_steps_per_second", json!(rate.p90)),
                        ],
                        ..Cell::default()
                    },
                    ratio.map_or_else(Cell::default, |ratio| {
                        Cell::with(format!("{}×", times(ratio)), "times", ratio)
                    }),
                    number("examples_per_second", examples),
                    Cell::with(format!("{digits}{prefix}"), "tokens_per_second", tokens),
                ])
            },
        )
    }

    /// Returns the table of the cost of every cell.
    pub(super) fn costs(&self, unit: ByteUnit) -> Table {
        let columns = vec![
            Column::value(unit.name).holding(&["peak_bytes", "status"]),
            Column::value("parameters").holding(&["parameters"]),
            Column::value("GFLOP/step").holding(&["gflop_per_step"]),
            Column::value("GFLOP/s").holding(&["gflop_per_second"]),
            Column::value("of matmul").holding(&["share_of_matmul"]),
        ];
        let found = &[
            "peak_bytes",
            "status",
            "parameters",
            "gflop_per_step",
            "gflop_per_second",
            "share_of_matmul",
        ];
        let title = "Cost of every cell";
        let mut table = self.in_full("bench-costs", title, columns, found, |_, cell| {
            let (rate, peak) = (cell.steps_per_second()?, cell.peak_bytes()?);
            let shown = short(peak as f64 / unit.bytes);
            let flops = cell.flops_per_step as f64;
            let share = cell
                .matmul_flops_per_second
                .map(|matmul| flops * rate.median / matmul);
            Some(vec![
                Cell::with(shown, "peak_bytes", peak),
                Cell::with(grouped(cell.parameters), "parameters", cell.parameters),
                number("gflop_per_step", flops / 1e9),
                number("gflop_per_second", flops / 1e9 * rate.median),
                share.map_or_else(Cell::default, |share| {
                    Cell::with(format!("{:.0} %", 100.0 * share), "share_of_matmul", share)
                }),
            ])
        });
        table.notes.push(
            "GFLOP/step: matrix products by formula, forward once and backward twice; a multiply-add is two."
                .to_owned(),
        );
        let cells = self.rows.iter().flat_map(|row| &row.cells);
        let mut peaks: Vec<String> = Vec::new();
        for peak in cells.filter_map(|cell| cell.matmul_flops_per_second) {
            let peak = short(peak / 1e9);
            if !peaks.contains(&peak) {
                peaks.push(peak);
            }
        }
        if !peaks.is_empty() {
            table.notes.push(format!(
                "of matmul: GFLOP/s over those that products of large square matrices reached in the session: {}.",
                peaks.join(", ")
            ));
        }
        table
    }

    /// Returns a table with a row per cell. A cell without figures shows its outcome instead.
    fn in_full(
        &self,
        name: &str,
        title: &str,
        values: Vec<Column>,
        found: &'static [&'static str],
        figures: impl Fn(&GridRow, &Bench) -> Option<Vec<Cell>>,
    ) -> Table {
        let count = values.len();
        let length = Column::key("length").holding(&["length"]);
        let mut columns = vec![Column::key("model")];
        columns.extend(self.settings());
        columns.push(length);
        columns.extend(values);
        let mut rows = Vec::new();
        for grid_row in &self.rows {
            let cells = self.lengths.iter();
            for (index, cell) in cells
                .filter_map(|length| grid_row.cell(*length))
                .enumerate()
            {
                let mut cells = vec![Cell::text(cell.label())];
                cells.extend(grid_row.settings());
                cells.push(Cell::with(cell.length.to_string(), "length", cell.length));
                cells.extend(figures(grid_row, cell).unwrap_or_else(|| {
                    let word = cell.outcome.word();
                    let mut ending = vec![Cell::with(word, "status", word)];
                    ending.resize(count, Cell::default());
                    ending
                }));
                let rule = index == 0 && !rows.is_empty();
                rows.push(Row {
                    rule,
                    facts: grid_row.facts.clone(),
                    ..Row::new(cells)
                });
            }
        }
        Table {
            name: name.to_owned(),
            title: title.to_owned(),
            unit: String::new(),
            columns,
            rows,
            notes: Vec::new(),
            schema: Schema {
                info: info!("model", "length"),
                found,
            },
        }
    }
}

fn number(name: &'static str, value: f64) -> Cell {
    Cell::with(short(value), name, value)
}

fn break_even_cell(found: Option<BreakEven>) -> Cell {
    let Some(found) = found else {
        return Cell::default();
    };
    let (tokens, verdict) = match found {
        BreakEven::At(length) => (Some(length), "crosses".to_owned()),
        BreakEven::From(_) | BreakEven::NoneUpTo(_) => (None, found.to_string()),
    };
    Cell {
        text: found.to_string(),
        fields: vec![("tokens", json!(tokens)), ("verdict", json!(verdict))],
        order: Some(found.order()),
        ..Cell::default()
    }
}
