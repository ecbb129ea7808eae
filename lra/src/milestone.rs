//! Accuracies of a published run during training, which show early that a run differs.

use results::published;

/// Accuracy of a published run at one point of training.
#[derive(Clone, Debug, PartialEq)]
pub struct Milestone {
    /// Number of updates until then.
    pub step: usize,
    /// Accuracy as a fraction.
    pub accuracy: f64,
    /// Published run and time: `s4, epoch 10`.
    pub whose: String,
}

impl Milestone {
    /// Returns the milestones of a recipe's sources on a task, for a training split of `rows` in
    /// batches of `batch`.
    pub fn of(recipe: &str, task: &str, rows: usize, batch: usize) -> Vec<Milestone> {
        let printed = published::milestones(recipe, task).into_iter();
        printed
            .map(|it| Milestone {
                step: it.epoch * rows.div_ceil(batch),
                accuracy: it.accuracy,
                whose: format!("{}, epoch {}", it.source, it.epoch),
            })
            .collect()
    }

    /// Returns the line that compares the milestone with `best`, the best validation accuracy so
    /// far.
    pub fn verdict(&self, best: f64) -> String {
        let word = if best >= self.accuracy {
            "reached"
        } else {
            "NOT REACHED"
        };
        format!(
            "milestone  {:.1} % by update {} ({}): {word}, {:.1} % here",
            100.0 * self.accuracy,
            self.step,
            self.whose,
            100.0 * best
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_become_updates() {
        let milestones = Milestone::of("s4", "text", 25_000, 16);
        let Some(first) = milestones.first() else {
            panic!("S4's authors tell of Text on the way");
        };
        assert_eq!((first.step, first.accuracy), (15_630, 0.8));
        assert!(first.verdict(0.81).contains(": reached, 81.0 % here"));
        assert!(first.verdict(0.8).contains(": reached, 80.0 % here"));
        assert!(first.verdict(0.799).contains("NOT REACHED"));
        assert!(Milestone::of("mini", "text", 25_000, 16).is_empty());
    }
}
