//! Matrix products on slices: operands packed into panels, and blocks of their product summed in registers.
//!
//! The right operand is cut into panels of [`COLUMNS`] columns, [`DEPTH`] rows at a time, so that a panel stays in the
//! first-level cache while every row of the left operand passes by. A weight that many tasks multiply by is packed once
//! for all of them ([`Packed`]). Every element of a product is summed in the order of k, whatever the shape around it:
//! how rows are split among tasks never changes a result.

use std::cell::RefCell;

use rayon::prelude::*;

use super::buffers::fresh;
use super::isa::{Isa, Kernel, Lanes};
use super::tile::{Left, PAD, PANEL, product};

/// Columns of a panel of the right operand: two of the widest registers.
const COLUMNS: usize = 32;
/// Rows of a panel: 24 KiB, of the 32 KiB or more of a first-level cache.
const DEPTH: usize = 256;
/// Rows of the left operand that are packed together.
const ROWS: usize = 64;
/// Columns of a right operand that one task packs for itself.
const WIDTH: usize = 256;
/// Columns of a product up to which its left operand is read where it lies: packing would cost more than it saves.
const DIRECT: usize = 96;

/// A matrix inside a slice: element (i, j) is `data[i * row + j * column]`, and one of the strides is 1.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `width` elements, one after the other.
    pub(super) fn rows(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: width,
            column: 1,
        }
    }

    /// The same memory read as the transposed matrix: columns of elements `width` apart.
    pub(super) fn columns(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: 1,
            column: width,
        }
    }

    fn transposed(self) -> Self {
        Matrix {
            data: self.data,
            row: self.column,
            column: self.row,
        }
    }

    /// The rows from `row` on, and of them the columns from `column` on, as they lie.
    #[inline(always)]
    fn left(&self, row: usize, column: usize) -> Left<'a> {
        let start = row * self.row + column * self.column;
        Left::strided(&self.data[start..], self.row, self.column)
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows * columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }

    /// Copies the columns `first.1..` of the rows `first.0..` into rows of `N`, as many as `panel` holds and `count`
    /// columns each; further columns become zero.
    #[inline(always)]
    fn pack<const N: usize>(&self, first: (usize, usize), count: usize, panel: &mut [f32]) {
        let start = first.0 * self.row + first.1 * self.column;
        let rows = panel.len() / N;
        if rows * count == 0 {
            return panel.fill(0.0);
        }
        if self.column == 1 {
            for (i, packed) in panel.chunks_exact_mut(N).enumerate() {
                let source = &self.data[start + i * self.row..][..count];
                // A copy of a length that the compiler knows is a few registers, any other a call.
                if let Some(source) = source.first_chunk::<N>() {
                    packed.copy_from_slice(source);
                } else {
                    packed[..count].copy_from_slice(source);
                    packed[count..].fill(0.0);
                }
            }
            return;
        }
        for j in (0..N).step_by(PANEL) {
            let source: [&[f32]; PANEL] = std::array::from_fn(|c| match j + c < count {
                true => &self.data[start + (j + c) * self.column..][..rows],
                false => &[],
            });
            if count - j.min(count) >= PANEL {
                transpose::<N>(source, &mut panel[j..]);
            } else {
                for (i, packed) in panel.chunks_exact_mut(N).enumerate() {
                    for (packed, source) in packed[j..j + PANEL].iter_mut().zip(source) {
                        *packed = source.get(i).copied().unwrap_or(0.0);
                    }
                }
            }
        }
    }
}

/// Writes `source` as columns of a matrix with rows of `N`.
#[inline(always)]
fn transpose<const N: usize>(source: [&[f32]; PANEL], packed: &mut [f32]) {
    let rows = source[0].len();
    let whole = rows / PANEL * PANEL;
    for first in (0..whole).step_by(PANEL) {
        let square: [[f32; PANEL]; PANEL] =
            std::array::from_fn(|c| std::array::from_fn(|i| source[c][first..first + PANEL][i]));
        for i in 0..PANEL {
            let row: [f32; PANEL] = std::array::from_fn(|c| square[c][i]);
            packed[(first + i) * N..][..PANEL].copy_from_slice(&row);
        }
    }
    for i in whole..rows {
        let row = source.map(|column| column[i]);
        packed[i * N..][..PANEL].copy_from_slice(&row);
    }
}

