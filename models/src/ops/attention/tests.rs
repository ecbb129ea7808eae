//! The kernel and the tensor operations are one operation, weights dropped included.

use candle_core::{DType, Device, Tensor, Var};

use super::*;
use crate::{
    Result, RngKey,
    ops::attention::{BlockLists, BlockMask, BlockMasks, QueryRange, StridedPositions},
    rng::StreamKey,
    testing::{agree, check_gradient, normal},
};

const HEADS: usize = 2;

/// Returns a mask with a query in several blocks, a key in several tiles of one block, diagonal
/// scores, and queries without a block.
fn irregular(length: usize, seed: usize) -> BlockMask {
    let mut block_mask = BlockMask::new(-1.5).repeating_queries();
    let first = block_mask.key_block((0..length.min(40) as u32).rev());
    let all: Vec<u32> = (0..length as u32).collect();
    let all = block_mask.key_blocks_of(&all);
    for start in (seed..length.saturating_sub(2)).step_by(5) {
        let count = 7.min(length - start);
        block_mask.query_block((start..start + count).map(|query| query as u32));
        for (keys, positions) in &all {
            let range_of = |position: &u32| {
                let from = (*position as usize + seed) % count;
                QueryRange::new(from..count, position.is_multiple_of(3).then_some(from))
            };
            let ranges = block_mask.ranges(positions.iter().map(range_of));
            block_mask.allow(*keys, Some(&ranges));
        }
        if start.is_multiple_of(2) {
            block_mask.allow(first, None);
        }
    }
    block_mask
}

/// Returns every kind of block masks: one for all, for each head, for each head of each example.
pub(super) fn block_masks(length: usize, batch: usize) -> Vec<(&'static str, BlockMasks)> {
    let lists: Vec<Vec<usize>> = (0..HEADS * length.div_ceil(6))
        .map(|row| vec![0, (7 * row) % length.div_ceil(6).max(2), 1])
        .collect();
    let column = StridedPositions::every(3, 0, length);
    let mut strided = BlockMask::new(0.0);
    BlockLists::window(column.count, 2, 1).add_to(&mut strided, 0, (column, column), |_, _| {});
    vec![
        (
            "window",
            BlockLists::window(length, 9, 3).block_masks(length),
        ),
        (
            "blocks",
            BlockLists::around(length, 8, (0, 0), |_, _| true).block_masks(length),
        ),
        (
            "lists",
            BlockLists::new(6, HEADS, &lists).block_masks(length),
        ),
        ("every third query", BlockMasks::new(vec![strided])),
        (
            "irregular",
            BlockMasks::new((0..HEADS).map(|head| irregular(length, head)).collect()),
        ),
        (
            "of each example",
            BlockMasks::new(
                (0..batch * HEADS)
                    .map(|head| irregular(length, head))
                    .collect(),
            ),
        ),
    ]
}

