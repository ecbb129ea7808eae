//! Tests of every score modification against its equation in plain loops, with both forms of
//! attention, over all pairs and under block masks.

use std::collections::HashMap;

use candle_core::{DType, Device, Tensor};

use super::*;
use crate::{
    Parameters,
    ops::attention::BlockLists,
    options::BlockOptions,
    testing::{check_layer, close, normal, parameters},
};

const HEADS: usize = 2;
const WIDTH: usize = 4;
const DIM: usize = 6;
const LENGTH: usize = 11;
const REACH: usize = 3;
const BIASES: [PairBias; 8] = [
    PairBias::None,
    PairBias::T5,
    PairBias::Alibi,
    PairBias::Gauss,
    PairBias::Shaw,
    PairBias::Xl,
    PairBias::Deberta,
    PairBias::DebertaPaper,
];

fn score_mods(parameters: &Parameters, bias: PairBias, memory: usize) -> ScoreMods {
    let block = BlockOptions {
        dim: DIM,
        qkv_dim: HEADS * WIDTH,
        heads: HEADS,
        bias,
        bias_distance: REACH,
        memory,
        ..BlockOptions::default()
    };
    let layer = LayerContext {
        shared: parameters.builder(),
        ..LayerContext::new(parameters.builder().pp("mixer"), &block, LENGTH)
    };
    ScoreMods::new(&layer).unwrap()
}

/// Parameters by path, each flat.
struct Loops {
    bias: PairBias,
    values: HashMap<String, Vec<f64>>,
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

impl Loops {
    fn new(bias: PairBias, parameters: &Parameters) -> Self {
        let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let all = parameters.all().into_iter();
        let values = all
            .map(|(path, var)| (path, values(var.as_tensor())))
            .collect();
        Self { bias, values }
    }

    /// Returns row i of a matrix with rows of `width` numbers.
    fn row(&self, path: &str, i: usize, width: usize) -> &[f64] {
        &self.values[path][i * width..][..width]
    }

    /// Returns z_ij of one head, for a key of the token at j or of none.
    fn score(&self, head: usize, (q, i): (&[f64], usize), (k, j): (&[f64], Option<usize>)) -> f64 {
        let root = (WIDTH as f64).sqrt();
        let product = dot(q, k);
        let distance = |j: usize| j as i64 - i as i64;
        let clipped = |j: usize| distance(j).clamp(-(REACH as i64), REACH as i64);
        match (self.bias, j) {
            (PairBias::T5, None) => product,
            (PairBias::T5, Some(j)) => {
                // No distance of these tests is in a bucket with another but 8 to 11.
                let sign = if j > i { 16 } else { 0 };
                let bucket = sign + i.abs_diff(j).min(8);
                product + self.row("bias.t5", bucket, HEADS)[head]
            }
            (PairBias::Alibi, Some(j)) => {
                let slope = [1.0 / 16.0, 1.0 / 256.0][head];
                product / root - slope * i.abs_diff(j) as f64
            }
            (PairBias::Gauss, Some(j)) => {
                let softplus = |name: &str| (1.0 + self.row(name, head, 1)[0].exp()).ln();
                let (w, b) = (softplus("mixer.bias.width"), -softplus("mixer.bias.offset"));
                product / root - (w * (distance(j) * distance(j)) as f64 + b).abs()
            }
            (PairBias::Shaw, Some(j)) => {
                let row = (clipped(j) + REACH as i64) as usize;
                (product + dot(q, self.row("mixer.bias.shaw", row, WIDTH))) / root
            }
            (PairBias::Xl, j) => {
                let with = |name: &str| -> Vec<f64> {
                    let more = self.row(name, head, WIDTH).iter();
                    q.iter().zip(more).map(|(q, u)| q + u).collect()
                };
                let mut sum = dot(&with("mixer.bias.content"), k);
                if let Some(j) = j {
                    let half = DIM / 2;
                    let angle = |c: usize| {
                        -distance(j) as f64 / 10_000f64.powf(2.0 * c as f64 / DIM as f64)
                    };
                    let sines = (0..half).map(|c| angle(c).sin());
                    let r: Vec<f64> = sines.chain((0..half).map(|c| angle(c).cos())).collect();
                    for (e, q) in with("mixer.bias.position").iter().enumerate() {
                        sum += q * dot(self.row("mixer.bias.relative", head * WIDTH + e, DIM), &r);
                    }
                }
                sum / root
            }
            (PairBias::Deberta | PairBias::DebertaPaper, j) => {
                let mut sum = product;
                if let Some(j) = j {
                    let last = 2 * REACH as i64 - 1;
                    let delta = |from: usize, to: usize| {
                        (from as i64 - to as i64 + REACH as i64).clamp(0, last) as usize
                    };
                    let third = match self.bias {
                        PairBias::Deberta => delta(i, j),
                        _ => delta(j, i),
                    };
                    for (name, x, delta) in [("key", q, delta(i, j)), ("query", k, third)] {
                        let r = self.row("bias.deberta", delta, DIM);
                        let path = format!("mixer.bias.{name}.weight");
                        for (e, x) in x.iter().enumerate() {
                            sum += x * dot(self.row(&path, head * WIDTH + e, DIM), r);
                        }
                    }
                }
                sum / (3.0 * WIDTH as f64).sqrt()
            }
            (_, _) => product / root,
        }
    }