/// A right operand (k, n), packed.
pub(super) struct Packed {
    /// Blocks of [`DEPTH`] rows, and of each the panels.
    panels: Vec<f32>,
    depth: usize,
    columns: usize,
}

impl Packed {
    /// Packs on all threads.
    ///
    /// # Panics
    /// If the operand is smaller than its shape.
    pub(super) fn new(isa: Isa, b: Matrix, (k, n): (usize, usize)) -> Self {
        assert!(b.holds(k, n), "operand too small");
        let columns = n.next_multiple_of(COLUMNS);
        let mut panels = fresh(k * columns);
        panels
            .par_chunks_mut((DEPTH * columns).max(1))
            .enumerate()
            .for_each(|(block, panels)| {
                let depth = panels.len() / columns;
                panels
                    .par_chunks_mut(depth * COLUMNS)
                    .enumerate()
                    .for_each(|(index, panel)| {
                        let first = (block * DEPTH, index * COLUMNS);
                        let count = COLUMNS.min(n - first.1);
                        isa.run(Pack {
                            b,
                            first,
                            count,
                            panel,
                        });
                    });
            });
        Packed {
            panels,
            depth: k,
            columns: n,
        }
    }

    /// k.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The panels of the block of rows from `first` on.
    fn block(&self, first: usize, depth: usize) -> &[f32] {
        let columns = self.columns.next_multiple_of(COLUMNS);
        &self.panels[first * columns..][..depth * columns]
    }
}

struct Pack<'a> {
    b: Matrix<'a>,
    first: (usize, usize),
    count: usize,
    panel: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        self.b.pack::<COLUMNS>(self.first, self.count, self.panel);
    }
}

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
    run(isa, (m, n, k), a, Right::Plain(b), y, accumulate);
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
    let (n, k) = (b.columns, b.depth);
    run(isa, (m, n, k), a, Right::Packed(b), (y, n), accumulate);
}

fn run(
    isa: Isa,
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Right,
    (y, row): (&mut [f32], usize),
    accumulate: bool,
) {
    let fits = m * n == 0 || (row >= n && (m - 1) * row + n <= y.len());
    assert!(a.holds(m, k) && fits, "operand too small");
    if m * n == 0 {
        return;
    }
    if k == 0 {
        if !accumulate {
            y.chunks_mut(row).take(m).for_each(|y| y[..n].fill(0.0));
        }
        return;
    }
    SPACE.with_borrow_mut(|space| {
        isa.run(Product {
            sizes: (m, n, k),
            a,
            b,
            y: (y, row),
            accumulate,
            space,
        });
    });
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

#[derive(Clone, Copy)]
enum Right<'a> {
    Plain(Matrix<'a>),
    Packed(&'a Packed),
}

struct Product<'a> {
    sizes: (usize, usize, usize),
    a: Matrix<'a>,
    b: Right<'a>,
    y: (&'a mut [f32], usize),
    accumulate: bool,
    space: &'a mut Space,
}

impl Kernel for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Product {
            sizes: (m, n, k),
            a,
            b,
            y: (y, row),
            accumulate,
            space: Space { left, right, edge },
        } = self;
        let width = match b {
            Right::Plain(_) => WIDTH,
            Right::Packed(_) => n,
        };
        for column in (0..n).step_by(width) {
            let n = width.min(n - column);
            for depth in (0..k).step_by(DEPTH) {
                let add = accumulate || depth > 0;
                let k = DEPTH.min(k - depth);
                let panels = match b {
                    Right::Packed(b) => b.block(depth, k),
                    Right::Plain(b) => {
                        let right = &mut right[..n.div_ceil(COLUMNS) * COLUMNS * k];
                        for (index, panel) in right.chunks_exact_mut(COLUMNS * k).enumerate() {
                            let first = index * COLUMNS;
                            let count = COLUMNS.min(n - first);
                            b.pack::<COLUMNS>((depth, column + first), count, panel);
                        }
                        &*right
                    }
                };
                for first in (0..m).step_by(ROWS) {
                    let m = ROWS.min(m - first);
                    let whole = m / PANEL * PANEL;
                    let packed_from = if n <= DIRECT { whole } else { 0 };
                    let packs = left.chunks_exact_mut(PANEL * k);
                    for (row, panel) in (packed_from..m).step_by(PANEL).zip(packs) {
                        let count = PANEL.min(m - row);
                        a.transposed()
                            .pack::<PANEL>((depth, first + row), count, panel);
                    }
                    let rest = Left::panels(&left[(whole - packed_from) * k..], k);
                    let counts = [whole, m - whole];
                    let y = (&mut y[first * row + column..], row);
                    // One loop for constant strides, one for any.
                    if packed_from == 0 {
                        let rows = Rows::new([Left::panels(left, k), rest], counts);
                        rows.times(s, (n, k), panels, y, add, edge);
                    } else {
                        let rows = Rows::new([a.left(first, depth), rest], counts);
                        rows.times(s, (n, k), panels, y, add, edge);
                    }
                }
            }
        }
    }
}

