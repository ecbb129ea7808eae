//! Many small grey pictures in one PNG, each with a coloured border and a caption.

use std::io;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

/// One picture of a sheet.
#[derive(Debug, Clone, Copy)]
pub struct Picture<'a> {
    /// Grey values row by row; an incomplete last row is left out.
    pub pixels: &'a [u8],
    /// Pixels per row.
    pub width: usize,
    /// Text below the picture: letters, digits and `- . : / # = +`; any other character is a gap.
    pub caption: &'a str,
    /// Index of the colour of border and caption, out of eight.
    pub label: u8,
}

/// Approximate width to which smaller pictures are enlarged, by a whole factor.
const WIDTH: usize = 128;
const BORDER: usize = 3;
const GAP: usize = 6;
const BACKGROUND: [u8; 3] = [28, 28, 28];

/// Pixels per cell of a glyph, and the cells that a glyph takes with the space after it.
const ZOOM: usize = 2;
const ADVANCE: usize = 4 * ZOOM;
const BAND: usize = 5 * ZOOM + GAP;

/// Colours that people with any colour vision can distinguish (Okabe and Ito, 2008).
const COLOURS: [[u8; 3]; 8] = [
    [230, 159, 0],
    [86, 180, 233],
    [0, 158, 115],
    [240, 228, 66],
    [0, 114, 178],
    [213, 94, 0],
    [204, 121, 167],
    [200, 200, 200],
];

/// Glyphs of 3 x 5 cells: one octal digit per row, from the top.
#[rustfmt::skip]
const GLYPHS: &[(char, u16)] = &[
    ('0', 0o75557), ('1', 0o26227), ('2', 0o71747), ('3', 0o71717), ('4', 0o55711),
    ('5', 0o74717), ('6', 0o74757), ('7', 0o71222), ('8', 0o75757), ('9', 0o75717),
    ('A', 0o25755), ('B', 0o65656), ('C', 0o34443), ('D', 0o65556), ('E', 0o74647),
    ('F', 0o74644), ('G', 0o34553), ('H', 0o55755), ('I', 0o72227), ('J', 0o11152),
    ('K', 0o55655), ('L', 0o44447), ('M', 0o57755), ('N', 0o65555), ('O', 0o25552),
    ('P', 0o65644), ('Q', 0o25573), ('R', 0o65655), ('S', 0o34216), ('T', 0o72222),
    ('U', 0o55557), ('V', 0o55552), ('W', 0o55775), ('X', 0o55255), ('Y', 0o55222),
    ('Z', 0o71247), ('-', 0o00700), ('.', 0o00002), (':', 0o02020), ('/', 0o11244),
    ('#', 0o57575), ('=', 0o07070), ('+', 0o02720),
];

/// Returns a sheet of pictures in rows of `columns`, as the bytes of a PNG file.
///
/// # Errors
/// The sheet would be too large for a PNG.
pub fn contact_sheet(pictures: &[Picture<'_>], columns: usize) -> io::Result<Vec<u8>> {
    let columns = columns.clamp(1, pictures.len().max(1));
    let shown = |picture: &Picture<'_>| {
        let scale = (WIDTH / picture.width.max(1)).max(1);
        let height = picture.pixels.len() / picture.width.max(1);
        (picture.width * scale, height * scale)
    };
    let widest = pictures
        .iter()
        .map(|picture| shown(picture).0)
        .max()
        .unwrap_or(1);
    let highest = pictures
        .iter()
        .map(|picture| shown(picture).1)
        .max()
        .unwrap_or(1);
    let cell_width = widest + 2 * BORDER + GAP;
    let cell_height = highest + 2 * BORDER + GAP + BAND;
    let rows = pictures.len().div_ceil(columns).max(1);
    let mut sheet = Sheet::new(columns * cell_width + GAP, rows * cell_height + GAP);
    for (number, picture) in pictures.iter().enumerate() {
        let left = GAP + (number % columns) * cell_width;
        let top = GAP + (number / columns) * cell_height;
        let colour = COLOURS[usize::from(picture.label) % COLOURS.len()];
        let (width, height) = shown(picture);
        sheet.fill(left, top, width + 2 * BORDER, height + 2 * BORDER, colour);
        let scale = width / picture.width.max(1);
        for y in 0..height {
            for x in 0..width {
                let grey = picture.pixels[y / scale * picture.width + x / scale];
                sheet.set(left + BORDER + x, top + BORDER + y, [grey; 3]);
            }
        }
        let fitting = (widest + 2 * BORDER) / ADVANCE;
        for (place, character) in picture.caption.chars().take(fitting).enumerate() {
            let below = top + height + 2 * BORDER + GAP / 2;
            sheet.glyph(left + place * ADVANCE, below, character, colour);
        }
    }
    sheet.png()
}

