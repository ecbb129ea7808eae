//! Updates of all parameters on a GPU in one launch, and the norm of all gradients in two, by the
//! kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor, bail};

use super::AdamW;
use crate::cuda::{Argument, Gpu, Grid, Module, module};

const MODULE: Module = module!("ops-adamw-cuda");
/// Elements of a chunk, and threads of its block.
const CHUNK: usize = 4096;
const THREADS: usize = 256;

/// One of the updates that [`update_together`] makes: a parameter with its moments, its gradient
/// and the settings. All tensors have the shape of the parameter.
#[derive(Clone, Copy)]
pub struct Update<'a> {
    /// Settings of the update. Those of one call have the same β1, β2, ε and number of the update,
    /// and rates and decays of their own. The factor on the gradient is not used.
    pub step: AdamW,
    /// Parameter, of any shape. The update overwrites it, as it does its moments.
    pub parameter: &'a Tensor,
    /// Running mean of the parameter's gradients, which the update overwrites.
    pub first: &'a Tensor,
    /// Running mean of the parameter's squared gradients, which the update overwrites.
    pub second: &'a Tensor,
    /// Gradient of the parameter. `None` counts as zeros.
    pub gradient: Option<&'a Tensor>,
}

/// Makes all `updates` in one launch on a GPU. `scale` (rank 0, f32) is a factor on all gradients,
/// or 1 if absent. Returns true if it has made them. Returns false, and changes nothing, if there
/// are no updates, or a tensor is empty or not f32 on a GPU.
///
/// # Errors
/// If updates differ in β1, β2, ε or number of the update, a tensor is not contiguous or not as
/// large as its parameter, or the launch fails.
pub fn update_together(updates: &[Update], scale: Option<&Tensor>) -> Result<bool> {
    let Some(first) = updates.first() else {
        return Ok(false);
    };
    let tensors = updates
        .iter()
        .flat_map(|of| {
            [of.parameter, of.first, of.second]
                .into_iter()
                .chain(of.gradient)
        })
        .chain(scale);
    let Some(gpu) = shared(tensors) else {
        return Ok(false);
    };
    let AdamW {
        beta1,
        beta2,
        epsilon,
        update,
        ..
    } = first.step;
    let constants = |of: &AdamW| (of.beta1, of.beta2, of.epsilon, of.update);
    let differs = |of: &&Update| constants(&of.step) != constants(&first.step);
    if let Some(other) = updates.iter().find(differs) {
        bail!(
            "AdamW: all updates of one launch need the same beta1, beta2, epsilon and update: {:?} \
             and {:?}",
            first.step,
            other.step
        );
    }
    let gradients = contiguous(updates.iter().map(|of| of.gradient))?;
    let mut table = Table::default();
    for (of, gradient) in updates.iter().zip(&gradients) {
        let elements = of.parameter.elem_count();
        let tensors = [of.parameter, of.first, of.second];
        let pointers = tensors.map(|x| gpu.floats(x, elements));
        let [parameter, first, second] = pointers;
        let gradient = match gradient {
            Some(gradient) => gpu.floats(gradient, elements)?,
            None => Argument::NULL,
        };
        let rate = of.step.rate / (1.0 - of.step.beta1.powf(of.step.update as f64));
        table.push(
            [parameter?, first?, second?, gradient],
            elements,
            [(1.0 - of.step.decay) as f32, rate as f32],
        );
    }
    let correction = (1.0 - beta2.powf(update as f64)).powf(-0.5);
    let numbers = [beta1, 1.0 - beta1, beta2, 1.0 - beta2, correction, epsilon];
    let list = table.upload(first.parameter)?;
    let arguments = [
        gpu.pointer(&list, DType::I64, table.words.len())?,
        Argument::size(updates.len())?,
        Argument::words(&numbers.map(|number| (number as f32).to_bits())),
        match scale {
            Some(scale) => gpu.floats(scale, 1)?,
            None => Argument::NULL,
        },
    ];
    gpu.launch(&MODULE, "adamw", table.grid(), &arguments)?;
    Ok(true)
}

