//! Finds a place for everything in a chart. Margins are as wide as the labels in them, so that nothing is cut off.

use super::labels::{self, Named};
use super::scale::{Mapping, Tick, told};
use super::scene::{Anchor, Element, Outline, Point, Rect, Scene, Shape, Stroke, Text};
use super::style::Paint;
use super::{Chart, Form, Series, font};

/// What a chart is drawn on. Lengths are in pixels.
pub(super) struct Sheet {
    width: f64,
    /// Height of the part between the axes.
    plot: f64,
    /// Radius of the largest bubble.
    bubble: f64,
    /// Whether title and legend are part of the drawing.
    whole: bool,
}

impl Sheet {
    /// A file of its own.
    pub(super) const FILE: Sheet = Sheet {
        width: 920.0,
        plot: 360.0,
        bubble: 26.0,
        whole: true,
    };
    /// Within a page as wide as its text.
    pub(super) const WIDE: Sheet = Sheet {
        whole: false,
        ..Sheet::FILE
    };
    /// Within a page on a telephone.
    pub(super) const NARROW: Sheet = Sheet {
        width: 368.0,
        plot: 280.0,
        bubble: 18.0,
        whole: false,
    };
}

/// Pixels between parts of a drawing.
const GAP: f64 = 8.0;
/// Size of a title.
const TITLE: f64 = 17.0;
/// Size of other text.
const TEXT: f64 = 13.0;
/// Radius of signs.
const SIGN: f64 = 3.6;
/// Signs on a line at most; the line has a sign at each point where it has fewer.
const SIGNS: usize = 12;
/// Opacity of discs and bands, which lie upon each other.
const VEIL: f64 = 0.16;
/// Of more series than this, lines are thin and their signs small.
const CROWD: usize = 12;
/// Width of the sign in a legend.
const KEY: f64 = 26.0;
/// Height of a row of a legend.
const ROW: f64 = 20.0;

/// Makes a drawing of a chart.
pub(super) fn scene(chart: &Chart, sheet: &Sheet) -> Scene {
    let mut elements = Vec::new();
    let mut top = GAP;
    if sheet.whole {
        for line in font::lines(&chart.title, TITLE, sheet.width - 4.0 * GAP) {
            top += 1.3 * TITLE;
            let middle = (sheet.width / 2.0, top - font::BELOW * TITLE);
            elements.push(text(middle, Anchor::Middle, TITLE, Paint::Ink, line));
        }
        top += GAP;
    }
    let plot = Plot::new(chart, sheet, top);
    plot.axes(chart, &mut elements);
    plot.baselines(chart, &mut elements);
    plot.bands(chart, &mut elements);
    match chart.series.iter().any(|series| series.form == Form::Line) {
        true => plot.lines(chart, &mut elements),
        false => plot.bubbles(chart, sheet, &mut elements),
    }
    // Ticks and the name of the axis lie below.
    let mut height = plot.frame.bottom + 2.0 * (TEXT + GAP) + GAP;
    if sheet.whole {
        height = legend(chart, sheet, height + GAP, &mut elements) + GAP;
    }
    Scene {
        width: sheet.width,
        height,
        title: chart.title.clone(),
        description: description(chart),
        elements,
    }
}

/// What a chart shows, in a sentence.
fn description(chart: &Chart) -> String {
    let names: Vec<&str> = chart.series.iter().map(|one| one.name.as_str()).collect();
    format!(
        "{} over {} of {}.",
        chart.y.label,
        chart.x.label,
        names.join(", ")
    )
}

/// The part between the axes, and where values stand in it.
struct Plot {
    frame: Rect,
    x: Mapping,
    y: Mapping,
    x_ticks: Vec<(f64, Tick)>,
    y_ticks: Vec<(f64, Tick)>,
}

impl Plot {
    fn new(chart: &Chart, sheet: &Sheet, top: f64) -> Plot {
        let reach = |series: &Series| match series.form {
            Form::Line => SIGN,
            Form::Bubble(share) => radius(share, sheet),
        };
        let inset = chart.series.iter().map(reach).fold(SIGN, f64::max) + 4.0;
        // The name of the axis upwards stands above it.
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
        let names = widest(&mut names.map(|one| font::width(&one.name, TEXT) + GAP));
        let mut right = sheet.width - GAP - names;
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
        }
    }

    /// Where a point of the data stands, if it has a place.
    fn at(&self, (x, y): (f64, f64)) -> Option<Point> {
        Some((self.x.at(x)?, self.y.at(y)?))
    }

    /// The grid, the ticks, and the names of the axes.
    fn axes(&self, chart: &Chart, elements: &mut Vec<Element>) {
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

    /// Dashed lines across, with their names to the right.
    fn baselines(&self, chart: &Chart, elements: &mut Vec<Element>) {
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
            elements.push(label(at, Anchor::Start, name.to_owned()));
        }
    }

    /// The reach of several seeds, behind all lines.
    fn bands(&self, chart: &Chart, elements: &mut Vec<Element>) {
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
            elements.push(self::series(
                index,
                series,
                title,
                vec![Element::Shape(shape)],
            ));
        }
    }

    fn lines(&self, chart: &Chart, elements: &mut Vec<Element>) {
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
            // From the end: that is where a run is compared with another.
            for (point, place) in points.iter().rev().step_by(every) {
                let mut sign = Shape::sign(*place, series.rank, size);
                sign.title = told_point(series, *point);
                parts.push(Element::Shape(sign));
            }
            elements.push(self::series(index, series, series.name.clone(), parts));
        }
    }

    /// Discs, the small ones before the large ones, and names beside them.
    fn bubbles(&self, chart: &Chart, sheet: &Sheet, elements: &mut Vec<Element>) {
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
            elements.push(self::series(
                index,
                series,
                told_point(series, point),
                parts,
            ));
        }
    }
}

