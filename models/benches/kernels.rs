//! Times every fused operation beside the same composed of candle's operations, forward and
//! backward: `cargo bench -p lra-models --bench kernels`.
//!
//! Set `RAYON_NUM_THREADS` to compare thread counts. Times are of forward plus backward of sum(y)
//! unless a name says otherwise, so both sides carry the same overhead of candle's graph.

#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{D, Device, Result, Tensor, Var};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lra_models::ops::activation::{elu_plus_one, gelu, gelu_erf, relu};
use lra_models::ops::attention::BlockLists;
use lra_models::ops::attention::{
    AttentionDropout, AttentionOptions, attend_biased, attend_packed,
};
use lra_models::ops::linear_attention::{self, FeatureMap};
use lra_models::ops::pooling::weighted_sum;
use lra_models::ops::{
    Affine, DropoutMask, FeedForwardOptions, Normalised, add_dropped, cross_entropy, embed,
    feed_forward, l2_normalize, layer_norm, linear, lsh, permute_blocks,
};
use lra_models::options::Activation;
use lra_models::rng::{RngKey, StreamKey};

/// Numbers in -1/2..1/2 without a pattern.
fn numbers(shape: &[usize]) -> Tensor {
    let stream = RngKey::new(1, 0, 0).shared(StreamKey::new("bench"));
    let data: Vec<f32> = stream
        .uniform(1, shape.iter().product())
        .iter()
        .map(|x| *x as f32 - 0.5)
        .collect();
    Tensor::from_vec(data, shape, &Device::Cpu).unwrap()
}

/// Runs sum(f(inputs)) forward and backward, f being an operation, with every input a variable.
fn train(inputs: &[Var], f: impl Fn(&[Tensor]) -> lra_models::Result<Tensor>) {
    train_composed(inputs, |x| f(x).map_err(candle_core::Error::wrap));
}

/// Runs sum(f(inputs)) forward and backward, f being made of candle's operations.
fn train_composed(inputs: &[Var], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let tensors: Vec<Tensor> = inputs.iter().map(|x| x.as_tensor().clone()).collect();
    let gradients = f(&tensors).unwrap().sum_all().unwrap().backward().unwrap();
    std::hint::black_box(gradients);
}

fn vars(shapes: &[&[usize]]) -> Vec<Var> {
    shapes
        .iter()
        .map(|shape| Var::from_tensor(&numbers(shape)).unwrap())
        .collect()
}

/// Maps (B, L, H E) to (B, H, L, E).
fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (b, l, w) = x.dims3()?;
    x.reshape((b, l, heads, w / heads))?
        .transpose(1, 2)?
        .contiguous()
}

fn softmax_attention(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention");
    group.sample_size(10);
    let stream = RngKey::new(1, 0, 0).per_example(StreamKey::new("drop"));
    for (batch, length, heads, width) in [(8, 1024, 2, 32), (8, 4096, 2, 32), (1, 1024, 8, 64)] {
        let name = format!("B{batch} L{length} H{heads} E{width}");
        // Two products forward and five backward, two operations per multiply-add.
        let product = 2 * (batch * heads * length * length * width) as u64;
        let x = vars(&[&[batch, length, 3 * heads * width]]);
        let plain = AttentionOptions {
            heads,
            ..Default::default()
        };
        let dropped = AttentionOptions {
            dropout: Some(AttentionDropout::new(&stream, batch, 0.1)),
            ..plain.clone()
        };
        group.throughput(Throughput::Elements(2 * product));
        group.bench_function(BenchmarkId::new("fused forward", &name), |bench| {
            let x = x[0].as_detached_tensor();
            bench.iter(|| attend_packed(&x, &plain).unwrap());
        });
        group.throughput(Throughput::Elements(7 * product));
        for (kind, options) in [("fused", &plain), ("fused, dropout", &dropped)] {
            group.bench_function(BenchmarkId::new(kind, &name), |bench| {
                bench.iter(|| train(&x, |x| attend_packed(&x[0], options)));
            });
        }
        if length <= 1024 {
            group.bench_function(BenchmarkId::new("composed", &name), |bench| {
                bench.iter(|| train_composed(&x, |x| composed_attention(&x[0], heads)));
            });
        }
    }
}

fn composed_attention(x: &Tensor, heads: usize) -> Result<Tensor> {
    let width = x.dim(2)? / 3;
    let part = |i| split(&x.narrow(2, i * width, width)?, heads);
    let (q, k, v) = (part(0)?, part(1)?, part(2)?);
    let scores = (q.matmul(&k.t()?)? * ((width / heads) as f64).powf(-0.5))?;
    let highest = scores.detach().max_keepdim(D::Minus1)?;
    let weights = scores.broadcast_sub(&highest)?.exp()?;
    weights
        .broadcast_div(&weights.sum_keepdim(D::Minus1)?)?
        .matmul(&v)
}

