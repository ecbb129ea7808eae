//! How an axis runs: where a value stands on it, and how values are written beside it.

use std::ops::Range;

use crate::format::short;

/// How an axis runs. Drawings use coordinates in which it is linear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios; a unit of the coordinate is a doubling. Only positive values have a place.
    Log,
}

impl Scale {
    /// The coordinate of a value, if it has one.
    pub(super) fn place(self, value: f64) -> Option<f64> {
        let place = match self {
            Scale::Linear => value,
            Scale::Log => value.log2(),
        };
        place.is_finite().then_some(place)
    }

    /// The value at a coordinate, as text: 4096 as `4K`, 0.25 as `0.250`.
    pub(super) fn words(self, place: f64) -> String {
        let value = match self {
            Scale::Linear => place,
            Scale::Log => place.exp2(),
        };
        match (self, value) {
            (Scale::Log, value) if value >= 1024.0 && (value / 1024.0).fract() == 0.0 => {
                format!("{}K", value / 1024.0)
            }
            (_, value) if value.fract() == 0.0 && value.abs() < 1e6 => value.to_string(),
            (_, value) => short(value),
        }
    }

    /// The coordinates that hold all of these with some room at either end; never empty.
    pub(super) fn range(self, places: impl Iterator<Item = f64>) -> Range<f64> {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for place in places {
            low = low.min(place);
            high = high.max(place);
        }
        if low > high {
            return 0.0..1.0;
        }
        let room = match high - low {
            0.0 => 0.5,
            reach => 0.06 * reach,
        };
        low - room..high + room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_people_say_them() {
        assert_eq!(Scale::Log.words(12.0), "4K");
        assert_eq!(Scale::Log.words(-2.0), "0.250");
        assert_eq!(Scale::Linear.words(37.5), "37.5");
        assert_eq!(Scale::Linear.words(5000.0), "5000");
    }

    #[test]
    fn what_has_no_place_is_left_out() {
        assert_eq!(Scale::Log.place(8.0), Some(3.0));
        assert_eq!(Scale::Log.place(0.0), None);
        assert_eq!(Scale::Linear.place(f64::NAN), None);
    }

    #[test]
    fn a_range_is_never_empty() {
        assert_eq!(Scale::Linear.range([].into_iter()), 0.0..1.0);
        assert_eq!(Scale::Linear.range([2.0].into_iter()), 1.5..2.5);
        assert_eq!(Scale::Linear.range([0.0, 100.0].into_iter()), -6.0..106.0);
    }
}
