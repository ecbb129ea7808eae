//! Softmax in parts: each part weighs some of a query's keys, and merging them gives one softmax
//! over all.
//!
//! ```text
//! y_i = Σ_p c_ip n_ip / Σ_p c_ip s_ip,   c_ip = exp(m_ip - max_p m_ip)
//! n_ip = Σ_{j in p} exp(z_ij - m_ip) v_j,   s_ip = Σ_{j in p} exp(z_ij - m_ip)
//! ```
//!
//! z are the scores, v the values, and m_ip is the largest score of query i in part p. A sparse
//! pattern is a union of parts that are each dense in some arrangement of the sequence (blocks,
//! strides, a few global keys). Parts must not share keys: a key in two of them counts twice.

use candle_core::{D, Tensor};

use crate::{
    Result,
    mask::PADDED,
    ops::{DropoutMask, check, dropout, matmul, swap_axes},
    rng::Stream,
};

/// Softmax attention of Q queries on one part of their keys, before it is divided by the sum of its
/// weights. It holds weighted sums of values (.., Q, V), sums of weights (.., Q, 1) and the largest
/// scores (.., Q, 1).
pub struct PartialSoftmax {
    /// n, (.., Q, V).
    weighted: Tensor,
    /// s, (.., Q, 1).
    sum: Tensor,
    /// m, (.., Q, 1), a constant: it cancels. Below `-PADDED / 2` for a query that sees no key of
    /// this part.
    max: Tensor,
}

impl PartialSoftmax {
    /// Computes a part from the scores (.., Q, K) of Q queries and K keys. `weigh` maps weights
    /// (.., Q, K) to weighted sums (.., Q, V) of values of width V.
    ///
    /// # Errors
    /// Errors of `weigh`.
    pub fn new(scores: &Tensor, weigh: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Self> {
        let max = scores.detach().max_keepdim(D::Minus1)?;
        let weights = scores.broadcast_sub(&max)?.exp()?;
        Ok(Self {
            weighted: weigh(&weights)?,
            sum: weights.sum_keepdim(D::Minus1)?,
            max,
        })
    }

    /// Returns a part in which no key is seen, with one query in each of N = `rows` rows. Its
    /// values are (N, 1, V) for V = `width`. It has the float type and the device of `like`.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn nothing(rows: usize, width: usize, like: &Tensor) -> Result<Self> {
        let (dtype, device) = (like.dtype(), like.device());
        let sum = Tensor::ones((rows, 1, 1), dtype, device)?;
        Ok(Self {
            weighted: Tensor::zeros((rows, 1, width), dtype, device)?,
            max: sum.affine(-PADDED, 0.0)?,
            sum,
        })
    }

    /// Joins `parts` into one part, whose queries are those of all parts, one after the other. The
    /// weighted values of a part are (N, Q, V). The number Q of queries may differ between parts.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn cat(parts: &[Self]) -> Result<Self> {
        let cat =
            |of: fn(&Self) -> &Tensor| Tensor::cat(&parts.iter().map(of).collect::<Vec<_>>(), 1);
        Ok(Self {
            weighted: cat(|part| &part.weighted)?,
            sum: cat(|part| &part.sum)?,
            max: cat(|part| &part.max)?,
        })
    }

    /// Returns this part with its queries in another order or shape. `arrange` maps tensors
    /// (.., Q, W) of any width W. It may move and repeat rows, and must leave the last axis as it
    /// is.
    ///
    /// # Errors
    /// Errors of `arrange`.
    pub fn arranged(&self, arrange: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Self> {
        Ok(Self {
            weighted: arrange(&self.weighted)?,
            sum: arrange(&self.sum)?,
            max: arrange(&self.max)?,
        })
    }

    /// Merges `parts`, all of one shape, into one part of the same shape over all their keys.
    ///
    /// # Errors
    /// If there is no part, or their shapes differ.
    pub fn merge(parts: &[Self]) -> Result<Self> {
        let (first, others) = parts
            .split_first()
            .ok_or_else(|| crate::Error::Input("attention without a part".to_owned()))?;
        if others.is_empty() {
            return first.arranged(|x| Ok(x.clone()));
        }
        let mut max = first.max.clone();
        for part in others {
            max = max.maximum(&part.max)?;
        }
        let scaled = |part: &Self| -> Result<(Tensor, Tensor)> {
            let scale = (&part.max - &max)?.exp()?;
            Ok((part.weighted.broadcast_mul(&scale)?, (&part.sum * &scale)?))
        };
        let (mut weighted, mut sum) = scaled(first)?;
        for part in others {
            let (more_weighted, more) = scaled(part)?;
            weighted = (weighted + more_weighted)?;
            sum = (sum + more)?;
        }
        Ok(Self { weighted, sum, max })
    }

    /// Returns the attention (.., Q, V) of all queries on the keys of this part. A query that sees
    /// no key gets zeros.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn output(&self) -> Result<Tensor> {
        let visible = self.max.ge(-PADDED / 2.0)?.to_dtype(self.max.dtype())?;
        Ok(self.weighted.broadcast_mul(&(visible / &self.sum)?)?)
    }
}

