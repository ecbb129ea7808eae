//! One AdamW update of one parameter, in place, and the square of a gradient's norm.
//!
//! ```text
//! m ← β1 m + (1 - β1) s g        v ← β2 v + (1 - β2) (s g)²
//! θ ← (1 - decay) θ - step · m / (√v · correction + ε)
//! ```
//!
//! with decoupled decay (arXiv 1711.05101). s scales the gradient, for clipping; the bias corrections of
//! update t enter as step = rate / (1 - β1ᵗ) and correction = 1 / √(1 - β2ᵗ).

use candle_core::{CpuStorage, InplaceOp2, InplaceOp3, Layout, Result, Tensor, bail};
use rayon::prelude::*;

use super::buffers::{floats, read};
use super::isa::{Isa, Kernel, Lanes};

const NAME: &str = "adamw";
/// Elements per parallel task.
const CHUNK: usize = 16 * 1024;

/// The numbers of one update.
#[derive(Clone, Copy, Debug)]
pub struct AdamW {
    /// Decay of the running mean of gradients.
    pub beta1: f64,
    /// Decay of the running mean of squared gradients.
    pub beta2: f64,
    /// Added to the square root.
    pub epsilon: f64,
    /// Learning rate of this update.
    pub rate: f64,
    /// Share of the parameter that is taken away: rate times weight decay, or 0.
    pub decay: f64,
    /// Factor on the gradient.
    pub scale: f64,
    /// Number of this update, from 1.
    pub update: u64,
}

impl AdamW {
    /// Updates a parameter and its two moments, all f32 of one shape. No gradient counts as a zero one.
    ///
    /// The tensors' own memory is written: whoever shares it sees the new values.
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
        // 1 - β is taken in f64: in f32 it would lose most of its digits.
        let moment = |beta: f64, square| Moment {
            decay: beta as f32,
            rest: (1.0 - beta) as f32,
            scale: self.scale as f32,
            square,
        };
        first.inplace_op2(gradient, &moment(self.beta1, false))?;
        second.inplace_op2(gradient, &moment(self.beta2, true))?;
        let t = self.update as f64;
        let step = Step {
            keep: (1.0 - self.decay) as f32,
            step: (self.rate / (1.0 - self.beta1.powf(t))) as f32,
            correction: (1.0 - self.beta2.powf(t)).powf(-0.5) as f32,
            epsilon: self.epsilon as f32,
        };
        parameter.inplace_op3(first, second, &step)
    }
}

/// Sum of squares of all elements, in f64 and in an order that depends on their number alone.
pub fn sum_of_squares(x: &Tensor) -> Result<f64> {
    let x = x.contiguous()?;
    let x = read(NAME, &x)?;
    let isa = Isa::current();
    let squares = |chunk| isa.run(Squares(chunk));
    let partials: Vec<f64> = x.par_chunks(CHUNK).map(squares).collect();
    Ok(partials.iter().sum())
}

/// The sum of squares of a chunk: of elements as many places apart as there are sums, and then of these.
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

/// A running mean of gradients or of their squares.
#[derive(Clone, Copy)]
struct Moment {
    decay: f32,
    rest: f32,
    scale: f32,
    square: bool,
}

#[derive(Clone, Copy)]
struct Step {
    keep: f32,
    step: f32,
    correction: f32,
    epsilon: f32,
}

/// The elements of a contiguous f32 tensor, to be overwritten.
fn floats_mut<'a>(storage: &'a mut CpuStorage, layout: &Layout) -> Result<&'a mut [f32]> {
    let (Some((start, end)), CpuStorage::F32(data)) = (layout.contiguous_offsets(), storage) else {
        bail!(
            "{NAME}: {:?} is not a contiguous f32 tensor",
            layout.shape()
        );
    };
    Ok(&mut data[start..end])
}

fn same_shape(a: &Layout, b: &Layout) -> Result<()> {
    if a.dims() != b.dims() {
        bail!("{NAME}: shapes {:?} and {:?} differ", a.shape(), b.shape());
    }
    Ok(())
}

impl InplaceOp2 for Moment {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        moment: &mut CpuStorage,
        layout: &Layout,
        gradient: &CpuStorage,
        gradient_layout: &Layout,
    ) -> Result<()> {
        same_shape(layout, gradient_layout)?;
        let gradient = floats(NAME, gradient, gradient_layout)?;
        let moment = floats_mut(moment, layout)?;
        let isa = Isa::current();
        let chunks = moment.par_chunks_mut(CHUNK).zip(gradient.par_chunks(CHUNK));
        chunks.for_each(|(moment, gradient)| isa.run(MomentTask(*self, moment, gradient)));
        Ok(())
    }
}