#[test]
fn both_forms_agree_and_drop_the_same_weights_under_every_plan() {
    let batch = 3;
    let rng = RngKey::new(3, 1, 0).per_example(StreamKey::new("drop"));
    // Values as wide as keys, narrower and wider; the last are wide enough for tiles of parts of
    // numbers.
    let sizes = [
        (7, 5, 5),
        (70, 5, 5),
        (150, 5, 5),
        (70, 5, 3),
        (150, 5, 18),
        (150, 64, 66),
    ];
    for (length, width, value_width) in sizes {
        let masks = block_masks(length, batch).into_iter();
        let masks = masks.map(|(name, masks)| (name, Some(masks)));
        for (name, block_masks) in masks.chain([("all", None)]) {
            for (masked, rate, soft_cap) in [
                (false, 0.0, None),
                (true, 0.0, None),
                (false, 0.4, None),
                (true, 0.4, Some(1.5)),
            ] {
                let inputs =
                    [("q", width), ("k", width), ("v", value_width)].map(|(path, width)| {
                        Var::from_tensor(&normal(path, &[batch, length, HEADS * width])).unwrap()
                    });
                let valid: Vec<f64> = (0..batch * length)
                    .map(|i| f64::from(u8::from(i % length < length - (i / length) * 3)))
                    .collect();
                let valid = Tensor::from_vec(valid, (batch, length), &Device::Cpu).unwrap();
                let run = |dtype: DType| -> Result<Tensor> {
                    let options = AttentionOptions {
                        heads: HEADS,
                        scale: masked.then(|| 0.5 * (width as f64).powf(-0.5)),
                        mask: masked.then(|| valid.to_dtype(dtype)).transpose()?,
                        dropout: (rate > 0.0).then(|| AttentionDropout::new(&rng, batch, rate)),
                        block_masks: block_masks.clone(),
                        functions: ScoreFunctions { soft_cap },
                        ..AttentionOptions::default()
                    };
                    let [q, k, v] = inputs.each_ref().map(|x| x.to_dtype(dtype));
                    Ok(attend(&q?, &k?, &v?, &options)?.to_dtype(DType::F64)?)
                };
                let [fused, composed] = [DType::F32, DType::F64].map(|dtype| run(dtype).unwrap());
                let position =
                    format!("{name}, {length}, values {value_width}, mask {masked}, rate {rate}");
                agree(&fused, &composed, &inputs, 2e-5, &position);
            }
        }
    }
}

