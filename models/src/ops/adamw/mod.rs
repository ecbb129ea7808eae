//! AdamW updates of parameters in place, and norms of their gradients. On a GPU one launch updates
//! all parameters.
//!
//! ```text
//! m ← β1 m + (1 - β1) s g        v ← β2 v + (1 - β2) (s g)²
//! θ ← (1 - decay) θ - step · m / (√v · correction + ε)
//! ```
//!
//! θ is a parameter, g its gradient, and m and v are the running means of g and g². Decay is
//! decoupled (arXiv 1711.05101). s scales the gradient, for clipping. The bias corrections of
//! update t enter as step = rate / (1 - β1ᵗ) and correction = 1 / √(1 - β2ᵗ).

mod cuda;

use std::cell::Cell;

use candle_core::{CpuStorage, InplaceOp1, Layout, Result, Tensor, bail};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::read;

pub use self::cuda::{Update, gradient_norm, update_together};

const NAME: &str = "adamw";
/// Elements per parallel task.
const CHUNK: usize = 16 * 1024;

/// Settings of one AdamW update of one parameter (Loshchilov & Hutter, 2017, arXiv:1711.05101).
#[derive(Clone, Copy, Debug)]
pub struct AdamW {
    /// β1, the share of the running mean of gradients that is kept at each update, in [0, 1).
    pub beta1: f64,
    /// β2, the share of the running mean of squared gradients that is kept at each update, in [0,
    /// 1).
    pub beta2: f64,
    /// ε, added to the square root of the running mean of squared gradients.
    pub epsilon: f64,
    /// Learning rate of this update, more than 0.
    pub rate: f64,
    /// Share of the parameter that is subtracted: learning rate times weight decay, or 0 for no
    /// decay.
    pub decay: f64,
    /// Factor on the gradient, to clip it. 1 leaves the gradient as it is.
    pub scale: f64,
    /// Number of this update, from 1.
    pub update: u64,
}

impl AdamW {
    /// Updates `parameter` and its two moments in place. `first` is the running mean of gradients,
    /// `second` that of squared gradients. All tensors are f32 in main memory and have one shape. A
    /// missing gradient counts as zeros.
    ///
    /// All tensors that share memory with these see the new values.
    ///
    /// # Errors
    /// If shapes differ, or a tensor that is updated is not contiguous f32 in main memory.
    pub fn apply(
        &self,
        parameter: &Tensor,
        first: &Tensor,
        second: &Tensor,
        gradient: Option<&Tensor>,
    ) -> Result<()> {
        let none;
        let gradient = match gradient {
            Some(gradient) => &gradient.contiguous()?,
            None => {
                none = parameter.zeros_like()?;
                &none
            }
        };
        for other in [first, second, gradient] {
            if other.dims() != parameter.dims() {
                let (other, parameter) = (other.shape(), parameter.shape());
                bail!("{NAME}: shapes {parameter:?} and {other:?} differ");
            }
        }
        let gradient = read(NAME, gradient)?;
        let (step, isa) = (Step::new(self), Isa::current());
        overwrite(parameter, |parameter| {
            overwrite(first, |first| {
                overwrite(second, |second| {
                    let moments = first
                        .par_chunks_mut(CHUNK)
                        .zip(second.par_chunks_mut(CHUNK));
                    let chunks = parameter.par_chunks_mut(CHUNK).zip(moments);
                    let chunks = chunks.zip(gradient.par_chunks(CHUNK));
                    chunks.for_each(|((parameter, (first, second)), gradient)| {
                        isa.run(Task {
                            step,
                            parameter,
                            moments: [first, second],
                            gradient,
                        });
                    });
                    Ok(())
                })
            })
        })
    }
}

/// Calls `write` with the elements of a contiguous f32 tensor, whose own memory they are.
fn overwrite(x: &Tensor, write: impl FnOnce(&mut [f32]) -> Result<()>) -> Result<()> {
    x.inplace_op1(&Overwrite(Cell::new(Some(write))))
}

/// Closure that is called once.
struct Overwrite<F>(Cell<Option<F>>);

impl<F: FnOnce(&mut [f32]) -> Result<()>> InplaceOp1 for Overwrite<F> {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, storage: &mut CpuStorage, layout: &Layout) -> Result<()> {
        let (Some((start, end)), CpuStorage::F32(data)) = (layout.contiguous_offsets(), storage)
        else {
            bail!(
                "{NAME}: {:?} is not a contiguous f32 tensor",
                layout.shape()
            );
        };
        match self.0.take() {
            Some(write) => write(&mut data[start..end]),
            None => Ok(()),
        }
    }
}

