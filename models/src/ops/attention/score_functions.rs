//! Functions of each score between all additions and the softmax.
//!
//! A further function is a field of [`ScoreFunctions`], with its check, its tensor operations and
//! its word for GPUs here; a step of `cpu/score_mod.rs`; and a step of `score_functions.cuh`.

use candle_core::{Result, Tensor, bail};

/// Functions of each score, applied in the order of the fields. By default there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ScoreFunctions {
    /// Bound c of the scores: a score z becomes c tanh(z / c). `None` for no bound.
    pub soft_cap: Option<f64>,
}

impl ScoreFunctions {
    /// Returns whether scores stay as they are.
    pub(crate) fn is_identity(self) -> bool {
        self == Self::default()
    }

    /// Refuses bounds that are not positive numbers, in the name of an operation.
    pub(super) fn check(self, name: &str) -> Result<()> {
        if let Some(cap) = self.soft_cap
            && !(cap > 0.0 && cap.is_finite())
        {
            bail!("{name}: a soft cap of {cap:?} is not above 0");
        }
        Ok(())
    }

    /// Returns `scores`, of any shape, after all functions, by tensor operations.
    pub(super) fn apply(self, scores: &Tensor) -> Result<Tensor> {
        match self.soft_cap {
            Some(cap) => scores.affine(cap.recip(), 0.0)?.tanh()?.affine(cap, 0.0),
            None => Ok(scores.clone()),
        }
    }

    /// Returns the members of the struct of the same name in `score_functions.cuh`.
    pub(super) fn words(self) -> [u32; 1] {
        [(self.soft_cap.unwrap_or(0.0) as f32).to_bits()]
    }
}
