//! Charts of measurements, as SVG for pages and as SVG and PNG files.
//!
//! A [`Chart`] is data: its series and its axes. `layout` turns it into a drawing, with a place for
//! every text and marker (`plot` draws the part between the axes). `svg` and `png` write the
//! drawing.

mod figures;
mod font;
mod groups;
mod labels;
mod layout;
mod lengths;
mod names;
mod plot;
mod png;
mod scale;
mod scene;
pub(crate) mod style;
mod svg;

pub use figures::{bubbles, curves};
pub use lengths::{lengths, slope};
pub(crate) use names::slug;
pub use scale::Scale;

use layout::Sheet;
use svg::Place;

use crate::{Error, Result};

/// Contents of a chart.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// A word that names its file: `curves-listops`.
    pub name: String,
    /// The line above it.
    pub title: String,
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series that are drawn.
    pub series: Vec<Series>,
    /// Values to compare with.
    pub baselines: Vec<Baseline>,
    /// Sentences for below it.
    pub notes: Vec<String>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// Scale of the axis.
    pub scale: Scale,
}

impl Axis {
    /// Returns an axis.
    pub fn new(label: impl Into<String>, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            scale,
        }
    }
}

/// A dashed line across a chart: the score of a trivial predictor.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Name of the predictor.
    pub name: String,
    /// Its height, in the unit of the vertical axis.
    pub y: f64,
}

/// The points of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its rank among all models, which determines its colour and marker in every chart.
    pub rank: usize,
    /// The points, in the order of a line through them.
    pub points: Vec<(f64, f64)>,
    /// Horizontal positions, each with the lowest and the highest value over several seeds, from
    /// the left.
    pub band: Vec<(f64, f64, f64)>,
    /// Form in which the points are drawn.
    pub form: Form,
}

/// Form in which the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A line with markers.
    Line,
    /// A disc with a marker at its centre; the area is this fraction (0 to 1) of the largest
    /// disc's.
    Bubble(f64),
}

impl Chart {
    /// Returns the chart as an SVG file, which adapts to light and dark mode.
    pub fn svg(&self) -> String {
        svg::write(&layout::scene(self, &Sheet::FILE), Place::File)
    }

    /// Returns the chart as the bytes of a PNG file, with a light background.
    ///
    /// # Errors
    /// [`Error::Chart`] if it cannot be drawn.
    pub fn png(&self) -> Result<Vec<u8>> {
        png::encode(&layout::scene(self, &Sheet::FILE)).map_err(|reason| Error::Chart {
            name: self.name.clone(),
            reason,
        })
    }

    /// Returns the chart as SVG elements within a page, without title and legend: one for wide
    /// windows, of class `wide`, and one for narrow ones, of class `narrow`. They need
    /// [`style::css`].
    pub(crate) fn elements(&self) -> String {
        [("wide", Sheet::WIDE), ("narrow", Sheet::NARROW)]
            .map(|(class, sheet)| svg::write(&layout::scene(self, &sheet), Place::Page(class)))
            .concat()
    }
}

impl Series {
    /// Returns the marker before its name in a legend, as an SVG element.
    pub(crate) fn key(&self) -> String {
        svg::write(&layout::key(self), Place::Page("key"))
    }
}
