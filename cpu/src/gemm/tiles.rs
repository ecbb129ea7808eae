//! Matrix products by AMX.
//!
//! The instructions are so fast that loads and stores dominate the time. Both operands are packed
//! into contiguous tiles. Rows of y that are far apart map to few sets of the L1 cache, so their
//! sums stay in a contiguous buffer until all terms are added.

use std::cell::RefCell;

use super::operands::Matrix;
use super::{COLUMNS, Right, Start, WIDTH, copy};
use crate::buffers::Aligned;
use crate::format::amx::{self, Sums};
use crate::format::amx_packing::{self, words};

/// Rows of `a` that are multiplied by one panel of `b` after the other.
const ROWS: usize = 128;
/// Terms (k) that are packed together.
pub(super) const TERMS: usize = 512;
/// The longest row stride of y at which tiles are stored in place: 1 KiB. At this stride the rows
/// of a tile map to a quarter of the sets of the L1 cache.
const NEAR: usize = 256;
/// Largest number of bf16 parts of a number.
const MOST_PARTS: usize = 3;

const SIDE: usize = amx::SIDE;

/// The buffers into which a thread packs operands and sums products.
struct Buffers {
    left: Aligned,
    right: Aligned,
    sums: Aligned,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        left: Aligned::unspecified(words(MOST_PARTS, ROWS, TERMS)),
        right: Aligned::unspecified(words(MOST_PARTS, WIDTH, TERMS)),
        sums: Aligned::unspecified(ROWS * COLUMNS),
    });
}

/// Allocates the buffers of this thread.
pub(super) fn fetch_buffers() {
    BUFFERS.with_borrow(|_| {});
}

/// Computes y = start + a b. No operand is empty, and all are as large as their shapes.
pub(super) fn run<const PARTS: usize>(
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Right,
    (y, row): (&mut [f32], usize),
    start: Start,
) {
    let width = match b {
        Right::Plain(_) => WIDTH,
        Right::Packed(_) => n,
    };
    BUFFERS.with_borrow_mut(|Buffers { left, right, sums }| {
        for column in (0..n).step_by(width) {
            let n = width.min(n - column);
            for term in (0..k).step_by(TERMS) {
                let start = start.from(column, term);
                let k = TERMS.min(k - term);
                let right = match b {
                    Right::Packed(b) => b.block(term, k),
                    Right::Plain(b) => {
                        pack_right::<PARTS>(b, (term, column), (k, n), right);
                        &*right
                    }
                };
                for first in (0..m).step_by(ROWS) {
                    let m = ROWS.min(m - first);
                    let strides = (a.row, a.column);
                    let from = &a.data[first * a.row + term * a.column..];
                    amx_packing::pack::<PARTS, false>(from, strides, (m, k), left);
                    let y = (&mut y[first * row + column..], row);
                    Products {
                        sizes: (m, n, k),
                        left,
                        right,
                        start,
                    }
                    .write::<PARTS>(y, sums);
                }
            }
        }
    });
}

/// Packs the (k, n) block of `b` that starts at `first`.
pub(super) fn pack_right<const PARTS: usize>(
    b: Matrix,
    first: (usize, usize),
    (k, n): (usize, usize),
    to: &mut [f32],
) {
    let from = &b.data[first.0 * b.row + first.1 * b.column..];
    amx_packing::pack::<PARTS, true>(from, (b.column, b.row), (n, k), to);
}

/// A product of packed operands.
struct Products<'a> {
    sizes: (usize, usize, usize),
    left: &'a [f32],
    right: &'a [f32],
    start: Start<'a>,
}

impl Products<'_> {
    /// Stores the product in y. Rows far apart are summed in `sums` first.
    fn write<const PARTS: usize>(&self, (y, row): (&mut [f32], usize), sums: &mut [f32]) {
        let (m, n, _) = self.sizes;
        if row <= NEAR && m.is_multiple_of(SIDE) && n.is_multiple_of(SIDE) {
            let at = y.as_mut_ptr();
            let from = match self.start {
                Start::Zero => Sums::ZEROS,
                Start::There => Sums::rows(at.cast_const(), row),
                Start::Row(bias) => Sums::rows(bias[..n].as_ptr(), 0),
            };
            assert!((m - 1) * row + n <= y.len(), "product too small");
            // SAFETY: the result and the initial values have that many rows and columns.
            return unsafe { self.multiply::<PARTS>(0, (m, n), from, Sums::rows(at, row)) };
        }
        for first in (0..n).step_by(COLUMNS) {
            let columns = COLUMNS.min(n - first);
            let y = &mut y[first..];
            let mut line = [0.0; COLUMNS];
            let at = sums.as_mut_ptr();
            let from = match self.start {
                Start::Zero => Sums::ZEROS,
                Start::There => {
                    let rows = y.chunks(row).take(m);
                    for (sums, y) in sums.chunks_exact_mut(COLUMNS).zip(rows) {
                        copy(&y[..columns], sums);
                    }
                    Sums::rows(at.cast_const(), COLUMNS)
                }
                Start::Row(bias) => {
                    copy(&bias[first..first + columns], &mut line);
                    Sums::rows(line.as_ptr(), 0)
                }
            };
            // SAFETY: there is room for sums of that many rows and columns, and the initial line
            // has that length.
            unsafe { self.multiply::<PARTS>(first, (m, columns), from, Sums::rows(at, COLUMNS)) };
            for (y, sums) in y.chunks_mut(row).zip(sums.chunks_exact(COLUMNS)).take(m) {
                copy(&sums[..columns], y);
            }
        }
    }

    /// Multiplies the columns from `first` on.
    ///
    /// # Safety
    /// `to` must have room for whole groups of 16 rows and columns.
    unsafe fn multiply<const PARTS: usize>(
        &self,
        first: usize,
        (m, columns): (usize, usize),
        from: Sums<*const f32>,
        to: Sums<*mut f32>,
    ) {
        let k = self.sizes.2;
        let right = &self.right[words(PARTS, first, k)..][..words(PARTS, columns, k)];
        let left = &self.left[..words(PARTS, m, k)];
        let sizes = (m.div_ceil(SIDE), columns.div_ceil(SIDE), k);
        // SAFETY: operands are as large as their shapes, the sums by this function's contract, and
        // tiles are only multiplied on processors with AMX.
        unsafe { amx::multiply_tiles::<PARTS>(left.as_ptr(), right.as_ptr(), from, to, sizes) }
    }
}
