use candle_core::{D, DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree, agree_in_f32, without_padding};

/// Maps (B, L, H E) to (B, H, L, E).
fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (b, l, w) = x.dims3()?;
    x.reshape((b, l, heads, w / heads))?
        .transpose(1, 2)?
        .contiguous()
}

/// Computes attention with the L x L weights in memory, step by step. `factors` (B, H, Lq, Lk) are
/// those of dropout.
fn composed(
    qkv: [&Tensor; 3],
    heads: usize,
    mask: Option<&Tensor>,
    factors: Option<&Tensor>,
) -> Result<Tensor> {
    composed_with(qkv, heads, (None, None), mask, factors)
}

/// Returns composed attention with a bias added to the scores (B, H, Lq, Lk), and with a soft cap
/// of the sum.
fn composed_with(
    [q, k, v]: [&Tensor; 3],
    heads: usize,
    (bias, cap): (Option<&Tensor>, Option<f64>),
    mask: Option<&Tensor>,
    factors: Option<&Tensor>,
) -> Result<Tensor> {
    let (q, k, v) = (split(q, heads)?, split(k, heads)?, split(v, heads)?);
    let (b, _, l, e) = q.dims4()?;
    let scores = (q.matmul(&k.t()?)? * (e as f64).powf(-0.5))?;
    let scores = match bias {
        Some(bias) => scores.broadcast_add(bias)?,
        None => scores,
    };
    let scores = match cap {
        Some(cap) => ((scores / cap)?.tanh()? * cap)?,
        None => scores,
    };
    let highest = scores.max_keepdim(D::Minus1)?.detach();
    let mut weights = scores.broadcast_sub(&highest)?.exp()?;
    if let Some(mask) = mask {
        let mask = mask.to_dtype(weights.dtype())?.reshape((b, 1, 1, ()))?;
        weights = weights.broadcast_mul(&mask)?;
    }
    // A query without a key: 0 / tiny.
    let sums = weights.sum_keepdim(D::Minus1)?.maximum(1e-100)?;
    weights = weights.broadcast_div(&sums)?;
    if let Some(factors) = factors {
        weights = (weights * factors.to_dtype(DType::F64)?)?;
    }
    let y = weights.matmul(&v)?.transpose(1, 2)?; // (B, Lq, H, Ev)
    y.reshape((b, l, y.dim(2)? * y.dim(3)?))
}

fn options(heads: usize, mask: Option<&Tensor>) -> AttentionOptions {
    AttentionOptions {
        heads,
        mask: mask.cloned(),
        ..Default::default()
    }
}

fn thirds(x: &Tensor) -> Result<[Tensor; 3]> {
    let width = x.dim(2)? / 3;
    Ok([
        x.narrow(2, 0, width)?,
        x.narrow(2, width, width)?,
        x.narrow(2, 2 * width, width)?,
    ])
}

/// Zeros and ones: a valid prefix for each example, then some keys struck out at random; the last
/// example may have none.
fn mask(sampler: &mut Sampler, batch: usize, length: usize, empty: bool) -> Tensor {
    let mut data = Vec::new();
    for b in 0..batch {
        let valid = 1 + (sampler.uniform() * length as f64) as usize;
        for i in 0..length {
            let kept = i < valid && (i == 0 || sampler.uniform() < 0.8);
            data.push(f32::from(kept && !(empty && b + 1 == batch)));
        }
    }
    Tensor::from_vec(data, (batch, length), &Device::Cpu).unwrap()
}

#[test]
fn packed_attention_meets_its_twin() {
    let mut sampler = Sampler::new(7);
    for (batch, length, heads, width) in [
        (1, 1, 1, 4),
        (2, 5, 3, 7),
        (2, 64, 2, 16),
        (1, 65, 1, 32),
        (1, 700, 1, 8),
        (2, 190, 2, 33),
        (1, 100, 1, 130),
    ] {
        let x = [sampler.normal(&[batch, length, 3 * heads * width], 1.5)];
        for mask in [
            None,
            Some(mask(&mut sampler, batch, length, false)),
            Some(mask(&mut sampler, batch, length, true)),
        ] {
            agree(
                "packed attention",
                &x,
                |x| attention_packed(&x[0], &options(heads, mask.as_ref())),
                |x| {
                    let [q, k, v] = thirds(&x[0])?;
                    let y = composed([&q, &k, &v], heads, mask.as_ref(), None)?;
                    without_padding(&y, mask.as_ref())
                },
            );
        }
    }
}

