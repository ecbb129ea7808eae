//! Scores by distance: plain loops, tensor operations and kernel are one operation.

use std::ops::Range;

use candle_core::{DType, Device, Tensor, Var};

use super::cpu::RelativeScores;
use super::*;
use crate::{
    Result,
    ops::attention::{BlockLists, BlockMasks},
    testing::{agree, check_gradient, close, normal},
};

const HEADS: usize = 2;

/// Tables for `batch` sequences, in the order of [`RelativeScores`].
fn tables(batch: usize, (queries, keys): (usize, usize), reach: usize) -> [Var; 3] {
    let columns = 2 * reach + 1;
    let shapes: [&[usize]; 3] = [
        &[HEADS, columns],
        &[batch, HEADS, queries, columns],
        &[batch, HEADS, keys, columns],
    ];
    let mut index = 0;
    shapes.map(|shape| {
        index += 1;
        Var::from_tensor(&normal(&format!("table {index}"), shape)).unwrap()
    })
}

fn scores(tables: &[Option<&Tensor>; 3], reach: usize, keys: Range<usize>) -> RelativeScores {
    let [of_heads, of_queries, of_keys] = tables.map(Option::<&Tensor>::cloned);
    RelativeScores {
        reach,
        keys,
        of_heads,
        of_queries,
        of_keys,
    }
}

/// Computes y_i = Σ_j softmax_j(q_i·k_j / √E + t[c] + a_i[c] + b_j[c]) v_j over the keys for which
/// `sees(i, j)`, by loops.
fn reference(
    [q, k, v]: [&Tensor; 3],
    tables: &[Tensor; 3],
    (reach, keys): (usize, Range<usize>),
    sees: impl Fn(usize, usize) -> bool,
) -> Tensor {
    let (batch, queries, row) = q.dims3().unwrap();
    let (all, width) = (k.dim(1).unwrap(), row / HEADS);
    let [q, k, v] = [q, k, v].map(|x| x.to_vec3::<f64>().unwrap());
    let of_heads = tables[0].to_vec2::<f64>().unwrap();
    let [a, b] = [1, 2].map(|which: usize| -> Vec<Vec<Vec<f64>>> {
        tables[which].flatten_to(1).unwrap().to_vec3().unwrap()
    });
    let mut y = vec![0.0; batch * queries * row];
    for example in 0..batch {
        for (head, of_heads) in of_heads.iter().enumerate() {
            let columns = head * width..(head + 1) * width;
            for i in 0..queries {
                let mut weights = vec![0.0; all];
                for j in (0..all).filter(|j| sees(i, *j)) {
                    let pairs = columns.clone().map(|c| q[example][i][c] * k[example][j][c]);
                    let mut z = pairs.sum::<f64>() / (width as f64).sqrt();
                    if keys.contains(&j) {
                        let j = j - keys.start;
                        let distance = (j as i64 - i as i64).clamp(-(reach as i64), reach as i64);
                        let c = (distance + reach as i64) as usize;
                        let index = example * HEADS + head;
                        z += of_heads[c] + a[index][i][c] + b[index][j][c];
                    }
                    weights[j] = z.exp();
                }
                let sum = weights.iter().sum::<f64>();
                for (j, weight) in weights.iter().enumerate().filter(|(_, w)| **w > 0.0) {
                    for c in columns.clone() {
                        y[(example * queries + i) * row + c] += weight / sum * v[example][j][c];
                    }
                }
            }
        }
    }
    Tensor::from_vec(y, (batch, queries, row), &Device::Cpu).unwrap()
}

