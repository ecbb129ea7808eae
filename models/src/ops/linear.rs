//! The linear map y = x Wᵀ + b over the last dimension.

use candle_core::Tensor;

use super::{check, matmul};
use crate::{Result, kernels};

/// x (.., K) times weight (N, K), as PyTorch keeps it, plus bias (N): (.., N).
///
/// # Errors
/// If shapes do not fit.
pub fn linear(x: &Tensor, weight: &Tensor, bias: Option<&Tensor>) -> Result<Tensor> {
    if kernels::supports(x) {
        return Ok(kernels::linear(x, weight, bias)?);
    }
    let (outputs, inputs) = weight.dims2()?;
    let mut dims = x.dims().to_vec();
    check(dims.last() == Some(&inputs), "linear", || {
        format!(
            "x {:?} and weight {:?} do not fit",
            x.shape(),
            weight.shape()
        )
    })?;
    let rows = x.elem_count() / inputs.max(1);
    if let Some(last) = dims.last_mut() {
        *last = outputs;
    }
    // One tall product instead of one per example: the weight's gradient is then one product too.
    let y = matmul(&x.reshape((rows, inputs))?, &weight.t()?)?;
    let y = match bias {
        Some(bias) => y.broadcast_add(bias)?,
        None => y,
    };
    Ok(y.reshape(dims)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, close, normal};

    fn with_bias(x: &[Tensor]) -> candle_core::Result<Tensor> {
        Ok(linear(&x[0], &x[1], x.get(2))?)
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(2);
        for (rows, n, k) in [
            (vec![1], 1, 1),
            (vec![3], 5, 7),
            (vec![2, 33], 17, 16),
            (vec![8], 10, 64),
            (vec![1000], 24, 40),
            (vec![5, 130], 300, 250),
        ] {
            let x = sampler.normal(&[rows.as_slice(), &[k]].concat(), 1.0);
            let inputs = [x, sampler.normal(&[n, k], 0.3), sampler.normal(&[n], 1.0)];
            agree("linear", &inputs, with_bias, with_bias);
            agree("linear without bias", &inputs[..2], with_bias, with_bias);
        }
    }

    #[test]
    fn a_transposed_input_and_a_constant_input_are_fine() {
        let mut sampler = Sampler::new(3);
        let constant = sampler.normal(&[6, 9], 1.0);
        let inputs = [sampler.normal(&[9, 4], 1.0), sampler.normal(&[5, 9], 1.0)];
        let both = |x: &[Tensor]| {
            let constant = constant.to_dtype(x[0].dtype())?;
            let turned = linear(&x[0].t()?, &x[1], None)?;
            Tensor::cat(&[turned, linear(&constant, &x[1], None)?], 0)
        };
        agree("linear", &inputs, both, both);
    }

    #[test]
    fn the_composed_form_is_the_sum_over_inputs() {
        let (x, weight, bias) = (
            normal("x", &[2, 3]),
            normal("w", &[4, 3]),
            normal("b", &[4]),
        );
        let y = linear(&x, &weight, Some(&bias)).unwrap();
        let (x, w): (Vec<Vec<f64>>, Vec<Vec<f64>>) =
            (x.to_vec2().unwrap(), weight.to_vec2().unwrap());
        let b: Vec<f64> = bias.to_vec1().unwrap();
        let wanted =
            |row: usize, out: usize| b[out] + (0..3).map(|i| x[row][i] * w[out][i]).sum::<f64>();
        let wanted: Vec<f64> = (0..8).map(|i| wanted(i / 4, i % 4)).collect();
        let wanted = Tensor::from_vec(wanted, (2, 4), &candle_core::Device::Cpu).unwrap();
        close(&y, &wanted, 1e-12, "linear");
    }

    #[test]
    fn gradients_are_difference_quotients() {
        check_gradient("linear", &[&[2, 2, 4], &[3, 4], &[3]], |x| {
            Ok(with_bias(x)?)
        });
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        for dtype in [candle_core::DType::F32, candle_core::DType::F64] {
            let x = |path, shape: &[usize]| normal(path, shape).to_dtype(dtype).unwrap();
            assert!(linear(&x("x", &[2, 3]), &x("w", &[4, 5]), None).is_err());
        }
    }
}
