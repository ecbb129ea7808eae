//! A stretch of the graph that keeps nothing but its input and its output: gradients are computed when they are asked for.
//!
//! Its operands are its input and every variable in it, which are [`Tied`].

use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{CpuStorage, CustomOp2, Layout, Result, Shape, Storage, Tensor, bail};

pub use crate::kernels::Tied;

/// Computes gradients from what is left of a stretch: its output.
pub trait Checkpointed: Send + Sync + 'static {
    /// The gradient of the input, from output `y` and its gradient `dy`. Gradients of variables are left in `tied`.
    ///
    /// # Errors
    /// If a tensor operation fails.
    fn backward(&self, y: &Tensor, dy: &Tensor, tied: &Tied) -> crate::Result<Tensor>;
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
    stretch: impl Checkpointed,
) -> Result<Tensor> {
    let tied = Tied::new(variables);
    let tie = tied.tie(y.dtype())?;
    x.apply_op2(
        &tie,
        Placeholder {
            output: Mutex::new(Some(y)),
            stretch,
            tied,
        },
    )
}

struct Placeholder<S> {
    /// Until it has been handed out: the operation runs once.
    output: Mutex<Option<Tensor>>,
    stretch: S,
    tied: Arc<Tied>,
}

impl<S: Checkpointed> CustomOp2 for Placeholder<S> {
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
        let dx = self.stretch.backward(&y, &dy.contiguous()?, &self.tied)?;
        Ok((Some(dx), Some(tie.zeros_like()?)))
    }
}
