//! AdamW with decoupled decay, clipping by the global norm, and what each parameter asks for ([`Attributes`]): decay or
//! none, a rate of its own, a range that it is kept in.
//!
//! ```text
//! m ← β1 m + (1-β1) g        v ← β2 v + (1-β2) g²
//! θ ← θ - rate · (m / (1-β1ᵗ)) / (√(v / (1-β2ᵗ)) + ε) - rate · decay · θ
//! ```
//!
//! Loshchilov and Hutter, 2019, arXiv:1711.05101. `t` counts this update in. Both terms use the θ from before.

use candle_core::backprop::GradStore;
use candle_core::{DType, Result, Tensor, Var};
use models::params::{Attributes, Projection};
use models::{Parameters, ops};

use crate::spec::{Decay, TrainOptions};

/// One parameter with its moments.
pub struct Slot {
    /// Its path in the model.
    pub path: String,
    /// The parameter.
    pub parameter: Var,
    /// Running mean of gradients.
    pub first_moment: Tensor,
    /// Running mean of squared gradients.
    pub second_moment: Tensor,
    weight_decay: f64,
    rate_factor: f64,
    projection: Option<Projection>,
}

/// The optimizer's state over all parameters, in path order.
pub struct AdamW {
    /// One entry per parameter.
    pub slots: Vec<Slot>,
    beta1: f64,
    beta2: f64,
    epsilon: f64,
    clip: f64,
}

/// Gradients of all parameters in path order, summed over micro-batches.
pub struct Gradients(Vec<Option<Tensor>>);

/// A norm, where it was computed: one on a GPU is not waited for until somebody reads it.
pub enum Norm {
    /// A number.
    Host(f64),
    /// A tensor of rank 0, f64.
    Device(Tensor),
}

impl Norm {
    /// The number; waits for the device.
    pub fn read(&self) -> Result<f64> {
        match self {
            Norm::Host(norm) => Ok(*norm),
            Norm::Device(norm) => norm.to_scalar::<f64>(),
        }
    }
}

impl Slot {
    /// One update by candle's own operations: any device, any type. The gradient is multiplied by `scale`, rank 0.
    fn update(
        &mut self,
        step: &ops::AdamW,
        gradient: Option<Tensor>,
        scale: Option<&Tensor>,
    ) -> Result<()> {
        let t = step.update as f64;
        let (correct1, correct2) = (1.0 - step.beta1.powf(t), 1.0 - step.beta2.powf(t));
        let mut first = (&self.first_moment * step.beta1)?;
        let mut second = (&self.second_moment * step.beta2)?;
        if let Some(gradient) = gradient {
            let gradient = match scale {
                Some(scale) => gradient.broadcast_mul(&scale.to_dtype(gradient.dtype())?)?,
                None => gradient,
            };
            first = (first + (&gradient * (1.0 - step.beta1))?)?;
            second = (second + (gradient.sqr()? * (1.0 - step.beta2))?)?;
        }
        let denominator = ((&second / correct2)?.sqrt()? + step.epsilon)?;
        let change = (((&first / correct1)? / denominator)? * step.rate)?;
        let before = self.parameter.as_detached_tensor();
        self.parameter
            .set(&((&before * (1.0 - step.decay))? - change)?)?;
        (self.first_moment, self.second_moment) = (first.detach(), second.detach());
        Ok(())
    }
}

