//! Seeded parameters: value = f(seed, path, index). Models create them through a [`VarBuilder`].
//!
//! A parameter's initial value depends on the seed and on its own path, not on the parameters built
//! before it, nor on the device or the number of threads. Numbers are drawn in f64 and rounded to
//! the wanted type.
//!
//! [`Attributes`] say how the optimizer treats a parameter. [`Buffer`]s are state that is saved
//! with the parameters and not trained (running statistics, centroids). Frozen numbers (random
//! features, rotations, random blocks) are neither: see [`crate::rng`].

mod buffer;
mod builder;
mod decay_init;
mod init;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use candle_core::{DType, Device, Shape, Tensor, Var};

pub use self::{
    buffer::{Buffer, Commit, Updates},
    builder::VarBuilder,
    init::{LECUN_NORMAL, xavier_uniform},
};
pub(crate) use self::{
    decay_init::DecayInit,
    init::{
        fan_in_uniform, inverse_softplus, inverse_softplus_of_steps, orthonormal, uniform_within,
        xavier_uniform_with_gain,
    },
};
use crate::{Error, Result};

/// All parameters and buffers of one model, each with its path. Clones share them. A buffer is
/// saved, and not trained.
#[derive(Clone)]
pub struct Parameters {
    seed: u64,
    device: Device,
    dtype: DType,
    by_path: Arc<Mutex<BTreeMap<String, Slot>>>,
    handing: ParameterMode,
}

/// Way in which the optimizer treats a parameter: weight decay, learning rate and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attributes {
    /// True if weight decay shrinks the parameter. Runs in which all parameters decay ignore it.
    pub decay: bool,
    /// Learning rate as a multiple of the run's, more than 0.
    pub rate_factor: f64,
    /// Projection of the parameter to its range after each update. `None` if it may have any value.
    pub projection: Option<Projection>,
}

/// Change of a parameter after each update that brings its elements back into their range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Projection {
    /// Each element is set to the nearest number from `least` to `most`.
    Clamp {
        /// Smallest number of the range.
        least: f64,
        /// Largest number of the range.
        most: f64,
    },
}

impl Attributes {
    /// Attributes of a weight that activations are multiplied with.
    pub(crate) const MATRIX: Self = Self {
        decay: true,
        rate_factor: 1.0,
        projection: None,
    };
    /// Attributes of biases, scales of norms, and all parameters that are looked up or added rather
    /// than multiplied with.
    pub(crate) const NO_DECAY: Self = Self {
        decay: false,
        ..Self::MATRIX
    };

    /// Returns the attributes of a parameter of `rank` dimensions that declares none. Weight decay
    /// shrinks matrices, of rank 2 or more, and not vectors.
    #[must_use]
    pub fn of_rank(rank: usize) -> Self {
        if rank >= 2 {
            Self::MATRIX
        } else {
            Self::NO_DECAY
        }
    }
}

impl Projection {
    /// Returns the nearest allowed number for each of `values`, of any shape, in the same shape.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn apply(self, values: &Tensor) -> Result<Tensor> {
        let Self::Clamp { least, most } = self;
        Ok(values.clamp(least, most)?)
    }
}

/// Entry of a path.
struct Slot {
    shape: Shape,
    role: Role,
    /// None where only shapes are asked for.
    var: Option<Var>,
}

#[derive(Clone, Copy, PartialEq)]
enum Role {
    Parameter(Attributes),
    Buffer,
}

/// Kind of tensor that a builder returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParameterMode {
    /// The variables: tensors computed from them have gradients.
    Variables,
    /// The variables' storage without their history: it follows every update, and no activations
    /// are kept for gradients.
    Values,
    /// Zeros that take no memory, for queries of a model's size and cost.
    Meta,
}

/// Draws as many values as a parameter of a shape has elements.
type Values<'a> = Box<dyn FnOnce(&Shape) -> Vec<f64> + 'a>;

impl Parameters {
    /// Creates an empty set of parameters, which building a [`crate::Classifier`] fills. Their
    /// initial values depend on `seed`. `dtype` is f32, or f64 for gradient checks.
    #[must_use]
    pub fn new(seed: u64, device: &Device, dtype: DType) -> Self {
        Self {
            seed,
            device: device.clone(),
            dtype,
            by_path: Arc::default(),
            handing: ParameterMode::Variables,
        }
    }

