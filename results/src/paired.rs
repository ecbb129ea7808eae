//! Comparison of two classifiers on the same examples.

use libm::lgamma;

/// Number of examples by which of two classifiers is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Paired {
    /// Both are right.
    pub both: u64,
    /// The first alone is right.
    pub first: u64,
    /// The second alone is right.
    pub second: u64,
    /// Neither is right.
    pub neither: u64,
}

/// Normal quantile of a two-sided interval of 95 %.
const Z: f64 = 1.959_963_984_540_054;

impl Paired {
    /// Counts the examples, each with whether the first and the second are right.
    pub fn of(examples: impl IntoIterator<Item = (bool, bool)>) -> Paired {
        let mut counts = Paired::default();
        for right in examples {
            *match right {
                (true, true) => &mut counts.both,
                (true, false) => &mut counts.first,
                (false, true) => &mut counts.second,
                (false, false) => &mut counts.neither,
            } += 1;
        }
        counts
    }

    /// Returns the number of examples.
    #[must_use]
    pub fn examples(&self) -> u64 {
        self.both + self.first + self.second + self.neither
    }

    /// Returns the accuracy of the first less that of the second, as a fraction; NaN without
    /// examples.
    #[must_use]
    pub fn difference(&self) -> f64 {
        (self.first as f64 - self.second as f64) / self.examples() as f64
    }

    /// Returns an interval of 95 % for the difference: Bonett and Price, 2012, "Adjusted Wald
    /// confidence interval for a difference of binomial proportions based on paired data".
    #[must_use]
    pub fn interval(&self) -> (f64, f64) {
        let examples = self.examples() as f64 + 2.0;
        let [first, second] =
            [self.first, self.second].map(|count| (count as f64 + 1.0) / examples);
        let difference = first - second;
        let error = ((first + second - difference * difference) / examples).sqrt();
        let (low, high) = (difference - Z * error, difference + Z * error);
        (low.max(-1.0), high.min(1.0))
    }

    /// Returns the two-sided p-value of McNemar's exact test: the probability of counts that are at
    /// least as uneven if both classifiers err alike.
    #[must_use]
    pub fn mcnemar(&self) -> f64 {
        let total = self.first + self.second;
        let fewer = self.first.min(self.second);
        let log_half = total as f64 * std::f64::consts::LN_2;
        let log_factorial = |n: u64| lgamma(n as f64 + 1.0);
        let tail: f64 = (0..=fewer)
            .map(|k| {
                let chosen = log_factorial(total) - log_factorial(k) - log_factorial(total - k);
                (chosen - log_half).exp()
            })
            .sum();
        (2.0 * tail).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(both: u64, first: u64, second: u64, neither: u64) -> Paired {
        Paired {
            both,
            first,
            second,
            neither,
        }
    }

    #[test]
    fn examples_are_counted_by_who_is_right() {
        let right = [(true, true), (true, false), (true, false), (false, true)];
        let paired = Paired::of(right.into_iter().chain([(false, false)]));
        assert_eq!(paired, counts(1, 2, 1, 1));
        assert_eq!(paired.examples(), 5);
        assert!((paired.difference() - 0.2).abs() < 1e-15);
    }

    /// Compared with SciPy 1.17: `scipy.stats.binomtest(min(b, c), b + c).pvalue`.
    #[test]
    fn p_values_are_those_of_the_binomial_test() {
        for (first, second, expected) in [
            (0, 0, 1.0),
            (5, 5, 1.0),
            (10, 2, 0.038_574_218_75),
            (2, 10, 0.038_574_218_75),
            (121, 59, 4.434_449_263_755_176e-6),
            (446, 128, 3.520_736_841_207_539e-42),
        ] {
            let actual = counts(7, first, second, 9).mcnemar();
            assert!(
                ((actual - expected) / expected).abs() < 1e-9,
                "{actual} {expected}"
            );
        }
    }

    #[test]
    fn intervals_hold_the_difference_and_stay_in_bounds() {
        let (low, high) = counts(50, 20, 10, 20).interval();
        let [low, high] = [low + 0.008_981_061, high - 0.205_059_493];
        assert!(low.abs() < 1e-8 && high.abs() < 1e-8, "{low} {high}");
        let (low, high) = counts(0, 3, 0, 0).interval();
        assert!(low > -0.2 && high == 1.0, "{low} {high}");
    }
}
