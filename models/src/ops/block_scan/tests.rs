use candle_core::{DType, Device, Tensor};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

/// Operands with positive steps, and rates with negative real parts.
fn scan_of(x: &[Tensor], f: impl Fn(&BlockScan) -> Result<Tensor>) -> Result<Tensor> {
    let steps = x[1].sqr()?.affine(0.5, 0.01)?;
    let rates = Complex::from_planes(&x[3])?;
    let rates = Complex::new(rates.re.sqr()?.affine(-1.0, -0.1)?, (rates.im * 3.0)?);
    f(&BlockScan {
        values: &x[0],
        steps: &steps,
        selection: &x[2],
        rates: &rates.planes()?,
        bias: &x[4],
    })
}

fn shapes([batch, length, blocks, states, width]: [usize; 5]) -> [Vec<usize>; 5] {
    let channels = vec![batch, length, blocks, width];
    [
        channels.clone(),
        channels,
        vec![batch, length, blocks, 3 * states],
        vec![2 * states],
        vec![blocks, 2 * states, width],
    ]
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(347);
    for sizes in [
        [1, 1, 1, 1, 1],
        [2, 33, 2, 5, 9],
        [1, 70, 3, 4, 8],
        [5, 6, 1, 3, 17],
    ] {
        let inputs: Vec<Tensor> = shapes(sizes)
            .iter()
            .map(|shape| sampler.normal(shape, 1.0))
            .collect();
        let fused = |x: &[Tensor]| Ok(scan_of(x, block_scan)?);
        let steps = |x: &[Tensor]| Ok(scan_of(x, composed)?);
        agree("block scan", &inputs, fused, steps);
    }
}

/// e^(δ a) - 1 keeps its digits where δ a is small, over some thousand positions.
#[test]
fn short_steps_keep_their_digits() {
    let mut sampler = Sampler::new(348);
    let [values, _, selection, _, bias] = shapes([1, 2_000, 1, 2, 3]);
    let [values, selection, bias] =
        [values, selection, bias].map(|shape| sampler.normal(&shape, 1.0));
    let steps = (values.ones_like().unwrap() * 1e-5).unwrap();
    let rates = Tensor::new(&[-0.5, -0.25, 0.0, 3.0], &Device::Cpu).unwrap();
    let of = |dtype| {
        let to = |x: &Tensor| x.to_dtype(dtype).unwrap();
        let y = block_scan(&BlockScan {
            values: &to(&values),
            steps: &to(&steps),
            selection: &to(&selection),
            rates: &to(&rates),
            bias: &to(&bias),
        });
        let y = y.unwrap().flatten_all().unwrap();
        y.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap()
    };
    let (got, expected) = (of(DType::F32), of(DType::F64));
    let largest = expected.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
    for (got, expected) in got.iter().zip(&expected) {
        assert!((got - expected).abs() < 1e-5 * largest, "{got} {expected}");
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let shapes = shapes([2, 3, 2, 2, 3]);
    let shapes = shapes.each_ref().map(Vec::as_slice);
    check_gradient("block scan", &shapes, |x| scan_of(x, block_scan));
}

/// At steps of zero, positions leave the states as they were.
#[test]
fn a_step_of_zero_writes_nothing() {
    let [values, _, selection, rates, bias] = shapes([1, 5, 1, 2, 3]);
    let rates = normal("a", &rates).abs().unwrap().neg().unwrap();
    let (values, selection, bias) = (
        normal("v", &values),
        normal("s", &selection),
        normal("b", &bias),
    );
    let of = |steps: [f64; 5]| {
        let steps = Tensor::new(&steps, &Device::Cpu).unwrap();
        let steps = steps.reshape((1, 5, 1, 1)).unwrap();
        let steps = steps.broadcast_as(values.shape()).unwrap();
        let scan = BlockScan {
            values: &values,
            steps: &steps,
            selection: &selection,
            rates: &rates,
            bias: &bias,
        };
        let y = block_scan(&scan).unwrap().narrow(1, 4, 1).unwrap();
        y.flatten_all().unwrap().to_vec1::<f64>().unwrap()
    };
    let alone = of([0.0, 0.0, 0.0, 0.0, 0.3]);
    assert_eq!(of([0.0; 5]), [0.0; 3]);
    assert!(alone.iter().all(|y| *y != 0.0));
    assert_ne!(of([0.2, 0.0, 0.0, 0.0, 0.3]), alone);
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let [values, _, selection, rates, bias] = shapes([2, 3, 2, 2, 3]);
    let values = normal("v", &values);
    let selection = normal("s", &selection);
    let (rates, bias) = (normal("a", &rates), normal("b", &bias));
    let other = normal("b", &[2, 3, 4]);
    let of = BlockScan {
        values: &values,
        steps: &values,
        selection: &selection,
        rates: &rates,
        bias: &bias,
    };
    assert_eq!(block_scan(&of).unwrap().dims(), values.dims());
    let wrong = BlockScan { bias: &other, ..of };
    let error = block_scan(&wrong).unwrap_err().to_string();
    assert!(error.contains("do not fit"), "{error}");
    // A row of three numbers has no half.
    let (odd, odd_bias) = (rates.narrow(0, 0, 3).unwrap(), bias.narrow(1, 0, 3));
    let odd_bias = odd_bias.unwrap();
    let odd = BlockScan {
        rates: &odd,
        bias: &odd_bias,
        ..of
    };
    assert!(block_scan(&odd).is_err());
    for dtype in [DType::F32, DType::F64] {
        let to = |x: &Tensor| x.to_dtype(dtype).unwrap();
        let none = |x: &Tensor| to(&x.narrow(1, 0, 0).unwrap());
        let y = block_scan(&BlockScan {
            values: &none(&values),
            steps: &none(&values),
            selection: &none(&selection),
            rates: &to(&rates),
            bias: &to(&bias),
        });
        assert_eq!(y.unwrap().dims(), [2, 0, 2, 3]);
    }
}
