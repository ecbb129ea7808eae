//! Charts of measurements, as SVG for pages and as SVG and PNG files.
//!
//! A [`Chart`] is data: what it shows and how its axes run. `layout` makes a drawing of it, with
//! every text and sign at its place (`plot` has what lies between the axes), and `svg` and `png`
//! write the drawing down.

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
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// The series that are drawn.
    pub series: Vec<Series>,
    /// Heights to compare with.
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

/// A dashed line across a chart: what needs no model.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// Name of the predictor.
    pub name: String,
    /// Its height, in the unit of the axis upwards.
    pub y: f64,
}

/// The points of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its place among all models, which fixes its colour and sign in every chart alike.
    pub rank: usize,
    /// The points, in the order of a line through them.
    pub points: Vec<(f64, f64)>,
    /// Places to the right with the lowest and the highest value there, from the left: the reach of
    /// several seeds.
    pub band: Vec<(f64, f64, f64)>,
    /// Form in which the points are drawn.
    pub form: Form,
}

/// Form in which the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A line with signs on it.
    Line,
    /// A disc with a sign in its middle; the area is this share (0 to 1) of the largest disc's.
    Bubble(f64),
}

impl Chart {
    /// Returns the chart as an SVG file, which follows light and dark.
    pub fn svg(&self) -> String {
        svg::write(&layout::scene(self, &Sheet::FILE), Place::File)
    }

    /// Returns the chart as the bytes of a PNG file, on light paper.
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
    /// Returns the sign before its name in a legend, as an SVG element.
    pub(crate) fn key(&self) -> String {
        svg::write(&layout::key(self), Place::Page("key"))
    }
}
