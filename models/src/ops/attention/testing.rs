//! Sparse attention compared with a dense twin whose mask comes from the pattern's definition
//! alone, in f64.

use candle_core::{D, DType, Device, Tensor, Var};

use crate::{
    Mask, Result,
    ops::attention::{self, AttentionOptions, BlockMasks, WeightDropout, partial_softmax::by_head},
    testing::{agree, normal},
};

/// Runs `attend` with a dropout of rate 0, for as many examples as `q` has.
pub(crate) fn undropped<T>(
    q: &Tensor,
    attend: impl FnOnce(WeightDropout) -> Result<T>,
) -> Result<T> {
    attend(WeightDropout::new(None, q.dim(0)?))
}

/// Returns the masks of four sequences: complete, padded at the end, with holes, and all padding.
fn valid(length: usize) -> Vec<f64> {
    let rows: [&dyn Fn(usize) -> bool; 4] =
        [&|_| true, &|i| 3 * i < 2 * length, &|i| i % 3 != 1, &|_| {
            false
        }];
    let value = |row: usize, i| f64::from(u8::from(rows[row](i)));
    (0..4)
        .flat_map(|row| (0..length).map(move |i| value(row, i)))
        .collect()
}

/// Checks outputs and gradients of attention under `block_masks`, by tensor operations in f64 and
/// by the kernel, against softmax attention of query i of a head on the valid keys j for which
/// `sees(head, i, j)`, with and without mask.
pub(crate) fn block_masks_meet_dense(
    name: &str,
    length: usize,
    heads: usize,
    block_masks: &BlockMasks,
    sees: impl Fn(usize, usize, usize) -> bool,
) {
    for (dtype, tolerance) in [(DType::F64, 1e-6), (DType::F32, 1e-5)] {
        let attend = |q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Mask>| {
            let valid = |mask: &Mask| mask.valid().to_dtype(dtype);
            let options = AttentionOptions {
                heads,
                mask: mask.map(valid).transpose()?,
                block_masks: Some(block_masks.clone()),
                ..AttentionOptions::default()
            };
            let flat = |x: &Tensor| by_head(x)?.flatten_from(2)?.to_dtype(dtype);
            let y = attention::attend(&flat(q)?, &flat(k)?, &flat(v)?, &options)?;
            by_head(
                &y.to_dtype(DType::F64)?
                    .reshape((q.dim(0)?, length, heads, ()))?,
            )
        };
        let place = format!("{name}, {dtype:?}");
        meets_dense_within(tolerance, &place, (length, heads), attend, &sees);
    }
}

/// Checks outputs and gradients of `attend` (queries, keys and values (B, H, L, 3)) against softmax
/// attention of query i of a head on the valid keys j for which `sees(head, i, j)`, with and without
/// mask.
pub(crate) fn meets_dense(
    name: &str,
    length: usize,
    heads: usize,
    attend: impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor>,
    sees: impl Fn(usize, usize, usize) -> bool,
) {
    meets_dense_within(1e-6, name, (length, heads), attend, sees);
}

fn meets_dense_within(
    tolerance: f64,
    name: &str,
    (length, heads): (usize, usize),
    attend: impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor>,
    sees: impl Fn(usize, usize, usize) -> bool,
) {
    let shape = [4, heads, length, 3];
    let inputs = ["q", "k", "v"].map(|path| Var::from_tensor(&normal(path, &shape)).unwrap());
    let [q, k, v] = &inputs;
    let mut pattern = Vec::new();
    for head in 0..heads {
        for i in 0..length {
            pattern.extend((0..length).map(|j| f64::from(u8::from(sees(head, i, j)))));
        }
    }
    let pattern = Tensor::from_vec(pattern, (1, heads, length, length), &Device::Cpu).unwrap();
    let valid = Tensor::from_vec(valid(length), (4, length), &Device::Cpu).unwrap();
    let ones = Tensor::ones((4, length), DType::F64, &Device::Cpu).unwrap();
    let mask = Mask::new(&valid).unwrap();
    for (mask, valid) in [(None, &ones), (Some(&mask), &valid)] {
        let actual = attend(q, k, v, mask).unwrap();
        let valid = valid.reshape((4, 1, 1, length)).unwrap();
        let expected = dense(q, k, v, &pattern.broadcast_mul(&valid).unwrap()).unwrap();
        let place = format!("{name}, length {length}, mask {}", mask.is_some());
        agree(&actual, &expected, &inputs, tolerance, &place);
    }
}

/// Returns softmax attention over the pairs where `pattern` (B, H, L, L) is 1; rows without one
/// give zeros.
fn dense(q: &Tensor, k: &Tensor, v: &Tensor, pattern: &Tensor) -> Result<Tensor> {
    let scale = (q.dim(D::Minus1)? as f64).sqrt().recip();
    let weights = (q.matmul(&k.t()?)?.affine(scale, 0.0)?.exp()? * pattern)?;
    let total = weights.sum_keepdim(D::Minus1)?;
    let empty = total.eq(0.0)?.to_dtype(DType::F64)?;
    Ok(weights.broadcast_div(&(total + empty)?)?.matmul(v)?)
}