/// Rows of the left operand: whole panels, and what is left of the last one.
struct Rows<'a> {
    whole: Left<'a>,
    count: usize,
    rest: Left<'a>,
    rest_count: usize,
}

impl<'a> Rows<'a> {
    #[inline(always)]
    fn new([whole, rest]: [Left<'a>; 2], [count, rest_count]: [usize; 2]) -> Self {
        Rows {
            whole,
            count,
            rest,
            rest_count,
        }
    }

    /// Writes or adds the products with all panels of a block.
    #[inline(always)]
    fn times<S: Lanes>(
        &self,
        s: S,
        sizes: (usize, usize),
        panels: &[f32],
        y: (&mut [f32], usize),
        add: bool,
        edge: &mut [f32],
    ) {
        match add {
            true => self.write::<S, true>(s, sizes, panels, y, edge),
            false => self.write::<S, false>(s, sizes, panels, y, edge),
        }
    }

    #[inline(always)]
    fn write<S: Lanes, const ADD: bool>(
        &self,
        s: S,
        (n, k): (usize, usize),
        panels: &[f32],
        (y, row): (&mut [f32], usize),
        edge: &mut [f32],
    ) {
        for (index, panel) in panels.chunks_exact(COLUMNS * k).enumerate() {
            let first = index * COLUMNS;
            let columns = COLUMNS.min(n - first);
            let sizes = (columns, k);
            let out = &mut y[first..];
            if columns.is_multiple_of(PAD) {
                let sizes = (self.count, columns, k);
                product::<S, ADD>(s, self.whole, (panel, COLUMNS), (out, row), sizes);
            } else {
                within::<S, ADD>(s, (self.whole, self.count), panel, (out, row), sizes, edge);
            }
            if self.rest_count > 0 {
                let out = &mut y[self.count * row + first..];
                within::<S, ADD>(
                    s,
                    (self.rest, self.rest_count),
                    panel,
                    (out, row),
                    sizes,
                    edge,
                );
            }
        }
    }
}

/// A product whose rows or columns do not fill whole panels or registers, by way of `edge`.
#[inline(always)]
fn within<S: Lanes, const ADD: bool>(
    s: S,
    (left, rows): (Left, usize),
    panel: &[f32],
    (y, row): (&mut [f32], usize),
    (columns, k): (usize, usize),
    edge: &mut [f32],
) {
    if ADD {
        for (i, sums) in edge.chunks_exact_mut(COLUMNS).take(rows).enumerate() {
            sums[..columns].copy_from_slice(&y[i * row..][..columns]);
        }
    }
    let sizes = (
        rows.next_multiple_of(PANEL),
        columns.next_multiple_of(PAD),
        k,
    );
    product::<S, ADD>(s, left, (panel, COLUMNS), (&mut *edge, COLUMNS), sizes);
    for (i, sums) in edge.chunks_exact(COLUMNS).take(rows).enumerate() {
        y[i * row..][..columns].copy_from_slice(&sums[..columns]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::twin::Sampler;

    fn numbers(sampler: &mut Sampler, len: usize) -> Vec<f32> {
        let numbers = sampler.normal(&[len], 1.0);
        numbers.to_vec1().unwrap()
    }

    /// Sums in f64.
    fn slow((m, n, k): (usize, usize, usize), a: Matrix, b: Matrix, y: &[f32]) -> Vec<f32> {
        let at = |x: Matrix, i, j| f64::from(x.data[i * x.row + j * x.column]);
        let cell = |cell| {
            let (i, j) = (cell / n, cell % n);
            let sum: f64 = (0..k).map(|d| at(a, i, d) * at(b, d, j)).sum();
            (f64::from(y[cell]) + sum) as f32
        };
        (0..m * n).map(cell).collect()
    }

    #[test]
    fn products_meet_the_definition() {
        let mut sampler = Sampler::new(81);
        for sizes in [
            (1, 1, 1),
            (3, 0, 2),
            (2, 3, 0),
            (7, 15, 9),
            (8, 16, 40),
            (65, 33, 257),
            (130, 97, 70),
            (20, 300, 520),
        ] {
            let (m, n, k) = sizes;
            let [a, b, y] = [m * k, k * n, m * n].map(|len| numbers(&mut sampler, len));
            for (a_turned, b_turned) in [(false, false), (true, false), (false, true)] {
                let matrix = |data, rows, columns, turned| match turned {
                    true => Matrix::columns(data, rows),
                    false => Matrix::rows(data, columns),
                };
                let (a, b) = (matrix(&a, m, k, a_turned), matrix(&b, k, n, b_turned));
                let expected = [slow(sizes, a, b, &vec![0.0; m * n]), slow(sizes, a, b, &y)];
                for isa in Isa::all() {
                    let packed = Packed::new(isa, b, (k, n));
                    for accumulate in [false, true] {
                        let mut plain = y.clone();
                        multiply(isa, sizes, a, b, &mut plain, accumulate);
                        let mut other = y.clone();
                        multiply_packed(isa, m, a, &packed, &mut other, accumulate);
                        assert_eq!(plain, other, "{isa:?} {sizes:?}");
                        for (found, expected) in
                            plain.iter().zip(&expected[usize::from(accumulate)])
                        {
                            let size = 1.0 + expected.abs() + (k as f32).sqrt();
                            let error = (found - expected).abs() / size;
                            assert!(error < 2e-6, "{isa:?} {sizes:?}: {found}, not {expected}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn rows_do_not_depend_on_the_rows_beside_them() {
        let mut sampler = Sampler::new(82);
        let (m, n, k) = (150, 45, 300);
        let [a, b, y] = [m * k, k * n, m * n].map(|len| numbers(&mut sampler, len));
        for isa in Isa::all() {
            let product = |rows: usize| {
                let mut y = y.clone();
                for (y, a) in y.chunks_mut(rows * n).zip(a.chunks(rows * k)) {
                    let sizes = (y.len() / n, n, k);
                    multiply(isa, sizes, Matrix::rows(a, k), Matrix::rows(&b, n), y, true);
                }
                y
            };
            assert_eq!(product(m), product(1), "{isa:?}");
            assert_eq!(product(m), product(37), "{isa:?}");
        }
    }

    #[test]
    fn what_lies_between_rows_is_left_alone() {
        let isa = Isa::current();
        let mut y = [7.0; 8];
        let (a, b) = ([1.0, 2.0], [3.0, 4.0]);
        let (a, b) = (Matrix::columns(&a, 2), Matrix::rows(&b, 2));
        multiply_into(isa, (2, 2, 1), a, b, (&mut y, 5), false);
        assert_eq!(y, [3.0, 4.0, 7.0, 7.0, 7.0, 6.0, 8.0, 7.0]);
        multiply_into(isa, (2, 2, 0), a, b, (&mut y, 5), false);
        assert_eq!(y, [0.0, 0.0, 7.0, 7.0, 7.0, 0.0, 0.0, 7.0]);
    }
}
