//! Blocks of positions as weighted sums of blocks: y_bush = Σ_w P_bhuw x_bwsh for block u of example b, place s within the
//! block and head h. With P a permutation the blocks change places.

use candle_core::Tensor;

use crate::{Result, kernels, layers::matmul::matmul};

/// Weights P (B, H, U, W) and x (B, W S, H E), W blocks of `block` = S positions, to (B, U S, H E).
///
/// # Errors
/// If shapes do not fit.
pub fn permute_blocks(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::permute_blocks(weights, x, block)?);
    }
    let ((batch, heads, outputs, blocks), row) = (weights.dims4()?, x.dim(2)?);
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
    use candle_core::{DType, Var};

    use super::*;
    use crate::layers::testing::{agree, check_gradient, normal};

    const SHAPES: [&[usize]; 2] = [&[2, 3, 2, 4], &[2, 12, 6]];

    #[test]
    fn the_kernel_and_the_composed_form_agree() {
        let inputs = ["weights", "x"].map(|path| normal(path, SHAPES[usize::from(path == "x")]));
        let inputs = inputs.map(|x| Var::from_tensor(&x).unwrap());
        for form in [permute_blocks, permute_blocks_beside] {
            let run = |dtype: DType| {
                let [weights, x] = inputs.each_ref().map(|x| x.to_dtype(dtype).unwrap());
                form(&weights, &x, 3).unwrap().to_dtype(DType::F64).unwrap()
            };
            agree(
                &run(DType::F32),
                &run(DType::F64),
                &inputs,
                1e-5,
                "block sort",
            );
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        for form in [permute_blocks, permute_blocks_beside] {
            check_gradient("block sort", &SHAPES, |inputs| {
                form(&inputs[0], &inputs[1], 3)
            });
        }
    }
}
