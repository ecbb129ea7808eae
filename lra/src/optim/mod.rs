//! Updates of parameters: the rule of an optimizer, clipping by the global norm, and the attributes
//! of each parameter ([`Attributes`]): weight decay, its own learning rate, a range to clamp it to.
//!
//! An [`Optimizer`] is the rule for one parameter, each in its own file. The [`Updater`] applies it
//! to all parameters.

mod adamw;
mod lion;

use candle_core::backprop::GradStore;
use candle_core::{DType, Result, Tensor, Var};
use models::params::{Attributes, Projection};
use models::{Parameters, ops};

use self::adamw::AdamW;
use self::lion::Lion;
use crate::spec::{Decay, OptimizerKind, TrainOptions};

/// A rule that moves a parameter by its gradient.
pub trait Optimizer: Send + Sync {
    /// Returns the names of the tensors that the rule keeps for a parameter, each of its shape.
    /// Checkpoints store them by these names.
    fn moments(&self) -> &'static [&'static str];

    /// Moves a parameter, and its moments in the order of their names. A missing gradient counts as
    /// zero.
    ///
    /// # Errors
    /// The device refuses an operation.
    fn update(
        &self,
        parameter: &Var,
        moments: &mut [Tensor],
        gradient: Option<Tensor>,
        step: &UpdateNumbers,
    ) -> Result<()>;

    /// Moves all parameters, each by its own step; the factor on gradients is the same for all.
    ///
    /// # Errors
    /// Errors of [`Optimizer::update`].
    fn update_all(
        &self,
        slots: &mut [Slot],
        gradients: Vec<Option<Tensor>>,
        steps: &[UpdateNumbers],
    ) -> Result<()> {
        one_by_one(self, slots, gradients, steps)
    }
}

/// Moves one parameter after the other. A parameter may be empty, as that of Transformer-XL's
/// positions at width 1, and has nothing to move.
fn one_by_one<O: Optimizer + ?Sized>(
    optimizer: &O,
    slots: &mut [Slot],
    gradients: Vec<Option<Tensor>>,
    steps: &[UpdateNumbers],
) -> Result<()> {
    let all = slots.iter_mut().zip(gradients).zip(steps);
    for ((slot, gradient), step) in all.filter(|((slot, _), _)| slot.parameter.elem_count() > 0) {
        optimizer.update(&slot.parameter, &mut slot.moments, gradient, step)?;
    }
    Ok(())
}

/// The numbers of one update of one parameter.
pub struct UpdateNumbers {
    /// Learning rate.
    pub rate: f64,
    /// Fraction of the parameter that is subtracted: learning rate times weight decay.
    pub decay: f64,
    /// Factor on the gradient, from clipping.
    pub scale: Scale,
    /// β1 of this update.
    pub beta1: f64,
    /// Number of the update, from 1.
    pub update: usize,
}

/// A factor on gradients, kept on the device that computed it.
#[derive(Clone)]
pub enum Scale {
    /// A number.
    Host(f64),
    /// A tensor of rank 0.
    Device(Tensor),
}

impl Scale {
    /// Returns the gradient times the factor.
    fn apply(&self, gradient: Tensor) -> Result<Tensor> {
        match self {
            Scale::Host(1.0) => Ok(gradient),
            Scale::Host(scale) => gradient * *scale,
            Scale::Device(scale) => gradient.broadcast_mul(&scale.to_dtype(gradient.dtype())?),
        }
    }
}

/// Returns the rule selected by the settings of a training.
fn make(options: &TrainOptions) -> Box<dyn Optimizer> {
    match options.optimizer {
        OptimizerKind::Adamw => Box::new(AdamW::new(options)),
        OptimizerKind::Lion => Box::new(Lion::new(options)),
    }
}

/// One parameter with its moments.
pub struct Slot {
    /// Its path in the model.
    pub path: String,
    /// The parameter.
    pub parameter: Var,
    /// Tensors that the optimizer keeps for it, in the order of [`Updater::moments`].
    pub moments: Vec<Tensor>,
    weight_decay: f64,
    rate_factor: f64,
    projection: Option<Projection>,
}

/// All parameters in path order, and the rule that updates them.
pub struct Updater {
    /// One entry per parameter.
    pub slots: Vec<Slot>,
    rule: Box<dyn Optimizer>,
    clip: f64,
}

