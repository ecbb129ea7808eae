//! Products by AMX, whose instructions are so fast that what reads and writes their operands decides.
//!
//! Sums of a panel of columns stay in a buffer of their own until all terms are in: tiles of the product itself would be
//! rows far apart, which displace each other in the nearest cache. So are rows of the left operand kept in blocks of
//! [`DEPTH`] terms.

use std::cell::RefCell;

use super::operands::{Matrix, fetch};
use super::{COLUMNS, DEPTH, Right, Start, WIDTH, copy};
use crate::kernels::buffers::Aligned;
use crate::kernels::factors::{Factors, amx};
use crate::kernels::isa::{Isa, Kernel, Lanes};
use crate::kernels::tile::{PAD, PANEL};

/// Rows of the left operand that are multiplied by one panel after the other.
const ROWS: usize = 256;
/// Terms that are packed together.
const TERMS: usize = 4 * DEPTH;
/// Elements between rows of a product up to which tiles are written where they belong: 1 KiB, at which the rows of a tile fall
/// into a quarter of the sets of the nearest cache.
const NEAR: usize = 256;

/// Where a thread packs, and sums.
struct Space {
    left: Aligned,
    right: Aligned,
    sums: Aligned,
}

thread_local! {
    static SPACE: RefCell<Space> = RefCell::new(Space {
        left: Aligned::uninit(ROWS * TERMS / 2),
        right: Aligned::uninit(WIDTH * TERMS / 2),
        sums: Aligned::uninit(ROWS * COLUMNS),
    });
}

/// y = a b for operands that fit, of which none is empty, with sums from `start` on.
pub(super) fn run(
    isa: Isa,
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
                        let wide = n.next_multiple_of(COLUMNS);
                        for depth in (0..k).step_by(DEPTH) {
                            let (first, k) = ((term + depth, column), DEPTH.min(k - depth));
                            let right = &mut right[wide * depth / 2..];
                            b.pack::<COLUMNS>(first, (k, n), Factors::Tiles, right);
                        }
                        &*right
                    }
                };
                for first in (0..m).step_by(ROWS) {
                    let m = ROWS.min(m - first);
                    let rows = m.next_multiple_of(PANEL);
                    for depth in (0..k).step_by(DEPTH) {
                        let (from, k) = ((first, term + depth), DEPTH.min(k - depth));
                        let left = &mut left[ROWS * depth / 2..][..rows * k.div_ceil(2)];
                        pack_left(a, from, (m, k), left);
                    }
                    let y = &mut y[first * row + column..];
                    isa.run(Products {
                        sizes: (m, n, k),
                        left,
                        right,
                        y: (y, row),
                        start,
                        sums,
                    });
                }
            }
        }
    });
}

/// Makes rows of pairs of k columns of m rows, from `first` on; rows that are missing become zero.
fn pack_left(a: Matrix, first: (usize, usize), (m, k): (usize, usize), packed: &mut [f32]) {
    if a.column == 1 {
        return a.pack_terms(first, (m, k), Factors::Tiles, packed);
    }
    let len = k.div_ceil(2);
    let start = first.0 + first.1 * a.column;
    for term in (0..k).step_by(2 * amx::SIDE) {
        let count = (2 * amx::SIDE).min(k - term);
        let data = &a.data[start + term * a.column..];
        for next in 2 * amx::SIDE..2 * amx::SIDE + count {
            fetch(data, next * a.column, m);
        }
        let to = (&mut packed[term / 2..], len);
        amx::transpose_terms((data, a.column), (m, count), to);
    }
    packed[m * len..].fill(0.0);
}

/// Writes the products of packed rows with packed panels; sums of many terms, or of rows far apart, are copied to
/// where they belong at last.
struct Products<'a> {
    sizes: (usize, usize, usize),
    left: &'a [f32],
    right: &'a [f32],
    y: (&'a mut [f32], usize),
    start: Start<'a>,
    sums: &'a mut [f32],
}

impl Kernel for Products<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Products {
            sizes: (m, n, k),
            left,
            right,
            y: (y, row),
            start,
            sums,
        } = self;
        let wide = n.next_multiple_of(COLUMNS);
        let near = k <= DEPTH && row <= NEAR && m.is_multiple_of(PANEL);
        for first in (0..n).step_by(COLUMNS) {
            let columns = COLUMNS.min(n - first);
            let y = &mut y[first..];
            let start = start.from(first, 0);
            let add = !matches!(start, Start::Zero);
            if near && columns.is_multiple_of(PAD) {
                if let Start::Row(bias) = start {
                    let rows = y.chunks_mut(row).take(m);
                    rows.for_each(|y| copy(&bias[..columns], y));
                }
                let len = k.div_ceil(2);
                let panel = (&right[first * len..][..COLUMNS * len], COLUMNS);
                amx::multiply((left, len), panel, (y, row), (m, columns, len), add);
                continue;
            }
            let rows = sums.chunks_exact_mut(COLUMNS).take(m);
            match start {
                Start::Zero => {}
                Start::There => rows
                    .zip(y.chunks(row))
                    .for_each(|(sums, y)| copy(&y[..columns], sums)),
                Start::Row(bias) => rows.for_each(|sums| copy(&bias[..columns], sums)),
            }
            for depth in (0..k).step_by(DEPTH) {
                let len = DEPTH.min(k - depth).div_ceil(2);
                let panel = &right[wide * depth / 2 + first * len..][..COLUMNS * len];
                let left = (&left[ROWS * depth / 2..], len);
                let to = (&mut *sums, COLUMNS);
                let sizes = (m.next_multiple_of(PANEL), COLUMNS, len);
                amx::multiply(left, (panel, COLUMNS), to, sizes, add || depth > 0);
            }
            for (y, sums) in y.chunks_mut(row).zip(sums.chunks_exact(COLUMNS)).take(m) {
                copy(&sums[..columns], y);
            }
        }
    }
}
