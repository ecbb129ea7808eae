//! The part of a chart between its axes: grid, measurements and baselines.

use super::font;
use super::labels::{self, Named};
use super::layout::{GAP, SIGN, Sheet, TEXT, group, text};
use super::scale::{Mapping, Tick, told};
use super::scene::{Anchor, Element, Outline, Point, Rect, Shape, Stroke};
use super::style::Paint;
use super::{Chart, Form, Series};

/// Largest number of markers on a line; a line with fewer points has one at each.
const SIGNS: usize = 12;
/// Opacity of discs and bands, which overlap.
const VEIL: f64 = 0.16;
/// Number of series above which lines are thin and their markers small.
const CROWD: usize = 12;

/// The part between the axes, and the positions of values in it.
pub(super) struct Plot {
    pub(super) frame: Rect,
    x: Mapping,
    y: Mapping,
    x_ticks: Vec<(f64, Tick)>,
    y_ticks: Vec<(f64, Tick)>,
    /// Names of baselines to the right are at most as wide as this, in pixels.
    names: f64,
}

impl Plot {
    /// Returns the plot of a chart whose parts above end at `top`.
    pub(super) fn new(chart: &Chart, sheet: &Sheet, top: f64) -> Plot {
        let reach = |series: &Series| match series.form {
            Form::Line => SIGN,
            Form::Bubble(share) => radius(share, sheet),
        };
        let inset = chart.series.iter().map(reach).fold(SIGN, f64::max) + 4.0;
        // The name of the vertical axis is above it.
        let (top, bottom) = (top + TEXT + 2.0 * GAP, top + TEXT + 2.0 * GAP + sheet.plot);
        let baselines = chart.baselines.iter().map(|baseline| baseline.y);
        let points = || chart.series.iter().flat_map(|series| &series.points);
        let bands = || chart.series.iter().flat_map(|series| &series.band);
        let heights = points()
            .map(|point| point.1)
            .chain(bands().flat_map(|band| [band.1, band.2]))
            .chain(baselines);
        let y = Mapping::new(chart.y.scale, heights, (bottom, top), inset);
        let y_ticks = y.ticks(|ticks| apart(ticks, |_| 0.0, 36.0));

        let width = |(_, tick): &(f64, Tick)| font::width(&tick.words, TEXT);
        let widest = |widths: &mut dyn Iterator<Item = f64>| widths.fold(0.0, f64::max);
        let left = widest(&mut y_ticks.iter().map(width)) + 2.0 * GAP;
        let names = chart.baselines.iter();
        let names =
            widest(&mut names.map(|one| font::width(&one.name, TEXT))).min(0.3 * sheet.width);
        let mut right = sheet.width - 2.0 * GAP - names;
        let (mut x, mut x_ticks);
        loop {
            let places = points()
                .map(|point| point.0)
                .chain(bands().map(|band| band.0));
            x = Mapping::new(chart.x.scale, places, (left, right), inset);
            x_ticks = x.ticks(|ticks| apart(ticks, |tick| width(tick) + 2.0 * GAP, 52.0));
            let end = x_ticks.iter().map(|tick| tick.0 + width(tick) / 2.0);
            let beyond = end.fold(0.0, f64::max) + GAP / 2.0 - sheet.width;
            if beyond <= 0.0 {
                break;
            }
            right -= beyond;
        }
        Plot {
            frame: Rect {
                left,
                top,
                right,
                bottom,
            },
            x,
            y,
            x_ticks,
            y_ticks,
            names,
        }
    }

    /// Returns the position of a point of the data, if it has one.
    fn at(&self, (x, y): (f64, f64)) -> Option<Point> {
        Some((self.x.at(x)?, self.y.at(y)?))
    }

    /// Draws the grid, the ticks, and the names of the axes.
    pub(super) fn axes(&self, chart: &Chart, elements: &mut Vec<Element>) {
        let Rect {
            left,
            top,
            right,
            bottom,
        } = self.frame;
        let mut line = |from, to, paint| {
            elements.push(Element::Shape(Shape::line(vec![from, to], paint, 1.0)));
        };
        for (y, _) in &self.y_ticks {
            line((left, *y), (right, *y), Paint::Line);
        }
        for (x, _) in &self.x_ticks {
            line((*x, top), (*x, bottom), Paint::Line);
        }
        line((left, bottom), (right, bottom), Paint::Faint);
        for (y, tick) in &self.y_ticks {
            let at = (left - GAP, y + font::CAPITAL * TEXT / 2.0);
            elements.push(label(at, Anchor::End, tick.words.clone()));
        }
        let below = bottom + GAP + font::CAPITAL * TEXT;
        for (x, tick) in &self.x_ticks {
            elements.push(label((*x, below), Anchor::Middle, tick.words.clone()));
        }
        let most = right - GAP;
        let name = |label: &str| font::fitted(label, TEXT, most);
        elements.push(label(
            (GAP, top - GAP - font::BELOW * TEXT),
            Anchor::Start,
            name(&chart.y.label),
        ));
        elements.push(label(
            (right, below + TEXT + GAP),
            Anchor::End,
            name(&chart.x.label),
        ));
    }

