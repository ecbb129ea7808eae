//! Lion: the sign of a momentum. Chen et al., 2023, "Symbolic discovery of optimization
//! algorithms", arXiv:2302.06675.
//!
//! ```text
//! θ ← θ - rate · sign(β1 m + (1-β1) g) - rate · decay · θ
//! m ← β2 m + (1-β2) g
//! ```
//!
//! The paper has β1 = 0.9 and β2 = 0.99, a rate 3 to 10 times smaller than AdamW's, and a decay
//! larger by the same factor.

use candle_core::{Result, Tensor, Var};

use super::{Optimizer, UpdateNumbers};
use crate::spec::TrainOptions;

/// Lion with its settings.
pub(super) struct Lion {
    beta2: f64,
}

impl Lion {
    /// Creates the rule from the settings of a training.
    pub(super) fn new(options: &TrainOptions) -> Self {
        Lion {
            beta2: options.beta2,
        }
    }
}

impl Optimizer for Lion {
    fn moments(&self) -> &'static [&'static str] {
        &["momentum"]
    }

    fn update(
        &self,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: Option<Tensor>,
        step: &UpdateNumbers,
    ) -> Result<()> {
        let gradient = match gradient {
            Some(gradient) => step.scale.apply(gradient)?,
            None => parameter.zeros_like()?,
        };
        let mean = |beta: f64| (&moments[0] * beta)? + (&gradient * (1.0 - beta))?;
        let change = (mean(step.beta1)?.sign()? * step.rate)?;
        let momentum = mean(self.beta2)?.detach();
        let before = parameter.as_detached_tensor();
        parameter.set(&((before * (1.0 - step.decay))? - change)?)?;
        moments[0] = momentum;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::super::Scale;
    use super::*;

    #[test]
    fn follows_the_equations_over_three_updates() {
        let options = TrainOptions {
            beta2: 0.99,
            ..TrainOptions::default()
        };
        let lion = Lion::new(&options);
        let parameter = Var::new(&[1.0, -2.0], &Device::Cpu).unwrap();
        let mut moments = [parameter.zeros_like().unwrap()];
        let (mut theta, mut m) = ([1.0, -2.0], [0.0; 2]);
        for (update, g) in [[0.5, -1.0], [-0.25, 0.0], [-4.0, 3.0]]
            .into_iter()
            .enumerate()
        {
            let step = UpdateNumbers {
                rate: 0.01,
                decay: 0.001,
                scale: Scale::Host(0.5),
                beta1: 0.9,
                update: update + 1,
            };
            let gradient = Tensor::new(&g, &Device::Cpu).unwrap();
            lion.update(&parameter, &mut moments, Some(gradient), &step)
                .unwrap();
            for i in 0..2 {
                let direction = 0.9 * m[i] + 0.1 * 0.5 * g[i];
                theta[i] -= 0.01 * f64::signum(direction) + 0.001 * theta[i];
                m[i] = 0.99 * m[i] + 0.01 * 0.5 * g[i];
            }
            let found = parameter.to_vec1::<f64>().unwrap();
            for i in 0..2 {
                assert!(
                    (found[i] - theta[i]).abs() < 1e-12,
                    "{found:?} is not {theta:?}"
                );
            }
        }
    }

    #[test]
    fn no_gradient_is_a_zero_one() {
        let options = TrainOptions {
            beta2: 0.99,
            ..TrainOptions::default()
        };
        let lion = Lion::new(&options);
        let parameter = Var::new(&[1.0, 1.0, 1.0], &Device::Cpu).unwrap();
        let mut moments = [Tensor::new(&[0.0, 2.0, -3.0], &Device::Cpu).unwrap()];
        let step = UpdateNumbers {
            rate: 0.1,
            decay: 0.01,
            scale: Scale::Host(1.0),
            beta1: 0.9,
            update: 1,
        };
        lion.update(&parameter, &mut moments, None, &step).unwrap();
        let near = |tensor: &Tensor, expected: [f64; 3]| {
            let found = tensor.to_vec1::<f64>().unwrap();
            let mut pairs = found.iter().zip(expected);
            assert!(pairs.all(|(a, b)| (a - b).abs() < 1e-12), "{found:?}");
        };
        near(&parameter, [0.99, 0.89, 1.09]);
        near(&moments[0], [0.0, 1.98, -2.97]);
    }
}
