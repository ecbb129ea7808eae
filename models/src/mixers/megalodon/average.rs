//! The complex exponential moving average (CEMA) with many modes, in one or both directions.

use crate::{
    layers::Direction,
    ops::{Complex, Modes, StateSpaceOptions, activation::sigmoid, state_space_sum},
    prelude::*,
    rng::Stream,
};

/// α, δ, Re γ, Im γ (R D, h) and θ (R D) of R directions, the forward one first, and ω (D).
pub(super) struct ComplexAverage {
    pub(super) alpha: Tensor,
    pub(super) delta: Tensor,
    pub(super) theta: Tensor,
    pub(super) gamma: Complex,
    pub(super) omega: Tensor,
    direction: Direction,
}

impl ComplexAverage {
    /// Creates parameters α, δ ~ N(0, 0.2²), Re γ ~ N(0, 1), Im γ = 0, ω ~ N(0, 0.25²), and θ with
    /// σ(θ) = D^(-k / D) for k = 1 .. D, shuffled among the channels.
    pub(super) fn new(
        vb: &VarBuilder,
        dim: usize,
        modes: usize,
        direction: Direction,
    ) -> Result<Self> {
        let rows = direction.count() * dim;
        let normal =
            |name, stdev| vb.get_with_hints((rows, modes), name, Init::Randn { mean: 0.0, stdev });
        let angles = |stream: &Stream| -> Vec<f64> {
            let keys = stream.uniform(1, rows);
            let mut angles = vec![0.0; rows];
            for first in (0..rows).step_by(dim) {
                let mut order: Vec<usize> = (first..first + dim).collect();
                order.sort_by(|a, b| keys[*a].total_cmp(&keys[*b]));
                for (k, channel) in order.into_iter().enumerate() {
                    let share = -((k + 1) as f64) / dim as f64;
                    // Of a single channel it is 1, which no logistic reaches.
                    let angle = (dim as f64).powf(share).min(1.0 - 1e-6);
                    angles[channel] = (angle / (1.0 - angle)).ln();
                }
            }
            angles
        };
        let omega = Init::Randn {
            mean: 0.0,
            stdev: 0.25,
        };
        let zeros = Init::Const(0.0);
        Ok(Self {
            alpha: normal("alpha", 0.2)?,
            delta: normal("delta", 0.2)?,
            theta: vb.get_with_values(rows, "theta", Attributes::NO_DECAY, angles)?,
            gamma: Complex::new(
                normal("gamma_real", 1.0)?,
                vb.get_with_hints((rows, modes), "gamma_imag", zeros)?,
            ),
            omega: vb.get_with_hints(dim, "omega", omega)?,
            direction,
        })
    }

    /// Returns K→ * x + K← * x + ω ⊙ x of x (B, L, D); padding counts as zeros.
    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (dim, modes) = (x.dim(2)?, self.alpha.dim(1)?);
        let p = sigmoid(&self.alpha)?;
        let size = (&p * sigmoid(&self.delta)?)?.affine(-1.0, 1.0)?; // (R D, h)
        let numbers: Vec<f64> = (1..=modes).map(|n| n as f64).collect();
        let numbers = Tensor::new(numbers, x.device())?.to_dtype(x.dtype())?;
        let angle = sigmoid(&self.theta)?.affine(std::f64::consts::TAU / modes as f64, 0.0)?;
        let angle = angle.unsqueeze(1)?.broadcast_mul(&numbers)?;
        let q = Complex::new((&size * angle.cos()?)?, (&size * angle.sin()?)?);
        let weight = p.affine((modes as f64).powf(-0.5), 0.0)?;
        let c = Complex::new((&weight * &self.gamma.re)?, (&weight * &self.gamma.im)?);
        let of_direction = |index: usize| -> Result<Modes> {
            let rows = |x: &Tensor| x.narrow(0, index * dim, dim)?.contiguous();
            let both = |x: &Complex| Ok::<_, Error>(Complex::new(rows(&x.re)?, rows(&x.im)?));
            Ok(Modes::Complex {
                a: both(&q)?,
                c: both(&c)?,
            })
        };
        let walks = (0..self.direction.count()).map(of_direction);
        let walks: Vec<Modes> = walks.collect::<Result<_>>()?;
        let options = [false, true].map(|reverse| StateSpaceOptions {
            reverse,
            exclusive: false,
        });
        let walks: Vec<_> = walks.iter().zip(options).collect();
        state_space_sum(x, &walks, Some(&self.omega), pass.sequences())
    }

    /// Counts the operations for one sequence.
    pub(super) fn flops(&self, length: usize) -> u64 {
        8 * (length * self.alpha.elem_count()) as u64
    }
}
