//! The length from which a model is cheaper than softmax attention.

use std::fmt;

/// The point at which a cost falls below the reference's and stays there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BreakEven {
    /// Cheaper at every length measured, the shortest being this one.
    From(usize),
    /// Interpolated between two measured lengths.
    At(f64),
    /// Not cheaper at the longest length measured.
    NoneUpTo(usize),
}

impl BreakEven {
    /// Computes the point from pairs of a length and the ratio of the model's cost to the
    /// reference's, infinite where the model cannot run. The logarithm of the ratio is interpolated
    /// linearly over the logarithm of the length. Returns `None` if there is no pair.
    pub fn of(ratios: &[(usize, f64)]) -> Option<BreakEven> {
        let mut points: Vec<(usize, f64)> = ratios
            .iter()
            .copied()
            .filter(|(length, ratio)| *length > 0 && *ratio > 0.0)
            .collect();
        points.sort_by_key(|(length, _)| *length);
        let (first, last) = (points.first()?.0, points.last()?.0);
        let Some(dear) = points.iter().rposition(|(_, ratio)| *ratio >= 1.0) else {
            return Some(BreakEven::From(first));
        };
        let Some((longer, below)) = points.get(dear + 1) else {
            return Some(BreakEven::NoneUpTo(last));
        };
        let (shorter, above) = points[dear];
        let (l0, l1) = ((shorter as f64).ln(), (*longer as f64).ln());
        let (r0, r1) = (above.ln(), below.ln());
        if r0.is_infinite() {
            return Some(BreakEven::At(*longer as f64));
        }
        Some(BreakEven::At((l0 + (l1 - l0) * r0 / (r0 - r1)).exp()))
    }

    /// Returns a number by which points are sorted: the point itself, below all points if the
    /// model is cheaper at every length, and above all if it is not at the longest.
    pub(super) fn order(&self) -> f64 {
        match self {
            BreakEven::From(_) => 0.0,
            BreakEven::At(length) => *length,
            // No sequence is as long.
            BreakEven::NoneUpTo(_) => usize::MAX as f64,
        }
    }
}

impl fmt::Display for BreakEven {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BreakEven::From(length) => write!(f, "below {length}"),
            BreakEven::At(length) => write!(f, "{length:.0}"),
            BreakEven::NoneUpTo(length) => write!(f, "none up to {length}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crossing_is_interpolated_on_logarithmic_scales() {
        // The ratio is 2048 / L: it crosses 1 at 2048.
        let points: Vec<(usize, f64)> = [1024, 3000, 4096]
            .map(|length| (length, 2048.0 / length as f64))
            .to_vec();
        let Some(BreakEven::At(length)) = BreakEven::of(&points) else {
            panic!("no crossing found");
        };
        assert!((length - 2048.0).abs() < 1e-6, "{length}");
    }

    #[test]
    fn only_the_last_crossing_counts() {
        let points = [(1024, 0.9), (2048, 1.1), (4096, 1.0 / 1.1)];
        let Some(BreakEven::At(length)) = BreakEven::of(&points) else {
            panic!("no crossing found");
        };
        assert!((length - 2048.0 * 2f64.sqrt()).abs() < 1e-6, "{length}");
    }

    #[test]
    fn extremes_are_sorted_below_and_above_all_points() {
        let sorted = [
            BreakEven::From(4096),
            BreakEven::At(1024.0),
            BreakEven::At(3000.5),
            BreakEven::NoneUpTo(2048),
        ];
        assert!(sorted.is_sorted_by(|a, b| a.order() < b.order()));
    }

    #[test]
    fn there_may_be_none() {
        let text = |points: &[(usize, f64)]| BreakEven::of(points).map(|it| it.to_string());
        assert_eq!(
            text(&[(1024, 2.0), (4096, 1.5)]).unwrap(),
            "none up to 4096"
        );
        assert_eq!(text(&[(4096, 0.5), (1024, 0.9)]).unwrap(), "below 1024");
        assert_eq!(
            text(&[(1024, 0.5), (4096, 1.5)]).unwrap(),
            "none up to 4096"
        );
        assert_eq!(
            text(&[(1024, 0.5), (4096, f64::INFINITY)]).unwrap(),
            "none up to 4096"
        );
        assert_eq!(text(&[(1024, f64::INFINITY), (4096, 0.5)]).unwrap(), "4096");
        // As dear is not cheaper.
        assert_eq!(
            text(&[(1024, 0.5), (4096, 1.0)]).unwrap(),
            "none up to 4096"
        );
        assert_eq!(text(&[]), None);
        assert_eq!(text(&[(1024, f64::NAN)]), None);
    }
}
