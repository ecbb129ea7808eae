//! Bootstrap intervals, by percentiles.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::stats::quantile;

/// Number of draws of a bootstrap.
const DRAWS: usize = 4_000;

/// Returns the 95 % interval of a statistic of `count` items, drawn with replacement; `None` if
/// fewer than half of the draws define the statistic. The same call gives the same interval on
/// every machine.
///
/// `statistic` receives the indices drawn.
pub(super) fn interval(
    count: usize,
    statistic: impl Fn(&[usize]) -> Option<f64>,
) -> Option<(f64, f64)> {
    let values = draws(&[count], |drawn| statistic(&drawn[0]));
    middle(&values.into_iter().flatten().collect::<Vec<f64>>())
}

/// Returns the middle 95 % of the values of a statistic; `None` if fewer than half of the draws
/// define it.
pub(super) fn middle(values: &[f64]) -> Option<(f64, f64)> {
    if values.len() < DRAWS / 2 {
        return None;
    }
    Some((quantile(values, 0.025)?, quantile(values, 0.975)?))
}

/// Returns what `statistic` says of each draw of several populations, each drawn with replacement.
/// There are none if no population has two items.
///
/// `statistic` receives the indices drawn from each population.
pub(super) fn draws<T>(counts: &[usize], statistic: impl Fn(&[Vec<usize>]) -> T) -> Vec<T> {
    if counts.iter().all(|count| *count < 2) {
        return Vec::new();
    }
    let mut rng = ChaCha8Rng::seed_from_u64(counts.iter().sum::<usize>() as u64);
    let mut values = Vec::with_capacity(DRAWS);
    let mut drawn: Vec<Vec<usize>> = counts.iter().map(|count| vec![0; *count]).collect();
    for _ in 0..DRAWS {
        for (drawn, count) in drawn.iter_mut().zip(counts) {
            drawn.fill_with(|| below(*count, &mut rng));
        }
        values.push(statistic(&drawn));
    }
    values
}

/// Returns a number of random sets of `size` of the numbers below `count`, each in ascending order.
/// Draws the same sets on every machine.
pub(super) fn random_sets(count: usize, size: usize, sets: usize) -> Vec<Vec<usize>> {
    let mut rng = ChaCha8Rng::seed_from_u64(count as u64);
    let mut numbers: Vec<usize> = (0..count).collect();
    let mut draw = || {
        for place in 0..size {
            numbers.swap(place, place + below(count - place, &mut rng));
        }
        let mut set = numbers[..size].to_vec();
        set.sort_unstable();
        set
    };
    (0..sets).map(|_| draw()).collect()
}

/// Draws an index below `count`: the upper half of its product with a random 64-bit fraction, with
/// a bias below 2^-50 for any count here.
fn below(count: usize, rng: &mut ChaCha8Rng) -> usize {
    ((u128::from(rng.next_u64()) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::super::statistics::spearman;
    use super::*;

    /// `scipy.stats.bootstrap` of Spearman's correlation, paired, by percentiles.
    #[derive(Deserialize)]
    struct Case {
        scores: Vec<f64>,
        published: Vec<f64>,
        bootstrap: (f64, f64),
    }

    #[test]
    fn intervals_are_scipys_but_for_chance() {
        let text = include_str!("../../tests/agreement/reference.json");
        let cases: Vec<Case> = serde_json::from_str(text).unwrap();
        for case in cases {
            let pick = |values: &[f64], drawn: &[usize]| -> Vec<f64> {
                drawn.iter().map(|index| values[*index]).collect()
            };
            let rho = |drawn: &[usize]| {
                spearman(&pick(&case.scores, drawn), &pick(&case.published, drawn))
            };
            let (low, high) = interval(case.scores.len(), rho).unwrap();
            // The 2.5 % point of 4,000 draws has a standard error of about 0.01 here.
            assert!(
                (low - case.bootstrap.0).abs() < 0.05,
                "{low} {:?}",
                case.bootstrap
            );
            assert!(
                (high - case.bootstrap.1).abs() < 0.03,
                "{high} {:?}",
                case.bootstrap
            );
            assert_eq!(interval(case.scores.len(), rho), Some((low, high)));
        }
    }

    #[test]
    fn half_of_the_draws_must_define_a_statistic() {
        let values = vec![1.0; DRAWS / 2];
        assert_eq!(middle(&values), Some((1.0, 1.0)));
        assert_eq!(middle(&values[1..]), None);
        let hundred: Vec<f64> = (0..DRAWS).map(|draw| draw as f64 / 40.0).collect();
        let (low, high) = middle(&hundred).unwrap();
        assert!(
            (low - 2.5).abs() < 0.05 && (high - 97.5).abs() < 0.05,
            "{low} {high}"
        );
    }

    #[test]
    fn a_statistic_that_is_hardly_ever_defined_has_none() {
        assert_eq!(interval(5, |_| None), None);
        assert_eq!(interval(1, |_| Some(1.0)), None);
    }
}