fn feature_attention(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("kernel attention");
    group.sample_size(10);
    let (batch, length, heads, width) = (8, 4096, 2, 32);
    let shape = [batch, length, heads * width];
    let x = vars(&[&shape, &shape, &shape]);
    let favor = FeatureMap::Favor {
        directions: numbers(&[112, width]),
        epsilon: 1e-6,
    };
    for (name, map) in [
        ("fused", FeatureMap::EluPlusOne),
        ("fused, 112 random features", favor),
    ] {
        group.bench_function(name, |bench| {
            bench.iter(|| {
                train(&x, |x| {
                    let [q, k, v] =
                        [0, 1, 2].map(|i: usize| x[i].reshape((batch, length, heads, width)));
                    linear_attention::attend(&q?, &k?, &v?, map.clone(), 1e-6, None)
                })
            });
        });
    }
    group.bench_function("composed", |bench| {
        bench.iter(|| {
            train_composed(&x, |x| {
                let features = |x: &Tensor| split(&(x.elu(1.0)? + 1.0)?, heads);
                let (q, k, v) = (features(&x[0])?, features(&x[1])?, split(&x[2], heads)?);
                let totals = k.sum_keepdim(2)?;
                let sums = (q.matmul(&totals.t()?)? + 1e-6)?;
                q.matmul(&k.t()?.matmul(&v)?)?.broadcast_div(&sums)
            });
        });
    });
}

/// Measures a window of 256 keys either way.
fn sparse_attention(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("sparse attention");
    group.sample_size(10);
    let (batch, length, heads, width) = (8, 4096, 2, 32);
    let block_masks = BlockLists::window(length, 256, 256).block_masks(length);
    // Two products forward and five backward, two operations per multiply-add.
    let product = 2 * (batch * block_masks.pairs(heads) * width) as u64;
    let options = AttentionOptions {
        heads,
        block_masks: Some(block_masks),
        ..Default::default()
    };
    group.throughput(Throughput::Elements(7 * product));
    let x = vars(&[&[batch, length, 3 * heads * width]]);
    group.bench_function("window of 513", |bench| {
        bench.iter(|| train(&x, |x| attend_packed(&x[0], &options)));
    });
}

fn learned_scores(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("attention with a bias");
    group.sample_size(10);
    let (batch, length, heads, width) = (8, 1024, 2, 32);
    let options = AttentionOptions {
        heads,
        ..Default::default()
    };
    let x = vars(&[
        &[batch, length, 3 * heads * width],
        &[heads, length, length],
        &[1],
    ]);
    group.bench_function("fused", |bench| {
        bench.iter(|| train(&x, |x| attend_biased(&x[0], (&x[1], &x[2]), &options)));
    });
}

fn norm<'a>(weight: &'a Tensor, bias: &'a Tensor) -> Normalised<'a> {
    Normalised {
        weight,
        bias,
        epsilon: 1e-6,
    }
}

fn layers(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("layers");
    group.sample_size(10);
    let shape: &[usize] = &[8, 4096, 64];
    let x = vars(&[shape, &[128, 64], &[128]]);
    group.bench_function("linear fused", |bench| {
        bench.iter(|| train(&x, |x| linear(&x[0], &x[1], Some(&x[2]))));
    });
    group.bench_function("linear composed", |bench| {
        bench.iter(|| {
            train_composed(&x, |x| {
                x[0].flatten_to(1)?.matmul(&x[1].t()?)?.broadcast_add(&x[2])
            });
        });
    });
    let x = vars(&[shape, &[64], &[64]]);
    group.bench_function("layer norm fused", |bench| {
        bench.iter(|| train(&x, |x| layer_norm(&x[0], &norm(&x[1], &x[2]))));
    });
    group.bench_function("layer norm composed", |bench| {
        bench.iter(|| {
            train_composed(&x, |x| {
                candle_nn::ops::layer_norm_slow(&x[0], &x[1], &x[2], 1e-6)
            })
        });
    });
    let x = vars(&[shape, &[128, 64], &[128], &[64, 128], &[64], &[64], &[64]]);
    group.bench_function("feed-forward fused", |bench| {
        bench.iter(|| {
            train(&x, |x| {
                let options = FeedForwardOptions {
                    norm: Some(norm(&x[5], &x[6])),
                    activation: Activation::Gelu,
                    gate: None,
                    inner_dropout: None,
                    outer_dropout: None,
                    residual: true,
                };
                let [inner, outer]: [Affine; 2] = [(&x[1], Some(&x[2])), (&x[3], Some(&x[4]))];
                feed_forward(&x[0], inner, outer, &options)
            });
        });
    });
    group.bench_function("feed-forward of fused parts", |bench| {
        bench.iter(|| {
            train(&x, |x| {
                let normal = layer_norm(&x[0], &norm(&x[5], &x[6]))?;
                let hidden = gelu(&linear(&normal, &x[1], Some(&x[2]))?)?;
                Ok((&x[0] + linear(&hidden, &x[3], Some(&x[4]))?)?)
            });
        });
    });
    let x = vars(&[shape]);
    group.bench_function("l2 normalize", |bench| {
        bench.iter(|| train(&x, |x| l2_normalize(&x[0], 32)));
    });
    let rotations = numbers(&[32, 2, 64]);
    group.bench_function("hashing forward", |bench| {
        let x = x[0].as_detached_tensor();
        bench.iter(|| lsh(&x, &rotations).unwrap());
    });
    let x = vars(&[&[8, 2, 64, 64], shape]);
    group.bench_function("mixing of blocks", |bench| {
        bench.iter(|| train(&x, |x| permute_blocks(&x[0], &x[1], 64)));
    });
    let stream = RngKey::new(1, 0, 0).per_example(StreamKey::new("drop"));
    let x = vars(&[shape, shape]);
    group.bench_function("residual and dropout fused", |bench| {
        let mask = DropoutMask::new(&stream, 0.1);
        bench.iter(|| train(&x, |x| add_dropped(&x[0], &x[1], &mask)));
    });
    group.bench_function("residual and dropout composed", |bench| {
        bench.iter(|| {
            train_composed(&x, |x| {
                let mask = stream.mask_tensor(x[1].shape(), 0.1, x[1].dtype(), x[1].device());
                &x[0] + (&x[1] * mask.map_err(candle_core::Error::wrap)?)?
            });
        });
    });
    let weights = numbers(&shape[..2]);
    group.bench_function("weighted sum fused", |bench| {
        bench.iter(|| train(&x[..1], |x| weighted_sum(&x[0], &weights)));
    });
    group.bench_function("weighted sum composed", |bench| {
        bench.iter(|| train_composed(&x[..1], |x| weights.unsqueeze(1)?.matmul(&x[0])));
    });
    let ids: Vec<u32> = (0..8 * 4096u32)
        .map(|i| i.wrapping_mul(2_654_435_761) >> 24)
        .collect();
    let ids = Tensor::from_vec(ids, (8, 4096), &Device::Cpu).unwrap();
    let x = vars(&[&[257, 64], &[4096, 64]]);
    group.bench_function("embedding fused", |bench| {
        bench.iter(|| train(&x, |x| embed(&ids, &x[0], None, Some(&x[1]))));
    });
    group.bench_function("embedding composed", |bench| {
        bench.iter(|| {
            train_composed(&x, |x| {
                x[0].index_select(&ids.flatten_all()?, 0)?
                    .reshape(shape)?
                    .broadcast_add(&x[1])
            });
        });
    });
}

