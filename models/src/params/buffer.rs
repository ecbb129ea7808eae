//! State that is saved with the parameters and not trained: running statistics, centroids.
//!
//! The passes of a training step only add up their contributions; the step commits the sum once,
//! after all of its micro-batches. So a buffer is constant within a step, and its next value
//! depends neither on the split of the batch nor on passes that are run again for their gradients.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use candle_core::Tensor;

use super::Parameters;
use crate::{Error, Result};

/// Function that returns the next value of a buffer, in the buffer's shape. Its arguments are the
/// present value and the sum of all that the passes of a training step have added.
pub type Commit = Arc<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync>;

/// Tensor of a model that is saved with the parameters and not trained, such as a running mean. The
/// passes of a training step add to a sum. At the end of the step, the buffer's next value is
/// computed from that sum.
#[derive(Clone)]
pub struct Buffer {
    path: String,
    value: Tensor,
    commit: Commit,
}

impl Buffer {
    pub(super) fn new(path: String, value: Tensor, commit: Commit) -> Self {
        Self {
            path,
            value,
            commit,
        }
    }

    /// Returns the value as of the last training step, without gradient, in the shape that the
    /// buffer was created with.
    #[must_use]
    pub fn value(&self) -> &Tensor {
        &self.value
    }
}

/// Sums of all that the passes of one training step have added to buffers.
///
/// Clones share them: a backward pass adds to those of its forward pass.
#[derive(Clone, Default)]
pub struct Updates(Arc<Mutex<BTreeMap<String, (Tensor, Commit)>>>);

impl Updates {
    /// Adds `seen` to the sum of `buffer`.
    ///
    /// # Errors
    /// As [`Buffer::add`].
    pub(crate) fn add(&self, buffer: &Buffer, seen: &Tensor) -> Result<()> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = seen.detach();
        let sum = match sums.get(&buffer.path) {
            Some((sum, _)) => (sum + seen)?,
            None => seen,
        };
        sums.insert(buffer.path.clone(), (sum, buffer.commit.clone()));
        Ok(())
    }

    /// Sets every buffer of `parameters` to its next value, if passes have added to it.
    ///
    /// # Errors
    /// [`Error::Load`] if `parameters` have no such buffer, or its next value has another shape.
    pub fn commit(self, parameters: &Parameters) -> Result<()> {
        let sums = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        if sums.is_empty() {
            return Ok(());
        }
        let buffers: BTreeMap<String, _> = parameters.buffers().into_iter().collect();
        for (path, (sum, commit)) in sums {
            let next = match buffers.get(&path) {
                Some(buffer) => {
                    let next = commit(&buffer.as_detached_tensor(), &sum)?;
                    (next.shape() == buffer.shape()).then_some((buffer, next))
                }
                None => None,
            };
            let Some((buffer, next)) = next else {
                let reason = "no buffer of this path and shape to commit to".to_owned();
                return Err(Error::Load { path, reason });
            };
            // The copy keeps a value that shares the buffer's storage from deadlocking with it.
            buffer.set(&next.copy()?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};
    use candle_nn::Init;

    use super::*;
    use crate::{Pass, RngKey};

    /// With the graph a sum would hold every activation of its passes.
    #[test]
    fn sums_keep_no_graph() {
        let parameters = Parameters::new(0, &Device::Cpu, DType::F64);
        let last: Commit = Arc::new(|_, sum| Ok(sum.clone()));
        let vb = parameters.builder();
        let buffer = vb.buffer(2, "mean", Init::Const(1.0), last).unwrap();
        let x = Var::new(&[1.0, 2.0], &Device::Cpu).unwrap();
        let updates = Updates::default();
        let pass = Pass::new(true, RngKey::new(0, 0, 0));
        for _ in 0..2 {
            let seen = x.sqr().unwrap();
            buffer.add(&seen, &pass.with_updates(&updates)).unwrap();
            let sums = updates.0.lock().unwrap();
            assert!(seen.track_op() && sums.values().all(|(sum, _)| !sum.track_op()));
        }
    }

    #[test]
    fn a_step_commits_the_sum_of_its_passes_once() {
        let parameters = Parameters::new(0, &Device::Cpu, DType::F64);
        let average: Commit = Arc::new(|old, sum| Ok(((old * 0.5)? + (sum * 0.5)?)?));
        let vb = parameters.builder();
        let buffer = vb
            .buffer(2, "mean", Init::Const(1.0), average.clone())
            .unwrap();
        let scoring = parameters.detached().builder();
        let scoring = scoring
            .buffer(2, "mean", Init::Const(1.0), average)
            .unwrap();
        let updates = Updates::default();
        let pass = Pass::new(true, RngKey::new(0, 0, 0));
        for seen in [[1.0, 2.0], [3.0, 4.0]] {
            let seen = Tensor::new(&seen, &Device::Cpu).unwrap();
            buffer.add(&seen, &pass.with_updates(&updates)).unwrap();
            buffer.add(&seen, &pass).unwrap();
        }
        let values = |buffer: &Buffer| buffer.value().to_vec1::<f64>().unwrap();
        assert_eq!(values(&buffer), [1.0, 1.0], "constant within a step");
        updates.commit(&parameters).unwrap();
        assert_eq!(values(&buffer), [2.5, 3.5]);
        assert_eq!(values(&scoring), [2.5, 3.5], "both models see it");
        assert_eq!((parameters.paths().len(), parameters.all().len()), (0, 0));
        assert_eq!(parameters.save().unwrap().len(), 1);
    }
}
