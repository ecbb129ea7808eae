//! The meaning of a score: its distance from the best trivial predictor, and what other models
//! reach on the same data in a table of the small protocol.

use std::collections::BTreeMap;

use crate::agreement::{Cluster, anchors, is_rate};
use crate::card::RECIPE;
use crate::format::percent;
use crate::record::{Baseline, Outcome, Record};
use crate::stats::{Sample, binomial_error};

/// Normal quantile of a two-sided test at the level of 5 %.
const TWO_SIDED: f64 = 1.96;

/// The meaning of a score on a test split.
#[derive(Clone, Debug, PartialEq)]
pub struct Meaning {
    /// Distance from the best trivial predictor, in percentage points.
    pub points: f64,
    /// The distance and the scores of other models, in words.
    pub words: String,
}

impl Meaning {
    /// Returns the meaning of a record's score beside the runs of `table`. Returns none if the
    /// record has no score or no trivial baseline.
    ///
    /// Only runs by the small protocol without changes are set beside others of it; learning rates
    /// are none.
    #[must_use]
    pub fn of(record: &Record, table: &[Record]) -> Option<Meaning> {
        let score = record.test_accuracy().filter(|score| score.is_finite())?;
        let best = Baseline::best(&record.baselines)?;
        let distance = score - best.accuracy;
        let rows = record.task.rows.test;
        let error = binomial_error(best.accuracy, rows).hypot(binomial_error(score, rows));
        let place = match distance {
            near if near.abs() <= TWO_SIDED * error => "level with",
            above if above > 0.0 => "above",
            _ => "below",
        };
        let mut words = format!(
            "{place} {} ({} %), the best trivial predictor",
            best.name,
            percent(best.accuracy)
        );
        let others = others(record, table);
        if !others.is_empty() {
            words += &format!("; on this data, recipe {RECIPE}: {}", others.join(", "));
        }
        Some(Meaning {
            points: 100.0 * distance,
            words,
        })
    }
}

/// Returns what each cluster of the published models reaches in `table` on the data of a record.
fn others(record: &Record, table: &[Record]) -> Vec<String> {
    let follows = |it: &Record| {
        it.recipe.name == RECIPE && it.recipe.decisive_overrides().iter().all(|it| is_rate(it))
    };
    if !follows(record) {
        return Vec::new();
    }
    let data = |it: &Record| (it.task.title(), it.task.data_digest.clone());
    let wanted = data(record);
    let mut accuracies: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for it in table.iter().filter(|it| follows(it) && data(it) == wanted) {
        let scored = it.test_accuracy().filter(|_| it.outcome == Outcome::Scored);
        accuracies.entry(&it.model.name).or_default().extend(scored);
    }
    let clusters = [
        (Cluster::Weak, "models with weak published figures"),
        (Cluster::Strong, "models with strong ones"),
    ];
    let reached = clusters.into_iter().filter_map(|(cluster, name)| {
        let models = anchors().iter().filter(|anchor| anchor.cluster == cluster);
        let mut means: Vec<(f64, &str)> = models
            .filter_map(|anchor| {
                let accuracies = accuracies.get(anchor.model.as_str())?;
                Some((Sample::of(accuracies)?.mean, anchor.model.as_str()))
            })
            .collect();
        means.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((low, _), (high, best)) = (means.first()?, means.last()?);
        let range = match means.len() {
            1 => format!("{} ({best})", percent(*high)),
            _ => format!("{} to {} (best {best})", percent(*low), percent(*high)),
        };
        Some(format!("{name} {range}"))
    });
    reached.collect()
}
