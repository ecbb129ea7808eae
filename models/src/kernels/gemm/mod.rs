//! Matrix products on slices: operands packed into panels, and blocks of their product summed in registers.
//!
//! The right operand is cut into panels of [`COLUMNS`] columns, [`DEPTH`] rows at a time, so that a panel stays in the
//! nearest caches while the rows of the left operand pass by. A weight that many tasks multiply by is packed once
//! for all of them ([`Packed`]). Every element of a product is summed in the order of k, whatever the shape around it:
//! how rows are split among tasks never changes a result.

mod operands;
mod rows;
#[cfg(target_arch = "x86_64")]
mod tiles;

use std::cell::RefCell;

use self::operands::Panels;
pub(super) use self::operands::{Matrix, Packed};
use self::rows::Rows;
use super::factors::Factors;
use super::isa::{Isa, Kernel, Lanes};

/// Columns of a panel of the right operand: two of the widest registers.
const COLUMNS: usize = 32;
/// Rows of a panel, which then has 32 KiB. On Zen 4, 192 to 384 are alike.
const DEPTH: usize = 256;
/// Rows of the left operand that are multiplied by one panel after the other: enough to make up for bringing the panel from
/// the last cache, few enough for the second one.
const ROWS: usize = 64;
/// Terms and columns from which on f32 is cut into parts.
const SPLIT_WIDTH: usize = 64;
/// Columns of a right operand that one task packs for itself.
const WIDTH: usize = 256;

/// y = a b, or y += a b, for a (m, k), b (k, n) and y (m, n) in rows.
///
/// # Panics
/// If an operand is smaller than its shape.
pub(super) fn multiply(
    isa: Isa,
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Matrix,
    y: &mut [f32],
    accumulate: bool,
) {
    multiply_into(isa, (m, n, k), a, b, (y, n), accumulate);
}

/// The same for a y whose rows are `row` apart.
///
/// # Panics
/// If an operand is smaller than its shape, or rows overlap.
pub(super) fn multiply_into(
    isa: Isa,
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Matrix,
    y: (&mut [f32], usize),
    accumulate: bool,
) {
    assert!(b.holds(k, n), "operand too small");
    let start = Start::there_if(accumulate);
    run(isa, (m, n, k), a, Right::Plain(b), y, start);
}

/// y = a b, or y += a b, for a (m, k), a packed b, and y (m, n) in rows.
///
/// # Panics
/// If an operand is smaller than its shape.
pub(super) fn multiply_packed(
    isa: Isa,
    m: usize,
    a: Matrix,
    b: &Packed,
    y: &mut [f32],
    accumulate: bool,
) {
    multiply_packed_into(isa, m, a, b, (y, b.columns), accumulate);
}

/// The same for a y whose rows are `row` apart.
///
/// # Panics
/// If an operand is smaller than its shape, or rows overlap.
pub(super) fn multiply_packed_into(
    isa: Isa,
    m: usize,
    a: Matrix,
    b: &Packed,
    y: (&mut [f32], usize),
    accumulate: bool,
) {
    let (n, k) = (b.columns, b.depth);
    let start = Start::there_if(accumulate);
    run(isa, (m, n, k), a, Right::Packed(b), y, start);
}

/// y = a b + bias for a (m, k), a packed b, a bias of n numbers, and y (m, n) in rows.
///
/// # Panics
/// If an operand is smaller than its shape.
pub(super) fn affine(isa: Isa, a: Matrix, b: &Packed, bias: &[f32], y: &mut [f32]) {
    let (n, k) = (b.columns, b.depth);
    let m = y.len() / n.max(1);
    let start = Start::Row(&bias[..n]);
    run(isa, (m, n, k), a, Right::Packed(b), (y, n), start);
}

/// What the sums of a product start from.
#[derive(Clone, Copy)]
enum Start<'a> {
    Zero,
    /// What lies where they go.
    There,
    /// These, in every row.
    Row(&'a [f32]),
}

impl<'a> Start<'a> {
    fn there_if(there: bool) -> Self {
        match there {
            true => Start::There,
            false => Start::Zero,
        }
    }

    /// For the columns from `column` on and the terms from `term` on: later terms are added to earlier ones.
    fn from(self, column: usize, term: usize) -> Self {
        match self {
            _ if term > 0 => Start::There,
            Start::Row(row) => Start::Row(&row[column..]),
            start => start,
        }
    }
}

