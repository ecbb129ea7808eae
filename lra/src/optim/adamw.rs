//! AdamW: Adam with decoupled weight decay. Loshchilov and Hutter, 2019, arXiv:1711.05101.
//!
//! ```text
//! m ← β1 m + (1-β1) g        v ← β2 v + (1-β2) g²
//! θ ← θ - rate · (m / (1-β1ᵗ)) / (√(v / (1-β2ᵗ)) + ε) - rate · decay · θ
//! ```
//!
//! `t` is the number of this update, from 1. Both terms use the previous θ.

use candle_core::{Result, Tensor, Var};
use models::ops;

use super::{Optimizer, Scale, Slot, UpdateNumbers, one_by_one};
use crate::spec::TrainOptions;

/// AdamW with its settings.
pub(super) struct AdamW {
    beta2: f64,
    epsilon: f64,
}

impl AdamW {
    /// Creates the rule from the settings of a training.
    pub(super) fn new(options: &TrainOptions) -> Self {
        AdamW {
            beta2: options.beta2,
            epsilon: options.epsilon,
        }
    }

    /// Updates by candle's own operations, which work on any device and type.
    fn composed(
        &self,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: Option<Tensor>,
        step: &UpdateNumbers,
    ) -> Result<()> {
        let t = step.update as f64;
        let (correct1, correct2) = (1.0 - step.beta1.powf(t), 1.0 - self.beta2.powf(t));
        let mut first = (&moments[0] * step.beta1)?;
        let mut second = (&moments[1] * self.beta2)?;
        if let Some(gradient) = gradient {
            let gradient = step.scale.apply(gradient)?;
            first = (first + (&gradient * (1.0 - step.beta1))?)?;
            second = (second + (gradient.sqr()? * (1.0 - self.beta2))?)?;
        }
        let denominator = ((&second / correct2)?.sqrt()? + self.epsilon)?;
        let change = (((&first / correct1)? / denominator)? * step.rate)?;
        let before = parameter.as_detached_tensor();
        parameter.set(&((&before * (1.0 - step.decay))? - change)?)?;
        (moments[0], moments[1]) = (first.detach(), second.detach());
        Ok(())
    }
}

impl AdamW {
    fn numbers(&self, step: &UpdateNumbers, scale: f64) -> ops::AdamW {
        ops::AdamW {
            beta1: step.beta1,
            beta2: self.beta2,
            epsilon: self.epsilon,
            rate: step.rate,
            decay: step.decay,
            scale,
            update: step.update as u64,
        }
    }
}

impl Optimizer for AdamW {
    fn moments(&self) -> &'static [&'static str] {
        &["first_moment", "second_moment"]
    }

    fn update(
        &self,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: Option<Tensor>,
        step: &UpdateNumbers,
    ) -> Result<()> {
        match step.scale {
            Scale::Host(scale) if ops::supports(parameter) => self.numbers(step, scale).apply(
                &parameter.as_detached_tensor(),
                &moments[0],
                &moments[1],
                gradient.as_ref(),
            ),
            _ => self.composed(parameter, moments, gradient, step),
        }
    }

    fn update_all(
        &self,
        slots: &mut [Slot],
        gradients: Vec<Option<Tensor>>,
        steps: &[UpdateNumbers],
    ) -> Result<()> {
        let scale = match steps.first().map(|step| &step.scale) {
            Some(Scale::Device(scale)) => Some(scale),
            _ => None,
        };
        let parameters: Vec<Tensor> = slots
            .iter()
            .map(|slot| slot.parameter.as_detached_tensor())
            .collect();
        let updates: Vec<ops::adamw::Update> = slots
            .iter()
            .zip(&parameters)
            .zip(&gradients)
            .zip(steps)
            .map(|(((slot, parameter), gradient), step)| ops::adamw::Update {
                step: self.numbers(step, 1.0),
                parameter,
                first: &slot.moments[0],
                second: &slot.moments[1],
                gradient: gradient.as_ref(),
            })
            .collect();
        match ops::adamw::update_together(&updates, scale)? {
            true => Ok(()),
            false => one_by_one(self, slots, gradients, steps),
        }
    }
}
