//! Scores that need no model: what a table cell has to beat. Each is fitted on train and measured on test.

use rayon::prelude::*;
use serde::Serialize;

use crate::logistic::Logistic;
use crate::{About, Split, Splits};

/// Steps of the logistic fit; more change no third decimal of its accuracy.
const STEPS: usize = 40;

/// Largest feature table: rows beyond this many numbers are left out evenly.
const TABLE: usize = 1 << 22;

/// The name of the baseline that always answers with the most frequent label of train.
pub const MAJORITY: &str = "majority";

/// The score of a trivial classifier.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Baseline {
    /// What it looks at.
    pub name: String,
    /// Share of test examples that it gets right, 0 to 1.
    pub accuracy: f64,
}

/// Always answers the most frequent label of train.
pub fn majority(splits: &Splits, about: &About) -> Baseline {
    let mut counts = vec![0; about.classes];
    for &label in splits.train.labels() {
        counts[usize::from(label)] += 1;
    }
    let answer = most_frequent(&counts);
    score(MAJORITY, &splits.test, |_| answer)
}

/// Answers the most frequent label of train among examples with the same first token (of the first tower).
pub fn first_token(splits: &Splits, about: &About) -> Baseline {
    let first = |split: &Split, row: usize| {
        split
            .tokens(0, row)
            .first()
            .map_or(256, |&token| usize::from(token))
    };
    let mut counts = vec![vec![0; about.classes]; 257];
    for row in 0..splits.train.len() {
        counts[first(&splits.train, row)][usize::from(splits.train.label(row))] += 1;
    }
    let answers: Vec<usize> = counts.iter().map(|counts| most_frequent(counts)).collect();
    score("first token only", &splits.test, |row| {
        answers[first(&splits.test, row)]
    })
}

/// Multinomial logistic regression on ln(1 + count) of each token (per tower), which sees everything but the order.
/// Fitted on as many evenly chosen training rows as make a table of four million numbers.
pub fn bag_of_tokens(splits: &Splits, about: &About) -> Baseline {
    let tokens = about.vocabulary - about.first_id as usize;
    let features = 1 + tokens * about.towers;
    regression("bag of tokens", splits, about, features, |split, row| {
        counts(split, row, tokens)
    })
}

/// The same on how far apart the two towers are in each ln(1 + count): whether what they contain is
/// alike, whatever it is.
pub fn compared_bags(splits: &Splits, about: &About) -> Baseline {
    let tokens = about.vocabulary - about.first_id as usize;
    regression("compared bags", splits, about, 1 + tokens, |split, row| {
        let both = counts(split, row, tokens);
        let (one, other) = both[1..].split_at(tokens);
        let apart = one
            .iter()
            .zip(other)
            .map(|(one, other)| (one - other).abs());
        std::iter::once(1.0).chain(apart).collect()
    })
}

/// Fits a multinomial logistic regression on so many features of each row of train.
fn regression(
    name: &str,
    splits: &Splits,
    about: &About,
    features: usize,
    of: impl Fn(&Split, usize) -> Vec<f64> + Sync,
) -> Baseline {
    let train = &splits.train;
    let step = (train.len() * features).div_ceil(TABLE).max(1);
    let rows: Vec<usize> = (0..train.len()).step_by(step).collect();
    let labels: Vec<u8> = rows.iter().map(|&row| train.label(row)).collect();
    let x: Vec<f64> = rows
        .par_iter()
        .flat_map_iter(|&row| of(train, row))
        .collect();
    let model = Logistic::fit(&x, &labels, features, about.classes, STEPS);
    score(name, &splits.test, |row| {
        model.predict(&of(&splits.test, row))
    })
}

/// A constant, then ln(1 + count) of each token of each tower.
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

/// The first of the largest.
fn most_frequent(counts: &[u64]) -> usize {
    (1..counts.len()).fold(0, |best, class| {
        if counts[class] > counts[best] {
            class
        } else {
            best
        }
    })
}

fn score(name: &str, test: &Split, answer: impl Fn(usize) -> usize + Sync) -> Baseline {
    let right = (0..test.len())
        .into_par_iter()
        .filter(|&row| answer(row) == usize::from(test.label(row)))
        .count();
    Baseline {
        name: name.to_owned(),
        accuracy: right as f64 / test.len().max(1) as f64,
    }
}

/// The labels of one group, and what a trivial predictor scores on them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DenseBaseline {
    /// Name of the group.
    pub group: String,
    /// Labels of the training split with each class.
    pub train: Vec<u64>,
    /// Labels of the test split.
    pub labels: u64,
    /// Share of them, 0 to 1, that always answering the group's most frequent class of train gets
    /// right.
    pub majority: f64,
}

impl Splits {
    /// The groups of labels at positions that the test split has any of; nothing where the data has
    /// no such labels.
    pub fn dense_baselines(&self) -> Option<Vec<DenseBaseline>> {
        let dense = self.manifest.dense.as_ref()?;
        let train = self.train.all_dense()?.counts(dense);
        let test = self.test.all_dense()?.counts(dense);
        let groups = dense.groups.iter().zip(train.iter().zip(&test));
        let baseline = |(name, (train, test)): (&String, (&Vec<u64>, &Vec<u64>))| {
            let labels: u64 = test.iter().sum();
            // The first of the largest.
            let best = (0..dense.classes).rev().max_by_key(|&class| train[class])?;
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
