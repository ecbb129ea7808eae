//! A stretch of the graph that keeps nothing but its input and its output: gradients are computed when they are asked for.
//!
//! candle's operations have at most three operands, and a stretch has many: its input and every variable in it. So two
//! kinds of operation share the work. One stands for the stretch; its operands are the input and a *tie*, a zero that
//! hangs on all variables through one small operation each. On the way back the first computes all gradients at once,
//! returns the input's, and leaves the others in a place where the tie's operations pick them up. Thus
//! `backward()` finds every gradient where it always does, and nobody outside has to know.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use candle_core::{
    CpuStorage, CustomOp2, Layout, Result, Shape, Storage, Tensor, backprop::GradStore, bail,
};

/// Computes gradients from what is left of a stretch: its output.
pub trait Stretch: Send + Sync + 'static {
    /// The gradient of the input, from output `y` and its gradient `dy`. Gradients of variables go to `found`.
    ///
    /// # Errors
    /// If a tensor operation fails.
    fn backward(&self, y: &Tensor, dy: &Tensor, found: &Found) -> crate::Result<Tensor>;
}

/// Gradients of a stretch's variables, on their way from its backward pass to the graph.
pub struct Found {
    variables: Vec<Tensor>,
    gradients: Mutex<Vec<Option<Tensor>>>,
}

impl Found {
    /// Takes out of `gradients` those of the stretch's variables, and adds them to what is there already.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn take(&self, gradients: &mut GradStore) -> Result<()> {
        let mut slots = self.lock();
        for (slot, variable) in slots.iter_mut().zip(&self.variables) {
            if let Some(more) = gradients.remove(variable) {
                *slot = Some(match slot.take() {
                    Some(sum) => (sum + more)?,
                    None => more,
                });
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

/// The variables in the history of `y` that are not yet in `variables` are added to them.
pub fn note_variables(y: &Tensor, variables: &mut Vec<Tensor>) {
    for node in y.sorted_nodes() {
        let known = |tensor: &Tensor| tensor.id() == node.id();
        if node.is_variable() && !variables.iter().any(known) {
            variables.push(node.clone());
        }
    }
}

/// `y`, computed from `x` and `variables` without history, with `stretch` for its history.
///
/// # Errors
/// If `y` is not contiguous, or not in main memory.
pub fn with_history(
    x: &Tensor,
    y: Tensor,
    variables: Vec<Tensor>,
    stretch: impl Stretch,
) -> Result<Tensor> {
    let found = Arc::new(Found {
        gradients: Mutex::new(vec![None; variables.len()]),
        variables,
    });
    let mut tie = Tensor::zeros((), y.dtype(), y.device())?;
    for (index, variable) in found.variables.iter().enumerate() {
        let found = found.clone();
        tie = tie.apply_op2(variable, Tie { found, index })?;
    }
    x.apply_op2(
        &tie,
        StandIn {
            output: Mutex::new(Some(y)),
            stretch,
            found,
        },
    )
}

struct StandIn<S> {
    /// Until it has been handed out: the operation runs once.
    output: Mutex<Option<Tensor>>,
    stretch: S,
    found: Arc<Found>,
}

impl<S: Stretch> CustomOp2 for StandIn<S> {
    fn name(&self) -> &'static str {
        "recomputed stretch"
    }

    fn cpu_fwd(
        &self,
        _: &CpuStorage,
        _: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(y) = output.take() else {
            bail!("{}: run twice", self.name());
        };
        let (storage, layout) = y.storage_and_layout();
        match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cpu(storage), Some((0, _))) => Ok((storage.clone(), y.shape().clone())),
            _ => bail!("{}: the output is not whole in main memory", self.name()),
        }
    }

    fn bwd(
        &self,
        _x: &Tensor,
        tie: &Tensor,
        y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let y = y.detach();
        let dx = self.stretch.backward(&y, &dy.contiguous()?, &self.found)?;
        Ok((Some(dx), Some(tie.zeros_like()?)))
    }
}

/// Passes a zero through, and hands over the gradient of one variable.
struct Tie {
    found: Arc<Found>,
    index: usize,
}

impl CustomOp2 for Tie {
    fn name(&self) -> &'static str {
        "tie to a variable"
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
        _variable: &Tensor,
        _tie: &Tensor,
        dtie: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        Ok((Some(dtie.clone()), self.found.lock()[self.index].take()))
    }
}