    /// Returns the same parameters for a second model that only evaluates. It sees every update of
    /// the first model, and its passes keep no activations.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self {
            handing: ParameterMode::Values,
            ..self.clone()
        }
    }

    /// Creates an empty set of parameters for a model that is never run, but only asked for its
    /// sizes and costs. They are counted, but have no values and take no memory.
    #[must_use]
    pub fn meta(device: &Device, dtype: DType) -> Self {
        Self {
            handing: ParameterMode::Meta,
            ..Self::new(0, device, dtype)
        }
    }

    /// Returns whether these are of a model that is never run.
    pub(crate) fn is_blank(&self) -> bool {
        self.handing == ParameterMode::Meta
    }

    fn hand_out(&self, slot: &Slot) -> Result<Tensor> {
        Ok(match (&slot.var, slot.role, self.handing) {
            (Some(var), Role::Parameter(_), ParameterMode::Variables) => var.as_tensor().clone(),
            (Some(var), ..) => var.as_detached_tensor(),
            (None, ..) => Tensor::zeros((), self.dtype, &self.device)?.broadcast_as(&slot.shape)?,
        })
    }

    /// Returns a builder at the root of the paths. Layers ask it for their parameters. It creates a
    /// parameter, or returns the one that is already at the path.
    #[must_use]
    pub fn builder(&self) -> VarBuilder {
        VarBuilder::new(self.clone())
    }

    /// Returns the seed of the initial values.
    #[must_use]
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the path and variable of each parameter, in path order. Setting a variable changes
    /// the model. Parameters of [`Parameters::meta`] have no variables, and are left out.
    #[must_use]
    pub fn all(&self) -> Vec<(String, Var)> {
        let parameters = self.with_attributes().into_iter();
        parameters.map(|(path, var, _)| (path, var)).collect()
    }

    /// Returns [`Parameters::all`], each with the attributes by which the optimizer treats it.
    #[must_use]
    pub fn with_attributes(&self) -> Vec<(String, Var, Attributes)> {
        let by_path = self.lock();
        let parameters = by_path.iter().filter_map(|(path, slot)| match slot.role {
            Role::Parameter(attributes) => Some((path.clone(), slot.var.clone()?, attributes)),
            Role::Buffer => None,
        });
        parameters.collect()
    }

    /// Returns the path and variable of each buffer, in path order.
    #[must_use]
    pub fn buffers(&self) -> Vec<(String, Var)> {
        let by_path = self.lock();
        let buffers = by_path.iter().filter(|(_, slot)| slot.role == Role::Buffer);
        buffers
            .filter_map(|(path, slot)| Some((path.clone(), slot.var.clone()?)))
            .collect()
    }

    /// Returns the paths of all parameters, in path order. Those of [`Parameters::meta`] have
    /// paths, too.
    #[must_use]
    pub fn paths(&self) -> Vec<String> {
        let by_path = self.lock();
        let parameters = by_path.iter().filter(|(_, slot)| slot.role != Role::Buffer);
        parameters.map(|(path, _)| path.clone()).collect()
    }

    /// Returns the paths and shapes of all parameters and buffers, in path order. Those of
    /// [`Parameters::meta`] have shapes, too.
    #[must_use]
    pub fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let by_path = self.lock();
        let shapes = by_path.iter();
        shapes
            .map(|(path, slot)| (path.clone(), slot.shape.dims().to_vec()))
            .collect()
    }

    /// Returns the number of scalar parameters, without buffers.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.sizes().iter().sum()
    }

    fn sizes(&self) -> Vec<usize> {
        let by_path = self.lock();
        let parameters = by_path.values().filter(|slot| slot.role != Role::Buffer);
        parameters.map(|slot| slot.shape.elem_count()).collect()
    }

    /// Returns a copy of every parameter and buffer, by path and in its shape. Later updates do not
    /// change the copy.
    ///
    /// # Errors
    /// If the device is out of memory.
    pub fn save(&self) -> Result<BTreeMap<String, Tensor>> {
        self.all()
            .into_iter()
            .chain(self.buffers())
            .map(|(path, var)| Ok((path, var.as_detached_tensor().copy()?)))
            .collect()
    }

    /// Sets every parameter and buffer from `saved`, by path. It changes none unless all paths and
    /// shapes fit.
    ///
    /// # Errors
    /// [`Error::Load`] naming the first path that is missing, unknown or of another shape.
    pub fn load(&self, saved: &BTreeMap<String, Tensor>) -> Result<()> {
        let known: Vec<_> = self.all().into_iter().chain(self.buffers()).collect();
        let misfit = |path: &str, reason: String| {
            Err(Error::Load {
                path: path.to_owned(),
                reason,
            })
        };
        for (path, var) in &known {
            match saved.get(path) {
                None => return misfit(path, "missing from the saved parameters".to_owned()),
                Some(value) if value.shape() != var.shape() => {
                    let (saved, ours) = (value.dims(), var.dims());
                    return misfit(path, format!("saved with shape {saved:?}, wanted {ours:?}"));
                }
                Some(_) => {}
            }
        }
        let unknown = |path: &&String| !known.iter().any(|(ours, _)| ours == *path);
        if let Some(path) = saved.keys().find(unknown) {
            return misfit(path, "unknown to this model".to_owned());
        }
        for (path, var) in &known {
            let value = saved[path].detach();
            // The copy keeps a value that shares the variable's storage from deadlocking with it.
            var.set(
                &value
                    .to_dtype(self.dtype)?
                    .to_device(&self.device)?
                    .copy()?,
            )?;
        }
        Ok(())
    }

    /// Locks the map. A panicking thread cannot leave the map half-changed, so a poisoned lock is
    /// still good.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Slot>> {
        self.by_path.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parameter or buffer at `path`, created unless it is there, from as many `values`
    /// as it has elements.
    fn get_or_create(
        &self,
        path: &str,
        shape: Shape,
        role: Role,
        values: Values,
    ) -> Result<Tensor> {
        let mut by_path = self.lock();
        if let Some(slot) = by_path.get(path) {
            if slot.shape != shape {
                return Err(Error::ShapeConflict {
                    path: path.to_owned(),
                    first: slot.shape.dims().to_vec(),
                    second: shape.dims().to_vec(),
                });
            }
            return self.hand_out(slot);
        }
        let var = match self.handing {
            ParameterMode::Meta => None,
            ParameterMode::Variables | ParameterMode::Values => {
                let values = Tensor::from_vec(values(&shape), shape.clone(), &Device::Cpu)?;
                let values = values.to_dtype(self.dtype)?.to_device(&self.device)?;
                Some(Var::from_tensor(&values)?)
            }
        };
        let slot = Slot { shape, role, var };
        let tensor = self.hand_out(&slot)?;
        by_path.insert(path.to_owned(), slot);
        Ok(tensor)
    }
}

