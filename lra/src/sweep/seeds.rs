//! The seeds of one setting: the figures of those that were scored, and what became of the others.

use results::counted;
use results::record::Scores;
use results::stats::Sample;

use crate::sweep::scheduler::State;

/// Figures of the seeds of one setting.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Seeds {
    /// Figures of the seeds that were scored.
    figures: Vec<f64>,
    /// Number of seeds without a figure, by the reason in a word, in the order of [`REASONS`].
    unscored: [usize; REASONS.len()],
}

/// Reasons why a seed has no score that counts (see [`State::unscored`]), the worst first.
const REASONS: [&str; 4] = ["diverged", "failed", "changed", "not run"];
/// Number of [`REASONS`] that speak against a setting.
const BAD: usize = 2;

impl Seeds {
    /// Adds a seed. Only a score that counts has a figure: what a run had reached before it
    /// diverged or failed, and a record that has changed since, have none.
    pub fn add(&mut self, state: &State, figure: impl Fn(&Scores) -> Option<f64>) {
        let scores = state.score().and_then(|record| record.scores.as_ref());
        match scores.and_then(figure) {
            Some(figure) => self.figures.push(figure),
            None => {
                let reason = state.unscored().unwrap_or("failed");
                let index = REASONS.iter().position(|known| *known == reason);
                self.unscored[index.unwrap_or(BAD - 1)] += 1;
            }
        }
    }

    /// Returns the mean of the figures; `None` if no seed was scored.
    pub fn mean(&self) -> Option<f64> {
        Sample::of(&self.figures).map(|sample| sample.mean)
    }

    /// Returns the rank before figures are compared, lower is better: all seeds were scored, some
    /// are open, some diverged or failed.
    pub fn rank(&self) -> u8 {
        let any = |counts: &[usize]| counts.iter().any(|count| *count > 0);
        let (bad, open) = self.unscored.split_at(BAD);
        match (any(bad), any(open)) {
            (true, _) => 2,
            (false, true) => 1,
            (false, false) => 0,
        }
    }

    /// Returns the number of scored seeds, and that of all if it is another.
    pub fn scored_of_all(&self) -> String {
        let (scored, all) = (self.figures.len(), self.all());
        match scored == all {
            true => all.to_string(),
            false => format!("{scored} of {all}"),
        }
    }

    /// Returns what became of the seeds without a figure, such as `2 of 6 seeds diverged`; `None`
    /// if there are none.
    pub fn lacking(&self) -> Option<String> {
        let counts = REASONS.iter().zip(self.unscored);
        let mut words: Vec<String> = counts
            .filter(|(_, count)| *count > 0)
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        let first = words.first_mut()?;
        let (count, reason) = first.split_once(' ')?;
        *first = format!("{count} of {} {reason}", counted(self.all() as u64, "seed"));
        Some(words.join(", "))
    }

    fn all(&self) -> usize {
        self.figures.len() + self.unscored.iter().sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_with_a_diverged_seed_rank_below_those_without() {
        let of = |figures: &[f64], unscored: [usize; 4]| Seeds {
            figures: figures.to_vec(),
            unscored,
        };
        let whole = of(&[0.1, 0.2], [0; 4]);
        let open = of(&[0.9], [0, 0, 0, 1]);
        let diverged = of(&[0.9], [1, 0, 1, 0]);
        assert!(whole.rank() < open.rank() && open.rank() < diverged.rank());
        assert_eq!((whole.lacking(), whole.scored_of_all()), (None, "2".into()));
        assert_eq!(
            diverged.lacking().as_deref(),
            Some("1 of 3 seeds diverged, 1 changed")
        );
        assert_eq!(diverged.scored_of_all(), "1 of 3");
    }
}
