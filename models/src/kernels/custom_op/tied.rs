//! More operands than candle's operations take, which is three.
//!
//! An operation with many has one of them in its hands and a *tie*, a zero that hangs on all others through one small
//! operation each. Its backward pass computes all gradients at once, returns that of the operand in hand, and leaves the
//! others where the tie's operations pick them up. Thus `backward()` finds every gradient where it always does, and nobody
//! outside has to know.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::backprop::GradStore;
use candle_core::{CpuStorage, CustomOp2, DType, Device, Layout, Result, Shape, Tensor};

use crate::kernels::variable_gradients::deliver;

/// Operands of one operation, and their gradients on the way from its backward pass to the graph.
pub struct Tied {
    operands: Vec<Tensor>,
    gradients: Mutex<Vec<Option<Tensor>>>,
}

impl Tied {
    /// No gradient has been left yet.
    #[must_use]
    pub fn new(operands: Vec<Tensor>) -> Arc<Self> {
        Arc::new(Self {
            gradients: Mutex::new(vec![None; operands.len()]),
            operands,
        })
    }

    /// The tie (rank 0), an operand of the operation. Its own gradient is a zero.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn tie(self: &Arc<Self>, dtype: DType) -> Result<Tensor> {
        let mut tie = Tensor::zeros((), dtype, &Device::Cpu)?;
        for (index, operand) in self.operands.iter().enumerate() {
            let tied = self.clone();
            tie = tie.apply_op2(operand, Tie { tied, index })?;
        }
        Ok(tie)
    }

    /// The operands.
    #[must_use]
    pub fn operands(&self) -> &[Tensor] {
        &self.operands
    }

    /// Leaves the gradient of the operand with this index, or adds it to what is there.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn leave(&self, index: usize, gradient: Tensor) -> Result<()> {
        let slot = &mut self.lock()[index];
        *slot = Some(match slot.take() {
            Some(sum) => (sum + gradient)?,
            None => gradient,
        });
        Ok(())
    }

    /// Leaves those of `gradients` that are the operands'.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn leave_all(&self, gradients: &mut GradStore) -> Result<()> {
        for (index, operand) in self.operands.iter().enumerate() {
            if let Some(gradient) = gradients.remove(operand) {
                self.leave(index, gradient)?;
            }
        }
        Ok(())
    }

    /// A panicking thread leaves the slots whole.
    fn lock(&self) -> MutexGuard<'_, Vec<Option<Tensor>>> {
        self.gradients
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
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
        dtie: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = self.tied.lock()[self.index].take();
        let gradient = gradient.map(|gradient| deliver(operand, gradient));
        Ok((Some(dtie.clone()), gradient.transpose()?.flatten()))
    }
}
