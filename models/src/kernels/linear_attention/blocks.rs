//! Positions of a head, 64 at a time, and the layouts in which the products want them.

use crate::kernels::factors::Factors;
use crate::kernels::isa::Lanes;
use crate::kernels::scratch::Scratch;
use crate::kernels::tile::{Left, PANEL, Rows, SIDE, pack_rows, padded};

/// Sizes of a head: features M, values E.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) features: usize,
    pub(super) values: usize,
}

impl Sizes {
    /// Length of a [`State`].
    pub(super) fn state(self) -> usize {
        self.matrix() + padded(self.features)
    }

    pub(super) fn matrix(self) -> usize {
        self.features.next_multiple_of(PANEL) * padded(self.values)
    }
}

/// S (M, E) and z (M), or their gradients, padded.
#[derive(Clone, Copy)]
pub(super) struct State<'a> {
    pub(super) sizes: Sizes,
    pub(super) matrix: &'a [f32],
    pub(super) total: &'a [f32],
}

impl<'a> State<'a> {
    pub(super) fn new(sizes: Sizes, data: &'a [f32]) -> Self {
        let (matrix, total) = data.split_at(sizes.matrix());
        State {
            sizes,
            matrix,
            total,
        }
    }

    /// S as products take it, in `space` unless that is S itself.
    pub(super) fn matrix_of<'b>(self, factors: Factors, space: &'b mut Scratch) -> &'b [f32]
    where
        'a: 'b,
    {
        let wide = padded(self.sizes.values);
        let matrix = &self.matrix[..self.sizes.features * wide];
        if factors != Factors::F32 {
            *space = Scratch::zeros(matrix.len());
        }
        factors.copied_rows(matrix, wide, space)
    }

    /// Sᵀ, (E, padded M).
    pub(super) fn transposed(self) -> Scratch {
        let (wide, features) = (padded(self.sizes.values), padded(self.sizes.features));
        let mut transposed = Scratch::zeros(self.sizes.values * features);
        for (f, row) in self
            .matrix
            .chunks_exact(wide)
            .take(self.sizes.features)
            .enumerate()
        {
            for (v, x) in row.iter().take(self.sizes.values).enumerate() {
                transposed[v * features + f] = *x;
            }
        }
        transposed
    }
}

/// One operand of a head, and which of its positions count (all of them, if absent).
#[derive(Clone, Copy)]
pub(super) struct Positions<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) real: Option<&'a [f32]>,
}

impl Positions<'_> {
    /// The same, with every position counted.
    pub(super) fn all(self) -> Self {
        Positions { real: None, ..self }
    }

    pub(super) fn is_real(&self, position: usize) -> bool {
        self.real.is_none_or(|real| real[position] != 0.0)
    }

    /// Whether all of `count` positions from `first` on are padding.
    pub(super) fn padding(&self, first: usize, count: usize) -> bool {
        (first..first + count).all(|position| !self.is_real(position))
    }
}

/// A block of rows in the layouts of the products.
pub(super) struct Block {
    pub(super) width: usize,
    /// (position, padded width), padding zero.
    pub(super) rows: Scratch,
    /// The rows as products take them whose terms are columns, if that is another form.
    space: Scratch,
    /// Panels of columns: left operand of sums over positions.
    pub(super) columns: Scratch,
    /// Rows of what the rows are computed from, for maps that multiply.
    pub(super) inputs: Scratch,
}

impl Block {
    pub(super) fn new(width: usize) -> Self {
        Block {
            width,
            rows: Scratch::zeros(SIDE * padded(width)),
            space: Scratch::default(),
            columns: Scratch::zeros(SIDE * width.next_multiple_of(PANEL)),
            inputs: Scratch::default(),
        }
    }

    pub(super) fn load(&mut self, rows: Rows, first: usize, count: usize) {
        pack_rows(rows.from(first), count, 1.0, &mut self.rows);
    }

    /// Left operand of products with S.
    pub(super) fn left(&mut self, factors: Factors) -> Left<'_> {
        if factors != Factors::F32 && self.space.is_empty() {
            self.space = Scratch::zeros(self.rows.len());
        }
        let wide = padded(self.width);
        let rows = factors.copied_columns(&self.rows, wide, &mut self.space);
        Left::strided(rows, wide, 1)
    }

    pub(super) fn pack_columns(&mut self, count: usize) {
        let panels = self.columns.chunks_exact_mut(SIDE * PANEL);
        for (panel, columns) in panels.enumerate() {
            let rows = self.rows.chunks_exact(padded(self.width)).take(count);
            for (row, columns) in rows.zip(columns.chunks_exact_mut(PANEL)) {
                columns.copy_from_slice(&row[panel * PANEL..(panel + 1) * PANEL]);
            }
        }
    }

    pub(super) fn row(&self, i: usize) -> &[f32] {
        let wide = padded(self.width);
        &self.rows[i * wide..(i + 1) * wide]
    }
}

#[inline(always)]
pub(super) fn dot<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, _) = S::as_simd_f32s(a);
    let (b, _) = S::as_simd_f32s(b);
    let sum = a
        .iter()
        .zip(b)
        .fold(s.splat_f32s(0.0), |sum, (a, b)| s.fma(*a, *b, sum));
    s.reduce_sum_f32s(sum)
}

#[inline(always)]
pub(super) fn add_scaled<S: Lanes>(s: S, total: &mut [f32], x: &[f32], scale: f32) {
    let (total, _) = S::as_mut_simd_f32s(total);
    let (x, _) = S::as_simd_f32s(x);
    for (total, x) in total.iter_mut().zip(x) {
        *total = s.fma(*x, s.splat_f32s(scale), *total);
    }
}