    /// Draws dashed lines across, with their names to the right.
    pub(super) fn baselines(&self, chart: &Chart, elements: &mut Vec<Element>) {
        let mut found: Vec<(f64, &str, f64)> = chart
            .baselines
            .iter()
            .filter_map(|one| Some((self.y.at(one.y)?, one.name.as_str(), one.y)))
            .collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let wanted: Vec<f64> = found.iter().map(|(y, ..)| *y).collect();
        let heights = labels::spread(&wanted, 1.25 * TEXT, self.frame.top, self.frame.bottom);
        for ((y, name, value), height) in found.into_iter().zip(heights) {
            elements.push(Element::Shape(Shape {
                outline: Outline::Open(vec![(self.frame.left, y), (self.frame.right, y)]),
                fill: None,
                stroke: Some(Stroke {
                    paint: Paint::Faint,
                    width: 1.2,
                    dashed: true,
                }),
                title: format!("{name}: {}", told(value)),
            }));
            let at = (self.frame.right + GAP, height + font::CAPITAL * TEXT / 2.0);
            let name = font::fitted(name, TEXT, self.names);
            elements.push(label(at, Anchor::Start, name));
        }
    }

    /// Draws the range of several seeds, behind all lines.
    pub(super) fn bands(&self, chart: &Chart, elements: &mut Vec<Element>) {
        for (index, series) in chart.series.iter().enumerate() {
            let edge = |of: fn(&(f64, f64, f64)) -> f64| {
                let places = series.band.iter();
                places.filter_map(move |place| self.at((place.0, of(place))))
            };
            let low: Vec<Point> = edge(|place| place.1).collect();
            if low.len() < 2 {
                continue;
            }
            let outline: Vec<Point> = low.into_iter().rev().chain(edge(|place| place.2)).collect();
            let shape = Shape {
                outline: Outline::Closed(outline),
                fill: Some((Paint::Series(series.rank), VEIL)),
                stroke: None,
                title: String::new(),
            };
            let title = format!("{}: lowest to highest seed", series.name);
            elements.push(group(index, series, title, vec![Element::Shape(shape)]));
        }
    }

    /// Draws lines with markers, each marker with its values.
    pub(super) fn lines(&self, chart: &Chart, elements: &mut Vec<Element>) {
        let (width, size) = match chart.series.len() > CROWD {
            true => (1.2, 0.75 * SIGN),
            false => (2.0, SIGN),
        };
        for (index, series) in chart.series.iter().enumerate() {
            let points = series.points.iter();
            let points: Vec<_> = points
                .filter_map(|point| Some((*point, self.at(*point)?)))
                .collect();
            let places = points.iter().map(|(_, place)| *place).collect();
            let paint = Paint::Series(series.rank);
            let mut parts = vec![Element::Shape(Shape::line(places, paint, width))];
            let every = points.len().div_ceil(SIGNS).max(1);
            // From the end, where runs are compared.
            for (point, place) in points.iter().rev().step_by(every) {
                let mut sign = Shape::sign(*place, series.rank, size);
                sign.title = told_point(series, *point);
                parts.push(Element::Shape(sign));
            }
            elements.push(group(index, series, series.name.clone(), parts));
        }
    }

    /// Draws discs, the small ones on top of the large ones, and their names.
    pub(super) fn bubbles(&self, chart: &Chart, sheet: &Sheet, elements: &mut Vec<Element>) {
        let mut discs: Vec<(usize, &Series, (f64, f64), Named)> = Vec::new();
        for (index, series) in chart.series.iter().enumerate() {
            let Form::Bubble(share) = series.form else {
                continue;
            };
            for point in &series.points {
                let Some(middle) = self.at(*point) else {
                    continue;
                };
                let named = Named {
                    middle,
                    radius: radius(share, sheet),
                    name: &series.name,
                };
                discs.push((index, series, *point, named));
            }
        }
        discs.sort_by(|a, b| b.3.radius.total_cmp(&a.3.radius));
        let (discs, named): (Vec<_>, Vec<_>) = discs
            .into_iter()
            .map(|(index, series, point, named)| ((index, series, point), named))
            .unzip();
        let names = labels::beside(&named, &self.frame, TEXT - 1.0);
        for (((index, series, point), named), name) in discs.into_iter().zip(&named).zip(names) {
            let paint = Paint::Series(series.rank);
            let disc = Shape {
                outline: Outline::Disc(named.middle, named.radius),
                fill: Some((paint, VEIL)),
                stroke: Some(Stroke {
                    paint,
                    width: 1.0,
                    dashed: false,
                }),
                title: String::new(),
            };
            let sign = Shape::sign(named.middle, series.rank, SIGN);
            let parts = [disc, sign].into_iter().map(Element::Shape);
            let parts = parts.chain(name.map(Element::Text)).collect();
            elements.push(group(index, series, told_point(series, point), parts));
        }
    }
}

/// Returns a point of a series in words.
fn told_point(series: &Series, (x, y): (f64, f64)) -> String {
    format!("{}: {} at {}", series.name, told(y), told(x))
}

/// Returns the radius of the disc whose area is a share of the largest disc's.
fn radius(share: f64, sheet: &Sheet) -> f64 {
    sheet.bubble * share.clamp(0.02, 1.0).sqrt()
}

/// Returns whether neighbouring ticks are at least `least` pixels apart and their labels fit
/// between them.
fn apart(ticks: &[(f64, Tick)], width: impl Fn(&(f64, Tick)) -> f64, least: f64) -> bool {
    ticks.windows(2).all(|pair| {
        let room = (width(&pair[0]) + width(&pair[1])) / 2.0;
        (pair[1].0 - pair[0].0).abs() >= room.max(least)
    })
}

fn label(at: Point, anchor: Anchor, words: String) -> Element {
    text(at, anchor, TEXT, Paint::Faint, words)
}
