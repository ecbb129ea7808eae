//! The charts that records make.

use std::collections::BTreeMap;

use super::names::Names;
use super::{Axis, Baseline, Chart, Form, Scale, Series};
use crate::metrics::{self, Line};
use crate::published::{model_rank, task_rank};
use crate::record::{Outcome, Record};
use crate::stats::Sample;
use crate::store::Loaded;

/// Score over speed with memory as area, one chart per data set and recipe: figure 3 of the 2021 paper.
/// Means over seeds; only runs on one processor are drawn together.
pub fn bubbles(records: &[Record]) -> Vec<Chart> {
    let names = Names::new(records);
    let scored = records
        .iter()
        .filter(|record| record.outcome == Outcome::Scored);
    let groups = group(scored, &names, |record| {
        format!(
            "{}, {}",
            record.provenance.device, record.provenance.host.cpu
        )
    });
    let mut charts: Vec<Chart> = Vec::new();
    for (group, models) in groups {
        let mut found = Vec::new();
        let mut largest = 0.0f64;
        for (model, runs) in &models {
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
        let mut notes = vec![format!(
            "Area: peak memory, the largest {}. {}.",
            crate::format::bytes(largest as u64),
            group.surroundings
        )];
        notes.extend(sharing(&models, &names));
        let name = format!("bubbles-{}", slug(&group.title()));
        // Another processor has a chart, and a file, of its own.
        let same = charts.iter().filter(|chart| chart.title == group.bubbles());
        let name = match same.count() {
            0 => name,
            count => format!("{name}-{}", count + 1),
        };
        charts.push(Chart {
            name,
            title: group.bubbles(),
            x: Axis::new("training speed, steps/s", Scale::Log),
            y: Axis::new("test accuracy, %", Scale::Linear),
            series: found
                .into_iter()
                .map(|(model, accuracy, rate, memory)| Series {
                    rank: names.rank(model),
                    name: model.clone(),
                    points: vec![(rate, 100.0 * accuracy)],
                    band: vec![],
                    form: Form::Bubble(memory / largest),
                })
                .collect(),
            baselines: baselines(&models),
            notes,
        });
    }
    charts
}

/// Validation accuracy over training steps, one chart per data set and recipe: means over the seeds that got to a step, in a
/// band from the lowest of them to the highest. Runs without a readable log are left out and named in the notes.
pub fn curves(loaded: &Loaded) -> Vec<Chart> {
    let names = Names::new(&loaded.records);
    let places: BTreeMap<*const Record, usize> = loaded
        .records
        .iter()
        .enumerate()
        .map(|(index, record)| (std::ptr::from_ref(record), index))
        .collect();
    let groups = group(loaded.records.iter(), &names, |_| String::new());
    let mut charts = Vec::new();
    for (group, models) in groups {
        let mut series = Vec::new();
        let mut notes = Vec::new();
        for (model, runs) in &models {
            let mut steps: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
            for run in runs {
                let folder = &loaded.folders[places[&std::ptr::from_ref(*run)]];
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
                    Err(error) => notes.push(format!("{model}, seed {}: {error}.", run.seed)),
                }
            }
            let line = curve(model, names.rank(model), &steps);
            series.extend(line.points.get(1).is_some().then_some(line));
        }
        if series.is_empty() {
            continue;
        }
        if series.iter().any(|series| !series.band.is_empty()) {
            notes.insert(
                0,
                "Lines: means over the seeds. Bands: from the lowest seed to the highest."
                    .to_owned(),
            );
        }
        notes.extend(sharing(&models, &names));
        charts.push(Chart {
            name: format!("curves-{}", slug(&group.title())),
            title: format!("{}: learning curves", group.title()),
            x: Axis::new("training steps", Scale::Linear),
            y: Axis::new("validation accuracy, %", Scale::Linear),
            series,
            baselines: baselines(&models),
            notes,
        });
    }
    charts
}

/// The line through the means of each step, with a band where there are several values.
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

/// What a chart shows.
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

    fn bubbles(&self) -> String {
        format!("{}: score, speed and memory", self.title())
    }
}

/// The runs of a chart under the names of their models.
type Models<'a> = Vec<(String, Vec<&'a Record>)>;

/// Sorts records into charts and, within them, under the name that their model has there.
fn group<'a>(
    records: impl Iterator<Item = &'a Record>,
    names: &Names,
    surroundings: fn(&Record) -> String,
) -> BTreeMap<Group, Models<'a>> {
    let mut groups: BTreeMap<Group, BTreeMap<(usize, String), Vec<&Record>>> = BTreeMap::new();
    for record in records {
        let group = Group {
            rank: task_rank(&record.task.name),
            task: record.task.title(),
            source: record.task.source.clone(),
            recipe: record.recipe.name.clone(),
            surroundings: surroundings(record),
        };
        let key = (model_rank(&record.model.name), names.of(record));
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

/// What the trivial predictors score, of the first run that knows.
fn baselines(models: &Models) -> Vec<Baseline> {
    let mut runs = models.iter().flat_map(|(_, runs)| runs);
    let known = runs.find(|run| !run.baselines.is_empty());
    let baselines = known.iter().flat_map(|run| &run.baselines);
    baselines
        .map(|baseline| Baseline {
            name: baseline.name.clone(),
            y: 100.0 * baseline.accuracy,
        })
        .collect()
}

/// What is said once rather than in each name.
fn sharing(models: &Models, names: &Names) -> Option<String> {
    let run = models.first()?.1.first()?;
    let shared = names.shared(run);
    (!shared.is_empty()).then(|| format!("Every run: {}.", shared.join(" ")))
}

/// A title as part of a file name.
fn slug(title: &str) -> String {
    let words = title.split(|c: char| !(c.is_ascii_alphanumeric() || c == '@' || c == '.'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}
