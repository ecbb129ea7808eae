use candle_core::{DType, Device, Var};

use super::*;
use crate::testing::{check_gradient, close, normal};

/// The shift shows where ε is large: with the largest w·k, though negative, as in the authors'
/// code.
#[test]
fn keys_are_shifted_by_the_largest_projection_of_real_keys() {
    let directions = [[0.5, 1.0], [2.0, 0.25], [1.0, 1.0f64]];
    let rows = [[-1.0, -2.0], [-0.5, -1.5], [-3.0, -0.25], [4.0, 4.0]];
    let epsilon = 0.25f64;
    let dot = |a: &[f64; 2], b: &[f64; 2]| a[0] * b[0] + a[1] * b[1];
    let half = |x: &[f64; 2]| dot(x, x) * 2f64.powf(-0.5) / 2.0;
    let features = |x: &[f64; 2], shift: f64| -> Vec<f64> {
        let feature = |w| (dot(w, x) - half(x) - shift).exp() + epsilon;
        directions.iter().map(feature).collect()
    };
    let largest = |rows: &[[f64; 2]]| {
        let all = rows
            .iter()
            .flat_map(|x| directions.iter().map(move |w| dot(w, x)));
        all.fold(f64::NEG_INFINITY, f64::max)
    };
    for (count, masked) in [(3, false), (3, true)] {
        let length = if masked { 4 } else { count };
        let keys: Vec<Vec<f64>> = rows[..count]
            .iter()
            .map(|x| features(x, largest(&rows[..count])))
            .collect();
        let mut expected = Vec::new();
        for x in &rows[..count] {
            let query = features(x, largest(&[*x]));
            let weight = |key: &Vec<f64>| query.iter().zip(key).map(|(a, b)| a * b).sum();
            let weights: Vec<f64> = keys.iter().map(weight).collect();
            let total: f64 = weights.iter().sum();
            let pairs = weights.iter().zip(&rows);
            expected.push(pairs.map(|(weight, v)| weight * v[0]).sum::<f64>() / total);
        }
        for dtype in [DType::F32, DType::F64] {
            let tensor = |rows: &[[f64; 2]]| {
                let shape = (rows.len(), 2);
                let rows = Tensor::from_vec(rows.concat(), shape, &Device::Cpu).unwrap();
                rows.to_dtype(dtype).unwrap()
            };
            let x = tensor(&rows[..length]).reshape((1, length, 1, 2)).unwrap();
            let valid: Vec<f32> = (0..length)
                .map(|i| f32::from(u8::from(i < count)))
                .collect();
            let valid = Tensor::from_vec(valid, (1, length), &Device::Cpu).unwrap();
            let mask = Mask::new(&valid.to_dtype(dtype).unwrap()).unwrap();
            let map = FeatureMap::Favor {
                directions: tensor(&directions),
                epsilon: epsilon as f32,
            };
            let mask = masked.then_some(&mask);
            let y = attend(&x, &x, &x, map, EPS, mask).unwrap();
            let y = y
                .to_dtype(DType::F64)
                .unwrap()
                .reshape((length, 2))
                .unwrap();
            let y: Vec<Vec<f64>> = y.to_vec2().unwrap();
            for (actual, expected) in y.iter().zip(&expected) {
                assert!(
                    (actual[0] - expected).abs() < 1e-5,
                    "{dtype:?} {masked}: {actual:?} {expected}"
                );
            }
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0f64]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for mask in [None, Some(&mask)] {
        // (B, L, H, ..)
        let shapes: [&[usize]; 3] = [&[2, 3, 2, 4], &[2, 3, 2, 4], &[2, 3, 2, 2]];
        check_gradient("kernel attention", &shapes, |inputs| {
            attend(
                &inputs[0],
                &inputs[1],
                &inputs[2],
                FeatureMap::EluPlusOne,
                1e-6,
                mask,
            )
        });
    }
}

/// Checks the numbers of the kernel, and those of the composed operations in either precision.
#[test]
fn a_sequence_without_a_real_key_gives_zeros_and_finite_gradients_under_the_least_guard() {
    let mask = Tensor::new(&[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0f64]], &Device::Cpu).unwrap();
    for dtype in [DType::F32, DType::F64] {
        let mask = Mask::new(&mask.to_dtype(dtype).unwrap()).unwrap();
        let [q, k, v] = ["q", "k", "v"].map(|name| {
            let x = normal(name, &[2, 3, 2, 4]).to_dtype(dtype).unwrap();
            Var::from_tensor(&(x * 30.0).unwrap()).unwrap()
        });
        let map = FeatureMap::Relu { floor: 1e-3 };
        let by_operations = composed([&q, &k, &v], &map, EPS, Some(&mask)).unwrap();
        let y = attend(&q, &k, &v, map, EPS, Some(&mask)).unwrap();
        for (form, y) in [("attend", y), ("composed", by_operations)] {
            let sum = |x: &Tensor| {
                let sum = x.to_dtype(DType::F64).unwrap().abs().unwrap().sum_all();
                sum.unwrap().to_vec0::<f64>().unwrap()
            };
            assert_eq!(sum(&y.get(1).unwrap()), 0.0, "{form} {dtype:?}");
            let gradients = (y * 1e3).unwrap().sum_all().unwrap().backward().unwrap();
            for var in [&q, &k, &v] {
                let size = sum(gradients.get(var).unwrap());
                assert!(size.is_finite(), "{form} {dtype:?}");
            }
        }
    }
}

#[test]
fn outputs_do_not_depend_on_the_size_of_the_features() {
    let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[1, 3, 1, 4]).abs().unwrap());
    for dtype in [DType::F32, DType::F64] {
        let of_size = |size: f64| {
            let cast = |x: &Tensor, size: f64| (x * size).unwrap().to_dtype(dtype).unwrap();
            let (q, k, v) = (cast(&q, size), cast(&k, size), cast(&v, 1.0));
            attend(&q, &k, &v, FeatureMap::Given, EPS, None).unwrap()
        };
        let place = format!("{dtype:?}");
        close(&of_size(1e-6), &of_size(1.0), 1e-5, &place);
    }
}

#[test]
fn packed_projections_that_are_not_three_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let x = |width| normal("x", &[1, 4, width]).to_dtype(dtype).unwrap();
        let attend = |width| attend_packed(&x(width), 2, FeatureMap::EluPlusOne, 1e-6, None);
        assert!(attend(12).is_ok(), "{dtype:?}");
        let refused = attend(13).unwrap_err().to_string();
        assert!(refused.contains("width 13 is not three times"), "{refused}");
    }
}