    /// Returns attention of x (B, L, 3 H E) on its valid tokens that `sees` and on `slots` of
    /// memory.
    fn attend(
        &self,
        x: &Tensor,
        slots: usize,
        valid: &[usize],
        sees: impl Fn(usize, usize) -> bool,
    ) -> Tensor {
        let (batch, length, _) = x.dims3().unwrap();
        let x = x.to_vec3::<f64>().unwrap();
        let row = HEADS * WIDTH;
        let mut y = vec![0.0; batch * length * row];
        for (example, head, i) in (0..batch)
            .flat_map(|b| (0..HEADS).flat_map(move |h| (0..length).map(move |i| (b, h, i))))
        {
            let part = |position: usize, which: usize| {
                &x[example][position][which * row + head * WIDTH..][..WIDTH]
            };
            let scaled = |path: &str, slot: usize, scale: f64| -> Vec<f64> {
                let values = &self.row(path, slot, row)[head * WIDTH..][..WIDTH];
                values.iter().map(|x| scale * x).collect()
            };
            let tokens = (0..valid[example]).filter(|j| sees(i, *j));
            let mut seen: Vec<(f64, Vec<f64>)> = tokens
                .map(|j| {
                    let z = self.score(head, (part(i, 0), i), (part(j, 1), Some(j)));
                    (z.exp(), part(j, 2).to_vec())
                })
                .collect();
            for slot in 0..slots {
                let key = scaled("mixer.memory.key", slot, (WIDTH as f64).sqrt());
                let value = scaled("mixer.memory.value", slot, (slots as f64).sqrt());
                let z = self.score(head, (part(i, 0), i), (&key, None));
                seen.push((z.exp(), value));
            }
            // A query that sees no key gets zeros.
            let sum: f64 = seen.iter().map(|(weight, _)| weight).sum();
            for (weight, value) in seen {
                for (c, value) in value.iter().enumerate() {
                    y[(example * length + i) * row + head * WIDTH + c] += weight / sum * value;
                }
            }
        }
        Tensor::from_vec(y, (batch, length, row), &Device::Cpu).unwrap()
    }
}

/// Returns attention of x (B, L, 3 H E) on itself.
fn attend(score_mods: &ScoreMods, x: &Tensor, options: AttentionOptions) -> Result<Tensor> {
    let width = x.dim(2)? / 3;
    let [q, k, v] = [0, 1, 2].map(|i: usize| x.narrow(2, i * width, width)?.contiguous());
    score_mods.attend([&q?, &k?, &v?], options, 0..x.dim(1)?)
}

/// Returns a copy of the parameters in f32.
fn narrowed(parameters: &Parameters, bias: PairBias, memory: usize) -> ScoreMods {
    let narrow = Parameters::new(3, &Device::Cpu, DType::F32);
    let score_mods = score_mods(&narrow, bias, memory);
    let values: HashMap<String, _> = parameters.all().into_iter().collect();
    for (path, var) in narrow.all() {
        var.set(&values[&path].to_dtype(DType::F32).unwrap())
            .unwrap();
    }
    score_mods
}

#[test]
fn both_forms_are_the_equations() {
    let valid = [LENGTH, 4];
    let mask: Vec<f64> = (0..2 * LENGTH)
        .map(|i| f64::from(u8::from(i % LENGTH < valid[i / LENGTH])))
        .collect();
    let mask = Tensor::from_vec(mask, (2, LENGTH), &Device::Cpu).unwrap();
    let x = normal("x", &[2, LENGTH, 3 * HEADS * WIDTH]);
    for (bias, memory) in BIASES.iter().flat_map(|bias| [(*bias, 0), (*bias, 3)]) {
        let parameters = parameters();
        let score_mods = score_mods(&parameters, bias, memory);
        for (path, var) in parameters.all() {
            let shift = normal(&path, var.dims()).affine(0.5, 0.0).unwrap();
            var.set(&(var.as_detached_tensor() + shift).unwrap())
                .unwrap();
        }
        let narrow = narrowed(&parameters, bias, memory);
        let loops = Loops::new(bias, &parameters);
        let window = BlockLists::window(LENGTH, 4, 2).block_masks(LENGTH);
        for block_masks in [None, Some(window)] {
            let expected = loops.attend(&x, memory, &valid, |i, j| {
                block_masks.is_none() || (i <= j + 4 && j <= i + 2)
            });
            // Outputs of padded queries are never read; in the window some see no key.
            let read = |y: &Tensor| y.broadcast_mul(&mask.unsqueeze(2).unwrap()).unwrap();
            for (dtype, score_mods, tolerance) in [
                (DType::F64, &score_mods, 1e-10),
                (DType::F32, &narrow, 2e-5),
            ] {
                let options = AttentionOptions {
                    heads: HEADS,
                    mask: Some(mask.to_dtype(dtype).unwrap()),
                    block_masks: block_masks.clone(),
                    ..AttentionOptions::default()
                };
                let y = attend(score_mods, &x.to_dtype(dtype).unwrap(), options.clone()).unwrap();
                let place = format!("{bias}, {memory}, {}, {dtype:?}", block_masks.is_some());
                let y = y.to_dtype(DType::F64).unwrap();
                assert!(
                    y.sqr()
                        .unwrap()
                        .sum_all()
                        .unwrap()
                        .to_scalar::<f64>()
                        .unwrap()
                        .is_finite()
                );
                close(&read(&y), &read(&expected), tolerance, &place);
                let packed = score_mods.content_independent(LENGTH, &options).unwrap();
                if let Some(options) = packed.filter(|_| memory == 0) {
                    let y = attention::attend_packed(&x.to_dtype(dtype).unwrap(), &options);
                    let y = y.unwrap().to_dtype(DType::F64).unwrap();
                    close(&read(&y), &read(&expected), tolerance, &place);
                }
            }
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    for bias in BIASES {
        for block_masks in [None, Some(BlockLists::window(5, 2, 1).block_masks(5))] {
            let parameters = parameters();
            let score_mods = score_mods(&parameters, bias, 2);
            check_layer(
                &bias.to_string(),
                &parameters,
                &[2, 5, 3 * HEADS * WIDTH],
                |x| {
                    let options = AttentionOptions {
                        heads: HEADS,
                        block_masks: block_masks.clone(),
                        ..AttentionOptions::default()
                    };
                    attend(&score_mods, x, options)
                },
            );
        }
    }
}

#[test]
fn a_sequence_without_a_token_sees_the_memory_alone() {
    let parameters = parameters();
    let score_mods = score_mods(&parameters, PairBias::None, 3);
    let x = normal("x", &[1, LENGTH, 3 * HEADS * WIDTH]);
    let expected = Loops::new(PairBias::None, &parameters).attend(&x, 3, &[0], |_, _| true);
    let options = AttentionOptions {
        heads: HEADS,
        mask: Some(Tensor::zeros((1, LENGTH), DType::F64, &Device::Cpu).unwrap()),
        ..AttentionOptions::default()
    };
    close(
        &attend(&score_mods, &x, options).unwrap(),
        &expected,
        1e-10,
        "memory",
    );
}
