//! Scales of axes: the positions of values on an axis, and the ticks.

use crate::format::{grouped, short};

/// Scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal distances for equal differences; ticks at 1, 2 or 5 times a power of ten.
    Linear,
    /// Equal distances for equal ratios; ticks at 1, 2 and 5 times powers of ten. Only positive
    /// values have a place.
    Log,
    /// Equal distances for equal ratios, as in `Log`, with ticks at powers of two, written in units
    /// of 1024: lengths.
    Doubling,
}

/// A value with a label at an axis.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tick {
    pub(super) value: f64,
    pub(super) words: String,
}

impl Scale {
    /// Returns the coordinate of a value, in which the axis is linear, if it has one.
    fn place(self, value: f64) -> Option<f64> {
        let place = match self {
            Scale::Linear => value,
            Scale::Log | Scale::Doubling => value.log2(),
        };
        place.is_finite().then_some(place)
    }

    fn value(self, place: f64) -> f64 {
        match self {
            Scale::Linear => place,
            Scale::Log | Scale::Doubling => place.exp2(),
        }
    }

    /// Returns as many ticks between two values as `fits` allows, at least two if it allows that.
    fn ticks(self, low: f64, high: f64, fits: impl Fn(&[Tick]) -> bool) -> Vec<Tick> {
        // Near the limits of floating point.
        if !(low.is_finite() && (high - low).is_finite()) {
            return Vec::new();
        }
        let own = match self {
            Scale::Linear => None,
            Scale::Log => densest(decades(low, high), &fits),
            Scale::Doubling => densest(doublings(low, high), &fits),
        };
        // Within less than a decade there may be too few of them.
        let own = own.filter(|ticks| ticks.len() >= 2);
        own.or_else(|| densest(steps(low, high), &fits))
            .unwrap_or_default()
    }
}

/// Returns the first of several choices that fits.
fn densest(
    mut choices: impl Iterator<Item = Vec<Tick>>,
    fits: impl Fn(&[Tick]) -> bool,
) -> Option<Vec<Tick>> {
    choices.find(|ticks| fits(ticks))
}

/// Returns ticks at 1, 2 and 5 times powers of ten, then at powers of ten, then at every second of
/// these, and so on.
fn decades(low: f64, high: f64) -> impl Iterator<Item = Vec<Tick>> {
    let powers = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
    let choice = move |leading: &'static [u32], every: i32| -> Vec<Tick> {
        let powers = powers.clone().filter(|power| power.rem_euclid(every) == 0);
        let ticks = powers.flat_map(|power| leading.iter().map(move |digit| (*digit, power)));
        let ticks = ticks.map(|(digit, power)| {
            // Parsed from text, so that it is the nearest number to the label.
            let value: f64 = format!("{digit}e{power}").parse().unwrap_or_default();
            let decimals = usize::try_from(-power).unwrap_or(0);
            Tick {
                value,
                words: words(value, decimals),
            }
        });
        ticks
            .filter(|tick| (low..=high).contains(&tick.value))
            .collect()
    };
    let ones: &[u32] = &[1];
    [(&[1, 2, 5][..], 1)]
        .into_iter()
        .chain((1..20).map(move |every| (ones, every)))
        .map(move |(leading, every)| choice(leading, every))
}

/// Returns ticks at powers of two, then at every second of these, and so on.
fn doublings(low: f64, high: f64) -> impl Iterator<Item = Vec<Tick>> {
    let powers = (low.log2().ceil() as i32)..=(high.log2().floor() as i32);
    (1..20).map(move |every| {
        let powers = powers.clone().filter(|power| power.rem_euclid(every) == 0);
        let ticks = powers.map(|power| {
            let value = f64::from(power).exp2();
            let words = match value >= 1024.0 {
                true => format!("{}K", value / 1024.0),
                false => value.to_string(),
            };
            Tick { value, words }
        });
        ticks.collect()
    })
}

/// Returns ticks at multiples of 1, 2 or 5 times a power of ten, from dense ones to sparse ones.
fn steps(low: f64, high: f64) -> impl Iterator<Item = Vec<Tick>> {
    let least = ((high - low) / 100.0).log10().floor() as i32;
    let sizes = (least..least + 6).flat_map(|power| [(1, power), (2, power), (5, power)]);
    sizes.map(move |(digit, power)| {
        let step = f64::from(digit) * 10f64.powi(power);
        let decimals = usize::try_from(-power).unwrap_or(0);
        let multiples = (low / step).ceil() as i64..=(high / step).floor() as i64;
        // A hundred are too many for any chart. Large values within a small range would have
        // endless ones.
        let ticks = multiples.take(200).map(|multiple| {
            let value = multiple as f64 * step;
            Tick {
                value,
                words: words(value, decimals),
            }
        });
        ticks.collect()
    })
}

/// Returns a value as text: with commas between thousands, millions as `2M`.
fn words(value: f64, decimals: usize) -> String {
    match value {
        value if value.abs() >= 1e15 => format!("{value:e}"),
        value if value.abs() >= 1e6 => format!("{}M", value / 1e6),
        value if value >= 1e4 && decimals == 0 => grouped(value as u64),
        value if value != 0.0 && value.abs() < 1e-4 => format!("{value:e}"),
        value => format!("{value:.decimals$}"),
    }
}

/// Returns a value of the data as text, shown when the pointer rests on it.
pub(super) fn told(value: f64) -> String {
    match value.fract() == 0.0 && value.abs() < 1e15 && value >= 0.0 {
        true => grouped(value as u64),
        false => short(value),
    }
}

/// Positions of the values of an axis in a drawing.
pub(super) struct Mapping {
    scale: Scale,
    /// Coordinates at the two ends.
    places: (f64, f64),
    /// Pixels at the two ends.
    pixels: (f64, f64),
}

