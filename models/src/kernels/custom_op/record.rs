//! Outputs whose gradients go from operation to operation past candle's graph.
//!
//! candle makes a tensor of zeros for every gradient and adds to it: three passes over memory where none is needed. A recorded
//! output is two operations of candle's instead: a *handle*, a number that stands for the computation and depends on the operands,
//! and the output, made of the handle. Recorded operations depend on the handles of their operands, and leave gradients in the
//! slots behind them; whatever else reads an output finds a tensor like any other, whose gradient gets into the same slot. When
//! candle comes to a handle, everything that depends on it has been there, and the backward pass of its operation runs. What that
//! pass needs is given up with it, so that activations go as gradients come.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use candle_core::{
    CpuStorage, CustomOp1, DType, Device, InplaceOp2, Layout, Result, Shape, Tensor, TensorId, bail,
};
use cpu::buffers::add;
use rayon::prelude::*;

use super::Tied;
use crate::kernels::custom_op::floats;

/// Leaves gradients of the operands, from the output and its gradient.
type Backward = Box<dyn FnOnce(&Tensor, &Tensor, &Tied) -> Result<()> + Send>;

/// An output, with `backward` for its history; `tied` are the operands that it leaves gradients for. Unless it `reads_output`, it is
/// given an empty tensor for the output.
///
/// # Errors
/// If a tensor operation fails.
pub fn record(
    name: &'static str,
    output: (CpuStorage, Shape),
    reads_output: bool,
    tied: Arc<Tied>,
    backward: impl FnOnce(&Tensor, &Tensor, &Tied) -> Result<()> + Send + 'static,
) -> Result<Tensor> {
    let (slot, pending) = (Arc::new(Slot::default()), Arc::new(Mutex::new(None)));
    let handle = tied.tie()?.apply_op1(Handle {
        name,
        slot: slot.clone(),
        pending: pending.clone(),
        tied,
    })?;
    let node = Arc::new(Node {
        output: OnceLock::new(),
        handle: handle.clone(),
        slot,
    });
    let y = handle.apply_op1(Output {
        name,
        output: Mutex::new(Some(output)),
        node: node.clone(),
    })?;
    *lock(&pending) = Some(Pending {
        y: match reads_output {
            true => y.detach(),
            false => Tensor::zeros(0, y.dtype(), &Device::Cpu)?,
        },
        backward: Box::new(backward),
    });
    node.output.get_or_init(|| y.id());
    lock(&NODES).insert(y.id(), Arc::downgrade(&node));
    Ok(y)
}

/// Nodes of the outputs that are in use.
static NODES: LazyLock<Mutex<HashMap<TensorId, Weak<Node>>>> = LazyLock::new(Mutex::default);

#[cfg(test)]
pub(super) fn is_in_use(output: TensorId) -> bool {
    lock(&NODES).contains_key(&output)
}

/// What stands for an output, as long as it is in use.
pub(super) struct Node {
    output: OnceLock<TensorId>,
    pub(super) handle: Tensor,
    pub(super) slot: Arc<Slot>,
}

impl Node {
    /// That of a recorded output.
    pub(super) fn of(output: &Tensor) -> Option<Arc<Self>> {
        lock(&NODES).get(&output.id()).and_then(Weak::upgrade)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(output) = self.output.get() {
            lock(&NODES).remove(output);
        }
    }
}

/// The gradient of an output, as far as it has arrived.
#[derive(Default)]
pub(super) struct Slot(Mutex<Option<Sum>>);

struct Sum {
    gradient: Tensor,
    /// Nothing else reads it, so that it may be added to where it lies.
    fresh: bool,
}

impl Slot {
    /// Adds a gradient, which nothing else reads if it is `fresh`.
    pub(super) fn add(&self, gradient: Tensor, fresh: bool) -> Result<()> {
        let mut slot = lock(&self.0);
        *slot = Some(match slot.take() {
            None => Sum { gradient, fresh },
            Some(sum) => Self::sum(sum, Sum { gradient, fresh })?,
        });
        Ok(())
    }

    fn sum(a: Sum, b: Sum) -> Result<Sum> {
        let plain =
            [&a, &b].map(|sum| sum.gradient.dtype() == DType::F32 && sum.gradient.is_contiguous());
        match plain == [true; 2] && (a.fresh || b.fresh) {
            true => {
                let (sum, other) = if a.fresh { (a, b) } else { (b, a) };
                sum.gradient.inplace_op2(&other.gradient, &Add)?;
                Ok(sum)
            }
            false => Ok(Sum {
                gradient: (a.gradient + b.gradient)?,
                fresh: true,
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

/// Numbers that one task adds.
const CHUNK: usize = 1 << 14;

/// Stands for a computation.
struct Handle {
    name: &'static str,
    slot: Arc<Slot>,
    /// Until the backward pass.
    pending: Arc<Mutex<Option<Pending>>>,
    tied: Arc<Tied>,
}

struct Pending {
    /// The output, without history, or nothing.
    y: Tensor,
    backward: Backward,
}

impl CustomOp1 for Handle {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, tie: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        Ok((tie.clone(), Shape::from(())))
    }

    fn bwd(&self, _tie: &Tensor, _handle: &Tensor, zero: &Tensor) -> Result<Option<Tensor>> {
        let dy = self.slot.take();
        let pending = lock(&self.pending).take();
        let Some(Pending { y, backward }) = pending else {
            bail!("{}: one backward pass after one forward pass", self.name);
        };
        let Some(dy) = dy else {
            bail!("{}: no gradient of the output", self.name);
        };
        backward(&y, &dy.contiguous()?, &self.tied)?;
        Ok(Some(zero.clone()))
    }
}

/// The output as candle sees it.
struct Output {
    name: &'static str,
    /// Until it has been handed out: the operation runs once.
    output: Mutex<Option<(CpuStorage, Shape)>>,
    node: Arc<Node>,
}

impl CustomOp1 for Output {
    fn name(&self) -> &'static str {
        self.name
    }

    fn cpu_fwd(&self, _: &CpuStorage, _: &Layout) -> Result<(CpuStorage, Shape)> {
        match lock(&self.output).take() {
            Some(output) => Ok(output),
            None => bail!("{}: run twice", self.name),
        }
    }

    fn bwd(&self, handle: &Tensor, _y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        self.node.slot.add(dy.clone(), false)?;
        Ok(Some(handle.zeros_like()?))
    }
}

/// A panicking thread leaves these whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
