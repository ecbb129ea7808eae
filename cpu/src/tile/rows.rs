//! Strided rows of operands, and their copies as rows or columns of a tile.

use super::{SIDE, padded};
use crate::buffers::Shared;
#[cfg(target_arch = "x86_64")]
use crate::transpose as blocks;

/// Rows that can be packed.
pub trait Source {
    /// Returns the number of elements of a row.
    fn width(&self) -> usize;
    /// Returns row `i`.
    fn row(&self, i: usize) -> &[f32];
}

/// Rows of one head inside a larger tensor: row i is `data[start + i * stride..][..width]`.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    /// The tensor.
    pub data: &'a [f32],
    /// Index of the first row's first element.
    pub start: usize,
    /// Elements from one row to the next.
    pub stride: usize,
    /// Elements of a row.
    pub width: usize,
}

/// Rows of all heads and examples: row i starts at `start + i * row`.
#[derive(Clone, Copy)]
pub struct RowMajor<'a> {
    /// The tensor.
    pub data: &'a [f32],
    /// Index of the first row's first element.
    pub start: usize,
    /// Elements from one row to the next.
    pub row: usize,
}

impl<'a> RowMajor<'a> {
    /// Returns a whole tensor with rows of `row` elements.
    pub fn whole(data: &'a [f32], row: usize) -> Self {
        RowMajor {
            data,
            start: 0,
            row,
        }
    }

    /// Returns the rows from `first` on, with the `width` elements from `column` on of each.
    pub fn rows(self, (first, column): (usize, usize), width: usize) -> Rows<'a> {
        Rows {
            data: self.data,
            start: self.start + first * self.row + column,
            stride: self.row,
            width,
        }
    }
}

impl<'a> Rows<'a> {
    /// Returns row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> &'a [f32] {
        &self.data[self.start + i * self.stride..][..self.width]
    }

    /// Returns the rows from `first` on.
    pub fn from(self, first: usize) -> Self {
        Rows {
            start: self.start + first * self.stride,
            ..self
        }
    }

    /// Returns the rows at `places`.
    pub fn at(self, places: &'a [u32]) -> GatheredRows<'a> {
        GatheredRows { rows: self, places }
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

/// Strided rows of a shared buffer: row i starts at `start + i * stride`.
#[derive(Clone, Copy)]
pub struct StridedRowsMut<'a> {
    /// The buffer.
    pub buffer: &'a Shared<'a>,
    /// Index of the first row's first element.
    pub start: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl StridedRowsMut<'_> {
    /// Writes rows `first..` from `rows`, each `padded(width)` long, times `scale`.
    ///
    /// # Safety
    /// No other task may touch these rows.
    #[inline]
    pub unsafe fn write(&self, first: usize, count: usize, width: usize, scale: f32, rows: &[f32]) {
        for (i, row) in rows.chunks_exact(padded(width)).take(count).enumerate() {
            // SAFETY: by this function's contract.
            let out = unsafe {
                self.buffer
                    .slice(self.start + (first + i) * self.stride, width)
            };
            for (out, x) in out.iter_mut().zip(row) {
                *out = x * scale;
            }
        }
    }

    /// Adds `rows`, each `padded(width)` long, times `scale`, to the rows at `places`.
    ///
    /// # Safety
    /// No other task may touch these rows.
    #[inline]
    pub unsafe fn add(&self, places: &[u32], width: usize, scale: f32, rows: &[f32]) {
        for (place, row) in places.iter().zip(rows.chunks_exact(padded(width))) {
            // SAFETY: by this function's contract.
            let out = unsafe {
                self.buffer
                    .slice(self.start + *place as usize * self.stride, width)
            };
            for (out, x) in out.iter_mut().zip(row) {
                *out += x * scale;
            }
        }
    }
}

/// Rows gathered by index.
#[derive(Clone, Copy)]
pub struct GatheredRows<'a> {
    rows: Rows<'a>,
    places: &'a [u32],
}

impl Source for GatheredRows<'_> {
    #[inline(always)]
    fn width(&self) -> usize {
        self.rows.width
    }

    #[inline(always)]
    fn row(&self, i: usize) -> &[f32] {
        self.rows.row(self.places[i] as usize)
    }
}

/// Copies `count` rows, times `scale`, into rows of `padded(width)`. The padding is not written.
pub fn pack_rows(rows: impl Source, count: usize, scale: f32, packed: &mut [f32]) {
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

/// Transposes the first `count` columns of `padded(width)` rows of [`SIDE`] numbers into padded
/// rows.
#[inline(always)]
pub fn columns_to_rows(columns: &[f32], count: usize, width: usize, rows: &mut [f32]) {
    let wide = padded(width);
    for first in (0..wide).step_by(UNROLL) {
        let lines = columns[first * SIDE..][..UNROLL * SIDE]
            .as_chunks::<SIDE>()
            .0;
        let mut line_slices: [&[f32]; UNROLL] = [&[]; UNROLL];
        for (slice, line) in line_slices.iter_mut().zip(lines) {
            *slice = line;
        }
        let done = transpose_blocks(&line_slices, 1.0, (&mut rows[first..], wide));
        for i in done..count {
            let row = &mut rows[i * wide + first..][..UNROLL];
            row.iter_mut()
                .zip(lines)
                .for_each(|(to, line)| *to = line[i]);
        }
    }
}

/// Copies `count` rows, times `scale`, into the columns of a (width, [`SIDE`]) tile. The other
/// columns become zero.
pub fn pack_columns(rows: impl Source, count: usize, scale: f32, packed: &mut [f32]) {
    let packed = &mut packed[..rows.width() * SIDE];
    for first in (0..SIDE).step_by(UNROLL) {
        let source = std::array::from_fn(|r| (first + r < count).then(|| rows.row(first + r)));
        transpose::<UNROLL>(source, scale, (&mut packed[first..], SIDE));
    }
}

/// Number of rows that are transposed together: the lanes of the widest register.
pub const UNROLL: usize = 16;

/// Copies `R` rows of one length, times `scale`, into the first columns of a matrix with rows of
/// `n`. Missing rows become zero.
///
/// With 16 or 8 rows a store fills a cache line, or half of one.
#[inline(always)]
pub fn transpose<const R: usize>(
    rows: [Option<&[f32]>; R],
    scale: f32,
    (columns, n): (&mut [f32], usize),
) {
    // Loops over arrays: the closures of `array::map` are not always inlined, and then this takes
    // three times as long.
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

/// Transposes blocks of 16 x 16 on processors with AVX-512. Returns the number of elements of a row
/// that are done.
#[inline(always)]
fn transpose_blocks(rows: &[&[f32]], scale: f32, (columns, n): (&mut [f32], usize)) -> usize {
    #[cfg(target_arch = "x86_64")]
    if let Ok(rows) = <[&[f32]; blocks::SIDE]>::try_from(rows)
        && is_x86_feature_detected!("avx512f")
    {
        let width = columns.len().div_ceil(n) / blocks::SIDE * blocks::SIDE;
        // SAFETY: the instructions are available.
        unsafe { blocks::rows_to_columns(rows, width, scale, (columns, n)) };
        return width;
    }
    let _ = (rows, scale, columns, n);
    0
}

/// Returns all rows, or none if one is missing.
#[inline(always)]
fn all<const R: usize>(rows: [Option<&[f32]>; R]) -> Option<[&[f32]; R]> {
    let mut whole: [&[f32]; R] = [&[]; R];
    for (whole, row) in whole.iter_mut().zip(rows) {
        *whole = row?;
    }
    Some(whole)
}
