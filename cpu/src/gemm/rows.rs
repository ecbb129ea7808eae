//! Products of some rows of `a` with the panels of `b`.

use super::operands::{Matrix, Panels};
use super::{COLUMNS, copy};
use crate::format::Format;
use crate::simd::Lanes;
use crate::tile::{Lhs, PAD, PANEL, product};

/// Largest number of columns of y for which an f32 `a` is never packed, because packing would cost
/// more than it saves.
const FEW_COLUMNS: usize = 96;
/// The longest stride between terms at which an f32 `a` is not packed: 1 KiB. Cache lines further
/// apart map to few sets.
const NEAR: usize = 256;

/// Rows of `a`, packed if that pays off.
pub(super) struct Rows<'a> {
    format: Format,
    /// (m, n, k).
    sizes: (usize, usize, usize),
    /// The rows that fill whole panels.
    whole: Lhs<'a>,
    /// The other rows, padded to a panel.
    rest: Lhs<'a>,
}

impl<'a> Rows<'a> {
    /// Takes the (m, k) block of `a` that starts at `first`, for a product of n columns. Packs into
    /// `scratch`.
    #[inline(always)]
    pub(super) fn new(
        format: Format,
        (a, first): (Matrix<'a>, (usize, usize)),
        (m, n, k): (usize, usize, usize),
        scratch: &'a mut [f32],
    ) -> Self {
        let count = m / PANEL * PANEL;
        let scratch = &mut scratch[..m.next_multiple_of(PANEL) * k];
        let near = n <= FEW_COLUMNS || a.column <= NEAR;
        let [whole, rest] = if format == Format::F32 && near {
            a.pack_panels((first.0 + count, first.1), (m - count, k), scratch);
            [a.left(first), Lhs::panels(scratch, k)]
        } else if format != Format::F32 && a.column == 1 {
            let len = format.len(k);
            let scratch = &mut scratch[..m.next_multiple_of(PANEL) * len];
            a.pack_terms(first, (m, k), format, scratch);
            let scratch = &*scratch;
            [scratch, &scratch[count * len..]].map(|rows| Lhs::strided(rows, len, 1))
        } else {
            a.pack_panels(first, (m, k), scratch);
            format.convert_panels(scratch, (k, PANEL));
            let scratch = &*scratch;
            [scratch, &scratch[count * k..]].map(|panels| Lhs::panels(panels, k))
        };
        Rows {
            format,
            sizes: (m, n, k),
            whole,
            rest,
        }
    }

    /// Stores (or adds) the products with all panels of a block.
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

    /// Stores bias + the products with all panels of a block.
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
            // These lines are still in the L1 cache when the sums begin.
            for y in y.chunks_mut(row).take(m) {
                copy(&bias[first..n.min(first + COLUMNS)], y);
            }
            self.times_panel::<S, true>(s, first, panels, (y, row), edge);
        }
    }

    /// Stores (or adds) the products with the panel that starts at column `first`.
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
            product::<S, ADD>(s, self.format, self.whole, panel, (y, row), sizes);
        } else {
            let rows = (self.whole, count);
            within::<S, ADD>(s, self.format, rows, panel, (y, row), sizes, edge);
        }
        if count < m {
            let rows = (self.rest, m - count);
            let y = (&mut y[count * row..], row);
            within::<S, ADD>(s, self.format, rows, panel, y, sizes, edge);
        }
    }
}

/// Multiplies rows or columns that do not fill whole panels or registers, in the padded buffer
/// `edge`.
#[inline(always)]
fn within<S: Lanes, const ADD: bool>(
    s: S,
    format: Format,
    (left, rows): (Lhs, usize),
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
    product::<S, ADD>(s, format, left, panel, out, sizes);
    for (i, sums) in edge.chunks_exact(COLUMNS).take(rows).enumerate() {
        y[i * row..][..columns].copy_from_slice(&sums[..columns]);
    }
}
