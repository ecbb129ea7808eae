use candle_core::{Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::check_gradient;

/// Returns indices below `bound`, one in eight of them `IGNORE_INDEX`.
fn random(sampler: &mut Sampler, shape: &[usize], bound: usize) -> Tensor {
    let count = shape.iter().product();
    let one = |_| match sampler.bits() % 8 {
        0 => IGNORE_INDEX,
        _ => (sampler.bits() % bound as u64) as u32,
    };
    let all: Vec<u32> = (0..count).map(one).collect();
    Tensor::from_vec(all, shape, &Device::Cpu).unwrap()
}

/// No row is added to zeros, and no row that was taken has a gradient.
#[test]
fn no_rows_add_up_to_zeros() {
    for dtype in [DType::F32, DType::F64] {
        let zeros = |shape: &[usize]| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
        let none = Tensor::zeros(&[2, 0][..], DType::U32, &Device::Cpu).unwrap();
        let x = Var::from_tensor(&zeros(&[2, 0, 4])).unwrap();
        for x in [x.as_detached_tensor(), x.as_tensor().clone()] {
            let y = segment_sum(&x, &none, 3).unwrap();
            let total = y.abs().unwrap().sum_all().unwrap();
            let total = total.to_dtype(DType::F64).unwrap();
            assert_eq!(y.dims(), [2, 3, 4], "{dtype:?}");
            assert_eq!(total.to_scalar::<f64>().unwrap(), 0.0, "{dtype:?}");
        }
        let x = Var::from_tensor(&zeros(&[2, 3, 4])).unwrap();
        let y = take(&x, &none).unwrap();
        let loss = (y.sum_all().unwrap() + x.sum_all().unwrap()).unwrap();
        let gradients = loss.backward().unwrap();
        let gradient = gradients.get(&x).unwrap();
        assert_eq!(gradient.dims(), [2, 3, 4], "{dtype:?}");
    }
}

#[test]
fn rows_taken_and_added_are_those_of_plain_loops() {
    let mut sampler = Sampler::new(71);
    for length in 1..38 {
        let (places, width) = (2 * length % 13 + 1, length % 5 + 1);
        let x = sampler.normal(&[2, 3, length, width], 1.0);
        let indices = random(&mut sampler, &[2, 3, places], length);
        let back = random(&mut sampler, &[2, 3, length], places);
        let (taken, sums) = (
            take(&x, &indices).unwrap(),
            segment_sum(&x, &back, places).unwrap(),
        );
        let means = segment_mean(&x, &back, places).unwrap();
        let flat = |t: &Tensor| t.flatten(0, 1).unwrap().to_vec3::<f32>().unwrap();
        let lists = |t: &Tensor| t.flatten(0, 1).unwrap().to_vec2::<u32>().unwrap();
        let (x, taken, sums, means) = (flat(&x), flat(&taken), flat(&sums), flat(&means));
        let (indices, back) = (lists(&indices), lists(&back));
        for g in 0..6 {
            for (place, index) in indices[g].iter().enumerate() {
                let expected = match *index {
                    IGNORE_INDEX => vec![0.0; width],
                    index => x[g][index as usize].clone(),
                };
                assert_eq!(taken[g][place], expected);
            }
            for segment in 0..places {
                let mut expected = vec![0.0; width];
                let members = (0..length).filter(|m| back[g][*m] as usize == segment);
                let count = members.clone().count().max(1) as f32;
                for m in members {
                    expected.iter_mut().zip(&x[g][m]).for_each(|(w, x)| *w += x);
                }
                assert_eq!(sums[g][segment], expected);
                for (mean, expected) in means[g][segment].iter().zip(expected) {
                    assert!((mean - expected / count).abs() < 1e-6);
                }
            }
        }
    }
}

#[test]
fn kernels_meet_their_composed_form() {
    let mut sampler = Sampler::new(72);
    for (groups, length, places, width) in [(1, 1, 1, 1), (2, 37, 90, 3), (5, 300, 61, 33)] {
        let indices = random(&mut sampler, &[groups, places], length);
        let x = [sampler.normal(&[groups, length, width], 1.0)];
        let f = |x: &[Tensor]| Ok(take(&x[0], &indices)?);
        agree("take", &x, f, f);
        let segments = random(&mut sampler, &[groups, length], places);
        let f = |x: &[Tensor]| Ok(segment_sum(&x[0], &segments, places)?);
        agree("segment sum", &x, f, f);
        let f = |x: &[Tensor]| Ok(segment_mean(&x[0], &segments, places)?);
        agree("segment mean", &x, f, f);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let mut sampler = Sampler::new(73);
    let indices = random(&mut sampler, &[2, 2, 9], 5);
    check_gradient("take", &[&[2, 2, 5, 3]], |x| take(&x[0], &indices));
    check_gradient("segment mean", &[&[2, 2, 9, 3]], |x| {
        segment_mean(&x[0], &indices, 5)
    });
}

#[test]
fn strided_operands_are_read_in_order() {
    let x = Sampler::new(74).normal(&[3, 7, 2], 1.0);
    let indices = Tensor::new(&[[6u32, 0], [1, 1], [IGNORE_INDEX, 3]], &Device::Cpu).unwrap();
    let strided = x.transpose(0, 1).unwrap().contiguous().unwrap();
    let strided = strided.transpose(0, 1).unwrap();
    let values = |x: &Tensor| take(x, &indices).unwrap().flatten_all().unwrap();
    let values = |x: &Tensor| values(x).to_vec1::<f32>().unwrap();
    assert_eq!(values(&x), values(&strided));
}

#[test]
fn shapes_and_indices_that_do_not_fit_are_errors() {
    let x = Tensor::zeros((2, 3, 4), DType::F32, &Device::Cpu).unwrap();
    let message = |result: Result<Tensor>| result.unwrap_err().to_string();
    let stray = Tensor::new(&[[0u32, 1, 2], [0, 3, 0]], &Device::Cpu).unwrap();
    assert!(message(take(&x, &stray)).contains("index 3 is not below 3"));
    assert!(message(segment_sum(&x, &stray, 2)).contains("index 2 is not below 2"));
    assert!(message(take(&x, &stray.narrow(0, 0, 1).unwrap())).contains("do not fit"));
    assert!(segment_sum(&x, &stray.narrow(1, 0, 2).unwrap(), 9).is_err());
    assert!(take(&x, &stray.to_dtype(DType::F32).unwrap()).is_err());
}
