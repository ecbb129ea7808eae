//! The softmax cross-entropy.

use candle_core::{D, Tensor};

use crate::{Result, kernels};

/// Mean over the batch of the softmax cross-entropy, in nats: `mean_b(log sum_c exp x_bc - x_b,label)`.
///
/// `logits` is (B, C), `labels` (B) of type u32, each less than C. The result is a scalar.
///
/// # Errors
/// If shapes do not agree, or a tensor operation fails.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if kernels::supports(logits) {
        return Ok(kernels::cross_entropy(logits, labels)?);
    }
    let batch = logits.dim(0)?;
    let sum = composed(logits, labels)?.sum_all()?;
    Ok(sum.affine(1.0 / batch as f64, 0.0)?)
}

/// [`cross_entropy`] of every row for itself, (B).
///
/// # Errors
/// Those of [`cross_entropy`].
pub fn cross_entropies(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    if kernels::supports(logits) {
        return Ok(kernels::cross_entropies(logits, labels)?);
    }
    Ok(composed(logits, labels)?.squeeze(1)?)
}

/// (B, 1).
fn composed(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    // The maximum is a constant: it cancels, so no gradient has to pass through it.
    let max = logits.detach().max_keepdim(D::Minus1)?; // (B, 1)
    let shifted = logits.broadcast_sub(&max)?; // (B, C)
    let log_sum = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?; // (B, 1)
    let chosen = shifted.gather(&labels.unsqueeze(1)?, 1)?; // (B, 1)
    Ok((log_sum - chosen)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::check_gradient;

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(95);
        for (batch, classes, scale) in [
            (1, 1, 1.0),
            (3, 2, 5.0),
            (32, 10, 1.0),
            (5, 33, 40.0),
            (150, 7, 1.0),
        ] {
            let x = [sampler.normal(&[batch, classes], scale)];
            let labels: Vec<u32> = (0..batch).map(|b| (7 * b % classes) as u32).collect();
            let labels = Tensor::new(labels, &Device::Cpu).unwrap();
            let mean = |x: &[Tensor]| Ok(cross_entropy(&x[0], &labels)?);
            agree("cross-entropy", &x, mean, mean);
            let rows = |x: &[Tensor]| Ok(cross_entropies(&x[0], &labels)?);
            agree("cross-entropies", &x, rows, rows);
        }
    }

    #[test]
    fn what_is_not_a_number_stays_visible() {
        for dtype in [DType::F32, DType::F64] {
            let logits = Tensor::new(&[[f32::NAN, 0.0]], &Device::Cpu).unwrap();
            let labels = Tensor::new(&[1u32], &Device::Cpu).unwrap();
            let loss = cross_entropy(&logits.to_dtype(dtype).unwrap(), &labels).unwrap();
            let loss = loss.to_dtype(DType::F64).unwrap();
            assert!(loss.to_scalar::<f64>().unwrap().is_nan());
        }
    }

    #[test]
    fn labels_that_do_not_fit_are_errors() {
        for dtype in [DType::F32, DType::F64] {
            let logits = Tensor::zeros((2, 3), dtype, &Device::Cpu).unwrap();
            for labels in [vec![0u32], vec![0, 3]] {
                let labels = Tensor::new(labels, &Device::Cpu).unwrap();
                assert!(cross_entropy(&logits, &labels).is_err());
            }
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let labels = Tensor::new(&[2u32, 0], &Device::Cpu).unwrap();
        check_gradient("cross-entropy", &[&[2, 3]], |x| {
            cross_entropy(&x[0], &labels)
        });
        check_gradient("cross-entropies", &[&[2, 3]], |x| {
            cross_entropies(&x[0], &labels)
        });
    }

    #[test]
    fn value_and_gradient_are_those_of_the_formula() {
        // Rows far from zero: without the shift, exp would overflow even in f64.
        let rows = [[1000.0, 1001.0, 998.0], [-3.0, 0.5, 2.0f64]];
        let labels = [2u32, 0];
        let logits = Var::new(&rows, &Device::Cpu).unwrap();
        let loss = cross_entropy(&logits, &Tensor::new(&labels, &Device::Cpu).unwrap()).unwrap();
        let gradient = loss
            .backward()
            .unwrap()
            .get(&logits)
            .unwrap()
            .to_vec2()
            .unwrap();
        let mut expected = 0.0;
        for (row, (values, label)) in rows.iter().zip(labels).enumerate() {
            let max = values.iter().fold(f64::MIN, |a, &b| a.max(b));
            let sum: f64 = values.iter().map(|x| (x - max).exp()).sum();
            expected += (sum.ln() + max - values[label as usize]) / 2.0;
            for (class, x) in values.iter().enumerate() {
                let one = f64::from(class == label as usize);
                let wanted: f64 = ((x - max).exp() / sum - one) / 2.0;
                let found: f64 = gradient[row][class];
                assert!((wanted - found).abs() < 1e-12, "{wanted} {found}");
            }
        }
        assert!((loss.to_scalar::<f64>().unwrap() - expected).abs() < 1e-12);
    }
}
