//! Products by AMX, whose instructions are so fast that what reads and writes their operands decides.
//!
//! Both operands are packed into tiles that lie one after the other. Where rows of the product are far apart, sums of a panel of
//! columns stay in a buffer of their own until all terms are in: tiles of rows far apart displace each other in the nearest cache.

use std::cell::RefCell;

use super::operands::Matrix;
use super::{COLUMNS, Right, Start, WIDTH, copy};
use crate::kernels::buffers::Aligned;
use crate::kernels::factors::amx::{self, Sums};
use crate::kernels::factors::packing::{self, words};

/// Rows of the left operand that are multiplied by one panel after the other.
const ROWS: usize = 128;
/// Terms that are packed together.
pub(super) const TERMS: usize = 512;
/// Elements between rows of a product up to which tiles are written where they belong: 1 KiB, at which the rows of a tile fall
/// into a quarter of the sets of the nearest cache.
const NEAR: usize = 256;
/// The most parts of a number.
const MOST_PARTS: usize = 3;

const SIDE: usize = amx::SIDE;

/// Where a thread packs, and sums.
struct Space {
    left: Aligned,
    right: Aligned,
    sums: Aligned,
}

thread_local! {
    static SPACE: RefCell<Space> = RefCell::new(Space {
        left: Aligned::unspecified(words(MOST_PARTS, ROWS, TERMS)),
        right: Aligned::unspecified(words(MOST_PARTS, WIDTH, TERMS)),
        sums: Aligned::unspecified(ROWS * COLUMNS),
    });
}

/// Has this thread fetch what it packs into.
pub(super) fn fetch_buffers() {
    SPACE.with_borrow(|_| {});
}

/// y = a b for operands that fit, of which none is empty, with sums from `start` on.
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
    SPACE.with_borrow_mut(|Space { left, right, sums }| {
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
                    packing::pack::<PARTS, false>(from, strides, (m, k), left);
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

/// Packs k rows and n columns of a right operand, from `first` on.
pub(super) fn pack_right<const PARTS: usize>(
    b: Matrix,
    first: (usize, usize),
    (k, n): (usize, usize),
    to: &mut [f32],
) {
    let from = &b.data[first.0 * b.row + first.1 * b.column..];
    packing::pack::<PARTS, true>(from, (b.column, b.row), (n, k), to);
}

/// Products of packed rows with packed panels.
struct Products<'a> {
    sizes: (usize, usize, usize),
    left: &'a [f32],
    right: &'a [f32],
    start: Start<'a>,
}

impl Products<'_> {
    /// Writes them to y, sums of rows far apart by way of `sums`.
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
            // SAFETY: the product has as many rows and columns, and so have what they start from.
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
            // SAFETY: there is room for sums of as many rows and columns, and the line is as long.
            unsafe { self.multiply::<PARTS>(first, (m, columns), from, Sums::rows(at, COLUMNS)) };
            for (y, sums) in y.chunks_mut(row).zip(sums.chunks_exact(COLUMNS)).take(m) {
                copy(&sums[..columns], y);
            }
        }
    }

    /// Some columns of the products, from `first` on.
    ///
    /// # Safety
    /// Sums must have room for whole groups of rows and columns.
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
        // SAFETY: operands are as large as their shapes, sums by this function's contract, and tiles are only multiplied where AMX is.
        unsafe { amx::multiply_tiles::<PARTS>(left.as_ptr(), right.as_ptr(), from, to, sizes) }
    }
}