/// Gradients of all parameters in path order, summed over micro-batches.
pub struct Gradients(Vec<Option<Tensor>>);

/// A norm, kept on the device that computed it. One on a GPU is waited for only when it is read.
pub enum Norm {
    /// A number.
    Host(f64),
    /// A tensor of rank 0.
    Device(Tensor),
}

impl Norm {
    /// Returns the number; waits for the device.
    pub fn read(&self) -> Result<f64> {
        match self {
            Norm::Host(norm) => Ok(*norm),
            Norm::Device(norm) => norm.to_dtype(DType::F64)?.to_scalar::<f64>(),
        }
    }
}

impl Updater {
    /// Creates an updater with zero moments for every parameter.
    pub fn new(parameters: &Parameters, options: &TrainOptions) -> Result<Self> {
        let rule = make(options);
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
                let zeros = rule.moments().iter().map(|_| parameter.zeros_like());
                Ok(Slot {
                    weight_decay: weight_decay.unwrap_or(match decays {
                        true => options.weight_decay,
                        false => 0.0,
                    }),
                    rate_factor: rate.map_or(rate_factor, |rate| rate / options.learning_rate),
                    projection,
                    moments: zeros.collect::<Result<_>>()?,
                    parameter,
                    path,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(Updater {
            slots,
            rule,
            clip: options.clip,
        })
    }

    /// Returns the names of the moments of every slot.
    pub fn moments(&self) -> &'static [&'static str] {
        self.rule.moments()
    }

    /// Returns empty gradients.
    pub fn no_gradients(&self) -> Gradients {
        Gradients(vec![None; self.slots.len()])
    }

    /// Adds the gradients of one backward pass. They are detached: candle's gradients of variables
    /// hold on to the graph, and with it to every activation.
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

    /// Makes update number `update` (counted from 1) with a learning rate and β1. Returns the
    /// global L2 norm of the gradient before clipping.
    pub fn update(
        &mut self,
        gradients: Gradients,
        (rate, beta1): (f64, f64),
        update: usize,
    ) -> Result<Norm> {
        let (norm, scale) = global_norm(&gradients, self.clip)?;
        let step = |slot: &Slot| {
            let rate = rate * slot.rate_factor;
            UpdateNumbers {
                rate,
                decay: rate * slot.weight_decay,
                scale: scale.clone(),
                beta1,
                update,
            }
        };
        let steps: Vec<UpdateNumbers> = self.slots.iter().map(step).collect();
        self.rule.update_all(&mut self.slots, gradients.0, &steps)?;
        for slot in &self.slots {
            if let Some(projection) = slot.projection {
                let nearest = projection.apply(&slot.parameter.as_detached_tensor())?;
                slot.parameter.set(&nearest)?;
            }
        }
        Ok(norm)
    }
}

/// Returns the root of the sum of all squares, and the factor that makes it at most `clip`, or 1 if
/// `clip` is 0: on the host if every gradient lies there, else on the device.
fn global_norm(gradients: &Gradients, clip: f64) -> Result<(Norm, Scale)> {
    let all = || gradients.0.iter().flatten();
    if all().all(ops::supports) {
        let squares = all().map(ops::sum_of_squares);
        let norm = squares.sum::<Result<f64>>()?.sqrt();
        let clips = clip > 0.0 && norm > clip;
        let scale = if clips { clip / norm } else { 1.0 };
        return Ok((Norm::Host(norm), Scale::Host(scale)));
    }
    if let Some([norm, scale]) = ops::adamw::gradient_norm(&all().collect::<Vec<_>>(), clip)? {
        return Ok((Norm::Device(norm), Scale::Device(scale)));
    }
    let mut squares = Vec::new();
    for gradient in all() {
        squares.push(gradient.sqr()?.sum_all()?.to_dtype(DType::F64)?);
    }
    let norm = Tensor::stack(&squares, 0)?.sum_all()?.sqrt()?;
    let scale = match clip > 0.0 {
        true => Scale::Device((norm.maximum(clip)?.recip()? * clip)?),
        false => Scale::Host(1.0),
    };
    Ok((Norm::Device(norm), scale))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ParameterGroup;
    use candle_core::Device;
    use models::params::LECUN_NORMAL;

    fn updater(parameter: Tensor, options: &TrainOptions) -> Updater {
        let rule = make(options);
        let zeros = rule
            .moments()
            .iter()
            .map(|_| parameter.zeros_like().unwrap());
        let slot = Slot {
            path: "head.weight".to_owned(),
            moments: zeros.collect(),
            parameter: Var::from_tensor(&parameter).unwrap(),
            weight_decay: options.weight_decay,
            rate_factor: 1.0,
            projection: None,
        };
        Updater {
            slots: vec![slot],
            rule,
            clip: options.clip,
        }
    }

    fn optimizer(values: &[f64], options: &TrainOptions) -> Updater {
        updater(Tensor::new(values, &Device::Cpu).unwrap(), options)
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
            adamw
                .update(gradients(&g), (0.01, options.beta1), update + 1)
                .unwrap();
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
            adamw.update(gradients(&[-1.0]), (0.1, 0.9), 1).unwrap();
            adamw.slots[0].parameter.to_vec1::<f64>().unwrap()[0]
        };
        // The first update moves by the learning rate, regardless of the gradient's size.
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
        let adamw = Updater::new(&parameters, &options).unwrap();
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
                .update(gradients(&[3.0, 4.0]), (0.1, 0.9), 1)
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
            .update(gradients(&[3.0 / 5.0, 4.0 / 5.0]), (0.1, 0.9), 1)
            .unwrap();
        let first_moment = |adamw: &Updater| adamw.slots[0].moments[0].to_vec1::<f64>().unwrap();
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
        let narrow = |tensor: &Tensor| tensor.to_dtype(DType::F32).unwrap();
        let mut wide = optimizer(&[0.5, -0.25, 3.0], &options);
        let mut fused = updater(narrow(wide.slots[0].parameter.as_tensor()), &options);
        for (update, values) in [[1.0, 2.0, -3.0], [0.1, 0.0, 0.2]].into_iter().enumerate() {
            let composed = wide
                .update(gradients(&values), (0.01, 0.9), update + 1)
                .unwrap();
            let gradient = Gradients(vec![Some(narrow(
                gradients(&values).0[0].as_ref().unwrap(),
            ))]);
            let norm = fused.update(gradient, (0.01, 0.9), update + 1).unwrap();
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

    /// Parameters that say how they are treated: a matrix, a vector with twice the rate, and one
    /// with a range.
    fn attributed(dtype: DType) -> Parameters {
        let parameters = Parameters::new(0, &Device::Cpu, dtype);
        let add = |name: &str, attributes: Attributes, value: f64| {
            let values = move |_: &models::rng::Stream| vec![value; 2];
            let made = parameters
                .builder()
                .get_with_values(2, name, attributes, values);
            made.unwrap();
        };
        let plain = Attributes::of_rank(1);
        let range = Projection::Clamp {
            least: -1.0,
            most: 1.0,
        };
        add("a", Attributes::of_rank(2), 1.0);
        add(
            "b",
            Attributes {
                rate_factor: 2.0,
                ..plain
            },
            1.0,
        );
        add(
            "c",
            Attributes {
                projection: Some(range),
                ..plain
            },
            0.99,
        );
        parameters
    }

    #[test]
    fn decay_and_rate_and_range_are_those_that_a_parameter_declares() {
        let base = TrainOptions {
            clip: 0.0,
            weight_decay: 0.5,
            ..TrainOptions::default()
        };
        // An update by a gradient of -1 moves up by the rate, whatever its size.
        for (decay, wanted) in [
            (Decay::Matrices, [1.0 + 0.1 - 0.05, 1.0 + 0.2, 1.0]),
            (Decay::All, [1.0 + 0.1 - 0.05, 1.0 + 0.2 - 0.1, 1.0]),
        ] {
            for dtype in [DType::F32, DType::F64] {
                let options = TrainOptions {
                    decay,
                    ..base.clone()
                };
                let parameters = attributed(dtype);
                let mut updater = Updater::new(&parameters, &options).unwrap();
                let down = Tensor::new(&[-1.0, -1.0], &Device::Cpu).unwrap();
                let down = down.to_dtype(dtype).unwrap();
                let gradients = Gradients(vec![Some(down); 3]);
                updater.update(gradients, (0.1, 0.9), 1).unwrap();
                for ((path, found), wanted) in parameters.all().into_iter().zip(wanted) {
                    let found = found.to_dtype(DType::F64).unwrap();
                    for found in found.to_vec1::<f64>().unwrap() {
                        assert!((found - wanted).abs() < 1e-6, "{decay:?} {path}: {found}");
                    }
                }
            }
        }
    }

    #[test]
    fn of_several_groups_the_first_counts_and_a_rate_of_its_own_replaces_the_factor() {
        let group = |parameters: &str, learning_rate, weight_decay| ParameterGroup {
            parameters: parameters.to_owned(),
            learning_rate,
            weight_decay,
        };
        let options = TrainOptions {
            learning_rate: 0.1,
            weight_decay: 0.5,
            groups: vec![
                group("b", Some(0.3), None),
                group("*", None, Some(0.125)),
                group("a", Some(1.0), Some(1.0)),
            ],
            ..TrainOptions::default()
        };
        let updater = Updater::new(&attributed(DType::F32), &options).unwrap();
        let of = |slot: &Slot| (slot.rate_factor, slot.weight_decay);
        let found: Vec<_> = updater.slots.iter().map(of).collect();
        let wanted = [(1.0, 0.125), (3.0, 0.0), (1.0, 0.125)];
        for ((rate, decay), wanted) in found.iter().zip(wanted) {
            assert!((rate - wanted.0).abs() < 1e-12, "{found:?}");
            assert_eq!(*decay, wanted.1, "{found:?}");
        }
    }

    /// Norms of 5 at borders of 10, 5 and 2, summed over two parameters, in both forms.
    #[test]
    fn a_gradient_within_the_border_is_left_as_it_is() {
        for dtype in [DType::F32, DType::F64] {
            for (clip, scale) in [(0.0, 1.0), (10.0, 1.0), (5.0, 1.0), (2.0, 0.4)] {
                let tensor = |x: f64| {
                    let x = Tensor::new(&[x], &Device::Cpu).unwrap();
                    Some(x.to_dtype(dtype).unwrap())
                };
                let gradients = Gradients(vec![tensor(3.0), None, tensor(-4.0)]);
                let (norm, factor) = global_norm(&gradients, clip).unwrap();
                assert!((norm.read().unwrap() - 5.0).abs() < 1e-6);
                let one = factor.apply(tensor(1.0).unwrap()).unwrap();
                let one = one.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
                assert!((one[0] - scale).abs() < 1e-6, "{dtype:?} {clip}: {one:?}");
            }
        }
    }

    /// Each small square is rounded away beside the first one; several at once would not be.
    #[test]
    fn the_norm_is_the_same_to_the_bit_on_any_number_of_threads() {
        let tensor = |x: f32| Some(Tensor::new(&[x], &Device::Cpu).unwrap());
        let small = std::iter::repeat_n(2f32.powi(-27), 1023);
        let all = std::iter::once(1.0).chain(small).map(tensor);
        let gradients = Gradients(all.collect());
        for threads in [1, 2, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            let (norm, _) = pool
                .unwrap()
                .install(|| global_norm(&gradients, 0.0).unwrap());
            assert_eq!(norm.read().unwrap(), 1.0, "{threads}");
        }
    }

    /// With the graph, sums would hold every activation of their passes.
    #[test]
    fn gradients_keep_no_graph() {
        let parameters = attributed(DType::F64);
        let updater = Updater::new(&parameters, &TrainOptions::default()).unwrap();
        let mut sum = updater.no_gradients();
        for _ in 0..2 {
            let (_, a) = parameters.all().swap_remove(0);
            let loss = a.sqr().unwrap().sum_all().unwrap();
            let found = loss.backward().unwrap();
            assert!(found.get(&a).unwrap().track_op());
            updater.accumulate(&mut sum, found).unwrap();
            assert!(sum.0.iter().flatten().all(|gradient| !gradient.track_op()));
        }
    }

    #[test]
    fn gradients_of_passes_add_up() {
        let parameters = attributed(DType::F64);
        let updater = Updater::new(&parameters, &TrainOptions::default()).unwrap();
        let mut sum = updater.no_gradients();
        for factor in [1.0, 10.0] {
            let (_, a) = parameters.all().swap_remove(0);
            let loss = (a.as_tensor() * factor).unwrap().sum_all().unwrap();
            updater
                .accumulate(&mut sum, loss.backward().unwrap())
                .unwrap();
        }
        let [Some(a), None, None] = &sum.0[..] else {
            panic!("one parameter has gradients");
        };
        assert_eq!(a.to_vec1::<f64>().unwrap(), [11.0; 2]);
    }
}
