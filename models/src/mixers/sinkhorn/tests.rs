use candle_core::{DType, Var};

use super::*;
use crate::{
    Mask,
    layers::ScoreMods,
    reference,
    testing::{agree, check_gradient, meets_reference, normal},
};

fn sorting(weight: &Tensor, block: usize) -> Sorting {
    Sorting {
        weight: weight.clone(),
        block,
        iterations: 7,
        temperature: 0.75,
        noise: None,
    }
}

/// Splits queries, keys and values (B, L, H, E) into blocks.
fn blocked(qkv: [&Tensor; 3], block: usize, mask: Option<&Mask>) -> Result<Blocked> {
    let [q, k, v] = qkv.map(|x| x.flatten_from(2));
    Blocked::new([q?, k?, v?], qkv[0].dim(2)?, block, mask)
}

/// Maps queries, keys and values (B, L, H, E) to (B, L, H, E); `weight` orders blocks by their sums
/// of queries and keys.
fn attend(
    inputs: [&Tensor; 3],
    weight: &Tensor,
    (block, sortcut): (usize, usize),
    mask: Option<&Mask>,
) -> Result<Tensor> {
    let [q, k, _] = inputs;
    let (batch, _, heads, width) = q.dims4()?;
    let blocked = blocked(inputs, block, mask)?;
    let sums = |x: &Tensor| {
        blocked
            .sums(&x.flatten_from(2)?)?
            .reshape((batch, (), heads, width))
    };
    let sums = Tensor::cat(&[sums(q)?, sums(k)?], 3)?.transpose(1, 2)?;
    let order = sorting(weight, block).order(&sums, &blocked.in_use()?, None)?;
    Ok(blocked
        .attend(&order, sortcut, None, &ScoreMods::default())?
        .reshape(q.dims())?)
}

#[test]
fn one_block_is_softmax_attention() {
    for (block, sortcut) in [(5, 0), (8, 0), (5, 1), (8, 3)] {
        let weight = normal("weight", &[2, 6, 1]);
        meets_reference("sinkhorn", 1e-7, reference::softmax, |q, k, v, mask| {
            attend([q, k, v], &weight, (block, sortcut), mask)
        });
    }
}

#[test]
fn the_default_block_follows_the_length() {
    assert_eq!(
        [1, 38, 1024, 2001, 4096].map(default_block),
        [1, 8, 32, 64, 64]
    );
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0, 1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 0.0, 0.0f64]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for sortcut in [0, 1] {
        for mask in [None, Some(&mask)] {
            let shape: &[usize] = &[2, 5, 2, 2];
            check_gradient("sinkhorn", &[shape, shape, shape, &[2, 4, 3]], |inputs| {
                let [q, k, v] = [&inputs[0], &inputs[1], &inputs[2]];
                attend([q, k, v], &inputs[3], (2, sortcut), mask)
            });
        }
    }
}

#[test]
fn a_sharp_order_moves_whole_blocks() {
    // Blocks of one: P = reversal, so that position i sees itself and its mirror image.
    let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[1, 4, 1, 2]));
    let blocked = blocked([&q, &k, &v], 1, None).unwrap();
    let mut reversal = vec![0.0; 16];
    (0..4).for_each(|row| reversal[row * 4 + 3 - row] = 1.0);
    let order = Tensor::from_vec(reversal, (1, 1, 4, 4), &Device::Cpu).unwrap();
    let actual = blocked
        .attend(&order, 0, None, &ScoreMods::default())
        .unwrap();
    let actual: Vec<f64> = actual.flatten_all().unwrap().to_vec1().unwrap();
    let rows = |x: &Tensor| x.reshape((4, 2)).unwrap().to_vec2::<f64>().unwrap();
    let (q, k, v) = (rows(&q), rows(&k), rows(&v));
    for i in 0..4 {
        let weight = |j: usize| reference::softmax(&q[i], &k[j]);
        let (own, other) = (weight(i), weight(3 - i));
        for channel in 0..2 {
            let expected = (own * v[i][channel] + other * v[3 - i][channel]) / (own + other);
            assert!((actual[i * 2 + channel] - expected).abs() < 1e-12);
        }
    }
}

#[test]
fn the_kernel_agrees_with_the_composed_form() {
    let valid: Vec<Vec<f64>> = [13, 5, 0]
        .iter()
        .map(|&tokens| (0..13).map(|i| f64::from(u8::from(i < tokens))).collect())
        .collect();
    let mask = |dtype| {
        let valid = Tensor::new(valid.clone(), &Device::Cpu).unwrap();
        Mask::new(&valid.to_dtype(dtype).unwrap()).unwrap()
    };
    for (length, masked, sortcut) in [
        (12, false, 0),
        (13, false, 0),
        (13, true, 0),
        (12, false, 2),
        (13, true, 2),
    ] {
        let shape = [3, length, 2, 3];
        let inputs = ["q", "k", "v"].map(|name| Var::from_tensor(&normal(name, &shape)).unwrap());
        let weight = normal("weight", &[2, 6, 4]);
        let run = |dtype: DType| -> Result<Tensor> {
            let mask = masked.then(|| mask(dtype));
            let [q, k, v] = inputs.each_ref().map(|x| x.to_dtype(dtype).unwrap());
            let weight = weight.to_dtype(dtype)?;
            let y = attend([&q, &k, &v], &weight, (4, sortcut), mask.as_ref())?;
            Ok(y.to_dtype(DType::F64)?)
        };
        let [fused, composed] = [DType::F32, DType::F64].map(|dtype| run(dtype).unwrap());
        // Outputs of padded queries are not compared.
        let read = |y: &Tensor| match masked {
            true => {
                let valid = mask(DType::F64).valid().reshape((3, 13, 1, 1)).unwrap();
                y.broadcast_mul(&valid).unwrap()
            }
            false => y.clone(),
        };
        let place = format!("{length} {masked} {sortcut}");
        agree(&read(&fused), &read(&composed), &inputs, 3e-5, &place);
    }
}

#[test]
fn noise_is_drawn_for_the_largest_length_and_in_training_only() {
    let weight = Tensor::zeros((1, 4, 5), DType::F64, &Device::Cpu).unwrap();
    let noisy = Sorting {
        noise: Some(StreamKey::new("noise")),
        ..sorting(&weight, 2)
    };
    let noise = |length: usize, train: bool| {
        let x = normal("x", &[2, length, 2]);
        let pass = Pass::new(train, crate::RngKey::new(1, 2, 0));
        noisy.noise(&x, 1, &pass).unwrap()
    };
    assert!(noise(10, false).is_none());
    let (long, short) = (noise(10, true).unwrap(), noise(6, true).unwrap());
    let part = long.narrow(2, 0, 3).unwrap().narrow(3, 0, 3).unwrap();
    let values = |x: &Tensor| -> Vec<f64> { x.flatten_all().unwrap().to_vec1().unwrap() };
    assert_eq!(values(&part), values(&short));
}