#[test]
fn cross_attention_meets_its_twin() {
    let mut sampler = Sampler::new(8);
    // The last is the width of values.
    for (batch, queries, keys, heads, width, value_width) in [
        (2, 3, 70, 2, 5, 5),
        (1, 130, 17, 1, 48, 48),
        (1, 300, 600, 2, 12, 12),
        (20, 9, 9, 1, 4, 4),
        (2, 65, 70, 2, 21, 5),
        (1, 300, 600, 2, 3, 20),
        (1, 70, 1100, 1, 40, 16),
    ] {
        let q = sampler.normal(&[batch, queries, heads * width], 1.0);
        let k = sampler.normal(&[batch, keys, heads * width], 1.0);
        let v = sampler.normal(&[batch, keys, heads * value_width], 1.0);
        let mask = mask(&mut sampler, batch, keys, false);
        agree(
            "attention",
            &[q, k, v],
            |x| attention(&x[0], &x[1], &x[2], &options(heads, Some(&mask))),
            |x| composed([&x[0], &x[1], &x[2]], heads, Some(&mask), None),
        );
    }
}

/// The work of each of several heads is split by queries (forward) and by keys (backward); the last
/// case has more keys than the backward pass works on together.
#[test]
fn parts_of_heads_and_groups_of_keys_meet_their_twin() {
    let mut sampler = Sampler::new(18);
    for (batch, queries, keys, heads, width, value_width) in [
        (2, 520, 3, 2, 4, 3),
        (2, 5, 1600, 2, 4, 3),
        (1, 70, 200, 1, 130, 40),
    ] {
        let q = sampler.normal(&[batch, queries, heads * width], 1.0);
        let k = sampler.normal(&[batch, keys, heads * width], 1.0);
        let v = sampler.normal(&[batch, keys, heads * value_width], 1.0);
        agree(
            "attention in parts",
            &[q, k, v],
            |x| attention(&x[0], &x[1], &x[2], &options(heads, None)),
            |x| composed([&x[0], &x[1], &x[2]], heads, None, None),
        );
    }
}

#[test]
fn a_learned_bias_meets_its_twin() {
    let mut sampler = Sampler::new(15);
    for (batch, length, longest, heads, width) in [
        (1, 1, 1, 1, 4),
        (3, 9, 11, 2, 5),
        (2, 130, 140, 2, 8),
        (2, 600, 600, 1, 8),
        (2, 90, 140, 2, 34),
    ] {
        let x = sampler.normal(&[batch, length, 3 * heads * width], 1.0);
        let bias = sampler.normal(&[heads, longest, longest], 1.0);
        let factor = sampler.normal(&[1], 1.0);
        let mask = mask(&mut sampler, batch, length, true);
        for (mask, cap) in [(None, None), (Some(&mask), None), (Some(&mask), Some(1.5))] {
            let options = AttentionOptions {
                functions: ScoreFunctions { soft_cap: cap },
                ..options(heads, mask)
            };
            agree(
                "attention with a bias",
                &[x.clone(), bias.clone(), factor.clone()],
                |x| attention_biased(&x[0], &x[1], &x[2], &options),
                |x| {
                    let [q, k, v] = thirds(&x[0])?;
                    let bias = x[1].narrow(1, 0, length)?.narrow(2, 0, length)?;
                    let bias = bias.broadcast_mul(&x[2])?.unsqueeze(0)?;
                    let y = composed_with([&q, &k, &v], heads, (Some(&bias), cap), mask, None)?;
                    without_padding(&y, mask)
                },
            );
        }
    }
    let x = sampler.normal(&[1, 4, 12], 1.0);
    let bias = sampler.normal(&[2, 3, 3], 1.0);
    let factor = sampler.normal(&[1], 1.0);
    assert!(attention_biased(&x, &bias, &factor, &options(2, None)).is_err());
}

