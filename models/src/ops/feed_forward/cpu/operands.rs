//! Operands of a tile of rows, and the small steps on the way.

use lra_cpu::isa::Isa;
use lra_cpu::scratch::Tiles;

use crate::ops::norm::cpu as norm;

/// The operands' elements and sizes.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) isa: Isa,
    pub(super) w1: &'a [f32],
    pub(super) b1: &'a [f32],
    pub(super) w2: &'a [f32],
    pub(super) b2: &'a [f32],
    /// Weight, bias and epsilon.
    pub(super) norm: Option<(&'a [f32], &'a [f32], f32)>,
    /// D.
    pub(super) width: usize,
    /// F.
    pub(super) inner: usize,
}

impl Operands<'_> {
    /// Returns n(x) for rows of x, the first of which is row `start` of all, with the rows'
    /// statistics; x itself without a norm.
    pub(super) fn normalise<'b>(
        &self,
        x: &'b [f32],
        start: usize,
        space: &'b mut Normal<'_>,
    ) -> &'b [f32] {
        let Some((weight, bias, epsilon)) = self.norm else {
            return x;
        };
        let count = x.len() / self.width;
        let y = space.rows.at(start, count);
        space.statistics.resize(count, [0.0; 2]);
        self.isa.run(norm::Forward {
            x,
            weight,
            bias,
            epsilon,
            y,
            statistics: space.statistics,
        });
        y
    }
}

/// n(x) of a tile, and each row's mean and reciprocal deviation.
pub(super) struct Normal<'a> {
    pub(super) rows: Tiles<'a>,
    pub(super) statistics: &'a mut Vec<[f32; 2]>,
}

impl<'a> Normal<'a> {
    pub(super) fn of(rows: Tiles<'a>, statistics: &'a mut Vec<[f32; 2]>) -> Self {
        Normal { rows, statistics }
    }
}
