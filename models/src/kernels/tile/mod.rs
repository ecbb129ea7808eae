//! Products of tiles that stay in the first-level cache, and the layouts that they want.
//!
//! A tile has [`SIDE`] rows or columns. Its left operand is read one number at a time, in *panels* of
//! [`PANEL`] rows, with strides that are known at compile time; its right operand and its result are
//! read and written in whole registers, so their rows are padded to a multiple of [`PAD`].

mod held;

use std::ops::{Deref, DerefMut};

pub(super) use self::held::{Factor, Held, Role};
use super::factors::Factors;
#[cfg(target_arch = "x86_64")]
use super::factors::{amx, packing, pairs};
use super::isa::Lanes;
#[cfg(target_arch = "x86_64")]
use super::transpose as blocks;

/// Rows (queries or keys) of a tile.
pub(super) const SIDE: usize = 64;
/// Rows of the left operand that are multiplied together; row counts are multiples of it.
pub(super) const PANEL: usize = 8;
/// Row lengths of right operands and results are multiples of this, the widest register.
pub(super) const PAD: usize = 16;

/// `width` rounded up to whole registers.
pub(super) const fn padded(width: usize) -> usize {
    width.next_multiple_of(PAD)
}

/// [`SIDE`] by [`SIDE`] numbers that start where a cache line does, so that no register's load takes two.
#[repr(align(64))]
pub(super) struct Square([f32; SIDE * SIDE]);

impl Square {
    /// All of them `x`.
    #[inline(always)]
    pub(super) fn filled(x: f32) -> Self {
        Square([x; SIDE * SIDE])
    }
}

impl Deref for Square {
    type Target = [f32; SIDE * SIDE];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Square {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The left operand of a product: element (i, j) is at `i / PANEL * step + i % PANEL * row + j * column`.
///
/// Strides that are constants where a `Left` is made stay constants in the products, all of which are inlined.
#[derive(Clone, Copy)]
pub(super) struct Left<'a> {
    data: &'a [f32],
    step: usize,
    row: usize,
    column: usize,
}

impl<'a> Left<'a> {
    /// Rows of `width` elements, [`PANEL`] of them side by side: (panel, width, PANEL).
    #[inline(always)]
    pub(super) fn panels(data: &'a [f32], width: usize) -> Self {
        Left {
            data,
            step: width * PANEL,
            row: 1,
            column: PANEL,
        }
    }

