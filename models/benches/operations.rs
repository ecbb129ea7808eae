//! Benchmark of the operations of `ops`, forward and backward, kernels beside compositions of
//! candle's operations: `cargo bench -p lra-models --bench operations`.
//!
//! Throughput is in elements of x, so that 1 / throughput is the time of one token and channel. The
//! composed form is the one that `ops` uses in f64, where there is no kernel.

#![allow(missing_docs, clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor, Var};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lra_models::Result;
use lra_models::ops::{
    BlockScan, Cell, Complex, DplrScan, GatedLinearAttentionOptions, IGNORE_INDEX, Lags, Modes,
    Order, Padding, Rings, ScanOptions, StateSpaceOptions, Track, add_rolled, block_scan, conv1d,
    depthwise_conv1d, dplr_scan, fft_conv, fft2_real, gated_linear_attention, irfft, pair_scan,
    recurrent, rfft, scan, segment_mean, selective_scan, slstm, state_space, take, top_k,
};
use lra_models::rng::{RngKey, StreamKey};

/// Variables of numbers in -1/2..1/2 without a pattern.
fn vars(shapes: &[&[usize]], dtype: DType) -> Vec<Var> {
    let stream = RngKey::new(1, 0, 0).shared(StreamKey::new("bench"));
    let numbers = |shape: &[usize]| {
        let count = shape.iter().product();
        let data: Vec<f64> = stream.uniform(1, count).iter().map(|x| *x - 0.5).collect();
        let data = Tensor::from_vec(data, shape, &Device::Cpu).unwrap();
        Var::from_tensor(&data.to_dtype(dtype).unwrap()).unwrap()
    };
    shapes.iter().map(|shape| numbers(shape)).collect()
}

/// Measures one case: forward and backward of the sum, in f32 (`fused`) and perhaps in f64
/// (`composed`).
fn case(
    criterion: &mut Criterion,
    name: &str,
    shapes: &[&[usize]],
    composed: bool,
    f: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10);
    group.throughput(Throughput::Elements(
        shapes[0].iter().product::<usize>() as u64
    ));
    let size = format!("{:?}", shapes[0]);
    for (kind, dtype) in [("fused", DType::F32), ("composed", DType::F64)] {
        if dtype == DType::F64 && !composed {
            continue;
        }
        let vars = vars(shapes, dtype);
        let tensors: Vec<Tensor> = vars.iter().map(|x| x.as_tensor().clone()).collect();
        group.bench_function(BenchmarkId::new(kind, &size), |bench| {
            bench.iter(|| f(&tensors).unwrap().sum_all().unwrap().backward().unwrap());
        });
    }
}

fn state_spaces(criterion: &mut Criterion) {
    for (batch, length, width, modes) in [
        (1, 1024, 64, 2),
        (16, 1024, 64, 2),
        (4, 4096, 128, 2),
        (4, 1024, 64, 32),
    ] {
        let (x, mode) = ([batch, length, width], [width, modes]);
        let shapes: [&[usize]; 6] = [&x, &mode, &mode, &mode, &mode, &[width]];
        let f = |x: &[Tensor]| {
            let a = Complex::new(x[1].clone(), x[2].clone());
            let c = Complex::new(x[3].clone(), x[4].clone());
            let modes = Modes::Complex { a, c };
            state_space(&x[0], &modes, Some(&x[5]), StateSpaceOptions::default())
        };
        // The composed form writes every state down: seconds and gigabytes for the larger sizes.
        let composed = batch == 1;
        case(
            criterion,
            &format!("state space, {modes} modes"),
            &shapes,
            composed,
            f,
        );
    }
    let shapes: [&[usize]; 4] = [&[16, 1024, 64], &[64, 16], &[64, 16], &[64]];
    case(
        criterion,
        "state space, 16 real modes",
        &shapes,
        false,
        |x| {
            let (a, c) = (x[1].clone(), x[2].clone());
            let modes = Modes::Real { a, c };
            state_space(&x[0], &modes, Some(&x[3]), StateSpaceOptions::default())
        },
    );
}