#[test]
fn both_forms_are_the_definition() {
    for (queries, keys, positions, reach) in [
        (5, 5, 0..5, 2),
        (70, 70, 0..70, 3),
        (70, 90, 0..70, 69),
        (9, 100, 70..95, 4),
        (66, 3, 1..1, 2),
        (1, 1, 0..1, 0),
    ] {
        let shapes: [&[usize]; 3] = [&[2, queries, 6], &[2, keys, 6], &[2, keys, 6]];
        let inputs = [0, 1, 2].map(|i: usize| normal(&format!("input {i}"), shapes[i]));
        let tables = tables(2, (queries, positions.len()), reach).map(|t| t.as_tensor().clone());
        let [q, k, v] = inputs.each_ref();
        let expected = reference([q, k, v], &tables, (reach, positions.clone()), |_, _| true);
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
            let to = |x: &Tensor| x.to_dtype(dtype).unwrap();
            let cast = tables.each_ref().map(to);
            let options = AttentionOptions {
                heads: HEADS,
                relative: Some(scores(&cast.each_ref().map(Some), reach, positions.clone())),
                ..AttentionOptions::default()
            };
            let y = attend(&to(q), &to(k), &to(v), &options).unwrap();
            let place = format!("{queries} {keys} {positions:?} {reach} {dtype:?}");
            close(
                &y.to_dtype(DType::F64).unwrap(),
                &expected,
                tolerance,
                &place,
            );
        }
    }
}

#[test]
fn both_forms_are_the_definition_under_block_masks() {
    type Sees = fn(usize, usize) -> bool;
    let cases: [(usize, BlockMasks, Sees); 3] = [
        (23, BlockLists::window(23, 3, 5).block_masks(23), |i, j| {
            i <= j + 3 && j <= i + 5
        }),
        (
            150,
            BlockLists::around(150, 16, (1, 0), |_, _| true).block_masks(150),
            |i, j| i / 16 == j / 16 || i / 16 == j / 16 + 1,
        ),
        (
            30,
            BlockLists::new(6, 1, &[vec![0, 4], vec![1], vec![3, 2], vec![0], vec![4]])
                .block_masks(30),
            |i, j| [[0, 4], [1, 1], [3, 2], [0, 0], [4, 4]][i / 6].contains(&(j / 6)),
        ),
    ];
    for (length, block_masks, sees) in cases {
        let inputs = ["q", "k", "v"].map(|name| normal(name, &[2, length, 6]));
        let tables = tables(2, (length, length), 4).map(|t| t.as_tensor().clone());
        let expected = reference(inputs.each_ref(), &tables, (4, 0..length), sees);
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 1e-5)] {
            let to = |x: &Tensor| x.to_dtype(dtype).unwrap();
            let cast = tables.each_ref().map(to);
            let options = AttentionOptions {
                heads: HEADS,
                block_masks: Some(block_masks.clone()),
                relative: Some(scores(&cast.each_ref().map(Some), 4, 0..length)),
                ..AttentionOptions::default()
            };
            let [q, k, v] = inputs.each_ref().map(to);
            let y = attend(&q, &k, &v, &options).unwrap();
            close(
                &y.to_dtype(DType::F64).unwrap(),
                &expected,
                tolerance,
                &format!("{length}"),
            );
        }
    }
}

#[test]
fn both_forms_agree_in_gradients_with_and_without_block_masks_mask_and_dropout() {
    let batch = 2;
    let rng = crate::RngKey::new(3, 1, 0).per_example(crate::rng::StreamKey::new("drop"));
    // The last heads are wide enough for tiles of parts of numbers.
    for (length, width) in [(7, 5), (130, 5), (70, 64)] {
        let masks = tests::block_masks(length, batch);
        let masks = masks.into_iter().map(|(name, masks)| (name, Some(masks)));
        for (name, block_masks) in masks.chain([("all", None)]) {
            for (given, reach) in [
                ([true, true, true], 3),
                ([true, false, false], length - 1),
                ([false, true, false], 2),
                ([false, false, true], 40),
            ] {
                let shape = [batch, length, HEADS * width];
                let mut inputs: Vec<Var> = ["q", "k", "v"]
                    .map(|path| Var::from_tensor(&normal(path, &shape)).unwrap())
                    .into();
                let tables = tables(batch, (length, length), reach);
                let used = tables.iter().zip(given).filter(|(_, given)| *given);
                inputs.extend(used.map(|(table, _)| table.clone()));
                let valid: Vec<f64> = (0..batch * length)
                    .map(|i| f64::from(u8::from(i % length < length - (i / length) * 3)))
                    .collect();
                let valid = Tensor::from_vec(valid, (batch, length), &Device::Cpu).unwrap();
                let run = |dtype: DType| -> Result<Tensor> {
                    let cast = tables.each_ref().map(|x| x.to_dtype(dtype).unwrap());
                    let mut index = 0;
                    let cast = cast.each_ref().map(|table| {
                        index += 1;
                        given[index - 1].then_some(table)
                    });
                    let options = AttentionOptions {
                        heads: HEADS,
                        mask: Some(valid.to_dtype(dtype)?),
                        dropout: Some(AttentionDropout::new(&rng, batch, 0.3)),
                        block_masks: block_masks.clone(),
                        relative: Some(scores(&cast, reach, 0..length)),
                        functions: ScoreFunctions {
                            soft_cap: given[1].then_some(2.0),
                        },
                        ..AttentionOptions::default()
                    };
                    let [q, k, v] = [0, 1, 2].map(|i: usize| inputs[i].to_dtype(dtype));
                    let y = attend(&q?, &k?, &v?, &options)?.to_dtype(DType::F64)?;
                    Ok(y.broadcast_mul(&valid.unsqueeze(2)?)?)
                };
                let [fused, composed] = [DType::F32, DType::F64].map(|dtype| run(dtype).unwrap());
                let place = format!("{name}, {length}, {given:?}");
                agree(&fused, &composed, &inputs, 4e-5, &place);
            }
        }
    }
}

