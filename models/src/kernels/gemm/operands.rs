//! What is multiplied: matrices in slices, and the panels that products want.

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::tiles::{TERMS, pack_right};
use super::{COLUMNS, DEPTH, factors_for};
use crate::kernels::buffers::Aligned;
use crate::kernels::factors::Factors;
#[cfg(target_arch = "x86_64")]
use crate::kernels::factors::packing::words;
use crate::kernels::isa::{Isa, Kernel, Lanes};
use crate::kernels::tile::{Left, PAD, PANEL, TOGETHER, transpose};

/// Columns of a right operand that are packed together.
const GROUP: usize = 8 * COLUMNS;
/// Elements of a cache line.
const LINE: usize = 16;
/// How far ahead of their packing columns and rows of a left operand are fetched: they are no stream that a processor foresees.
const COLUMNS_AHEAD: usize = 16;
const ROWS_AHEAD: usize = 2;

/// Elements between rows of a right operand up to which they are not packed.
const NARROW: usize = 192;

/// A matrix inside a slice: element (i, j) is `data[i * row + j * column]`, and one of the strides is 1.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Matrix<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `width` elements, one after the other.
    pub(in crate::kernels) fn rows(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: width,
            column: 1,
        }
    }

    /// The same memory read as the transposed matrix: columns of elements `width` apart.
    pub(in crate::kernels) fn columns(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: 1,
            column: width,
        }
    }

    /// The rows from one on, and of them the columns from one on, as they lie.
    #[inline(always)]
    pub(super) fn left(&self, (row, column): (usize, usize)) -> Left<'a> {
        let start = row * self.row + column * self.column;
        Left::strided(&self.data[start..], self.row, self.column)
    }

    /// Whether the rows, of n columns, are near enough to be multiplied where they lie.
    pub(super) fn are_panels(&self, n: usize) -> bool {
        self.column == 1 && self.row <= NARROW && n.is_multiple_of(PAD)
    }

    /// The rows from one on, and of them the columns from one on, as panels.
    pub(super) fn panels(&self, (row, column): (usize, usize)) -> Panels<'a> {
        Panels {
            data: &self.data[row * self.row + column..],
            step: COLUMNS,
            row: self.row,
        }
    }

    pub(super) fn holds(&self, rows: usize, columns: usize) -> bool {
        rows * columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }

    /// Copies k columns of m rows, from `first` on, into panels of [`PANEL`] rows side by side; missing rows become zero.
    #[inline(always)]
    pub(super) fn pack_panels(
        &self,
        first: (usize, usize),
        (m, k): (usize, usize),
        panels: &mut [f32],
    ) {
        if m == 0 {
            return;
        }
        let start = first.0 * self.row + first.1 * self.column;
        if self.row == 1 {
            for i in 0..k {
                let at = start + i * self.column;
                fetch(&self.data[at..], COLUMNS_AHEAD * self.column, m);
                let (whole, rest) = self.data[at..][..m].as_chunks::<PANEL>();
                let mut packed = panels[i * PANEL..].chunks_mut(PANEL * k);
                for (source, packed) in whole.iter().zip(&mut packed) {
                    packed[..PANEL].copy_from_slice(source);
                }
                if let Some(packed) = packed.next() {
                    packed[..rest.len()].copy_from_slice(rest);
                    packed[rest.len()..PANEL].fill(0.0);
                }
            }
            return;
        }
        for (panel, packed) in panels.chunks_exact_mut(PANEL * k).enumerate() {
            let row = |r: usize| &self.data[start + (panel * PANEL + r) * self.row..][..k];
            let source = std::array::from_fn(|r| (panel * PANEL + r < m).then(|| row(r)));
            transpose::<PANEL>(source, 1.0, (packed, PANEL));
        }
    }

    /// Makes of k columns of m rows, from `first` on, what products take of a row of terms, one after the other; rows that
    /// are missing become zero. Of a matrix of rows.
    #[inline(always)]
    pub(super) fn pack_terms(
        &self,
        first: (usize, usize),
        (m, k): (usize, usize),
        factors: Factors,
        packed: &mut [f32],
    ) {
        let len = factors.len(k);
        let (packed, missing) = packed.split_at_mut(m * len);
        missing.fill(0.0);
        for (i, packed) in packed.chunks_exact_mut(len).enumerate() {
            let at = (first.0 + i) * self.row + first.1;
            fetch(&self.data[at..], ROWS_AHEAD * self.row, k);
            factors.terms(&self.data[at..][..k], packed);
        }
    }

    /// Makes of `columns` columns of some rows, from `first` on, panels of `N` columns, one after the other, as products take
    /// them; columns that the last one lacks become zero.
    #[inline(always)]
    pub(super) fn pack<const N: usize>(
        &self,
        first: (usize, usize),
        (rows, columns): (usize, usize),
        factors: Factors,
        panels: &mut [f32],
    ) {
        let start = first.0 * self.row + first.1 * self.column;
        let from = (&self.data[start..], self.row, self.column);
        if !factors.pack_pairs::<N>(from, (rows, columns), panels) {
            self.pack_numbers::<N>(start, (rows, columns), panels);
            factors.panels(panels, (rows, N));
        }
    }

    #[inline(always)]
    fn pack_numbers<const N: usize>(
        &self,
        start: usize,
        (rows, columns): (usize, usize),
        panels: &mut [f32],
    ) {
        if self.column == 1 {
            for i in 0..rows {
                let at = start + i * self.row;
                fetch(&self.data[at..], ROWS_AHEAD * self.row, columns);
                let (whole, rest) = self.data[at..][..columns].as_chunks::<N>();
                let mut packed = panels[i * N..].chunks_mut(N * rows);
                for (source, packed) in whole.iter().zip(&mut packed) {
                    packed[..N].copy_from_slice(source);
                }
                if let Some(packed) = packed.next() {
                    packed[..rest.len()].copy_from_slice(rest);
                    packed[rest.len()..N].fill(0.0);
                }
            }
            return;
        }
        for (panel, packed) in panels.chunks_exact_mut(N * rows).enumerate() {
            for j in (0..N).step_by(TOGETHER) {
                let first = panel * N + j;
                let column = |c| &self.data[start + (first + c) * self.column..][..rows];
                let source = std::array::from_fn(|c| (first + c < columns).then(|| column(c)));
                transpose::<TOGETHER>(source, 1.0, (&mut packed[j..], N));
            }
        }
    }
}

