//! Any number of operands of one operation, and their gradients on the way from its backward pass to where they belong.
//!
//! An operation hangs on its operands by a *tie*, a zero that has gone through one small operation with each of them. Its
//! backward pass computes all gradients at once and leaves them here: those of recorded outputs go straight into their slots, and
//! the others wait until the tie's operations hand them to candle. Thus `backward()` finds every gradient where it always does.

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp2, DType, Device, Layout, Result, Shape, Tensor};

use super::record::{Node, Slot};
use crate::kernels::variable_gradients::deliver;

/// Operands of one operation.
pub struct Tied {
    operands: Vec<Operand>,
}

enum Operand {
    /// Needs no gradient.
    Constant,
    /// What candle's operations made, or a variable; the gradient waits.
    Graph {
        tensor: Tensor,
        gradient: Mutex<Option<Tensor>>,
    },
    Recorded {
        handle: Tensor,
        slot: Arc<Slot>,
    },
}

impl Operand {
    fn new(operand: &Tensor) -> Self {
        match Node::of(operand) {
            Some(node) => Self::Recorded {
                handle: node.handle.clone(),
                slot: node.slot.clone(),
            },
            None if operand.track_op() => Self::Graph {
                tensor: operand.clone(),
                gradient: Mutex::new(None),
            },
            None => Self::Constant,
        }
    }
}

impl Tied {
    /// No gradient has been left yet.
    #[must_use]
    pub fn new<'a>(operands: impl IntoIterator<Item = &'a Tensor>) -> Arc<Self> {
        Arc::new(Self {
            operands: operands.into_iter().map(Operand::new).collect(),
        })
    }

    /// The tie (rank 0). Its own gradient is a zero.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(super) fn tie(self: &Arc<Self>) -> Result<Tensor> {
        let mut tie = Tensor::zeros((), DType::F32, &Device::Cpu)?;
        // The first operand's history is the longest as a rule, and candle walks down from here.
        for (index, operand) in self.operands.iter().enumerate().rev() {
            let tensor = match operand {
                Operand::Constant => continue,
                Operand::Graph { tensor, .. } => tensor,
                Operand::Recorded { handle, .. } => handle,
            };
            let tied = self.clone();
            tie = tie.apply_op2(tensor, Tie { tied, index })?;
        }
        Ok(tie)
    }

    /// Leaves a gradient of the operand with this index, which nothing else reads if it is `fresh`.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn leave(&self, index: usize, gradient: Tensor, fresh: bool) -> Result<()> {
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
            Operand::Recorded { slot, .. } => slot.add(gradient, fresh),
        }
    }

    /// Leaves those of `gradients` that are the operands'.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn leave_all(&self, gradients: &mut GradStore) -> Result<()> {
        for (index, operand) in self.operands.iter().enumerate() {
            if let Operand::Graph { tensor, .. } = operand
                && let Some(gradient) = gradients.remove(tensor)
            {
                self.leave(index, gradient, false)?;
            }
        }
        Ok(())
    }
}

/// Passes a zero through, and hands over the gradient of one operand.
struct Tie {
    tied: Arc<Tied>,
    index: usize,
}

impl CustomOp2 for Tie {
    fn name(&self) -> &'static str {
        "tie to an operand"
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

    fn bwd(
        &self,
        _zero: &Tensor,
        operand: &Tensor,
        _tie: &Tensor,
        zero: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = match &self.tied.operands[self.index] {
            Operand::Constant => None,
            Operand::Graph { gradient, .. } => {
                let gradient = gradient
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .take();
                let gradient = gradient.map(|gradient| deliver(operand, gradient));
                gradient.transpose()?.flatten()
            }
            Operand::Recorded { handle, .. } => Some(handle.zeros_like()?),
        };
        Ok((Some(zero.clone()), gradient))
    }
}
