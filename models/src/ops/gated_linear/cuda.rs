//! The gate behind a product, y = v ⊙ σ(g), by the kernels of `cuda.cu`.

use candle_core::{D, DType, Result, Tensor};

use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, MOST_BLOCKS, Module, module};

const MODULE: Module = module!("ops-gated_linear-cuda");
const THREADS: usize = 256;

/// Returns v ⊙ σ(g) (.., D) of v and g side by side (.., 2D).
pub(in crate::ops) fn gate_halves(gpu: &Gpu, made: &Tensor) -> Result<Tensor> {
    let made = made.contiguous()?;
    let mut shape = made.dims().to_vec();
    let width = made.dim(D::Minus1)? / 2;
    let rows = made.elem_count() / (2 * width);
    if let Some(last) = shape.last_mut() {
        *last = width;
    }
    let (gate, half) = (Gate::new(gpu, rows, width, 2 * width)?, 4 * width as u64);
    let y = gpu.empty(shape, DType::F32)?;
    let value = gpu.floats(&made, 2 * rows * width)?;
    gate.forward([value, value.plus(half), y.pointer()])?;
    let kept = made.detach();
    with_backward("gate", &[&made], y.into_output(), false, move |_, dy| {
        let value = gate.gpu.floats(&kept, 2 * rows * width)?;
        let dmade = gate.gpu.empty(kept.shape(), DType::F32)?;
        let (dvalue, dy) = (dmade.pointer(), gate.gpu.floats(dy, rows * width)?);
        gate.backward([value, value.plus(half), dy, dvalue, dvalue.plus(half)])?;
        Ok(vec![Some(dmade.into_tensor())])
    })
}

/// Returns v ⊙ σ(g) of v and g, both (.., D).
pub(in crate::ops) fn gate(gpu: &Gpu, value: &Tensor, gate: &Tensor) -> Result<Tensor> {
    let operands = [value.contiguous()?, gate.contiguous()?];
    let (elements, width) = (value.elem_count(), value.dim(D::Minus1)?);
    let gate = Gate::new(gpu, elements / width, width, width)?;
    let y = gpu.empty(value.shape(), DType::F32)?;
    let [of_value, of_gate] = operands.each_ref().map(|x| gpu.floats(x, elements));
    gate.forward([of_value?, of_gate?, y.pointer()])?;
    let kept = [operands[0].detach(), operands[1].detach()];
    let [value, of_gate] = &operands;
    let output = y.into_output();
    with_backward("gate", &[value, of_gate], output, false, move |_, dy| {
        let gpu = &gate.gpu;
        let [value, of_gate] = kept.each_ref().map(|x| gpu.floats(x, elements));
        let of_dy = gpu.floats(dy, elements)?;
        let dvalue = gpu.empty(dy.shape(), DType::F32)?;
        let dgate = gpu.empty(dy.shape(), DType::F32)?;
        let gradients = [dvalue.pointer(), dgate.pointer()];
        gate.backward([value?, of_gate?, of_dy, gradients[0], gradients[1]])?;
        Ok(vec![Some(dvalue.into_tensor()), Some(dgate.into_tensor())])
    })
}

/// The launches of a gate.
struct Gate {
    gpu: Gpu,
    grid: Grid,
    /// R, D, and the distances between rows of v and of g.
    sizes: [Argument; 4],
}

impl Gate {
    fn new(gpu: &Gpu, rows: usize, width: usize, stride: usize) -> Result<Self> {
        let [height, of_row, stride] = [rows, width, stride].map(Argument::size);
        let stride = stride?;
        Ok(Self {
            gpu: gpu.clone(),
            grid: Grid::new([width.div_ceil(THREADS), rows.min(MOST_BLOCKS), 1], THREADS),
            sizes: [height?, of_row?, stride, stride],
        })
    }

    fn forward(&self, operands: [Argument; 3]) -> Result<()> {
        let arguments = [&operands[..], &self.sizes].concat();
        self.gpu
            .launch(&MODULE, "gate_forward", self.grid, &arguments)
    }

    fn backward(&self, operands: [Argument; 5]) -> Result<()> {
        let arguments = [&operands[..], &self.sizes].concat();
        self.gpu
            .launch(&MODULE, "gate_backward", self.grid, &arguments)
    }
}