/// Dropout of attention weights, for attention that is computed in parts. The first dimension of
/// the weights must be a multiple of the batch size. An example then has the same random numbers
/// however its weights are arranged.
#[derive(Clone, Copy)]
pub struct WeightDropout {
    /// Stream and rate in [0, 1).
    dropout: Option<(Stream, f64)>,
    examples: usize,
}

impl WeightDropout {
    /// Returns the dropout of one part, for a batch of `examples`. `dropout` is its random stream
    /// and its rate, in [0, 1). `None` drops nothing. Each part of a forward pass needs a stream of
    /// its own.
    #[must_use]
    pub fn new(dropout: Option<(Stream, f64)>, examples: usize) -> Self {
        Self { dropout, examples }
    }

    /// Returns attention weights (.., K), for K keys, after dropout in the same shape.
    ///
    /// # Errors
    /// If the weights cannot be divided equally among the examples.
    pub fn apply(&self, weights: &Tensor) -> Result<Tensor> {
        let Some((stream, rate)) = &self.dropout else {
            return Ok(weights.clone());
        };
        let keys = weights.dim(D::Minus1)?;
        let rows = weights.reshape((self.examples, (), keys))?;
        let rows = dropout(&rows, &DropoutMask::new(stream, *rate))?;
        Ok(rows.reshape(weights.dims())?)
    }
}

/// Returns softmax attention of Q queries q (.., Q, E) on K keys k (.., K, E) and values v
/// (.., K, V) as one part, for [`merge`]. The three have the same leading axes, at least one. Every
/// query sees every key, and scores are multiplied by 1 / √E.
///
/// `bias` is added to the scores (.., Q, K) and must broadcast to them. A bias of -1e9 hides a key.
/// `dropout` drops weights.
///
/// # Errors
/// If shapes do not fit.
pub fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    bias: Option<&Tensor>,
    dropout: WeightDropout,
) -> Result<PartialSoftmax> {
    check([q, k, v].iter().all(|x| x.rank() > 2), "attention", || {
        let shapes = [q, k, v].map(Tensor::shape);
        format!("q, k and v {shapes:?} have too few axes")
    })?;
    let scale = (q.dim(D::Minus1)? as f64).powf(-0.5);
    // candle multiplies by a transposed right side only if its leading dimensions are few, so they
    // become one.
    let flat = |x: &Tensor| x.flatten_to(x.rank() - 3);
    let with_last = |x: Tensor, last: usize| {
        let mut dims = q.dims().to_vec();
        dims[q.rank() - 1] = last;
        x.reshape(dims)
    };
    let scores = matmul(&flat(&q.affine(scale, 0.0)?)?, &flat(k)?.t()?)?;
    let scores = with_last(scores, k.dim(D::Minus2)?)?;
    let scores = match bias {
        Some(bias) => scores.broadcast_add(bias)?,
        None => scores,
    };
    PartialSoftmax::new(&scores, |weights| {
        let weighted = matmul(&flat(&dropout.apply(weights)?)?, &flat(v)?)?;
        Ok(with_last(weighted, v.dim(D::Minus1)?)?)
    })
}

