//! Masks of the valid positions of a batch.

use candle_core::{D, DType, Tensor};

use crate::Result;

/// Mask of the valid positions of B sequences of length L, in the forms that layers need. Each form
/// is a constant of B L numbers or fewer.
#[derive(Clone)]
pub struct Mask {
    valid: Tensor,
    additive: Tensor,
    any: Tensor,
    counted: bool,
}

/// Added to scores of padded keys: far below any score, far above the end of f32's range.
pub(crate) const PADDED: f64 = 1e9;

impl Mask {
    /// Builds a mask from `valid` (B, L), which is 1 for valid positions and 0 for padding. `valid`
    /// has the float type of the activations.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn new(valid: &Tensor) -> Result<Self> {
        let valid = valid.detach();
        let additive = valid.affine(PADDED, -PADDED)?;
        let any = valid.max_keepdim(D::Minus1)?;
        Ok(Self {
            valid,
            additive,
            any,
            counted: false,
        })
    }

    /// Returns the same mask for a block whose norm counts the outputs at padded positions, as
    /// `block.norm = batch` does. Layers must then compute padded positions as all others.
    #[must_use]
    pub(crate) fn counted(&self) -> Self {
        Self {
            counted: true,
            ..self.clone()
        }
    }

    /// Returns whether a norm counts the outputs of layers at padded positions: layers must then
    /// compute these positions in the same way as all others.
    #[must_use]
    pub(crate) fn is_counted(&self) -> bool {
        self.counted
    }

    /// Returns the mask (B, L): 1 for valid positions, 0 for padding.
    #[must_use]
    pub fn valid(&self) -> &Tensor {
        &self.valid
    }

    /// Returns (B, L): 0 for valid, a large negative number for padding.
    #[must_use]
    pub(crate) fn additive(&self) -> &Tensor {
        &self.additive
    }

    /// Returns (B, 1): 1 for each sequence that has a valid position, and 0 for others.
    #[must_use]
    pub(crate) fn has_valid(&self) -> &Tensor {
        &self.any
    }

    /// Returns the valid positions of each of `batch` sequences of `length`, in ascending order.
    /// Without a mask these are all positions. The mask is copied to the host.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn places(
        mask: Option<&Mask>,
        (batch, length): (usize, usize),
    ) -> Result<Vec<Vec<usize>>> {
        let Some(mask) = mask else {
            return Ok(vec![(0..length).collect(); batch]);
        };
        let rows = mask.valid().to_dtype(DType::F32)?.to_vec2::<f32>()?;
        let valid = |row: &Vec<f32>| (0..length).filter(|at| row[*at] != 0.0).collect();
        Ok(rows.iter().map(valid).collect())
    }
}

/// Returns x (B, L, W) with zeros at the positions that `mask` (B, L) says are padding, in the same
/// shape. Without a mask it is x itself.
///
/// # Errors
/// If a tensor operation fails.
pub fn zero_padding(x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    match mask {
        Some(mask) => Ok(x.broadcast_mul(&mask.valid().unsqueeze(2)?)?),
        None => Ok(x.clone()),
    }
}
