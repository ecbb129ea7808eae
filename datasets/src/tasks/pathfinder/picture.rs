//! Display of an image in the terminal: two pixels per character, larger images shrunk to 64
//! columns.

/// Maximum number of columns; larger images are shrunk.
const COLUMNS: usize = 64;
/// Minimum grey value that is drawn.
const VISIBLE: u8 = 64;

/// Returns lines of text for a square image and its label; any other bytes are described.
pub(super) fn picture(pixels: &[u8], label: u8) -> String {
    let meaning = match label {
        0 => "label 0: the discs lie on different contours".to_owned(),
        1 => "label 1: the discs lie on the same contour".to_owned(),
        other => format!("label {other}, which has no meaning here"),
    };
    let side = pixels.len().isqrt();
    if side == 0 || side * side != pixels.len() {
        return format!("{} bytes, not a square image\n{meaning}\n", pixels.len());
    }
    let step = side.div_ceil(COLUMNS);
    let columns = side.div_ceil(step);
    // The brightest pixel of a square: strokes are thinner than the squares of a shrunk image.
    let lit = |row: usize, column: usize| {
        (row * step..((row + 1) * step).min(side)).any(|y| {
            let x = column * step..((column + 1) * step).min(side);
            pixels[y * side..][x].iter().any(|grey| *grey >= VISIBLE)
        })
    };
    let mut text = String::new();
    for row in (0..columns).step_by(2) {
        let line: String = (0..columns)
            .map(|column| match (lit(row, column), lit(row + 1, column)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            })
            .collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text + &meaning + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_rows_make_a_line() {
        let pixels = [255, 0, 255, 255, 0, 0, 0, 0, 64];
        assert_eq!(
            picture(&pixels, 1),
            "█ ▀\n  ▀\nlabel 1: the discs lie on the same contour\n"
        );
    }

    #[test]
    fn large_images_are_shrunk_and_other_bytes_described() {
        let large = picture(&[255; 128 * 128], 0);
        assert_eq!(large.lines().count(), 33);
        assert!(large.lines().all(|line| line.chars().count() <= COLUMNS));
        assert!(picture(&[1, 2, 3], 9).contains("3 bytes, not a square image"));
        assert!(picture(&[], 0).contains("0 bytes"));
    }
}
