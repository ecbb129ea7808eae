use super::*;
use crate::ops::testing::{Sampler, agree, without_padding};
use candle_core::{D, Device};

fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (b, l, w) = x.dims3()?;
    x.reshape((b, l, heads, w / heads))?
        .transpose(1, 2)?
        .contiguous()
}

fn composed(x: &[Tensor], heads: usize, map: &FeatureMap, mask: Option<&Tensor>) -> Result<Tensor> {
    let features = |x: &Tensor, is_key: bool| -> Result<Tensor> {
        let x = split(x, heads)?;
        match map {
            FeatureMap::Given => Ok(x),
            FeatureMap::EluPlusOne => x.elu(1.0)? + 1.0,
            FeatureMap::Relu { floor } => x.relu()? + f64::from(*floor),
            FeatureMap::Favor {
                directions,
                epsilon,
            } => {
                let (b, _, l, width) = x.dims4()?;
                let w = directions.to_dtype(x.dtype())?;
                let projected = x.broadcast_matmul(&w.t()?)?;
                let mut shift = projected.detach().max_keepdim(D::Minus1)?;
                if is_key {
                    if let Some(mask) = mask {
                        let mask = mask.to_dtype(x.dtype())?.reshape((b, 1, l, 1))?;
                        shift = shift.broadcast_mul(&mask)?;
                    }
                    shift = shift.max_keepdim(2)?.relu()?;
                }
                let half = (x.sqr()?.sum_keepdim(D::Minus1)? * (0.5 / (width as f64).sqrt()))?;
                let exponent = projected.broadcast_sub(&half)?.broadcast_sub(&shift)?;
                exponent.exp()? + f64::from(*epsilon)
            }
        }
    };
    let (q, k, v) = (
        features(&x[0], false)?,
        features(&x[1], true)?,
        split(&x[2], heads)?,
    );
    let mut weights = q.matmul(&k.t()?)?; // (B, H, Lq, Lk)
    if let Some(mask) = mask {
        let (b, l) = mask.dims2()?;
        weights = weights.broadcast_mul(&mask.to_dtype(weights.dtype())?.reshape((b, 1, 1, l))?)?;
    }
    let sums = (weights.sum_keepdim(D::Minus1)? + 1e-6)?;
    let y = weights.matmul(&v)?.broadcast_div(&sums)?.transpose(1, 2)?;
    y.flatten_from(2)
}

#[test]
fn kernel_attention_meets_its_twin() {
    let mut sampler = Sampler::new(12);
    for (batch, queries, keys, heads, features, values) in [
        (1, 1, 1, 1, 1, 1),
        (2, 5, 9, 2, 3, 7),
        (2, 64, 64, 2, 16, 16),
        (1, 700, 600, 1, 24, 40),
        (3, 130, 65, 2, 33, 32),
        (2, 300, 300, 2, 16, 16),
    ] {
        let q = sampler.normal(&[batch, queries, heads * features], 1.0);
        let k = sampler.normal(&[batch, keys, heads * features], 1.0);
        let v = sampler.normal(&[batch, keys, heads * values], 1.0);
        // The second half of the last example is padding.
        let end = batch * keys - keys / 2;
        let marks: Vec<f32> = (0..batch * keys)
            .map(|i| f32::from(i % keys == 0 || i < end && sampler.uniform() < 0.7))
            .collect();
        let mask = Tensor::from_vec(marks, (batch, keys), &Device::Cpu).unwrap();
        for map in [
            FeatureMap::EluPlusOne,
            FeatureMap::Relu { floor: 0.01 },
            FeatureMap::Given,
            FeatureMap::Favor {
                directions: sampler.normal(&[2 * features + 3, features], 0.7),
                epsilon: 1e-3,
            },
        ] {
            let (q, k) = match map {
                FeatureMap::Given => (q.abs().unwrap(), k.abs().unwrap()),
                _ => (q.clone(), k.clone()),
            };
            let inputs = [q, k, v.clone()];
            for mask in [None, Some(mask.clone())] {
                let options = LinearAttentionOptions {
                    heads,
                    map: map.clone(),
                    eps: 1e-6,
                    mask: mask.clone(),
                };
                agree(
                    "kernel attention",
                    &inputs,
                    |x| linear_attention(&x[0], &x[1], &x[2], &options),
                    |x| composed(x, heads, &map, mask.as_ref()),
                );
                if queries == keys && features == values {
                    let packed = [Tensor::cat(&inputs, 2).unwrap()];
                    let parts = |x: &[Tensor]| -> Result<Vec<Tensor>> {
                        (0..3)
                            .map(|i| x[0].narrow(2, i * heads * values, heads * values))
                            .collect()
                    };
                    agree(
                        "packed kernel attention",
                        &packed,
                        |x| linear_attention_packed(&x[0], &options),
                        |x| {
                            let y = composed(&parts(x)?, heads, &map, mask.as_ref())?;
                            without_padding(&y, mask.as_ref())
                        },
                    );
                }
            }
        }
    }
}

/// The positions of each of several heads are split, of keys or of queries.
#[test]
fn parts_of_several_heads_meet_their_twin() {
    let mut sampler = Sampler::new(14);
    for (batch, queries, keys, heads) in [(2, 9, 520, 3), (1, 770, 9, 2)] {
        let q = sampler.normal(&[batch, queries, heads * 3], 1.0);
        let k = sampler.normal(&[batch, keys, heads * 3], 1.0);
        let v = sampler.normal(&[batch, keys, heads * 2], 1.0);
        let inputs = [q, k, v];
        for map in [
            FeatureMap::EluPlusOne,
            FeatureMap::Favor {
                directions: sampler.normal(&[4, 3], 0.7),
                epsilon: 1e-2,
            },
        ] {
            let options = LinearAttentionOptions {
                heads,
                map: map.clone(),
                eps: 1e-6,
                mask: None,
            };
            agree(
                "kernel attention in parts",
                &inputs,
                |x| linear_attention(&x[0], &x[1], &x[2], &options),
                |x| composed(x, heads, &map, None),
            );
        }
    }
}

#[test]
fn an_example_without_a_key_yields_zeros_and_shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(13);
    let x = sampler.normal(&[1, 6, 8], 1.0);
    let options = |heads, keys| LinearAttentionOptions {
        heads,
        map: FeatureMap::EluPlusOne,
        eps: 1e-6,
        mask: Some(Tensor::zeros((1, keys), candle_core::DType::F32, &Device::Cpu).unwrap()),
    };
    let y = linear_attention(&x, &x, &x, &options(2, 6)).unwrap();
    assert_eq!(
        y.abs()
            .unwrap()
            .sum_all()
            .unwrap()
            .to_scalar::<f32>()
            .unwrap(),
        0.0
    );
    assert!(linear_attention(&x, &x, &x, &options(3, 6)).is_err());
    assert!(linear_attention(&x, &x, &x, &options(2, 5)).is_err());
}
