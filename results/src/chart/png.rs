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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chart::scene::Stroke;

    /// Returns the places of the dark dots of a drawing of 100 by 60 pixels.
    fn dark(element: Element) -> Vec<Point> {
        let scene = Scene {
            width: 100.0,
            height: 60.0,
            title: String::new(),
            description: String::new(),
            elements: vec![element],
        };
        let picture = Pixmap::decode_png(&encode(&scene).unwrap()).unwrap();
        let width = picture.width() as usize;
        let dots = picture.pixels().iter().enumerate();
        let dark = dots.filter(|(_, dot)| dot.red() < 128);
        let place = |index: usize| ((index % width) as f64, (index / width) as f64);
        dark.map(|(index, _)| {
            let (x, y) = place(index);
            (x / f64::from(DENSITY), y / f64::from(DENSITY))
        })
        .collect()
    }

    fn word(anchor: Anchor) -> Element {
        Element::Text(Text {
            at: (50.0, 40.0),
            anchor,
            size: 20.0,
            paint: Paint::Ink,
            words: "L".to_owned(),
            halo: false,
        })
    }

    fn outline(outline: Outline, dashed: bool) -> Element {
        Element::Shape(Shape {
            outline,
            fill: None,
            stroke: Some(Stroke {
                paint: Paint::Ink,
                width: 2.0,
                dashed,
            }),
            title: String::new(),
        })
    }

    #[test]
    fn text_stands_upright_at_its_anchor() {
        let reach = |anchor: Anchor| {
            let dots = dark(word(anchor));
            let xs = || dots.iter().map(|dot| dot.0);
            (xs().fold(100.0, f64::min), xs().fold(0.0, f64::max))
        };
        assert!(reach(Anchor::Start).0 >= 49.0);
        assert!(reach(Anchor::End).1 <= 51.0);
        let (left, right) = reach(Anchor::Middle);
        assert!(left < 50.0 && right > 50.0, "{left} {right}");
        // The foot of an L is at its base line, which is at 40.
        let dots = dark(word(Anchor::Start));
        let (top, foot): (Vec<&Point>, Vec<&Point>) = dots.iter().partition(|dot| dot.1 < 33.0);
        assert!(!top.is_empty() && foot.len() > top.len());
        assert!(dots.iter().all(|dot| dot.1 < 41.0 && dot.1 > 20.0));
    }

    #[test]
    fn outlines_are_closed_and_dashes_have_gaps() {
        let corners = vec![(20.0, 10.0), (80.0, 10.0), (80.0, 50.0)];
        let middle = |dots: &[Point]| {
            let near = |dot: &&Point| (dot.0 - 50.0).abs() < 2.0 && (dot.1 - 30.0).abs() < 2.0;
            dots.iter().filter(near).count()
        };
        assert_eq!(
            middle(&dark(outline(Outline::Open(corners.clone()), false))),
            0
        );
        assert!(middle(&dark(outline(Outline::Closed(corners), false))) > 0);
        let line = || Outline::Open(vec![(10.0, 30.0), (90.0, 30.0)]);
        let whole = dark(outline(line(), false)).len() as f64;
        let dashed = dark(outline(line(), true)).len() as f64;
        assert!(
            (0.45..0.65).contains(&(dashed / whole)),
            "5 of 9: {dashed} of {whole}"
        );
    }
}
