//! What a tile of rows is computed from, and the small steps on the way.

use crate::kernels::dropout::Dropout;
use crate::kernels::isa::Isa;
use crate::kernels::norm;
use crate::kernels::scratch::Scratch;

/// The operands' elements and sizes.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) isa: Isa,
    pub(super) w1: &'a [f32],
    pub(super) b1: &'a [f32],
    pub(super) w2: &'a [f32],
    pub(super) b2: &'a [f32],
    /// Gain, offset and epsilon.
    pub(super) norm: Option<(&'a [f32], &'a [f32], f32)>,
    /// D.
    pub(super) width: usize,
    /// F.
    pub(super) inner: usize,
    /// Rows of one example.
    pub(super) length: usize,
}

impl Operands<'_> {
    /// n(x) for rows of x, with the rows' statistics; x itself without a norm.
    pub(super) fn normalise<'b>(&self, x: &'b [f32], space: &'b mut Normal) -> &'b [f32] {
        let Some((gain, offset, epsilon)) = self.norm else {
            return x;
        };
        if space.rows.len() < x.len() {
            space.rows = Scratch::zeros(x.len());
        }
        space.statistics.resize(x.len() / self.width, [0.0; 2]);
        self.isa.run(norm::Forward {
            x,
            gain,
            offset,
            epsilon,
            y: &mut space.rows[..x.len()],
            statistics: &mut space.statistics,
        });
        &space.rows[..x.len()]
    }

    /// Drops elements of the rows from `first` on, `width` elements each.
    pub(super) fn drop(
        &self,
        dropout: Option<&Dropout>,
        first: usize,
        width: usize,
        rows: &mut [f32],
    ) {
        let Some(dropout) = dropout else { return };
        let mut row = first;
        let mut rest = rows;
        while !rest.is_empty() {
            let (example, place) = (row / self.length, row % self.length);
            let count = (self.length - place).min(rest.len() / width);
            let (part, others) = rest.split_at_mut(count * width);
            dropout.scale(example, place * width, part);
            row += count;
            rest = others;
        }
    }
}

/// n(x) of a tile, and each row's mean and reciprocal deviation.
#[derive(Default)]
pub(super) struct Normal {
    pub(super) rows: Scratch,
    pub(super) statistics: Vec<[f32; 2]>,
}
