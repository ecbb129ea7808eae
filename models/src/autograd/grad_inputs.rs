//! Links an operation to any number of operands, and takes their gradients.
//!
//! A value of zero passes through one no-op node, a `Link`, with each operand. The backward pass of
//! the operation computes all gradients at once. Those of a [`graph_output`](super::graph_output())
//! are added to its accumulator at once, the others wait until candle asks their link.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::backprop::GradStore;
use candle_core::{
    CpuStorage, CudaStorage, CustomOp2, DType, Device, Layout, Result, Shape, Tensor,
    backend::BackendStorage,
};

use super::graph_output::{GradAccumulator, OutputNode};
use super::leaf_grads::accumulate_leaf;

/// Operands of one operation, with their gradients as far as computed.
pub(crate) struct GradInputs {
    operands: Vec<Operand>,
}

enum Operand {
    /// Needs no gradient.
    Constant,
    /// An output of candle's operations, or a variable. Its gradient waits for candle.
    Graph {
        tensor: Tensor,
        gradient: Mutex<Option<Tensor>>,
    },
    /// An output of an operation of this crate.
    Output {
        grad_node: Tensor,
        accumulator: Arc<GradAccumulator>,
    },
}

impl Operand {
    fn new(operand: &Tensor) -> Self {
        match OutputNode::of(operand) {
            Some(node) => Self::Output {
                grad_node: node.grad_node.clone(),
                accumulator: node.accumulator.clone(),
            },
            None if operand.track_op() => Self::Graph {
                tensor: operand.clone(),
                gradient: Mutex::new(None),
            },
            None => Self::Constant,
        }
    }

    /// Returns the tensor that candle's graph knows the operand by, if it needs a gradient.
    fn tensor(&self) -> Option<&Tensor> {
        match self {
            Self::Constant => None,
            Self::Graph { tensor, .. } => Some(tensor),
            Self::Output { grad_node, .. } => Some(grad_node),
        }
    }
}

impl GradInputs {
    /// Returns these operands without gradients.
    #[must_use]
    pub fn new<'a>(operands: impl IntoIterator<Item = &'a Tensor>) -> Arc<Self> {
        Arc::new(Self {
            operands: operands.into_iter().map(Operand::new).collect(),
        })
    }

    /// Returns a zero (rank 0) that depends on every operand that needs a gradient.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(super) fn link(self: &Arc<Self>) -> Result<Tensor> {
        let tensors = self.operands.iter().filter_map(Operand::tensor);
        let device = tensors.map(Tensor::device).next().unwrap_or(&Device::Cpu);
        let mut zero = Tensor::zeros((), DType::F32, device)?;
        // candle visits the last link first; the first operand has the longest history as a rule.
        for (index, operand) in self.operands.iter().enumerate().rev() {
            if let Some(tensor) = operand.tensor() {
                let inputs = self.clone();
                zero = zero.apply_op2(tensor, Link { inputs, index })?;
            }
        }
        Ok(zero)
    }

    /// Adds to the gradient of operand `index`. If `owned`, the caller holds the only reference to
    /// `gradient`, so that a sum may overwrite it.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn accumulate_grad(
        &self,
        index: usize,
        gradient: Tensor,
        owned: bool,
    ) -> Result<()> {
        match &self.operands[index] {
            Operand::Constant => Ok(()),
            Operand::Graph { gradient: sum, .. } => {
                let mut sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                *sum = Some(match sum.take() {
                    Some(sum) => (sum + gradient)?,
                    None => gradient,
                });
                Ok(())
            }
            Operand::Output { accumulator, .. } => accumulator.add(gradient, owned),
        }
    }

    /// Moves the operands' gradients out of `gradients` and adds them.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn accumulate_grads(&self, gradients: &mut GradStore) -> Result<()> {
        for (index, operand) in self.operands.iter().enumerate() {
            if let Operand::Graph { tensor, .. } = operand
                && let Some(gradient) = gradients.remove(tensor)
            {
                self.accumulate_grad(index, gradient, false)?;
            }
        }
        Ok(())
    }
}

/// Passes zero through. Its backward pass returns the gradient of one operand.
struct Link {
    inputs: Arc<GradInputs>,
    index: usize,
}

impl CustomOp2 for Link {
    fn name(&self) -> &'static str {
        "link to an operand"
    }

    fn cpu_fwd(
        &self,
        zero: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        Ok((zero.clone(), Shape::from(())))
    }

    fn cuda_fwd(
        &self,
        zero: &CudaStorage,
        layout: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        Ok((zero.try_clone(layout)?, Shape::from(())))
    }

    fn bwd(
        &self,
        _zero: &Tensor,
        operand: &Tensor,
        _link: &Tensor,
        zero: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = match &self.inputs.operands[self.index] {
            Operand::Constant => None,
            Operand::Graph { gradient, .. } => {
                let gradient = gradient
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let gradient = gradient.map(|gradient| accumulate_leaf(operand, gradient));
                gradient.transpose()?.flatten()
            }
            Operand::Output { grad_node, .. } => Some(grad_node.zeros_like()?),
        };
        Ok((Some(zero.clone()), gradient))
    }
}
