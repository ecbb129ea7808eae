//! Makes outputs whose gradients are summed outside candle's graph.
//!
//! An output is two nodes of candle's graph: a [`GradNode`] of value zero that depends on the
//! operands, and an [`Output`] made of it. An operation of this crate that reads the output depends
//! on its `GradNode` and adds its gradient to the [`GradAccumulator`]. Any other reader sees a
//! tensor like any other, and its gradient gets there through [`Output`].

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use candle_core::{
    CpuStorage, CudaStorage, CustomOp1, DType, Device, InplaceOp2, Layout, Result, Shape, Storage,
    Tensor, TensorId, backend::BackendStorage, bail,
};
use lra_cpu::buffers::add;
use rayon::prelude::*;

use super::grad_inputs::GradInputs;
use super::storage::floats;

/// Adds the gradients of the operands, given the output and its gradient.
pub(crate) type Backward = Box<dyn FnOnce(&Tensor, &Tensor, &GradInputs) -> Result<()> + Send>;

/// Returns `output` as a tensor whose gradient `backward` passes on to `inputs`. Unless
/// `reads_output`, `backward` gets an empty tensor in place of the output.
///
/// # Errors
/// If a tensor operation fails.
pub fn graph_output(
    name: &'static str,
    output: (Storage, Shape),
    reads_output: bool,
    inputs: Arc<GradInputs>,
    backward: Backward,
) -> Result<Tensor> {
    let accumulator = Arc::new(GradAccumulator::default());
    let pending = Arc::new(Mutex::new(None));
    let grad_node = inputs.link()?.apply_op1(GradNode {
        name,
        accumulator: accumulator.clone(),
        pending: pending.clone(),
        inputs,
    })?;
    let node = Arc::new(OutputNode {
        output: OnceLock::new(),
        grad_node: grad_node.clone(),
        accumulator,
    });
    let y = grad_node.apply_op1(Output {
        name,
        output: Mutex::new(Some(output)),
        node: node.clone(),
    })?;
    *lock(&pending) = Some(Pending {
        y: match reads_output {
            true => y.detach(),
            false => Tensor::zeros(0, y.dtype(), &Device::Cpu)?,
        },
        backward,
    });
    node.output.get_or_init(|| y.id());
    lock(&NODES).insert(y.id(), Arc::downgrade(&node));
    Ok(y)
}

/// Nodes of the outputs in use.
static NODES: LazyLock<Mutex<HashMap<TensorId, Weak<OutputNode>>>> = LazyLock::new(Mutex::default);

#[cfg(test)]
pub(super) fn is_in_use(output: TensorId) -> bool {
    lock(&NODES).contains_key(&output)
}

/// The nodes behind an output, kept while it is in use.
pub(super) struct OutputNode {
    output: OnceLock<TensorId>,
    pub(super) grad_node: Tensor,
    pub(super) accumulator: Arc<GradAccumulator>,
}

impl OutputNode {
    /// Returns the nodes behind `output`, if [`graph_output`] made it.
    pub(super) fn of(output: &Tensor) -> Option<Arc<Self>> {
        lock(&NODES).get(&output.id()).and_then(Weak::upgrade)
    }
}

impl Drop for OutputNode {
    fn drop(&mut self) {
        if let Some(output) = self.output.get() {
            lock(&NODES).remove(output);
        }
    }
}

/// The sum of an output's gradients that have arrived.
#[derive(Default)]
pub(super) struct GradAccumulator(Mutex<Option<Sum>>);

struct Sum {
    gradient: Tensor,
    /// True if this is the only reference to the gradient, so that it may be overwritten.
    owned: bool,
}

impl GradAccumulator {
    /// Adds a gradient. If `owned`, this is the only reference to it, so that a sum may overwrite
    /// it.
    pub(super) fn add(&self, gradient: Tensor, owned: bool) -> Result<()> {
        let mut total = lock(&self.0);
        *total = Some(match total.take() {
            None => Sum { gradient, owned },
            Some(sum) => Self::sum(sum, Sum { gradient, owned })?,
        });
        Ok(())
    }

