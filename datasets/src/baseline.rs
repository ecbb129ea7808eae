//! Scores of trivial predictors, which a table cell has to beat. Each is fitted on train and
//! measured on test.

use rayon::prelude::*;
use serde::Serialize;

use crate::logistic::Logistic;
use crate::shuffle::sample;
use crate::{Split, Splits, TaskInfo};

/// Steps of the logistic fit; more steps do not change the third decimal of its accuracy.
const STEPS: usize = 40;

/// Maximum size of the feature table, in numbers: beyond it, rows are left out at random.
const TABLE: usize = 1 << 22;

/// Number of classes above which more rows are left out.
const CLASSES: usize = 16;

/// Name of the baseline that always answers with the most frequent label of train.
pub const MAJORITY: &str = "majority";

/// Score of a trivial classifier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// Name of the features that it sees.
    pub name: String,
    /// Fraction of test examples answered correctly, 0 to 1.
    pub accuracy: f64,
}

/// Scores always answering the most frequent label of train.
pub fn majority(splits: &Splits, info: &TaskInfo) -> Baseline {
    let mut counts = vec![0; info.classes];
    for &label in splits.train.labels() {
        counts[usize::from(label)] += 1;
    }
    let answer = most_frequent(&counts);
    score(MAJORITY, &splits.test, |_| answer)
}

/// Scores answering the most frequent label of train among examples with the same first token (of
/// the first tower).
pub fn first_token(splits: &Splits, info: &TaskInfo) -> Baseline {
    let first = |split: &Split, row: usize| {
        split
            .tokens(0, row)
            .first()
            .map_or(256, |&token| usize::from(token))
    };
    let mut counts = vec![vec![0; info.classes]; 257];
    for row in 0..splits.train.len() {
        counts[first(&splits.train, row)][usize::from(splits.train.label(row))] += 1;
    }
    let answers: Vec<usize> = counts.iter().map(|counts| most_frequent(counts)).collect();
    score("first token only", &splits.test, |row| {
        answers[first(&splits.test, row)]
    })
}

/// Scores multinomial logistic regression on ln(1 + count) of each token (per tower), which sees
/// everything but the order. It is fitted on evenly chosen training rows, up to a table of four
/// million numbers.
pub fn bag_of_tokens(splits: &Splits, info: &TaskInfo) -> Baseline {
    let tokens = info.vocabulary - info.first_id as usize;
    let features = 1 + tokens * info.towers;
    regression("bag of tokens", splits, info, features, |split, row| {
        counts(split, row, tokens)
    })
}

/// Scores multinomial logistic regression on the distance between the two towers in each
/// ln(1 + count). It sees whether their contents are similar, regardless of the contents.
pub fn compared_bags(splits: &Splits, info: &TaskInfo) -> Baseline {
    let tokens = info.vocabulary - info.first_id as usize;
    regression("compared bags", splits, info, 1 + tokens, |split, row| {
        let both = counts(split, row, tokens);
        let (one, other) = both[1..].split_at(tokens);
        let apart = one
            .iter()
            .zip(other)
            .map(|(one, other)| (one - other).abs());
        std::iter::once(1.0).chain(apart).collect()
    })
}

/// Fits a multinomial logistic regression on the given number of features of each row of train.
fn regression(
    name: &str,
    splits: &Splits,
    info: &TaskInfo,
    features: usize,
    of: impl Fn(&Split, usize) -> Vec<f64> + Sync,
) -> Baseline {
    let train = &splits.train;
    // Time grows with the number of classes, too.
    let numbers = features * info.classes.div_ceil(CLASSES);
    let rows = fitted_rows(train.len(), numbers);
    let labels: Vec<u8> = rows.iter().map(|&row| train.label(row)).collect();
    let x: Vec<f64> = rows
        .par_iter()
        .flat_map_iter(|&row| of(train, row))
        .collect();
    let model = Logistic::fit(&x, &labels, features, info.classes, STEPS);
    score(name, &splits.test, |row| {
        model.predict(&of(&splits.test, row))
    })
}

