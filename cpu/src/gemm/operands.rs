//! Operands of products: strided matrices, and panels of packed ones.

use rayon::prelude::*;

#[cfg(target_arch = "x86_64")]
use super::tiles::{TERMS, pack_right};
use super::{COLUMNS, DEPTH, format_for};
use crate::buffers::Aligned;
use crate::format::Format;
#[cfg(target_arch = "x86_64")]
use crate::format::amx_packing::words;
use crate::isa::Isa;
use crate::simd::{Kernel, Lanes};
use crate::tile::{Lhs, PAD, PANEL, UNROLL, transpose};

/// Columns of `b` that one task packs.
const GROUP: usize = 8 * COLUMNS;
/// Elements of a cache line.
const LINE: usize = 16;
/// Number of columns or rows that packing prefetches ahead, since processors do not predict these
/// strides.
const COLUMNS_AHEAD: usize = 16;
const ROWS_AHEAD: usize = 2;

/// The longest row stride of `b` that is multiplied without packing.
const NARROW: usize = 192;

/// A strided matrix: element (i, j) is `data[i * row + j * column]`, and one of the strides is 1.
#[derive(Clone, Copy)]
pub struct Matrix<'a> {
    pub(super) data: &'a [f32],
    pub(super) row: usize,
    pub(super) column: usize,
}

impl<'a> Matrix<'a> {
    /// Returns a row-major matrix with rows of `width` elements.
    pub fn rows(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: width,
            column: 1,
        }
    }

    /// Returns the transpose of a row-major matrix with rows of `width` elements.
    pub fn columns(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: 1,
            column: width,
        }
    }

    /// Returns the submatrix that starts at (row, column), as a left operand.
    #[inline(always)]
    pub(super) fn left(&self, (row, column): (usize, usize)) -> Lhs<'a> {
        let start = row * self.row + column * self.column;
        Lhs::strided(&self.data[start..], self.row, self.column)
    }

    /// Returns whether n columns can be multiplied without packing.
    pub(super) fn are_panels(&self, n: usize) -> bool {
        self.column == 1 && self.row <= NARROW && n.is_multiple_of(PAD)
    }

    /// Returns the submatrix that starts at (row, column), as panels.
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

    /// Packs the (m, k) block that starts at `first` into panels of [`PANEL`] interleaved rows.
    /// Missing rows become zero.
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

    /// Converts the (m, k) block that starts at `first` of a row-major matrix, row after row.
    /// Missing rows become zero.
    #[inline(always)]
    pub(super) fn pack_terms(
        &self,
        first: (usize, usize),
        (m, k): (usize, usize),
        format: Format,
        packed: &mut [f32],
    ) {
        let len = format.len(k);
        let (packed, missing) = packed.split_at_mut(m * len);
        missing.fill(0.0);
        for (i, packed) in packed.chunks_exact_mut(len).enumerate() {
            let at = (first.0 + i) * self.row + first.1;
            fetch(&self.data[at..], ROWS_AHEAD * self.row, k);
            format.convert_row(&self.data[at..][..k], packed);
        }
    }

    /// Packs the (rows, columns) block that starts at `first` into panels of `N` columns, in
    /// `format`. Missing columns of the last panel become zero.
    #[inline(always)]
    pub(super) fn pack<const N: usize>(
        &self,
        first: (usize, usize),
        (rows, columns): (usize, usize),
        format: Format,
        panels: &mut [f32],
    ) {
        let start = first.0 * self.row + first.1 * self.column;
        let from = (&self.data[start..], self.row, self.column);
        if !format.pack_pairs::<N>(from, (rows, columns), panels) {
            self.pack_numbers::<N>(start, (rows, columns), panels);
            format.convert_panels(panels, (rows, N));
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
            for j in (0..N).step_by(UNROLL) {
                let first = panel * N + j;
                let column = |c| &self.data[start + (first + c) * self.column..][..rows];
                let source = std::array::from_fn(|c| (first + c < columns).then(|| column(c)));
                transpose::<UNROLL>(source, 1.0, (&mut packed[j..], N));
            }
        }
    }
}

