//! Positions of a head, 64 at a time, in the layouts that the products need.

use lra_cpu::format::Format;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::Lanes;
use lra_cpu::tile::{Lhs, Operand, OperandView, PANEL, PackedTiles, Rows, SIDE, pack_rows, padded};

/// Sizes of a head: features M, values E.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub(super) features: usize,
    pub(super) values: usize,
}

impl Sizes {
    /// Returns the length of a [`State`].
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

    /// Returns S as a right operand, in `space` unless that is S itself.
    pub(super) fn matrix_of<'b>(self, format: Format, space: &'b mut Scratch) -> OperandView<'b>
    where
        'a: 'b,
    {
        let size = (self.sizes.features, padded(self.sizes.values));
        *space = Operand::B.scratch(format, size);
        Operand::B.of(format, (self.matrix, size.1), size, space)
    }

    /// Returns Sᵀ, (E, padded M), as a right operand.
    pub(super) fn transposed(self, format: Format) -> PackedTiles {
        let Sizes { features, values } = self.sizes;
        let (wide, features_wide) = (padded(values), padded(features));
        let size = (values, features_wide);
        let mut transposed = PackedTiles::new(format, Operand::B, 1, size);
        transposed.pack(0, size, |transposed| {
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

/// An operand of a head, and the mask of the positions that count (all of them, if absent).
#[derive(Clone, Copy)]
pub(super) struct Positions<'a> {
    pub(super) rows: Rows<'a>,
    pub(super) valid: Option<&'a [f32]>,
}

impl Positions<'_> {
    /// Returns these positions, all of them counted.
    pub(super) fn all(self) -> Self {
        Positions {
            valid: None,
            ..self
        }
    }

    pub(super) fn is_valid(&self, position: usize) -> bool {
        self.valid.is_none_or(|valid| valid[position] != 0.0)
    }

    /// Returns whether all of `count` positions from `first` on are padding.
    pub(super) fn padding(&self, first: usize, count: usize) -> bool {
        (first..first + count).all(|position| !self.is_valid(position))
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
    /// Inputs of the rows, for maps that multiply.
    pub(super) inputs: Option<PackedTiles>,
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

    /// Returns `count` rows as left operand of products with S.
    #[inline(always)]
    pub(super) fn left(&mut self, format: Format, count: usize) -> Lhs<'_> {
        self.operand(Operand::A, format, (count, self.width)).left()
    }

    /// Returns `count` rows as right operand of sums over positions.
    #[inline(always)]
    pub(super) fn right(&mut self, format: Format, count: usize) -> (&[f32], usize) {
        self.operand(Operand::B, format, (count, padded(self.width)))
            .right()
    }

    /// Returns the columns of `count` rows as left operand of sums over positions.
    #[inline(always)]
    pub(super) fn left_columns(&mut self, format: Format, count: usize) -> Lhs<'_> {
        if format.is_amx() {
            let size = (count, self.width);
            return self.operand(Operand::ATransposed, format, size).left();
        }
        self.pack_columns(count);
        format.convert_panels(&mut self.columns, (SIDE, PANEL));
        Lhs::panels(&self.columns, SIDE)
    }

    #[inline(always)]
    fn operand(&mut self, role: Operand, format: Format, size: (usize, usize)) -> OperandView<'_> {
        let wide = padded(self.width);
        if self.space.is_empty() {
            // Room for the operand in either role.
            let len = |role: Operand| role.len(format, (SIDE, wide));
            self.space = match format {
                Format::F32 => Scratch::default(),
                _ => Scratch::unspecified(len(Operand::A).max(len(Operand::B))),
            };
        }
        role.of(format, (&self.rows, wide), size, &mut self.space)
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
