//! What is multiplied: matrices in slices, and the panels that products want.

use rayon::prelude::*;

use super::{COLUMNS, DEPTH};
use crate::kernels::buffers::uninit;
use crate::kernels::factors::Factors;
use crate::kernels::isa::{Isa, Kernel, Lanes};
use crate::kernels::tile::{Left, PANEL, transpose};

/// Elements of a cache line.
const LINE: usize = 16;
/// How far ahead of their packing columns and rows of a left operand are fetched: they are no stream that a processor foresees.
const COLUMNS_AHEAD: usize = 16;
const ROWS_AHEAD: usize = 2;

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
            transpose::<PANEL>(source, 1.0, packed);
        }
    }

    /// Makes of k columns of m rows, from `first` on, what products take of a row of terms, k elements apart; rows that are
    /// missing become zero. Of a matrix of rows.
    #[inline(always)]
    pub(super) fn pack_terms(
        &self,
        first: (usize, usize),
        (m, k): (usize, usize),
        factors: Factors,
        packed: &mut [f32],
    ) {
        let (packed, missing) = packed.split_at_mut(m * k);
        for (i, packed) in packed.chunks_exact_mut(k).enumerate() {
            let at = (first.0 + i) * self.row + first.1;
            fetch(&self.data[at..], ROWS_AHEAD * self.row, k);
            factors.terms(&self.data[at..][..k], packed);
        }
        missing.fill(0.0);
    }

    /// Copies the columns `first.1..` of the rows `first.0..` into rows of `N`, as many as `panel` holds and `count`
    /// columns each; further columns become zero.
    #[inline(always)]
    pub(super) fn pack<const N: usize>(
        &self,
        first: (usize, usize),
        count: usize,
        panel: &mut [f32],
    ) {
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
            let column = |c| &self.data[start + (j + c) * self.column..][..rows];
            let source = std::array::from_fn(|c| (j + c < count).then(|| column(c)));
            transpose::<N>(source, 1.0, &mut panel[j..]);
        }
    }
}

/// Has the processor bring `count` elements from `first` on closer, which need not be there.
#[inline(always)]
fn fetch(data: &[f32], first: usize, count: usize) {
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
    panels: Vec<f32>,
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
        let columns = n.next_multiple_of(COLUMNS);
        let mut panels = uninit(k * columns);
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
                            panel: &mut *panel,
                        });
                        isa.factors().rows(panel, COLUMNS);
                    });
            });
        Packed {
            panels,
            factors: isa.factors(),
            depth: k,
            columns: n,
        }
    }

    /// k.
    pub(in crate::kernels) fn depth(&self) -> usize {
        self.depth
    }

    /// The panels of the block of rows from `first` on.
    pub(super) fn block(&self, first: usize, depth: usize) -> &[f32] {
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
