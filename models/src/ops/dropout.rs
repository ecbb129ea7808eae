//! Dropout with a mask that is a function of (stream, example, element): y = m ⊙ x, m = 0 with probability `rate`, else 1 / (1 - rate).
//!
//! Srivastava et al., 2014, JMLR 15. Masks are drawn again for the backward pass and kept by nobody.

use candle_core::Tensor;

use crate::{Packing, Result, kernels, rng::Stream};

/// Which elements of x (B, ..) are dropped.
#[derive(Clone, Copy)]
pub struct DropoutMask<'a> {
    /// Where random numbers come from, a row for each example.
    pub stream: Stream,
    /// The probability, in [0, 1).
    pub rate: f64,
    /// Whether the positions of an example share one mask, x being (B, L, D) (Gal and Ghahramani, 2015, arXiv:1512.05287).
    pub tied: bool,
    /// How the examples are packed, if they are, x being (1, T, D). Each drops what it drops in the padded batch.
    pub packing: Option<&'a Packing>,
}

impl DropoutMask<'_> {
    /// One number for each element of a batch that is not packed.
    #[must_use]
    pub fn new(stream: &Stream, rate: f64) -> Self {
        Self {
            stream: *stream,
            rate,
            tied: false,
            packing: None,
        }
    }

    pub(super) fn options(&self) -> kernels::DropoutOptions {
        kernels::DropoutOptions {
            stream: self.stream,
            rate: self.rate,
            tied: self.tied,
            offsets: self.packing.map(|packing| packing.offsets().clone()),
        }
    }

    /// m, of a shape that broadcasts to that of x.
    fn composed(&self, x: &Tensor) -> Result<Tensor> {
        let (mut shape, width) = (x.dims().to_vec(), x.dim(candle_core::D::Minus1)?);
        if let Some(packing) = self.packing {
            let (batch, length) = packing.mask().valid().dims2()?;
            shape = vec![batch, length, width];
        }
        let all = shape.clone();
        if self.tied {
            let positions = 1..shape.len().saturating_sub(1);
            shape[positions].fill(1);
        }
        let mask = self
            .stream
            .mask_tensor(&shape.into(), self.rate, x.dtype(), x.device())?;
        match self.packing {
            Some(packing) => packing.pack(&mask.broadcast_as(all)?.contiguous()?),
            None => Ok(mask),
        }
    }
}

/// x (B, ..) with elements zeroed as `mask` says, and the others scaled by 1 / (1 - rate).
///
/// # Errors
/// If x is not packed as the mask says.
pub fn dropout(x: &Tensor, mask: &DropoutMask) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::dropout(x, mask.options())?);
    }
    Ok(x.broadcast_mul(&mask.composed(x)?)?)
}

/// `residual` plus the dropped-out x, of the same shape.
///
/// # Errors
/// If the shapes differ, or x is not packed as the mask says.
pub fn add_dropped(residual: &Tensor, x: &Tensor, mask: &DropoutMask) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::add_dropped(residual, x, mask.options())?);
    }
    Ok((residual + dropout(x, mask)?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::Mask;
    use crate::kernels::reference::{Sampler, agree};
    use crate::rng::{RngKey, StreamKey};
    use crate::testing::{check_gradient, normal};

    fn stream() -> Stream {
        RngKey::new(1, 2, 3).per_example(StreamKey::new("drop"))
    }

    #[test]
    fn the_kernel_and_the_composed_form_drop_the_same_elements() {
        let mut sampler = Sampler::new(14);
        // The last has more elements in a row than the kernel draws at a time.
        for shape in [vec![3, 7], vec![2, 40, 65], vec![2, (1 << 14) + 100]] {
            let inputs = [sampler.normal(&shape, 1.0), sampler.normal(&shape, 1.0)];
            let f = |x: &[Tensor]| Ok(dropout(&x[0], &DropoutMask::new(&stream(), 0.3))?);
            agree("dropout", &inputs[..1], f, f);
            let f = |x: &[Tensor]| {
                Ok(add_dropped(
                    &x[0],
                    &x[1],
                    &DropoutMask::new(&stream(), 0.3),
                )?)
            };
            agree("dropout and residual", &inputs, f, f);
        }
    }

    #[test]
    fn packed_examples_drop_what_padded_ones_do() {
        let mut sampler = Sampler::new(15);
        let lengths = [70, 1, 40];
        let row = |length: usize| (0..70).map(move |l| f64::from(u8::from(l < length)));
        let real: Vec<f64> = lengths.into_iter().flat_map(row).collect();
        let real = Tensor::from_vec(real, (3, 70), &Device::Cpu).unwrap();
        let packing = Packing::new(&Mask::new(&real).unwrap()).unwrap().unwrap();
        let inputs = [sampler.normal(&[3, 70, 300], 1.0)];
        for tied in [false, true] {
            let padded = DropoutMask {
                tied,
                ..DropoutMask::new(&stream(), 0.3)
            };
            let packed = DropoutMask {
                packing: Some(&packing),
                ..padded
            };
            agree(
                "packed",
                &inputs,
                |x| Ok(dropout(&packing.pack(&x[0])?, &packed)?),
                |x| Ok(packing.pack(&dropout(&x[0], &padded)?)?),
            );
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        check_gradient("dropout", &[&[3, 5], &[3, 5]], |x| {
            add_dropped(&x[0], &x[1], &DropoutMask::new(&stream(), 0.4))
        });
    }

    #[test]
    fn elements_are_dropped_at_the_rate_and_others_scaled() {
        let x = normal("x", &[4, 1000]).ones_like().unwrap();
        let y = dropout(&x, &DropoutMask::new(&stream(), 0.25)).unwrap();
        let y = y.flatten_all().unwrap();
        let y: Vec<f64> = y.to_vec1().unwrap();
        let dropped = y.iter().filter(|y| **y == 0.0).count();
        // Of 4,000, with a deviation of 27.
        assert!((900..1100).contains(&dropped), "{dropped}");
        let kept = 1.0 / 0.75;
        assert!(y.iter().all(|y| *y == 0.0 || (y - kept).abs() < 1e-6));
    }
}
