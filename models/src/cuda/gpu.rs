//! A GPU: its memory, and launches on its stream.
//!
//! Kernels get addresses, not slices. That is sound because all work of a device goes to one
//! stream, in order: memory that is freed after a launch was issued is given to later work only,
//! and no event is needed to wait for.

use candle_core::cuda_backend::DeviceId;
use candle_core::cuda_backend::cudarc::driver::{
    DevicePtr, LaunchConfig, PushKernelArg, sys::CUfunction_attribute_enum as Attribute,
};
use candle_core::{
    CudaDevice, CudaStorage, DType, Device, Error, Result, Shape, Storage, Tensor, bail,
};

use super::{Argument, Buffer, Grid, Module, check_operand};

/// Bytes of dynamic shared memory that need no permission.
const USUAL_SHARED: usize = 48 * 1024;

/// Tells devices apart, also two of one card: each has a stream of its own.
pub(crate) type GpuId = DeviceId;

/// The GPU that holds a tensor.
#[derive(Clone)]
pub(crate) struct Gpu(CudaDevice);

impl Gpu {
    /// Returns the GPU that holds a tensor, if kernels take it: f32, and not empty.
    pub(crate) fn of(x: &Tensor) -> Option<Self> {
        Self::on(x.device()).filter(|_| x.dtype() == DType::F32 && x.elem_count() > 0)
    }

    /// Returns a device as a GPU, if it is one.
    pub(crate) fn on(device: &Device) -> Option<Self> {
        match device {
            Device::Cuda(device) => Some(Self(device.clone())),
            _ => None,
        }
    }

    /// Returns what tells this device from others.
    pub(crate) fn id(&self) -> GpuId {
        self.0.id()
    }

    /// Returns memory for a tensor, with any contents.
    ///
    /// # Errors
    /// If there is not enough, or the type is neither f32, f64, i64, u32 nor u8.
    pub(crate) fn empty(&self, shape: impl Into<Shape>, dtype: DType) -> Result<Buffer> {
        let shape = shape.into();
        let count = shape.elem_count();
        // SAFETY: the kernel that gets the address writes every element before any is read.
        let storage = unsafe {
            match dtype {
                DType::F32 => self.wrap(self.0.alloc::<f32>(count)?),
                DType::F64 => self.wrap(self.0.alloc::<f64>(count)?),
                DType::I64 => self.wrap(self.0.alloc::<i64>(count)?),
                DType::U32 => self.wrap(self.0.alloc::<u32>(count)?),
                DType::U8 => self.wrap(self.0.alloc::<u8>(count)?),
                other => bail!("kernels have no memory of type {other:?}"),
            }
        };
        let address = self.address(&storage)?;
        Ok(Buffer {
            storage: Storage::Cuda(storage),
            shape,
            address,
        })
    }

    /// Returns memory for a tensor of f32, filled with zeros.
    ///
    /// # Errors
    /// If there is not enough.
    pub(crate) fn zeros(&self, shape: impl Into<Shape>) -> Result<Buffer> {
        let shape = shape.into();
        let storage = self.wrap(self.0.alloc_zeros::<f32>(shape.elem_count())?);
        let address = self.address(&storage)?;
        Ok(Buffer {
            storage: Storage::Cuda(storage),
            shape,
            address,
        })
    }

    /// Returns the address of the first element of a tensor of f32.
    ///
    /// # Errors
    /// If the tensor has another type or another number of elements, is not contiguous, or not on a
    /// GPU.
    pub(crate) fn floats(&self, x: &Tensor, elements: usize) -> Result<Argument> {
        self.pointer(x, DType::F32, elements)
    }

    /// Returns the address of a tensor's first element.
    ///
    /// # Errors
    /// If the tensor has another type or another number of elements, is not contiguous, or not on
    /// this GPU.
    pub(crate) fn pointer(&self, x: &Tensor, dtype: DType, elements: usize) -> Result<Argument> {
        check_operand(x, dtype, elements)?;
        if !x.device().same_device(&Device::Cuda(self.0.clone())) {
            bail!(
                "a kernel on {:?} got a tensor on {:?}",
                Device::Cuda(self.0.clone()).location(),
                x.device().location()
            );
        }
        let (storage, layout) = x.storage_and_layout();
        let (Storage::Cuda(cuda), Some((start, _))) = (&*storage, layout.contiguous_offsets())
        else {
            bail!("a kernel got a tensor that is not contiguous on a GPU: {layout:?}");
        };
        let start = (start * x.dtype().size_in_bytes()) as u64;
        Ok(Argument::Pointer(self.address(cuda)? + start))
    }

    /// Launches a kernel of a module.
    ///
    /// # Errors
    /// If the grid has more blocks than a GPU takes, or the driver refuses the launch.
    pub(crate) fn launch(
        &self,
        module: &Module,
        kernel: &str,
        grid: Grid,
        arguments: &[Argument],
    ) -> Result<()> {
        grid.check(kernel)?;
        let function = self
            .0
            .get_or_load_custom_func(kernel, module.name, module.ptx)?;
        let Grid {
            blocks,
            threads,
            shared,
        } = grid;
        if shared > USUAL_SHARED {
            let most = Attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let result = function.set_attribute(most, shared as i32);
            result.map_err(Error::wrap)?;
        }
        let config = LaunchConfig {
            grid_dim: (blocks[0] as u32, blocks[1] as u32, blocks[2] as u32),
            block_dim: (threads as u32, 1, 1),
            shared_mem_bytes: shared as u32,
        };
        let mut launch = function.builder();
        for argument in arguments {
            match argument {
                Argument::Pointer(address) => launch.arg(address),
                Argument::Int(number) => launch.arg(number),
                Argument::Long(number) => launch.arg(number),
                Argument::Float(number) => launch.arg(number),
                // The driver reads as many words as the kernel's parameter has.
                Argument::Words(words) => launch.arg(words),
            };
        }
        // SAFETY: `kernels.md` and the kernel's header give its grid and its arguments, and the
        // tests of each operation run it with them.
        unsafe { launch.launch(config) }.map_err(Error::wrap)?;
        Ok(())
    }

    fn wrap<T: candle_core::cuda_backend::CudaDType>(
        &self,
        slice: candle_core::cuda_backend::cudarc::driver::CudaSlice<T>,
    ) -> CudaStorage {
        CudaStorage::wrap_cuda_slice(slice, self.0.clone())
    }

    fn address(&self, storage: &CudaStorage) -> Result<u64> {
        let stream = self.0.cuda_stream();
        Ok(match candle_core::backend::BackendStorage::dtype(storage) {
            DType::F32 => storage.as_cuda_slice::<f32>()?.device_ptr(&stream).0,
            DType::F64 => storage.as_cuda_slice::<f64>()?.device_ptr(&stream).0,
            DType::I64 => storage.as_cuda_slice::<i64>()?.device_ptr(&stream).0,
            DType::U32 => storage.as_cuda_slice::<u32>()?.device_ptr(&stream).0,
            DType::U8 => storage.as_cuda_slice::<u8>()?.device_ptr(&stream).0,
            other => bail!("kernels take no tensors of type {other:?}"),
        })
    }
}
