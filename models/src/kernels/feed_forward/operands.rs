//! What a tile of rows is computed from, and the small steps on the way.

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
}

/// n(x) of a tile, and each row's mean and reciprocal deviation.
#[derive(Default)]
pub(super) struct Normal {
    pub(super) rows: Scratch,
    pub(super) statistics: Vec<[f32; 2]>,
}
