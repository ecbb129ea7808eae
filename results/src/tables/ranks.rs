//! The table of ranks: models in the order of their ranks over all tasks, with the scores behind
//! them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{capped, endings, status};
use crate::agreement::{
    Agreement, Measure, RECIPE, Ranked, RankedData, Ranking, Selection, newest, select,
};
use crate::format::counted;
use crate::pivot::{facts_of_data, mixture};
use crate::published::Source;
use crate::record::{Baseline, Record};
use crate::stats::Sample;
use crate::table::{Best, Cell, Column, Row, Schema, Table};
use crate::tone::Tone;

/// Model of the row with the best trivial predictor of each task.
const FLOOR: &str = "(best trivial predictor)";

/// Makes the table. Runs of several protocols are not ranked; the note says how to choose.
pub(super) fn table(records: &[Record], _against: Option<&Source>) -> Table {
    let honest = records
        .iter()
        .filter(|it| it.changed_on_the_way().is_none());
    let honest: Vec<Record> = honest.cloned().collect();
    let (runs, refusal) = match chosen(&honest) {
        Ok(runs) => (runs, None),
        Err(reason) => (Vec::new(), Some(reason)),
    };
    let ranking = Ranking::of(&runs);
    let place = Column {
        key: true,
        ..Column::value("rank")
    };
    let mut columns = vec![place, Column::key("model")];
    let one_of_each = ranking
        .data
        .iter()
        .filter_map(|data| data.runs(&runs).next());
    let data = ranking.data.iter().zip(facts_of_data(one_of_each));
    columns.extend(data.map(|(data, facts)| {
        let fields = &["mean", "deviation", "seeds", "accuracy", "status"];
        Column::value(&data.name).info(facts).holding(fields)
    }));
    let models = ranking.models.iter();
    let mut rows: Vec<Row> = models.map(|it| row(it, &ranking, &runs)).collect();
    if !rows.is_empty() {
        rows.push(floor(&ranking, &runs));
    }
    let table = Table {
        name: "ranks".to_owned(),
        title: match ranking.measure {
            Measure::Bits => "Ranks over all tasks; bits gained (accuracy)".to_owned(),
            Measure::Accuracy => "Ranks over all tasks; test accuracy".to_owned(),
        },
        unit: "%".to_owned(),
        notes: match refusal {
            Some(reason) => vec![format!("No ranks: {reason}.")],
            None => notes(&ranking, &runs, records),
        },
        schema: Schema {
            info: &[
                "model",
                "rank",
                "of",
                "rank_low",
                "rank_high",
                "task",
                "source",
                "protocol",
                "data",
            ],
            found: &[
                "mean_percent",
                "deviation_percent",
                "seeds",
                "accuracy_percent",
                "status",
            ],
        },
        columns,
        rows,
    };
    table.with_best("mean", Best::Highest)
}

/// Returns the runs to rank, one for each seed of a cell: those of the small protocol if there are
/// any among several recipes.
///
/// # Errors
/// The reason why runs cannot be ranked together, in words.
fn chosen(records: &[Record]) -> Result<Vec<&Record>, String> {
    let counted = || records.iter().filter(|it| !it.task.probe);
    let recipes: BTreeSet<&str> = counted().map(|it| it.recipe.name.as_str()).collect();
    let recipe = match recipes.contains(RECIPE) {
        true => RECIPE,
        false if recipes.len() == 1 => recipes.first().copied().unwrap_or_default(),
        false if recipes.is_empty() => {
            return Err(
                "there is no run, or there are only runs on probes, which do not count".to_owned(),
            );
        }
        false => {
            let known: Vec<&str> = recipes.into_iter().collect();
            return Err(format!(
                "runs by several recipes ({}): put those of one recipe in a folder or a file of their own",
                known.join(", ")
            ));
        }
    };
    let asked = Selection {
        recipe: Some(recipe.to_owned()),
        without_flags: true,
        ..Selection::default()
    };
    let selected = select(records, &asked).map_err(|error| error.to_string())?;
    Ok(newest(&selected))
}

fn row(it: &Ranked, ranking: &Ranking, runs: &[&Record]) -> Row {
    let place = match it.interval {
        Some((low, high)) => format!("{} ({low:.0} to {high:.0})", it.rank),
        None => it.rank.to_string(),
    };
    let mut cells = vec![
        Cell::with(place, "rank", it.rank),
        Cell::text(it.model.clone()),
    ];
    cells.extend(ranking.data.iter().map(|data| {
        let own: Vec<&Record> = data
            .runs(runs)
            .filter(|run| run.model.name == it.model)
            .collect();
        cell(&own, ranking.measure)
    }));
    let (low, high) = it.interval.unzip();
    Row {
        facts: vec![
            ("model", it.model.as_str().into()),
            ("rank", it.rank.into()),
            ("of", ranking.models.len().into()),
            ("rank_low", json!(low)),
            ("rank_high", json!(high)),
        ],
        contest: Some(String::new()),
        ..Row::new(cells)
    }
}

