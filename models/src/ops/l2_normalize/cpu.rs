//! Vectors of length 1: y = x / √(|x|² + ε) over the last `width` numbers of each group, as LSH
//! attention wants its keys.
//!
//! The gradient is dx = (dy - (y·dy) y) / √(|x|² + ε); the length is computed again.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "l2_normalize";
/// Elements per parallel task, about.
const CHUNK: usize = 16 * 1024;

/// Scales every run of `width` elements of a tensor to length 1. `epsilon` is under the root: the
/// gradient at zero stays finite, and zeros stay zeros.
pub fn l2_normalize(x: &Tensor, width: usize, epsilon: f32) -> Result<Tensor> {
    let last = x.dims().last().copied().unwrap_or(0);
    if width == 0 || last % width != 0 {
        bail!("{NAME}: vectors of {width} in rows of {last}");
    }
    apply(Unit { width, epsilon }, [x])
}

struct Unit {
    width: usize,
    epsilon: f32,
}

impl Unit {
    fn chunk(&self) -> usize {
        (CHUNK / self.width).max(1) * self.width
    }
}

impl CustomOp<1> for Unit {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let isa = Isa::current();
        let mut y = unspecified(x.data.len());
        let chunks = y
            .par_chunks_mut(self.chunk())
            .zip(x.data.par_chunks(self.chunk()));
        chunks.for_each(|(y, x)| isa.run(Forward(self.width, self.epsilon, x, y)));
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let isa = Isa::current();
        let mut dx = unspecified(x.data.len());
        let chunks = dx
            .par_chunks_mut(self.chunk())
            .zip(x.data.par_chunks(self.chunk()))
            .zip(pass.dy.par_chunks(self.chunk()));
        chunks.for_each(|((dx, x), dy)| isa.run(Backward(self.width, self.epsilon, [x, dy], dx)));
        Ok([dx.into()])
    }
}

#[inline(always)]
fn dot<S: Lanes>(s: S, a: &[f32], b: &[f32]) -> f32 {
    let (a, a_tail) = S::as_simd_f32s(a);
    let (b, b_tail) = S::as_simd_f32s(b);
    let tail = s.mul_f32s(s.partial_load_f32s(a_tail), s.partial_load_f32s(b_tail));
    let sum = a.iter().zip(b).fold(tail, |sum, (a, b)| s.fma(*a, *b, sum));
    s.reduce_sum_f32s(sum)
}

/// width, ε, x, y
struct Forward<'a>(usize, f32, &'a [f32], &'a mut [f32]);

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Forward(width, epsilon, x, y) = self;
        for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)) {
            let scale = (dot(s, x, x) + epsilon).sqrt().recip();
            y.iter_mut().zip(x).for_each(|(y, x)| *y = x * scale);
        }
    }
}

/// width, ε, [x, dy], dx
struct Backward<'a>(usize, f32, [&'a [f32]; 2], &'a mut [f32]);

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Backward(width, epsilon, [x, dy], dx) = self;
        let rows = x.chunks_exact(width).zip(dy.chunks_exact(width));
        for ((x, dy), dx) in rows.zip(dx.chunks_exact_mut(width)) {
            let scale = (dot(s, x, x) + epsilon).sqrt().recip();
            let along = dot(s, x, dy) * scale * scale;
            for ((dx, dy), x) in dx.iter_mut().zip(dy).zip(x) {
                *dx = (dy - x * along) * scale;
            }
        }
    }
}