/// Returns the training rows that are fitted on, with this many numbers each.
fn fitted_rows(rows: usize, numbers: usize) -> Vec<usize> {
    let step = (rows * numbers).div_ceil(TABLE).max(1);
    sample(rows, rows.div_ceil(step))
}

/// Returns a constant, then ln(1 + count) of each token of each tower.
fn counts(split: &Split, row: usize, tokens: usize) -> Vec<f64> {
    let mut features = vec![1.0];
    for tower in 0..split.towers() {
        let mut counts = [0_u32; 256];
        for &token in split.tokens(tower, row) {
            counts[usize::from(token)] += 1;
        }
        features.extend(
            counts[..tokens]
                .iter()
                .map(|&count| f64::from(count).ln_1p()),
        );
    }
    features
}

/// Returns the index of the largest count; the first of equals.
fn most_frequent(counts: &[u64]) -> usize {
    (1..counts.len()).fold(0, |best, class| {
        if counts[class] > counts[best] {
            class
        } else {
            best
        }
    })
}

/// Scores the rule that answers `answer(row)` for each row of the test split.
pub(crate) fn score(name: &str, test: &Split, answer: impl Fn(usize) -> usize + Sync) -> Baseline {
    let right = (0..test.len())
        .into_par_iter()
        .filter(|&row| answer(row) == usize::from(test.label(row)))
        .count();
    Baseline {
        name: name.to_owned(),
        accuracy: right as f64 / test.len().max(1) as f64,
    }
}

/// Labels of one group, and the score of a trivial predictor on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DenseBaseline {
    /// Name of the group.
    pub group: String,
    /// Number of labels of the training split with each class.
    pub train: Vec<u64>,
    /// Number of labels of the test split.
    pub labels: u64,
    /// Fraction of the test labels, 0 to 1, equal to the group's most frequent class of train; to
    /// that of all groups where train has none of this one.
    pub majority: f64,
}

impl Splits {
    /// Returns the baselines of the groups that have labels at positions in the test split; `None`
    /// where the data has no such labels.
    pub fn dense_baselines(&self) -> Option<Vec<DenseBaseline>> {
        let dense = self.manifest.dense.as_ref()?;
        let train = self.train.all_dense()?.counts(dense);
        let test = self.test.all_dense()?.counts(dense);
        let all = |class| train.iter().map(|counts: &Vec<u64>| counts[class]).sum();
        let all: Vec<u64> = (0..dense.classes).map(all).collect();
        let groups = dense.groups.iter().zip(train.iter().zip(&test));
        let baseline = |(name, (train, test)): (&String, (&Vec<u64>, &Vec<u64>))| {
            let labels: u64 = test.iter().sum();
            // Labels of lengths that are not trained on are answered as all others are. The first of
            // equals.
            let known = if train.iter().any(|&count| count > 0) {
                train
            } else {
                &all
            };
            let best = (0..dense.classes).rev().max_by_key(|&class| known[class])?;
            (labels > 0).then(|| DenseBaseline {
                group: name.clone(),
                train: train.clone(),
                labels,
                majority: test[best] as f64 / labels as f64,
            })
        };
        Some(groups.filter_map(baseline).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_do_not_fit_are_left_out_at_random() {
        assert_eq!(
            fitted_rows(1000, TABLE / 1000),
            (0..1000).collect::<Vec<_>>()
        );
        // One in three.
        let rows = fitted_rows(3000, TABLE / 1000);
        assert_eq!(rows.len(), 1000);
        for third in 0..3 {
            let range = 1000 * third..1000 * (third + 1);
            let count = rows.iter().filter(|row| range.contains(*row)).count();
            // Standard deviation 12: five of them either side.
            assert!(count.abs_diff(333) < 60, "{third}: {count}");
        }
        assert!(fitted_rows(0, 5).is_empty());
    }
}
