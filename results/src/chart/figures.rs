//! The charts that records make.

use std::collections::BTreeMap;

use super::{Axis, Chart, Form, Scale, Series};
use crate::metrics::{self, Line};
use crate::published::{model_rank, task_rank};
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::store::Loaded;

/// Score over speed with memory as area, one chart per data set and recipe: figure 3 of the 2021 paper.
/// Means over seeds; only runs on one processor are drawn together.
pub fn bubbles(records: &[Record]) -> Vec<Chart> {
    let groups = group(
        records
            .iter()
            .filter(|record| record.outcome == Outcome::Scored),
        |record| {
            format!(
                "{}, {}",
                record.provenance.device, record.provenance.host.cpu
            )
        },
    );
    let mut charts = Vec::new();
    for (group, models) in groups {
        let mut found = Vec::new();
        let mut largest = 0.0f64;
        for (model, runs) in models {
            let mean = |of: fn(&Record) -> Option<f64>| {
                let values: Vec<f64> = runs.iter().filter_map(|run| of(run)).collect();
                Sample::of(&values).map(|sample| sample.mean)
            };
            let accuracy = mean(Record::test_accuracy);
            let rate = mean(|run| Some(run.speed.as_ref()?.steps_per_second.median));
            let memory = mean(|run| Some(run.memory.as_ref()?.peak_bytes as f64));
            if let (Some(accuracy), Some(rate), Some(memory)) = (accuracy, rate, memory) {
                largest = largest.max(memory);
                found.push((model, accuracy, rate, memory));
            }
        }
        if found.len() < 2 {
            continue;
        }
        let mib = |bytes: f64| crate::format::bytes(bytes as u64);
        charts.push(Chart {
            name: format!("bubbles-{}", slug(&group.title())),
            title: format!("{}: score, speed and memory", group.title()),
            x: Axis::new("training speed, steps/s", Scale::Log),
            y: Axis::new("test accuracy, %", Scale::Linear),
            notes: vec![format!(
                "Area: peak memory, the largest {}. {}.",
                mib(largest),
                group.surroundings
            )],
            series: found
                .into_iter()
                .map(|(model, accuracy, rate, memory)| Series {
                    rank: rank(&model),
                    name: model,
                    points: vec![(rate, 100.0 * accuracy)],
                    form: Form::Bubble(memory / largest),
                })
                .collect(),
        });
    }
    charts
}

/// Validation accuracy over training steps, one chart per data set and recipe: means over the seeds that got to a step.
/// Runs without a readable log are left out and named in the notes.
pub fn curves(loaded: &Loaded) -> Vec<Chart> {
    let places: BTreeMap<*const Record, usize> = loaded
        .records
        .iter()
        .enumerate()
        .map(|(index, record)| (std::ptr::from_ref(record), index))
        .collect();
    let groups = group(loaded.records.iter(), |_| String::new());
    let mut charts = Vec::new();
    for (group, models) in groups {
        let mut series = Vec::new();
        let mut notes = Vec::new();
        for (model, runs) in models {
            let mut steps: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
            for run in &runs {
                let folder = &loaded.folders[places[&std::ptr::from_ref(*run)]];
                match metrics::read(folder) {
                    Ok(lines) => {
                        for line in lines {
                            if let Line::Validation { step, accuracy, .. } = line {
                                steps.entry(step).or_default().push(100.0 * accuracy);
                            }
                        }
                    }
                    Err(error) => notes.push(format!("{model}, seed {}: {error}.", run.seed)),
                }
            }
            let points: Vec<_> = steps
                .into_iter()
                .filter_map(|(step, values)| Some((step as f64, Sample::of(&values)?.mean)))
                .collect();
            if points.len() > 1 {
                series.push(Series {
                    rank: rank(&model),
                    name: model,
                    points,
                    form: Form::Line,
                });
            }
        }
        if series.is_empty() {
            continue;
        }
        charts.push(Chart {
            name: format!("curves-{}", slug(&group.title())),
            title: format!("{}: learning curves", group.title()),
            x: Axis::new("training steps", Scale::Linear),
            y: Axis::new("validation accuracy, %", Scale::Linear),
            series,
            notes,
        });
    }
    charts
}

/// What one chart shows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    rank: usize,
    /// The task's label, with the marks of a stand-in or of altered data.
    task: String,
    source: String,
    recipe: String,
    surroundings: String,
}

impl Group {
    fn title(&self) -> String {
        format!("{}, recipe {}", self.task, self.recipe)
    }
}

/// Sorts records into charts and, within them, under the name that their model has there.
fn group<'a>(
    records: impl Iterator<Item = &'a Record>,
    surroundings: fn(&Record) -> String,
) -> BTreeMap<Group, Vec<(String, Vec<&'a Record>)>> {
    let mut groups: BTreeMap<Group, BTreeMap<(usize, String), Vec<&Record>>> = BTreeMap::new();
    for record in records {
        let group = Group {
            rank: task_rank(&record.task.name),
            task: record.task.title(),
            source: record.task.source.clone(),
            recipe: record.recipe.name.clone(),
            surroundings: surroundings(record),
        };
        let mut name = record.model.name.clone();
        if let Some(variant) = record.model.departure() {
            name += &format!(" {variant}");
        }
        let mut set = record.recipe.overrides.clone();
        set.sort();
        for change in set {
            name += &format!(" {change}");
        }
        let key = (model_rank(&record.model.name), name);
        groups
            .entry(group)
            .or_default()
            .entry(key)
            .or_default()
            .push(record);
    }
    let sorted = groups.into_iter();
    sorted
        .map(|(group, models)| {
            let models = models.into_iter().map(|((_, name), runs)| (name, runs));
            (group, models.collect())
        })
        .collect()
}

/// A model's place in the order of the 2021 tables, by the first word of its name here.
fn rank(name: &str) -> usize {
    let model = name.split(' ').next().unwrap_or(name);
    model_rank(model)
}

/// A title as part of a file name.
fn slug(title: &str) -> String {
    let words = title.split(|c: char| !(c.is_ascii_alphanumeric() || c == '@' || c == '.'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}
