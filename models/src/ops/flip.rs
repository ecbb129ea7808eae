//! Sequences in the opposite order, from the last position to the first.

use std::sync::Arc;

use candle_core::{Error, Tensor};

use super::move_rows;
use crate::Result;

/// Returns x (B, L, ..) with the positions of each sequence in the opposite order, in the same
/// shape.
///
/// # Errors
/// If x has fewer than two axes, or more positions than a u32 can number.
pub fn flip(x: &Tensor) -> Result<Tensor> {
    let (batch, length) = (x.dim(0)?, x.dim(1)?);
    let count = u32::try_from(batch * length).map_err(Error::wrap)?;
    let place = |row: u32| {
        let row = row as usize;
        (row / length * length + length - 1 - row % length) as u32
    };
    let places: Arc<[u32]> = (0..count).map(place).collect();
    if x.elem_count() == 0 {
        return Ok(x.clone());
    }
    let rows = x.reshape((1, batch * length, ()))?;
    Ok(move_rows(&rows, &places, &places)?.reshape(x.shape())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::testing::{Sampler, agree},
        testing::{check_gradient, close, normal},
    };

    #[test]
    fn nothing_is_flipped_to_nothing() {
        for shape in [[0, 5, 4], [2, 0, 4], [2, 5, 0]] {
            for dtype in [candle_core::DType::F32, candle_core::DType::F64] {
                let x = Tensor::zeros(&shape[..], dtype, &candle_core::Device::Cpu).unwrap();
                assert_eq!(flip(&x).unwrap().dims(), shape, "{dtype:?}");
            }
        }
    }

    #[test]
    fn positions_are_in_the_opposite_order() {
        let x = normal("x", &[2, 3, 4]);
        let y = flip(&x).unwrap();
        for t in 0..3 {
            let [y, x] = [(&y, t), (&x, 2 - t)].map(|(x, t)| x.narrow(1, t, 1).unwrap());
            close(&y, &x, 1e-15, "flipped");
        }
        let inputs = [Sampler::new(191).normal(&[3, 5, 2, 4], 1.0)];
        let f = |x: &[Tensor]| Ok(flip(&x[0])?);
        agree("flip", &inputs, f, f);
        check_gradient("flip", &[&[2, 3, 4]], |x| flip(&x[0]));
    }
}
