//! Complex numbers as two real tensors, candle having no complex type.
//!
//! A gradient is that of the real part plus i times that of the imaginary part, as in PyTorch; so the gradient of a
//! factor in z = a b is dz b̄.

use candle_core::{D, Tensor};

use crate::Result;

/// Complex numbers; both tensors have the same shape.
#[derive(Clone, Debug)]
pub struct Complex {
    /// Real parts.
    pub re: Tensor,
    /// Imaginary parts.
    pub im: Tensor,
}

impl Complex {
    /// Two tensors of the same shape.
    #[must_use]
    pub fn new(re: Tensor, im: Tensor) -> Self {
        Self { re, im }
    }

    /// The halves of the last axis: first all real parts, then all imaginary parts.
    ///
    /// # Errors
    /// If the last axis has an odd length.
    pub fn from_planes(planes: &Tensor) -> Result<Self> {
        let width = planes.dim(D::Minus1)?;
        super::check(width % 2 == 0, "complex", || {
            format!("{:?} does not end in two halves", planes.shape())
        })?;
        let half = |from| planes.narrow(D::Minus1, from, width / 2);
        Ok(Self::new(half(0)?, half(width / 2)?))
    }

    /// Real parts, then imaginary parts along the last axis.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn planes(&self) -> Result<Tensor> {
        Ok(Tensor::cat(&[&self.re, &self.im], D::Minus1)?)
    }

    /// a b, shapes broadcast.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn mul(&self, other: &Self) -> Result<Self> {
        let product = |a: &Tensor, b: &Tensor| a.broadcast_mul(b);
        let re = (product(&self.re, &other.re)? - product(&self.im, &other.im)?)?;
        let im = (product(&self.re, &other.im)? + product(&self.im, &other.re)?)?;
        Ok(Self::new(re, im))
    }
}