/// Two tasks share the keys of a head, and each has both examples. Most positions are padding: the
/// others alone, as short sequences, have the same outputs and gradients.
#[test]
fn parts_of_a_learned_bias_add_up() {
    let (length, heads, width) = (961, 2, 4);
    let valid: [&[u32]; 2] = [&[3, 5, 600, 960], &[70, 80, 530]];
    let mut marks = vec![0f32; 2 * length];
    for (example, places) in valid.iter().enumerate() {
        for place in *places {
            marks[example * length + *place as usize] = 1.0;
        }
    }
    let mask = Tensor::from_vec(marks, (2, length), &Device::Cpu).unwrap();
    let options = options(heads, Some(&mask));
    let mut sampler = Sampler::new(19);
    let shapes: [&[usize]; 3] = [
        &[2, length, 3 * heads * width],
        &[heads, length, length],
        &[1],
    ];
    let inputs = shapes.map(|shape| {
        let x = sampler.normal(shape, 1.0).to_dtype(DType::F64).unwrap();
        Var::from_tensor(&x).unwrap()
    });
    let rows = |x: &Tensor, example: usize| -> Result<Tensor> {
        let places = Tensor::new(valid[example], &Device::Cpu)?;
        x.narrow(0, example, 1)?.index_select(&places, 1)
    };
    let of_kernel = || -> Result<Tensor> {
        let [x, bias, factor] = inputs.each_ref().map(|x| x.to_dtype(DType::F32));
        let y = attention_biased(&x?, &bias?, &factor?, &options)?;
        Tensor::cat(&[rows(&y, 0)?, rows(&y, 1)?], 1)?.to_dtype(DType::F64)
    };
    let alone = |example: usize| -> Result<Tensor> {
        let places = Tensor::new(valid[example], &Device::Cpu)?;
        let [q, k, v] = thirds(&rows(&inputs[0], example)?)?;
        let bias = inputs[1]
            .index_select(&places, 1)?
            .index_select(&places, 2)?;
        let bias = bias.broadcast_mul(&inputs[2])?.unsqueeze(0)?;
        composed_with([&q, &k, &v], heads, (Some(&bias), None), None, None)
    };
    let expected = Tensor::cat(&[alone(0).unwrap(), alone(1).unwrap()], 1).unwrap();
    // One thread has one working memory for all parts.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    pool.unwrap().install(|| {
        let y = of_kernel().unwrap();
        crate::testing::agree(&y, &expected, &inputs, 2e-5, "a learned bias in parts");
    });
}

#[test]
fn a_soft_cap_meets_its_twin() {
    let mut sampler = Sampler::new(17);
    for (length, heads, width, cap) in [
        (1, 1, 4, 0.5),
        (70, 2, 5, 2.0),
        (70, 1, 5, 1e5),
        (130, 1, 40, 1.0),
    ] {
        let x = [sampler.normal(&[2, length, 3 * heads * width], 1.5)];
        let mask = mask(&mut sampler, 2, length, true);
        let options = AttentionOptions {
            functions: ScoreFunctions {
                soft_cap: Some(cap),
            },
            ..options(heads, Some(&mask))
        };
        agree(
            "attention with a soft cap",
            &x,
            |x| attention_packed(&x[0], &options),
            |x| {
                let [q, k, v] = thirds(&x[0])?;
                let mods = (None, Some(cap));
                let y = composed_with([&q, &k, &v], heads, mods, Some(&mask), None)?;
                without_padding(&y, Some(&mask))
            },
        );
    }
}

