//! Test whether a score shows that anything was learned.

use crate::record::{Outcome, Record};
use crate::stats::binomial_error;

/// A test accuracy compared with the majority class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Accuracy of always answering with the most frequent class.
    pub majority: f64,
    /// Its standard error over draws of the test rows: the square root of p (1 - p) / rows.
    pub error: f64,
    /// The accuracy is at most `majority + error`: no better than the majority class.
    pub fail: bool,
    /// It is within `error` of the majority class: the model still answers without regard to its
    /// input.
    pub plateau: bool,
}

impl Verdict {
    /// The rule, for footnotes.
    pub const RULE: &str = "FAIL: no better than the majority class; the mean test accuracy is at most that of the \
                            majority class plus one standard error, sqrt(p (1 - p) / test rows).";

    /// Judges the mean accuracy (a fraction) of the scored runs of a cell, by the one with the
    /// fewest test rows.
    pub(crate) fn of_seeds(mean: f64, runs: &[&Record]) -> Option<Verdict> {
        let scored = runs.iter().filter(|run| run.outcome == Outcome::Scored);
        let fewest = scored.min_by_key(|run| match run.task.rows.test {
            0 => usize::MAX,
            rows => rows,
        });
        Verdict::of(mean, fewest?)
    }

    /// Judges an accuracy (a fraction) by the task of a record. Without a recorded majority
    /// baseline, one over the number of classes replaces it. If that is unknown too, there is no
    /// verdict.
    pub fn of(accuracy: f64, record: &Record) -> Option<Verdict> {
        let classes = record.task.classes;
        let chance = (classes > 0).then(|| 1.0 / classes as f64);
        let majority = record.majority().or(chance)?;
        let error = binomial_error(majority, record.task.rows.test);
        Some(Verdict {
            majority,
            error,
            fail: accuracy <= majority + error,
            plateau: (accuracy - majority).abs() <= error,
        })
    }
}
