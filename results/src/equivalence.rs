//! Test of equivalence of a mean over seeds and a published figure. A wide interval proves nothing.
//! So the test is not whether the interval contains the figure, but whether the whole interval is
//! close to it.

use crate::published::{Figure, Source};
use crate::record::{Outcome, Record};
use crate::stats::{Sample, Uncertainty};
use crate::tone::Tone;

/// The level of the intervals.
pub(crate) const LEVEL: f64 = 0.95;
/// Points by which two accuracies in percent may differ and still be the same result.
pub const MARGIN: f64 = 2.0;

/// A mean accuracy over seeds in percent, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation; a single seed has none.
    pub deviation: Option<f64>,
    /// The interval of 95 % for the mean, within 0 to 100, by [`Uncertainty`]; absent where
    /// nothing is known of the spread.
    pub interval: Option<(f64, f64)>,
    /// Number of seeds that were scored.
    pub seeds: usize,
    /// Number of seeds that diverged: the model failed with them. An outcome that this program does
    /// not know counts as one.
    pub diverged: usize,
}

impl Score {
    /// Combines the runs of one cell, one per seed. Returns `None` if no run was scored.
    pub fn of(runs: &[&Record]) -> Option<Score> {
        let scored = runs.iter().filter(|run| run.outcome == Outcome::Scored);
        let scored = scored.filter_map(|run| run.test_accuracy());
        let values: Vec<f64> = scored.filter(|accuracy| accuracy.is_finite()).collect();
        let fractions = Sample::of(&values)?;
        let uncertainty = Uncertainty::of(&fractions, test_rows(runs));
        let percent: Vec<f64> = values.iter().map(|accuracy| 100.0 * accuracy).collect();
        let percent = Sample::of(&percent)?;
        Some(Score {
            mean: percent.mean,
            deviation: percent.deviation,
            interval: uncertainty.map(|it| {
                let (low, high) = it.interval(fractions.mean, LEVEL);
                (100.0 * low, 100.0 * high)
            }),
            seeds: percent.count,
            diverged: runs.iter().filter(|run| failed(run)).count(),
        })
    }

    /// Combines the shares of labelled positions that the runs of one cell got right, one per seed,
    /// without an interval. Returns `None` if no run has one.
    pub(crate) fn of_labels(runs: &[&Record]) -> Option<Score> {
        let scored = runs.iter().filter(|run| run.outcome == Outcome::Scored);
        let shares = scored.filter_map(|run| Some(100.0 * run.test_dense()?.accuracy));
        let percent = Sample::of(&shares.collect::<Vec<f64>>())?;
        Some(Score {
            mean: percent.mean,
            deviation: percent.deviation,
            interval: None,
            seeds: percent.count,
            diverged: runs.iter().filter(|run| failed(run)).count(),
        })
    }
}

/// Returns whether the model failed in a run: it diverged, or has an outcome that this program does
/// not know.
fn failed(run: &Record) -> bool {
    matches!(run.outcome, Outcome::Diverged { .. } | Outcome::Unknown)
}

/// Returns the number of test rows behind every score of some runs: the least of the numbers that
/// are known, 0 if none is.
pub(crate) fn test_rows(runs: &[&Record]) -> usize {
    let rows = runs.iter().map(|run| run.task.rows.test);
    rows.filter(|rows| *rows > 0).min().unwrap_or(0)
}

/// Returns the margin around a published figure in points: [`MARGIN`], or the spread over seeds
/// given by the source if that is larger.
pub fn margin(source: &Source, figure: &Figure) -> f64 {
    let spread = source.spread(figure).unwrap_or(0.0);
    spread.max(MARGIN)
}

/// Returns the least number of seeds whose mean can be judged `reproduced`. With fewer, the
/// interval is wider than the margin even if the mean is equal to the figure and seeds differ no
/// more than the counting of right answers does. `None` for no number of test rows, and beyond 1,000 seeds.
///
/// `figure` and `margin` are in percent and points.
pub fn least_seeds(figure: f64, margin: f64, test_rows: usize) -> Option<usize> {
    let mean = figure / 100.0;
    (2..=1000).find(|count| {
        let sample = Sample {
            count: *count,
            mean,
            deviation: Some(0.0),
        };
        let interval = Uncertainty::of(&sample, test_rows).map(|it| it.interval(mean, LEVEL));
        interval.is_some_and(|(low, high)| 100.0 * (mean - low).max(high - mean) <= margin)
    })
}

/// The verdict on a mean and a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Equivalence {
    /// The whole interval lies within the margin, and no seed diverged.
    Reproduced,
    /// The whole interval lies outside.
    Differs,
    /// A part of the interval is within the margin and a part outside.
    CannotTell {
        /// Width of the interval in points.
        width: f64,
    },
    /// The whole interval of the scored seeds lies within the margin, but others diverged.
    Diverged {
        /// Number of seeds that diverged.
        diverged: usize,
        /// Number of seeds that diverged or were scored.
        of: usize,
    },
    /// There is only one seed, which says nothing about others.
    OneSeed,
    /// The seeds have equal scores on an unknown number of rows: nothing is known of their spread.
    NoSpread,
}

