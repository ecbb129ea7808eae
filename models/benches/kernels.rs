//! Every fused operation beside its composed twin, forward and backward: `cargo bench -p lra-models`.
//!
//! Set `RAYON_NUM_THREADS` to compare thread counts. Times are of forward plus backward of sum(y) unless a
//! name says otherwise, so both sides carry the same overhead of candle's graph.

#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{D, Device, Result, Tensor, Var};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lra_models::kernels::{
    Activation, AttentionDropout, AttentionOptions, DropoutOptions, FeatureMap, FeedForwardOptions,
    LinearAttentionOptions, Normalised, activate, add_dropped, attention_biased, attention_packed,
    cross_entropy, embed, feed_forward, l2_normalize, layer_norm, linear, linear_attention, lsh,
    permute_blocks, weighted_sum,
};
use lra_models::ops::attention::BlockLists;
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

/// Forward and backward of sum(f(inputs)) with every input a variable.
fn train(inputs: &[Var], f: impl Fn(&[Tensor]) -> Result<Tensor>) {
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

/// (B, L, H E) to (B, H, L, E)
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
            bench.iter(|| attention_packed(&x, &plain).unwrap());
        });
        group.throughput(Throughput::Elements(7 * product));
        for (kind, options) in [("fused", &plain), ("fused, dropout", &dropped)] {
            group.bench_function(BenchmarkId::new(kind, &name), |bench| {
                bench.iter(|| train(&x, |x| attention_packed(&x[0], options)));
            });
        }
        if length <= 1024 {
            group.bench_function(BenchmarkId::new("composed", &name), |bench| {
                bench.iter(|| train(&x, |x| composed_attention(&x[0], heads)));
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
    let options = LinearAttentionOptions {
        heads,
        map: FeatureMap::EluPlusOne,
        guard: 1e-6,
        mask: None,
    };
    group.bench_function("fused", |bench| {
        bench.iter(|| train(&x, |x| linear_attention(&x[0], &x[1], &x[2], &options)));
    });
    let favor = LinearAttentionOptions {
        map: FeatureMap::Favor {
            directions: numbers(&[112, width]),
            epsilon: 1e-6,
        },
        ..options.clone()
    };
    group.bench_function("fused, 112 random features", |bench| {
        bench.iter(|| train(&x, |x| linear_attention(&x[0], &x[1], &x[2], &favor)));
    });
    group.bench_function("composed", |bench| {
        bench.iter(|| {
            train(&x, |x| {
                let features = |x: &Tensor| split(&(x.elu(1.0)? + 1.0)?, heads);
                let (q, k, v) = (features(&x[0])?, features(&x[1])?, split(&x[2], heads)?);
                let totals = k.sum_keepdim(2)?;
                let sums = (q.matmul(&totals.t()?)? + 1e-6)?;
                q.matmul(&k.t()?.matmul(&v)?)?.broadcast_div(&sums)
            });
        });
    });
}

/// A window of 256 keys either way.
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
        bench.iter(|| train(&x, |x| attention_packed(&x[0], &options)));
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
        bench.iter(|| train(&x, |x| attention_biased(&x[0], &x[1], &x[2], &options)));
    });
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
            train(&x, |x| {
                x[0].flatten_to(1)?.matmul(&x[1].t()?)?.broadcast_add(&x[2])
            });
        });
    });
    let x = vars(&[shape, &[64], &[64]]);
    group.bench_function("layer norm fused", |bench| {
        bench.iter(|| train(&x, |x| layer_norm(&x[0], &x[1], &x[2], 1e-6)));
    });
    group.bench_function("layer norm composed", |bench| {
        bench.iter(|| {
            train(&x, |x| {
                candle_nn::ops::layer_norm_slow(&x[0], &x[1], &x[2], 1e-6)
            })
        });
    });
    let x = vars(&[shape, &[128, 64], &[128], &[64, 128], &[64], &[64], &[64]]);
    group.bench_function("feed-forward fused", |bench| {
        bench.iter(|| {
            train(&x, |x| {
                let options = FeedForwardOptions {
                    norm: Some(Normalised {
                        gain: &x[5],
                        offset: &x[6],
                        epsilon: 1e-6,
                    }),
                    activation: Activation::GeluTanh,
                    inner_dropout: None,
                    outer_dropout: None,
                    residual: true,
                };
                feed_forward(&x[0], [&x[1], &x[2]], [&x[3], &x[4]], &options)
            });
        });
    });
    group.bench_function("feed-forward of fused parts", |bench| {
        bench.iter(|| {
            train(&x, |x| {
                let normal = layer_norm(&x[0], &x[5], &x[6], 1e-6)?;
                let hidden = linear(&normal, &x[1], Some(&x[2]))?;
                let active = activate(&hidden, Activation::GeluTanh)?;
                &x[0] + linear(&active, &x[3], Some(&x[4]))?
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
        let options = || DropoutOptions {
            stream,
            rate: 0.1,
            tied: false,
            offsets: None,
        };
        bench.iter(|| train(&x, |x| add_dropped(&x[0], &x[1], options())));
    });
    group.bench_function("residual and dropout composed", |bench| {
        bench.iter(|| {
            train(&x, |x| {
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
        bench.iter(|| train(&x[..1], |x| weights.unsqueeze(1)?.matmul(&x[0])));
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
            train(&x, |x| {
                x[0].index_select(&ids.flatten_all()?, 0)?
                    .reshape(shape)?
                    .broadcast_add(&x[1])
            });
        });
    });
}

/// Products with weights of the published table's width, forward and both gradients.
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
            bench.iter(|| train(&x, |x| x[0].matmul(&x[1].t()?)));
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
            train(&x, |x| {
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
    type Composed = fn(&Tensor) -> Result<Tensor>;
    let all: [(&str, Activation, Composed); 4] = [
        ("gelu", Activation::GeluTanh, |x| x.gelu()),
        ("gelu erf", Activation::GeluErf, |x| x.gelu_erf()),
        ("relu", Activation::Relu { floor: 0.0 }, |x| x.relu()),
        ("elu+1", Activation::EluPlusOne, |x| x.elu(1.0)? + 1.0),
    ];
    for (name, activation, composed) in all {
        group.bench_function(BenchmarkId::new(name, "fused"), |bench| {
            bench.iter(|| train(&x, |x| activate(&x[0], activation)));
        });
        group.bench_function(BenchmarkId::new(name, "composed"), |bench| {
            bench.iter(|| train(&x, |x| composed(&x[0])));
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