/// Some keys of a tile have a position, and the keys before and after them have none.
#[test]
fn both_forms_agree_in_gradients_beside_keys_without_a_position() {
    let (batch, queries, keys, positions, reach) = (2, 9, 20, 5..14, 3);
    let of =
        |path, length: usize| Var::from_tensor(&normal(path, &[batch, length, HEADS * 3])).unwrap();
    let tables = tables(batch, (queries, positions.len()), reach);
    let mut inputs = vec![of("q", queries), of("k", keys), of("v", keys)];
    inputs.extend(tables.iter().cloned());
    let run = |dtype: DType| {
        let cast = |x: &Var| x.to_dtype(dtype).unwrap();
        let tables = tables.each_ref().map(cast);
        let options = AttentionOptions {
            heads: HEADS,
            relative: Some(scores(
                &tables.each_ref().map(Some),
                reach,
                positions.clone(),
            )),
            ..AttentionOptions::default()
        };
        let [q, k, v] = [0, 1, 2].map(|i: usize| cast(&inputs[i]));
        let y = attend(&q, &k, &v, &options).unwrap();
        y.to_dtype(DType::F64).unwrap()
    };
    let (fused, composed) = (run(DType::F32), run(DType::F64));
    agree(&fused, &composed, &inputs, 2e-5, "few positions");
}

#[test]
fn gradients_agree_with_differences() {
    let masks = tests::block_masks(7, 1).into_iter();
    let masks = masks.map(|(name, masks)| (name, Some(masks)));
    for (name, block_masks) in masks.chain([("all", None)]) {
        let x: &[usize] = &[1, 7, 4];
        let row: &[usize] = &[1, HEADS, 7, 5];
        check_gradient(name, &[x, x, x, &[HEADS, 5], row, row], |inputs| {
            let options = AttentionOptions {
                heads: HEADS,
                block_masks: block_masks.clone(),
                relative: Some(scores(&[3, 4, 5].map(|i| Some(&inputs[i])), 2, 0..7)),
                functions: ScoreFunctions {
                    soft_cap: Some(1.0),
                },
                ..AttentionOptions::default()
            };
            attend(&inputs[0], &inputs[1], &inputs[2], &options)
        });
    }
}

#[test]
fn tables_that_do_not_fit_are_refused_by_both_forms() {
    for dtype in [DType::F32, DType::F64] {
        let x = normal("x", &[1, 8, 4]).to_dtype(dtype).unwrap();
        let refusal = |table: &[usize], keys: Range<usize>| {
            let table = normal("t", table).to_dtype(dtype).unwrap();
            let options = AttentionOptions {
                heads: HEADS,
                relative: Some(scores(&[Some(&table), None, None], 2, keys)),
                ..AttentionOptions::default()
            };
            attend(&x, &x, &x, &options).unwrap_err().to_string()
        };
        assert!(refusal(&[2, 4], 0..8).contains("distances up to 2"));
        assert!(refusal(&[2, 5], 0..9).contains("0..9 of 8"));
    }
}
