use candle_core::Device;
use serde_json::json;

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    testing::{check_layer, close, normal, parameters},
};

fn encoder(
    parameters: &Parameters,
    block: &BlockOptions,
    options: serde_json::Value,
    longest: usize,
) -> Box<dyn Encoder> {
    let mut all = MODEL.defaults();
    crate::options::overlay(&mut all, &options);
    let context = ModelContext::new(parameters.builder(), block, &MODEL, &all, longest);
    MODEL.build(&context).unwrap()
}

fn block(dim: usize, heads: usize) -> BlockOptions {
    BlockOptions {
        layers: 1,
        dim,
        heads,
        mlp_dim: 2 * heads,
        activation: crate::options::Activation::Silu,
        ..BlockOptions::default()
    }
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

fn mask(valid: &[&[f64]]) -> Mask {
    let rows: Vec<Vec<f64>> = valid.iter().map(|row| row.to_vec()).collect();
    Mask::new(&Tensor::new(rows, &Device::Cpu).unwrap()).unwrap()
}

/// Statistics of all numbers of a group up to a position, padding left out, computed again for
/// each.
#[test]
fn statistics_are_those_of_the_positions_so_far() {
    let valid = [0.0, 1.0, 1.0, 0.0, 1.0, 1.0];
    let mask = mask(&[&valid]);
    for (groups, offset) in [(1, 0.0), (2, 1e6), (4, 0.0)] {
        let parameters = parameters();
        let norm = TimestepNorm::new(&parameters.builder(), 4, groups, 1e-5).unwrap();
        let x = (normal("x", &[1, 6, 4]) + offset).unwrap();
        let y = norm.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
        let [x, y] = [&x, &y].map(|x| x.get(0).unwrap().to_vec2::<f64>().unwrap());
        let width = 4 / groups;
        for (t, channel) in (0..6).flat_map(|t| (0..4).map(move |c| (t, c))) {
            if valid[t] == 0.0 {
                continue;
            }
            let first = channel / width * width;
            let seen: Vec<f64> = (0..=t)
                .filter(|s| valid[*s] == 1.0)
                .flat_map(|s| x[s][first..first + width].to_vec())
                .collect();
            let mean = seen.iter().sum::<f64>() / seen.len() as f64;
            let square = seen.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
            let variance = square / seen.len() as f64;
            let expected = (x[t][channel] - mean) / (variance + 1e-5).sqrt();
            assert!((y[t][channel] - expected).abs() < 1e-6, "{groups}: {t}");
        }
    }
}

/// A group of TimestepNorm has 32 channels, or more where these are no divisor of the width.
#[test]
fn groups_are_of_32_channels_by_default() {
    for (dim, groups) in [(8, 1), (64, 2), (100, 2)] {
        let hidden = |groups: usize| {
            let options = json!({"groups": groups, "shared": 4, "modes": 2});
            let encoder = encoder(&parameters(), &block(dim, 2), options, 3);
            let x = normal("x", &[1, 3, dim]);
            encoder.forward(&x, &pass()).unwrap().hidden
        };
        close(&hidden(0), &hidden(groups), 1e-12, &format!("{dim}"));
    }
}

#[test]
fn the_average_is_a_convolution_with_its_kernels() {
    let (length, dim, modes) = (7, 2, 3);
    let parameters = parameters();
    let vb = parameters.builder();
    let average = ComplexAverage::new(&vb, dim, modes, Direction::Both).unwrap();
    for (path, var) in parameters.all() {
        var.set(&normal(&path, var.dims())).unwrap();
    }
    let x = normal("x", &[1, length, dim]);
    let rows: Vec<Vec<f64>> = x.get(0).unwrap().to_vec2().unwrap();
    let numbers = |x: &Tensor| x.to_vec2::<f64>().unwrap();
    let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
    let [alpha, delta, re, im] = [
        &average.alpha,
        &average.delta,
        &average.gamma.re,
        &average.gamma.im,
    ]
    .map(numbers);
    let [theta, omega] = [&average.theta, &average.omega].map(|x| x.to_vec1::<f64>().unwrap());
    let tap = |d: usize, lag: usize| -> f64 {
        let term = |n: usize| {
            let p = logistic(alpha[d][n]);
            let size = (1.0 - p * logistic(delta[d][n])).powi(lag as i32);
            let turn = std::f64::consts::TAU / modes as f64 * logistic(theta[d]);
            let angle = (n + 1) as f64 * turn * lag as f64;
            p * size * (re[d][n] * angle.cos() - im[d][n] * angle.sin())
        };
        (0..modes).map(term).sum::<f64>() / (modes as f64).sqrt()
    };
    let mut expected = vec![vec![0.0; dim]; length];
    for (t, d) in (0..length).flat_map(|t| (0..dim).map(move |d| (t, d))) {
        let before = (0..=t).map(|s| tap(d, t - s) * rows[s][d]);
        let after = (t..length).map(|s| tap(dim + d, s - t) * rows[s][d]);
        expected[t][d] = before.chain(after).sum::<f64>() + omega[d] * rows[t][d];
    }
    let expected = Tensor::new(vec![expected], &Device::Cpu).unwrap();
    let actual = average.forward(&x, &pass()).unwrap();
    close(&actual, &expected, 1e-10, "average");
}

#[test]
fn forward_layers_see_nothing_behind_a_position() {
    for chunk in [0, 3] {
        let parameters = parameters();
        let options = json!({"direction": "forward", "chunk": chunk, "modes": 2});
        let encoder = encoder(&parameters, &block(4, 2), options, 8);
        assert!(encoder.is_causal());
        let x = normal("x", &[1, 8, 4]);
        let all = encoder.forward(&x, &pass()).unwrap().hidden;
        let first = x.narrow(1, 0, 5).unwrap().contiguous().unwrap();
        let alone = encoder.forward(&first, &pass()).unwrap().hidden;
        close(&all.narrow(1, 0, 5).unwrap(), &alone, 1e-10, "prefix");
    }
}

#[test]
fn gradients_agree_with_differences() {
    let mask = mask(&[&[1.0; 5], &[1.0, 1.0, 1.0, 0.0, 0.0]]);
    for (norm, direction, chunk) in [
        ("timestep", "both", 0),
        ("timestep", "forward", 2),
        ("block", "both", 2),
    ] {
        let parameters = parameters();
        let block = BlockOptions {
            dropout: 0.2,
            ..block(4, 2)
        };
        let options = json!({"norm": norm, "direction": direction, "chunk": chunk, "groups": 2, "modes": 2, "hidden_dropout": 0.2});
        let encoder = encoder(&parameters, &block, options, 6);
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        check_layer(norm, &parameters, &[2, 5, 4], |x| {
            Ok(encoder.forward(x, &pass.with_mask(Some(&mask)))?.hidden)
        });
    }
}

#[test]
fn angles_are_spread_over_the_channels() {
    let parameters = parameters();
    let vb = parameters.builder();
    let average = ComplexAverage::new(&vb, 8, 2, Direction::Both).unwrap();
    let theta = average.theta.to_vec1::<f64>().unwrap();
    for half in theta.chunks(8) {
        let mut angles: Vec<f64> = half.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect();
        angles.sort_by(f64::total_cmp);
        for (k, angle) in angles.iter().rev().enumerate() {
            let expected = 8f64.powf(-((k + 1) as f64) / 8.0);
            assert!((angle - expected).abs() < 1e-12, "{angle} {expected}");
        }
    }
}
