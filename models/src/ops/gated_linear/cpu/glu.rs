//! A value times a gate: y = a ⊙ σ(g), one pass each way (see [`super::gated_linear()`]).

use lra_cpu::math::sigmoid;
use lra_cpu::simd::{Kernel, Lanes};

/// Rows that begin every `stride` elements.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) data: &'a [f32],
    pub(super) stride: usize,
}

impl<'a> Rows<'a> {
    /// Returns the first `width` elements of a row.
    pub(super) fn row(self, index: usize, width: usize) -> &'a [f32] {
        &self.data[index * self.stride..][..width]
    }
}

/// y of a and g.
pub(super) struct Forward<'a> {
    pub(super) a: Rows<'a>,
    pub(super) g: Rows<'a>,
    pub(super) width: usize,
    pub(super) y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        for (index, y) in self.y.chunks_exact_mut(self.width).enumerate() {
            let [a, g] = [self.a, self.g].map(|rows| rows.row(index, self.width));
            let ((a, a_tail), (g, g_tail)) = (S::as_simd_f32s(a), S::as_simd_f32s(g));
            let (y, y_tail) = S::as_mut_simd_f32s(y);
            for (y, (a, g)) in y.iter_mut().zip(a.iter().zip(g)) {
                *y = s.mul_f32s(*a, sigmoid(s, *g));
            }
            if !y_tail.is_empty() {
                let (a, g) = (s.partial_load_f32s(a_tail), s.partial_load_f32s(g_tail));
                s.partial_store_f32s(y_tail, s.mul_f32s(a, sigmoid(s, g)));
            }
        }
    }
}

/// The gradients of a and g, of y rather than a: dy σ(g) and dy y (1 - σ(g)).
pub(super) struct Backward<'a> {
    pub(super) y: &'a [f32],
    pub(super) g: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) width: usize,
    pub(super) gradients: Gradients<'a>,
}

/// Destination of the gradients.
pub(super) enum Gradients<'a> {
    /// Rows [da, dg].
    Together(&'a mut [f32]),
    /// Rows da, and rows dg.
    Separate(&'a mut [f32], &'a mut [f32]),
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.width;
        let [y, g, dy] = [self.y, self.g, self.dy].map(|rows| rows.chunks_exact(width));
        let rows = y.zip(g).zip(dy);
        match self.gradients {
            Gradients::Together(both) => {
                for (row, both) in rows.zip(both.chunks_exact_mut(2 * width)) {
                    let (da, dg) = both.split_at_mut(width);
                    backward_row(s, row, da, dg);
                }
            }
            Gradients::Separate(da, dg) => {
                let gradients = da.chunks_exact_mut(width).zip(dg.chunks_exact_mut(width));
                for (row, (da, dg)) in rows.zip(gradients) {
                    backward_row(s, row, da, dg);
                }
            }
        }
    }
}

#[inline(always)]
fn backward_row<S: Lanes>(
    s: S,
    ((y, g), dy): ((&[f32], &[f32]), &[f32]),
    da: &mut [f32],
    dg: &mut [f32],
) {
    let ((y, y_tail), (g, g_tail)) = (S::as_simd_f32s(y), S::as_simd_f32s(g));
    let (dy, dy_tail) = S::as_simd_f32s(dy);
    let (da, da_tail) = S::as_mut_simd_f32s(da);
    let (dg, dg_tail) = S::as_mut_simd_f32s(dg);
    for ((y, g), (dy, (da, dg))) in y
        .iter()
        .zip(g)
        .zip(dy.iter().zip(da.iter_mut().zip(dg.iter_mut())))
    {
        (*da, *dg) = slopes(s, [*y, *g], *dy);
    }
    if !dy_tail.is_empty() {
        let (y, g) = (s.partial_load_f32s(y_tail), s.partial_load_f32s(g_tail));
        let (a, g) = slopes(s, [y, g], s.partial_load_f32s(dy_tail));
        s.partial_store_f32s(da_tail, a);
        s.partial_store_f32s(dg_tail, g);
    }
}

/// Returns the slopes of both factors. A function, because a closure that is called twice is
/// compiled without the instructions around it.
#[inline(always)]
fn slopes<S: Lanes>(s: S, [y, g]: [S::f32s; 2], dy: S::f32s) -> (S::f32s, S::f32s) {
    let share = sigmoid(s, g);
    let rest = s.sub_f32s(s.splat_f32s(1.0), share);
    (s.mul_f32s(dy, share), s.mul_f32s(s.mul_f32s(dy, y), rest))
}
