//! Rows of operands where they lie in memory, and their copies as rows or columns of a tile.

use super::{SIDE, padded};
#[cfg(target_arch = "x86_64")]
use crate::kernels::transpose as blocks;

/// Rows that can be packed.
pub(in crate::kernels) trait Source {
    /// Elements of a row.
    fn width(&self) -> usize;
    /// Row `i`.
    fn row(&self, i: usize) -> &[f32];
}

/// Rows of one head inside a larger tensor: row i is `data[start + i * stride..][..width]`.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Rows<'a> {
    pub(in crate::kernels) data: &'a [f32],
    pub(in crate::kernels) start: usize,
    pub(in crate::kernels) stride: usize,
    pub(in crate::kernels) width: usize,
}

/// Queries, keys or values of all examples in memory: row i starts at `start + i * row`.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Operand<'a> {
    pub(in crate::kernels) data: &'a [f32],
    pub(in crate::kernels) start: usize,
    pub(in crate::kernels) row: usize,
}

impl<'a> Operand<'a> {
    /// A tensor of its own with rows of `row` elements.
    pub(in crate::kernels) fn whole(data: &'a [f32], row: usize) -> Self {
        Operand {
            data,
            start: 0,
            row,
        }
    }

    /// The rows from `first` on, and of them `width` elements from `column` on.
    pub(in crate::kernels) fn rows(
        self,
        (first, column): (usize, usize),
        width: usize,
    ) -> Rows<'a> {
        Rows {
            data: self.data,
            start: self.start + first * self.row + column,
            stride: self.row,
            width,
        }
    }
}

impl<'a> Rows<'a> {
    pub(in crate::kernels) fn row(&self, i: usize) -> &'a [f32] {
        &self.data[self.start + i * self.stride..][..self.width]
    }

    /// The rows from `first` on.
    pub(in crate::kernels) fn from(self, first: usize) -> Self {
        Rows {
            start: self.start + first * self.stride,
            ..self
        }
    }

    /// The rows at `places`.
    pub(in crate::kernels) fn at(self, places: &'a [u32]) -> Picked<'a> {
        Picked { rows: self, places }
    }
}

impl Source for Rows<'_> {
    #[inline(always)]
    fn width(&self) -> usize {
        self.width
    }

    #[inline(always)]
    fn row(&self, i: usize) -> &[f32] {
        Rows::row(self, i)
    }
}

/// Some rows, in any order.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Picked<'a> {
    rows: Rows<'a>,
    places: &'a [u32],
}

impl Source for Picked<'_> {
    #[inline(always)]
    fn width(&self) -> usize {
        self.rows.width
    }

    #[inline(always)]
    fn row(&self, i: usize) -> &[f32] {
        self.rows.row(self.places[i] as usize)
    }
}

/// Copies `count` rows, times `scale`, into rows of `padded(width)`; the padding is left alone.
pub(in crate::kernels) fn pack_rows(
    rows: impl Source,
    count: usize,
    scale: f32,
    packed: &mut [f32],
) {
    for (i, packed) in packed
        .chunks_exact_mut(padded(rows.width()))
        .take(count)
        .enumerate()
    {
        for (packed, x) in packed.iter_mut().zip(rows.row(i)) {
            *packed = x * scale;
        }
    }
}

/// Copies the first `count` columns of `padded(width)` rows of [`SIDE`] numbers into as many rows, padded too.
#[inline(always)]
pub(in crate::kernels) fn columns_to_rows(
    columns: &[f32],
    count: usize,
    width: usize,
    rows: &mut [f32],
) {
    let wide = padded(width);
    for first in (0..wide).step_by(TOGETHER) {
        let lines = columns[first * SIDE..][..TOGETHER * SIDE]
            .as_chunks::<SIDE>()
            .0;
        let mut line_slices: [&[f32]; TOGETHER] = [&[]; TOGETHER];
        for (slice, line) in line_slices.iter_mut().zip(lines) {
            *slice = line;
        }
        let done = transpose_blocks(&line_slices, 1.0, (&mut rows[first..], wide));
        for i in done..count {
            let row = &mut rows[i * wide + first..][..TOGETHER];
            row.iter_mut()
                .zip(lines)
                .for_each(|(to, line)| *to = line[i]);
        }
    }
}

/// Copies `count` rows, times `scale`, into the columns of a (width, [`SIDE`]) tile; further columns become zero.
pub(in crate::kernels) fn pack_columns(
    rows: impl Source,
    count: usize,
    scale: f32,
    packed: &mut [f32],
) {
    let packed = &mut packed[..rows.width() * SIDE];
    for first in (0..SIDE).step_by(TOGETHER) {
        let source = std::array::from_fn(|r| (first + r < count).then(|| rows.row(first + r)));
        transpose::<TOGETHER>(source, scale, (&mut packed[first..], SIDE));
    }
}

/// Rows of which columns are made together: registers of the widest kind.
pub(in crate::kernels) const TOGETHER: usize = 16;

/// Copies `R` rows of one length, times `scale`, into the first columns of a matrix with rows of `n`; missing rows become zero.
///
/// Sixteen or eight at a time, so that stores fill a cache line or half of it instead of one number.
#[inline(always)]
pub(in crate::kernels) fn transpose<const R: usize>(
    rows: [Option<&[f32]>; R],
    scale: f32,
    (columns, n): (&mut [f32], usize),
) {
    // Loops over arrays of their own: the closures of `array::map` are not always inlined, which makes this three times as slow.
    let mut values = [0.0; R];
    let Some(rows) = all(rows) else {
        for (i, columns) in columns.chunks_mut(n).enumerate() {
            for (value, row) in values.iter_mut().zip(&rows) {
                *value = row.map_or(0.0, |row| row[i] * scale);
            }
            columns[..R].copy_from_slice(&values);
        }
        return;
    };
    let done = transpose_blocks(&rows, scale, (&mut *columns, n));
    for (i, columns) in columns.chunks_mut(n).enumerate().skip(done) {
        for (value, row) in values.iter_mut().zip(&rows) {
            *value = row[i] * scale;
        }
        columns[..R].copy_from_slice(&values);
    }
}

/// The same in blocks of 16 x 16 where there are instructions for that. How many elements of a row are done.
#[inline(always)]
fn transpose_blocks(rows: &[&[f32]], scale: f32, (columns, n): (&mut [f32], usize)) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Ok(rows) = <[&[f32]; blocks::SIDE]>::try_from(rows)
        && is_x86_feature_detected!("avx512f")
    {
        let width = columns.len().div_ceil(n) / blocks::SIDE * blocks::SIDE;
        // SAFETY: the instructions are there.
        unsafe { blocks::rows_to_columns(rows, width, scale, (columns, n)) };
        return width;
    }
    let _ = (rows, scale, columns, n);
    0
}

/// All the rows, or nothing if one is missing.
#[inline(always)]
fn all<const R: usize>(rows: [Option<&[f32]>; R]) -> Option<[&[f32]; R]> {
    let mut whole: [&[f32]; R] = [&[]; R];
    for (whole, row) in whole.iter_mut().zip(rows) {
        *whole = row?;
    }
    Some(whole)
}
