//! Layout of all elements of a chart. Margins are as wide as their labels, so that nothing is cut
//! off.

use super::plot::Plot;
use super::scene::{Anchor, Element, Point, Scene, Shape, Text};
use super::style::Paint;
use super::{Chart, Form, Series, font};

#[cfg(test)]
mod tests;

/// The sheet that a chart is drawn on. Lengths are in pixels.
pub(super) struct Sheet {
    pub(super) width: f64,
    /// Height of the part between the axes.
    pub(super) plot: f64,
    /// Radius of the largest bubble.
    pub(super) bubble: f64,
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
pub(super) const GAP: f64 = 8.0;
/// Size of a title.
const TITLE: f64 = 17.0;
/// Size of other text.
pub(super) const TEXT: f64 = 13.0;
/// Radius of markers.
pub(super) const SIGN: f64 = 3.6;
/// Width of the marker in a legend.
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
    // Ticks and the name of the axis are below.
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

/// Returns a sentence that describes a chart.
fn description(chart: &Chart) -> String {
    let names: Vec<&str> = chart.series.iter().map(|one| one.name.as_str()).collect();
    format!(
        "{} over {} of {}.",
        chart.y.label,
        chart.x.label,
        names.join(", ")
    )
}

/// Draws the legend, in rows from `top` on. Returns the height at which it ends.
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
        elements.push(group(index, series, series.name.clone(), parts));
    }
    top + rows as f64 * ROW
}

/// Returns the marker of a series by itself.
pub(super) fn key(series: &Series) -> Scene {
    Scene {
        width: KEY,
        height: ROW,
        title: String::new(),
        description: String::new(),
        elements: vec![group(
            0,
            series,
            String::new(),
            sign_of(series, (KEY / 2.0, ROW / 2.0)),
        )],
    }
}

/// Returns the marker of a series in a legend, around a point.
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

pub(super) fn group(
    index: usize,
    series: &Series,
    title: String,
    elements: Vec<Element>,
) -> Element {
    Element::Series {
        index,
        rank: series.rank,
        title,
        elements,
    }
}

pub(super) fn text(at: Point, anchor: Anchor, size: f64, paint: Paint, words: String) -> Element {
    Element::Text(Text {
        at,
        anchor,
        size,
        paint,
        words,
        halo: false,
    })
}