    /// Element (i, j) at `i * row + j * column`.
    #[inline(always)]
    pub(super) fn strided(data: &'a [f32], row: usize, column: usize) -> Self {
        Left {
            data,
            step: row * PANEL,
            row,
            column,
        }
    }
}

/// `out = a b`, or `out += a b` if `ADD`, with m rows (a multiple of [`PANEL`]), n columns (a multiple of [`PAD`])
/// and sums of k products. Rows of `b` and `out` are `b_row` and `out_row` apart. Both operands are what [`Factors`]
/// make of them; rows and columns of pairs are as far apart as those of numbers.
///
/// # Panics
/// If an operand is smaller than its shape.
#[inline(always)]
pub(super) fn product<S: Lanes, const ADD: bool>(
    s: S,
    factors: Factors,
    a: Left,
    (b, b_row): (&[f32], usize),
    (out, out_row): (&mut [f32], usize),
    (m, n, k): (usize, usize, usize),
) {
    if m * n * k == 0 {
        assert!(ADD || m * n == 0, "an empty sum is not stored");
        return;
    }
    assert!(m % PANEL == 0 && n % PAD == 0, "sides are not padded");
    assert!((m - 1) * out_row + n <= out.len(), "result");
    #[cfg(target_arch = "x86_64")]
    if let Some(parts) = factors.parts() {
        let sizes = (m, n, k);
        return match parts {
            1 => product_of_tiles::<1>(a.data, b, (out, out_row), sizes, ADD),
            _ => product_of_tiles::<3>(a.data, b, (out, out_row), sizes, ADD),
        };
    }
    let k = factors.len(k);
    assert!(
        (m / PANEL - 1) * a.step + (PANEL - 1) * a.row + (k - 1) * a.column < a.data.len(),
        "left operand"
    );
    assert!((k - 1) * b_row + n <= b.len(), "right operand");
    #[cfg(target_arch = "x86_64")]
    if factors == Factors::Pairs {
        let (b, out) = ((b.as_ptr(), b_row), (out.as_mut_ptr(), out_row));
        // SAFETY: there are pairs only where there are these instructions, and the assertions bound the last ones.
        return unsafe { product_of_pairs::<ADD>(a, b, out, (m, n, k)) };
    }
    let _ = factors;
    let lanes = S::F32_LANES;
    let (a_data, b, out) = (a.data.as_ptr(), b.as_ptr(), out.as_mut_ptr());
    let mut j = 0;
    while j < n {
        let pair = n - j >= 2 * lanes;
        for i in (0..m).step_by(PANEL) {
            // SAFETY: the assertions bound the last element of each operand, and rows i..i + PANEL and
            // columns j..j + lanes (2 lanes for a pair) lie within m and n, whose padding holds whole
            // registers. `out` is borrowed mutably and so apart from the others.
            unsafe {
                let strides = (a.row, a.column);
                let a = a_data.add(i / PANEL * a.step);
                let b = b.add(j);
                let out = out.add(i * out_row + j);
                if S::REGISTER_COUNT >= 32 {
                    if pair {
                        block::<S, PANEL, 2, ADD>(s, (a, strides), b, b_row, out, out_row, k);
                    } else {
                        block::<S, PANEL, 1, ADD>(s, (a, strides), b, b_row, out, out_row, k);
                    }
                } else {
                    for half in [0, PANEL / 2] {
                        let (a, out) = (a.add(half * strides.0), out.add(half * out_row));
                        if pair {
                            block::<S, { PANEL / 2 }, 2, ADD>(
                                s,
                                (a, strides),
                                b,
                                b_row,
                                out,
                                out_row,
                                k,
                            );
                        } else {
                            block::<S, { PANEL / 2 }, 1, ADD>(
                                s,
                                (a, strides),
                                b,
                                b_row,
                                out,
                                out_row,
                                k,
                            );
                        }
                    }
                }
            }
        }
        j += if pair { 2 * lanes } else { lanes };
    }
}

/// [`product`] of k pairs of terms, a block after the other.
///
/// # Safety
/// The processor must have AVX512-BF16, and operands must be as large as their shapes.
#[cfg(target_arch = "x86_64")]
unsafe fn product_of_pairs<const ADD: bool>(
    a: Left,
    (b, b_row): (*const f32, usize),
    (out, out_row): (*mut f32, usize),
    (m, n, k): (usize, usize, usize),
) {
    for j in (0..n).step_by(2 * PAD) {
        for i in (0..m).step_by(PANEL) {
            // SAFETY: by this function's contract.
            unsafe {
                let left = (a.data.as_ptr().add(i / PANEL * a.step), (a.row, a.column));
                let (b, out) = ((b.add(j), b_row), (out.add(i * out_row + j), out_row));
                match n - j >= 2 * PAD {
                    true => pairs::block::<PANEL, 2, ADD>(left, b, out, k),
                    false => pairs::block::<PANEL, 1, ADD>(left, b, out, k),
                }
            }
        }
    }
}

/// [`product`] of tiles by AMX. Rows that are half a tile's are computed beside the result, which ends with them.
#[cfg(target_arch = "x86_64")]
fn product_of_tiles<const PARTS: usize>(
    a: &[f32],
    b: &[f32],
    (out, out_row): (&mut [f32], usize),
    (m, n, k): (usize, usize, usize),
    add: bool,
) {
    use amx::{SIDE, Sums, multiply_tiles};
    use packing::words;
    const COLUMNS: usize = 2 * SIDE;
    assert!(words(PARTS, m, k) <= a.len(), "left operand");
    assert!(words(PARTS, n, k) <= b.len(), "right operand");
    let whole = m / SIDE * SIDE;
    let left = a[words(PARTS, whole, k)..].as_ptr();
    let (a, b, start) = (a.as_ptr(), b.as_ptr(), out.as_mut_ptr());
    let sums = |start: *mut f32, row| Sums::rows(start, row);
    let from = |to: Sums<*mut f32>| if add { to.read() } else { Sums::ZEROS };
    if whole > 0 {
        let to = sums(start, out_row);
        let sizes = (whole / SIDE, n / SIDE, k);
        // SAFETY: the assertions bound the operands, the one in `product` the result; there are tiles only where AMX is.
        unsafe { multiply_tiles::<PARTS>(a, b, from(to), to, sizes) };
    }
    if whole == m {
        return;
    }
    let mut rest = [0.0; SIDE * COLUMNS];
    for first in (0..n).step_by(COLUMNS) {
        let columns = COLUMNS.min(n - first);
        let rows = out[whole * out_row + first..]
            .chunks_mut(out_row)
            .take(m - whole);
        let mut pairs = rest.chunks_mut(COLUMNS).zip(rows);
        if add {
            pairs.for_each(|(rest, row)| rest[..columns].copy_from_slice(&row[..columns]));
        }
        let to = sums(rest.as_mut_ptr(), COLUMNS);
        // SAFETY: as above, and the buffer has whole tiles.
        unsafe {
            let right = b.add(words(PARTS, first, k));
            multiply_tiles::<PARTS>(left, right, from(to), to, (1, columns / SIDE, k));
        }
        let rows = out[whole * out_row + first..]
            .chunks_mut(out_row)
            .take(m - whole);
        pairs = rest.chunks_mut(COLUMNS).zip(rows);
        pairs.for_each(|(rest, row)| row[..columns].copy_from_slice(&rest[..columns]));
    }
}

/// M rows by N registers of a product, held in registers while k runs.
///
/// # Safety
/// `a`, `b` and `out` must be valid for those rows, registers and k.
#[inline(always)]
unsafe fn block<S: Lanes, const M: usize, const N: usize, const ADD: bool>(
    s: S,
    (a, (row, column)): (*const f32, (usize, usize)),
    b: *const f32,
    b_row: usize,
    out: *mut f32,
    out_row: usize,
    k: usize,
) {
    let lanes = S::F32_LANES;
    let mut sums = [[s.splat_f32s(0.0); N]; M];
    // SAFETY: by this function's contract. Registers are read and written unaligned.
    unsafe {
        if ADD {
            for (i, sums) in sums.iter_mut().enumerate() {
                for (j, sum) in sums.iter_mut().enumerate() {
                    *sum = out
                        .add(i * out_row + j * lanes)
                        .cast::<S::f32s>()
                        .read_unaligned();
                }
            }
        }
        for k in 0..k {
            let mut right = [s.splat_f32s(0.0); N];
            for (j, right) in right.iter_mut().enumerate() {
                *right = b
                    .add(k * b_row + j * lanes)
                    .cast::<S::f32s>()
                    .read_unaligned();
            }
            for (i, sums) in sums.iter_mut().enumerate() {
                let left = s.splat_f32s(*a.add(i * row + k * column));
                for (sum, right) in sums.iter_mut().zip(right) {
                    *sum = s.fma(left, right, *sum);
                }
            }
        }
        for (i, sums) in sums.iter().enumerate() {
            for (j, sum) in sums.iter().enumerate() {
                out.add(i * out_row + j * lanes)
                    .cast::<S::f32s>()
                    .write_unaligned(*sum);
            }
        }
    }
}

/// Rows that can be packed.
pub(super) trait Source {
    /// Elements of a row.
    fn width(&self) -> usize;
    /// Row `i`.
    fn row(&self, i: usize) -> &[f32];
}

/// Rows of one head inside a larger tensor: row i is `data[start + i * stride..][..width]`.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) data: &'a [f32],
    pub(super) start: usize,
    pub(super) stride: usize,
    pub(super) width: usize,
}

