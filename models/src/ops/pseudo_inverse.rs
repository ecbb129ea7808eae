//! Approximate pseudo-inverses by products alone. Razavi et al., 2014, as in Nyströmformer, arXiv:2102.03902.

use candle_core::{DType, Tensor};

use super::matmul::{count, exact_matmul};
use crate::{Result, kernels};

/// Z ← ¼ Z (13 I - A Z (15 I - A Z (7 I - A Z))), `iterations` times from Z = Aᵀ / (largest column sum of A), for matrices `a`
/// (B, H, M, M) whose entries are not negative. O(M³·iterations) time each; only A and Z are kept where A is f64 in main memory.
///
/// # Errors
/// If matrices are not square.
pub fn pseudo_inverse(a: &Tensor, iterations: usize) -> Result<Tensor> {
    match a.device().is_cpu() && a.dtype() == DType::F64 {
        true => {
            // Four products an iteration.
            let terms = a.dims().last().copied().unwrap_or(0);
            count((iterations * 8 * a.elem_count() * terms) as u64);
            Ok(kernels::pseudo_inverse(a, iterations)?)
        }
        false => composed(a, iterations),
    }
}

fn composed(a: &Tensor, iterations: usize) -> Result<Tensor> {
    let sums = a.sum_keepdim(2)?; // (B, H, 1, M)
    // Of equal sums the gradient goes to the first, as PyTorch's does; candle's maximum hands it to each of them.
    let largest = sums.gather(&sums.argmax_keepdim(3)?, 3)?; // (B, H, 1, 1)
    let mut z = a.t()?.contiguous()?.broadcast_div(&largest)?;
    let identity = Tensor::eye(a.dim(3)?, a.dtype(), a.device())?;
    let less = |factor: f64, x: &Tensor| -> Result<Tensor> {
        Ok(identity.affine(factor, 0.0)?.broadcast_sub(x)?)
    };
    for _ in 0..iterations {
        let az = exact_matmul(a, &z)?;
        let inner = less(15.0, &exact_matmul(&az, &less(7.0, &az)?)?)?;
        let outer = less(13.0, &exact_matmul(&az, &inner)?)?;
        z = exact_matmul(&z, &outer)?.affine(0.25, 0.0)?;
    }
    Ok(z)
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;
    use crate::ops::softmax;
    use crate::testing::{check_gradient, close, normal};

    type Form = fn(&Tensor, usize) -> Result<Tensor>;

    #[test]
    fn the_kernel_meets_the_composed_form() {
        for (batch, side, iterations) in [(1, 1, 2), (2, 3, 0), (1, 8, 6), (2, 19, 6), (1, 40, 9)] {
            let scores = normal("scores", &[batch, 2, side, side]);
            let a = softmax::masked(&scores, None).unwrap();
            let seed = normal("seed", &[batch, 2, side, side]);
            let run = |form: Form| {
                let a = Var::from_tensor(&a).unwrap();
                let z = form(&a, iterations).unwrap();
                let loss = (&z * &seed).unwrap().sum_all().unwrap();
                let da = loss.backward().unwrap().get(&a).unwrap().clone();
                [z.detach(), da]
            };
            let [found, wanted] = [run(pseudo_inverse), run(composed)];
            for (found, wanted) in found.iter().zip(&wanted) {
                let largest = wanted.abs().unwrap().max_all().unwrap();
                let largest = largest.to_scalar::<f64>().unwrap();
                close(found, wanted, 1e-11 * largest.max(1.0), "pseudo_inverse");
            }
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        check_gradient("pseudo_inverse", &[&[2, 1, 3, 3]], |inputs| {
            pseudo_inverse(&softmax::masked(&inputs[0], None)?, 4)
        });
    }

    #[test]
    fn the_iteration_finds_the_inverse() {
        let a = softmax::masked(&normal("scores", &[1, 2, 4, 4]), None).unwrap();
        let identity = Tensor::eye(4, DType::F64, &Device::Cpu).unwrap();
        let identity = identity.broadcast_as((1, 2, 4, 4)).unwrap();
        for form in [pseudo_inverse as Form, composed] {
            let z = form(&a, 30).unwrap();
            close(&a.matmul(&z).unwrap(), &identity, 1e-9, "A Z");
        }
    }

    #[test]
    fn matrices_that_are_not_square_are_errors() {
        for dtype in [DType::F32, DType::F64] {
            let a = normal("a", &[1, 1, 3, 4]).to_dtype(dtype).unwrap();
            assert!(pseudo_inverse(&a, 2).is_err());
        }
    }
}