#[test]
fn scores_by_distance_meet_their_twin() {
    let mut sampler = Sampler::new(16);
    // Without rows of queries and keys the work of a head is done in parts.
    for (batch, length, heads, width, reach, rows) in [
        (1, 6, 1, 4, 1, true),
        (3, 9, 2, 5, 3, true),
        (2, 150, 2, 8, 149, true),
        (1, 300, 1, 8, 70, true),
        (1, 100, 1, 36, 20, true),
        (1, 1030, 1, 4, 70, false),
    ] {
        let columns = 2 * reach + 1;
        let x = sampler.normal(&[batch, length, 3 * heads * width], 1.0);
        let of_heads = sampler.normal(&[heads, columns], 1.0);
        let mut inputs = vec![x, of_heads];
        if rows {
            let mut rows = || sampler.normal(&[batch, heads, length, columns], 1.0);
            inputs.extend([rows(), rows()]);
        }
        let mask = mask(&mut sampler, batch, length, batch > 1);
        let distances = (0..length).flat_map(|i| (0..length).map(move |j| (i, j)));
        let columns: Vec<u32> = distances
            .map(|(i, j)| (j + reach).saturating_sub(i).min(2 * reach) as u32)
            .collect();
        let columns = Tensor::from_vec(columns, (1, 1, length, length), &Device::Cpu).unwrap();
        let columns = columns
            .broadcast_as((batch, heads, length, length))
            .unwrap();
        let columns = columns.contiguous().unwrap();
        agree(
            "attention with scores by distance",
            &inputs,
            |x| {
                let relative = RelativeScores {
                    reach,
                    keys: 0..length,
                    of_heads: Some(x[1].clone()),
                    of_queries: x.get(2).cloned(),
                    of_keys: x.get(3).cloned(),
                };
                let options = AttentionOptions {
                    relative: Some(relative),
                    ..options(heads, Some(&mask))
                };
                attention_packed(&x[0], &options)
            },
            |x| {
                let [q, k, v] = thirds(&x[0])?;
                let of_heads = x[1].reshape((1, heads, 1, ()))?;
                let of_heads = of_heads.broadcast_as((batch, heads, length, 2 * reach + 1))?;
                let mut bias = of_heads.contiguous()?.gather(&columns, 3)?;
                if rows {
                    let of_keys = x[3].gather(&columns.t()?.contiguous()?, 3)?.t()?;
                    bias = ((bias + x[2].gather(&columns, 3)?)? + of_keys)?;
                }
                let y = composed_with([&q, &k, &v], heads, (Some(&bias), None), Some(&mask), None)?;
                without_padding(&y, Some(&mask))
            },
        );
    }
}

/// All blocks of queries see the same keys, so that each adds to the same rows of the table.
#[test]
fn a_table_of_keys_under_block_masks_meets_its_twin() {
    let (queries, keys, reach) = (2048, 64, 2);
    let mut block_mask = BlockMask::new(0.0);
    let block = block_mask.key_block(0..keys as u32);
    for first in (0..queries as u32).step_by(64) {
        block_mask.query_block(first..first + 64);
        block_mask.allow(block, None);
    }
    let block_masks = BlockMasks::new(vec![block_mask]);
    let mut sampler = Sampler::new(20);
    let shapes: [&[usize]; 4] = [
        &[1, queries, 4],
        &[1, keys, 4],
        &[1, keys, 4],
        &[1, 1, keys, 2 * reach + 1],
    ];
    let inputs = shapes.map(|shape| sampler.normal(shape, 1.0));
    let pairs = (0..keys).flat_map(|j| (0..queries).map(move |i| (i, j)));
    let columns = pairs.map(|(i, j)| (j + reach).saturating_sub(i).min(2 * reach) as u32);
    let columns = Tensor::from_iter(columns, &Device::Cpu).unwrap();
    let columns = columns.reshape((1, 1, keys, queries)).unwrap();
    agree_in_f32(
        "attention with a table of keys",
        &inputs,
        |x| {
            let relative = RelativeScores {
                reach,
                keys: 0..keys,
                of_heads: None,
                of_queries: None,
                of_keys: Some(x[3].clone()),
            };
            let options = AttentionOptions {
                block_masks: Some(block_masks.clone()),
                relative: Some(relative),
                ..options(1, None)
            };
            attention(&x[0], &x[1], &x[2], &options)
        },
        |x| {
            let bias = x[3].gather(&columns, 3)?.t()?;
            composed_with([&x[0], &x[1], &x[2]], 1, (Some(&bias), None), None, None)
        },
    );
}

