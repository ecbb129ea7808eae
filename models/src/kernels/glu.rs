//! The gated linear unit without its linear layer: y = a ⊙ σ(g) of rows [a, g], one pass each way (see [`super::gated_linear()`]).

use super::isa::{Kernel, Lanes};
use super::math::sigmoid;

/// y of rows [a, g].
pub(super) struct Forward<'a> {
    pub(super) x: &'a [f32],
    pub(super) width: usize,
    pub(super) y: &'a mut [f32],
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let rows = self.x.chunks_exact(2 * self.width);
        for (x, y) in rows.zip(self.y.chunks_exact_mut(self.width)) {
            let (a, g) = x.split_at(self.width);
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

/// The gradient of rows [a, g].
pub(super) struct Backward<'a> {
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) width: usize,
    pub(super) dx: &'a mut [f32],
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let rows = self.x.chunks_exact(2 * self.width);
        let rows = rows.zip(self.dy.chunks_exact(self.width));
        for ((x, dy), dx) in rows.zip(self.dx.chunks_exact_mut(2 * self.width)) {
            let (a, g) = x.split_at(self.width);
            let (da, dg) = dx.split_at_mut(self.width);
            let ((a, a_tail), (g, g_tail)) = (S::as_simd_f32s(a), S::as_simd_f32s(g));
            let (dy, dy_tail) = S::as_simd_f32s(dy);
            let (da, da_tail) = S::as_mut_simd_f32s(da);
            let (dg, dg_tail) = S::as_mut_simd_f32s(dg);
            for ((a, g), (dy, (da, dg))) in a
                .iter()
                .zip(g)
                .zip(dy.iter().zip(da.iter_mut().zip(dg.iter_mut())))
            {
                (*da, *dg) = slopes(s, [*a, *g], *dy);
            }
            if !dy_tail.is_empty() {
                let (a, g) = (s.partial_load_f32s(a_tail), s.partial_load_f32s(g_tail));
                let (a, g) = slopes(s, [a, g], s.partial_load_f32s(dy_tail));
                s.partial_store_f32s(da_tail, a);
                s.partial_store_f32s(dg_tail, g);
            }
        }
    }
}

/// Gradients of a and g: dy σ(g) and dy a σ(g) (1 - σ(g)). A function, because a closure that is called twice is compiled without the
/// instructions around it.
#[inline(always)]
fn slopes<S: Lanes>(s: S, [a, g]: [S::f32s; 2], dy: S::f32s) -> (S::f32s, S::f32s) {
    let share = sigmoid(s, g);
    let da = s.mul_f32s(dy, share);
    let rest = s.sub_f32s(s.splat_f32s(1.0), share);
    (da, s.mul_f32s(s.mul_f32s(da, a), rest))
}
