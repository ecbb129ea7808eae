use candle_core::Var;

use super::*;
use crate::{
    ops::attention::partial_softmax::by_head,
    reference,
    testing::{agree, check_gradient, close, differences, normal},
};

fn sorting(rounds: usize, chunk: usize, across_buckets: bool) -> Sorting {
    Sorting {
        rounds,
        chunk,
        across_buckets,
    }
}

/// Maps queries and values (B, H, L, E) to (B, H, L, E), without dropout.
fn attend(
    sorting: &Sorting,
    [q, v]: [&Tensor; 2],
    buckets: &[u32],
    mask: Option<&Mask>,
) -> Result<Tensor> {
    let (batch, heads, length, width) = q.dims4()?;
    let options = AttentionOptions {
        heads,
        ..AttentionOptions::default()
    };
    let flat = |x: &Tensor| by_head(x)?.flatten_from(2);
    let y = sorting.attend(
        &ScoreMods::default(),
        [&flat(q)?, &flat(v)?],
        buckets,
        mask,
        options,
    )?;
    by_head(&y.reshape((batch, length, heads, width))?)
}

/// Returns the part of (B, H, L, E) that is read: without the outputs of padded queries, which see
/// no key.
fn read(x: &Tensor, mask: Option<&Mask>) -> Tensor {
    match mask {
        Some(mask) => {
            let valid = mask.valid().unsqueeze(1).unwrap().unsqueeze(3).unwrap();
            x.broadcast_mul(&valid).unwrap()
        }
        None => x.clone(),
    }
}

fn mask(valid: &[Vec<f64>]) -> Mask {
    Mask::new(&Tensor::new(valid.to_vec(), &Device::Cpu).unwrap()).unwrap()
}

/// Computes softmax attention with normalised keys in which a position does not see itself.
fn others_only(q: &[f64], k: &[f64]) -> f64 {
    if q == k {
        return 0.0;
    }
    let length = k.iter().map(|x| x * x).sum::<f64>().sqrt();
    let unit: Vec<f64> = k.iter().map(|x| x / length).collect();
    reference::softmax(q, &unit)
}