fn run(
    isa: Isa,
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Right,
    (y, row): (&mut [f32], usize),
    start: Start,
) {
    let fits = m * n == 0 || (row >= n && (m - 1) * row + n <= y.len());
    assert!(a.holds(m, k) && fits, "operand too small");
    if m * n == 0 {
        return;
    }
    if k == 0 {
        for y in y.chunks_mut(row).take(m) {
            match start {
                Start::Zero => y[..n].fill(0.0),
                Start::There => {}
                Start::Row(row) => y[..n].copy_from_slice(row),
            }
        }
        return;
    }
    let factors = match b {
        Right::Packed(b) => b.factors,
        Right::Plain(_) => factors_for(isa, (k, n)),
    };
    #[cfg(target_arch = "x86_64")]
    match factors {
        Factors::Tiles => return tiles::run::<1>((m, n, k), a, b, (y, row), start),
        Factors::Split => return tiles::run::<3>((m, n, k), a, b, (y, row), start),
        _ => {}
    }
    SPACE.with_borrow_mut(|space| {
        isa.run(Product {
            sizes: (m, n, k),
            factors,
            a,
            b,
            y: (y, row),
            start,
            space,
        });
    });
}

/// How factors of products with so many terms and columns are taken, whatever the number of rows.
fn factors_for(isa: Isa, (k, n): (usize, usize)) -> Factors {
    isa.factors().for_width(k.min(n), SPLIT_WIDTH)
}

/// Where a thread packs.
struct Space {
    left: Box<[f32]>,
    right: Box<[f32]>,
    /// A block of the product that reaches beyond the product's rows or columns.
    edge: Box<[f32]>,
}

thread_local! {
    static SPACE: RefCell<Space> = RefCell::new(Space {
        left: vec![0.0; ROWS * DEPTH].into(),
        right: vec![0.0; WIDTH * DEPTH].into(),
        edge: vec![0.0; ROWS * COLUMNS].into(),
    });
}

/// Has this thread fetch what it packs into.
pub(super) fn fetch_buffers() {
    #[cfg(target_arch = "x86_64")]
    if Isa::current().factors().are_tiles() {
        tiles::fetch_buffers();
    }
    SPACE.with_borrow(|_| {});
}

#[derive(Clone, Copy)]
enum Right<'a> {
    Plain(Matrix<'a>),
    Packed(&'a Packed),
}

struct Product<'a> {
    sizes: (usize, usize, usize),
    factors: Factors,
    a: Matrix<'a>,
    b: Right<'a>,
    y: (&'a mut [f32], usize),
    start: Start<'a>,
    space: &'a mut Space,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Product {
            sizes: (m, n, k),
            factors,
            a,
            b,
            y: (y, row),
            start,
            space: Space { left, right, edge },
        } = self;
        let width = match b {
            Right::Plain(_) => WIDTH,
            Right::Packed(_) => n,
        };
        for column in (0..n).step_by(width) {
            let n = width.min(n - column);
            for depth in (0..k).step_by(DEPTH) {
                let start = start.from(column, depth);
                let k = DEPTH.min(k - depth);
                let panels = match b {
                    Right::Packed(b) => Panels::packed(b.block(depth, k), factors, k),
                    Right::Plain(b) if factors == Factors::F32 && b.are_panels(n) => {
                        b.panels((depth, column))
                    }
                    Right::Plain(b) => {
                        let len = n.next_multiple_of(COLUMNS) * factors.len(k);
                        let right = &mut right[..len];
                        b.pack::<COLUMNS>((depth, column), (k, n), factors, right);
                        Panels::packed(right, factors, k)
                    }
                };
                for first in (0..m).step_by(ROWS) {
                    let m = ROWS.min(m - first);
                    let rows = Rows::new(factors, (a, (first, depth)), (m, n, k), left);
                    let y = (&mut y[first * row + column..], row);
                    match start {
                        Start::Zero => rows.times::<S, false>(s, panels, y, edge),
                        Start::There => rows.times::<S, true>(s, panels, y, edge),
                        Start::Row(bias) => rows.times_after::<S>(s, bias, panels, y, edge),
                    }
                }
            }
        }
    }
}

/// Copies as much as `from` has; a whole panel's columns are a few registers.
#[inline(always)]
fn copy(from: &[f32], to: &mut [f32]) {
    match (
        from.first_chunk::<COLUMNS>(),
        to.first_chunk_mut::<COLUMNS>(),
    ) {
        (Some(from), Some(to)) => *to = *from,
        _ => to[..from.len()].copy_from_slice(from),
    }
}

#[cfg(test)]
mod tests;