/// Returns the means over the seeds of a model on a task: the measure that ranks, and in brackets
/// the accuracy.
fn cell(runs: &[&Record], measure: Measure) -> Cell {
    let sample = |of: &dyn Fn(&Record) -> Option<f64>| {
        let values: Vec<f64> = runs
            .iter()
            .filter_map(|run| Some(100.0 * of(run)?))
            .collect();
        let count = values.len();
        Sample::of(&values).map(|sample| (sample, count))
    };
    let accuracy = sample(&Record::test_accuracy).map(|(sample, _)| sample.mean);
    let Some((reached, seeds)) = sample(&|run| measure.reached(run)) else {
        return Cell::default();
    };
    let words = endings(runs, true);
    let mut text = format!("{:.1}", reached.mean);
    if let Some(deviation) = reached.deviation {
        text += &format!(" ±{deviation:.1}");
    }
    if let (Some(accuracy), Measure::Bits) = (accuracy, measure) {
        text += &format!(" ({accuracy:.1})");
    }
    if !words.is_empty() {
        text += &format!("; {}", words.join(", "));
    }
    Cell {
        text,
        tone: (!words.is_empty()).then_some(Tone::Bad),
        fields: vec![
            ("status", status(&words)),
            ("mean", reached.mean.into()),
            ("deviation", json!(reached.deviation)),
            ("seeds", seeds.into()),
            ("accuracy", json!(accuracy)),
        ],
        ..Cell::default()
    }
}

/// Returns the row of the best trivial predictor of each task. Its bits are unknown.
fn floor(ranking: &Ranking, runs: &[&Record]) -> Row {
    let mut cells = vec![Cell::default(), Cell::text(FLOOR)];
    cells.extend(ranking.data.iter().map(|data| {
        let Some(best) = best_trivial(runs, data) else {
            return Cell::default();
        };
        let accuracy = 100.0 * best.accuracy;
        let text = match ranking.measure {
            Measure::Bits => format!("({accuracy:.1})"),
            Measure::Accuracy => format!("{accuracy:.1}"),
        };
        Cell::with(text, "accuracy", accuracy)
    }));
    Row {
        rule: true,
        facts: vec![
            ("model", FLOOR.into()),
            ("rank", Value::Null),
            ("of", Value::Null),
            ("rank_low", Value::Null),
            ("rank_high", Value::Null),
        ],
        ..Row::new(cells)
    }
}

/// Returns the most accurate of the trivial predictors on a data set.
fn best_trivial<'a>(runs: &'a [&'a Record], data: &'a RankedData) -> Option<&'a Baseline> {
    Baseline::best(Baseline::of_data(data.runs(runs)))
}

fn notes(ranking: &Ranking, runs: &[&Record], all: &[Record]) -> Vec<String> {
    let scores = match ranking.measure {
        Measure::Bits => {
            "bits gained, 0 to 100: how much lower the loss is than that of always predicting the class shares, in percent; mean over the \
             validations and the final test. ±: sample standard deviation over the seeds. In brackets: test accuracy in percent."
        }
        Measure::Accuracy => {
            "test accuracy in percent; ± sample standard deviation over the seeds."
        }
    };
    let mut notes = vec![
        format!(
            "rank: models are ranked on each task by {}. The ranks become normal scores, whose mean gives the rank over all tasks. In \
             brackets the middle 95 % of the ranks in draws of the {}, and of the seeds of each cell, with replacement. With few tasks \
             this range is narrower than a confidence interval.",
            ranking.measure.words(),
            counted(ranking.data.len() as u64, "task")
        ),
        scores.to_owned(),
    ];
    notes.extend(ranking.measure.remarks(runs));
    let trivial = ranking.data.iter().filter_map(|data| {
        let best = best_trivial(runs, data)?;
        let which = Baseline::which(data.runs(runs), &best.name);
        Some(format!("{}: {}{which}", data.name, best.name))
    });
    let trivial: Vec<String> = trivial.collect();
    if !trivial.is_empty() {
        notes.push(format!("Best trivial predictors: {}.", trivial.join(", ")));
    }
    let seeds = ranking.data.iter().map(|data| {
        let mut counts: Vec<usize> = ranking
            .models
            .iter()
            .map(|it| {
                let of_model = data.runs(runs).filter(|run| run.model.name == it.model);
                of_model
                    .filter(|run| ranking.measure.reached(run).is_some())
                    .count()
            })
            .collect();
        counts.sort_unstable();
        counts.dedup();
        let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
        format!("{} {}", data.name, counts.join(" or "))
    });
    let recipe = runs.first().map_or("", |run| run.recipe.name.as_str());
    notes.push(format!(
        "Recipe {recipe}. Seeds of a model: {}.",
        seeds.collect::<Vec<_>>().join(", ")
    ));
    let left = all.len() - runs.len();
    if left > 0 {
        notes.push(format!(
            "{} left out: by another recipe, with other settings, resumed after changes, on probes, or superseded by another run of the same seed.",
            counted(left as u64, "run")
        ));
    }
    notes.extend(mixture(runs).map(|mixture| format!("The runs are of {mixture}.")));
    let agreement = Agreement::of(runs, Some(ranking.measure), None);
    if agreement.models.len() >= super::bits::FEWEST {
        notes.push(agreement.line());
    }
    let lacking = ranking.incomplete.iter();
    let lacking = lacking
        .map(|(model, lacks)| format!("{model} has no rank: no score on {}.", lacks.join(", ")));
    capped(&mut notes, lacking.collect());
    notes
}
