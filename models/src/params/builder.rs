//! Builder with which layers create their parameters.

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::Init;

use super::{Attributes, Buffer, Commit, Parameters, Role, init};
use crate::{Result, rng::Stream};

/// Place in the tree of parameter paths, at which a layer creates its parameters, as with candle's
/// `VarBuilder`. It also takes [`Attributes`], and creates [`Buffer`]s.
#[derive(Clone)]
pub struct VarBuilder {
    parameters: Parameters,
    path: String,
    /// Index of the layer among those that share its parameters.
    repetition: usize,
}

impl VarBuilder {
    pub(super) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            path: String::new(),
            repetition: 0,
        }
    }

    /// Returns the builder at the place `name` below this one, as candle's method of the same name
    /// does.
    #[must_use]
    pub fn pp(&self, name: impl ToString) -> Self {
        Self {
            parameters: self.parameters.clone(),
            path: self.join(&name.to_string()),
            repetition: self.repetition,
        }
    }

    /// Returns the builder of layer `index` of a stack. With `share` it creates the parameters of
    /// layer 0, and running statistics ([`VarBuilder::running`]) of its own.
    #[must_use]
    pub fn layer(&self, index: usize, share: bool) -> Self {
        match share {
            true => Self {
                repetition: index,
                ..self.pp(0)
            },
            false => self.pp(index),
        }
    }

    /// Returns the path of this place from the root, with dots between names, such as `encoder.0`.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.path.clone()
    }

    /// Returns the float type of all parameters, f32 or f64.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.parameters.dtype
    }

    /// Returns the device of the parameters.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.parameters.device
    }

    /// Returns the parameter `name` of `shape`, created with the initial values `init` unless it
    /// exists. Weight decay shrinks it if it is a matrix, and not if it is a vector.
    ///
    /// # Errors
    /// [`crate::Error::ShapeConflict`] if the path is taken by another shape.
    pub fn get_with_hints(
        &self,
        shape: impl Into<Shape>,
        name: &str,
        init: Init,
    ) -> Result<Tensor> {
        let shape = shape.into();
        let attributes = Attributes::of_rank(shape.rank());
        self.get_with_attributes(shape, name, init, attributes)
    }

    /// Returns the parameter `name`, created with `init` and `attributes` unless it is there.
    ///
    /// # Errors
    /// [`crate::Error::ShapeConflict`] if the path is taken by another shape.
    pub(crate) fn get_with_attributes(
        &self,
        shape: impl Into<Shape>,
        name: &str,
        init: Init,
        attributes: Attributes,
    ) -> Result<Tensor> {
        let (path, seed) = (self.join(name), self.parameters.seed());
        let role = Role::Parameter(attributes);
        let values = |shape: &Shape| init::values(seed, &path, shape, init);
        self.parameters
            .get_or_create(&path, shape.into(), role, Box::new(values))
    }

    /// Returns the parameter `name` of `shape`, which the optimizer treats by `attributes`. Unless
    /// it exists, it is created with the numbers that `values` returns. There are as many as it has
    /// elements, in row-major order. `values` gets the random stream of the parameter's path.
    ///
    /// # Errors
    /// [`crate::Error::ShapeConflict`] if the path is taken by another shape;
    /// [`crate::Error::Tensor`] if `values` returns another number of elements.
    pub fn get_with_values(
        &self,
        shape: impl Into<Shape>,
        name: &str,
        attributes: Attributes,
        values: impl FnOnce(&Stream) -> Vec<f64>,
    ) -> Result<Tensor> {
        let (path, seed) = (self.join(name), self.parameters.seed());
        let role = Role::Parameter(attributes);
        let values = |_: &Shape| values(&Stream::of_parameter(seed, &path));
        self.parameters
            .get_or_create(&path, shape.into(), role, Box::new(values))
    }

    /// Returns the random stream called `name` at this place, for parameters that are drawn
    /// together.
    #[must_use]
    pub fn stream(&self, name: &str) -> Stream {
        Stream::of_parameter(self.parameters.seed(), &self.join(name))
    }

    /// Returns the buffer `name` of `shape`, created with the initial values `init` unless it
    /// exists. `commit` computes its next value, once after each training step, from all that
    /// passes have added.
    ///
    /// # Errors
    /// [`crate::Error::ShapeConflict`] if the path is taken by another shape.
    pub fn buffer(
        &self,
        shape: impl Into<Shape>,
        name: &str,
        init: Init,
        commit: Commit,
    ) -> Result<Buffer> {
        let path = self.join(name);
        let seed = self.parameters.seed();
        let values = |shape: &Shape| init::values(seed, &path, shape, init);
        let value =
            self.parameters
                .get_or_create(&path, shape.into(), Role::Buffer, Box::new(values))?;
        Ok(Buffer::new(path, value, commit))
    }

    /// Returns a buffer as [`VarBuilder::buffer`] does. Layers that share their parameters have one
    /// each: running statistics are of the states of one depth.
    ///
    /// # Errors
    /// [`crate::Error::ShapeConflict`] if the path is taken by another shape.
    pub fn running(
        &self,
        shape: impl Into<Shape>,
        name: &str,
        init: Init,
        commit: Commit,
    ) -> Result<Buffer> {
        match self.repetition {
            0 => self.buffer(shape, name, init, commit),
            depth => self.pp(depth).buffer(shape, name, init, commit),
        }
    }

    fn join(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }
}
