//! Test of equivalence of a mean over seeds and a published figure. A wide interval proves nothing.
//! So the test is not whether the interval contains the figure, but whether the whole interval is
//! close to it.

use crate::published::{Figure, Source};
use crate::record::{Outcome, Record};
use crate::stats::{Sample, binomial_error};

/// The level of the intervals.
pub(crate) const LEVEL: f64 = 0.95;
/// Number of standard errors on either side of a single score for an interval of [`LEVEL`].
const REACH: f64 = 1.96;
/// Largest difference of two accuracies, in percentage points, that counts as the same result.
pub const MARGIN: f64 = 2.0;

/// A mean accuracy over seeds in percent, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The mean.
    pub mean: f64,
    /// The lower end of Student's interval at 95 %, at least 0. For a single seed it is the
    /// binomial interval of the accuracy.
    pub low: f64,
    /// The upper end, at most 100.
    pub high: f64,
    /// Number of seeds that were scored.
    pub seeds: usize,
}

impl Score {
    /// Combines the runs of one cell, one per seed. Returns `None` if no run was scored.
    pub fn of(runs: &[&Record]) -> Option<Score> {
        let scored = runs.iter().filter(|run| run.outcome == Outcome::Scored);
        let values: Vec<f64> = scored
            .filter_map(|run| run.test_accuracy())
            .map(|accuracy| 100.0 * accuracy)
            .collect();
        let sample = Sample::of(&values)?;
        let (low, high) = sample.interval(LEVEL).unwrap_or_else(|| {
            let error = 100.0 * binomial_error(sample.mean / 100.0, runs[0].task.rows.test);
            (sample.mean - REACH * error, sample.mean + REACH * error)
        });
        Some(Score {
            mean: sample.mean,
            low: low.max(0.0),
            high: high.min(100.0),
            seeds: sample.count,
        })
    }
}

/// Returns the margin around a published figure in points: [`MARGIN`], or the spread over seeds
/// given by the source if that is larger.
pub fn margin(source: &Source, figure: &Figure) -> f64 {
    let spread = source.spread(figure).unwrap_or(0.0);
    spread.max(MARGIN)
}

/// The verdict on a mean and a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Equivalence {
    /// The whole interval lies within the margin.
    Reproduced,
    /// The whole interval lies outside.
    Differs,
    /// A part of the interval is within the margin and a part outside.
    CannotTell {
        /// Width of the interval in points.
        width: f64,
    },
    /// There is only one seed, which says nothing about others.
    OneSeed,
}

impl Equivalence {
    /// Judges a mean by a figure in percent and the margin around it in points.
    pub fn of(ours: &Score, figure: f64, margin: f64) -> Equivalence {
        // Tolerates rounding errors at the ends of the margin.
        let (low, high) = (figure - margin - 1e-9, figure + margin + 1e-9);
        if ours.seeds < 2 {
            Equivalence::OneSeed
        } else if low <= ours.low && ours.high <= high {
            Equivalence::Reproduced
        } else if ours.high < low || ours.low > high {
            Equivalence::Differs
        } else {
            Equivalence::CannotTell {
                width: ours.high - ours.low,
            }
        }
    }

    /// Returns the verdict for machines.
    pub fn word(self) -> &'static str {
        match self {
            Equivalence::Reproduced => "reproduced",
            Equivalence::Differs => "differs",
            Equivalence::CannotTell { .. } | Equivalence::OneSeed => "cannot tell",
        }
    }

    /// Returns the verdict in words, with the reason if there is none.
    pub fn words(self) -> String {
        match self {
            Equivalence::Reproduced | Equivalence::Differs => self.word().to_owned(),
            // A width below this would read as 0 or 1, where decimals matter.
            Equivalence::CannotTell { width } if width < 9.95 => {
                format!("{} (interval {width:.1} points wide)", self.word())
            }
            Equivalence::CannotTell { width } => {
                format!("{} (interval {width:.0} points wide)", self.word())
            }
            Equivalence::OneSeed => format!("{} (one seed)", self.word()),
        }
    }
}
