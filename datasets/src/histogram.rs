//! Distribution of the sequence lengths of a split.

use serde::Serialize;

use crate::Split;

/// Number of sequences with a length from `from` to `to`, both included.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bin {
    /// Minimum length of the bin.
    pub from: usize,
    /// Maximum length of the bin.
    pub to: usize,
    /// Number of sequences.
    pub count: u64,
}

/// Lengths in tokens, over all sequences of a split (two per example where a task has two towers).
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lengths {
    /// Minimum length.
    pub min: usize,
    /// 5th percentile.
    pub p5: usize,
    /// 25th percentile.
    pub p25: usize,
    /// Median length.
    pub median: usize,
    /// 75th percentile.
    pub p75: usize,
    /// 95th percentile.
    pub p95: usize,
    /// Maximum length.
    pub max: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Counts by length: up to 20 bins of equal, round width, without the empty ones at either end.
    pub bins: Vec<Bin>,
}

impl Lengths {
    /// Returns the length statistics over all sequences of `split`.
    pub fn of(split: &Split) -> Lengths {
        let towers = 0..split.towers();
        let lengths = towers
            .flat_map(|tower| (0..split.len()).map(move |row| split.tokens(tower, row).len()));
        Lengths::from_values(lengths.collect())
    }

    fn from_values(mut lengths: Vec<usize>) -> Lengths {
        lengths.sort_unstable();
        let count = lengths.len();
        // The nearest-rank quantile.
        let quantile = |percent: usize| {
            let rank = (count * percent).div_ceil(100).saturating_sub(1);
            lengths.get(rank).copied().unwrap_or_default()
        };
        Lengths {
            min: quantile(0),
            p5: quantile(5),
            p25: quantile(25),
            median: quantile(50),
            p75: quantile(75),
            p95: quantile(95),
            max: quantile(100),
            mean: lengths.iter().sum::<usize>() as f64 / count.max(1) as f64,
            bins: bins(&lengths),
        }
    }
}

fn bins(sorted: &[usize]) -> Vec<Bin> {
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
        return Vec::new();
    };
    let width = round_width(max - min + 1);
    let first = min / width;
    let mut bins: Vec<Bin> = (first..=max / width)
        .map(|index| Bin {
            from: index * width,
            to: max.min((index + 1) * width - 1),
            count: 0,
        })
        .collect();
    for length in sorted {
        bins[length / width - first].count += 1;
    }
    bins
}

/// Returns the smallest width among 1, 2, 5, 10, 20, 50 ... of which 19 bins cover `span`
/// (alignment may add a twentieth).
fn round_width(span: usize) -> usize {
    let mut unit = 1;
    loop {
        for width in [unit, 2 * unit, 5 * unit] {
            if span <= 19 * width {
                return width;
            }
        }
        unit *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_round_and_enough() {
        assert_eq!(
            [1, 19, 20, 38, 39, 96, 1499].map(round_width),
            [1, 1, 2, 2, 5, 10, 100]
        );
    }

    #[test]
    fn quantiles_and_bins() {
        let lengths = Lengths::from_values((1..=100).rev().collect());
        assert_eq!(
            (lengths.min, lengths.p5, lengths.median, lengths.max),
            (1, 5, 50, 100)
        );
        assert_eq!(lengths.mean, 50.5);
        assert_eq!(lengths.bins.iter().map(|bin| bin.count).sum::<u64>(), 100);
        assert_eq!(
            lengths.bins[1],
            Bin {
                from: 10,
                to: 19,
                count: 10
            }
        );
    }

    #[test]
    fn quantiles_between_two_ranks_are_the_upper_one() {
        let lengths = Lengths::from_values((1..=10).map(|length| 10 * length).collect());
        assert_eq!(
            [
                lengths.p5,
                lengths.p25,
                lengths.median,
                lengths.p75,
                lengths.p95
            ],
            [10, 30, 50, 80, 100]
        );
        assert_eq!(lengths.mean, 55.0);
        // The last bin ends with the longest.
        assert_eq!(lengths.bins.last().map(|bin| bin.to), Some(100));
    }

    #[test]
    fn nothing_has_no_lengths() {
        assert_eq!(Lengths::from_values(Vec::new()).bins, []);
    }
}
