//! Rotary positions. Su et al., 2021, "RoFormer", arXiv:2104.09864.
//!     (x_2c, x_2c+1) of position t ← the pair rotated by t·10000^{-2 c / E}, for queries and keys of each head
//! so that q_i·k_j depends on contents and i - j. Neighbouring columns form a pair, as in the
//! paper. An odd last column is not rotated. Mixers with features of queries and keys rotate before
//! the features, so that the features, and the sums in the denominator, stay positive. The paper
//! rotates the features, and only in the numerator.

use candle_core::Tensor;

use crate::{Result, ops};

/// Rotations of heads E wide.
pub struct Rotary {
    width: usize,
}

impl Rotary {
    /// Builds the rotation for heads of this width.
    #[must_use]
    pub fn new(width: usize) -> Self {
        Self { width }
    }

    /// Returns x (B, L, W) with its first `columns`, heads side by side, rotated by position. The
    /// other columns stay as they are.
    ///
    /// # Errors
    /// If `columns` is no multiple of the width or more than there are.
    pub fn forward(&self, x: &Tensor, columns: usize) -> Result<Tensor> {
        ops::rotary(x, 0, columns, self.width)
    }
}
