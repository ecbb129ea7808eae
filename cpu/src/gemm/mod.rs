//! General matrix products (GEMM) on slices: y = a b for a (m, k), b (k, n) and y (m, n).
//!
//! `b` is packed into panels of `COLUMNS` columns and `DEPTH` rows. A panel stays in the nearest
//! caches while the rows of `a` are multiplied by it, and blocks of y are summed in registers. A
//! weight shared by many tasks is packed once ([`PackedMatrix`]). Every element of y is summed in
//! the order of k, so splitting the rows among tasks never changes a result. AMX has another order
//! of sums, which does not depend on the split either.

mod operands;
mod rows;
#[cfg(target_arch = "x86_64")]
mod tiles;

use std::cell::RefCell;

use self::operands::Panels;
pub use self::operands::{Matrix, PackedMatrix};
use self::rows::Rows;
use super::format::Format;
use crate::isa::Isa;
use crate::simd::{Kernel, Lanes};

/// Columns of a panel of `b`: two of the widest registers.
const COLUMNS: usize = 32;
/// Rows of a panel, which then has 32 KiB. On Zen 4, 192 to 384 are equally fast.
const DEPTH: usize = 256;
/// Rows of `a` that are multiplied by one panel after the other: enough to amortise loading the
/// panel from the last-level cache, few enough for the L2 cache.
const ROWS: usize = 64;
/// Least number of terms and columns for multiplying f32 as three bf16.
const SPLIT_WIDTH: usize = 64;
/// Columns of `b` that a task packs at a time.
const WIDTH: usize = 256;

/// Computes y = a b, or y += a b, for a (m, k), b (k, n) and a row-major y (m, n).
///
/// # Panics
/// If an operand is smaller than its shape.
pub fn multiply(
    isa: Isa,
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Matrix,
    y: &mut [f32],
    accumulate: bool,
) {
    multiply_into(isa, (m, n, k), a, b, (y, n), accumulate);
}

/// Computes what [`multiply`] does, for `y` = (elements, distance): row i of y begins at i times
/// the distance. Elements between rows stay as they are.
///
/// # Panics
/// If an operand is smaller than its shape, or rows overlap.
pub fn multiply_into(
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

/// Computes y = a b, or y += a b, for a (m, k), a packed b (k, n) and a row-major y (m, n).
///
/// # Panics
/// If an operand is smaller than its shape.
pub fn multiply_packed(
    isa: Isa,
    m: usize,
    a: Matrix,
    b: &PackedMatrix,
    y: &mut [f32],
    accumulate: bool,
) {
    multiply_packed_into(isa, m, a, b, (y, b.columns), accumulate);
}

/// Computes what [`multiply_packed`] does, for `y` = (elements, distance), as in [`multiply_into`].
///
/// # Panics
/// If an operand is smaller than its shape, or rows overlap.
pub fn multiply_packed_into(
    isa: Isa,
    m: usize,
    a: Matrix,
    b: &PackedMatrix,
    y: (&mut [f32], usize),
    accumulate: bool,
) {
    let (n, k) = (b.columns, b.depth);
    let start = Start::there_if(accumulate);
    run(isa, (m, n, k), a, Right::Packed(b), y, start);
}

/// Computes y = a b + bias for a (m, k), a packed b (k, n), bias (n) and a row-major y (m, n).
///
/// # Panics
/// If an operand is smaller than its shape.
pub fn affine(isa: Isa, a: Matrix, b: &PackedMatrix, bias: &[f32], y: &mut [f32]) {
    let (n, k) = (b.columns, b.depth);
    let m = y.len() / n.max(1);
    let start = Start::Row(&bias[..n]);
    run(isa, (m, n, k), a, Right::Packed(b), (y, n), start);
}

/// The initial value of y.
#[derive(Clone, Copy)]
enum Start<'a> {
    Zero,
    /// The values that y holds.
    There,
    /// A row, repeated.
    Row(&'a [f32]),
}

impl<'a> Start<'a> {
    fn there_if(there: bool) -> Self {
        match there {
            true => Start::There,
            false => Start::Zero,
        }
    }

    /// Returns the initial value of the columns from `column` on for the terms from `term` on.
    /// Later terms are added to earlier ones.
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
    let format = match b {
        Right::Packed(b) => b.format,
        Right::Plain(_) => format_for(isa, (k, n)),
    };
    #[cfg(target_arch = "x86_64")]
    match format {
        Format::Bf16Amx => return tiles::run::<1>((m, n, k), a, b, (y, row), start),
        Format::Bf16x3Amx => return tiles::run::<3>((m, n, k), a, b, (y, row), start),
        _ => {}
    }
    BUFFERS.with_borrow_mut(|space| {
        isa.run(Product {
            sizes: (m, n, k),
            format,
            a,
            b,
            y: (y, row),
            start,
            space,
        });
    });
}

/// Returns the format for a `b` (k, n), regardless of the number of rows of `a`.
fn format_for(isa: Isa, (k, n): (usize, usize)) -> Format {
    isa.format().for_width(k.min(n), SPLIT_WIDTH)
}

/// The buffers into which a thread packs.
struct Buffers {
    left: Box<[f32]>,
    right: Box<[f32]>,
    /// A block of y that extends beyond its rows or columns.
    edge: Box<[f32]>,
}

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::new(Buffers {
        left: vec![0.0; ROWS * DEPTH].into(),
        right: vec![0.0; WIDTH * DEPTH].into(),
        edge: vec![0.0; ROWS * COLUMNS].into(),
    });
}

/// Allocates the buffers of this thread.
pub fn fetch_buffers() {
    #[cfg(target_arch = "x86_64")]
    if Isa::current().format().is_amx() {
        tiles::fetch_buffers();
    }
    BUFFERS.with_borrow(|_| {});
}

#[derive(Clone, Copy)]
enum Right<'a> {
    Plain(Matrix<'a>),
    Packed(&'a PackedMatrix),
}

struct Product<'a> {
    sizes: (usize, usize, usize),
    format: Format,
    a: Matrix<'a>,
    b: Right<'a>,
    y: (&'a mut [f32], usize),
    start: Start<'a>,
    space: &'a mut Buffers,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Product {
            sizes: (m, n, k),
            format,
            a,
            b,
            y: (y, row),
            start,
            space: Buffers { left, right, edge },
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
                    Right::Packed(b) => Panels::packed(b.block(depth, k), format, k),
                    Right::Plain(b) if format == Format::F32 && b.are_panels(n) => {
                        b.panels((depth, column))
                    }
                    Right::Plain(b) => {
                        let len = n.next_multiple_of(COLUMNS) * format.len(k);
                        let right = &mut right[..len];
                        b.pack::<COLUMNS>((depth, column), (k, n), format, right);
                        Panels::packed(right, format, k)
                    }
                };
                for first in (0..m).step_by(ROWS) {
                    let m = ROWS.min(m - first);
                    let rows = Rows::new(format, (a, (first, depth)), (m, n, k), left);
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

/// Copies `from` to the start of `to`. A whole panel's row is copied in a few registers.
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
