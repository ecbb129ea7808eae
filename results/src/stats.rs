//! Statistics of small samples: seeds, timings, accuracies.

/// Count, mean and spread of some values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Number of values.
    pub count: usize,
    /// Their mean.
    pub mean: f64,
    /// Their sample standard deviation (divided by n - 1); `None` for a single value.
    pub deviation: Option<f64>,
}

impl Sample {
    /// Describes the values; returns `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Sample> {
        let count = values.len();
        if count == 0 {
            return None;
        }
        // The mean of equal values may round to another one, and their deviation to no zero.
        let equal = values.iter().all(|value| *value == values[0]);
        let mean = match equal {
            true => values[0],
            false => values.iter().sum::<f64>() / count as f64,
        };
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let deviation = (count > 1).then(|| (squares / (count - 1) as f64).sqrt());
        Some(Sample {
            count,
            mean,
            deviation,
        })
    }

    /// Returns Student's interval for the mean at a level such as 0.95. A single value has none,
    /// and equal values have none: nothing is known of their spread.
    pub fn interval(&self, level: f64) -> Option<(f64, f64)> {
        let deviation = self.deviation.filter(|deviation| *deviation > 0.0)?;
        let freedom = self.count as u32 - 1;
        let reach = t_quantile(0.5 + level / 2.0, f64::from(freedom)) * deviation
            / (self.count as f64).sqrt();
        Some((self.mean - reach, self.mean + reach))
    }
}

/// The uncertainty of a mean accuracy over seeds.
///
/// A single seed has the standard error of counting right answers on the test rows. Several seeds
/// have Student's error of their mean, with a spread of at least that of counting: seeds that
/// happen to agree do not make their mean exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Uncertainty {
    /// Standard error of the mean, a fraction.
    pub error: f64,
    /// Degrees of freedom of the error.
    pub freedom: u32,
}

impl Uncertainty {
    /// Largest number of degrees of freedom: beyond it, Student's distribution is the normal one.
    pub const MOST_FREEDOM: u32 = 10_000;

    /// Returns the uncertainty of a mean of accuracies (fractions) on a test split of so many rows,
    /// 0 if the number is unknown. Returns none where nothing is known: of a single seed or of
    /// equal ones, each without the number of rows.
    pub fn of(sample: &Sample, test_rows: usize) -> Option<Uncertainty> {
        let counting = counting_spread(sample.mean, test_rows);
        let (spread, freedom) = match sample.deviation {
            Some(deviation) => (deviation.max(counting), sample.count - 1),
            None => (counting, test_rows.saturating_sub(1)),
        };
        (spread > 0.0).then(|| Uncertainty {
            error: spread / (sample.count as f64).sqrt(),
            freedom: freedom.clamp(1, Self::MOST_FREEDOM as usize) as u32,
        })
    }

    /// Returns the interval around a mean at a level such as 0.95, as far as it lies from 0 to 1.
    pub fn interval(&self, mean: f64, level: f64) -> (f64, f64) {
        let reach = t_quantile(0.5 + level / 2.0, f64::from(self.freedom)) * self.error;
        ((mean - reach).max(0.0), (mean + reach).min(1.0))
    }
}

/// Returns the least spread to assume of an accuracy: the standard error of counting, after one
/// right and one wrong answer more, so that accuracies of 0 and 1 have an error, too.
fn counting_spread(accuracy: f64, rows: usize) -> f64 {
    let least = 1.0 / (rows as f64 + 2.0);
    binomial_error(accuracy.clamp(least, 1.0 - least), rows)
}

/// Returns the standard error of a share `p` counted over `rows` independent answers.
pub fn binomial_error(p: f64, rows: usize) -> f64 {
    if rows == 0 {
        return 0.0;
    }
    (p * (1.0 - p)).max(0.0).sqrt() / (rows as f64).sqrt()
}

/// Returns the quantile `q` of the values, interpolated between neighbours (the default definition
/// of NumPy and R). The values need not be sorted. Returns `None` if there are none.
pub fn quantile(values: &[f64], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().checked_sub(1)?;
    let place = q.clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    Some(sorted[below] + (sorted[above] - sorted[below]) * place.fract())
}