    fn sum(a: Sum, b: Sum) -> Result<Sum> {
        let plain = [&a, &b].map(|Sum { gradient, .. }| {
            gradient.device().is_cpu() && gradient.dtype() == DType::F32 && gradient.is_contiguous()
        });
        match plain == [true; 2] && (a.owned || b.owned) {
            true => {
                let (sum, other) = if a.owned { (a, b) } else { (b, a) };
                sum.gradient.inplace_op2(&other.gradient, &Add)?;
                Ok(sum)
            }
            false => Ok(Sum {
                gradient: (a.gradient + b.gradient)?,
                owned: true,
            }),
        }
    }

    fn take(&self) -> Option<Tensor> {
        lock(&self.0).take().map(|sum| sum.gradient)
    }
}

/// y += x.
struct Add;

impl InplaceOp2 for Add {
    fn name(&self) -> &'static str {
        "sum of gradients"
    }

    fn cpu_fwd(
        &self,
        y: &mut CpuStorage,
        y_layout: &Layout,
        x: &CpuStorage,
        x_layout: &Layout,
    ) -> Result<()> {
        let x = floats(self.name(), x, x_layout)?;
        match (y, y_layout.contiguous_offsets()) {
            (CpuStorage::F32(y), Some((start, end))) => {
                let chunks = y[start..end].par_chunks_mut(CHUNK);
                chunks.zip(x.par_chunks(CHUNK)).for_each(|(y, x)| add(x, y));
                Ok(())
            }
            _ => bail!("{}: not whole numbers of 32 bits", self.name()),
        }
    }
}

/// Elements per parallel task.
const CHUNK: usize = 1 << 14;

/// Has the value zero, depends on the operands, and runs the backward pass.
struct GradNode {
    name: &'static str,
    accumulator: Arc<GradAccumulator>,
    /// Present until the backward pass.
    pending: Arc<Mutex<Option<Pending>>>,
    inputs: Arc<GradInputs>,
}

struct Pending {
    /// The output without history, or an empty tensor.
    y: Tensor,
    backward: Backward,
}

impl CustomOp1 for GradNode {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, link: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((link.clone(), Shape::from(())))
    }

    fn cuda_fwd(&self, link: &CudaStorage, layout: &Layout) -> Result<(CudaStorage, Shape)> {
        Ok((link.try_clone(layout)?, Shape::from(())))
    }

    fn bwd(&self, _link: &Tensor, _grad_node: &Tensor, zero: &Tensor) -> Result<Option<Tensor>> {
        let dy = self.accumulator.take();
        let pending = lock(&self.pending).take();
        let Some(Pending { y, backward }) = pending else {
            bail!("{}: one backward pass after one forward pass", self.name);
        };
        let Some(dy) = dy else {
            bail!("{}: no gradient of the output", self.name);
        };
        backward(&y, &dy.contiguous()?, &self.inputs)?;
        Ok(Some(zero.clone()))
    }
}

/// Hands out the value. Its backward pass adds gradients of candle's own operations.
struct Output {
    name: &'static str,
    /// Present until the forward pass.
    output: Mutex<Option<(Storage, Shape)>>,
    node: Arc<OutputNode>,
}

impl CustomOp1 for Output {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match lock(&self.output).take() {
            Some((Storage::Cpu(output), shape)) => Ok((output, shape)),
            Some(_) => bail!("{}: an output of another device", self.name),
            None => bail!("{}: run twice", self.name),
        }
    }

    fn cuda_fwd(&self, _: &CudaStorage, _: &Layout) -> Result<(CudaStorage, Shape)> {
        match lock(&self.output).take() {
            Some((Storage::Cuda(output), shape)) => Ok((output, shape)),
            Some(_) => bail!("{}: an output of another device", self.name),
            None => bail!("{}: run twice", self.name),
        }
    }

    fn bwd(&self, grad_node: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        self.node.accumulator.add(dy.clone(), false)?;
        Ok(Some(grad_node.zeros_like()?))
    }
}

/// Locks a mutex, poisoned or not: a panicking thread leaves its value whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_is_taken_out_of_its_accumulator() {
        let sum = GradAccumulator::default();
        for owned in [false, true] {
            let gradient = Tensor::new(&[1f32, 2.0], &Device::Cpu).unwrap();
            sum.add(gradient, owned).unwrap();
        }
        assert_eq!(sum.take().unwrap().to_vec1::<f32>().unwrap(), [2.0, 4.0]);
        assert!(sum.take().is_none());
    }
}