/// Queries, keys or values of all examples in memory: row i starts at `start + i * row`.
#[derive(Clone, Copy)]
pub(super) struct Operand<'a> {
    pub(super) data: &'a [f32],
    pub(super) start: usize,
    pub(super) row: usize,
}

impl<'a> Operand<'a> {
    /// A tensor of its own with rows of `row` elements.
    pub(super) fn whole(data: &'a [f32], row: usize) -> Self {
        Operand {
            data,
            start: 0,
            row,
        }
    }

    /// The rows from `first` on, and of them `width` elements from `column` on.
    pub(super) fn rows(self, (first, column): (usize, usize), width: usize) -> Rows<'a> {
        Rows {
            data: self.data,
            start: self.start + first * self.row + column,
            stride: self.row,
            width,
        }
    }
}

impl<'a> Rows<'a> {
    pub(super) fn row(&self, i: usize) -> &'a [f32] {
        &self.data[self.start + i * self.stride..][..self.width]
    }

    /// The rows from `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        Rows {
            start: self.start + first * self.stride,
            ..self
        }
    }

    /// The rows at `places`.
    pub(super) fn at(self, places: &'a [u32]) -> Picked<'a> {
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
pub(super) struct Picked<'a> {
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
pub(super) fn pack_rows(rows: impl Source, count: usize, scale: f32, packed: &mut [f32]) {
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
pub(super) fn columns_to_rows(columns: &[f32], count: usize, width: usize, rows: &mut [f32]) {
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
pub(super) fn pack_columns(rows: impl Source, count: usize, scale: f32, packed: &mut [f32]) {
    let packed = &mut packed[..rows.width() * SIDE];
    for first in (0..SIDE).step_by(TOGETHER) {
        let source = std::array::from_fn(|r| (first + r < count).then(|| rows.row(first + r)));
        transpose::<TOGETHER, SIDE>(source, scale, &mut packed[first..]);
    }
}

/// Rows of which columns are made together: registers of the widest kind.
pub(super) const TOGETHER: usize = 16;

/// Copies `R` rows of one length, times `scale`, into the first columns of a matrix with rows of `N`; missing rows become zero.
///
/// Sixteen or eight at a time, so that stores fill a cache line or half of it instead of one number.
#[inline(always)]
pub(super) fn transpose<const R: usize, const N: usize>(
    rows: [Option<&[f32]>; R],
    scale: f32,
    columns: &mut [f32],
) {
    // Loops over arrays of their own: the closures of `array::map` are not always inlined, which makes this three times as slow.
    let mut values = [0.0; R];
    let Some(rows) = all(rows) else {
        for (i, columns) in columns.chunks_mut(N).enumerate() {
            for (value, row) in values.iter_mut().zip(&rows) {
                *value = row.map_or(0.0, |row| row[i] * scale);
            }
            columns[..R].copy_from_slice(&values);
        }
        return;
    };
    let done = transpose_blocks(&rows, scale, (columns, N));
    for (i, columns) in columns.chunks_mut(N).enumerate().skip(done) {
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
