use candle_core::{DType, Device};

use super::*;
use crate::Mask;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

const ALL: [ScanOptions; 4] = [
    of(false, false),
    of(false, true),
    of(true, false),
    of(true, true),
];

const fn of(complex: bool, reverse: bool) -> ScanOptions {
    ScanOptions { complex, reverse }
}

/// Returns x, and coefficients of modulus below one that vary or do not.
fn inputs(sampler: &mut Sampler, shape: [usize; 3], varies: bool) -> [Tensor; 2] {
    let a = match varies {
        true => sampler.normal(&shape, 0.5),
        false => sampler.normal(&shape[2..], 0.5),
    };
    [sampler.normal(&shape, 1.0), a.tanh().unwrap()]
}

/// Computes one position after the other.
fn steps(x: &Tensor, a: &Tensor, options: ScanOptions) -> Tensor {
    let (batch, length, width) = x.dims3().unwrap();
    let a = a.broadcast_as(x.shape()).unwrap().contiguous().unwrap();
    let (x, a) = (x.to_vec3::<f64>().unwrap(), a.to_vec3::<f64>().unwrap());
    let mut all = x.clone();
    for b in 0..batch {
        let mut h = vec![0.0; width];
        for step in 0..length {
            let t = if options.reverse {
                length - 1 - step
            } else {
                step
            };
            let (x, a) = (&x[b][t], &a[b][t]);
            let half = width / 2;
            h = (0..width)
                .map(|i| {
                    x[i] + match options.complex {
                        false => a[i] * h[i],
                        true if i < half => a[i] * h[i] - a[i + half] * h[i + half],
                        true => a[i - half] * h[i] + a[i] * h[i - half],
                    }
                })
                .collect();
            all[b][t].clone_from(&h);
        }
    }
    Tensor::new(all, &Device::Cpu).unwrap()
}

#[test]
fn the_composed_form_is_the_recurrence_step_by_step() {
    let mut sampler = Sampler::new(81);
    for length in 1..38 {
        for (options, varies) in ALL.into_iter().flat_map(|o| [(o, false), (o, true)]) {
            let inputs = inputs(&mut sampler, [2, length, 6], varies);
            let [x, a] = inputs.map(|x| x.to_dtype(DType::F64).unwrap());
            let actual = scan(&x, &a, options).unwrap();
            let place = format!("{options:?}, length {length}");
            close(&actual, &steps(&x, &a, options), 1e-12, &place);
        }
    }
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(82);
    let shapes = [[1, 1, 2], [2, 37, 6], [3, 9, 34], [2, 300, 70]];
    for (shape, varies) in shapes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        for options in ALL {
            let inputs = inputs(&mut sampler, shape, varies);
            let f = |x: &[Tensor]| Ok(scan(&x[0], &x[1], options)?);
            agree(&format!("{options:?}"), &inputs, f, f);
        }
    }
}

#[test]
fn packed_sequences_are_scanned_apart() {
    let mut sampler = Sampler::new(83);
    let row = |length: usize| (0..40).map(move |l| f64::from(u8::from(l < length)));
    let valid: Vec<f64> = [40, 0, 7, 1].into_iter().flat_map(row).collect();
    let mask = Tensor::from_vec(valid, (4, 40), &Device::Cpu).unwrap();
    let packing = Packing::new(&Mask::new(&mask).unwrap()).unwrap().unwrap();
    for (options, varies) in ALL.into_iter().flat_map(|o| [(o, false), (o, true)]) {
        let inputs = inputs(&mut sampler, [1, packing.rows(), 34], varies);
        let f = |x: &[Tensor]| Ok(scan_packed(&x[0], &x[1], options, Some(&packing))?);
        // Zeros behind a sequence do not affect it, from either end.
        let apart = |x: &[Tensor]| {
            let a = match varies {
                true => packing.unpack(&x[1])?,
                false => x[1].clone(),
            };
            Ok(packing.pack(&scan(&packing.unpack(&x[0])?, &a, options)?)?)
        };
        agree(&format!("{options:?}"), &inputs, f, apart);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for options in ALL {
        for a in [&[4][..], &[2, 5, 4]] {
            let scan = |x: &[Tensor]| scan(&x[0], &(&x[1] * 0.5)?, options);
            check_gradient("scan", &[&[2, 5, 4], a], scan);
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let (x, a) = (normal("x", &[2, 3, 5]), normal("a", &[5]));
    let complex = ScanOptions {
        complex: true,
        ..Default::default()
    };
    let message = scan(&x, &a, complex).unwrap_err().to_string();
    assert!(
        message.contains("[2, 3, 5]") && message.contains("complex"),
        "{message}"
    );
    assert!(scan(&x, &normal("a", &[3, 5]), ScanOptions::default()).is_err());
    for dtype in [DType::F32, DType::F64] {
        let [x, a] = [&x.narrow(1, 0, 0).unwrap(), &a].map(|x| x.to_dtype(dtype).unwrap());
        assert_eq!(
            scan(&x, &a, ScanOptions::default()).unwrap().dims(),
            [2, 0, 5]
        );
    }
}