fn scans(criterion: &mut Criterion) {
    let x = [8, 1024, 128];
    for (name, a, complex) in [
        ("scan", &x[2..], false),
        ("scan, coefficients per token", &x[..], false),
        ("scan, complex", &x[2..], true),
    ] {
        let options = ScanOptions {
            complex,
            ..Default::default()
        };
        case(criterion, name, &[&x, a], true, |x| {
            scan(&x[0], &x[1], options)
        });
    }
}

fn pair_scans(criterion: &mut Criterion) {
    let shapes: [&[usize]; 2] = [&[8, 1024, 256], &[4, 128]];
    case(criterion, "scan of pairs", &shapes, true, |x| {
        pair_scan(&x[0], &(&x[1] * 0.5)?)
    });
}

fn recurrences(criterion: &mut Criterion) {
    for (cell, name) in [(Cell::Lstm, "LSTM"), (Cell::Gru, "GRU")] {
        let row = cell.gates() * 64;
        let shapes: [&[usize]; 3] = [&[8, 1024, row], &[row, 64], &[row]];
        case(criterion, name, &shapes, false, |x| {
            recurrent(cell, &x[0], &x[1], &x[2], None)
        });
    }
}

fn scalar_memories(criterion: &mut Criterion) {
    let shapes: [&[usize]; 2] = [&[8, 1024, 4, 64], &[4, 64, 16]];
    case(criterion, "sLSTM, heads of 16", &shapes, false, |x| {
        slstm(&x[0], &x[1], None)
    });
}

fn block_scans(criterion: &mut Criterion) {
    let shapes: [&[usize]; 5] = [
        &[4, 1024, 8, 16],
        &[4, 1024, 8, 16],
        &[4, 1024, 8, 24],
        &[16],
        &[8, 16, 16],
    ];
    case(criterion, "block scan, 8 states", &shapes, false, |x| {
        block_scan(&BlockScan {
            values: &x[0],
            steps: &x[1].sqr()?,
            selection: &x[2],
            rates: &x[3].sqr()?.neg()?,
            bias: &x[4],
        })
    });
}

fn selective_scans(criterion: &mut Criterion) {
    let (x, mode) = ([4, 1024, 128], [128, 16]);
    let shapes: [&[usize]; 5] = [&x, &x, &mode, &[4, 1024, 32], &[128]];
    case(criterion, "selective scan, 16 modes", &shapes, false, |x| {
        let delta = x[1].sqr()?;
        selective_scan(&x[0], &delta, &x[2], &x[3], &x[4])
    });
}

fn rank_1_scans(criterion: &mut Criterion) {
    let rows: &[usize] = &[4, 1024, 4, 32];
    let shapes = [rows; 6];
    case(criterion, "rank-1 scan, heads of 32", &shapes, false, |x| {
        let decays = x[1].sqr()?.neg()?.exp()?;
        dplr_scan(&DplrScan {
            queries: &x[0],
            decays: &decays,
            keys: &x[2],
            values: &x[3],
            reads: &x[4],
            writes: &x[5],
        })
    });
}

fn gated_linear_attentions(criterion: &mut Criterion) {
    let rows = |width: usize| vec![4, 1024, 128 / width, width];
    for (name, width, decays, delta) in [
        ("gated linear attention, decays of tokens", 32, 3, false),
        ("gated linear attention, decays of channels", 32, 4, false),
        ("gated linear attention, narrow heads", 4, 4, false),
        ("gated linear attention, delta rule", 32, 3, true),
    ] {
        let (x, tokens) = (rows(width), &rows(width)[..3]);
        let shapes: [&[usize]; 5] = [&x, &x, &x, &x[..decays], tokens];
        case(criterion, name, &shapes, false, |x| {
            let decay = x[3].sqr()?.neg()?;
            let rate = x[4].sqr()?.neg()?.exp()?;
            let options = GatedLinearAttentionOptions {
                log_decay: Some(&decay),
                delta: delta.then_some(&rate),
                ..Default::default()
            };
            // Keys short enough for the delta rule to contract.
            let keys = (&x[1] * 0.3)?;
            gated_linear_attention(&x[0], &keys, &x[2], &options)
        });
    }
}