/// Returns the quantile `q` of values with weights, pairs (value, weight > 0). With equal weights
/// it is [`quantile`]. Returns `None` if there are none.
pub fn weighted_quantile(values: &[(f64, f64)], q: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (first, _) = sorted.first()?;
    // Neighbours are half of each weight apart.
    let steps = || {
        sorted
            .windows(2)
            .map(|two| (two, (two[0].1 + two[1].1) / 2.0))
    };
    let whole: f64 = steps().map(|(_, step)| step).sum();
    let mut left = q.clamp(0.0, 1.0) * whole;
    let mut found = *first;
    for (two, step) in steps() {
        let share = (left / step).clamp(0.0, 1.0);
        found = two[0].0 + (two[1].0 - two[0].0) * share;
        left -= step;
        if left <= 0.0 {
            break;
        }
    }
    Some(found)
}

/// Returns an interval for the median of the distribution of the values, at a level such as 0.95 or
/// above. It lies between two of the values, for any distribution and any outliers. Returns `None`
/// for too few values; at 0.95 six are required.
pub fn median_interval(values: &[f64], level: f64) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    // The interval without the `left_out` least and largest values misses the median if no more
    // than that many of the values fall on one side of it, each with probability a half.
    let (mut term, mut tail) = (0.5f64.powi(count as i32), 0.0);
    let mut found = None;
    for left_out in 0..count / 2 {
        tail += term;
        if 1.0 - 2.0 * tail < level {
            break;
        }
        found = Some((sorted[left_out], sorted[count - 1 - left_out]));
        term *= (count - left_out) as f64 / (left_out + 1) as f64;
    }
    found
}

/// Returns the quantile of Student's distribution for a probability in (0, 1) and one or more
/// degrees of freedom, which need not be whole, by bisection of [`t_within`].
pub(crate) fn t_quantile(probability: f64, freedom: f64) -> f64 {
    let within = (2.0 * probability - 1.0).abs();
    let (mut low, mut high) = (0.0, 1.0);
    while t_within(high, freedom) < within && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = 0.5 * (low + high);
        if t_within(middle, freedom) < within {
            low = middle;
        } else {
            high = middle;
        }
    }
    if probability < 0.5 { -high } else { high }
}

/// Returns P(T <= t) for Student's T with one or more degrees of freedom, which need not be whole.
pub(crate) fn t_below(t: f64, freedom: f64) -> f64 {
    0.5 + 0.5 * t_within(t.abs(), freedom).copysign(t)
}

/// Returns P(|T| <= t) for Student's T.
fn t_within(t: f64, freedom: f64) -> f64 {
    match freedom.fract() == 0.0 {
        true => t_within_series(t, freedom as u32),
        false => t_within_integral(t, freedom),
    }
}

/// Returns P(|T| <= t) at ν degrees of freedom by Simpson's rule: the integral of cos^(ν-1) up to
/// atan(t/√ν), as a share of that up to π/2, which is √π/2 Γ(ν/2) / Γ((ν+1)/2).
fn t_within_integral(t: f64, freedom: f64) -> f64 {
    const STEPS: usize = 1_000;
    // Beyond twelve standard deviations nothing is left, but at small ν, where π/2 is less.
    let reach = (t / freedom.sqrt()).atan().min(12.0 / freedom.sqrt());
    let width = reach / STEPS as f64;
    let height = |step: usize| ((freedom - 1.0) * (step as f64 * width).cos().ln()).exp();
    let weight = |step: usize| match step {
        0 | STEPS => 1.0,
        step if step % 2 == 1 => 4.0,
        _ => 2.0,
    };
    let sum: f64 = (0..=STEPS).map(|step| weight(step) * height(step)).sum();
    let whole = libm::lgamma(0.5 * freedom) - libm::lgamma(0.5 * (freedom + 1.0));
    let whole = 0.5 * std::f64::consts::PI.sqrt() * whole.exp();
    (sum * width / 3.0 / whole).min(1.0)
}

