//! Complex numbers as two real tensors, candle having no complex type.
//!
//! A gradient is that of the real part plus i times that of the imaginary part, as in PyTorch; so
//! the gradient of a factor in z = a b is dz b̄.

use candle_core::{D, Tensor};

use crate::Result;

/// Tensor of complex numbers: real and imaginary parts, of the same shape.
#[derive(Clone, Debug)]
pub struct Complex {
    /// Real parts, of any shape.
    pub re: Tensor,
    /// Imaginary parts, in the shape of the real parts.
    pub im: Tensor,
}

impl Complex {
    /// Returns the complex numbers with real parts `re` and imaginary parts `im`, of the same
    /// shape.
    #[must_use]
    pub fn new(re: Tensor, im: Tensor) -> Self {
        Self { re, im }
    }

    /// Returns the halves of the last axis: first all real parts, then all imaginary parts.
    ///
    /// # Errors
    /// If the last axis has an odd length.
    pub(crate) fn from_planes(planes: &Tensor) -> Result<Self> {
        let width = planes.dim(D::Minus1)?;
        super::check(width % 2 == 0, "complex", || {
            format!("{:?} does not end in two halves", planes.shape())
        })?;
        let half = |from| planes.narrow(D::Minus1, from, width / 2);
        Ok(Self::new(half(0)?, half(width / 2)?))
    }

    /// Returns the numbers (.., W) as one real tensor (.., 2 W): real parts, then imaginary parts
    /// along the last axis.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn planes(&self) -> Result<Tensor> {
        Ok(Tensor::cat(&[&self.re, &self.im], D::Minus1)?)
    }

    /// Returns the products of the elements of `self` and `other`, whose shapes broadcast.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn mul(&self, other: &Self) -> Result<Self> {
        let product = |a: &Tensor, b: &Tensor| a.broadcast_mul(b);
        let re = (product(&self.re, &other.re)? - product(&self.im, &other.im)?)?;
        let im = (product(&self.re, &other.im)? + product(&self.im, &other.re)?)?;
        Ok(Self::new(re, im))
    }

    /// Returns the quotients of the elements of `self` and `other`, whose shapes broadcast.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub fn div(&self, other: &Self) -> Result<Self> {
        let square = (other.re.sqr()? + other.im.sqr()?)?.recip()?;
        let inverse = Self::new((&other.re * &square)?, (other.im.neg()? * square)?);
        self.mul(&inverse)
    }

    /// Returns eᶻ = e^(Re z) (cos Im z + i sin Im z) of every element z, in the same shape.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn exp(&self) -> Result<Self> {
        let modulus = self.re.exp()?;
        Ok(Self::new(
            (&modulus * self.im.cos()?)?,
            (modulus * self.im.sin()?)?,
        ))
    }

    /// Returns every element times `factor` plus `shift`, both real, in the same shape.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn affine(&self, factor: f64, shift: f64) -> Result<Self> {
        Ok(Self::new(
            self.re.affine(factor, shift)?,
            (&self.im * factor)?,
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, close, normal};

    #[test]
    fn quotients_and_exponentials_are_those_of_complex_numbers() {
        let of = |name: &str| Complex::new(normal(name, &[5]), normal(&format!("i {name}"), &[5]));
        let (a, b) = (of("a"), of("b"));
        let back = a.div(&b).unwrap().mul(&b).unwrap();
        close(&back.re, &a.re, 1e-12, "re");
        close(&back.im, &a.im, 1e-12, "im");
        let sum = Complex::new((&a.re + &b.re).unwrap(), (&a.im + &b.im).unwrap());
        let product = a.exp().unwrap().mul(&b.exp().unwrap()).unwrap();
        close(&sum.exp().unwrap().re, &product.re, 1e-12, "exp re");
        close(&sum.exp().unwrap().im, &product.im, 1e-12, "exp im");
        check_gradient("quotient of exponentials", &[&[3], &[3], &[3], &[3]], |x| {
            let [a, b] = [0, 2].map(|at| Complex::new(x[at].clone(), x[at + 1].clone()));
            a.exp()?.div(&b.affine(0.5, 3.0)?)?.planes()
        });
    }
}
