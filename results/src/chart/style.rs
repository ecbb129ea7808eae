//! Colours on light and dark backgrounds, and the markers of series.

use std::fmt::Write;

/// Paint of a shape or a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paint {
    /// The background of everything.
    Paper,
    /// Text.
    Ink,
    /// Fainter text: labels of axes, notes.
    Faint,
    /// Axes and grids.
    Line,
    /// A series of this rank.
    Series(usize),
}

/// Red, green and blue, 0 to 255.
pub(crate) type Rgb = [u8; 3];

/// A colour on a light and on a dark background.
pub(crate) struct Colour {
    /// Its name in style sheets.
    pub(crate) name: &'static str,
    pub(crate) light: Rgb,
    pub(crate) dark: Rgb,
}

const fn colour(name: &'static str, light: u32, dark: u32) -> Colour {
    const fn rgb(hex: u32) -> Rgb {
        let [_, red, green, blue] = hex.to_be_bytes();
        [red, green, blue]
    }
    Colour {
        name,
        light: rgb(light),
        dark: rgb(dark),
    }
}

const PAPER: Colour = colour("paper", 0xffffff, 0x16191d);
const INK: Colour = colour("ink", 0x1d2126, 0xe6e8eb);
const FAINT: Colour = colour("faint", 0x5b636d, 0x9aa3ad);
const LINE: Colour = colour("line", 0xdadde1, 0x343a41);
/// Colour of elements that can be clicked, and of the focused one.
const ACCENT: Colour = colour("accent", 0x0b62b0, 0x6db8f7);
/// Colour of failures.
const ALARM: Colour = colour("alarm", 0xb3261e, 0xff8d85);

/// Colours of series. Each differs from its neighbours in lightness as well as in hue.
const SERIES: [Colour; 8] = [
    colour("c0", 0x2f3640, 0xe3e7ec),
    colour("c1", 0x0072b2, 0x4aaef0),
    colour("c2", 0xc8500a, 0xff9552),
    colour("c3", 0x00805c, 0x2ccb9b),
    colour("c4", 0xb8438f, 0xf191cc),
    colour("c5", 0x8f6900, 0xe2b93b),
    colour("c6", 0x6a3d9a, 0xb89bf0),
    colour("c7", 0xc2185b, 0xff6f91),
];

/// Returns all of them.
pub(crate) fn colours() -> impl Iterator<Item = &'static Colour> {
    [&PAPER, &INK, &FAINT, &LINE, &ACCENT, &ALARM]
        .into_iter()
        .chain(&SERIES)
}

impl Paint {
    /// Returns its colour.
    pub(crate) fn colour(self) -> &'static Colour {
        match self {
            Paint::Paper => &PAPER,
            Paint::Ink => &INK,
            Paint::Faint => &FAINT,
            Paint::Line => &LINE,
            Paint::Series(rank) => &SERIES[rank % SERIES.len()],
        }
    }
}

/// Returns a colour as style sheets write it.
pub(crate) fn hex([red, green, blue]: Rgb) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Returns the colours as custom properties that adapt to light and dark mode, with a class for
/// each. Print is light.
pub(crate) fn css() -> String {
    let properties = |of: fn(&Colour) -> Rgb| -> String {
        colours()
            .map(|colour| format!(" --{}: {};", colour.name, hex(of(colour))))
            .collect()
    };
    let mut text = format!(
        ":root {{ color-scheme: light dark;{} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{{} }} }}\n",
        properties(|colour| colour.light),
        properties(|colour| colour.dark),
    );
    for Colour { name, .. } in colours() {
        let _ = writeln!(text, ".{name} {{ color: var(--{name}); }}");
    }
    text + include_str!("chart.css")
}

/// The marker of a series: an outline around its centre, filled or not.
pub(super) struct Sign {
    /// Its corners, about 1 away from the centre. If empty: a disc of radius 1.
    pub(super) corners: &'static [(f64, f64)],
    /// True if it is filled with its colour; else with the background.
    pub(super) filled: bool,
}

