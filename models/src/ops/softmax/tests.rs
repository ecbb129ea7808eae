use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};
use candle_core::Device;
use lra_cpu::isa::Isa;

fn mask() -> Mask {
    let valid = [[1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0f64]];
    Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
}

#[test]
fn gradients_agree_with_differences() {
    let mask = mask();
    for mask in [None, Some(&mask)] {
        check_gradient("softmax", &[&[2, 2, 3, 4]], |inputs| {
            masked(&inputs[0], mask)
        });
    }
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(71);
    for (batch, heads, queries, keys) in [(1, 1, 1, 1), (2, 1, 3, 4), (3, 2, 5, 16), (2, 2, 70, 37)]
    {
        let x = [sampler.normal(&[batch, heads, queries, keys], 2.0)];
        let valid = (0..batch * keys)
            .map(|place| f32::from(place % 3 != 1 && place < (batch - 1) * keys + 1));
        let valid = Tensor::from_iter(valid, &Device::Cpu).unwrap();
        let valid = valid.reshape((batch, keys)).unwrap();
        agree(
            "softmax",
            &x,
            |x| cpu::softmax(&x[0], None),
            |x| composed(&x[0], None).map_err(candle_core::Error::wrap),
        );
        let masked = |x: &[Tensor]| {
            let mask =
                Mask::new(&valid.to_dtype(x[0].dtype())?).map_err(candle_core::Error::wrap)?;
            composed(&x[0], Some(&mask)).map_err(candle_core::Error::wrap)
        };
        agree(
            "masked softmax",
            &x,
            |x| cpu::softmax(&x[0], Some(&valid)),
            masked,
        );
    }
}

#[test]
fn rows_far_apart_and_masks_that_do_not_fit() {
    let x = Tensor::new(
        &[[1e30f32, -1e30, 0.0], [-3e38, -3e38, -3e38]],
        &Device::Cpu,
    )
    .unwrap();
    let y: Vec<Vec<f32>> = cpu::softmax(&x, None).unwrap().to_vec2().unwrap();
    assert_eq!(y[0], [1.0, 0.0, 0.0]);
    assert!(y[1].iter().all(|y| (y - 1.0 / 3.0).abs() < 1e-6));
    let mask = Tensor::ones((2, 4), candle_core::DType::F32, &Device::Cpu).unwrap();
    assert!(cpu::softmax(&x, Some(&mask)).is_err());
}

/// Beside a whole number of registers, and less than one.
#[test]
fn what_is_not_a_number_makes_its_row_none() {
    for isa in Isa::all() {
        for keys in [1, 3, 4, 16, 37] {
            let of = |x: f32| vec![x; keys];
            let mut last = of(1.0);
            last[keys - 1] = f32::NAN;
            let x = [of(f32::NAN), last, of(2.0)].concat();
            let x = Tensor::from_vec(x, (1, 3, keys), &Device::Cpu).unwrap();
            let x = Tensor::cat(&[&x, &x], 0).unwrap();
            let valid = [of(1.0), of(0.0)].concat();
            let valid = Tensor::from_vec(valid, (2, keys), &Device::Cpu).unwrap();
            let rows = |y: candle_core::Result<Tensor>| -> Vec<Vec<f32>> {
                y.unwrap().reshape((6, keys)).unwrap().to_vec2().unwrap()
            };
            let plain = isa.force(|| rows(cpu::softmax(&x, None)));
            let masked = isa.force(|| rows(cpu::softmax(&x, Some(&valid))));
            for (row, y) in plain.iter().chain(&masked).enumerate() {
                let is_number = row % 3 == 2;
                assert!(
                    y.iter().all(|y| y.is_nan() != is_number),
                    "{isa:?} {row}: {y:?}"
                );
            }
            assert_eq!(masked[5], of(0.0), "{isa:?}: no key is valid");
        }
    }
}

#[test]
fn padded_keys_weigh_nothing_and_a_row_without_keys_gives_zeros() {
    // Scores far apart: exp of them overflows without the shift.
    let scores = normal("scores", &[2, 1, 3, 4]).affine(1000.0, 0.0).unwrap();
    let weights = masked(&scores, Some(&mask())).unwrap();
    let weights: Vec<f64> = weights.flatten_all().unwrap().to_vec1().unwrap();
    let (first, second) = weights.split_at(12);
    for row in first.chunks(4) {
        assert!(row[1] == 0.0 && (row.iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }
    assert!(second.iter().all(|&weight| weight == 0.0));
}
