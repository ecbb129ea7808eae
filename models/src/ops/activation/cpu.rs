//! Elementwise activations: y = f(x) and dx = dy f'(x), one pass each, keeping only x.

use candle_core::{Result, Shape, Tensor};
use lra_cpu::buffers::unspecified;
use lra_cpu::isa::Isa;
use lra_cpu::math::{exp, normal, sigmoid};
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Elements per parallel task: 64 KiB read, 64 KiB written.
const CHUNK: usize = 16 * 1024;

/// The activations that have a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Activation {
    /// x Φ(x) with the tanh approximation of Φ: x sigmoid(2 sqrt(2/π) (x + 0.044715 x³)) (arXiv
    /// 1606.08415).
    GeluTanh,
    /// x Φ(x) with Φ the normal distribution.
    GeluErf,
    /// max(x, 0) + floor. With a small positive floor this is a feature map for kernel attention.
    Relu {
        /// Added to every output.
        floor: f32,
    },
    /// elu(x) + 1: x + 1 for x > 0, else e^x. The feature map of linear attention (arXiv
    /// 2006.16236).
    EluPlusOne,
    /// x / (1 + e^-x).
    Silu,
    /// ln(1 + e^x).
    Softplus,
    /// 1 / (1 + e^-x).
    Sigmoid,
}

/// Applies `activation` to every element of a tensor of any shape.
pub fn activate(x: &Tensor, activation: Activation) -> Result<Tensor> {
    apply(PerElement(activation), [x])
}

impl Elementwise for Activation {
    const NAME: &'static str = "activation";

    fn values(self, isa: Isa, x: &[f32], y: &mut [f32]) {
        match self {
            Activation::GeluTanh => isa.run(Forward(GeluTanh, x, y)),
            Activation::GeluErf => isa.run(Forward(GeluErf, x, y)),
            Activation::Relu { floor } => isa.run(Forward(Relu { floor }, x, y)),
            Activation::EluPlusOne => isa.run(Forward(EluPlusOne, x, y)),
            Activation::Silu => isa.run(Forward(Silu, x, y)),
            Activation::Softplus => isa.run(Forward(Softplus, x, y)),
            Activation::Sigmoid => isa.run(Forward(Sigmoid, x, y)),
        }
    }

    fn gradients(self, isa: Isa, x: &[f32], dy: &[f32], dx: &mut [f32]) {
        match self {
            Activation::GeluTanh => isa.run(Backward(GeluTanh, x, dy, dx)),
            Activation::GeluErf => isa.run(Backward(GeluErf, x, dy, dx)),
            Activation::Relu { floor } => isa.run(Backward(Relu { floor }, x, dy, dx)),
            Activation::EluPlusOne => isa.run(Backward(EluPlusOne, x, dy, dx)),
            Activation::Silu => isa.run(Backward(Silu, x, dy, dx)),
            Activation::Softplus => isa.run(Backward(Softplus, x, dy, dx)),
            Activation::Sigmoid => isa.run(Backward(Sigmoid, x, dy, dx)),
        }
    }
}

impl Activation {
    /// Writes y = f(x) and dx = dy f'(x), which have much in common.
    pub(in crate::ops) fn values_and_gradients(
        self,
        isa: Isa,
        [x, dy]: [&[f32]; 2],
        [y, dx]: [&mut [f32]; 2],
    ) {
        match self {
            Activation::GeluTanh => isa.run(Both(GeluTanh, [x, dy], [y, dx])),
            Activation::GeluErf => isa.run(Both(GeluErf, [x, dy], [y, dx])),
            Activation::Relu { floor } => isa.run(Both(Relu { floor }, [x, dy], [y, dx])),
            Activation::EluPlusOne => isa.run(Both(EluPlusOne, [x, dy], [y, dx])),
            Activation::Silu => isa.run(Both(Silu, [x, dy], [y, dx])),
            Activation::Softplus => isa.run(Both(Softplus, [x, dy], [y, dx])),
            Activation::Sigmoid => isa.run(Both(Sigmoid, [x, dy], [y, dx])),
        }
    }
}

/// A differentiable function of one number.
pub(in crate::ops) trait UnaryFunction: Copy + Send + Sync + 'static {
    /// Returns f(x).
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s;
    /// Returns f'(x).
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s;
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct GeluTanh;

impl GeluTanh {
    const LINEAR: f32 = 1.595_769;
    const CUBIC: f32 = Self::LINEAR * 0.044_715;
    /// The slope is 0 or 1 from here on.
    const FAR: f32 = 100.0;
}

