//! Launches this crate's kernels on NVIDIA GPUs.
//!
//! The kernels lie beside their operations (`ops/<name>/cuda.cu`), and so does the code that
//! launches them (`cuda.rs`). It is compiled in every build: without the feature `cuda` there is no
//! [`Gpu`]. `kernels.md` has the interface of each kernel.

#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "no_gpu.rs"]
mod gpu;
mod sum_parts;
mod transpose;

use candle_core::{DType, Result, Shape, Storage, Tensor, bail, op::BackpropOp};

pub(crate) use self::gpu::{Gpu, GpuId};
pub(crate) use self::sum_parts::sum_parts;
pub(crate) use self::transpose::transpose;

/// The PTX of a file of kernels.
pub(crate) struct Module {
    /// Name of the file below `src`, without its ending.
    pub(crate) name: &'static str,
    /// Its PTX; empty in a build without the feature `cuda`.
    pub(crate) ptx: &'static str,
}

/// Returns the [`Module`] of a file below `src`, `ops-norm-cuda` for `ops/norm/cuda.cu`.
macro_rules! module {
    ($name:literal) => {
        $crate::cuda::Module {
            name: $name,
            #[cfg(feature = "cuda")]
            ptx: include_str!(concat!(env!("OUT_DIR"), "/", $name, ".ptx")),
            #[cfg(not(feature = "cuda"))]
            ptx: "",
        }
    };
}
pub(crate) use module;

/// Most blocks of a grid along y, and along z.
pub(crate) const MOST_BLOCKS: usize = 65_535;
/// Most blocks of a grid along x.
const MOST_BLOCKS_ALONG_X: usize = i32::MAX as usize;

/// The size of a launch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Grid {
    /// Blocks along x, y and z.
    pub(crate) blocks: [usize; 3],
    /// Threads of a block, along x.
    pub(crate) threads: usize,
    /// Bytes of dynamic shared memory of a block.
    pub(crate) shared: usize,
}

impl Grid {
    /// Returns a grid without dynamic shared memory.
    pub(crate) fn new(blocks: [usize; 3], threads: usize) -> Self {
        Self {
            blocks,
            threads,
            shared: 0,
        }
    }

    /// Refuses more blocks than a GPU takes.
    fn check(&self, kernel: &str) -> Result<()> {
        let [x, y, z] = self.blocks;
        if x > MOST_BLOCKS_ALONG_X || y.max(z) > MOST_BLOCKS {
            bail!(
                "kernel {kernel}: a grid of {x} x {y} x {z} blocks, and a GPU takes at most \
                 {MOST_BLOCKS_ALONG_X} x {MOST_BLOCKS} x {MOST_BLOCKS}; fewer examples at once \
                 (a smaller train.micro_batch) or shorter sequences need fewer blocks"
            );
        }
        Ok(())
    }
}

/// Refuses an operand of a kernel unless it has this type and so many elements.
fn check_operand(x: &Tensor, dtype: DType, elements: usize) -> Result<()> {
    if x.dtype() != dtype || x.elem_count() != elements {
        bail!(
            "a kernel reads {elements} elements of type {dtype:?}, and its operand is {:?} of type \
             {:?}",
            x.shape(),
            x.dtype()
        );
    }
    Ok(())
}

/// An argument of a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    /// An address in the GPU's memory, 0 for none.
    Pointer(u64),
    /// A C `int`.
    Int(i32),
    /// A C `long long`.
    Long(i64),
    /// A C `float`.
    Float(f32),
    /// A structure of numbers of 32 bits, as bits.
    Words([u32; 16]),
}

impl Argument {
    /// No address.
    pub(crate) const NULL: Self = Self::Pointer(0);

    /// Returns a size as an `int`.
    ///
    /// # Errors
    /// If it is larger than one.
    pub(crate) fn size(size: usize) -> Result<Self> {
        i32::try_from(size)
            .map(Self::Int)
            .map_err(candle_core::Error::wrap)
    }

    /// Returns the address this many bytes further on.
    pub(crate) fn plus(self, bytes: u64) -> Self {
        match self {
            Self::Pointer(address) => Self::Pointer(address + bytes),
            other => other,
        }
    }

    /// Returns an address as two numbers of 32 bits, for a structure of [`Argument::words`].
    pub(crate) fn halves(self) -> [u32; 2] {
        match self {
            Self::Pointer(address) => [address as u32, (address >> 32) as u32],
            _ => [0; 2],
        }
    }

    /// Returns a structure of at most 16 numbers of 32 bits.
    pub(crate) fn words(words: &[u32]) -> Self {
        let mut all = [0; 16];
        all[..words.len()].copy_from_slice(words);
        Self::Words(all)
    }
}

impl From<bool> for Argument {
    fn from(flag: bool) -> Self {
        Self::Int(flag.into())
    }
}

/// Memory of a GPU that a kernel writes: the elements of a tensor to be.
pub(crate) struct Buffer {
    storage: Storage,
    shape: Shape,
    /// Address of the first element.
    address: u64,
}

impl Buffer {
    /// Returns the address of the first element.
    pub(crate) fn pointer(&self) -> Argument {
        Argument::Pointer(self.address)
    }

    /// Returns the number of elements.
    pub(crate) fn elements(&self) -> usize {
        self.shape.elem_count()
    }

    /// Returns the elements and the shape.
    pub(crate) fn into_output(self) -> (Storage, Shape) {
        (self.storage, self.shape)
    }

    /// Returns the tensor.
    pub(crate) fn into_tensor(self) -> Tensor {
        Tensor::from_storage(self.storage, self.shape, BackpropOp::none(), false)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn grids_beyond_a_gpu_are_refused_by_name() {
        for blocks in [[1, 1, 1], [1 << 30, MOST_BLOCKS, MOST_BLOCKS]] {
            Grid::new(blocks, 32).check("scan").unwrap();
        }
        for blocks in [[1 << 31, 1, 1], [1, 1 << 16, 1], [1, 1, 1 << 16]] {
            let error = Grid::new(blocks, 32).check("scan").unwrap_err().to_string();
            assert!(error.contains("kernel scan"), "{error}");
            assert!(error.contains("train.micro_batch"), "{error}");
        }
    }

    #[test]
    fn operands_of_another_size_or_type_are_refused() {
        let x = Tensor::zeros((2, 3), DType::U32, &Device::Cpu).unwrap();
        check_operand(&x, DType::U32, 6).unwrap();
        assert!(check_operand(&x, DType::U32, 5).is_err());
        assert!(check_operand(&x, DType::F32, 6).is_err());
    }
}