#[test]
fn dropout_meets_its_twin() {
    let mut sampler = Sampler::new(11);
    let rng = crate::rng::RngKey::new(5, 6, 7);
    let stream = rng.per_example(crate::rng::StreamKey::new("drop"));
    for (batch, length, heads, width) in [
        (2, 9, 2, 4),
        (2, 128, 1, 16),
        (1, 200, 3, 12),
        (1, 70, 1, 40),
    ] {
        let x = [sampler.normal(&[batch, length, 3 * heads * width], 1.0)];
        let mask = mask(&mut sampler, batch, length, false);
        let dropout = AttentionDropout::new(&stream, batch, 0.3);
        let factors = dropout
            .factors(heads, length, length, &Device::Cpu)
            .unwrap();
        let kept = factors.ne(0.0).unwrap().to_dtype(DType::F64).unwrap();
        let kept = kept.mean_all().unwrap().to_scalar::<f64>().unwrap();
        assert!((kept - 0.7).abs() < 0.1, "{kept}");
        let options = AttentionOptions {
            dropout: Some(dropout),
            ..options(heads, Some(&mask))
        };
        agree(
            "attention with dropout",
            &x,
            |x| attention_packed(&x[0], &options),
            |x| {
                let [q, k, v] = thirds(&x[0])?;
                let y = composed([&q, &k, &v], heads, Some(&mask), Some(&factors))?;
                without_padding(&y, Some(&mask))
            },
        );
    }
    let dropout = AttentionDropout::new(&stream, 2, 0.3);
    let factors = dropout.factors(2, 9, 70, &Device::Cpu).unwrap();
    let options = AttentionOptions {
        dropout: Some(dropout),
        ..options(2, None)
    };
    let [q, k, v] = [9, 70, 70].map(|length| sampler.normal(&[2, length, 8], 1.0));
    agree(
        "cross attention with dropout",
        &[q, k, v],
        |x| attention(&x[0], &x[1], &x[2], &options),
        |x| composed([&x[0], &x[1], &x[2]], 2, None, Some(&factors)),
    );
}

/// The instruction set of the calling thread counts, on any number of threads.
#[test]
fn weights_that_are_kept_meet_their_twin() {
    let mut sampler = Sampler::new(12);
    let inputs = [(); 3].map(|()| sampler.normal(&[4, 130, 4 * 8], 1.0));
    agree_in_f32(
        "attention with weights kept",
        &inputs,
        |x| attention_materialized(&x[0], &x[1], &x[2], &options(4, None)),
        |x| composed([&x[0], &x[1], &x[2]], 4, None, None),
    );
}

/// There are enough keys for several tasks.
#[test]
fn without_queries_the_gradients_of_keys_and_values_are_zeros() {
    let of = |length: usize| {
        let x = Tensor::ones((1, length, 4), DType::F32, &Device::Cpu).unwrap();
        Var::from_tensor(&x).unwrap()
    };
    let (q, k, v) = (of(0), of(1100), of(1100));
    let y = attention(&q, &k, &v, &options(1, None)).unwrap();
    assert_eq!(y.dims(), [1, 0, 4]);
    let gradients = y.backward().unwrap();
    for x in [&k, &v] {
        let gradient = gradients.get(x).unwrap().flatten_all().unwrap();
        assert_eq!(gradient.to_vec1::<f32>().unwrap(), [0.0; 4400]);
    }
}

#[test]
fn scores_far_apart_neither_overflow_nor_vanish() {
    let mut sampler = Sampler::new(9);
    let x = [sampler.normal(&[1, 80, 3 * 16], 20.0)];
    agree_in_f32(
        "attention with large scores",
        &x,
        |x| attention_packed(&x[0], &options(1, None)),
        |x| {
            let [q, k, v] = thirds(&x[0])?;
            composed([&q, &k, &v], 1, None, None)
        },
    );
}