impl AdamW {
    /// Zero moments for every parameter.
    pub fn new(parameters: &Parameters, options: &TrainOptions) -> Result<Self> {
        let slots = parameters
            .with_attributes()
            .into_iter()
            .map(|(path, parameter, attributes)| {
                let Attributes {
                    decay,
                    rate_factor,
                    projection,
                } = attributes;
                let decays = options.decay == Decay::All || decay;
                let group = options.groups.iter().find(|group| group.has(&path));
                let weight_decay = group.and_then(|group| group.weight_decay);
                let rate = group.and_then(|group| group.learning_rate);
                Ok(Slot {
                    weight_decay: weight_decay.unwrap_or(match decays {
                        true => options.weight_decay,
                        false => 0.0,
                    }),
                    rate_factor: rate.map_or(rate_factor, |rate| rate / options.learning_rate),
                    projection,
                    first_moment: parameter.zeros_like()?,
                    second_moment: parameter.zeros_like()?,
                    parameter,
                    path,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(AdamW::over(slots, options))
    }

    fn over(slots: Vec<Slot>, options: &TrainOptions) -> Self {
        let &TrainOptions {
            beta1,
            beta2,
            epsilon,
            clip,
            ..
        } = options;
        AdamW {
            slots,
            beta1,
            beta2,
            epsilon,
            clip,
        }
    }

    /// No gradients yet.
    pub fn no_gradients(&self) -> Gradients {
        Gradients(vec![None; self.slots.len()])
    }

    /// Adds the gradients of one backward pass. They are detached: candle's gradients of variables hold on to the
    /// graph, and with it to every activation.
    pub fn accumulate(&self, gradients: &mut Gradients, mut from: GradStore) -> Result<()> {
        for (slot, sum) in self.slots.iter().zip(&mut gradients.0) {
            if let Some(gradient) = from.remove(slot.parameter.as_tensor()) {
                let gradient = gradient.detach();
                *sum = Some(match sum.take() {
                    Some(sum) => (sum + gradient)?.detach(),
                    None => gradient,
                });
            }
        }
        Ok(())
    }

    /// Makes update number `update` (counted from 1) and returns the global L2 norm of the gradient before clipping.
    /// A parameter without a gradient is treated as having a zero one.
    pub fn update(&mut self, gradients: Gradients, rate: f64, update: usize) -> Result<Norm> {
        let norm = global_norm(&gradients)?;
        let (mut scale, mut scale_there) = (1.0, None);
        if self.clip > 0.0 {
            match &norm {
                Norm::Host(norm) if *norm > self.clip => scale = self.clip / norm,
                Norm::Host(_) => {}
                Norm::Device(norm) => {
                    scale_there = Some((norm.maximum(self.clip)?.recip()? * self.clip)?);
                }
            }
        }
        for (slot, gradient) in self.slots.iter_mut().zip(gradients.0) {
            let rate = rate * slot.rate_factor;
            let step = ops::AdamW {
                beta1: self.beta1,
                beta2: self.beta2,
                epsilon: self.epsilon,
                rate,
                decay: rate * slot.weight_decay,
                scale,
                update: update as u64,
            };
            if ops::supports(&slot.parameter) {
                let parameter = slot.parameter.as_detached_tensor();
                step.apply(
                    &parameter,
                    &slot.first_moment,
                    &slot.second_moment,
                    gradient.as_ref(),
                )?;
            } else {
                slot.update(&step, gradient, scale_there.as_ref())?;
            }
            if let Some(projection) = slot.projection {
                let nearest = projection.apply(&slot.parameter.as_detached_tensor())?;
                slot.parameter.set(&nearest)?;
            }
        }
        Ok(norm)
    }
}

/// The root of the sum of all squares: on the host where every gradient is one of the fused kernels', else on the device.
fn global_norm(gradients: &Gradients) -> Result<Norm> {
    let all = || gradients.0.iter().flatten();
    if all().all(ops::supports) {
        let squares = all().map(ops::sum_of_squares);
        return Ok(Norm::Host(squares.sum::<Result<f64>>()?.sqrt()));
    }
    let mut squares = Vec::new();
    for gradient in all() {
        squares.push(gradient.sqr()?.sum_all()?.to_dtype(DType::F64)?);
    }
    Ok(Norm::Device(Tensor::stack(&squares, 0)?.sum_all()?.sqrt()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ParameterGroup;
    use candle_core::Device;
    use models::params::LECUN_NORMAL;

    fn optimizer(values: &[f64], options: &TrainOptions) -> AdamW {
        let parameter = Var::new(values, &Device::Cpu).unwrap();
        let zeros = parameter.zeros_like().unwrap();
        let slot = Slot {
            path: "head.weight".to_owned(),
            parameter,
            first_moment: zeros.clone(),
            second_moment: zeros,
            weight_decay: options.weight_decay,
            rate_factor: 1.0,
            projection: None,
        };
        AdamW::over(vec![slot], options)
    }

    fn gradients(values: &[f64]) -> Gradients {
        Gradients(vec![Some(Tensor::new(values, &Device::Cpu).unwrap())])
    }

    #[test]
    fn follows_the_equations_over_three_updates() {
        let options = TrainOptions {
            clip: 0.0,
            weight_decay: 0.1,
            ..TrainOptions::default()
        };
        let mut adamw = optimizer(&[1.0, -2.0], &options);
        let (mut theta, mut m, mut v) = ([1.0, -2.0], [0.0; 2], [0.0; 2]);
        for (update, g) in [[0.5, -1.0], [0.25, 3.0], [-4.0, 0.0]]
            .into_iter()
            .enumerate()
        {
            let t = (update + 1) as i32;
            adamw.update(gradients(&g), 0.01, update + 1).unwrap();
            for i in 0..2 {
                m[i] = options.beta1 * m[i] + (1.0 - options.beta1) * g[i];
                v[i] = options.beta2 * v[i] + (1.0 - options.beta2) * g[i] * g[i];
                let (m_hat, v_hat) = (
                    m[i] / (1.0 - options.beta1.powi(t)),
                    v[i] / (1.0 - options.beta2.powi(t)),
                );
                theta[i] -= 0.01 * m_hat / (v_hat.sqrt() + options.epsilon) + 0.01 * 0.1 * theta[i];
            }
            let got = adamw.slots[0].parameter.to_vec1::<f64>().unwrap();
            for i in 0..2 {
                assert!(
                    (got[i] - theta[i]).abs() < 1e-12,
                    "update {t}: {got:?} is not {theta:?}"
                );
            }
        }
    }

    #[test]
    fn a_parameter_has_a_rate_and_a_range_of_its_own() {
        let options = TrainOptions {
            clip: 0.0,
            weight_decay: 0.0,
            ..TrainOptions::default()
        };
        let update = |change: fn(&mut Slot)| {
            let mut adamw = optimizer(&[1.0], &options);
            change(&mut adamw.slots[0]);
            adamw.update(gradients(&[-1.0]), 0.1, 1).unwrap();
            adamw.slots[0].parameter.to_vec1::<f64>().unwrap()[0]
        };
        // The first update moves by the rate, whatever the gradient's size.
        assert!((update(|_| ()) - 1.1).abs() < 1e-6);
        assert!((update(|slot| slot.rate_factor = 0.1) - 1.01).abs() < 1e-6);
        let clamped = update(|slot| {
            slot.projection = Some(Projection::Clamp {
                least: 0.0,
                most: 1.0,
            });
        });
        assert_eq!(clamped, 1.0);
    }

    #[test]
    fn a_group_has_a_rate_and_a_decay_of_its_own() {
        let parameters = Parameters::new(0, &Device::Cpu, DType::F64);
        let vb = parameters.builder();
        for name in ["log_dt", "weight"] {
            let path = vb.pp("encoder").pp(0);
            path.get_with_hints((1, 1), name, LECUN_NORMAL).unwrap();
        }
        let group = |parameters: &str, learning_rate, weight_decay| ParameterGroup {
            parameters: parameters.to_owned(),
            learning_rate,
            weight_decay,
        };
        let options = TrainOptions {
            learning_rate: 0.1,
            weight_decay: 0.5,
            decay: Decay::All,
            groups: vec![
                group("*.log_dt", Some(0.01), Some(0.0)),
                group("encoder.*", None, Some(0.25)),
            ],
            ..TrainOptions::default()
        };
        let adamw = AdamW::new(&parameters, &options).unwrap();
        let [dt, weight] = &adamw.slots[..] else {
            panic!("two parameters");
        };
        assert!((dt.rate_factor - 0.1).abs() < 1e-12 && dt.weight_decay == 0.0);
        assert!(weight.rate_factor == 1.0 && weight.weight_decay == 0.25);
    }

    #[test]
    fn clipping_scales_by_the_global_norm_and_reports_it() {
        let clipped = TrainOptions {
            clip: 1.0,
            weight_decay: 0.0,
            ..TrainOptions::default()
        };
        let mut with_clip = optimizer(&[0.0, 0.0], &clipped);
        assert_eq!(
            with_clip
                .update(gradients(&[3.0, 4.0]), 0.1, 1)
                .unwrap()
                .read()
                .unwrap(),
            5.0
        );
        let mut by_hand = optimizer(
            &[0.0, 0.0],
            &TrainOptions {
                clip: 0.0,
                ..clipped
            },
        );
        by_hand
            .update(gradients(&[3.0 / 5.0, 4.0 / 5.0]), 0.1, 1)
            .unwrap();
        let first_moment = |adamw: &AdamW| adamw.slots[0].first_moment.to_vec1::<f64>().unwrap();
        for (left, right) in first_moment(&with_clip)
            .into_iter()
            .zip(first_moment(&by_hand))
        {
            assert!((left - right).abs() < 1e-15);
        }
    }

    #[test]
    fn the_fused_update_is_the_composed_one() {
        let options = TrainOptions {
            clip: 1.0,
            weight_decay: 0.1,
            ..TrainOptions::default()
        };
        let wide = optimizer(&[0.5, -0.25, 3.0], &options);
        let narrow = |tensor: &Tensor| tensor.to_dtype(DType::F32).unwrap();
        let slot = &wide.slots[0];
        let fused = Slot {
            path: slot.path.clone(),
            parameter: Var::from_tensor(&narrow(slot.parameter.as_tensor())).unwrap(),
            first_moment: narrow(&slot.first_moment),
            second_moment: narrow(&slot.second_moment),
            weight_decay: slot.weight_decay,
            rate_factor: 1.0,
            projection: None,
        };
        let (mut wide, mut fused) = (
            AdamW { ..wide },
            AdamW {
                slots: vec![fused],
                ..optimizer(&[], &options)
            },
        );
        for (update, values) in [[1.0, 2.0, -3.0], [0.1, 0.0, 0.2]].into_iter().enumerate() {
            let composed = wide.update(gradients(&values), 0.01, update + 1).unwrap();
            let gradient = Gradients(vec![Some(narrow(
                gradients(&values).0[0].as_ref().unwrap(),
            ))]);
            let norm = fused.update(gradient, 0.01, update + 1).unwrap();
            assert!((norm.read().unwrap() - composed.read().unwrap()).abs() < 1e-6);
        }
        let composed = wide.slots[0].parameter.to_vec1::<f64>().unwrap();
        let fused = fused.slots[0].parameter.to_vec1::<f32>().unwrap();
        for (composed, fused) in composed.into_iter().zip(fused) {
            assert!(
                (composed - f64::from(fused)).abs() < 1e-6,
                "{composed} is not {fused}"
            );
        }
    }
}
