use candle_core::{DType, Device, Tensor, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close};

/// Products from -1 to 1, with ends.
fn products() -> Vec<f64> {
    let products: Vec<f64> = (-999..=999).map(|at| f64::from(at) / 1000.0).collect();
    [&products[..], &[-MOST, MOST, 0.0, 0.999_99]].concat()
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(1);
    // The last has more elements than one task.
    for shape in [vec![7], vec![3, 5], vec![2, 17, 31], vec![(1 << 14) + 77]] {
        for hashes in [0, 1, 2, 11, 64] {
            let x = [sampler.normal(&shape, 1.0).tanh().unwrap()];
            let f = |x: &[Tensor]| Ok(collision_probability(&x[0], hashes)?);
            agree("collision_probability", &x, f, f);
        }
    }
}

#[test]
fn values_and_slopes_are_those_of_the_definition() {
    for (dtype, tolerance) in [(DType::F32, 4e-6), (DType::F64, 1e-7)] {
        for hashes in [1, 9, 11] {
            // The slope falls to 0 beyond the ends, which f32 rounds.
            let x: Vec<f64> = products().into_iter().filter(|x| x.abs() < MOST).collect();
            let rounded = Tensor::new(&x[..], &Device::Cpu).unwrap();
            let x = Var::from_tensor(&rounded.to_dtype(dtype).unwrap()).unwrap();
            let y = collision_probability(&x, hashes).unwrap();
            let slopes = y.sum_all().unwrap().backward().unwrap();
            let numbers = |x: &Tensor| x.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
            let (values, slopes) = (numbers(&y), numbers(slopes.get(&x).unwrap()));
            for (at, x) in numbers(&x).into_iter().enumerate() {
                let p = 1.0 - x.acos() / PI;
                let value = p.powi(hashes as i32);
                let slope = hashes as f64 * p.powi(hashes as i32 - 1) / (PI * (1.0 - x * x).sqrt());
                let near =
                    |of: f64, expected: f64| (of - expected).abs() < tolerance * (1.0 + expected);
                assert!(
                    near(values[at], value),
                    "{dtype:?} {x}: {} {value}",
                    values[at]
                );
                assert!(
                    near(slopes[at], slope),
                    "{dtype:?} {x}: {} {slope}",
                    slopes[at]
                );
            }
        }
    }
}

#[test]
fn beyond_the_ends_values_stay_and_slopes_are_zero() {
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::new(&[-1.5, -1.0, 1.0, 1.5, f64::NAN], &Device::Cpu).unwrap();
        let x = Var::from_tensor(&x.to_dtype(dtype).unwrap()).unwrap();
        let y = collision_probability(&x, 3).unwrap();
        let slopes = y.sum_all().unwrap().backward().unwrap();
        let numbers = |x: &Tensor| x.to_dtype(DType::F64).unwrap().to_vec1::<f64>().unwrap();
        let (y, slopes) = (numbers(&y), numbers(slopes.get(&x).unwrap()));
        assert_eq!(slopes[..4], [0.0; 4], "{dtype:?}");
        assert!(y[4].is_nan(), "{dtype:?}");
        assert!(y[0] < 1e-9 && y[0] == y[1], "{dtype:?}: {y:?}");
        assert!(
            (0.998..1.0).contains(&y[2]) && y[2] == y[3],
            "{dtype:?}: {y:?}"
        );
    }
}

#[test]
fn angles_are_those_of_cosines() {
    let cosines = products();
    let expected: Vec<f64> = cosines.iter().map(|x| x.acos()).collect();
    let of = |x: Vec<f64>| Tensor::new(x, &Device::Cpu).unwrap();
    close(&arccos(&of(cosines)).unwrap(), &of(expected), 1e-11, "f64");
    check_gradient("arccos", &[&[2, 3]], |x| arccos(&x[0].tanh()?));
}
