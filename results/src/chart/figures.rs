//! Charts made from records.

use std::collections::BTreeMap;

use super::groups::{ChartCell, Group, mixtures};
use super::names::{slug, with_names_of_their_own};
use super::{Axis, Baseline, Chart, Form, Scale, Series};
use crate::imported::{Imported, UNCHECKED};
use crate::metrics::{self, Line};
use crate::pivot::{COMPUTING, MACHINE, METHOD, SHARING, THREADING, TRAINING};
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::store::Loaded;

/// Returns charts of score over speed with memory as area: figure 3 of the 2021 paper. Values are
/// means over seeds. Settings that the tables of accuracy, speed and memory keep apart share no
/// mean: data, protocol, recipe, precision, device, processor, threads, jobs and method have charts
/// of their own; variant, changes to the recipe and settings of computing have series of their own.
/// Accuracies of others are lines.
pub fn bubbles(records: &[Record], imported: &[Imported]) -> Vec<Chart> {
    let scored = records
        .iter()
        .filter(|record| record.outcome == Outcome::Scored);
    let (groups, ranks) = Group::all(
        scored,
        &[TRAINING, COMPUTING, MACHINE, THREADING, SHARING, METHOD],
    );
    let mut charts: Vec<Chart> = Vec::new();
    for group in groups {
        let mut found = Vec::new();
        let mut drawn = Vec::new();
        let mut largest = 0.0f64;
        for cell in &group.cells {
            let mean = |of: fn(&Record) -> Option<f64>| {
                let values: Vec<f64> = cell.runs.iter().filter_map(|run| of(run)).collect();
                Sample::of(&values).map(|sample| sample.mean)
            };
            let accuracy = mean(Record::test_accuracy);
            let rate = mean(|run| Some(run.speed.as_ref()?.steps_per_second.median));
            let memory = mean(|run| Some(run.memory.as_ref()?.peak_bytes as f64));
            if let (Some(accuracy), Some(rate), Some(memory)) = (accuracy, rate, memory) {
                largest = largest.max(memory);
                found.push((&cell.name, accuracy, rate, memory));
                drawn.push(cell);
            }
        }
        if found.len() < 2 {
            continue;
        }
        let mut notes = vec![format!(
            "Area: peak memory, the largest {}.",
            crate::format::bytes(largest as u64),
        )];
        let agreed = group.agreed.iter();
        let agreed: Vec<String> = agreed
            .map(|(name, value)| format!("{name} {value}"))
            .collect();
        if !agreed.is_empty() {
            notes.push(format!("Every run: {}.", agreed.join(", ")));
        }
        notes.extend(group.sharing());
        notes.extend(mixtures(&drawn));
        let others = of_others(&drawn, imported, &mut notes);
        charts.push(Chart {
            name: format!("bubbles-{}", slug(&group.title())),
            title: format!("{}: score, speed and memory", group.title()),
            x: Axis::new("training speed, steps/s", Scale::Log),
            y: Axis::new("test accuracy, %", Scale::Linear),
            series: found
                .into_iter()
                .map(|(name, accuracy, rate, memory)| Series {
                    rank: ranks.of(name),
                    name: name.clone(),
                    points: vec![(rate, 100.0 * accuracy)],
                    band: vec![],
                    form: Form::Bubble(memory / largest),
                })
                .collect(),
            baselines: [group.baselines(), others].concat(),
            notes,
        });
    }
    with_names_of_their_own(charts)
}