struct MomentTask<'a>(Moment, &'a mut [f32], &'a [f32]);

impl Kernel for MomentTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let MomentTask(
            Moment {
                decay,
                rest,
                scale,
                square,
            },
            moment,
            gradient,
        ) = self;
        let (decays, rest) = (s.splat_f32s(decay), s.splat_f32s(rest));
        let scales = s.splat_f32s(scale);
        let next = |moment, gradient| {
            let g = s.mul_f32s(gradient, scales);
            let g = if square { s.mul_f32s(g, g) } else { g };
            s.fma(moment, decays, s.mul_f32s(g, rest))
        };
        let (moment, moment_tail) = S::as_mut_simd_f32s(moment);
        let (gradient, gradient_tail) = S::as_simd_f32s(gradient);
        for (moment, gradient) in moment.iter_mut().zip(gradient) {
            *moment = next(*moment, *gradient);
        }
        if !moment_tail.is_empty() {
            let gradient = s.partial_load_f32s(gradient_tail);
            let moment = next(s.partial_load_f32s(moment_tail), gradient);
            s.partial_store_f32s(moment_tail, moment);
        }
    }
}

impl InplaceOp3 for Step {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        parameter: &mut CpuStorage,
        layout: &Layout,
        first: &CpuStorage,
        first_layout: &Layout,
        second: &CpuStorage,
        second_layout: &Layout,
    ) -> Result<()> {
        same_shape(layout, first_layout)?;
        same_shape(layout, second_layout)?;
        let (first, second) = (
            floats(NAME, first, first_layout)?,
            floats(NAME, second, second_layout)?,
        );
        let parameter = floats_mut(parameter, layout)?;
        let isa = Isa::current();
        let moments = first.par_chunks(CHUNK).zip(second.par_chunks(CHUNK));
        parameter
            .par_chunks_mut(CHUNK)
            .zip(moments)
            .for_each(|(parameter, (first, second))| {
                isa.run(StepTask(*self, parameter, first, second));
            });
        Ok(())
    }
}

struct StepTask<'a>(Step, &'a mut [f32], &'a [f32], &'a [f32]);

impl Kernel for StepTask<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let StepTask(
            Step {
                keep,
                step,
                correction,
                epsilon,
            },
            parameter,
            first,
            second,
        ) = self;
        let (keep, step) = (s.splat_f32s(keep), s.splat_f32s(-step));
        let (correction, epsilon) = (s.splat_f32s(correction), s.splat_f32s(epsilon));
        let next = |parameter, first, second| {
            let size = s.fma(s.sqrt_f32s(second), correction, epsilon);
            s.fma(s.div_f32s(first, size), step, s.mul_f32s(parameter, keep))
        };
        let (parameter, parameter_tail) = S::as_mut_simd_f32s(parameter);
        let (first, first_tail) = S::as_simd_f32s(first);
        let (second, second_tail) = S::as_simd_f32s(second);
        for ((parameter, first), second) in parameter.iter_mut().zip(first).zip(second) {
            *parameter = next(*parameter, *first, *second);
        }
        if !parameter_tail.is_empty() {
            let (first, second) = (
                s.partial_load_f32s(first_tail),
                s.partial_load_f32s(second_tail),
            );
            let parameter = next(s.partial_load_f32s(parameter_tail), first, second);
            s.partial_store_f32s(parameter_tail, parameter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, largest_error};
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
                    beta2: 0.98,
                    epsilon: 1e-8,
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
                    v[i] = 0.98 * v[i] + 0.02 * g * g;
                    let (m, v) = (
                        m[i] / (1.0 - 0.9f64.powi(t)),
                        v[i] / (1.0 - 0.98f64.powi(t)),
                    );
                    *x -= 0.001 * *x + 0.01 * m / (v.sqrt() + 1e-8);
                }
            }
            assert!(
                largest_error(&numbers(&parameter), &expected, 1e-3) < 1e-6,
                "{isa:?}"
            );
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
        assert!((sum_of_squares(&x).unwrap() / expected - 1.0).abs() < 1e-12);
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
