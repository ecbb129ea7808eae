//! Collision probabilities: y = p(x)^τ, p = 1 - arccos(x)/π, and dx = dy τ p^(τ-1) / (π √(1-x²)),
//! one pass each, keeping only x.

use std::f32::consts::{FRAC_1_PI, PI};

use candle_core::{Result, Tensor};
use lra_cpu::isa::Isa;
use lra_cpu::simd::Lanes;

use super::{MOST, SERIES};
use crate::autograd::apply;
use crate::ops::activation::cpu::{Backward, Elementwise, Forward, PerElement, UnaryFunction};

/// Returns p(x)^`hashes` of every element of a tensor of any shape.
pub(super) fn collision_probability(x: &Tensor, hashes: usize) -> Result<Tensor> {
    apply(PerElement(CollisionProbability { hashes }), [x])
}

#[derive(Clone, Copy)]
struct CollisionProbability {
    /// τ.
    hashes: usize,
}

impl Elementwise for CollisionProbability {
    const NAME: &'static str = "collision_probability";

    fn values(self, isa: Isa, x: &[f32], y: &mut [f32]) {
        isa.run(Forward(self, x, y));
    }

    fn gradients(self, isa: Isa, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        isa.run(Backward(self, x, dy, dx));
    }
}

impl UnaryFunction for CollisionProbability {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        power(s, probability(s, hold(s, x)), self.hashes)
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let held = hold(s, x);
        let one = s.splat_f32s(1.0);
        let size = s.abs_f32s(held);
        // 1 - x² in two factors, of which the first is exact near 1.
        let square = s.mul_f32s(s.sub_f32s(one, size), s.add_f32s(one, size));
        let scale = s.splat_f32s(self.hashes as f32 * FRAC_1_PI);
        let powers = power(s, probability(s, held), self.hashes.saturating_sub(1));
        let slope = s.div_f32s(s.mul_f32s(scale, powers), s.sqrt_f32s(square));
        let beyond = s.greater_than_f32s(s.abs_f32s(x), s.splat_f32s(MOST as f32));
        s.select_f32s(beyond, s.splat_f32s(0.0), slope)
    }
}

/// Returns x held within ±(1 - 1e-6). Not by `min` and `max`, which may swallow a NaN.
#[inline(always)]
fn hold<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    let [low, high] = [s.splat_f32s(-MOST as f32), s.splat_f32s(MOST as f32)];
    let x = s.select_f32s(s.less_than_f32s(x, low), low, x);
    s.select_f32s(s.greater_than_f32s(x, high), high, x)
}

/// Returns 1 - arccos(x)/π, with arccos |x| = √(1-|x|) P(|x|).
#[inline(always)]
fn probability<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    let size = s.abs_f32s(x);
    let mut series = s.splat_f32s(SERIES[7] as f32);
    for coefficient in SERIES[..7].iter().rev() {
        series = s.fma(series, size, s.splat_f32s(*coefficient as f32));
    }
    let root = s.sqrt_f32s(s.sub_f32s(s.splat_f32s(1.0), size));
    let share = s.mul_f32s(s.mul_f32s(series, root), s.splat_f32s(1.0 / PI));
    // arccos(-x) = π - arccos x.
    let negative = s.less_than_f32s(x, s.splat_f32s(0.0));
    s.select_f32s(negative, share, s.sub_f32s(s.splat_f32s(1.0), share))
}

/// Returns x^`exponent` by repeated squaring.
#[inline(always)]
fn power<S: Lanes>(s: S, x: S::f32s, exponent: usize) -> S::f32s {
    let (mut product, mut square, mut rest) = (s.splat_f32s(1.0), x, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            product = s.mul_f32s(product, square);
        }
        square = s.mul_f32s(square, square);
        rest /= 2;
    }
    product
}