/// Query 0 sees the pair on the diagonal alone, query 1 another one, too.
#[test]
fn each_mask_has_a_diagonal_bias_which_may_hide_the_pair() {
    let block_mask = |bias: f32| {
        let mut block_mask = BlockMask::new(bias);
        let keys = block_mask.key_block(0..2);
        block_mask.query_block(0..2);
        let ranges = [0..2, 1..2].into_iter().enumerate();
        let ranges = ranges.map(|(key, queries)| QueryRange::new(queries, Some(key)));
        let ranges = block_mask.ranges(ranges);
        block_mask.allow(keys, Some(&ranges));
        block_mask
    };
    let hidden = f32::NEG_INFINITY;
    for biases in [[hidden; HEADS], [0.5, -1.5], [1.0, hidden], [hidden, 1.0]] {
        let options = AttentionOptions {
            heads: HEADS,
            block_masks: Some(BlockMasks::new(biases.map(block_mask).to_vec())),
            ..AttentionOptions::default()
        };
        let inputs = ["q", "k", "v"]
            .map(|path| Var::from_tensor(&normal(path, &[1, 2, HEADS * 3])).unwrap());
        let run = |dtype: DType| {
            let [q, k, v] = inputs.each_ref().map(|x| x.to_dtype(dtype).unwrap());
            let y = attend(&q, &k, &v, &options).unwrap();
            y.to_dtype(DType::F64).unwrap()
        };
        let (fused, composed) = (run(DType::F32), run(DType::F64));
        agree(&fused, &composed, &inputs, 2e-5, &format!("{biases:?}"));
        for (head, bias) in biases.into_iter().enumerate() {
            let row = |x: &Tensor, position: usize| -> Vec<f64> {
                let x = x.reshape((2, HEADS, 3)).unwrap();
                x.get(position)
                    .unwrap()
                    .get(head)
                    .unwrap()
                    .to_vec1()
                    .unwrap()
            };
            if bias == hidden {
                assert_eq!(row(&composed, 0), [0.0; 3]);
                assert_eq!(row(&composed, 1), row(&inputs[2], 0));
            }
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    let (shape, values): (&[usize], &[usize]) = (&[1, 7, 4], &[1, 7, 6]);
    for (name, block_masks) in block_masks(7, 1) {
        let options = AttentionOptions {
            heads: HEADS,
            block_masks: Some(block_masks),
            functions: ScoreFunctions {
                soft_cap: Some(2.0),
            },
            ..AttentionOptions::default()
        };
        check_gradient(name, &[shape, shape, values], |inputs| {
            attend(&inputs[0], &inputs[1], &inputs[2], &options)
        });
    }
}

/// Columns of all keys are like columns of each, but take no gradient: by the kernels, by tensor
/// operations, and with weights kept.
#[test]
fn columns_of_all_keys_are_columns_of_each() {
    let (batch, width, more, value_width) = (2, 5, 18, 3);
    // With the most keys, the work of a head is done in parts.
    for (queries, keys) in [(7, 7), (70, 70), (65, 600), (600, 65), (9, 1030)] {
        let of = |path, length, width| {
            Var::from_tensor(&normal(path, &[batch, length, HEADS * width])).unwrap()
        };
        let q = of("q", queries, width + more);
        let inputs = [q, of("k", keys, width), of("v", keys, value_width)];
        let columns = normal("columns", &[keys, more]);
        let sparse = BlockLists::around(keys.min(queries), 8, (0, 0), |_, _| true);
        let sparse = (queries == keys).then(|| sparse.block_masks(queries));
        for block_masks in [None].into_iter().chain(sparse.map(Some)) {
            let options = AttentionOptions {
                heads: HEADS,
                block_masks,
                ..AttentionOptions::default()
            };
            let run = |attend: Attend, dtype: DType| -> Result<Tensor> {
                let [q, k, v] = inputs.each_ref().map(|x| x.to_dtype(dtype));
                let options = AttentionOptions {
                    key_columns: Some(columns.to_dtype(dtype)?),
                    ..options.clone()
                };
                Ok(attend(&q?, &k?, &v?, &options)?.to_dtype(DType::F64)?)
            };
            let [q, k, v] = inputs.each_ref().map(Var::as_tensor);
            let joined = with_columns(k, HEADS, Some(&columns)).unwrap();
            let expected = composed(q, &joined, v, &options).unwrap();
            let sparse = options.block_masks.is_some();
            let place = |form| format!("{form}, {queries} x {keys}, sparse {sparse}");
            for (form, attend, dtype, tolerance) in [
                ("kernel", attend as Attend, DType::F32, 2e-5),
                ("kept", attend_materialised, DType::F32, 2e-5),
                ("operations", attend, DType::F64, 1e-12),
            ] {
                let actual = run(attend, dtype).unwrap();
                agree(&actual, &expected, &inputs, tolerance, &place(form));
            }
        }
    }
}

type Attend = fn(&Tensor, &Tensor, &Tensor, &AttentionOptions) -> Result<Tensor>;

#[test]
fn what_does_not_fit_is_refused_by_both_forms() {
    let block_masks = BlockLists::window(9, 1, 1).block_masks(9);
    for dtype in [DType::F32, DType::F64] {
        let x = normal("x", &[1, 8, 4]).to_dtype(dtype).unwrap();
        let refusal = |heads: usize, block_masks: Option<BlockMasks>| {
            let options = AttentionOptions {
                heads,
                block_masks,
                ..AttentionOptions::default()
            };
            attend(&x, &x, &x, &options).unwrap_err().to_string()
        };
        assert!(refusal(3, None).contains("width 4 cannot be split into 3 heads"));
        let options = AttentionOptions {
            heads: HEADS,
            key_columns: Some(x.get(0).unwrap()),
            ..AttentionOptions::default()
        };
        let refused = attend(&x, &x, &x, &options).unwrap_err().to_string();
        assert!(
            refused.contains("8 keys of width 2 with Some([8, 4]) more columns"),
            "{refused}"
        );
        // A gradient that would be lost is no silent matter.
        let columns = Var::from_tensor(&x.get(0).unwrap().narrow(1, 0, 2).unwrap()).unwrap();
        let options = AttentionOptions {
            key_columns: Some(columns.as_tensor().clone()),
            ..options
        };
        let q = Tensor::cat(&[&x, &x], 2).unwrap();
        for attend in [attend, attend_materialised] {
            let refused = attend(&q, &x, &x, &options).unwrap_err().to_string();
            assert!(refused.contains("take no gradient"), "{refused}");
        }
        let refused = attend_packed(&normal("x", &[1, 8, 13]).to_dtype(dtype).unwrap(), &options);
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("width 13 is not three times"), "{refused}");
        let refused = refusal(2, Some(block_masks.clone()));
        assert!(
            refused.contains("a block_mask for 9 queries and 9 keys, given 8 and 8"),
            "{refused}"
        );
    }
}

#[test]
fn a_soft_cap_holds_where_weights_are_kept() {
    let inputs =
        ["q", "k", "v"].map(|path| Var::from_tensor(&normal(path, &[2, 7, HEADS * 5])).unwrap());
    let options = AttentionOptions {
        heads: HEADS,
        functions: ScoreFunctions {
            soft_cap: Some(0.5),
        },
        ..AttentionOptions::default()
    };
    let [kept, composed] = [DType::F32, DType::F64].map(|dtype| {
        let [q, k, v] = inputs.each_ref().map(|x| x.to_dtype(dtype).unwrap());
        let y = attend_materialised(&q, &k, &v, &options).unwrap();
        y.to_dtype(DType::F64).unwrap()
    });
    agree(&kept, &composed, &inputs, 2e-5, "kept");
}

/// Padding, one example without a key, dropout, more keys than queries, and no graph.
#[test]
fn weights_kept_in_memory_are_those_of_the_composed_form() {
    let (batch, width) = (3, 5);
    let rng = RngKey::new(3, 1, 0).per_example(StreamKey::new("drop"));
    let sizes = [(1, 1), (7, 7), (64, 64), (70, 70), (150, 150), (65, 90)];
    let sizes = sizes.map(|(queries, keys)| (queries, keys, width));
    for (queries, keys, value_width) in sizes.into_iter().chain([(70, 70, 3), (65, 90, 17)]) {
        for (masked, rate) in [(false, 0.0), (true, 0.0), (false, 0.4), (true, 0.4)] {
            let of = |path, length, width| {
                Var::from_tensor(&normal(path, &[batch, length, HEADS * width])).unwrap()
            };
            let (q, k) = (of("q", queries, width), of("k", keys, width));
            let inputs = [q, k, of("v", keys, value_width)];
            let marks = (0..batch * keys)
                .map(|i| f64::from(u8::from(i / keys < 2 && i % keys < keys - i / keys)));
            let valid = Tensor::from_iter(marks, &Device::Cpu).unwrap();
            let valid = valid.reshape((batch, keys)).unwrap();
            let run = |inputs: [Tensor; 3], dtype: DType| -> Result<Tensor> {
                let options = AttentionOptions {
                    heads: HEADS,
                    mask: masked.then(|| valid.to_dtype(dtype)).transpose()?,
                    dropout: (rate > 0.0).then(|| AttentionDropout::new(&rng, batch, rate)),
                    ..AttentionOptions::default()
                };
                let [q, k, v] = inputs.map(|x| x.to_dtype(dtype));
                Ok(attend_materialised(&q?, &k?, &v?, &options)?.to_dtype(DType::F64)?)
            };
            let [kept, composed] = [DType::F32, DType::F64].map(|dtype| {
                let inputs = inputs.each_ref().map(|x| x.as_tensor().clone());
                run(inputs, dtype).unwrap()
            });
            let position =
                format!("{queries} x {keys}, values {value_width}, mask {masked}, rate {rate}");
            agree(&kept, &composed, &inputs, 2e-5, &position);
            let constants = inputs.each_ref().map(Var::as_detached_tensor);
            let alone = run(constants, DType::F32).unwrap();
            let numbers = |y: &Tensor| y.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            assert!(numbers(&alone) == numbers(&kept), "{position}, no graph");
        }
    }
}
