//! Conversion of one PNG to grey values.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{ExtendedColorType, ImageDecoder, Limits};

/// Returns the grey values, row by row, of an 8-bit grey PNG of `side` x `side` pixels.
///
/// # Errors
/// A description of the problem.
pub(super) fn grey(png: &[u8], side: usize) -> Result<Vec<u8>, String> {
    let broken = |error: image::ImageError| format!("not a readable PNG: {error}");
    let mut limits = Limits::default();
    limits.max_alloc = Some(16 << 20);
    let decoder = PngDecoder::with_limits(Cursor::new(png), limits).map_err(broken)?;
    let (width, height) = decoder.dimensions();
    if (width as usize, height as usize) != (side, side) {
        return Err(format!(
            "{width} x {height} pixels instead of {side} x {side}"
        ));
    }
    let colour = decoder.original_color_type();
    if colour != ExtendedColorType::L8 {
        return Err(format!("colour type {colour:?} instead of 8-bit grey"));
    }
    let mut pixels = vec![0; side * side];
    decoder.read_image(&mut pixels).map_err(broken)?;
    Ok(pixels)
}

#[cfg(test)]
mod tests {
    use image::codecs::png::PngEncoder;
    use image::{ExtendedColorType, ImageEncoder};
    use proptest::prelude::*;

    use super::super::cases;
    use super::*;

    fn encoded(pixels: &[u8], width: u32, height: u32, colour: ExtendedColorType) -> Vec<u8> {
        let mut png = Vec::new();
        PngEncoder::new(&mut png)
            .write_image(pixels, width, height, colour)
            .unwrap();
        png
    }

    fn sample() -> (Vec<u8>, Vec<u8>) {
        let pixels: Vec<u8> = (0..1024u32).map(|k| (k * 7 % 256) as u8).collect();
        let png = encoded(&pixels, 32, 32, ExtendedColorType::L8);
        (pixels, png)
    }

    #[test]
    fn grey_values_are_exact() {
        let (pixels, png) = sample();
        assert_eq!(grey(&png, 32), Ok(pixels));
    }

    #[test]
    fn other_pictures_are_refused() {
        let (_, png) = sample();
        assert!(
            grey(&png, 64)
                .unwrap_err()
                .contains("32 x 32 pixels instead of 64 x 64")
        );
        assert!(
            grey(&png[..png.len() / 2], 32)
                .unwrap_err()
                .contains("not a readable PNG")
        );
        let colour = encoded(&[0; 32 * 32 * 3], 32, 32, ExtendedColorType::Rgb8);
        assert!(
            grey(&colour, 32)
                .unwrap_err()
                .contains("instead of 8-bit grey")
        );
        assert!(grey(b"hello", 32).is_err());
        // A header that states 2^31 - 1 pixels each way is refused.
        let mut huge = png.clone();
        huge[16..24].copy_from_slice(&[0x7f, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0xff]);
        assert!(grey(&huge, 32).is_err());
    }

    proptest! {
        #![proptest_config(cases(2000))]
        #[test]
        fn no_bytes_make_it_panic(
            changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
            keep in any::<prop::sample::Index>(),
            cut in any::<bool>(),
        ) {
            let (_, mut png) = sample();
            for (at, byte) in changes {
                let at = at.index(png.len());
                png[at] = byte;
            }
            if cut {
                png.truncate(keep.index(png.len()));
            }
            if let Ok(pixels) = grey(&png, 32) {
                prop_assert_eq!(pixels.len(), 1024);
            }
        }
    }
}