#[test]
fn one_bucket_in_one_chunk_is_shared_query_attention() {
    let shape = [3, 2, 5, 3]; // (B, H, L, E)
    let inputs = ["q", "v"].map(|name| Var::from_tensor(&normal(name, &shape)).unwrap());
    let [q, v] = &inputs;
    let valid = [vec![1.0; 5], vec![1.0, 1.0, 1.0, 0.0, 0.0], vec![0.0; 5]];
    let mask = mask(&valid);
    let weights = normal("weights", &shape);
    let back = |x: &Tensor| x.transpose(1, 2).unwrap().contiguous().unwrap();
    let expected = || {
        let (q, v) = (back(q), back(v));
        let y = reference::attention(&q, &q, &v, Some(mask.valid()), others_only);
        read(&back(&y.unwrap()), Some(&mask))
    };
    let loss = |y: &Tensor| (y * &weights).unwrap().sum_all().unwrap();
    for (rounds, chunk) in [(1, 5), (1, 9), (3, 5)] {
        let buckets = vec![0; 3 * 2 * rounds * 5];
        let sorting = sorting(rounds, chunk, false);
        let y = attend(&sorting, [q, v], &buckets, Some(&mask)).unwrap();
        let y = read(&y, Some(&mask));
        close(&y, &expected(), 1e-12, "one bucket");
        let gradients = loss(&y).backward().unwrap();
        for variable in &inputs {
            let actual = gradients.get(variable).unwrap().flatten_all().unwrap();
            let expected = differences(variable, || loss(&expected()).to_scalar().unwrap());
            for (actual, expected) in actual.to_vec1::<f64>().unwrap().iter().zip(&expected) {
                assert!((actual - expected).abs() < 1e-7, "{actual} {expected}");
            }
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    // Two heads of seven positions, two rounds; positions alone in a bucket see themselves.
    let buckets = [
        0, 1, 0, 2, 1, 0, 3, 3, 2, 1, 0, 0, 1, 2, 1, 1, 1, 1, 0, 0, 0, 2, 0, 2, 0, 2, 0, 1,
    ];
    let mask = mask(&[vec![1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0]]);
    for across in [false, true] {
        for mask in [None, Some(&mask)] {
            let shape: &[usize] = &[1, 2, 7, 2];
            check_gradient("reformer", &[shape, shape], |inputs| {
                attend(
                    &sorting(2, 2, across),
                    [&inputs[0], &inputs[1]],
                    &buckets,
                    mask,
                )
            });
        }
    }
}

#[test]
fn the_kernel_agrees_with_the_composed_form() {
    let (batch, heads, width) = (2, 2, 8);
    let valid: Vec<Vec<f64>> = [40, 150]
        .iter()
        .map(|&tokens| (0..150).map(|i| f64::from(u8::from(i < tokens))).collect())
        .collect();
    for (length, rounds, chunk, across, masked) in [
        (150, 2, 32, false, true),
        (150, 3, 32, true, true),
        (150, 1, 100, false, true),
        (90, 2, 32, false, false),
        (90, 1, 32, true, false),
        (20, 2, 32, false, false),
    ] {
        let shape = [batch, heads, length, width];
        let inputs = ["q", "v"].map(|name| Var::from_tensor(&normal(name, &shape)).unwrap());
        let rows: Vec<Vec<f64>> = valid.iter().map(|row| row[..length].to_vec()).collect();
        let mask = masked.then(|| mask(&rows));
        let buckets: Vec<u32> = (0..(batch * heads * rounds * length) as u32)
            .map(|i| i.wrapping_mul(2_654_435_761) >> 29)
            .collect();
        let sorting = sorting(rounds, chunk, across);
        let [q, v] = &inputs;
        let composed = attend(&sorting, [q, v], &buckets, mask.as_ref()).unwrap();
        let single = |x: &Tensor| x.to_dtype(DType::F32).unwrap();
        let single_mask = mask
            .as_ref()
            .map(|mask| Mask::new(&single(mask.valid())).unwrap());
        let fused = attend(
            &sorting,
            [&single(q), &single(v)],
            &buckets,
            single_mask.as_ref(),
        );
        let fused = fused.unwrap().to_dtype(DType::F64).unwrap();
        let [fused, composed] = [fused, composed].map(|y| read(&y, mask.as_ref()));
        agree(
            &fused,
            &composed,
            &inputs,
            2e-5,
            &format!("{length} {rounds} {across}"),
        );
    }
}

#[test]
fn a_position_sees_its_bucket_in_its_chunk_and_the_one_before() {
    // By bucket, then position: chunks 0 1 4 | 6 2 3 | 5 7.
    sees_its_bucket(&[0, 0, 1, 1, 0, 1, 0, 2], 3);
    // Chunks of more keys than a block of the kernel has.
    let buckets: Vec<u32> = (0..150).map(|i| i * i % 7 % 3).collect();
    sees_its_bucket(&buckets, 70);
}

/// Checks the outputs of one head whose positions are in `buckets`, against plain loops.
fn sees_its_bucket(buckets: &[u32], chunk: usize) {
    let length = buckets.len();
    let mut sorted: Vec<usize> = (0..length).collect();
    sorted.sort_by_key(|&i| (buckets[i], i));
    let mut chunk_of = vec![0; length];
    for (slot, &i) in sorted.iter().enumerate() {
        chunk_of[i] = slot / chunk;
    }
    let chunks = length.div_ceil(chunk);
    let [q, v] = ["q", "v"].map(|name| normal(name, &[1, 1, length, 2]));
    let y = attend(&sorting(1, chunk, false), [&q, &v], buckets, None);
    let rows = |x: &Tensor| x.reshape((length, 2)).unwrap().to_vec2::<f64>().unwrap();
    let (y, q, v) = (rows(&y.unwrap()), rows(&q), rows(&v));
    for i in 0..length {
        let before = (chunk_of[i] + chunks - 1) % chunks;
        let mut seen: Vec<usize> = (0..length)
            .filter(|&j| j != i && buckets[j] == buckets[i])
            .filter(|&j| chunk_of[j] == chunk_of[i] || chunk_of[j] == before)
            .collect();
        if seen.is_empty() {
            seen.push(i);
        }
        let weight = |j: usize| {
            if j == i {
                1.0
            } else {
                others_only(&q[i], &q[j])
            }
        };
        let total: f64 = seen.iter().map(|&j| weight(j)).sum();
        for channel in 0..2 {
            let sum: f64 = seen.iter().map(|&j| weight(j) * v[j][channel]).sum();
            assert!((y[i][channel] - sum / total).abs() < 1e-12, "position {i}");
        }
    }
}

fn hash(rounds: usize, buckets: usize, width: usize) -> Hash {
    Hash {
        rounds,
        buckets,
        width,
        key: StreamKey::new("rotations"),
        drawn: Mutex::new(None),
    }
}

/// Counts how often two vectors at `angle` share one of `buckets` in 4096 rounds.
fn collisions(angle: f64, buckets: usize) -> f64 {
    let rounds = 4096;
    let hash = hash(rounds, buckets, 2);
    let x = Tensor::new(&[[1.0, 0.0], [angle.cos(), angle.sin()]], &Device::Cpu).unwrap();
    let x = x.reshape((1, 2, 2)).unwrap();
    let rotations = hash.rotations(&RngKey::new(3, 0, 0), &x).unwrap();
    let actual = hash.buckets(&x, &rotations).unwrap();
    let same = actual.chunks(2).filter(|pair| pair[0] == pair[1]).count();
    same as f64 / rounds as f64
}

#[test]
fn near_vectors_share_a_bucket_at_the_rate_of_the_theory() {
    // Two buckets: a random hyperplane, which parts vectors with probability angle / π.
    for angle in [0.1, 0.5, 1.0, 2.0, 3.0] {
        let rate = 1.0 - angle / std::f64::consts::PI;
        let error = (rate * (1.0 - rate) / 4096.0).sqrt();
        let actual = collisions(angle, 2);
        assert!(
            (actual - rate).abs() < 3.5 * error,
            "{angle}: {actual} {rate}"
        );
    }
    // More buckets part more, and near vectors stay together more often than far ones.
    let [near, far] = [0.2, 1.2].map(|angle| collisions(angle, 8));
    assert!(
        near > 0.75 && far < 0.45 && collisions(0.0, 8) == 1.0,
        "{near} {far}"
    );
}

#[test]
fn rotations_change_with_seed_and_step_but_not_with_the_batch() {
    let hash = hash(2, 4, 3);
    let like = Tensor::zeros(1, DType::F64, &Device::Cpu).unwrap();
    let drawn = |rng: RngKey| -> Vec<f64> {
        let rotations = hash.rotations(&rng, &like).unwrap();
        rotations.flatten_all().unwrap().to_vec1().unwrap()
    };
    let base = drawn(RngKey::new(1, 2, 0));
    assert_eq!(base, drawn(RngKey::new(1, 2, 7).with_branch(1)));
    assert_ne!(base, drawn(RngKey::new(1, 3, 0)));
    assert_ne!(base, drawn(RngKey::new(2, 2, 0)));
    assert_eq!(
        [1, 64, 65, 300].map(|longest| buckets(longest, 64)),
        [1, 1, 2, 6]
    );
}