/// Rows of a right operand, in panels of [`COLUMNS`] columns.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    data: &'a [f32],
    /// From one panel to the next.
    step: usize,
    row: usize,
}

impl<'a> Panels<'a> {
    /// Panels of k terms, one after the other.
    #[inline(always)]
    pub(super) fn packed(data: &'a [f32], factors: Factors, k: usize) -> Self {
        Panels {
            data,
            step: COLUMNS * factors.len(k),
            row: COLUMNS,
        }
    }

    /// The panel from a column on, and how far apart its rows are.
    #[inline(always)]
    pub(super) fn from(&self, column: usize) -> (&'a [f32], usize) {
        (&self.data[column / COLUMNS * self.step..], self.row)
    }
}

/// Has the processor bring `count` elements from `first` on closer, which need not be there.
#[inline(always)]
pub(super) fn fetch(data: &[f32], first: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (first..first + count).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint, which an address outside of all memory makes void.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, first, count);
}

/// A right operand (k, n), packed.
pub(in crate::kernels) struct Packed {
    /// Blocks of [`DEPTH`] rows, and of each the panels.
    panels: Aligned,
    pub(super) factors: Factors,
    pub(super) depth: usize,
    pub(super) columns: usize,
}

impl Packed {
    /// Packs on all threads.
    ///
    /// # Panics
    /// If the operand is smaller than its shape.
    pub(in crate::kernels) fn new(isa: Isa, b: Matrix, (k, n): (usize, usize)) -> Self {
        assert!(b.holds(k, n), "operand too small");
        let (factors, columns) = (factors_for(isa, (k, n)), n.next_multiple_of(COLUMNS));
        #[cfg(target_arch = "x86_64")]
        match factors {
            Factors::Tiles => return Packed::tiles::<1>(factors, b, (k, n)),
            Factors::Split => return Packed::tiles::<3>(factors, b, (k, n)),
            _ => {}
        }
        let mut panels = Aligned::unspecified(factors.len(k) * columns);
        panels
            .par_chunks_mut((factors.len(DEPTH) * columns).max(1))
            .enumerate()
            .for_each(|(block, panels)| {
                let depth = DEPTH.min(k - block * DEPTH);
                panels
                    .par_chunks_mut(factors.len(depth) * GROUP)
                    .enumerate()
                    .for_each(|(index, panels)| {
                        let first = (block * DEPTH, index * GROUP);
                        isa.run(Pack {
                            factors,
                            b,
                            first,
                            sizes: (depth, n.min(first.1 + GROUP) - first.1),
                            panels,
                        });
                    });
            });
        Packed {
            panels,
            factors,
            depth: k,
            columns: n,
        }
    }

    /// Packs into tiles, on all threads.
    #[cfg(target_arch = "x86_64")]
    fn tiles<const PARTS: usize>(factors: Factors, b: Matrix, (k, n): (usize, usize)) -> Self {
        let mut panels = Aligned::unspecified(words(PARTS, n, k));
        let blocks = panels.par_chunks_mut(words(PARTS, n, TERMS).max(1));
        blocks.enumerate().for_each(|(block, panels)| {
            let depth = TERMS.min(k - block * TERMS);
            let groups = panels.par_chunks_mut(words(PARTS, GROUP, depth));
            groups.enumerate().for_each(|(index, panels)| {
                let first = (block * TERMS, index * GROUP);
                let columns = GROUP.min(n - first.1);
                pack_right::<PARTS>(b, first, (depth, columns), panels);
            });
        });
        Packed {
            panels,
            factors,
            depth: k,
            columns: n,
        }
    }

    /// The panels, or tiles, of the block of rows from `first` on.
    pub(super) fn block(&self, first: usize, depth: usize) -> &[f32] {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.factors.parts() {
            let [first, depth] = [first, depth].map(|terms| words(parts, self.columns, terms));
            return &self.panels[first..][..depth];
        }
        let columns = self.columns.next_multiple_of(COLUMNS);
        let [first, depth] = [first, depth].map(|terms| self.factors.len(terms));
        &self.panels[first * columns..][..depth * columns]
    }
}

struct Pack<'a> {
    factors: Factors,
    b: Matrix<'a>,
    first: (usize, usize),
    /// Rows and columns.
    sizes: (usize, usize),
    panels: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Pack {
            factors,
            b,
            first,
            sizes,
            panels,
        } = self;
        b.pack::<COLUMNS>(first, sizes, factors, panels);
    }
}