/// `b` in panels of [`COLUMNS`] columns.
#[derive(Clone, Copy)]
pub(super) struct Panels<'a> {
    data: &'a [f32],
    /// Elements from one panel to the next.
    step: usize,
    row: usize,
}

impl<'a> Panels<'a> {
    /// Returns contiguous panels of k terms.
    #[inline(always)]
    pub(super) fn packed(data: &'a [f32], format: Format, k: usize) -> Self {
        Panels {
            data,
            step: COLUMNS * format.len(k),
            row: COLUMNS,
        }
    }

    /// Returns the panel that starts at `column`, and its row stride.
    #[inline(always)]
    pub(super) fn from(&self, column: usize) -> (&'a [f32], usize) {
        (&self.data[column / COLUMNS * self.step..], self.row)
    }
}

/// Prefetches `count` elements from `first` on. They may be outside of `data`.
#[inline(always)]
pub(super) fn fetch(data: &[f32], first: usize, count: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in (first..first + count).step_by(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint, which has no effect on an invalid address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(data.as_ptr().wrapping_add(line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (data, first, count);
}

/// A packed right operand b (k, n).
pub struct PackedMatrix {
    /// Blocks of [`DEPTH`] rows, each in panels.
    panels: Aligned,
    pub(super) format: Format,
    pub(super) depth: usize,
    pub(super) columns: usize,
}

impl PackedMatrix {
    /// Packs `b` (k, n), on all threads.
    ///
    /// # Panics
    /// If the operand is smaller than its shape.
    pub fn new(isa: Isa, b: Matrix, (k, n): (usize, usize)) -> Self {
        assert!(b.holds(k, n), "operand too small");
        let (format, columns) = (format_for(isa, (k, n)), n.next_multiple_of(COLUMNS));
        #[cfg(target_arch = "x86_64")]
        match format {
            Format::Bf16Amx => return PackedMatrix::tiles::<1>(format, b, (k, n)),
            Format::Bf16x3Amx => return PackedMatrix::tiles::<3>(format, b, (k, n)),
            _ => {}
        }
        let mut panels = Aligned::unspecified(format.len(k) * columns);
        panels
            .par_chunks_mut((format.len(DEPTH) * columns).max(1))
            .enumerate()
            .for_each(|(block, panels)| {
                let depth = DEPTH.min(k - block * DEPTH);
                panels
                    .par_chunks_mut(format.len(depth) * GROUP)
                    .enumerate()
                    .for_each(|(index, panels)| {
                        let first = (block * DEPTH, index * GROUP);
                        isa.run(Pack {
                            format,
                            b,
                            first,
                            sizes: (depth, n.min(first.1 + GROUP) - first.1),
                            panels,
                        });
                    });
            });
        PackedMatrix {
            panels,
            format,
            depth: k,
            columns: n,
        }
    }

    /// Packs `b` (k, n) into tiles for AMX, on all threads.
    #[cfg(target_arch = "x86_64")]
    fn tiles<const PARTS: usize>(format: Format, b: Matrix, (k, n): (usize, usize)) -> Self {
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
        PackedMatrix {
            panels,
            format,
            depth: k,
            columns: n,
        }
    }

    /// Returns the panels or tiles of the block of rows that starts at `first`.
    pub(super) fn block(&self, first: usize, depth: usize) -> &[f32] {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.format.split_terms() {
            let [first, depth] = [first, depth].map(|terms| words(parts, self.columns, terms));
            return &self.panels[first..][..depth];
        }
        let columns = self.columns.next_multiple_of(COLUMNS);
        let [first, depth] = [first, depth].map(|terms| self.format.len(terms));
        &self.panels[first * columns..][..depth * columns]
    }
}

struct Pack<'a> {
    format: Format,
    b: Matrix<'a>,
    first: (usize, usize),
    /// (rows, columns).
    sizes: (usize, usize),
    panels: &'a mut [f32],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Pack {
            format,
            b,
            first,
            sizes,
            panels,
        } = self;
        b.pack::<COLUMNS>(first, sizes, format, panels);
    }
}
