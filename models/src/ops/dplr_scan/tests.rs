use candle_core::Device;

use super::*;
use crate::autograd::saved_without_graph;
use crate::ops::testing::{Sampler, agree};
use crate::ops::{GatedLinearAttentionOptions, gated_linear_attention};
use crate::testing::{check_gradient, close, normal};

fn scan_of(x: &[Tensor], f: impl Fn(&DplrScan) -> Result<Tensor>) -> Result<Tensor> {
    // Decays between 0 and 1, and reads and writes that do not make states grow.
    let decays = super::super::activation::sigmoid(&x[1])?;
    let [reads, writes] = [&x[4], &x[5]].map(|x| x.tanh().and_then(|x| x * 0.3));
    f(&DplrScan {
        queries: &x[0],
        decays: &decays,
        keys: &x[2],
        values: &x[3],
        reads: &reads?,
        writes: &writes?,
    })
}

fn steps(operands: &DplrScan) -> Result<Tensor> {
    composed([
        operands.queries,
        operands.decays,
        operands.keys,
        operands.values,
        operands.reads,
        operands.writes,
    ])
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(231);
    for [batch, length, heads, keys, values] in [
        [1, 1, 1, 1, 1],
        [2, 33, 2, 5, 9],
        [1, 70, 3, 16, 8],
        [5, 6, 1, 3, 17],
    ] {
        let mut inputs = Vec::new();
        for width in [keys, keys, keys, values, keys, keys] {
            inputs.push(sampler.normal(&[batch, length, heads, width], 1.0));
        }
        let fused = |x: &[Tensor]| Ok(scan_of(x, dplr_scan)?);
        let steps = |x: &[Tensor]| Ok(scan_of(x, steps)?);
        agree("rank-1 scan", &inputs, fused, steps);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let (rows, values): (&[usize], &[usize]) = (&[2, 3, 2, 2], &[2, 3, 2, 3]);
    let shapes = [rows, rows, rows, values, rows, rows];
    check_gradient("rank-1 scan by steps", &shapes, |x| scan_of(x, steps));
    check_gradient("rank-1 scan in f64", &shapes, |x| scan_of(x, dplr_scan));
}

/// The delta rule reads the decayed state, and writes along the key that it reads.
#[test]
fn the_delta_rule_is_a_case_of_it() {
    let of = |name: &str, width: usize| normal(name, &[2, 19, 2, width]);
    let (q, k, v) = (of("q", 4), of("k", 4), of("v", 3));
    let k = super::super::l2_normalize(&k, 4).unwrap();
    let log_decay = normal("decay", &[2, 19, 2]).abs().unwrap().neg().unwrap();
    let rates = super::super::activation::sigmoid(&normal("rate", &[2, 19, 2])).unwrap();
    let options = GatedLinearAttentionOptions {
        log_decay: Some(&log_decay),
        delta: Some(&rates),
        ..Default::default()
    };
    let expected = gated_linear_attention(&q, &k, &v, &options).unwrap();
    let decays = log_decay.exp().unwrap().unsqueeze(3).unwrap();
    let written = k.broadcast_mul(&rates.unsqueeze(3).unwrap()).unwrap();
    let actual = dplr_scan(&DplrScan {
        queries: &q,
        decays: &decays
            .broadcast_as(k.shape())
            .unwrap()
            .contiguous()
            .unwrap(),
        keys: &written,
        values: &v,
        reads: &k.broadcast_mul(&decays).unwrap().neg().unwrap(),
        writes: &written,
    });
    close(&actual.unwrap(), &expected, 1e-10, "delta rule");
}

#[test]
fn without_a_graph_no_state_is_kept() {
    let [x, v] = [4, 5].map(|width| normal("x", &[2, 40, 2, width]));
    let operands = [&x, &x, &x, &v, &x, &x];
    let kept = saved_without_graph::<_, 6, f64>(&cpu::Scan, operands).unwrap();
    assert!(kept.is_empty());
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let (row, empty) = (normal("x", &[2, 3, 2, 4]), normal("x", &[2, 3, 2, 5]));
    let of = |x, values| DplrScan {
        queries: x,
        decays: x,
        keys: x,
        values,
        reads: &row,
        writes: x,
    };
    let error = dplr_scan(&of(&empty, &row)).unwrap_err().to_string();
    assert!(error.contains("do not fit"), "{error}");
    let none = Tensor::zeros((2, 0, 2, 4), DType::F64, &Device::Cpu).unwrap();
    let all = DplrScan {
        reads: &none,
        ..of(&none, &none)
    };
    assert_eq!(dplr_scan(&all).unwrap().dims(), [2, 0, 2, 4]);
}
