//! Some rows of the left operand, and their products with the panels of the right one.

use super::operands::{Matrix, Panels};
use super::{COLUMNS, copy};
use crate::kernels::factors::Factors;
use crate::kernels::isa::Lanes;
use crate::kernels::tile::{Left, PAD, PANEL, product};

/// Columns of a product up to which a left operand of f32 is never packed: that would cost more than it saves.
const FEW_COLUMNS: usize = 96;
/// Elements between the terms of a sum up to which a left operand of f32 is read where it lies. Cache lines further apart
/// than these 1 KiB fall into few sets of the caches and displace each other.
const NEAR: usize = 256;

/// Rows whose products with a block of panels are wanted.
pub(super) struct Rows<'a> {
    factors: Factors,
    /// (m, n, k).
    sizes: (usize, usize, usize),
    /// Of as many rows as fill whole panels of the register blocks.
    whole: Left<'a>,
    /// Of the others, with rows behind them that are there to be read.
    rest: Left<'a>,
}

impl<'a> Rows<'a> {
    /// m rows and k columns of `a`, from `first` on, for a product of n columns; what has to be packed goes to `space`.
    #[inline(always)]
    pub(super) fn new(
        factors: Factors,
        (a, first): (Matrix<'a>, (usize, usize)),
        (m, n, k): (usize, usize, usize),
        space: &'a mut [f32],
    ) -> Self {
        let count = m / PANEL * PANEL;
        let space = &mut space[..m.next_multiple_of(PANEL) * k];
        let near = n <= FEW_COLUMNS || a.column <= NEAR;
        let [whole, rest] = if factors == Factors::F32 && near {
            a.pack_panels((first.0 + count, first.1), (m - count, k), space);
            [a.left(first), Left::panels(space, k)]
        } else if factors != Factors::F32 && a.column == 1 {
            let len = factors.len(k);
            let space = &mut space[..m.next_multiple_of(PANEL) * len];
            a.pack_terms(first, (m, k), factors, space);
            let space = &*space;
            [space, &space[count * len..]].map(|rows| Left::strided(rows, len, 1))
        } else {
            a.pack_panels(first, (m, k), space);
            factors.panels(space, (k, PANEL));
            let space = &*space;
            [space, &space[count * k..]].map(|panels| Left::panels(panels, k))
        };
        Rows {
            factors,
            sizes: (m, n, k),
            whole,
            rest,
        }
    }

    /// Writes or adds the products with all panels of a block.
    #[inline(always)]
    pub(super) fn times<S: Lanes, const ADD: bool>(
        &self,
        s: S,
        panels: Panels,
        (y, row): (&mut [f32], usize),
        edge: &mut [f32],
    ) {
        for first in (0..self.sizes.1).step_by(COLUMNS) {
            self.times_panel::<S, ADD>(s, first, panels, (&mut y[first..], row), edge);
        }
    }

    /// Writes the products, each beginning with its column's element of `bias`.
    #[inline(always)]
    pub(super) fn times_after<S: Lanes>(
        &self,
        s: S,
        bias: &[f32],
        panels: Panels,
        (y, row): (&mut [f32], usize),
        edge: &mut [f32],
    ) {
        let (m, n, _) = self.sizes;
        for first in (0..n).step_by(COLUMNS) {
            let y = &mut y[first..];
            // Still in the nearest cache when the sums begin.
            for y in y.chunks_mut(row).take(m) {
                copy(&bias[first..n.min(first + COLUMNS)], y);
            }
            self.times_panel::<S, true>(s, first, panels, (y, row), edge);
        }
    }

    /// Writes or adds the products with the panel that starts at column `first`.
    #[inline(always)]
    fn times_panel<S: Lanes, const ADD: bool>(
        &self,
        s: S,
        first: usize,
        panels: Panels,
        (y, row): (&mut [f32], usize),
        edge: &mut [f32],
    ) {
        let (m, n, k) = self.sizes;
        let count = m / PANEL * PANEL;
        let panel = panels.from(first);
        let columns = COLUMNS.min(n - first);
        let sizes = (columns, k);
        if columns.is_multiple_of(PAD) {
            let sizes = (count, columns, k);
            product::<S, ADD>(s, self.factors, self.whole, panel, (y, row), sizes);
        } else {
            let rows = (self.whole, count);
            within::<S, ADD>(s, self.factors, rows, panel, (y, row), sizes, edge);
        }
        if count < m {
            let rows = (self.rest, m - count);
            let y = (&mut y[count * row..], row);
            within::<S, ADD>(s, self.factors, rows, panel, y, sizes, edge);
        }
    }
}

/// A product whose rows or columns do not fill whole panels or registers, by way of `edge`.
#[inline(always)]
fn within<S: Lanes, const ADD: bool>(
    s: S,
    factors: Factors,
    (left, rows): (Left, usize),
    panel: (&[f32], usize),
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
    let out = (&mut *edge, COLUMNS);
    product::<S, ADD>(s, factors, left, panel, out, sizes);
    for (i, sums) in edge.chunks_exact(COLUMNS).take(rows).enumerate() {
        y[i * row..][..columns].copy_from_slice(&sums[..columns]);
    }
}
