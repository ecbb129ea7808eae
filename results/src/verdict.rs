//! Whether a score says that anything was learned.

use crate::record::Record;
use crate::stats::binomial_error;

/// A test accuracy compared with the majority class.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verdict {
    /// Accuracy of always answering with the most frequent class.
    pub majority: f64,
    /// Its standard error, had the test rows been drawn anew: the square root of p (1 - p) / rows.
    pub error: f64,
    /// The accuracy is at most `majority + error`: no better than the majority class.
    pub fail: bool,
    /// It lies within `error` of the majority class: the model still answers as if it had not
    /// looked.
    pub plateau: bool,
}

impl Verdict {
    /// The rule, for footnotes.
    pub const RULE: &str = "FAIL: no better than the majority class; the mean test accuracy is at most that of the \
                            majority class plus one standard error, sqrt(p (1 - p) / test rows).";

    /// Judges an accuracy (a fraction) by the task of a record. Where no majority baseline was
    /// recorded, the share of one class in all stands in for it; where the classes are unknown too,
    /// there is no verdict.
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
