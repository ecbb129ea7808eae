//! Rows of zeros, such as the gradients of padding. They add zero to other gradients, so kernels
//! skip them.

use std::ops::Range;

use crate::tile::{SIDE, Source};

/// Returns whether every element is zero.
pub fn is_zero_row(row: &[f32]) -> bool {
    // Works on whole chunks, so that the test runs in registers. The sign of a zero is shifted out.
    let chunk = |chunk: &[f32]| chunk.iter().fold(0, |bits, x| bits | (x.to_bits() << 1)) == 0;
    row.chunks(SIDE).all(chunk)
}

/// Returns whether the first `count` rows are zero.
pub fn are_zero_rows(rows: impl Source, count: usize) -> bool {
    (0..count).all(|i| is_zero_row(rows.row(i)))
}

/// Splits rows of `width` numbers into blocks of [`SIDE`] rows. Returns runs of neighbouring
/// blocks: the rows of a run, and true if every block has a number other than 0, or false if all
/// are zeros.
pub fn runs(rows: &[f32], width: usize) -> impl Iterator<Item = (Range<usize>, bool)> {
    let count = rows.len() / width;
    let live = move |first: usize| {
        let end = (first + SIDE).min(count);
        !is_zero_row(&rows[first * width..end * width])
    };
    let mut start = 0;
    std::iter::from_fn(move || {
        if start >= count {
            return None;
        }
        let (first, kind) = (start, live(start));
        while start < count && live(start) == kind {
            start += SIDE;
        }
        Some((first..start.min(count), kind))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_all_rows_and_tell_those_that_vanish() {
        let width = 3;
        let mut rows = vec![0.0; 300 * width];
        rows[70 * width + 2] = 1e-40;
        rows[128 * width] = -2.0;
        rows[299 * width + 1] = f32::NAN;
        rows[200 * width] = -0.0;
        let all: Vec<_> = runs(&rows, width).collect();
        let expected = [
            (0..64, false),
            (64..192, true),
            (192..256, false),
            (256..300, true),
        ];
        assert_eq!(all, expected);
        assert_eq!(runs(&[], width).count(), 0);
    }
}