const SIGNS: [&[(f64, f64)]; 7] = [
    &[],
    &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
    &[(0.0, -1.15), (1.1, 0.8), (-1.1, 0.8)],
    &[(0.0, -1.25), (1.05, 0.0), (0.0, 1.25), (-1.05, 0.0)],
    &[
        (-0.35, -1.15),
        (0.35, -1.15),
        (0.35, -0.35),
        (1.15, -0.35),
        (1.15, 0.35),
        (0.35, 0.35),
        (0.35, 1.15),
        (-0.35, 1.15),
        (-0.35, 0.35),
        (-1.15, 0.35),
        (-1.15, -0.35),
        (-0.35, -0.35),
    ],
    &[(0.0, 1.15), (1.1, -0.8), (-1.1, -0.8)],
    &[
        (0.0, -0.5),
        (0.6, -1.1),
        (1.1, -0.6),
        (0.5, 0.0),
        (1.1, 0.6),
        (0.6, 1.1),
        (0.0, 0.5),
        (-0.6, 1.1),
        (-1.1, 0.6),
        (-0.5, 0.0),
        (-1.1, -0.6),
        (-0.6, -1.1),
    ],
];

/// Number of ranks until colour and marker repeat. Seven markers and eight colours have no common
/// divisor.
#[cfg(test)]
const PERIOD: usize = 2 * SIGNS.len() * SERIES.len();

impl Sign {
    /// Returns the marker of the series of a rank.
    pub(super) fn of(rank: usize) -> Sign {
        Sign {
            corners: SIGNS[rank % SIGNS.len()],
            filled: (rank / (SIGNS.len() * SERIES.len())).is_multiple_of(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Returns the relative luminance, by the guidelines for accessible content (WCAG 2.2).
    fn luminance(rgb: Rgb) -> f64 {
        let [red, green, blue] = rgb.map(|part| {
            let part = f64::from(part) / 255.0;
            match part <= 0.040_45 {
                true => part / 12.92,
                false => ((part + 0.055) / 1.055).powf(2.4),
            }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    }

    fn contrast(a: Rgb, b: Rgb) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn contrast_of_known_pairs() {
        assert!((contrast([0; 3], [255; 3]) - 21.0).abs() < 1e-9);
        assert!((contrast([0x77; 3], [255; 3]) - 4.48).abs() < 0.01);
    }

    /// The guidelines require a contrast of 4.5 for text and 3 for other visible elements. Names of
    /// series never have the colour of the series.
    #[test]
    fn everything_can_be_seen_on_both_papers() {
        for colour in colours() {
            let least = match colour.name {
                "paper" | "line" => continue,
                "ink" | "faint" | "accent" | "alarm" => 4.5,
                _ => 3.0,
            };
            for (mine, paper) in [(colour.light, PAPER.light), (colour.dark, PAPER.dark)] {
                let contrast = contrast(mine, paper);
                assert!(contrast >= least, "{}: {contrast:.2}", colour.name);
            }
        }
    }

    #[test]
    fn a_rank_has_a_look_of_its_own_until_all_are_used() {
        let look = |rank| {
            let sign = Sign::of(rank);
            let corners = format!("{:?}", sign.corners);
            (Paint::Series(rank).colour().name, corners, sign.filled)
        };
        let looks: BTreeSet<_> = (0..PERIOD).map(look).collect();
        assert_eq!(looks.len(), PERIOD);
        assert_eq!(look(3), look(3 + PERIOD));
        for rank in 0..PERIOD {
            let (mine, next) = (look(rank), look(rank + 1));
            assert!(mine.0 != next.0 && mine.1 != next.1, "{rank}");
        }
    }

    #[test]
    fn the_style_sheet_has_every_colour_twice() {
        let css = css();
        for colour in colours() {
            assert_eq!(css.matches(&format!("--{}:", colour.name)).count(), 2);
            assert!(css.contains(&hex(colour.light)) && css.contains(&hex(colour.dark)));
        }
    }
}
