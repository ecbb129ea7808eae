//! The inputs of the positions before (RWKV's token shift) and behind.

use candle_core::Tensor;

use crate::{Mask, Result, mask::zero_padding};

/// Returns x (B, L, D) moved by one position, in the same shape. Each position has the input of the
/// position before it. The first position, and one behind padding, has zeros.
///
/// # Errors
/// If a tensor operation fails.
pub fn previous(x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let length = x.dim(1)?;
    let x = zero_padding(x, mask)?.pad_with_zeros(1, 1, 0)?;
    Ok(x.narrow(1, 0, length)?.contiguous()?)
}

/// Returns x (B, L, D) moved by one position the other way, in the same shape. Each position has
/// the input of the position behind it. The last position, and one before padding, has zeros.
///
/// # Errors
/// If a tensor operation fails.
pub fn following(x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let length = x.dim(1)?;
    let x = zero_padding(x, mask)?.pad_with_zeros(1, 0, 1)?;
    Ok(x.narrow(1, 1, length)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn positions_have_the_inputs_of_their_neighbours() {
        let x = Tensor::new(&[[[1.0f64], [2.0], [3.0]]], &Device::Cpu).unwrap();
        let real = |real: [f64; 3]| {
            let real = Tensor::new(&[real], &Device::Cpu).unwrap();
            Some(Mask::new(&real).unwrap())
        };
        let row = |y: Tensor| y.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let before = |mask: Option<Mask>| row(previous(&x, mask.as_ref()).unwrap());
        let behind = |mask: Option<Mask>| row(following(&x, mask.as_ref()).unwrap());
        assert_eq!(before(None), [0.0, 1.0, 2.0]);
        assert_eq!(before(real([0.0, 1.0, 1.0])), [0.0, 0.0, 2.0]);
        assert_eq!(behind(None), [2.0, 3.0, 0.0]);
        assert_eq!(behind(real([1.0, 1.0, 0.0])), [2.0, 0.0, 0.0]);
    }
}
