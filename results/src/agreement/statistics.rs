//! Ranks and statistics of ranks. A test compares every function with SciPy.

/// Returns the ranks of the values, from 1. Equal values share the mean of their ranks.
pub(super) fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut first = 0;
    for group in order.chunk_by(|a, b| values[*a] == values[*b]) {
        let mean = first as f64 + (group.len() + 1) as f64 / 2.0;
        group.iter().for_each(|index| ranks[*index] = mean);
        first += group.len();
    }
    ranks
}

/// Returns Pearson's correlation; `None` for fewer than two pairs, or if one side is constant.
fn pearson(left: &[f64], right: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (a, b) = (mean(left), mean(right));
    let pairs = || left.iter().zip(right).map(|(x, y)| (x - a, y - b));
    let product: f64 = pairs().map(|(x, y)| x * y).sum();
    let squares: f64 = pairs().map(|(x, _)| x * x).sum();
    let others: f64 = pairs().map(|(_, y)| y * y).sum();
    let correlation = product / (squares.sqrt() * others.sqrt());
    correlation
        .is_finite()
        .then_some(correlation.clamp(-1.0, 1.0))
}

/// Returns Spearman's rank correlation; none for fewer than two pairs, or where one side is
/// constant.
pub(super) fn spearman(left: &[f64], right: &[f64]) -> Option<f64> {
    pearson(&ranks(left), &ranks(right))
}

/// Returns the area under the ROC curve: the fraction of pairs of a member and a non-member in
/// which the member scores higher, with ties counted half. `None` if all or none are members.
pub(super) fn auc(scores: &[f64], member: &[bool]) -> Option<f64> {
    let count = member.iter().filter(|it| **it).count();
    let others = member.len() - count;
    let members = ranks(scores).into_iter().zip(member);
    let sum: f64 = members.filter(|(_, it)| **it).map(|(rank, _)| rank).sum();
    // The Mann-Whitney U statistic.
    let above = sum - (count * (count + 1)) as f64 / 2.0;
    (count > 0 && others > 0).then(|| above / (count * others) as f64)
}

/// Returns the number of pairs that the scores rank in the published order, and the number of all
/// pairs, among those whose `published` figures differ by at least `apart`.
pub(super) fn told_apart(scores: &[f64], published: &[f64], apart: f64) -> (usize, usize) {
    let (mut told, mut all) = (0, 0);
    for i in 0..scores.len() {
        for j in 0..i {
            let difference = published[i] - published[j];
            if difference.abs() < apart {
                continue;
            }
            all += 1;
            told += usize::from((scores[i] - scores[j]) * difference > 0.0);
        }
    }
    (told, all)
}

/// Blom's normal scores of n ranks: the quantiles of the standard normal distribution at
/// `(rank - 3/8) / (n + 1/4)`.
pub(super) struct NormalScores {
    /// Those of the ranks 1, 1.5, 2, 2.5, ..., n: of equal values the rank is the mean.
    quantiles: Vec<f64>,
}

impl NormalScores {
    /// Computes those of `count` ranks.
    pub(super) fn new(count: usize) -> NormalScores {
        let share = |rank: f64| (rank - 0.375) / (count as f64 + 0.25);
        let halves = 2..=2 * count;
        NormalScores {
            quantiles: halves
                .map(|half| normal_quantile(share(half as f64 / 2.0)))
                .collect(),
        }
    }

    /// Returns those of the ranks of some values.
    ///
    /// # Panics
    /// There are more values than ranks.
    pub(super) fn of(&self, values: &[f64]) -> Vec<f64> {
        let ranks = ranks(values).into_iter();
        let halves = ranks.map(|rank| (2.0 * rank) as usize);
        halves.map(|half| self.quantiles[half - 2]).collect()
    }
}

/// Returns the reliability of a measure from the correlation of its two halves, by the
/// Spearman-Brown formula.
pub(super) fn spearman_brown(correlation: f64) -> f64 {
    2.0 * correlation / (1.0 + correlation)
}

/// Returns the quantile of the standard normal distribution for a probability, by bisection.
fn normal_quantile(share: f64) -> f64 {
    let (mut low, mut high) = (-40.0, 40.0);
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        let below = 0.5 * libm::erfc(-middle / std::f64::consts::SQRT_2);
        if below < share {
            low = middle;
        } else {
            high = middle;
        }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    /// SciPy's results for some vectors; `results/tests/agreement/make_reference.py` writes the
    /// file.
    #[derive(Deserialize)]
    struct Case {
        scores: Vec<f64>,
        published: Vec<f64>,
        strong: Vec<bool>,
        rankdata: Vec<f64>,
        spearmanr: f64,
        auc: f64,
        told_apart: (usize, usize),
        normal_scores: Vec<f64>,
    }

    #[track_caller]
    fn near(value: f64, expected: f64) {
        assert!(
            (value - expected).abs() < 1e-12,
            "{value} is not {expected}"
        );
    }

    #[test]
    fn every_figure_is_scipys() {
        let text = include_str!("../../tests/agreement/reference.json");
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        assert!(cases.len() >= 4);
        for case in cases {
            assert_eq!(ranks(&case.scores), case.rankdata);
            near(
                spearman(&case.scores, &case.published).unwrap(),
                case.spearmanr,
            );
            near(auc(&case.scores, &case.strong).unwrap(), case.auc);
            let told = told_apart(&case.scores, &case.published, 4.0);
            assert_eq!(told, case.told_apart);
            let normal = NormalScores::new(case.scores.len()).of(&case.scores);
            for (value, expected) in normal.iter().zip(&case.normal_scores) {
                near(*value, *expected);
            }
        }
    }

    #[test]
    fn what_is_not_defined_is_none() {
        assert_eq!(spearman(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(spearman(&[], &[]), None);
        assert_eq!(spearman(&[1.0], &[2.0]), None);
        assert_eq!(auc(&[1.0, 2.0], &[true, true]), None);
        assert_eq!(auc(&[], &[]), None);
        assert_eq!(told_apart(&[1.0], &[1.0], 4.0), (0, 0));
    }
}