#[cfg(test)]
mod tests {
    use candle_nn::{
        Init,
        init::{FanInOut, NonLinearity, NormalOrUniform},
    };

    use super::*;

    const ZEROS: Init = Init::Const(0.0);

    fn parameters(seed: u64) -> Parameters {
        Parameters::new(seed, &Device::Cpu, DType::F32)
    }

    fn values(tensor: &Tensor) -> Vec<f32> {
        tensor.flatten_all().unwrap().to_vec1().unwrap()
    }

    #[test]
    fn a_value_depends_on_seed_and_path_only() {
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let (first, second, other) = (parameters(1), parameters(1), parameters(2));
        let a = first.builder().get_with_hints(50, "a", normal).unwrap();
        first.builder().get_with_hints(50, "b", normal).unwrap();
        second.builder().get_with_hints(50, "b", normal).unwrap();
        let later = second.builder().get_with_hints(50, "a", normal).unwrap();
        assert_eq!(values(&a), values(&later));
        let b = second.builder().get_with_hints(50, "b", normal).unwrap();
        assert_ne!(values(&a), values(&b));
        let seeded = other.builder().get_with_hints(50, "a", normal).unwrap();
        assert_ne!(values(&a), values(&seeded));
    }

    #[test]
    fn values_are_made_of_a_stream_of_the_path() {
        let vb = parameters(1).builder().pp("a");
        let normal = Init::Randn {
            mean: 1.0,
            stdev: 1.0,
        };
        let drawn = parameters(1).builder();
        let drawn = drawn.get_with_hints(6, "a.w", normal).unwrap();
        let attributes = Attributes::MATRIX;
        let values_of = |stream: &crate::rng::Stream| {
            let normal = stream.normal(1, 6).into_iter();
            normal.map(|x| x + 1.0).collect()
        };
        let made = vb.get_with_values((2, 3), "w", attributes, values_of);
        assert_eq!(values(&made.unwrap()), values(&drawn));
    }

