//! Blocks of positions as weighted sums of blocks: y_bush = Σ_w P_bhuw x_bwsh for block u of example b, place s within the
//! block and head h. With P a permutation the blocks change places.

use candle_core::Tensor;

use super::{check, matmul};
use crate::{Result, kernels};

/// Weights P (B, H, U, W) and x (B, W S, H E), W blocks of `block` = S positions, to (B, U S, H E).
///
/// # Errors
/// If shapes do not fit.
pub fn permute_blocks(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::permute_blocks(weights, x, block)?);
    }
    let ((batch, heads, outputs, blocks), row) = (weights.dims4()?, x.dim(2)?);
    let fits = x.dims() == [batch, blocks * block, row] && row.is_multiple_of(heads);
    check(fits, "permute_blocks", || {
        let (weights, x) = (weights.shape(), x.shape());
        format!("weights {weights:?} and x {x:?} in blocks of {block} do not fit")
    })?;
    let width = row / heads;
    let x = x.reshape((batch, blocks, block, heads, width))?;
    let x = x.permute((0, 3, 1, 2, 4))?; // (B, H, W, S, E)
    let x = x.reshape((batch, heads, blocks, block * width))?;
    let y = matmul(&weights.contiguous()?, &x)?;
    let y = y.reshape((batch, heads, outputs, block, width))?;
    let y = y.permute((0, 2, 3, 1, 4))?; // (B, U, S, H, E)
    Ok(y.reshape((batch, outputs * block, row))?)
}

/// The same, and behind it x itself: (B, (U + W) S, H E).
///
/// # Errors
/// If shapes do not fit.
pub fn permute_blocks_beside(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::permute_blocks_packed(weights, x, block)?);
    }
    Ok(Tensor::cat(&[&permute_blocks(weights, x, block)?, x], 1)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, close, normal};

    const SHAPES: [&[usize]; 2] = [&[2, 3, 2, 4], &[2, 12, 6]];

    #[test]
    fn the_kernels_meet_their_composed_forms() {
        let mut sampler = Sampler::new(61);
        for (batch, heads, outputs, inputs, block, width) in [
            (1, 1, 1, 1, 1, 1),
            (2, 3, 5, 4, 3, 7),
            (2, 2, 2, 9, 16, 8),
            (1, 2, 17, 17, 8, 33),
        ] {
            let operands = [
                sampler.normal(&[batch, heads, outputs, inputs], 1.0),
                sampler.normal(&[batch, inputs * block, heads * width], 1.0),
            ];
            for form in [permute_blocks, permute_blocks_beside] {
                let f = |x: &[Tensor]| Ok(form(&x[0], &x[1], block)?);
                agree("block permutation", &operands, f, f);
            }
        }
    }

    #[test]
    fn a_permutation_moves_whole_blocks() {
        // Blocks of two positions, the first and the last changed over.
        let swap = [[[[0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0f64]]]];
        let swap = Tensor::new(&swap, &Device::Cpu).unwrap();
        let x = normal("x", &[1, 6, 3]);
        let blocks = [2, 1, 0].map(|block| x.narrow(1, 2 * block, 2).unwrap());
        let wanted = Tensor::cat(&blocks, 1).unwrap();
        close(
            &permute_blocks(&swap, &x, 2).unwrap(),
            &wanted,
            1e-12,
            "swap",
        );
        let beside = Tensor::cat(&[&wanted, &x], 1).unwrap();
        close(
            &permute_blocks_beside(&swap, &x, 2).unwrap(),
            &beside,
            1e-12,
            "swap",
        );
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        for dtype in [DType::F32, DType::F64] {
            let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
            let weights = normal(&[1, 2, 3, 3]);
            assert!(permute_blocks(&weights, &normal(&[1, 8, 4]), 3).is_err());
            assert!(permute_blocks(&weights, &normal(&[1, 9, 3]), 3).is_err());
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        for form in [permute_blocks, permute_blocks_beside] {
            check_gradient("block permutation", &SHAPES, |inputs| {
                form(&inputs[0], &inputs[1], 3)
            });
        }
    }
}
