//! Stands in for `gpu.rs` in a build for the CPU only, in which no tensor is on a GPU.

use candle_core::{DType, Device, Error, Result, Shape, Tensor};

use super::{Argument, Buffer, Grid, Module, check_operand};

/// Tells devices apart, of which there are none.
pub(crate) type GpuId = usize;

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

    pub(crate) fn id(&self) -> GpuId {
        0
    }

    pub(crate) fn empty(&self, _: impl Into<Shape>, _: DType) -> Result<Buffer> {
        Err(Error::NotCompiledWithCudaSupport)
    }

    pub(crate) fn zeros(&self, _: impl Into<Shape>) -> Result<Buffer> {
        Err(Error::NotCompiledWithCudaSupport)
    }

    pub(crate) fn floats(&self, x: &Tensor, elements: usize) -> Result<Argument> {
        self.pointer(x, DType::F32, elements)
    }

    pub(crate) fn pointer(&self, x: &Tensor, dtype: DType, elements: usize) -> Result<Argument> {
        check_operand(x, dtype, elements)?;
        Err(Error::NotCompiledWithCudaSupport)
    }

    pub(crate) fn launch(
        &self,
        _: &Module,
        kernel: &str,
        grid: Grid,
        _: &[Argument],
    ) -> Result<()> {
        grid.check(kernel)?;
        Err(Error::NotCompiledWithCudaSupport)
    }
}