fn rolls(criterion: &mut Criterion) {
    let (batch, length, width) = (16, 1024, 88);
    let track = |index: usize| Track {
        start: 8 * index,
        width: 8,
        shift: (1 << index) >> 1,
    };
    let tracks = (0..11).map(track).collect();
    let rings = Rings::new(batch, length, None).unwrap();
    let x: &[usize] = &[batch, length, width];
    case(criterion, "roll, 11 tracks", &[x, x], true, |x| {
        add_rolled(&x[0], &x[1], &tracks, &rings)
    });
}

fn convolutions(criterion: &mut Criterion) {
    for width in [3, 35] {
        let shapes: [&[usize]; 2] = [&[8, 1024, 128], &[128, width]];
        case(
            criterion,
            &format!("depthwise, {width} taps"),
            &shapes,
            true,
            |x| depthwise_conv1d(&x[0], &x[1], None, Padding::Same, 1),
        );
    }
    let shapes: [&[usize]; 2] = [&[8, 1024, 128], &[128, 128, 4]];
    case(
        criterion,
        "convolution, stride 4 of 4",
        &shapes,
        true,
        |x| conv1d(&x[0], &x[1], None, Padding::Zeros { left: 0, right: 0 }, 4),
    );
}

fn transforms(criterion: &mut Criterion) {
    for (batch, length, width) in [(16, 1024, 64), (4, 4096, 64), (4, 4093, 64)] {
        let x = [batch, length, width];
        case(criterion, "rfft and irfft", &[&x], false, |x| {
            irfft(&rfft(&x[0], length)?, length)
        });
        case(criterion, "real part of fft2", &[&x], false, |x| {
            fft2_real(&x[0], 1.0)
        });
        let shapes: [&[usize]; 2] = [&x, &[width, length]];
        case(criterion, "long convolution", &shapes, false, |x| {
            fft_conv(&x[0], &x[1], Lags::Causal)
        });
    }
}

fn clusters(criterion: &mut Criterion) {
    let (heads, length, width, places) = (64, 1024, 32, 64);
    let scores = vars(&[&[heads, 16, length]], DType::F32);
    case(
        criterion,
        "top-k, 64 of 1024",
        &[&[heads, 16, length]],
        true,
        |x| Ok(top_k(&x[0], places, Order::Largest)?.0),
    );
    let (_, members) = top_k(&scores[0], places, Order::Largest).unwrap();
    let members = members.flatten_from(1).unwrap();
    let x: [&[usize]; 1] = [&[heads, length, width]];
    case(criterion, "members taken", &x, true, |x| {
        take(&x[0], &members)
    });
    let cluster = |i: usize| {
        if i % length < 900 {
            (i * 7 % 100) as u32
        } else {
            IGNORE_INDEX
        }
    };
    let clusters: Vec<u32> = (0..heads * length).map(cluster).collect();
    let clusters = Tensor::from_vec(clusters, (heads, length), &Device::Cpu).unwrap();
    case(criterion, "means of clusters, and back", &x, true, |x| {
        take(&segment_mean(&x[0], &clusters, 100)?, &clusters)
    });
}

criterion_group!(
    benches,
    state_spaces,
    scans,
    pair_scans,
    recurrences,
    selective_scans,
    rank_1_scans,
    gated_linear_attentions,
    rolls,
    convolutions,
    transforms,
    clusters,
    scalar_memories,
    block_scans
);
criterion_main!(benches);
