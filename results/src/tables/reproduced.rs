//! Every published cell that was run by its source's own recipe: the figure, our score, the verdict
//! and what it took.

use std::collections::{BTreeMap, BTreeSet};

use super::judged::{self, Judged, found};
use crate::format::counted;
use crate::pivot::{Pivot, TRAINING};
use crate::published::{Source, sources};
use crate::record::Record;
use crate::table::{Cell, Column, Schema, Table};

/// The dimension of settings: the differences name them.
const SET: &str = "set";

/// Returns one row per cell and source whose protocol the recipe follows. Runs with other settings
/// than the recipe's are shown, but not judged.
pub(super) fn table(records: &[Record], _: Option<&Source>) -> Table {
    let pivot = Pivot::new(records, &[TRAINING]);
    let mut columns = ["against", "task", "model"].map(Column::key).to_vec();
    let varying: Vec<usize> = (0..pivot.varying.len())
        .filter(|index| pivot.varying[*index] != SET)
        .collect();
    columns.extend(
        varying
            .iter()
            .map(|index| Column::key(pivot.varying[*index])),
    );
    columns.extend(Judged::columns());
    columns.extend([
        Column::value("hours").holding(&["hours"]),
        Column::text("machine"),
        Column::text("differences"),
    ]);
    let mut rows = Vec::new();
    let mut verdicts: BTreeMap<&str, u64> = BTreeMap::new();
    let mut published = BTreeSet::new();
    let mut counted_seeds = false;
    for source in sources() {
        for (index, column) in pivot.columns.iter().enumerate() {
            for row in &pivot.rows {
                let runs = &row.cells[index];
                let follows = |run: &&Record| source.recipes.contains(&run.recipe.name.as_str());
                let followed = runs.first().is_some_and(follows);
                let judged = followed.then(|| Judged::of(runs, source)).flatten();
                let Some(cell) = judged else {
                    continue;
                };
                counted_seeds |= cell.ours.is_some_and(|ours| ours.seeds == 1);
                *verdicts.entry(cell.verdict()).or_default() += 1;
                published.insert((
                    source.alias,
                    pivot.columns[index].split(' ').next(),
                    row.model,
                ));
                let mut cells = [source.alias, column, row.model].map(Cell::text).to_vec();
                cells.extend(varying.iter().map(|index| Cell::text(&row.varying[*index])));
                cells.extend(cell.cells());
                cells.push(hours(runs).map_or_else(Cell::default, |hours| {
                    Cell::with(format!("{hours:.1}"), "hours", hours)
                }));
                cells.push(Cell::text(machine(runs)));
                cells.push(Cell::text(cell.differences().join("; ")));
                rows.push(judged::row(cells, source, &row.facts, &pivot.facts[index]));
            }
        }
    }
    let mut notes = vec![summary(published.len(), &verdicts), judged::legend()];
    if counted_seeds {
        notes.push(judged::ONE_SEED.to_owned());
    }
    notes.push(
        "differences: of the runs from the recipe. `lra repro SOURCE TASK MODEL --dry-run` lists those of the recipe from the published run."
            .to_owned(),
    );
    notes.push(
        "hours: from the start of a run to its record, summed over the seeds, on a machine that may have done other work as well."
            .to_owned(),
    );
    if rows.is_empty() {
        notes = vec![
            "No run follows a published recipe for a cell that its source prints (`lra repro SOURCE --dry-run` lists such cells)."
                .to_owned(),
        ];
    }
    Table {
        name: "reproduced".to_owned(),
        title: "Published cells run by their own recipes, test accuracy in %".to_owned(),
        unit: "%".to_owned(),
        columns,
        rows,
        notes,
        schema: Schema {
            info: judged::INFO,
            found: found!("hours", "machine", "differences"),
        },
    }
}

/// Returns the number of published cells, and of rows by verdict, in a sentence.
fn summary(published: usize, verdicts: &BTreeMap<&str, u64>) -> String {
    let rows: u64 = verdicts.values().sum();
    let mut all = counted(published as u64, "published cell");
    if rows != published as u64 {
        all += &format!(", run in {rows} ways");
    }
    let counts: Vec<String> = verdicts
        .iter()
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    format!("{all}: {}.", counts.join(", "))
}

/// Returns the hours of all seeds; `None` if those of one are unknown.
fn hours(runs: &[&Record]) -> Option<f64> {
    let seconds = runs
        .iter()
        .map(|run| Some(run.speed.as_ref()?.wall_seconds));
    let seconds: f64 = seconds.sum::<Option<f64>>()?;
    (seconds > 0.0).then_some(seconds / 3600.0)
}

/// Returns the processors or accelerators of the runs, each once, with the instructions and threads
/// that are known.
fn machine(runs: &[&Record]) -> String {
    let mut machines = Vec::new();
    for run in runs {
        let made = &run.provenance;
        let device = match made.device.as_str() {
            "cpu" | "" => [made.host.cpu.as_str(), &made.host.instructions].join(" "),
            device => format!("{device} {}", made.accelerator()),
        };
        let threads = match made.threads {
            0 => String::new(),
            threads => format!(", {}", counted(threads as u64, "thread")),
        };
        let machine = format!("{}{threads}", device.trim());
        if !machines.contains(&machine) {
            machines.push(machine);
        }
    }
    machines.join("; ")
}
