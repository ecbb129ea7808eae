//! The inputs of the positions before (RWKV's token shift).

use candle_core::Tensor;

use crate::{Mask, Result, mask::zero_padding};

/// Returns x (B, L, D) moved by one position: each position has the input of the one before it, the
/// first one, and one behind padding, zeros.
///
/// # Errors
/// If a tensor operation fails.
pub fn previous(x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let length = x.dim(1)?;
    let x = zero_padding(x, mask)?.pad_with_zeros(1, 1, 0)?;
    Ok(x.narrow(1, 0, length)?.contiguous()?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;

    #[test]
    fn positions_have_the_inputs_before_them() {
        let x = Tensor::new(&[[[1.0f64], [2.0], [3.0]]], &Device::Cpu).unwrap();
        let mask = Mask::new(&Tensor::new(&[[0.0f64, 1.0, 1.0]], &Device::Cpu).unwrap()).unwrap();
        let row = |mask| {
            let y = previous(&x, mask).unwrap();
            y.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        };
        assert_eq!(row(None), [0.0, 1.0, 2.0]);
        assert_eq!(row(Some(&mask)), [0.0, 0.0, 2.0]);
    }
}