    #[test]
    fn bounds_and_spread_are_those_of_the_initialisers() {
        let vb = parameters(3).builder();
        let xavier = vb
            .get_with_hints((300, 200), "x", xavier_uniform(200, 300))
            .unwrap();
        let bound = (6f32 / 500.0).sqrt();
        assert!(values(&xavier).iter().all(|x| x.abs() <= bound));
        assert!(values(&xavier).iter().any(|x| x.abs() > 0.99 * bound));
        let lecun = values(&vb.get_with_hints((300, 200), "l", LECUN_NORMAL).unwrap());
        let variance = lecun.iter().map(|x| x * x).sum::<f32>() / lecun.len() as f32;
        assert!((variance * 200.0 - 1.0).abs() < 0.03, "{variance}");
        let cut = 2.0 / 0.8796 / 200f32.sqrt();
        assert!(lecun.iter().all(|x| x.abs() <= cut));
        // A variance of 2 / 200 is that of ±(6 / 200)^½.
        let kaiming = Init::Kaiming {
            dist: NormalOrUniform::Uniform,
            fan: FanInOut::FanIn,
            non_linearity: NonLinearity::ReLU,
        };
        let kaiming = values(&vb.get_with_hints((300, 200), "k", kaiming).unwrap());
        let most = kaiming.iter().fold(0f32, |most, x| most.max(x.abs()));
        let bound = (6f32 / 200.0).sqrt();
        assert!((0.99 * bound..1.0001 * bound).contains(&most), "{most}");
    }

    #[test]
    fn one_path_has_one_shape_and_one_variable() {
        let parameters = parameters(4);
        let vb = parameters.builder().pp("block");
        vb.get_with_hints((2, 3), "w", ZEROS).unwrap();
        vb.get_with_hints((2, 3), "w", ZEROS).unwrap();
        assert_eq!((parameters.paths().len(), parameters.elements()), (1, 6));
        let error = vb
            .get_with_hints((3, 2), "w", ZEROS)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("block.w") && error.contains("[3, 2]"),
            "{error}"
        );
    }

    #[test]
    fn loading_restores_a_copy_and_refuses_misfits() {
        let parameters = parameters(5);
        let init = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let w = parameters.builder().get_with_hints(4, "w", init).unwrap();
        let before = values(&w);
        let mut saved = parameters.save().unwrap();
        let (_, var) = parameters.all().remove(0);
        var.set(&var.as_detached_tensor().affine(2.0, 0.0).unwrap())
            .unwrap();
        assert_ne!(values(&w), before);
        parameters.load(&saved).unwrap();
        assert_eq!(values(&w), before);

        saved.insert("v".to_owned(), w.detach());
        let error = parameters.load(&saved).unwrap_err().to_string();
        assert!(error.contains("v: unknown"), "{error}");
        saved.remove("v");
        saved.insert(
            "w".to_owned(),
            Tensor::zeros(5, DType::F32, &Device::Cpu).unwrap(),
        );
        let error = parameters.load(&saved).unwrap_err().to_string();
        assert!(error.contains("[5]"), "{error}");
        saved.remove("w");
        let error = parameters.load(&saved).unwrap_err().to_string();
        assert!(error.contains("w: missing"), "{error}");
        // What comes before the misfit stays as it was, too.
        let a = parameters.builder().get_with_hints(2, "a", ZEROS).unwrap();
        let ones = Tensor::ones(2, DType::F32, &Device::Cpu).unwrap();
        saved.insert("a".to_owned(), ones);
        assert!(parameters.load(&saved).is_err());
        assert_eq!(values(&a), [0.0, 0.0]);
    }

    #[test]
    fn detached_parameters_follow_updates_and_have_no_gradient() {
        let parameters = parameters(6);
        let live = parameters.builder().get_with_hints(3, "w", ZEROS).unwrap();
        let detached = parameters
            .detached()
            .builder()
            .get_with_hints(3, "w", ZEROS)
            .unwrap();
        let (_, var) = parameters.all().remove(0);
        var.set(&Tensor::new(&[1f32, 2.0, 3.0], &Device::Cpu).unwrap())
            .unwrap();
        assert_eq!(values(&detached), [1.0, 2.0, 3.0]);
        let gradient = |tensor: &Tensor| {
            let gradients = tensor.sqr().unwrap().sum_all().unwrap().backward();
            gradients.unwrap().get(var.as_tensor()).is_some()
        };
        assert!(gradient(&live) && !gradient(&detached));
    }

    #[test]
    fn blank_parameters_have_shapes_and_take_no_memory() {
        let meta = Parameters::meta(&Device::Cpu, DType::F32);
        let huge = meta
            .builder()
            .get_with_hints((1 << 20, 1 << 20), "w", ZEROS)
            .unwrap();
        assert_eq!(huge.dims(), [1 << 20, 1 << 20]);
        assert_eq!((meta.paths().len(), meta.elements()), (1, 1 << 40));
        assert!(meta.builder().get_with_hints(3, "w", ZEROS).is_err() && meta.all().is_empty());
    }
}