/// Measures products with weights of the published table's width, forward and both gradients.
fn products(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("products");
    group.sample_size(10);
    for (rows, outputs, inputs) in [(1024, 2048, 512), (1024, 512, 2048), (1024, 1536, 512)] {
        let name = format!("{rows} rows, {inputs} to {outputs}");
        group.throughput(Throughput::Elements(6 * (rows * outputs * inputs) as u64));
        let x = vars(&[&[rows, inputs], &[outputs, inputs]]);
        group.bench_function(BenchmarkId::new("fused", &name), |bench| {
            bench.iter(|| train(&x, |x| linear(&x[0], &x[1], None)));
        });
        group.bench_function(BenchmarkId::new("composed", &name), |bench| {
            bench.iter(|| train_composed(&x, |x| x[0].matmul(&x[1].t()?)));
        });
    }
}

fn losses(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cross-entropy");
    let x = vars(&[&[256, 10]]);
    let labels = Tensor::from_iter((0..256u32).map(|i| i % 10), &Device::Cpu).unwrap();
    group.bench_function("fused", |bench| {
        bench.iter(|| train(&x, |x| cross_entropy(&x[0], &labels)));
    });
    group.bench_function("composed", |bench| {
        bench.iter(|| {
            train_composed(&x, |x| {
                let top = x[0].max_keepdim(D::Minus1)?.detach();
                let below = x[0].broadcast_sub(&top)?;
                let sum = below.exp()?.sum_keepdim(D::Minus1)?.log()?;
                (sum - below.gather(&labels.unsqueeze(1)?, 1)?)?.mean_all()
            });
        });
    });
}

fn activations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("activations");
    group.sample_size(10);
    let x = vars(&[&[8, 4096, 64]]);
    type Fused = fn(&Tensor) -> lra_models::Result<Tensor>;
    type Composed = fn(&Tensor) -> Result<Tensor>;
    let all: [(&str, Fused, Composed); 4] = [
        ("gelu", gelu, |x| x.gelu()),
        ("gelu erf", gelu_erf, |x| x.gelu_erf()),
        ("relu", |x| relu(x, 0.0), |x| x.relu()),
        ("elu+1", elu_plus_one, |x| x.elu(1.0)? + 1.0),
    ];
    for (name, fused, composed) in all {
        group.bench_function(BenchmarkId::new(name, "fused"), |bench| {
            bench.iter(|| train(&x, |x| fused(&x[0])));
        });
        group.bench_function(BenchmarkId::new(name, "composed"), |bench| {
            bench.iter(|| train_composed(&x, |x| composed(&x[0])));
        });
    }
}

criterion_group!(
    benches,
    softmax_attention,
    feature_attention,
    sparse_attention,
    learned_scores,
    layers,
    products,
    losses,
    activations
);
criterion_main!(benches);
