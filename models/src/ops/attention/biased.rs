//! Softmax attention whose scores have a learned term besides that of queries and keys.
//!     y_i = Σ_j a_ij v_j,  a_i = softmax_j(q_i·k_j / √E + factor S_ij)

use candle_core::Tensor;

use super::{
    AttentionOptions, all_scores,
    score_mod::{self, PairTerm, Steps},
    weigh,
};
use crate::{
    Mask, Result,
    ops::{attention::partial_softmax::by_head, check},
};

/// Returns softmax self-attention (B, L, H E) whose scores have a learned term:
/// `scale q_i·k_j + f S_ij`, with the scale of the options, 1 / √E by default. `qkv` (B, L, 3 H E)
/// holds queries q, keys k and values side by side. `bias` is S (H, N, N), with N at least L, and
/// `factor` f is a single number.
///
/// # Errors
/// If shapes do not fit, or the options have block masks, scores by distance or key columns.
pub fn attend_biased(
    qkv: &Tensor,
    (bias, factor): (&Tensor, &Tensor),
    options: &AttentionOptions,
) -> Result<Tensor> {
    let ((batch, length, row), heads) = (qkv.dims3()?, options.heads);
    let (copies, rows, columns) = bias.dims3()?;
    let fits = copies == heads
        && row.is_multiple_of(3 * heads.max(1))
        && rows == columns
        && rows >= length
        && options.block_masks.is_none()
        && options.relative.is_none()
        && options.key_columns.is_none();
    check(fits, "attention", || {
        let (qkv, bias) = (qkv.shape(), bias.shape());
        format!("projections {qkv:?} and bias {bias:?} do not fit {heads} heads")
    })?;
    options.check(batch, (length, length), [row / 3; 3])?;
    if super::super::supports(qkv) {
        return Ok(super::cpu::attention_biased(qkv, bias, factor, options)?);
    }
    let split = |index: usize| -> Result<Tensor> {
        let part = qkv.narrow(2, index * (row / 3), row / 3)?.contiguous()?;
        by_head(&part.reshape((batch, length, heads, ()))?)
    };
    let [q, k, v] = [0, 1, 2].map(split); // (B, H, L, E)
    let (q, k, v) = (q?, k?, v?);
    let scale = options.scale.unwrap_or((q.dim(3)? as f64).powf(-0.5));
    let bias = bias.narrow(1, 0, length)?.narrow(2, 0, length)?;
    let bias = bias.broadcast_mul(factor)?.unsqueeze(0)?;
    let mut steps: Steps = vec![Box::new(PairTerm(bias))];
    steps.extend(score_mod::of_options(options));
    let scores = all_scores(&q.affine(scale, 0.0)?, &k, &steps)?;
    let mask = options.mask.as_ref().map(Mask::new).transpose()?;
    let y = weigh(&scores, &v, mask.as_ref(), options.dropout.as_ref())?;
    Ok(by_head(&y)?.flatten_from(2)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        RngKey,
        ops::attention::{AttentionDropout, RelativeScores, ScoreFunctions},
        ops::testing::{Sampler, agree},
        rng::StreamKey,
        testing::check_gradient,
    };

    const HEADS: usize = 2;

    /// Returns attention on projections, S and its factor.
    fn attend(x: &[Tensor], mask: Option<&Tensor>, rate: f64) -> Result<Tensor> {
        let stream = RngKey::new(1, 2, 3).per_example(StreamKey::new("drop"));
        let valid = |mask: &Tensor| mask.to_dtype(x[0].dtype());
        let options = AttentionOptions {
            heads: HEADS,
            mask: mask.map(valid).transpose()?,
            dropout: (rate > 0.0).then(|| AttentionDropout::new(&stream, x[0].dims()[0], rate)),
            ..AttentionOptions::default()
        };
        attend_biased(&x[0], (&x[1], &x[2]), &options)
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(23);
        for (length, longest, width) in [(1, 1, 1), (9, 12, 5), (130, 130, 16)] {
            let row = 3 * HEADS * width;
            let mut normal = |shape: &[usize], deviation| sampler.normal(shape, deviation);
            let inputs = [
                normal(&[2, length, row], 1.0),
                normal(&[HEADS, longest, longest], 1.0),
                normal(&[1], 1.0),
            ];
            // Every third position of the second example is padding.
            let valid = (0..2 * length).map(|i| f32::from(i < length || i % 3 != 1));
            let mask = Tensor::from_iter(valid, &Device::Cpu).unwrap();
            let mask = mask.reshape((2, length)).unwrap();
            for (mask, rate) in [(None, 0.0), (Some(&mask), 0.0), (Some(&mask), 0.3)] {
                let f = |x: &[Tensor]| Ok(attend(x, mask, rate)?);
                agree("biased attention", &inputs, f, f);
            }
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let shapes: [&[usize]; 3] = [&[2, 3, 12], &[2, 4, 4], &[1]];
        check_gradient("biased attention", &shapes, |x| attend(x, None, 0.0));
    }

    #[test]
    fn a_bias_that_does_not_fit_is_an_error() {
        for dtype in [DType::F32, DType::F64] {
            let shapes: [&[usize]; 3] = [&[2, 5, 12], &[2, 4, 4], &[1]];
            let x = shapes.map(|shape| Tensor::ones(shape, dtype, &Device::Cpu).unwrap());
            assert!(attend(&x, None, 0.0).is_err());
        }
    }

    #[test]
    fn options_that_do_not_fit_are_refused_by_both_forms() {
        for dtype in [DType::F32, DType::F64] {
            let ones = |shape: &[usize]| Tensor::ones(shape, dtype, &Device::Cpu).unwrap();
            let (qkv, bias, factor) = (ones(&[2, 3, 12]), ones(&[2, 4, 4]), ones(&[1]));
            let relative = RelativeScores {
                reach: 1,
                keys: 0..3,
                of_heads: Some(ones(&[2, 3])),
                of_queries: None,
                of_keys: None,
            };
            for (soft_cap, key_columns, relative) in [
                (Some(0.0), None, None),
                (None, Some(ones(&[3, 1])), None),
                (None, None, Some(relative)),
            ] {
                let options = AttentionOptions {
                    heads: 2,
                    functions: ScoreFunctions { soft_cap },
                    key_columns,
                    relative,
                    ..AttentionOptions::default()
                };
                assert!(attend_biased(&qkv, (&bias, &factor), &options).is_err());
            }
        }
    }
}