struct Sheet {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Sheet {
    fn new(width: usize, height: usize) -> Sheet {
        Sheet {
            width,
            height,
            pixels: BACKGROUND.repeat(width * height),
        }
    }

    fn set(&mut self, x: usize, y: usize, colour: [u8; 3]) {
        let start = 3 * (y * self.width + x);
        if let Some(pixel) = self.pixels.get_mut(start..start + 3) {
            pixel.copy_from_slice(&colour);
        }
    }

    fn fill(&mut self, left: usize, top: usize, width: usize, height: usize, colour: [u8; 3]) {
        for y in top..top + height {
            for x in left..left + width {
                self.set(x, y, colour);
            }
        }
    }

    fn glyph(&mut self, left: usize, top: usize, character: char, colour: [u8; 3]) {
        let wanted = character.to_ascii_uppercase();
        let found = GLYPHS.iter().find(|(known, _)| *known == wanted);
        let cells = found.map_or(0, |(_, cells)| *cells);
        for cell in (0..15).filter(|cell| cells >> (14 - cell) & 1 == 1) {
            let (x, y) = (left + cell % 3 * ZOOM, top + cell / 3 * ZOOM);
            self.fill(x, y, ZOOM, ZOOM, colour);
        }
    }

    fn png(self) -> io::Result<Vec<u8>> {
        let side = |length: usize| u32::try_from(length).map_err(io::Error::other);
        let (width, height) = (side(self.width)?, side(self.height)?);
        let mut png = Vec::new();
        PngEncoder::new(&mut png)
            .write_image(&self.pixels, width, height, ExtendedColorType::Rgb8)
            .map_err(io::Error::other)?;
        Ok(png)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_enlarged_framed_and_captioned() {
        let pixels: Vec<u8> = (0..=255).collect();
        let picture = |label| Picture {
            pixels: &pixels,
            width: 16,
            caption: "A1",
            label,
        };
        let png = contact_sheet(&[picture(0), picture(1), picture(8)], 2).unwrap();
        let sheet = image::load_from_memory(&png).unwrap().into_rgb8();
        let cell = 128 + 2 * BORDER + GAP;
        assert_eq!(sheet.width() as usize, 2 * cell + GAP);
        assert_eq!(sheet.height() as usize, 2 * (cell + BAND) + GAP);
        let at = |x: usize, y: usize| sheet.get_pixel(x as u32, y as u32).0;
        assert_eq!(at(GAP, GAP), COLOURS[0]);
        assert_eq!(at(GAP + cell, GAP), COLOURS[1]);
        assert_eq!(at(GAP, GAP + cell + BAND), COLOURS[0]);
        let inside = GAP + BORDER;
        assert_eq!(at(inside + 7, inside + 7), [0; 3]);
        assert_eq!(at(inside + 8, inside + 8), [17; 3]);
        assert_eq!(at(inside + 8, inside), [1; 3]);
        assert_eq!(at(inside, inside + 8), [16; 3]);
        assert_eq!(at(inside + 127, inside + 127), [255; 3]);
        // The top of an A is its middle cell.
        let below = GAP + 128 + 2 * BORDER + GAP / 2;
        assert_eq!(at(GAP, below), BACKGROUND);
        assert_eq!(at(GAP + ZOOM, below), COLOURS[0]);
    }

    #[test]
    fn odd_pictures_make_a_sheet_all_the_same() {
        let odd = |pixels, width| Picture {
            pixels,
            width,
            caption: "ümlaut and a very long caption",
            label: 255,
        };
        let pictures = [odd(&[1, 2, 3][..], 2), odd(&[][..], 0), odd(&[9][..], 300)];
        assert!(contact_sheet(&pictures, 5).is_ok());
        assert!(contact_sheet(&[], 0).is_ok());
    }
}
