//! Averages over tasks. Four conventions are in use, and rankings depend on them.

use crate::published::TASKS;

/// Result of a model on one task.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Score {
    /// Accuracy in percent.
    Value(f64),
    /// It was run, but learned nothing or did not finish.
    Failed,
    /// It was not run.
    #[default]
    Absent,
}

/// A way to average.
#[derive(Debug)]
pub struct Convention {
    /// Its name, the header of a column.
    pub name: &'static str,
    /// Its meaning, and the papers that use it.
    pub meaning: &'static str,
    /// Number of [`TASKS`] that it covers, from the first.
    tasks: usize,
    /// Value for a failed Path-X, in percent; without it there is no average.
    failed: Option<f64>,
}

/// All conventions in use; the first is the benchmark's own.
pub const CONVENTIONS: [Convention; 4] = [
    Convention {
        name: "average of 5",
        meaning: "without Path-X: the 2021 paper, Nystromformer, Skyformer, FlashAttention, Luna",
        tasks: 5,
        failed: None,
    },
    Convention {
        name: "average of 6",
        meaning: "with Path-X, where it was learned: S4, S5, Mega",
        tasks: 6,
        failed: None,
    },
    Convention {
        name: "6, failed = 50",
        meaning: "a failed Path-X counted as 50: the tables that follow S4",
        tasks: 6,
        failed: Some(50.0),
    },
    Convention {
        name: "6, failed = 0",
        meaning: "a failed Path-X counted as 0: cosFormer, FLASH",
        tasks: 6,
        failed: Some(0.0),
    },
];

/// The place of Path-X among [`TASKS`].
const PATH_X: usize = 5;

impl Convention {
    /// Returns the average in percent of the scores, which `score` gives by the name of a task of
    /// [`TASKS`]. `None` if a task was not run, or failed and the convention has no value for that.
    pub fn of(&self, score: impl Fn(&str) -> Score) -> Option<f64> {
        let mut sum = 0.0;
        for (index, task) in TASKS[..self.tasks].iter().enumerate() {
            sum += match score(task) {
                Score::Value(value) => value,
                Score::Failed if index == PATH_X => self.failed?,
                Score::Failed | Score::Absent => return None,
            };
        }
        Some(sum / self.tasks as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    /// The Transformer's row of the 2021 table and what later papers made of it.
    #[test]
    fn printed_averages_are_recomputed() {
        let source = published::source("tay2021").unwrap();
        let score = |task: &str| match source.cell("transformer", task, published::ACCURACY) {
            None => Score::Absent,
            Some(figure) => figure.value.map_or(Score::Failed, Score::Value),
        };
        let averages = CONVENTIONS
            .each_ref()
            .map(|convention| convention.of(score));
        let rounded = averages.map(|average| average.map(|value| (100.0 * value).round() / 100.0));
        assert_eq!(rounded, [Some(54.39), None, Some(53.66), Some(45.32)]);
        // Only a failed Path-X has a value.
        let failed = |task: &'static str| {
            let of = move |it: &str| match it == task {
                true => Score::Failed,
                false => Score::Value(60.0),
            };
            CONVENTIONS.each_ref().map(|convention| convention.of(of))
        };
        let with = |value: f64| Some((300.0 + value) / 6.0);
        assert_eq!(failed("pathx"), [Some(60.0), None, with(50.0), with(0.0)]);
        assert_eq!(failed("image"), [None; 4]);
        assert_eq!(CONVENTIONS[0].of(|_| Score::Absent), None);
        assert_eq!(CONVENTIONS[1].of(|_| Score::Value(50.0)), Some(50.0));
    }
}
