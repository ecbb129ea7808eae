//! Conversion from three channels to one, by the weights and the rounding of the 2021 code's image
//! library (TensorFlow).

use super::{PIXELS, SIDE};

/// Returns the grey value of a pixel. The channels are divided by 255; that library multiplies them
/// by 1/255, by which 71 of the 16.7 million colours come out one lower or higher.
pub(super) fn grey(red: u8, green: u8, blue: u8) -> u8 {
    let share = |channel: u8| f32::from(channel) / 255.0;
    let light = 0.2989 * share(red) + 0.5870 * share(green) + 0.1140 * share(blue);
    // At most 0.9999 * 255.5, which is cut to 255.
    (light * 255.5) as u8
}

/// Returns a whole picture in grey from its three channels, one after the other.
pub(super) fn picture(channels: &[u8; 3 * PIXELS]) -> [u8; PIXELS] {
    let channel = |number: usize, i: usize| channels[number * PIXELS + i];
    std::array::from_fn(|i| grey(channel(0, i), channel(1, i), channel(2, i)))
}

/// Returns a smaller square picture: every pixel is the mean of a block, rounded.
pub(super) fn smaller(pixels: &[u8], side: usize) -> Vec<u8> {
    let block = SIDE / side;
    let mean = |i: usize| {
        let (top, left) = (i / side * block, i % side * block);
        let row = |y: usize| &pixels[(top + y) * SIDE + left..][..block];
        let sum: usize = (0..block)
            .flat_map(row)
            .map(|&grey| usize::from(grey))
            .sum();
        let count = block * block;
        ((sum + count / 2) / count) as u8
    };
    (0..side * side).map(mean).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule() {
        assert_eq!([grey(0, 0, 0), grey(255, 255, 255)], [0, 255]);
        // 0.2989 * 255.5 = 76.4, 0.5870 * 255.5 = 149.98, 0.1140 * 255.5 = 29.1: cut, not rounded.
        assert_eq!(
            [grey(255, 0, 0), grey(0, 255, 0), grey(0, 0, 255)],
            [76, 149, 29]
        );
        // 0.9999 * 128 / 255 * 255.5 = 128.2; 0.9999 * 1.00196 = 1.0019 for one.
        assert_eq!(
            [grey(128, 128, 128), grey(1, 1, 1), grey(1, 0, 0)],
            [128, 1, 0]
        );
    }

    #[test]
    fn blocks_are_averaged() {
        let mut pixels = [10; PIXELS];
        pixels[SIDE + 1] = 12; // Mean 10.5 of the first block of four.
        pixels[PIXELS - 1] = 11; // Mean 10.25 of the last.
        let small = smaller(&pixels, 16);
        assert_eq!(
            (small.len(), small[0], small[1], small[255]),
            (256, 11, 10, 10)
        );
        assert_eq!(smaller(&pixels, 32), pixels);

        // The second block of the first row, and the first block of the second.
        let mut pixels = [10; PIXELS];
        pixels[3] = 14;
        pixels[2 * SIDE] = 18;
        let small = smaller(&pixels, 16);
        assert_eq!(
            (small[1], small[16]),
            (11, 12),
            "rows stay rows, and columns columns"
        );
        pixels[4 * SIDE] = 250; // Mean 25 of sixteen.
        assert_eq!(smaller(&pixels, 8)[8], 25);
    }
}
