//! Stands in for `gpu.rs` in a build for the CPU only, in which no tensor is on a GPU.

use candle_core::{DType, Device, Error, Result, Shape, Tensor};

use super::{Argument, Buffer, Grid, Module};

/// A GPU, of which there is none.
#[derive(Clone)]
pub(crate) struct Gpu;

impl Gpu {
    pub(crate) fn of(x: &Tensor) -> Option<Self> {
        Self::on(x.device())
    }

    pub(crate) fn on(device: &Device) -> Option<Self> {
        device.is_cuda().then_some(Self)
    }

    pub(crate) fn empty(&self, _: impl Into<Shape>, _: DType) -> Result<Buffer> {
        Err(Error::NotCompiledWithCudaSupport)
    }

    pub(crate) fn zeros(&self, _: impl Into<Shape>) -> Result<Buffer> {
        Err(Error::NotCompiledWithCudaSupport)
    }

    pub(crate) fn pointer(&self, _: &Tensor) -> Result<Argument> {
        Err(Error::NotCompiledWithCudaSupport)
    }

    pub(crate) fn launch(&self, _: &Module, _: &str, _: Grid, _: &[Argument]) -> Result<()> {
        Err(Error::NotCompiledWithCudaSupport)
    }
}