/// Returns the L2 norm of all `gradients` together, and the factor that scales it to at most
/// `clip`. The factor is 1 if `clip` is 0. Gradients have any shapes; both results are f32 of rank
/// 0 on the GPU. Returns `None` if there are no gradients, or one is empty or not f32 on a GPU.
///
/// # Errors
/// If a launch fails.
pub fn gradient_norm(gradients: &[&Tensor], clip: f64) -> Result<Option<[Tensor; 2]>> {
    let Some(gpu) = shared(gradients.iter().copied()) else {
        return Ok(None);
    };
    let kept = contiguous(gradients.iter().copied().map(Some))?;
    let mut table = Table::default();
    for gradient in kept.iter().flatten() {
        let pointers = [Argument::NULL, Argument::NULL, Argument::NULL];
        let [parameter, first, second] = pointers;
        let elements = gradient.elem_count();
        let gradients = [parameter, first, second, gpu.floats(gradient, elements)?];
        table.push(gradients, elements, [0.0; 2]);
    }
    let list = table.upload(gradients[0])?;
    let count = Argument::size(gradients.len())?;
    let squares = gpu.empty(table.chunks, DType::F64)?;
    let list = gpu.pointer(&list, DType::I64, table.words.len())?;
    let arguments = [list, count, squares.pointer()];
    gpu.launch(&MODULE, "gradient_squares", table.grid(), &arguments)?;
    let [norm, scale] = [gpu.empty((), DType::F32)?, gpu.empty((), DType::F32)?];
    let arguments = [
        squares.pointer(),
        Argument::size(table.chunks)?,
        Argument::Float(clip as f32),
        norm.pointer(),
        scale.pointer(),
    ];
    gpu.launch(
        &MODULE,
        "gradient_norm",
        Grid::new([1; 3], THREADS),
        &arguments,
    )?;
    Ok(Some([norm.into_tensor(), scale.into_tensor()]))
}

/// Returns the GPU that holds all tensors, if they are f32 and not empty.
fn shared<'a>(tensors: impl Iterator<Item = &'a Tensor>) -> Option<Gpu> {
    let mut gpu = None;
    for tensor in tensors {
        gpu = Some(Gpu::of(tensor)?);
    }
    gpu
}

fn contiguous<'a>(
    tensors: impl Iterator<Item = Option<&'a Tensor>>,
) -> Result<Vec<Option<Tensor>>> {
    let contiguous = tensors.map(|tensor| tensor.map(Tensor::contiguous).transpose());
    contiguous.collect()
}

/// The list of structures `AdamWParameter`, seven words of 64 bits each.
#[derive(Default)]
struct Table {
    words: Vec<i64>,
    chunks: usize,
}

impl Table {
    /// Adds a parameter with its addresses, its size, and `keep` and `step`.
    fn push(&mut self, pointers: [Argument; 4], elements: usize, [keep, step]: [f32; 2]) {
        for pointer in pointers {
            self.words.push(match pointer {
                Argument::Pointer(address) => address as i64,
                _ => 0,
            });
        }
        let first_chunk = self.chunks as u64 & 0xFFFF_FFFF;
        self.words.push(elements as i64);
        self.words
            .push((first_chunk | u64::from(keep.to_bits()) << 32) as i64);
        self.words.push(i64::from(step.to_bits()));
        self.chunks += elements.div_ceil(CHUNK);
    }

    /// Returns the list on the GPU that holds `like`.
    fn upload(&self, like: &Tensor) -> Result<Tensor> {
        Tensor::from_slice(&self.words, self.words.len(), like.device())
    }

    fn grid(&self) -> Grid {
        Grid::new([self.chunks, 1, 1], THREADS)
    }
}
