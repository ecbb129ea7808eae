//! Where layers create their parameters.

use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::Init;

use super::{Attributes, Buffer, Commit, Parameters, Role};
use crate::Result;

/// A place in the tree of parameters, as candle's `VarBuilder` is one; beside initial values it takes [`Attributes`], and
/// it creates [`Buffer`]s.
#[derive(Clone)]
pub struct VarBuilder {
    parameters: Parameters,
    path: String,
}

impl VarBuilder {
    pub(super) fn new(parameters: Parameters) -> Self {
        Self {
            parameters,
            path: String::new(),
        }
    }

    /// The place `name` below this one.
    #[must_use]
    pub fn pp(&self, name: impl ToString) -> Self {
        Self {
            parameters: self.parameters.clone(),
            path: self.join(&name.to_string()),
        }
    }

    /// The path from the root, with dots.
    #[must_use]
    pub fn prefix(&self) -> String {
        self.path.clone()
    }

    /// Type of all parameters.
    #[must_use]
    pub fn dtype(&self) -> DType {
        self.parameters.dtype
    }

    /// Where they live.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.parameters.device
    }

    /// The parameter `name`, created with `init` unless it is there. Matrices decay, vectors do not.
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

    /// The parameter `name`, created with `init` and `attributes` unless it is there.
    ///
    /// # Errors
    /// [`crate::Error::ShapeConflict`] if the path is taken by another shape.
    pub fn get_with_attributes(
        &self,
        shape: impl Into<Shape>,
        name: &str,
        init: Init,
        attributes: Attributes,
    ) -> Result<Tensor> {
        let role = Role::Parameter(attributes);
        self.parameters
            .get_or_create(&self.join(name), shape.into(), init, role)
    }

    /// The buffer `name`, created with `init` unless it is there. What passes add to it in a training step becomes part of it
    /// by `commit`, once after the step.
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
        let value = self
            .parameters
            .get_or_create(&path, shape.into(), init, Role::Buffer)?;
        Ok(Buffer::new(path, value, commit))
    }

    fn join(&self, name: &str) -> String {
        match self.path.as_str() {
            "" => name.to_owned(),
            path => format!("{path}.{name}"),
        }
    }
}