/// Returns the sum of squares of all elements of x, of any shape. It is computed in f64, in an
/// order that depends on the number of elements alone.
///
/// # Errors
/// If x is not f32 in main memory.
pub fn sum_of_squares(x: &Tensor) -> Result<f64> {
    let x = x.contiguous()?;
    let x = read(NAME, &x)?;
    let isa = Isa::current();
    let squares = |chunk| isa.run(Squares(chunk));
    let partials: Vec<f64> = x.par_chunks(CHUNK).map(squares).collect();
    Ok(partials.iter().sum())
}

/// The sum of squares of a chunk: of elements as many places apart as there are sums, and then of
/// these.
struct Squares<'a>(&'a [f32]);

impl Kernel for Squares<'_> {
    type Output = f64;

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) -> f64 {
        // Several registers of any kind, since a sum waits for the one before it.
        const SUMS: usize = 32;
        let mut sums = [0.0; SUMS];
        let mut wide = [0.0; SUMS];
        for x in self.0.chunks(SUMS) {
            for (wide, x) in wide.iter_mut().zip(x) {
                *wide = f64::from(*x);
            }
            wide[x.len()..].fill(0.0);
            let (sums, _) = S::as_mut_simd_f64s(&mut sums);
            let (wide, _) = S::as_simd_f64s(&wide);
            for (sum, x) in sums.iter_mut().zip(wide) {
                *sum = s.add_f64s(*sum, s.mul_f64s(*x, *x));
            }
        }
        sums.iter().sum()
    }
}

/// The numbers of an update, as f32.
#[derive(Clone, Copy)]
struct Step {
    /// β and 1 - β of both moments.
    decays: [f32; 2],
    rests: [f32; 2],
    scale: f32,
    keep: f32,
    step: f32,
    correction: f32,
    epsilon: f32,
}

impl Step {
    fn new(options: &AdamW) -> Self {
        let t = options.update as f64;
        let betas = [options.beta1, options.beta2];
        Step {
            decays: betas.map(|beta| beta as f32),
            // In f64: f32 would lose most of its digits.
            rests: betas.map(|beta| (1.0 - beta) as f32),
            scale: options.scale as f32,
            keep: (1.0 - options.decay) as f32,
            step: (options.rate / (1.0 - options.beta1.powf(t))) as f32,
            correction: (1.0 - options.beta2.powf(t)).powf(-0.5) as f32,
            epsilon: options.epsilon as f32,
        }
    }
}

/// Some elements of a parameter, with their gradients and moments.
struct Task<'a> {
    step: Step,
    parameter: &'a mut [f32],
    moments: [&'a mut [f32]; 2],
    gradient: &'a [f32],
}

impl Kernel for Task<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Task {
            step,
            parameter,
            moments: [first, second],
            gradient,
        } = self;
        let step = Registers::<S>::new(s, step);
        let (parameter, parameter_tail) = S::as_mut_simd_f32s(parameter);
        let (first, first_tail) = S::as_mut_simd_f32s(first);
        let (second, second_tail) = S::as_mut_simd_f32s(second);
        let (gradient, gradient_tail) = S::as_simd_f32s(gradient);
        let moments = first.iter_mut().zip(second);
        for ((parameter, (first, second)), gradient) in
            parameter.iter_mut().zip(moments).zip(gradient)
        {
            (*parameter, [*first, *second]) =
                step.next(s, *parameter, [*first, *second], *gradient);
        }
        if !parameter_tail.is_empty() {
            let moments = [&*first_tail, &*second_tail].map(|tail| s.partial_load_f32s(tail));
            let gradient = s.partial_load_f32s(gradient_tail);
            let parameter = s.partial_load_f32s(parameter_tail);
            let (parameter, [first, second]) = step.next(s, parameter, moments, gradient);
            s.partial_store_f32s(parameter_tail, parameter);
            s.partial_store_f32s(first_tail, first);
            s.partial_store_f32s(second_tail, second);
        }
    }
}

/// [`Step`], each number in all lanes.
struct Registers<S: Lanes> {
    decays: [S::f32s; 2],
    rests: [S::f32s; 2],
    scale: S::f32s,
    keep: S::f32s,
    step: S::f32s,
    correction: S::f32s,
    epsilon: S::f32s,
}

