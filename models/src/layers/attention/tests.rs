//! The kernel and the tensor operations are one operation, weights dropped included.

use candle_core::{DType, Device, Tensor, Var};

use super::*;
use crate::{
    Draws, Result,
    draws::StreamKey,
    kernels::{Plan, Plans, Sight},
    layers::{
        BlockLists, Places,
        testing::{agree, check_gradient, normal},
    },
};

const HEADS: usize = 2;

/// A query in several blocks, a key in several tiles of one block, odd scores, and queries without a block.
fn irregular(length: usize, seed: usize) -> Plan {
    let mut plan = Plan::new(-1.5).revisiting();
    let first = plan.key_block((0..length.min(40) as u32).rev());
    let all: Vec<u32> = (0..length as u32).collect();
    let all = plan.key_blocks_of(&all);
    for start in (seed..length.saturating_sub(2)).step_by(5) {
        let count = 7.min(length - start);
        plan.query_block((start..start + count).map(|query| query as u32));
        for (keys, places) in &all {
            let sight = |place: &u32| {
                let from = (*place as usize + seed) % count;
                Sight::new(from..count, place.is_multiple_of(3).then_some(from))
            };
            let sights = plan.sights(places.iter().map(sight));
            plan.see(*keys, Some(&sights));
        }
        if start.is_multiple_of(2) {
            plan.see(first, None);
        }
    }
    plan
}

/// Every kind of plans that there is: one for all, for each head, for each head of each example.
fn plans(length: usize, batch: usize) -> Vec<(&'static str, Plans)> {
    let lists: Vec<Vec<usize>> = (0..HEADS * length.div_ceil(6))
        .map(|row| vec![0, (7 * row) % length.div_ceil(6).max(2), 1])
        .collect();
    let column = Places::every(3, 0, length);
    let mut strided = Plan::new(0.0);
    BlockLists::window(column.count, 2, 1).add_to(&mut strided, 0, (column, column), |_, _| {});
    vec![
        ("window", BlockLists::window(length, 9, 3).plans(length)),
        (
            "blocks",
            BlockLists::around(length, 8, (0, 0), |_, _| true).plans(length),
        ),
        ("lists", BlockLists::new(6, HEADS, &lists).plans(length)),
        ("every third query", Plans::new(vec![strided])),
        (
            "irregular",
            Plans::new((0..HEADS).map(|head| irregular(length, head)).collect()),
        ),
        (
            "of each example",
            Plans::new(
                (0..batch * HEADS)
                    .map(|head| irregular(length, head))
                    .collect(),
            ),
        ),
    ]
}

#[test]
fn both_forms_agree_and_drop_the_same_weights_under_every_plan() {
    let (batch, width) = (3, 5);
    let draws = Draws::new(3, 1, 0).per_example(StreamKey::new("drop"));
    for length in [7, 70, 150] {
        for (name, plans) in plans(length, batch) {
            for (masked, rate) in [(false, 0.0), (true, 0.0), (false, 0.4), (true, 0.4)] {
                let shape = [batch, length, HEADS * width];
                let inputs =
                    ["q", "k", "v"].map(|path| Var::from_tensor(&normal(path, &shape)).unwrap());
                let real: Vec<f64> = (0..batch * length)
                    .map(|i| f64::from(u8::from(i % length < length - (i / length) * 3)))
                    .collect();
                let real = Tensor::from_vec(real, (batch, length), &Device::Cpu).unwrap();
                let run = |dtype: DType| -> Result<Tensor> {
                    let options = AttentionOptions {
                        heads: HEADS,
                        mask: masked.then(|| real.to_dtype(dtype)).transpose()?,
                        dropout: (rate > 0.0).then(|| AttentionDropout::new(&draws, batch, rate)),
                        plans: Some(plans.clone()),
                        ..AttentionOptions::default()
                    };
                    let [q, k, v] = inputs.each_ref().map(|x| x.to_dtype(dtype));
                    Ok(attend(&q?, &k?, &v?, &options)?.to_dtype(DType::F64)?)
                };
                let [fused, composed] = [DType::F32, DType::F64].map(|dtype| run(dtype).unwrap());
                let place = format!("{name}, {length}, mask {masked}, rate {rate}");
                agree(&fused, &composed, &inputs, 2e-5, &place);
            }
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    let shape: &[usize] = &[1, 7, 4];
    for (name, plans) in plans(7, 1) {
        let options = AttentionOptions {
            heads: HEADS,
            plans: Some(plans),
            ..AttentionOptions::default()
        };
        check_gradient(name, &[shape, shape, shape], |inputs| {
            attend(&inputs[0], &inputs[1], &inputs[2], &options)
        });
    }
}

#[test]
fn what_does_not_fit_is_refused_by_both_forms() {
    let plans = BlockLists::window(9, 1, 1).plans(9);
    for dtype in [DType::F32, DType::F64] {
        let x = normal("x", &[1, 8, 4]).to_dtype(dtype).unwrap();
        let refusal = |heads: usize, plans: Option<Plans>| {
            let options = AttentionOptions {
                heads,
                plans,
                ..AttentionOptions::default()
            };
            attend(&x, &x, &x, &options).unwrap_err().to_string()
        };
        assert!(refusal(3, None).contains("width 4 cannot be split into 3 heads"));
        let refused = refusal(2, Some(plans.clone()));
        assert!(
            refused.contains("a plan for 9 queries and 9 keys, given 8 and 8"),
            "{refused}"
        );
    }
}