impl UnaryFunction for GeluTanh {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let square = s.mul_f32s(x, x);
        let u = s.fma(
            s.splat_f32s(Self::CUBIC),
            square,
            s.splat_f32s(Self::LINEAR),
        );
        s.mul_f32s(x, sigmoid(s, s.mul_f32s(x, u)))
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        // The square of a large number is infinite. Not `min`, which may swallow a NaN.
        let [low, high] = [s.splat_f32s(-Self::FAR), s.splat_f32s(Self::FAR)];
        let x = s.select_f32s(s.less_than_f32s(x, low), low, x);
        let x = s.select_f32s(s.greater_than_f32s(x, high), high, x);
        let square = s.mul_f32s(x, x);
        let u = s.fma(
            s.splat_f32s(Self::CUBIC),
            square,
            s.splat_f32s(Self::LINEAR),
        );
        let du = s.fma(
            s.splat_f32s(3.0 * Self::CUBIC),
            square,
            s.splat_f32s(Self::LINEAR),
        );
        let p = sigmoid(s, s.mul_f32s(x, u));
        let dp = s.mul_f32s(s.mul_f32s(p, s.sub_f32s(s.splat_f32s(1.0), p)), du);
        s.fma(x, dp, p)
    }
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct GeluErf;

impl UnaryFunction for GeluErf {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        s.mul_f32s(x, normal(s, x).1)
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let (density, share) = normal(s, x);
        s.fma(x, density, share)
    }
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct Silu;

impl UnaryFunction for Silu {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        s.mul_f32s(x, sigmoid(s, x))
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let p = sigmoid(s, x);
        let rest = s.mul_f32s(x, s.sub_f32s(s.splat_f32s(1.0), p));
        s.fma(p, rest, p)
    }
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct Softplus;

impl UnaryFunction for Softplus {
    /// Computes max(x, 0) + ln(1 + e), e = e^-|x|; ln(1 + e) = 2 artanh q, q = e / (2 + e) <= 1/3,
    /// by its series, which is exact where e is small.
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let small = exp(s, s.neg_f32s(s.abs_f32s(x)));
        let q = s.div_f32s(small, s.add_f32s(s.splat_f32s(2.0), small));
        let square = s.mul_f32s(q, q);
        let mut series = s.splat_f32s(1.0 / 15.0);
        for odd in [13.0, 11.0, 9.0, 7.0, 5.0, 3.0, 1.0] {
            series = s.fma(series, square, s.splat_f32s(1.0 / odd));
        }
        let twice = s.add_f32s(q, q);
        // Not `max`, which may swallow a NaN.
        let negative = s.less_than_f32s(x, s.splat_f32s(0.0));
        let positive = s.select_f32s(negative, s.splat_f32s(0.0), x);
        s.fma(twice, series, positive)
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        sigmoid(s, x)
    }
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct Sigmoid;

impl UnaryFunction for Sigmoid {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        sigmoid(s, x)
    }

    /// Computes e / (1 + e)², e = e^-|x|, which is exact where it is small.
    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let small = exp(s, s.neg_f32s(s.abs_f32s(x)));
        let sum = s.add_f32s(s.splat_f32s(1.0), small);
        s.div_f32s(small, s.mul_f32s(sum, sum))
    }
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct Relu {
    pub(in crate::ops) floor: f32,
}

impl UnaryFunction for Relu {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        // Not `max`, which may swallow a NaN.
        let negative = s.less_than_f32s(x, s.splat_f32s(0.0));
        let y = s.select_f32s(negative, s.splat_f32s(0.0), x);
        s.add_f32s(y, s.splat_f32s(self.floor))
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let positive = s.greater_than_f32s(x, s.splat_f32s(0.0));
        s.select_f32s(positive, s.splat_f32s(1.0), s.splat_f32s(0.0))
    }
}

#[derive(Clone, Copy)]
pub(in crate::ops) struct EluPlusOne;

impl UnaryFunction for EluPlusOne {
    #[inline(always)]
    fn value<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let positive = s.greater_than_f32s(x, s.splat_f32s(0.0));
        s.select_f32s(positive, s.add_f32s(x, s.splat_f32s(1.0)), exp(s, x))
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, x: S::f32s) -> S::f32s {
        let positive = s.greater_than_f32s(x, s.splat_f32s(0.0));
        s.select_f32s(positive, s.splat_f32s(1.0), exp(s, x))
    }
}

/// x itself, for kernels that apply some curve.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Identity;

impl UnaryFunction for Identity {
    #[inline(always)]
    fn value<S: Lanes>(self, _: S, x: S::f32s) -> S::f32s {
        x
    }