#[test]
fn scores_far_below_zero_that_are_alike_make_a_mean() {
    let of = |number: f32| Tensor::full(number, (1, 3, 4), &Device::Cpu).unwrap();
    let values = Sampler::new(21).normal(&[1, 3, 4], 1.0);
    let mean = values.mean_keepdim(1).unwrap();
    let mean = mean.broadcast_as((1, 3, 4)).unwrap();
    // Scores are -20,000.
    let y = attention(&of(100.0), &of(-100.0), &values, &options(1, None)).unwrap();
    crate::testing::close(&y, &mean, 1e-5, "mean");
}

/// Queries, keys and values are bfloat16 numbers, and the scale makes no others of them: only
/// weights can be rounded.
#[test]
fn weights_are_rounded_to_bfloat16() {
    let mut sampler = Sampler::new(22);
    let [q, k, v] = [(); 3].map(|()| {
        let eighths = (0..9 * 4).map(|_| (sampler.bits() % 17) as f64 / 8.0 - 1.0);
        let eighths = Tensor::from_iter(eighths, &Device::Cpu).unwrap();
        eighths.reshape((1, 9, 4)).unwrap()
    });
    let options = AttentionOptions {
        scale: Some(std::f64::consts::LN_2),
        ..options(1, None)
    };
    let exact = crate::ops::attention::composed(&q, &k, &v, &options).unwrap();
    let [q, k, v] = [q, k, v].map(|x| x.to_dtype(DType::F32).unwrap());
    for (all, rounded) in [(Isa::all(), false), (Isa::all_rounded(), true)] {
        for isa in all {
            let y = isa.force(|| attention(&q, &k, &v, &options)).unwrap();
            let apart = (y.to_dtype(DType::F64).unwrap() - &exact).unwrap();
            let apart = apart.abs().unwrap().max_all().unwrap();
            let apart = apart.to_scalar::<f64>().unwrap();
            let expected = match rounded {
                true => 2e-5..1e-2,
                false => 0.0..2e-6,
            };
            assert!(expected.contains(&apart), "{isa:?}: {apart:.1e}");
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(10);
    let x = sampler.normal(&[2, 6, 24], 1.0);
    assert!(attention_packed(&x, &options(3, None)).is_err());
    assert!(attention_packed(&x, &options(0, None)).is_err());
    let mask = sampler.normal(&[2, 5], 1.0);
    assert!(attention_packed(&x, &options(2, Some(&mask))).is_err());
    assert!(attention(&x, &x.narrow(1, 0, 3).unwrap(), &x, &options(2, None)).is_err());
    for values in [
        sampler.normal(&[2, 6, 5], 1.0),
        sampler.normal(&[2, 6, 0], 1.0),
    ] {
        let refused = attention(&x, &x, &values, &options(2, None)).unwrap_err();
        assert!(refused.to_string().contains("cannot be split"), "{refused}");
    }
    for cap in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = AttentionOptions {
            functions: ScoreFunctions {
                soft_cap: Some(cap),
            },
            ..options(2, None)
        };
        let refused = attention_packed(&x, &options).unwrap_err();
        assert!(refused.to_string().contains("is not above 0"), "{refused}");
    }
}

#[test]
fn more_weights_than_a_dropout_stream_has_numbers_for_are_errors() {
    let rng = crate::rng::RngKey::new(5, 6, 7);
    let stream = rng.per_example(crate::rng::StreamKey::new("drop"));
    let dropped = AttentionOptions {
        dropout: Some(AttentionDropout::new(&stream, 1, 0.1)),
        ..options(2, None)
    };
    let check =
        |options: &AttentionOptions, queries: usize| options.check(1, (queries, 1 << 17), [4; 3]);
    // A stream has 2^34 numbers.
    assert!(check(&dropped, 1 << 15).is_ok());
    let refused = check(&dropped, 1 << 17).unwrap_err().to_string();
    assert!(refused.contains("exceed a dropout stream"), "{refused}");
    assert!(check(&options(2, None), 1 << 17).is_ok());
}
