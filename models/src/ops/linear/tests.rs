use super::*;
use crate::ops::testing::{Sampler, agree};
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
fn a_large_weight_gets_zeros_from_outputs_without_a_gradient() {
    let mut sampler = Sampler::new(4);
    let inputs = [
        sampler.normal(&[2, 250], 1.0),
        sampler.normal(&[300, 250], 0.3),
    ];
    let f = |x: &[Tensor]| {
        let y = linear(&x[0], &x[1], None)?;
        &y * y.zeros_like()?
    };
    agree("linear times zero", &inputs, f, f);
}

#[test]
fn a_transposed_input_and_constant_operands_are_fine() {
    let mut sampler = Sampler::new(3);
    let constant = sampler.normal(&[6, 9], 1.0);
    let inputs = [sampler.normal(&[9, 4], 1.0), sampler.normal(&[5, 9], 1.0)];
    let both = |x: &[Tensor]| {
        let constant = constant.to_dtype(x[0].dtype())?;
        let turned = linear(&x[0].t()?, &x[1], None)?;
        Tensor::cat(&[turned, linear(&constant, &x[1], None)?], 0)
    };
    agree("linear", &inputs, both, both);
    let weight = sampler.normal(&[5, 9], 1.0);
    let inputs = [constant.clone(), sampler.normal(&[5], 1.0)];
    let f = |x: &[Tensor]| {
        let weight = weight.to_dtype(x[0].dtype())?;
        Ok(linear(&x[0], &weight, Some(&x[1]))?)
    };
    agree("linear by a constant weight", &inputs, f, f);
}

#[test]
fn the_composed_form_is_the_sum_over_inputs() {
    let (x, weight, bias) = (
        normal("x", &[2, 3]),
        normal("w", &[4, 3]),
        normal("b", &[4]),
    );
    let y = linear(&x, &weight, Some(&bias)).unwrap();
    let (x, w): (Vec<Vec<f64>>, Vec<Vec<f64>>) = (x.to_vec2().unwrap(), weight.to_vec2().unwrap());
    let b: Vec<f64> = bias.to_vec1().unwrap();
    let expected =
        |row: usize, out: usize| b[out] + (0..3).map(|i| x[row][i] * w[out][i]).sum::<f64>();
    let expected: Vec<f64> = (0..8).map(|i| expected(i / 4, i % 4)).collect();
    let expected = Tensor::from_vec(expected, (2, 4), &candle_core::Device::Cpu).unwrap();
    close(&y, &expected, 1e-12, "linear");
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