/// The legend, in rows from `top` on. Returns where it ends.
fn legend(chart: &Chart, sheet: &Sheet, top: f64, elements: &mut Vec<Element>) -> f64 {
    let room = sheet.width - 2.0 * GAP;
    let most = room - KEY - GAP;
    let names = chart.series.iter();
    let names: Vec<String> = names
        .map(|one| font::fitted(&one.name, TEXT, most))
        .collect();
    let widest = names.iter().map(|name| font::width(name, TEXT));
    let cell = KEY + GAP + widest.fold(0.0, f64::max) + 2.0 * GAP;
    let columns = ((room + 2.0 * GAP) / cell).floor().max(1.0) as usize;
    let rows = names.len().div_ceil(columns);
    for (index, (series, name)) in chart.series.iter().zip(names).enumerate() {
        // Down the columns, so that neighbours in the order of the tables stand below each other.
        let (column, row) = (index / rows, index % rows);
        let left = GAP + column as f64 * cell;
        let middle = top + (row as f64 + 0.5) * ROW;
        let mut parts = sign_of(series, (left + KEY / 2.0, middle));
        let at = (left + KEY + GAP, middle + font::CAPITAL * TEXT / 2.0);
        parts.push(text(at, Anchor::Start, TEXT, Paint::Ink, name));
        elements.push(self::series(index, series, series.name.clone(), parts));
    }
    top + rows as f64 * ROW
}

/// The sign of a series alone.
pub(super) fn key(series: &Series) -> Scene {
    Scene {
        width: KEY,
        height: ROW,
        title: String::new(),
        description: String::new(),
        elements: vec![self::series(
            0,
            series,
            String::new(),
            sign_of(series, (KEY / 2.0, ROW / 2.0)),
        )],
    }
}

/// What stands for a series in a legend, about a place.
fn sign_of(series: &Series, (x, y): Point) -> Vec<Element> {
    let reach = KEY / 2.0;
    let line = || {
        Shape::line(
            vec![(x - reach, y), (x + reach, y)],
            Paint::Series(series.rank),
            2.0,
        )
    };
    let line = (series.form == Form::Line).then(line);
    let sign = Shape::sign((x, y), series.rank, SIGN + 0.6);
    line.into_iter().chain([sign]).map(Element::Shape).collect()
}

fn series(index: usize, series: &Series, title: String, elements: Vec<Element>) -> Element {
    Element::Series {
        index,
        rank: series.rank,
        title,
        elements,
    }
}

/// A point of a series in words.
fn told_point(series: &Series, (x, y): (f64, f64)) -> String {
    format!("{}: {} at {}", series.name, told(y), told(x))
}

/// Radius of the disc whose area is a share of the largest disc's.
fn radius(share: f64, sheet: &Sheet) -> f64 {
    sheet.bubble * share.clamp(0.02, 1.0).sqrt()
}

/// Whether neighbours among ticks are at least `least` pixels apart, and the widths of both have room.
fn apart(ticks: &[(f64, Tick)], width: impl Fn(&(f64, Tick)) -> f64, least: f64) -> bool {
    ticks.windows(2).all(|pair| {
        let room = (width(&pair[0]) + width(&pair[1])) / 2.0;
        (pair[1].0 - pair[0].0).abs() >= room.max(least)
    })
}

fn label(at: Point, anchor: Anchor, words: String) -> Element {
    text(at, anchor, TEXT, Paint::Faint, words)
}

