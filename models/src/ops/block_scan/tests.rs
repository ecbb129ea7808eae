use candle_core::{DType, Device, Tensor, Var};

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

/// Returns random operands of a scan of `length` positions but the steps: values, selection, these
/// rates, and bias.
fn operands(length: usize, rates: [f64; 4]) -> [Tensor; 4] {
    let mut sampler = Sampler::new(348);
    let [values, _, selection, _, bias] = shapes([1, length, 2, 2, 3]);
    let [values, selection, bias] =
        [values, selection, bias].map(|shape| sampler.normal(&shape, 1.0));
    let rates = Tensor::new(&rates, &Device::Cpu).unwrap();
    [values, selection, rates, bias]
}

/// Checks y, and the gradients of its sum, of both forms in f32 where every step is `step`. Those
/// of the composed form in f64 with steps of `reference` are expected.
fn check_in_f32([values, selection, rates, bias]: &[Tensor; 4], step: f64, reference: f64) {
    let of = |dtype, step: f64, f: &dyn Fn(&BlockScan) -> Result<Tensor>| {
        let var = |x: &Tensor| Var::from_tensor(&x.to_dtype(dtype).unwrap()).unwrap();
        let steps = values.to_dtype(DType::F64).unwrap().ones_like().unwrap();
        let steps = (steps * step).unwrap();
        let all = [values, &steps, selection, rates, bias].map(var);
        let [values, steps, selection, rates, bias] = all.each_ref().map(|it| it.as_tensor());
        let y = f(&BlockScan {
            values,
            steps,
            selection,
            rates,
            bias,
        });
        let y = y.unwrap();
        let gradients = y.sum_all().unwrap().backward().unwrap();
        let of_all = all.iter().map(|it| gradients.get(it).unwrap().clone());
        let numbers = [y.clone()].into_iter().chain(of_all);
        let numbers = numbers.map(|x| x.flatten_all().unwrap().to_dtype(DType::F64));
        let numbers = numbers.map(|x| x.unwrap().to_vec1::<f64>().unwrap());
        numbers.collect::<Vec<_>>()
    };
    let expected = of(DType::F64, reference, &composed);
    for (form, got) in [
        ("kernel", of(DType::F32, step, &block_scan)),
        ("composed", of(DType::F32, step, &composed)),
    ] {
        for (which, (got, expected)) in got.iter().zip(&expected).enumerate() {
            let largest = expected.iter().fold(0.0, |most: f64, y| most.max(y.abs()));
            for (got, expected) in got.iter().zip(expected) {
                let error = (got - expected).abs();
                // That of the rates is a sum of differences between nearly equal numbers.
                let most = if which == 4 { 2e-3 } else { 3e-5 };
                let place = format!("{form}, step {step}, {which}");
                assert!(error <= most * largest, "{place}: {got} {expected}");
            }
        }
    }
}

/// Steps so short that e^(δ a) is nearly 1.
#[test]
fn short_steps_keep_their_digits() {
    check_in_f32(&operands(500, [-0.5, -0.25, 0.0, 3.0]), 1e-5, 1e-5);
}

/// Steps so long that angles have no digits, or are no numbers in f32. Nothing depends on the
/// length of a step within which all states vanish.
#[test]
fn states_vanish_within_long_steps() {
    for step in [1e8, 1e12, f64::from(f32::MAX / 2.0)] {
        check_in_f32(&operands(40, [-0.5, -0.25, 0.0, 9.0]), step, 1e3);
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
fn positions_without_a_step_are_as_if_they_were_not_there() {
    let [values, _, selection, rates, bias] = shapes([2, 5, 2, 2, 3]);
    let rates = normal("a", &rates).abs().unwrap().neg().unwrap();
    let (values, selection, bias) = (
        normal("v", &values),
        normal("s", &selection),
        normal("b", &bias),
    );
    for dtype in [DType::F32, DType::F64] {
        let of = |steps: &[f64], positions: &[u32]| {
            let positions = Tensor::new(positions, &Device::Cpu).unwrap();
            let at = |x: &Tensor| x.index_select(&positions, 1).unwrap();
            let to = |x: &Tensor| x.to_dtype(dtype).unwrap();
            let values = to(&at(&values));
            let steps = Tensor::new(steps, &Device::Cpu).unwrap();
            let steps = to(&steps).reshape((1, (), 1, 1)).unwrap();
            let steps = steps.broadcast_as(values.shape()).unwrap();
            let y = block_scan(&BlockScan {
                values: &values,
                steps: &steps.contiguous().unwrap(),
                selection: &to(&at(&selection)),
                rates: &to(&rates),
                bias: &to(&bias),
            });
            let y = y.unwrap();
            let last = y.narrow(1, y.dim(1).unwrap() - 1, 1).unwrap();
            let last = last.flatten_all().unwrap().to_dtype(DType::F64);
            last.unwrap().to_vec1::<f64>().unwrap()
        };
        let all = of(&[0.2, 0.0, 0.0, 0.0, 0.3], &[0, 1, 2, 3, 4]);
        let alone = of(&[0.2, 0.3], &[0, 4]);
        let same = all.iter().zip(&alone).all(|(x, y)| (x - y).abs() < 1e-6);
        assert!(same, "{all:?} {alone:?}");
        assert!(alone.iter().all(|y| *y != 0.0));
        assert_eq!(of(&[0.0; 2], &[0, 4]), [0.0; 12]);
    }
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
    let narrow = values.narrow(3, 0, 0).unwrap();
    let narrow_bias = bias.narrow(2, 0, 0).unwrap();
    let none = BlockScan {
        values: &narrow,
        steps: &narrow,
        bias: &narrow_bias,
        ..of
    };
    assert!(block_scan(&none).is_err(), "blocks without channels");
    for dtype in [DType::F32, DType::F64] {
        let to = |x: &Tensor| x.to_dtype(dtype).unwrap();
        let none = |x: &Tensor| to(&x.narrow(1, 0, 0).unwrap());
        let bias = Var::from_tensor(&to(&bias)).unwrap();
        let y = block_scan(&BlockScan {
            values: &none(&values),
            steps: &none(&values),
            selection: &none(&selection),
            rates: &to(&rates),
            bias: &bias,
        });
        let y = y.unwrap();
        assert_eq!(y.dims(), [2, 0, 2, 3]);
        let gradients = y.sum_all().unwrap().backward().unwrap();
        // The composed form has none.
        assert_eq!(gradients.get(&bias).is_some(), dtype == DType::F32);
        if let Some(gradient) = gradients.get(&bias) {
            let gradient = gradient.flatten_all().unwrap().to_vec1::<f32>();
            assert_eq!(gradient.unwrap(), [0.0; 24]);
        }
    }
}