/// Returns charts of validation accuracy over training steps: means over the seeds that reached a
/// step, in a band from their lowest to their highest value. Settings that the table of accuracies
/// separates have their own charts. Runs in a folder without a readable log are left out, named in
/// the notes, and added to `unread` with the reason. Runs from a file of records have no log, which
/// is no reason.
/// Accuracies of others are lines.
pub fn curves(loaded: &Loaded, imported: &[Imported], unread: &mut Vec<String>) -> Vec<Chart> {
    let places: BTreeMap<*const Record, usize> = loaded
        .records
        .iter()
        .enumerate()
        .map(|(index, record)| (std::ptr::from_ref(record), index))
        .collect();
    let (groups, ranks) = Group::all(&loaded.records, &[TRAINING]);
    let mut charts = Vec::new();
    for group in groups {
        let mut series = Vec::new();
        let (mut notes, mut drawn) = (Vec::new(), Vec::new());
        for cell in &group.cells {
            let name = &cell.name;
            let mut steps: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
            for run in &cell.runs {
                let folder = &loaded.folders[places[&std::ptr::from_ref(*run)]];
                // A file of records has no logs.
                if folder.is_file() {
                    continue;
                }
                match metrics::read(folder) {
                    Ok(lines) => {
                        for line in lines {
                            if let Line::Validation {
                                step,
                                accuracy,
                                loss,
                                ..
                            } = line
                                && loss.is_finite()
                            {
                                steps.entry(step).or_default().push(100.0 * accuracy);
                            }
                        }
                    }
                    Err(error) => {
                        let reason = format!("{name}, seed {}: {error}.", run.seed);
                        unread.push(reason.clone());
                        notes.push(reason);
                    }
                }
            }
            let line = curve(name, ranks.of(name), &steps);
            if line.points.len() > 1 {
                series.push(line);
                drawn.push(cell);
            }
        }
        if series.is_empty() {
            continue;
        }
        if series.iter().any(|series| !series.band.is_empty()) {
            notes.insert(
                0,
                "Lines: means over the seeds that reached a step. Bands: from the lowest seed to the highest."
                    .to_owned(),
            );
        }
        notes.extend(group.sharing());
        notes.extend(mixtures(&drawn));
        let others = of_others(&drawn, imported, &mut notes);
        let baselines = [group.baselines(), others].concat();
        if !baselines.is_empty() {
            notes.push("Dashed lines: accuracies on the test split.".to_owned());
        }
        charts.push(Chart {
            name: format!("curves-{}", slug(&group.title())),
            title: format!("{}: learning curves", group.title()),
            x: Axis::new("training steps", Scale::Linear),
            y: Axis::new("validation accuracy, %", Scale::Linear),
            series,
            baselines,
            notes,
        });
    }
    with_names_of_their_own(charts)
}

/// Returns the imported accuracies of the models of a chart on its data, and adds a note on them.
/// There are none for a stand-in, a part or altered data.
fn of_others(
    cells: &[&ChartCell],
    imported: &[Imported],
    notes: &mut Vec<String>,
) -> Vec<Baseline> {
    let runs = || cells.iter().flat_map(|cell| &cell.runs);
    let is_drawn = |one: &&Imported| {
        runs().any(|run| {
            let task = &run.task;
            let is_whole = task.genuine() && !task.partial && task.altered.is_empty();
            is_whole && task.label == one.task && run.model.name == one.model
        })
    };
    let lines = imported.iter().filter(is_drawn).map(|one| {
        let settings = match one.settings.as_str() {
            "" => String::new(),
            settings => format!(", {settings}"),
        };
        Baseline {
            name: format!("{} (imported: {}{settings})", one.model, one.source),
            y: one.percent,
        }
    });
    let lines: Vec<Baseline> = lines.collect();
    if !lines.is_empty() {
        notes.push(UNCHECKED.to_owned());
    }
    lines
}

/// Returns the line through the means of each step, with a band where there are several values.
fn curve(model: &str, rank: usize, steps: &BTreeMap<usize, Vec<f64>>) -> Series {
    let mean = |(step, values): (&usize, &Vec<f64>)| Some((*step as f64, Sample::of(values)?.mean));
    let reach = |(step, values): (&usize, &Vec<f64>)| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        (values.len() > 1).then_some((*step as f64, low, high))
    };
    Series {
        name: model.to_owned(),
        rank,
        points: steps.iter().filter_map(mean).collect(),
        band: steps.iter().filter_map(reach).collect(),
        form: Form::Line,
    }
}
