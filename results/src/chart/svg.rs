//! A drawing as SVG. Colours are classes that adapt to light and dark mode. For viewers without
//! style sheets they are also attributes.

use std::fmt::Write;

use super::scene::{Anchor, Element, HALO, Outline, Scene, Shape, Stroke, Text};
use super::style::{self, Paint};
use crate::markup::escaped;

/// Place in which an SVG is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A file, with its own style sheet.
    File,
    /// A page, which has the style sheet once; the element has this class.
    Page(&'static str),
}

/// Returns the drawing as an SVG element.
pub(super) fn write(scene: &Scene, place: Place) -> String {
    let (width, height) = (number(scene.width), number(scene.height));
    let mut svg = match place {
        Place::File => format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" width=\"{width}\" height=\"{height}\""
        ),
        Place::Page(class) => format!("<svg class=\"chart {class}\""),
    };
    let ink = style::hex(Paint::Ink.colour().light);
    let _ = write!(svg, " viewBox=\"0 0 {width} {height}\" color=\"{ink}\"");
    let _ = match scene.description.is_empty() {
        // Next to the words that it belongs to.
        true => writeln!(svg, " aria-hidden=\"true\">"),
        false => writeln!(
            svg,
            " role=\"img\">\n<title>{}</title>\n<desc>{}</desc>",
            escaped(&scene.title),
            escaped(&scene.description)
        ),
    };
    if place == Place::File {
        let _ = writeln!(svg, "<style>\n{}</style>", style::css());
        let _ = writeln!(
            svg,
            "<rect width=\"{width}\" height=\"{height}\" {}/>",
            fill(Paint::Paper, 1.0)
        );
    }
    for one in &scene.elements {
        element(&mut svg, one);
    }
    svg + "</svg>\n"
}

fn element(svg: &mut String, element: &Element) {
    match element {
        Element::Shape(one) => shape(svg, one),
        Element::Text(one) => text(svg, one),
        Element::Series {
            index,
            rank,
            title,
            elements,
        } => {
            let colour = Paint::Series(*rank).colour();
            let _ = writeln!(
                svg,
                "<g class=\"series {}\" color=\"{}\" data-series=\"{index}\">{}",
                colour.name,
                style::hex(colour.light),
                self::title(title)
            );
            for one in elements {
                self::element(svg, one);
            }
            *svg += "</g>\n";
        }
    }
}

fn shape(svg: &mut String, shape: &Shape) {
    let name = match &shape.outline {
        Outline::Disc((x, y), radius) => {
            let _ = write!(
                svg,
                "<circle cx=\"{}\" cy=\"{}\" r=\"{}\"",
                number(*x),
                number(*y),
                number(*radius)
            );
            "circle"
        }
        Outline::Open(points) | Outline::Closed(points) => {
            let open = matches!(shape.outline, Outline::Open(_));
            let name = if open { "polyline" } else { "polygon" };
            let points: Vec<String> = points
                .iter()
                .map(|(x, y)| format!("{},{}", number(*x), number(*y)))
                .collect();
            let _ = write!(svg, "<{name} points=\"{}\"", points.join(" "));
            name
        }
    };
    *svg += " ";
    *svg += &shape.fill.map_or_else(
        || "fill=\"none\"".to_owned(),
        |(paint, opacity)| fill(paint, opacity),
    );
    if let Some(stroke) = &shape.stroke {
        *svg += &self::stroke(stroke);
    }
    let _ = match shape.title.is_empty() {
        true => writeln!(svg, "/>"),
        false => writeln!(svg, ">{}</{name}>", title(&shape.title)),
    };
}

/// Returns the element with the text shown when the pointer rests on a shape.
fn title(words: &str) -> String {
    match words.is_empty() {
        true => String::new(),
        false => format!("<title>{}</title>", escaped(words)),
    }
}

/// Returns the class of a colour, and the colour for viewers without style sheets. A series names
/// its own colour once.
fn colour(paint: Paint) -> String {
    match paint {
        Paint::Series(_) => String::new(),
        paint => {
            let colour = paint.colour();
            format!(
                " class=\"{}\" color=\"{}\"",
                colour.name,
                style::hex(colour.light)
            )
        }
    }
}

fn fill(paint: Paint, opacity: f64) -> String {
    let opacity = match opacity {
        1.0 => String::new(),
        opacity => format!(" fill-opacity=\"{opacity}\""),
    };
    match paint {
        // A separate property, since the stroke has another colour.
        Paint::Paper => format!(
            "class=\"fill-paper\" fill=\"{}\"{opacity}",
            style::hex(paint.colour().light)
        ),
        paint => format!("fill=\"currentColor\"{opacity}{}", colour(paint)),
    }
}

fn stroke(stroke: &Stroke) -> String {
    let dashes = if stroke.dashed {
        " stroke-dasharray=\"5 4\""
    } else {
        ""
    };
    format!(
        " stroke=\"currentColor\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dashes}{}",
        stroke.width,
        colour(stroke.paint)
    )
}

fn text(svg: &mut String, text: &Text) {
    let anchor = match text.anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let halo = match text.halo {
        true => format!(
            " stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\" paint-order=\"stroke\"",
            style::hex(Paint::Paper.colour().light),
            2.0 * HALO
        ),
        false => String::new(),
    };
    let _ = writeln!(
        svg,
        "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor} fill=\"currentColor\"{halo}{}>{}</text>",
        number(text.at.0),
        number(text.at.1),
        text.size,
        colour(text.paint),
        escaped(&text.words)
    );
}

/// Returns a length as text, to a tenth of a pixel, since less is not visible.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_its_anchor_and_a_line_its_dashes() {
        let of = |anchor: Anchor| {
            let mut svg = String::new();
            let words = Text {
                at: (1.25, 2.0),
                anchor,
                size: 13.0,
                paint: Paint::Ink,
                words: "a<b".to_owned(),
                halo: false,
            };
            text(&mut svg, &words);
            svg
        };
        assert!(!of(Anchor::Start).contains("text-anchor"));
        assert!(of(Anchor::Middle).contains("text-anchor=\"middle\""));
        assert!(
            of(Anchor::End).contains("text-anchor=\"end\"") && of(Anchor::End).contains("a&lt;b")
        );
        let line = |dashed: bool| {
            let mut svg = String::new();
            let mut line = Shape::line(vec![(0.0, 1.0), (2.5, 3.04)], Paint::Faint, 1.2);
            line.stroke.as_mut().unwrap().dashed = dashed;
            shape(&mut svg, &line);
            svg
        };
        assert!(line(false).starts_with("<polyline points=\"0,1 2.5,3\" fill=\"none\""));
        assert!(line(true).contains("stroke-dasharray") && !line(false).contains("dasharray"));
    }
}
