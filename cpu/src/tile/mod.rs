//! Products of tiles that stay in the L1 cache, and their layouts.
//!
//! A tile has [`SIDE`] rows or columns. The left operand is read one number at a time, in *panels*
//! of [`PANEL`] rows. The right operand and the result are read and written in whole registers, so
//! their rows are padded to a multiple of [`PAD`].

mod packed_tiles;
mod rows;

use std::ops::{Deref, DerefMut};

pub use self::packed_tiles::{Operand, OperandView, PackedTiles};
pub use self::rows::{
    GatheredRows, RowMajor, Rows, Source, StridedRowsMut, UNROLL, columns_to_rows, pack_columns,
    pack_rows, transpose,
};
use crate::format::Format;
#[cfg(target_arch = "x86_64")]
use crate::format::{amx, amx_packing, bf16_vnni};
use crate::simd::Lanes;

/// Rows (queries or keys) of a tile.
pub const SIDE: usize = 64;
/// Rows of the left operand in a register block. Row counts are multiples of it.
pub const PANEL: usize = 8;
/// Numbers of the widest register. Row lengths of right operands and results are multiples of it.
pub const PAD: usize = 16;

/// Rounds `width` up to whole registers.
pub const fn padded(width: usize) -> usize {
    width.next_multiple_of(PAD)
}

/// A ([`SIDE`], [`SIDE`]) matrix, aligned to a cache line.
#[repr(align(64))]
pub struct Tile64([f32; SIDE * SIDE]);

impl Tile64 {
    /// Returns a tile of `x` everywhere.
    #[inline(always)]
    pub fn filled(x: f32) -> Self {
        Tile64([x; SIDE * SIDE])
    }
}

impl Deref for Tile64 {
    type Target = [f32; SIDE * SIDE];

    #[inline(always)]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Tile64 {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

/// The left operand of a product: element (i, j) is at `i / PANEL * step + i % PANEL * row + j *
/// column`.
///
/// Products are inlined, so strides that are constants where an `Lhs` is made stay constants in
/// them.
#[derive(Clone, Copy)]
pub struct Lhs<'a> {
    data: &'a [f32],
    step: usize,
    row: usize,
    column: usize,
}

impl<'a> Lhs<'a> {
    /// Returns panels of [`PANEL`] interleaved rows of `width` elements: (panel, width, PANEL).
    #[inline(always)]
    pub fn panels(data: &'a [f32], width: usize) -> Self {
        Lhs {
            data,
            step: width * PANEL,
            row: 1,
            column: PANEL,
        }
    }

    /// Returns a strided matrix: element (i, j) at `i * row + j * column`.
    #[inline(always)]
    pub fn strided(data: &'a [f32], row: usize, column: usize) -> Self {
        Lhs {
            data,
            step: row * PANEL,
            row,
            column,
        }
    }
}

/// Computes `out = a b`, or `out += a b` if `ADD`, for a (m, k), b (k, n) and out (m, n).
///
/// m is a multiple of [`PANEL`], n of [`PAD`]. Rows of `b` and `out` are `b_row` and `out_row`
/// apart. Both operands are in `format`. Pairs keep the strides of numbers; tiles for AMX have no
/// strides.
///
/// # Panics
/// If an operand is smaller than its shape, m or n is no such multiple, or k is 0 without `ADD`
/// where m n is not 0.
#[inline(always)]
pub fn product<S: Lanes, const ADD: bool>(
    s: S,
    format: Format,
    a: Lhs,
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
    if let Some(parts) = format.split_terms() {
        let sizes = (m, n, k);
        return match parts {
            1 => product_of_tiles::<1>(a.data, b, (out, out_row), sizes, ADD),
            _ => product_of_tiles::<3>(a.data, b, (out, out_row), sizes, ADD),
        };
    }
    let k = format.len(k);
    assert!(
        (m / PANEL - 1) * a.step + (PANEL - 1) * a.row + (k - 1) * a.column < a.data.len(),
        "left operand"
    );
    assert!((k - 1) * b_row + n <= b.len(), "right operand");
    #[cfg(target_arch = "x86_64")]
    if format == Format::Bf16Vnni {
        let (b, out) = ((b.as_ptr(), b_row), (out.as_mut_ptr(), out_row));
        // SAFETY: there are pairs only where there are these instructions, and the assertions bound
        // the last ones.
        return unsafe { product_of_pairs::<ADD>(a, b, out, (m, n, k)) };
    }
    let _ = format;
    let lanes = S::F32_LANES;
    let (a_data, b, out) = (a.data.as_ptr(), b.as_ptr(), out.as_mut_ptr());
    let mut j = 0;
    while j < n {
        let pair = n - j >= 2 * lanes;
        for i in (0..m).step_by(PANEL) {
            // SAFETY: the assertions bound the last element of each operand, and rows i..i + PANEL
            // and columns j..j + lanes (2 lanes for a pair) lie within m and n, whose padding holds
            // whole registers. `out` is borrowed mutably and so apart from the others.
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

/// Computes [`product`] of k pairs of terms, block by block.
///
/// # Safety
/// The processor must have AVX512-BF16, and operands must be as large as their shapes.
#[cfg(target_arch = "x86_64")]
unsafe fn product_of_pairs<const ADD: bool>(
    a: Lhs,
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
                    true => bf16_vnni::block::<PANEL, 2, ADD>(left, b, out, k),
                    false => bf16_vnni::block::<PANEL, 1, ADD>(left, b, out, k),
                }
            }
        }
    }
}

/// Computes [`product`] by AMX. A last half tile of rows is computed in a buffer, because the
/// result ends with them.
#[cfg(target_arch = "x86_64")]
fn product_of_tiles<const PARTS: usize>(
    a: &[f32],
    b: &[f32],
    (out, out_row): (&mut [f32], usize),
    (m, n, k): (usize, usize, usize),
    add: bool,
) {
    use amx::{SIDE, Sums, multiply_tiles};
    use amx_packing::words;
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
        // SAFETY: the assertions bound the operands, the one in `product` the result; there are
        // tiles only where AMX is.
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

/// Multiplies a block of M rows by N registers over k terms, with the sums in registers.
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
