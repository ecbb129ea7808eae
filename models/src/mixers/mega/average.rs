//! The exponential moving average with many modes, in both directions.

use crate::{
    ops::{
        Modes, StateSpaceOptions,
        activation::{sigmoid, silu},
    },
    prelude::*,
    rng::Stream,
};

/// δ, α, β, γ (2 D, h), those of the forward direction first, and ω (D).
pub(in crate::mixers) struct MovingAverage {
    pub(super) delta: Tensor,
    pub(super) alpha: Tensor,
    pub(super) beta: Tensor,
    pub(super) gamma: Tensor,
    pub(super) omega: Tensor,
    /// Taps of each direction's kernel; none if it is not cut.
    taps: Option<usize>,
}

impl MovingAverage {
    /// Creates parameters δ, α ~ N(0, 0.2²), β = 1, -1, 1, .. + N(0, 0.02²) by mode, γ, ω ~ N(0,
    /// 1).
    pub(in crate::mixers) fn new(
        vb: &VarBuilder,
        dim: usize,
        modes: usize,
        taps: Option<usize>,
    ) -> Result<Self> {
        let shape = (2 * dim, modes);
        let normal = |stdev| Init::Randn { mean: 0.0, stdev };
        let signs = |stream: &Stream| {
            let normal = stream.normal(1, 2 * dim * modes).into_iter().enumerate();
            let sign = |index: usize| [1.0, -1.0][index % modes % 2];
            normal.map(|(i, x)| sign(i) + 0.02 * x).collect()
        };
        Ok(Self {
            delta: vb.get_with_hints(shape, "delta", normal(0.2))?,
            alpha: vb.get_with_hints(shape, "alpha", normal(0.2))?,
            beta: vb.get_with_values(shape, "beta", Attributes::MATRIX, signs)?,
            gamma: vb.get_with_hints(shape, "gamma", normal(1.0))?,
            omega: vb.get_with_hints(dim, "omega", normal(1.0))?,
            taps,
        })
    }

    /// Returns SiLU(K→ * x̂ + K← * x̂ + ω ⊙ x) of x (B, L, D), where x̂ is x, but zero at padding.
    ///
    /// Unless a norm counts padding (`counted`), its outputs are of no use, and ω ⊙ x̂ is added.
    pub(in crate::mixers) fn forward(
        &self,
        x: &Tensor,
        mask: Option<&Mask>,
        counted: bool,
    ) -> Result<Tensor> {
        let (_, length, dim) = x.dims3()?;
        let all = x;
        let x = &zero_padding(all, mask)?;
        let p = sigmoid(&self.delta)?;
        let a = (&p * sigmoid(&self.alpha)?)?.affine(-1.0, 1.0)?; // (2 D, h)
        let scale = (a.dim(1)? as f64).powf(-0.5);
        let c = ((p * &self.beta)? * &self.gamma)?.affine(scale, 0.0)?;
        let mut sum: Option<Tensor> = None;
        for (index, reverse) in [false, true].into_iter().enumerate() {
            let half = |x: &Tensor| x.narrow(0, index * dim, dim)?.contiguous();
            let (a, c) = (half(&a)?, half(&c)?);
            let options = StateSpaceOptions {
                reverse,
                exclusive: false,
            };
            let skip = (!reverse).then_some(&self.omega);
            let modes = Modes::Real {
                a: a.clone(),
                c: c.clone(),
            };
            let mut y = ops::state_space(x, &modes, skip, options)?;
            if let Some(taps) = self.taps.filter(|taps| *taps < length) {
                // The contribution of a kernel without an end from its tap number `taps` on: the
                // same average over inputs that many positions away.
                let c = (c * a.powf(taps as f64)?)?;
                let left = length - taps;
                let far = match reverse {
                    false => x.narrow(1, 0, left)?.pad_with_zeros(1, taps, 0)?,
                    true => x.narrow(1, taps, left)?.pad_with_zeros(1, 0, taps)?,
                };
                y = (y - ops::state_space(&far, &Modes::Real { a, c }, None, options)?)?;
            }
            sum = Some(match sum {
                Some(sum) => add(&sum, &y)?,
                None => y,
            });
        }
        let sum = sum.unwrap_or_else(|| x.clone());
        match mask.filter(|_| counted) {
            Some(_) => silu(&add(&sum, &(all - x)?.broadcast_mul(&self.omega)?)?),
            None => silu(&sum),
        }
    }
}