impl Equivalence {
    /// Judges a mean by a figure in percent and the margin around it in points.
    pub fn of(ours: &Score, figure: f64, margin: f64) -> Equivalence {
        // Tolerates rounding errors at the ends of the margin.
        let (low, high) = (figure - margin - 1e-9, figure + margin + 1e-9);
        match ours.interval {
            _ if ours.seeds < 2 => Equivalence::OneSeed,
            None => Equivalence::NoSpread,
            Some((least, most)) if low <= least && most <= high => match ours.diverged {
                0 => Equivalence::Reproduced,
                diverged => Equivalence::Diverged {
                    diverged,
                    of: ours.seeds + diverged,
                },
            },
            Some((least, most)) if most < low || least > high => Equivalence::Differs,
            Some((least, most)) => Equivalence::CannotTell {
                width: most - least,
            },
        }
    }

    /// Returns the verdict for machines.
    pub fn word(self) -> &'static str {
        match self {
            Equivalence::Reproduced => "reproduced",
            Equivalence::Differs => "differs",
            Equivalence::CannotTell { .. }
            | Equivalence::Diverged { .. }
            | Equivalence::OneSeed
            | Equivalence::NoSpread => "cannot tell",
        }
    }

    /// Returns what it means for a claim of reproduction.
    pub(crate) fn tone(self) -> Tone {
        match self {
            Equivalence::Reproduced => Tone::Good,
            Equivalence::Differs => Tone::Bad,
            _ => Tone::Caution,
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
            Equivalence::Diverged { diverged, of } => {
                format!("{} ({diverged} of {of} seeds diverged)", self.word())
            }
            Equivalence::OneSeed => format!("{} (one seed)", self.word()),
            Equivalence::NoSpread => format!("{} (equal scores)", self.word()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(outcome: &str, rows: usize, accuracy: f64) -> Record {
        let text = format!(
            r#"{{
                "schema": 1, "id": "run", "outcome": {{ "status": "{outcome}" }}, "model": {{}},
                "task": {{ "rows": {{ "test": {rows} }} }},
                "scores": {{
                    "test_accuracy": {accuracy},
                    "test_dense": {{ "accuracy": 0.5, "weighted_accuracy": 0.75 }}
                }}
            }}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_score_counts_what_was_scored_and_what_failed() {
        let runs = [
            run("scored", 0, 0.4),
            run("scored", 2_000, 0.5),
            run("scored", 500, 0.6),
            run("diverged", 10, 0.9),
            run("melted", 10, 0.9),
            run("failed", 10, 0.9),
            run("interrupted", 10, 0.9),
        ];
        let runs: Vec<&Record> = runs.iter().collect();
        let score = Score::of(&runs).unwrap();
        assert_eq!((score.seeds, score.diverged), (3, 2));
        assert!((score.mean - 50.0).abs() < 1e-9 && (score.deviation.unwrap() - 10.0).abs() < 1e-9);
        let labels = Score::of_labels(&runs).unwrap();
        assert_eq!((labels.mean, labels.seeds, labels.diverged), (50.0, 3, 2));
        assert_eq!(labels.interval, None);
        assert_eq!(Score::of(&runs[3..]), None);
        // The least of the numbers that are known.
        assert_eq!(test_rows(&runs[..3]), 500);
        assert_eq!(test_rows(&runs[..1]), 0);
    }

    #[test]
    fn a_verdict_has_its_words_and_its_meaning() {
        let score = |low: f64, high: f64, seeds: usize, diverged: usize| Score {
            mean: (low + high) / 2.0,
            deviation: Some(1.0),
            interval: Some((low, high)),
            seeds,
            diverged,
        };
        for (score, words, tone) in [
            (score(48.0, 52.0, 3, 0), "reproduced", Tone::Good),
            (score(52.1, 53.0, 3, 0), "differs", Tone::Bad),
            (score(47.0, 47.9, 3, 1), "differs", Tone::Bad),
            (
                score(47.9, 52.0, 3, 0),
                "cannot tell (interval 4.1 points wide)",
                Tone::Caution,
            ),
            (
                score(40.0, 52.0, 3, 0),
                "cannot tell (interval 12 points wide)",
                Tone::Caution,
            ),
            (
                score(49.0, 51.0, 3, 2),
                "cannot tell (2 of 5 seeds diverged)",
                Tone::Caution,
            ),
            (
                score(49.0, 51.0, 1, 0),
                "cannot tell (one seed)",
                Tone::Caution,
            ),
        ] {
            let found = Equivalence::of(&score, 50.0, 2.0);
            assert_eq!((found.words(), found.tone()), (words.to_owned(), tone));
        }
    }
}