/// Returns attention (.., Q, V) of Q queries by one softmax over the keys of all `parts`, which
/// have one shape. V is the width of a value. A query that sees no key gets zeros.
///
/// # Errors
/// If there is no part, or their shapes differ.
pub fn merge(parts: &[PartialSoftmax]) -> Result<Tensor> {
    PartialSoftmax::merge(parts)?.output()
}

/// Maps (B, L, H, E) to (B, H, L, E), contiguous, or back.
///
/// # Errors
/// If `x` does not have four dimensions.
pub(crate) fn by_head(x: &Tensor) -> Result<Tensor> {
    swap_axes(x)
}

/// Returns the floating-point operations of [`attend`] for heads of `width`. `pairs` is the number
/// of pairs of query and key, summed over the heads.
#[must_use]
pub fn flops(pairs: usize, width: usize) -> u64 {
    2 * 2 * pairs as u64 * width as u64
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        Mask, RngKey,
        ops::attention::testing::{meets_dense, undropped},
        rng::StreamKey,
        testing::{check_gradient, normal},
    };

    /// Returns keys cut in three parts, the middle one a single key.
    fn in_parts(q: &Tensor, k: &Tensor, v: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let length = k.dim(2)?;
        let bias = mask
            .map(|mask| mask.additive().unsqueeze(1)?.unsqueeze(1)) // (B, 1, 1, L)
            .transpose()?;
        undropped(q, |drop| {
            let parts = [(0, 2), (2, 1), (3, length - 3)]
                .into_iter()
                .map(|(start, count)| {
                    let bias = bias.as_ref().map(|bias| bias.narrow(3, start, count));
                    let part = |x: &Tensor| x.narrow(2, start, count)?.contiguous();
                    attend(q, &part(k)?, &part(v)?, bias.transpose()?.as_ref(), drop)
                })
                .collect::<Result<Vec<_>>>()?;
            merge(&parts)
        })
    }

    #[test]
    fn merged_parts_are_one_softmax() {
        meets_dense("parts", 7, 2, in_parts, |_, _, _| true);
    }

    #[test]
    fn gradients_agree_with_differences() {
        let shape: &[usize] = &[2, 2, 5, 3];
        let valid = [[1.0, 0.0, 0.0, 1.0, 1.0], [0.0f64; 5]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        for mask in [None, Some(&mask)] {
            check_gradient("parts", &[shape, shape, shape], |inputs| {
                in_parts(&inputs[0], &inputs[1], &inputs[2], mask)
            });
        }
    }

    #[test]
    fn dropped_weights_are_an_examples_own_and_keep_the_mean() {
        let (q, k) = (normal("q", &[4, 2, 9, 3]), normal("k", &[4, 2, 9, 3]));
        let v = Tensor::ones((4, 2, 9, 1), q.dtype(), q.device()).unwrap();
        let run = |rows: std::ops::Range<usize>, step| -> Vec<f64> {
            let rng = RngKey::new(5, step, rows.start as u64);
            let stream = rng.per_example(StreamKey::new("drop"));
            let part = |x: &Tensor| x.narrow(0, rows.start, rows.len()).unwrap();
            let drop = WeightDropout::new(Some((stream, 0.25)), rows.len());
            let part = attend(&part(&q), &part(&k), &part(&v), None, drop).unwrap();
            let y = merge(&[part]).unwrap();
            y.flatten_all().unwrap().to_vec1().unwrap()
        };
        assert_eq!(run(0..4, 0)[2 * 18..], run(2..4, 0));
        let values: Vec<f64> = (0..50).flat_map(|step| run(0..4, step)).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        // 3,600 sums of about 9 weights, each with a relative deviation of 1/√3: a standard error
        // of about 0.004.
        assert!((mean - 1.0).abs() < 0.02, "{mean}");
    }
}