/// Returns P(|T| <= t) at whole degrees of freedom: the finite series of Abramowitz and Stegun
/// 26.7.3 (odd) and 26.7.4 (even).
fn t_within_series(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    // Odd: cos + 2/3 cos^3 + (2·4)/(3·5) cos^5 + ... to cos^(n-2). Even: 1 + 1/2 cos^2 + ... to
    // cos^(n-2).
    let mut term = if odd { cosine } else { 1.0 };
    let mut power = u32::from(odd);
    let mut series = 0.0;
    while power + 2 <= freedom {
        series += term;
        term *= cosine * cosine * f64::from(power + 1) / f64::from(power + 2);
        power += 2;
    }
    if odd {
        (angle + sine * series) * std::f64::consts::FRAC_2_PI
    } else {
        sine * series
    }
}

/// Returns the largest sample standard deviation of `count` shares, numbers from 0 to 1, with this
/// mean; `count` is at least 2. They spread most if all of them but one are 0 or 1.
pub(crate) fn largest_deviation(count: usize, mean: f64) -> f64 {
    let count = count as f64;
    let (ones, rest) = ((count * mean).floor(), (count * mean).fract());
    let squares = ones + rest * rest - count * mean * mean;
    (squares.max(0.0) / (count - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn near(value: f64, expected: f64, tolerance: f64) {
        assert!(
            (value - expected).abs() <= tolerance,
            "{value} is not {expected}"
        );
    }

    /// Their sum rounds, so their mean and their deviation would.
    #[test]
    fn equal_values_have_no_deviation() {
        for value in [0.366, 0.368, 0.37, 0.1] {
            let sample = Sample::of(&[value; 3]).unwrap();
            assert_eq!((sample.mean, sample.deviation), (value, Some(0.0)));
            assert_eq!(Uncertainty::of(&sample, 0), None);
            assert_eq!(sample.interval(0.95), None);
        }
        assert!(Sample::of(&[f64::NAN; 2]).unwrap().mean.is_nan());
    }

    #[test]
    fn equal_weights_give_the_plain_quantile() {
        let values = [3.0, 1.0, 4.0, 1.5, 9.0];
        let pairs: Vec<(f64, f64)> = values.iter().map(|value| (*value, 0.2)).collect();
        for q in [0.0, 0.1, 0.25, 0.5, 0.77, 0.9, 1.0] {
            let (plain, weighted) = (quantile(&values, q), weighted_quantile(&pairs, q));
            assert!((plain.unwrap() - weighted.unwrap()).abs() < 1e-12, "{q}");
        }
        // A value of four times the weight is like four values, but for the steps at its ends.
        assert_eq!(weighted_quantile(&[(1.0, 4.0), (2.0, 1.0)], 0.0), Some(1.0));
        assert_eq!(
            weighted_quantile(&[(1.0, 1.0), (2.0, 4.0), (3.0, 1.0)], 0.5),
            Some(2.0)
        );
        assert_eq!(weighted_quantile(&[], 0.5), None);
    }

    #[test]
    fn mean_and_deviation() {
        let sample = Sample::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((sample.count, sample.mean), (8, 5.0));
        near(sample.deviation.unwrap(), (32.0f64 / 7.0).sqrt(), 1e-12);
        assert_eq!(Sample::of(&[]), None);
        let single = Sample::of(&[3.0]).unwrap();
        assert_eq!((single.deviation, single.interval(0.95)), (None, None));
    }

    /// Two-sided 95 % and 99 % points as printed in tables of Student's distribution.
    #[test]
    fn student_quantiles() {
        for (freedom, p975, p995) in [
            (1.0, 12.7062, 63.6567),
            (2.0, 4.30265, 9.92484),
            (3.0, 3.18245, 5.84091),
            (4.0, 2.77645, 4.60409),
            (9.0, 2.26216, 3.24984),
            (30.0, 2.04227, 2.75000),
            (120.0, 1.97993, 2.61742),
        ] {
            near(t_quantile(0.975, freedom), p975, 1e-4);
            near(t_quantile(0.995, freedom), p995, 1e-4);
            near(t_quantile(0.025, freedom), -p975, 1e-4);
            near(t_below(p975, freedom), 0.975, 1e-6);
            near(t_below(-p995, freedom), 0.005, 1e-6);
        }
    }

    /// The integral agrees with the series where both are defined, and lies between its neighbours.
    #[test]
    fn degrees_of_freedom_need_not_be_whole() {
        for freedom in [1, 2, 3, 7, 30, 250, 10_000] {
            for t in [0.0, 0.1, 1.0, 2.5, 7.0, 60.0] {
                let series = t_within_series(t, freedom);
                near(t_within_integral(t, f64::from(freedom)), series, 1e-7);
            }
        }
        let [two, more, three] = [2.0, 2.988, 3.0].map(|freedom| t_below(-4.96, freedom));
        assert!(two > more && more > three, "{two} {more} {three}");
        near(more, 0.0079, 1e-4);
    }

    #[test]
    fn interval_of_three_seeds() {
        let (low, high) = Sample::of(&[36.0, 38.0, 40.0])
            .unwrap()
            .interval(0.95)
            .unwrap();
        near(low, 38.0 - 4.30265 * 2.0 / 3f64.sqrt(), 1e-4);
        near(high, 38.0 + 4.30265 * 2.0 / 3f64.sqrt(), 1e-4);
    }

    #[test]
    fn equal_values_have_no_interval() {
        let equal = Sample::of(&[0.16, 0.16]).unwrap();
        assert_eq!((equal.deviation, equal.interval(0.95)), (Some(0.0), None));
    }

    #[test]
    fn seeds_that_agree_are_as_uncertain_as_counting() {
        let of = |values: &[f64], rows| Uncertainty::of(&Sample::of(values).unwrap(), rows);
        // sqrt(0.16 * 0.84 / 2000) = 0.008198
        let equal = of(&[0.16, 0.16], 2_000).unwrap();
        near(equal.error, 0.008_198 / 2f64.sqrt(), 1e-6);
        let (low, high) = equal.interval(0.16, 0.95);
        near(high - low, 2.0 * 12.7062 * equal.error, 1e-5);
        // A larger spread counts as it is.
        let (low, high) = of(&[0.36, 0.38, 0.40], 2_000).unwrap().interval(0.38, 0.95);
        near(low, 0.38 - 4.30265 * 0.02 / 3f64.sqrt(), 1e-6);
        near(high, 0.38 + 4.30265 * 0.02 / 3f64.sqrt(), 1e-6);
        // One seed: counting alone.
        let (low, high) = of(&[0.16], 2_000).unwrap().interval(0.16, 0.95);
        near((high - low) / 2.0, 1.9612 * 0.008_198, 1e-5);
        // Nothing known: one seed or equal ones, on an unknown number of rows.
        assert_eq!((of(&[0.16], 0), of(&[0.16, 0.16], 0)), (None, None));
        assert!(of(&[0.16, 0.17], 0).is_some());
        // All right is no certainty.
        let (low, high) = of(&[1.0; 5], 2_000).unwrap().interval(1.0, 0.95);
        assert!(low < 0.9999 && high == 1.0, "{low} {high}");
        // Nor is all wrong, and no accuracy lies below it.
        let none_right = of(&[0.0; 5], 2_000).unwrap();
        let (low, high) = none_right.interval(0.0, 0.95);
        assert!(low == 0.0 && high > 1e-4, "{low} {high}");
        // One right answer more, and one wrong: sqrt(1/2002 * 2001/2002 / 2000).
        near(none_right.error, 4.996_26e-4 / 5f64.sqrt(), 1e-9);
    }

    /// Ranks as printed in tables of the sign test: of 6 values all, of 10 the second from either
    /// end, of 20 the sixth.
    #[test]
    fn intervals_of_the_median() {
        let ranks = |count: i32| {
            let values: Vec<f64> = (1..=count).rev().map(f64::from).collect();
            median_interval(&values, 0.95)
        };
        assert_eq!(ranks(0), None);
        assert_eq!(ranks(5), None);
        assert_eq!(ranks(6), Some((1.0, 6.0)));
        assert_eq!(ranks(10), Some((2.0, 9.0)));
        assert_eq!(ranks(20), Some((6.0, 15.0)));
    }

    #[test]
    fn counting_error() {
        near(binomial_error(0.17, 2000), 0.008_399_4, 1e-6);
        assert_eq!(binomial_error(0.5, 0), 0.0);
    }

    #[test]
    fn quantiles_interpolate() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(quantile(&values, 0.5), Some(2.5));
        near(quantile(&values, 0.1).unwrap(), 1.3, 1e-12);
        assert_eq!(quantile(&values, 1.0), Some(4.0));
        assert_eq!(quantile(&[], 0.5), None);
    }
}
