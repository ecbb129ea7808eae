use candle_core::Device;

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

/// Operands with decays within the unit circle.
fn scan_of(x: &[Tensor], f: impl Fn(&BlockScan) -> Result<Tensor>) -> Result<Tensor> {
    let decays = (x[0].tanh()? * 0.7)?;
    f(&BlockScan {
        decays: &decays,
        inputs: &x[1],
        bias: &x[2],
        outputs: &x[3],
        values: &x[4],
    })
}

fn steps(operands: &BlockScan) -> Result<Tensor> {
    composed([
        operands.decays,
        operands.inputs,
        operands.bias,
        operands.outputs,
        operands.values,
    ])
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(347);
    for [batch, length, blocks, states, width] in [
        [1, 1, 1, 1, 1],
        [2, 33, 2, 5, 9],
        [1, 70, 3, 4, 8],
        [5, 6, 1, 3, 17],
    ] {
        let row = [batch, length, blocks, 2 * states];
        let inputs = vec![
            sampler.normal(&row, 1.0),
            sampler.normal(&row, 1.0),
            sampler.normal(&[blocks, 2 * states, width], 1.0),
            sampler.normal(&row, 1.0),
            sampler.normal(&[batch, length, blocks, width], 1.0),
        ];
        let fused = |x: &[Tensor]| Ok(scan_of(x, block_scan)?);
        let steps = |x: &[Tensor]| Ok(scan_of(x, steps)?);
        agree("block scan", &inputs, fused, steps);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let row: &[usize] = &[2, 3, 2, 4];
    let (bias, values): (&[usize], &[usize]) = (&[2, 4, 3], &[2, 3, 2, 3]);
    let shapes = [row, row, bias, row, values];
    check_gradient("block scan by steps", &shapes, |x| scan_of(x, steps));
    check_gradient("block scan in f64", &shapes, |x| scan_of(x, block_scan));
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let (row, values) = (normal("x", &[2, 3, 2, 4]), normal("v", &[2, 3, 2, 3]));
    let (bias, other) = (normal("b", &[2, 4, 3]), normal("b", &[2, 3, 4]));
    let of = |bias| BlockScan {
        decays: &row,
        inputs: &row,
        bias,
        outputs: &row,
        values: &values,
    };
    assert_eq!(block_scan(&of(&bias)).unwrap().dims(), values.dims());
    let error = block_scan(&of(&other)).unwrap_err().to_string();
    assert!(error.contains("do not fit"), "{error}");
    // A row of three numbers has no half.
    let (odd, odd_bias) = (row.narrow(3, 0, 3).unwrap(), bias.narrow(1, 0, 3).unwrap());
    let odd = BlockScan {
        decays: &odd,
        inputs: &odd,
        outputs: &odd,
        ..of(&odd_bias)
    };
    assert!(block_scan(&odd).is_err());
    let none = Tensor::zeros((2, 0, 2, 4), DType::F64, &Device::Cpu).unwrap();
    let no_values = Tensor::zeros((2, 0, 2, 3), DType::F64, &Device::Cpu).unwrap();
    let all = BlockScan {
        decays: &none,
        inputs: &none,
        outputs: &none,
        values: &no_values,
        ..of(&bias)
    };
    assert_eq!(block_scan(&all).unwrap().dims(), [2, 0, 2, 3]);
}
