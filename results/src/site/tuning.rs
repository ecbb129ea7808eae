//! The settings that were tried, and the expected best of some of them.

use super::ours::Group;

/// Settings of one model, recipe and data set that were tried here: runs that differ in `--set`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tuning {
    /// Number of settings.
    pub(super) tried: usize,
    /// Number of those with a validation accuracy.
    scored: usize,
    /// Lowest and highest validation accuracy in percent, means over the seeds; absent if no
    /// setting has one.
    pub(super) spread: Option<(f64, f64)>,
    /// Expected highest validation accuracy in percent of so many of these settings, drawn with
    /// replacement.
    pub(super) expected: Vec<(u32, f64)>,
}

impl Tuning {
    /// Returns the settings tried beside that of a group, itself included.
    pub(super) fn of(group: &Group, groups: &[Group]) -> Tuning {
        let rivals = groups.iter().filter(|other| other.is_tuned_with(group));
        let mut tried = 0;
        let mut reached: Vec<f64> = Vec::new();
        for rival in rivals {
            tried += 1;
            reached.extend(rival.validation());
        }
        reached.sort_by(f64::total_cmp);
        let spread = reached.first().copied().zip(reached.last().copied());
        let draws = [1, 2, 4, 8, 16].into_iter();
        let draws = draws.filter(|draws| reached.len() > 1 && *draws as usize <= reached.len());
        Tuning {
            tried,
            scored: reached.len(),
            spread,
            expected: draws
                .map(|draws| (draws, expected_best(&reached, draws)))
                .collect(),
        }
    }

    /// Returns the spread in words; empty for fewer than two settings with a validation accuracy.
    pub(super) fn spread_words(&self) -> String {
        match self.spread {
            Some((low, high)) if self.scored > 1 => format!("{low:.1} to {high:.1}"),
            _ => String::new(),
        }
    }

    /// Returns the expected best in words, such as `37.1 of 1, 38.6 of 2`.
    pub(super) fn expected_words(&self) -> String {
        let words = self.expected.iter();
        let words: Vec<String> = words
            .map(|(draws, best)| format!("{best:.1} of {draws}"))
            .collect();
        words.join(", ")
    }
}

/// Returns the expected maximum of `draws` values drawn with replacement from sorted values
/// (Dodge et al., 2019, arXiv:1909.03004).
fn expected_best(sorted: &[f64], draws: u32) -> f64 {
    let count = sorted.len() as f64;
    let below = |index: usize| (index as f64 / count).powi(draws as i32);
    let terms = sorted.iter().enumerate();
    terms
        .map(|(index, value)| value * (below(index + 1) - below(index)))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::super::ours::testing::{group, run};
    use super::*;

    #[test]
    fn a_setting_is_tried_with_all_of_its_seeds() {
        let first = [run(1, 0.4, |_| ()), run(2, 0.6, |_| ())];
        let (second, third) = ([run(1, 0.3, |_| ())], [run(1, 0.9, |_| ())]);
        let mut other = [run(1, 0.99, |_| ())];
        other[0].recipe.name = "tay2021".to_owned();
        let all = [
            group(&first, "train.learning_rate=1e-3"),
            group(&second, "train.learning_rate=3e-3"),
            group(&third, ""),
            group(&other, ""),
        ];
        let tuning = Tuning::of(&all[0], &all);
        assert_eq!(tuning.tried, 3);
        assert_eq!(tuning.spread_words(), "30.0 to 90.0");
        // Means of 30, 50 and 90. Of two draws: (30 + 3 * 50 + 5 * 90) / 9.
        assert_eq!(tuning.expected_words(), "56.7 of 1, 70.0 of 2");
        assert_eq!(Tuning::of(&all[3], &all).expected_words(), "");
    }

    /// Of two settings, one diverged.
    #[test]
    fn a_single_setting_with_a_score_has_no_spread() {
        let first = [run(1, 0.4, |_| ())];
        let second = [run(1, 0.3, |it| it.scores = None)];
        let all = [
            group(&first, "train.learning_rate=1e-3"),
            group(&second, "train.learning_rate=3e-3"),
        ];
        let tuning = Tuning::of(&all[0], &all);
        assert_eq!((tuning.tried, tuning.spread_words().as_str()), (2, ""));
    }

    #[test]
    fn the_expected_best_is_that_of_all_draws() {
        let values = [1.0, 2.0, 4.0];
        assert!((expected_best(&values, 1) - 7.0 / 3.0).abs() < 1e-12);
        // Of the nine pairs, one has the maximum 1, three have 2 and five have 4.
        assert!((expected_best(&values, 2) - 27.0 / 9.0).abs() < 1e-12);
    }
}