impl Mapping {
    /// Returns the mapping of `values` between two ends in pixels, such that the outermost keep
    /// `inset` pixels away from them.
    pub(super) fn new(
        scale: Scale,
        values: impl Iterator<Item = f64>,
        pixels: (f64, f64),
        inset: f64,
    ) -> Mapping {
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for place in values.filter_map(|value| scale.place(value)) {
            low = low.min(place);
            high = high.max(place);
        }
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        // If all values are equal, they are in the middle.
        if high - low <= 1e-9 * high.abs() {
            let room = (1e-3 * high.abs()).max(0.5);
            (low, high) = (low - room, high + room);
        }
        let length = (pixels.1 - pixels.0).abs();
        let beyond = (high - low) * inset / (length - 2.0 * inset).max(1.0);
        Mapping {
            scale,
            places: (low - beyond, high + beyond),
            pixels,
        }
    }

    /// Returns the position of a value on the axis, if it has one.
    pub(super) fn at(&self, value: f64) -> Option<f64> {
        let share = (self.scale.place(value)? - self.places.0) / (self.places.1 - self.places.0);
        Some(self.pixels.0 + share * (self.pixels.1 - self.pixels.0))
    }

    /// Returns as many ticks with their pixels as `fits` allows.
    pub(super) fn ticks(&self, fits: impl Fn(&[(f64, Tick)]) -> bool) -> Vec<(f64, Tick)> {
        let placed = |ticks: &[Tick]| -> Vec<(f64, Tick)> {
            let ticks = ticks.iter().cloned();
            ticks
                .filter_map(|tick| Some((self.at(tick.value)?, tick)))
                .collect()
        };
        let (low, high) = (
            self.scale.value(self.places.0),
            self.scale.value(self.places.1),
        );
        placed(&self.scale.ticks(low, high, |ticks| fits(&placed(ticks))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scale: Scale, low: f64, high: f64, most: usize) -> Vec<String> {
        let ticks = scale.ticks(low, high, |ticks| ticks.len() <= most);
        ticks.into_iter().map(|tick| tick.words).collect()
    }

    #[test]
    fn values_are_told_in_full_where_they_are_whole() {
        let words = [0.0, 5.0, 12_345.0, 36.4, 0.5, -2.0].map(told);
        assert_eq!(words, ["0", "5", "12,345", "36.4", "0.500", "-2.00"]);
    }

    #[test]
    fn linear_ticks_are_multiples_of_1_2_5() {
        assert_eq!(
            written(Scale::Linear, -0.5, 10.4, 6),
            ["0", "2", "4", "6", "8", "10"]
        );
        assert_eq!(
            written(Scale::Linear, 0.0, 103.0, 6),
            ["0", "20", "40", "60", "80", "100"]
        );
        assert_eq!(
            written(Scale::Linear, 35.91, 36.24, 4),
            ["36.0", "36.1", "36.2"]
        );
        assert_eq!(
            written(Scale::Linear, 0.0, 51_000.0, 3),
            ["0", "20,000", "40,000"]
        );
    }

    #[test]
    fn logarithmic_ticks_are_1_2_5_then_decades() {
        assert_eq!(
            written(Scale::Log, 0.15, 12.0, 9),
            ["0.2", "0.5", "1", "2", "5", "10"]
        );
        assert_eq!(
            written(Scale::Log, 0.001, 2e6, 5),
            ["0.01", "1", "100", "10,000", "1M"]
        );
        // Fewer than two of them are in this range.
        assert_eq!(written(Scale::Log, 2.1, 4.4, 3), ["3", "4"]);
        let values = Scale::Log.ticks(0.0009, 0.011, |_| true);
        assert!(values.iter().any(|tick| tick.value == 0.005));
    }

    #[test]
    fn lengths_have_powers_of_two() {
        assert_eq!(
            written(Scale::Doubling, 500.0, 5000.0, 9),
            ["512", "1K", "2K", "4K"]
        );
        assert_eq!(
            written(Scale::Doubling, 500.0, 70_000.0, 4),
            ["1K", "4K", "16K", "64K"]
        );
    }

    #[test]
    fn the_outermost_values_keep_their_distance_from_the_ends() {
        let mapping = Mapping::new(Scale::Log, [1.0, 4.0].into_iter(), (100.0, 300.0), 20.0);
        let near = |value: f64, pixel: f64| (mapping.at(value).unwrap() - pixel).abs() < 1e-9;
        assert!(near(1.0, 120.0) && near(2.0, 200.0) && near(4.0, 280.0));
        assert_eq!(mapping.at(0.0), None);
        let up = Mapping::new(Scale::Linear, [5.0, 5.0].into_iter(), (300.0, 100.0), 0.0);
        assert_eq!(up.at(5.0), Some(200.0));
        assert!(up.at(5.1).unwrap() < 200.0);
    }

    #[test]
    fn there_are_ticks_whatever_the_values() {
        for values in [
            vec![],
            vec![7.0],
            vec![1e-9, 1e12],
            vec![-3.0, 1e308],
            vec![1e9, 1e9 + 1.0],
            vec![f64::NAN],
        ] {
            for scale in [Scale::Linear, Scale::Log, Scale::Doubling] {
                let mapping = Mapping::new(scale, values.iter().copied(), (0.0, 300.0), 10.0);
                let ticks = mapping.ticks(|ticks| ticks.len() <= 8);
                assert!(ticks.len() <= 8);
                assert!(
                    ticks
                        .iter()
                        .all(|(at, _)| (-1e-6..=300.0 + 1e-6).contains(at)),
                    "{values:?}"
                );
            }
        }
    }
}
