//! The font of charts: widths of text, and outlines of letters.

use std::sync::LazyLock;

use ttf_parser::{Face, GlyphId, OutlineBuilder};

/// Sans-serif faces of other systems are narrower, so text that fits in this one fits in those.
static FACE: LazyLock<Face<'static>> = LazyLock::new(|| {
    Face::parse(dejavu::sans::regular(), 0).expect("the bytes are part of the program, and a font")
});

/// Height of a capital letter over the size of its text.
pub(super) const CAPITAL: f64 = 0.73;
/// Depth of letters below the base line, as a fraction of the text's size.
pub(super) const BELOW: f64 = 0.24;

/// Returns the width of a text in pixels at a size in pixels.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = glyphs(text).map(|(_, advance)| advance).sum();
    units * scale(size)
}

/// Returns the text, cut off with an ellipsis if it is wider than `most` pixels.
pub(super) fn fitted(text: &str, size: f64, most: f64) -> String {
    if width(text, size) <= most {
        return text.to_owned();
    }
    let room = most - width("…", size);
    let mut kept = String::new();
    for character in text.chars() {
        kept.push(character);
        if width(&kept, size) > room {
            kept.pop();
            break;
        }
    }
    kept.trim_end().to_owned() + "…"
}

/// Returns the text in lines of at most `most` pixels; a word that is wider is cut off.
pub(super) fn lines(text: &str, size: f64, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let longer = lines.last().map(|line| format!("{line} {word}"));
        match (longer, lines.last_mut()) {
            (Some(longer), Some(line)) if width(&longer, size) <= most => *line = longer,
            _ => lines.push(fitted(word, size, most)),
        }
    }
    lines
}

/// Calls `draw` with each letter of a text and its start on the line in pixels.
pub(super) fn letters(text: &str, size: f64, mut draw: impl FnMut(GlyphId, f64)) {
    let mut at = 0.0;
    for (glyph, advance) in glyphs(text) {
        draw(glyph, at);
        at += advance * scale(size);
    }
}

/// Draws the outline of a letter with `pen`, in units of the font, upwards. Spaces have none.
pub(super) fn outline(glyph: GlyphId, pen: &mut dyn OutlineBuilder) {
    let _ = FACE.outline_glyph(glyph, pen);
}

/// Returns the number of pixels to a unit of the font.
pub(super) fn scale(size: f64) -> f64 {
    size / f64::from(FACE.units_per_em())
}

/// Returns the glyphs with their advances in units of the font. A missing glyph is a box.
fn glyphs(text: &str) -> impl Iterator<Item = (GlyphId, f64)> {
    text.chars().map(|character| {
        let glyph = FACE.glyph_index(character).unwrap_or(GlyphId(0));
        let advance = FACE.glyph_hor_advance(glyph).unwrap_or(0);
        (glyph, f64::from(advance))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_those_of_the_font() {
        // 1303 of 2048 units a digit.
        assert!((width("1000", 20.48) - 4.0 * 13.03).abs() < 1e-9);
        assert_eq!(width("", 13.0), 0.0);
    }

    #[test]
    fn text_is_cut_off_where_the_room_ends() {
        assert_eq!(fitted("short", 13.0, 100.0), "short");
        let cut = fitted("a name that is longer than that", 13.0, 100.0);
        assert!(cut.ends_with('…') && width(&cut, 13.0) <= 100.0, "{cut}");
        assert!(cut.starts_with("a name"), "{cut}");
    }

    #[test]
    fn lines_hold_what_they_have_room_for() {
        let lines = lines(
            "listops, recipe nystromformer: learning curves",
            13.0,
            160.0,
        );
        assert_eq!(
            lines.join(" "),
            "listops, recipe nystromformer: learning curves"
        );
        assert!(lines.len() > 1 && lines.iter().all(|line| width(line, 13.0) <= 160.0));
        assert!(super::lines("", 13.0, 100.0).is_empty());
    }
}