    #[inline(always)]
    fn slope<S: Lanes>(self, s: S, _: S::f32s) -> S::f32s {
        s.splat_f32s(1.0)
    }
}

/// A differentiable function that is applied to each element.
pub(in crate::ops) trait Elementwise: Copy + Send + Sync + 'static {
    /// Name of the operation in errors.
    const NAME: &'static str;
    /// Writes y = f(x).
    fn values(self, isa: Isa, x: &[f32], y: &mut [f32]);
    /// Writes dx = dy f'(x).
    fn gradients(self, isa: Isa, x: &[f32], dy: &[f32], dx: &mut [f32]);
}

/// An elementwise function as an operation, in parallel.
pub(in crate::ops) struct PerElement<F>(pub(in crate::ops) F);

impl<F: Elementwise> CustomOp<1> for PerElement<F> {
    const NAME: &'static str = F::NAME;
    type Saved = ();

    fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let isa = Isa::current();
        let mut y = unspecified(x.data.len());
        let chunks = y.par_chunks_mut(CHUNK).zip(x.data.par_chunks(CHUNK));
        chunks.for_each(|(y, x)| self.0.values(isa, x, y));
        Ok((y, x.shape, ()))
    }

    fn backward(&self, [x]: [View; 1], pass: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
        let isa = Isa::current();
        let mut dx = unspecified(x.data.len());
        let chunks = dx
            .par_chunks_mut(CHUNK)
            .zip(x.data.par_chunks(CHUNK))
            .zip(pass.dy.par_chunks(CHUNK));
        chunks.for_each(|((dx, x), dy)| self.0.gradients(isa, x, dy, dx));
        Ok([dx.into()])
    }
}

/// function, x, y
pub(in crate::ops) struct Forward<'a, A>(
    pub(in crate::ops) A,
    pub(in crate::ops) &'a [f32],
    pub(in crate::ops) &'a mut [f32],
);

impl<A: UnaryFunction> Kernel for Forward<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Forward(activation, x, y) = self;
        let (x, x_tail) = S::as_simd_f32s(x);
        let (y, y_tail) = S::as_mut_simd_f32s(y);
        for (y, x) in y.iter_mut().zip(x) {
            *y = activation.value(s, *x);
        }
        if !x_tail.is_empty() {
            s.partial_store_f32s(y_tail, activation.value(s, s.partial_load_f32s(x_tail)));
        }
    }
}

/// function, x, dy, dx
pub(in crate::ops) struct Backward<'a, A>(
    pub(in crate::ops) A,
    pub(in crate::ops) &'a [f32],
    pub(in crate::ops) &'a [f32],
    pub(in crate::ops) &'a mut [f32],
);

impl<A: UnaryFunction> Kernel for Backward<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Backward(activation, x, dy, dx) = self;
        let (x, x_tail) = S::as_simd_f32s(x);
        let (dy, dy_tail) = S::as_simd_f32s(dy);
        let (dx, dx_tail) = S::as_mut_simd_f32s(dx);
        for ((dx, x), dy) in dx.iter_mut().zip(x).zip(dy) {
            *dx = s.mul_f32s(activation.slope(s, *x), *dy);
        }
        if !x_tail.is_empty() {
            let slope = activation.slope(s, s.partial_load_f32s(x_tail));
            s.partial_store_f32s(dx_tail, s.mul_f32s(slope, s.partial_load_f32s(dy_tail)));
        }
    }
}

/// function, [x, dy], [y, dx]
struct Both<'a, A>(A, [&'a [f32]; 2], [&'a mut [f32]; 2]);

impl<A: UnaryFunction> Kernel for Both<'_, A> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Both(activation, [x, dy], [y, dx]) = self;
        let (x, x_tail) = S::as_simd_f32s(x);
        let (dy, dy_tail) = S::as_simd_f32s(dy);
        let (y, y_tail) = S::as_mut_simd_f32s(y);
        let (dx, dx_tail) = S::as_mut_simd_f32s(dx);
        for (((y, dx), x), dy) in y.iter_mut().zip(dx).zip(x).zip(dy) {
            *y = activation.value(s, *x);
            *dx = s.mul_f32s(activation.slope(s, *x), *dy);
        }
        if !x_tail.is_empty() {
            let x = s.partial_load_f32s(x_tail);
            let slope = activation.slope(s, x);
            s.partial_store_f32s(y_tail, activation.value(s, x));
            s.partial_store_f32s(dx_tail, s.mul_f32s(slope, s.partial_load_f32s(dy_tail)));
        }
    }
}
