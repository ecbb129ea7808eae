//! A drawing before it is written: shapes and text with positions in pixels from the top left.

use super::font;
use super::style::{Paint, Sign};

/// A position.
pub(super) type Point = (f64, f64);

/// A drawing.
pub(super) struct Scene {
    pub(super) width: f64,
    pub(super) height: f64,
    /// Its title.
    pub(super) title: String,
    /// Description of the picture, for readers who do not see it.
    pub(super) description: String,
    pub(super) elements: Vec<Element>,
}

/// A part of a drawing.
pub(super) enum Element {
    Shape(Shape),
    Text(Text),
    /// Elements of one series, with its index and rank. They are hidden together.
    Series {
        index: usize,
        rank: usize,
        title: String,
        elements: Vec<Element>,
    },
}

/// Something with an outline.
pub(super) struct Shape {
    pub(super) outline: Outline,
    /// Paint and opacity of the inside.
    pub(super) fill: Option<(Paint, f64)>,
    pub(super) stroke: Option<Stroke>,
    /// Text shown when the pointer rests on it; empty for none.
    pub(super) title: String,
}

pub(super) enum Outline {
    /// Points joined by straight lines.
    Open(Vec<Point>),
    /// Points joined by straight lines, the last one to the first.
    Closed(Vec<Point>),
    /// Middle and radius.
    Disc(Point, f64),
}

pub(super) struct Stroke {
    pub(super) paint: Paint,
    pub(super) width: f64,
    pub(super) dashed: bool,
}

/// A line of text.
pub(super) struct Text {
    /// Point at which its base line begins, has its middle or ends.
    pub(super) at: Point,
    pub(super) anchor: Anchor,
    pub(super) size: f64,
    pub(super) paint: Paint,
    pub(super) words: String,
    /// True if the letters have a halo of background, for text on top of lines.
    pub(super) halo: bool,
}

/// Width of the halo around letters.
pub(super) const HALO: f64 = 1.5;

/// The part of a text that its position refers to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rect {
    pub(super) left: f64,
    pub(super) top: f64,
    pub(super) right: f64,
    pub(super) bottom: f64,
}

impl Rect {
    /// Returns the square around a position that extends by `reach` to each side.
    pub(super) fn around((x, y): Point, reach: f64) -> Rect {
        Rect {
            left: x - reach,
            top: y - reach,
            right: x + reach,
            bottom: y + reach,
        }
    }

    /// Returns whether two rectangles share more than an edge.
    pub(super) fn overlaps(&self, other: &Rect) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// Returns whether it contains the whole of another rectangle.
    pub(super) fn holds(&self, other: &Rect) -> bool {
        self.left <= other.left
            && self.top <= other.top
            && self.right >= other.right
            && self.bottom >= other.bottom
    }
}

impl Text {
    /// Returns the area that it covers.
    pub(super) fn bounds(&self) -> Rect {
        let width = font::width(&self.words, self.size);
        let (x, y) = self.at;
        let left = match self.anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2.0,
            Anchor::End => x - width,
        };
        Rect {
            left,
            top: y - font::CAPITAL * self.size,
            right: left + width,
            bottom: y + font::BELOW * self.size,
        }
    }
}

impl Shape {
    /// Returns a line.
    pub(super) fn line(points: Vec<Point>, paint: Paint, width: f64) -> Shape {
        Shape {
            outline: Outline::Open(points),
            fill: None,
            stroke: Some(Stroke {
                paint,
                width,
                dashed: false,
            }),
            title: String::new(),
        }
    }

    /// Returns the marker of a series, as large as a disc of `radius`.
    pub(super) fn sign((x, y): Point, rank: usize, radius: f64) -> Shape {
        let sign = Sign::of(rank);
        let corners = sign.corners.iter();
        let corners: Vec<Point> = corners
            .map(|(right, down)| (x + radius * right, y + radius * down))
            .collect();
        let paint = Paint::Series(rank);
        Shape {
            outline: match corners.is_empty() {
                true => Outline::Disc((x, y), radius),
                false => Outline::Closed(corners),
            },
            fill: Some((if sign.filled { paint } else { Paint::Paper }, 1.0)),
            stroke: Some(Stroke {
                paint,
                width: 1.0,
                dashed: false,
            }),
            title: String::new(),
        }
    }

    /// Returns the area that it covers, without the width of its stroke.
    #[cfg(test)]
    pub(super) fn bounds(&self) -> Rect {
        let points = match &self.outline {
            Outline::Disc(middle, radius) => return Rect::around(*middle, *radius),
            Outline::Open(points) | Outline::Closed(points) => points,
        };
        let edge = |of: fn(&Point) -> f64, pick: fn(f64, f64) -> f64| {
            points.iter().map(of).reduce(pick).unwrap_or_default()
        };
        Rect {
            left: edge(|point| point.0, f64::min),
            top: edge(|point| point.1, f64::min),
            right: edge(|point| point.0, f64::max),
            bottom: edge(|point| point.1, f64::max),
        }
    }
}