impl<S: Lanes> Registers<S> {
    #[inline(always)]
    fn new(s: S, step: Step) -> Self {
        let [first, second] = step.decays;
        let [first_rest, second_rest] = step.rests;
        Registers {
            decays: [s.splat_f32s(first), s.splat_f32s(second)],
            rests: [s.splat_f32s(first_rest), s.splat_f32s(second_rest)],
            scale: s.splat_f32s(step.scale),
            keep: s.splat_f32s(step.keep),
            step: s.splat_f32s(-step.step),
            correction: s.splat_f32s(step.correction),
            epsilon: s.splat_f32s(step.epsilon),
        }
    }

    /// Returns the parameter and its moments after the update.
    #[inline(always)]
    fn next(
        &self,
        s: S,
        parameter: S::f32s,
        [first, second]: [S::f32s; 2],
        gradient: S::f32s,
    ) -> (S::f32s, [S::f32s; 2]) {
        let g = s.mul_f32s(gradient, self.scale);
        let first = s.fma(first, self.decays[0], s.mul_f32s(g, self.rests[0]));
        let square = s.mul_f32s(g, g);
        let second = s.fma(second, self.decays[1], s.mul_f32s(square, self.rests[1]));
        let size = s.fma(s.sqrt_f32s(second), self.correction, self.epsilon);
        let rest = s.mul_f32s(parameter, self.keep);
        let parameter = s.fma(s.div_f32s(first, size), self.step, rest);
        (parameter, [first, second])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::testing::{Sampler, largest_error};
    use candle_core::DType;

    #[test]
    fn three_updates_follow_the_formula() {
        let mut sampler = Sampler::new(19);
        let len = CHUNK + 37;
        let numbers = |x: &Tensor| x.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
        let start = sampler.normal(&[len], 1.0);
        let gradients = [sampler.normal(&[len], 1.0), sampler.normal(&[len], 1.0)];
        for isa in Isa::all() {
            let parameter = start.copy().unwrap();
            let (first, second) = (start.zeros_like().unwrap(), start.zeros_like().unwrap());
            let mut expected = numbers(&start);
            let (mut m, mut v) = (vec![0.0; len], vec![0.0; len]);
            for (update, gradient) in [Some(&gradients[0]), None, Some(&gradients[1])]
                .iter()
                .enumerate()
            {
                let step = AdamW {
                    beta1: 0.9,
                    beta2: 0.999,
                    epsilon: 1e-2,
                    rate: 0.01,
                    decay: 0.001,
                    scale: 0.5,
                    update: update as u64 + 1,
                };
                isa.force(|| step.apply(&parameter, &first, &second, *gradient))
                    .unwrap();
                let t = step.update as i32;
                let gradient = gradient.map_or(vec![0.0; len], numbers);
                for (i, x) in expected.iter_mut().enumerate() {
                    let g = 0.5 * gradient[i];
                    m[i] = 0.9 * m[i] + 0.1 * g;
                    v[i] = 0.999 * v[i] + 0.001 * g * g;
                    let (m, v) = (
                        m[i] / (1.0 - 0.9f64.powi(t)),
                        v[i] / (1.0 - 0.999f64.powi(t)),
                    );
                    *x -= 0.001 * *x + 0.01 * m / (v.sqrt() + 1e-2);
                }
            }
            for (actual, expected) in [(&parameter, &expected), (&first, &m), (&second, &v)] {
                let error = largest_error(&numbers(actual), expected, 0.0);
                assert!(error < 1e-6, "{isa:?}: {error:.1e}");
            }
        }
    }

    #[test]
    fn sum_of_squares_and_shapes() {
        let mut sampler = Sampler::new(20);
        let x = sampler.normal(&[3, CHUNK], 1.0);
        let wide = x.to_dtype(DType::F64).unwrap();
        let expected = wide
            .sqr()
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar::<f64>()
            .unwrap();
        let sum = sum_of_squares(&x).unwrap();
        assert!((sum / expected - 1.0).abs() < 1e-12);
        for threads in 1..=3 {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
            let pool = pool.build().unwrap();
            let again = pool.install(|| sum_of_squares(&x).unwrap());
            assert_eq!(again.to_bits(), sum.to_bits(), "{threads} threads");
        }
        let step = AdamW {
            beta1: 0.9,
            beta2: 0.99,
            epsilon: 1e-8,
            rate: 0.1,
            decay: 0.0,
            scale: 1.0,
            update: 1,
        };
        let other = sampler.normal(&[2], 1.0);
        let moments = [x.zeros_like().unwrap(), x.zeros_like().unwrap()];
        assert!(
            step.apply(&x, &moments[0], &moments[1], Some(&other))
                .is_err()
        );
    }
}
