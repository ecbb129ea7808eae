//! A drawing as PNG, with a light background and two dots per pixel.

use tiny_skia::{
    Color, FillRule, LineJoin, Paint as Brush, Path, PathBuilder, Pixmap, Stroke as Pen,
    StrokeDash, Transform,
};
use ttf_parser::OutlineBuilder;

use super::font;
use super::scene::{Anchor, Element, HALO, Outline, Point, Scene, Shape, Text};
use super::style::Paint;

/// Dots per pixel of the drawing, so that it is sharp on screens with high density.
const DENSITY: f32 = 2.0;

/// Returns the drawing as the bytes of a PNG file, or the reason for a failure.
pub(super) fn encode(scene: &Scene) -> Result<Vec<u8>, String> {
    let dots = |pixels: f64| (DENSITY * pixels as f32).ceil() as u32;
    let (width, height) = (dots(scene.width), dots(scene.height));
    let mut picture =
        Pixmap::new(width, height).ok_or_else(|| format!("{width} by {height} dots"))?;
    picture.fill(colour(Paint::Paper, 1.0));
    for element in &scene.elements {
        draw(&mut picture, element);
    }
    picture.encode_png().map_err(|error| error.to_string())
}

fn draw(picture: &mut Pixmap, element: &Element) {
    match element {
        Element::Shape(one) => shape(picture, one),
        Element::Text(one) => text(picture, one),
        Element::Series { elements, .. } => {
            for one in elements {
                draw(picture, one);
            }
        }
    }
}

fn shape(picture: &mut Pixmap, shape: &Shape) {
    // A shape without extent, such as a line through one point, draws nothing.
    let Some(path) = path(&shape.outline) else {
        return;
    };
    if let Some((paint, opacity)) = shape.fill {
        let brush = brush(paint, opacity);
        picture.fill_path(&path, &brush, FillRule::Winding, density(), None);
    }
    if let Some(stroke) = &shape.stroke {
        let pen = Pen {
            width: stroke.width as f32,
            line_join: LineJoin::Round,
            dash: stroke
                .dashed
                .then(|| StrokeDash::new(vec![5.0, 4.0], 0.0))
                .flatten(),
            ..Pen::default()
        };
        picture.stroke_path(&path, &brush(stroke.paint, 1.0), &pen, density(), None);
    }
}

fn path(outline: &Outline) -> Option<Path> {
    let mut builder = PathBuilder::new();
    match outline {
        Outline::Disc((x, y), radius) => {
            builder.push_circle(*x as f32, *y as f32, *radius as f32);
        }
        Outline::Open(points) | Outline::Closed(points) => {
            let dot = |point: &Point| (point.0 as f32, point.1 as f32);
            let mut dots = points.iter().map(dot);
            let (x, y) = dots.next()?;
            builder.move_to(x, y);
            dots.for_each(|(x, y)| builder.line_to(x, y));
            if matches!(outline, Outline::Closed(_)) {
                builder.close();
            }
        }
    }
    builder.finish()
}

fn text(picture: &mut Pixmap, text: &Text) {
    let width = font::width(&text.words, text.size);
    let left = match text.anchor {
        Anchor::Start => text.at.0,
        Anchor::Middle => text.at.0 - width / 2.0,
        Anchor::End => text.at.0 - width,
    };
    let mut builder = PathBuilder::new();
    font::letters(&text.words, text.size, |glyph, along| {
        let mut pen = LetterPen {
            builder: &mut builder,
            origin: ((left + along) as f32, text.at.1 as f32),
            scale: font::scale(text.size) as f32,
        };
        font::outline(glyph, &mut pen);
    });
    if let Some(path) = builder.finish() {
        if text.halo {
            let pen = Pen {
                width: 2.0 * HALO as f32,
                line_join: LineJoin::Round,
                ..Pen::default()
            };
            picture.stroke_path(&path, &brush(Paint::Paper, 1.0), &pen, density(), None);
        }
        let brush = brush(text.paint, 1.0);
        picture.fill_path(&path, &brush, FillRule::Winding, density(), None);
    }
}

/// Moves the outline of a letter to its place.
struct LetterPen<'a> {
    builder: &'a mut PathBuilder,
    origin: (f32, f32),
    scale: f32,
}

impl LetterPen<'_> {
    fn place(&self, x: f32, y: f32) -> (f32, f32) {
        (
            self.origin.0 + self.scale * x,
            self.origin.1 - self.scale * y,
        )
    }
}

impl OutlineBuilder for LetterPen<'_> {
    fn move_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.builder.move_to(x, y);
    }

    fn line_to(&mut self, x: f32, y: f32) {
        let (x, y) = self.place(x, y);
        self.builder.line_to(x, y);
    }

    fn quad_to(&mut self, x1: f32, y1: f32, x: f32, y: f32) {
        let ((x1, y1), (x, y)) = (self.place(x1, y1), self.place(x, y));
        self.builder.quad_to(x1, y1, x, y);
    }

    fn curve_to(&mut self, x1: f32, y1: f32, x2: f32, y2: f32, x: f32, y: f32) {
        let ((x1, y1), (x2, y2)) = (self.place(x1, y1), self.place(x2, y2));
        let (x, y) = self.place(x, y);
        self.builder.cubic_to(x1, y1, x2, y2, x, y);
    }

    fn close(&mut self) {
        self.builder.close();
    }
}

fn density() -> Transform {
    Transform::from_scale(DENSITY, DENSITY)
}

fn brush(paint: Paint, opacity: f64) -> Brush<'static> {
    let mut brush = Brush::default();
    brush.set_color(colour(paint, opacity));
    brush
}

fn colour(paint: Paint, opacity: f64) -> Color {
    let [red, green, blue] = paint.colour().light;
    Color::from_rgba8(red, green, blue, (255.0 * opacity).round() as u8)
}
