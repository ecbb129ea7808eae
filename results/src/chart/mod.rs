//! Charts of measurements, as SVG for pages and as PNG for everything else.
//!
//! A [`Chart`] is data: what it shows and how its axes run. [`Chart::svg`] and [`Chart::png`] draw it.

mod draw;
mod figures;
mod lengths;
mod scale;

pub use figures::{bubbles, curves};
pub use lengths::{lengths, slope};
pub use scale::Scale;

use plotters::prelude::{BitMapBackend, DrawingBackend, IntoDrawingArea, SVGBackend};

use crate::{Error, Result};

/// Width of a drawing in pixels.
const WIDTH: u32 = 920;
/// Height of a drawing in pixels.
const HEIGHT: u32 = 440;

/// What a chart shows.
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
    /// What is drawn.
    pub series: Vec<Series>,
    /// Sentences for below it.
    pub notes: Vec<String>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Quantity and unit.
    pub label: String,
    /// How it runs.
    pub scale: Scale,
}

impl Axis {
    /// An axis.
    pub fn new(label: impl Into<String>, scale: Scale) -> Axis {
        Axis {
            label: label.into(),
            scale,
        }
    }
}

/// The points of one model.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its place among all models, which fixes its colour and marker in every chart alike.
    pub rank: usize,
    /// The points, in the order of a line through them.
    pub points: Vec<(f64, f64)>,
    /// Whether a line joins them, or each is a bubble whose area says the share of the largest value (0 to 1).
    pub form: Form,
}

/// How the points of a series are drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Form {
    /// A line with a marker at each point.
    Line,
    /// A disc; the area is this share of the largest disc's.
    Bubble(f64),
}

impl Chart {
    /// The chart as an SVG element.
    ///
    /// # Errors
    /// [`Error::Chart`] if it cannot be drawn.
    pub fn svg(&self) -> Result<String> {
        let mut text = String::new();
        self.on(SVGBackend::with_string(&mut text, (WIDTH, HEIGHT)))?;
        Ok(text)
    }

    /// The chart as the bytes of a PNG file.
    ///
    /// # Errors
    /// [`Error::Chart`] if it cannot be drawn.
    pub fn png(&self) -> Result<Vec<u8>> {
        let mut pixels = vec![0; (WIDTH * HEIGHT * 3) as usize];
        self.on(BitMapBackend::with_buffer(&mut pixels, (WIDTH, HEIGHT)))?;
        let mut bytes = std::io::Cursor::new(Vec::new());
        let written = image::write_buffer_with_format(
            &mut bytes,
            &pixels,
            WIDTH,
            HEIGHT,
            image::ExtendedColorType::Rgb8,
            image::ImageFormat::Png,
        );
        written.map_err(|error| self.wrong(error))?;
        Ok(bytes.into_inner())
    }

    fn on<B: DrawingBackend>(&self, backend: B) -> Result<()> {
        let area = backend.into_drawing_area();
        draw::chart(&area, self).map_err(|error| self.wrong(error))?;
        area.present().map_err(|error| self.wrong(error))
    }

    fn wrong(&self, error: impl std::fmt::Display) -> Error {
        Error::Chart {
            name: self.name.clone(),
            reason: error.to_string(),
        }
    }
}