fn text(at: Point, anchor: Anchor, size: f64, paint: Paint, words: String) -> Element {
    Element::Text(Text {
        at,
        anchor,
        size,
        paint,
        words,
        halo: false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::{Axis, Baseline, Scale};

    /// A chart of so many series with names of all lengths, and of values that lie close together and far apart.
    fn chart(count: usize, form: fn(usize) -> Form, scale: Scale) -> Chart {
        let series = (0..count).map(|index| {
            let height = |step: usize| 20.0 + ((7 * index + 3 * step) % 11) as f64;
            Series {
                name: format!("model_{index} {}", "with=options ".repeat(index % 4)),
                rank: index,
                points: match form(index) {
                    Form::Line => (1..40)
                        .map(|step| (250.0 * step as f64, height(step)))
                        .collect(),
                    Form::Bubble(_) => vec![(1.5f64.powi(index as i32 % 9), height(0))],
                },
                band: (1..40)
                    .filter(|_| form(index) == Form::Line)
                    .map(|step| (250.0 * step as f64, height(step) - 2.0, height(step) + 2.0))
                    .collect(),
                form: form(index),
            }
        });
        let baseline = |name: &str, y| Baseline {
            name: name.to_owned(),
            y,
        };
        Chart {
            name: "chart".to_owned(),
            title: "listops@256 (synthetic), recipe nystromformer: learning curves ".repeat(2),
            x: Axis::new("training speed, steps/s", scale),
            y: Axis::new("test accuracy, %", Scale::Linear),
            series: series.collect(),
            baselines: vec![
                baseline("majority", 20.1),
                baseline("bag of tokens", 20.2),
                baseline("first token only", 36.3),
            ],
            notes: vec![],
        }
    }

    fn bubble(index: usize) -> Form {
        Form::Bubble(1.0 / (1 + index) as f64)
    }

    const SHEETS: [Sheet; 3] = [Sheet::FILE, Sheet::WIDE, Sheet::NARROW];

    fn all(sheets: &[Sheet]) -> Vec<(Chart, &Sheet, Scene)> {
        let mut all = Vec::new();
        for count in [0, 1, 3, 14, 61] {
            for (form, scale) in [
                ((|_| Form::Line) as fn(usize) -> Form, Scale::Linear),
                (|_| Form::Line, Scale::Doubling),
                (bubble, Scale::Log),
            ] {
                for sheet in sheets {
                    let chart = chart(count, form, scale);
                    let scene = scene(&chart, sheet);
                    all.push((chart, sheet, scene));
                }
            }
        }
        all
    }

    /// Every shape and every text, with those of series.
    fn parts(elements: &[Element]) -> Vec<&Element> {
        let each = elements.iter().flat_map(|element| match element {
            Element::Series { elements, .. } => parts(elements),
            other => vec![other],
        });
        each.collect()
    }

    fn texts(scene: &Scene) -> Vec<&Text> {
        let parts = parts(&scene.elements).into_iter();
        parts
            .filter_map(|part| match part {
                Element::Text(text) => Some(text),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn everything_lies_within_the_drawing() {
        for (chart, _, scene) in all(&SHEETS) {
            let sheet = Rect {
                left: 0.0,
                top: 0.0,
                right: scene.width,
                bottom: scene.height,
            };
            for part in parts(&scene.elements) {
                let (bounds, what) = match part {
                    Element::Shape(shape) => (shape.bounds(), "a shape"),
                    Element::Text(text) => (text.bounds(), text.words.as_str()),
                    Element::Series { .. } => continue,
                };
                let series = chart.series.len();
                assert!(
                    sheet.holds(&bounds),
                    "{what} of {series} series: {bounds:?}"
                );
            }
        }
    }

    #[test]
    fn no_text_lies_on_another() {
        for (chart, _, scene) in all(&SHEETS) {
            let texts = texts(&scene);
            for (index, one) in texts.iter().enumerate() {
                for other in &texts[..index] {
                    let series = chart.series.len();
                    assert!(
                        !one.bounds().overlaps(&other.bounds()),
                        "{:?} on {:?}, {series} series",
                        one.words,
                        other.words
                    );
                }
            }
        }
    }

    /// Discs lie on neither axis nor title.
    #[test]
    fn discs_and_lines_stay_between_the_axes() {
        for (chart, sheet, scene) in all(&[Sheet::WIDE, Sheet::NARROW]) {
            let frame = Plot::new(&chart, sheet, GAP).frame;
            for element in &scene.elements {
                let Element::Series { elements, .. } = element else {
                    continue;
                };
                for part in elements {
                    let Element::Shape(shape) = part else {
                        continue;
                    };
                    assert!(
                        frame.holds(&shape.bounds()),
                        "{} series",
                        chart.series.len()
                    );
                }
            }
        }
    }

    #[test]
    fn a_chart_has_ticks_on_both_axes() {
        for (chart, _, scene) in all(&SHEETS) {
            let texts = texts(&scene);
            let numbers = |anchor| {
                let own = texts.iter().filter(|text| text.anchor == anchor);
                let digits =
                    own.filter(|text| text.words.starts_with(|c: char| c.is_ascii_digit()));
                digits.count()
            };
            let series = chart.series.len();
            assert!((2..=20).contains(&numbers(Anchor::End)), "{series}");
            assert!((2..=20).contains(&numbers(Anchor::Middle)), "{series}");
        }
    }

    #[test]
    fn a_series_without_a_place_is_in_the_legend_alone() {
        let mut chart = chart(2, |_| Form::Line, Scale::Log);
        chart.series[1].points = vec![(0.0, 1.0), (-3.0, f64::NAN)];
        chart.series[1].band.clear();
        let scene = scene(&chart, &Sheet::FILE);
        let words: Vec<&str> = texts(&scene)
            .iter()
            .map(|text| text.words.as_str())
            .collect();
        assert!(
            words.iter().any(|word| word.starts_with("model_1")),
            "{words:?}"
        );
    }
}
