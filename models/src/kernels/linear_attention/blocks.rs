//! Positions of a head, 64 at a time, and the layouts in which the products want them.

use crate::kernels::factors::Factors;
use crate::kernels::isa::Lanes;
use crate::kernels::scratch::Scratch;
use crate::kernels::tile::{Factor, Held, Left, PANEL, Role, Rows, SIDE, pack_rows, padded};

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

    /// S as a right operand, in `space` unless that is S itself.
    pub(super) fn matrix_of<'b>(self, factors: Factors, space: &'b mut Scratch) -> Factor<'b>
    where
        'a: 'b,
    {
        let size = (self.sizes.features, padded(self.sizes.values));
        *space = Role::RightRows.space(factors, size);
        Role::RightRows.of(factors, (self.matrix, size.1), size, space)
    }

    /// Sᵀ, (E, padded M), as a right operand.
    pub(super) fn transposed(self, factors: Factors) -> Held {
        let Sizes { features, values } = self.sizes;
        let (wide, features_wide) = (padded(values), padded(features));
        let size = (values, features_wide);
        let mut transposed = Held::new(factors, Role::RightRows, 1, size);
        transposed.load(0, size, |transposed| {
            let rows = self.matrix.chunks_exact(wide).take(features);
            for (f, row) in rows.enumerate() {
                for (v, x) in row.iter().take(values).enumerate() {
                    transposed[v * features_wide + f] = *x;
                }
            }
        });
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
    /// The rows as products take them, if that is another form.
    space: Scratch,
    /// Panels of columns: left operand of sums over positions, unless that is of tiles.
    columns: Scratch,
    /// Rows of what the rows are computed from, for maps that multiply.
    pub(super) inputs: Option<Held>,
}

impl Block {
    pub(super) fn new(width: usize) -> Self {
        Block {
            width,
            rows: Scratch::zeros(SIDE * padded(width)),
            space: Scratch::default(),
            columns: Scratch::zeros(SIDE * width.next_multiple_of(PANEL)),
            inputs: None,
        }
    }

    pub(super) fn load(&mut self, rows: Rows, first: usize, count: usize) {
        pack_rows(rows.from(first), count, 1.0, &mut self.rows);
    }

    /// `count` rows as left operand of products with S.
    #[inline(always)]
    pub(super) fn left(&mut self, factors: Factors, count: usize) -> Left<'_> {
        self.operand(Role::LeftRows, factors, (count, self.width))
            .left()
    }

    /// `count` rows as right operand of sums over positions.
    #[inline(always)]
    pub(super) fn right(&mut self, factors: Factors, count: usize) -> (&[f32], usize) {
        self.operand(Role::RightRows, factors, (count, padded(self.width)))
            .right()
    }

    /// The columns of `count` rows as left operand of sums over positions.
    #[inline(always)]
    pub(super) fn left_columns(&mut self, factors: Factors, count: usize) -> Left<'_> {
        if factors.are_tiles() {
            let size = (count, self.width);
            return self.operand(Role::LeftColumns, factors, size).left();
        }
        self.pack_columns(count);
        factors.panels(&mut self.columns, (SIDE, PANEL));
        Left::panels(&self.columns, SIDE)
    }

    #[inline(always)]
    fn operand(&mut self, role: Role, factors: Factors, size: (usize, usize)) -> Factor<'_> {
        let wide = padded(self.width);
        if self.space.is_empty() {
            // Room for whatever role it is.
            let len = |role: Role| role.len(factors, (SIDE, wide));
            self.space = match factors {
                Factors::F32 => Scratch::default(),
                _ => Scratch::unspecified(len(Role::LeftRows).max(len(Role::RightRows))),
            };
        }
        role.of(factors, (&self.rows, wide), size, &mut self.space)
    }

    fn pack_columns(&mut self, count: usize) {
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
