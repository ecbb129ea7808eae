//! Activations by the kernels of `cuda.cu`, which keep only x.

use candle_core::{DType, Result, Tensor};

use super::cpu::Activation;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Gpu, Grid, Module, module};

const MODULE: Module = module!("ops-activation-cuda");
const THREADS: usize = 256;
/// Elements of a block.
const ELEMENTS: usize = 4 * THREADS;

/// Applies `activation` to every element of a tensor of any shape.
pub(in crate::ops) fn activate(gpu: &Gpu, x: &Tensor, activation: Activation) -> Result<Tensor> {
    let x = x.contiguous()?;
    let (function, floor) = match activation {
        Activation::GeluTanh => (0, 0.0),
        Activation::GeluErf => (1, 0.0),
        Activation::Relu { floor } => (2, floor),
        Activation::EluPlusOne => (3, 0.0),
        Activation::Silu => (4, 0.0),
        Activation::Softplus => (5, 0.0),
        Activation::Sigmoid => (6, 0.0),
    };
    let function = Argument::Int(function);
    let elements = x.elem_count();
    let count = Argument::Long(elements as i64);
    let grid = Grid::new([elements.div_ceil(ELEMENTS), 1, 1], THREADS);
    let y = gpu.empty(x.shape(), DType::F32)?;
    let operands = [gpu.floats(&x, elements)?, y.pointer()];
    let arguments = [&operands[..], &[function, Argument::Float(floor), count]].concat();
    gpu.launch(&MODULE, "activation_forward", grid, &arguments)?;
    let (gpu, kept) = (gpu.clone(), x.detach());
    let output = y.into_output();
    with_backward("activation", &[&x], output, false, move |_, dy| {
        let dx = gpu.empty(kept.shape(), DType::F32)?;
        let [x, dy] = [&kept, dy].map(|x| gpu.floats(x, elements));
        let operands = [x?, dy?, dx.pointer()];
        let arguments = [&operands[..], &[function, count]].concat();
        gpu.launch(&MODULE, "activation_backward", grid, &arguments)?;
        Ok(vec![Some(dx.into_tensor())])
    })
}
