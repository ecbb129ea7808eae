//! The computations of the benchmark's code of 2021 (google-research/long-range-arena) that differ
//! from a model's paper: one file per model, each with its entry for the model's list of variants.
//! Test cases made with that code are in `models/tests/parity/tay2021-*`.

pub(super) mod bigbird;
pub(super) mod linear;
pub(super) mod linformer;
pub(super) mod local;
pub(super) mod longformer;
pub(super) mod performer;
pub(super) mod reformer;
pub(super) mod sinkhorn;
pub(super) mod sparse;
pub(super) mod synthesizer;

use crate::prelude::*;

/// Subtracted from scores of hidden pairs: so large that the score added to it is lost, in f32
/// (where the 2021 code's 1e10 is enough) and in f64.
const HIDDEN: f64 = 1e20;

/// Returns softmax attention of queries (B, H, Q, E) on keys and values (B, H, K, E), hiding pairs
/// as the 2021 code does. Where `allowed` (B, 1, Q, K) is 0, and not 1, a number is subtracted in
/// which the score drowns. So a query all of whose pairs are hidden has equal scores and uniform
/// weights, through which the gradient of the softmax flows nevertheless. `dropout` is of weights,
/// for a batch of `examples`, of which B is a multiple.
fn attend(
    [q, k, v]: [&Tensor; 3],
    allowed: Option<&Tensor>,
    dropout: &Dropout,
    pass: &Pass,
    examples: usize,
) -> Result<Tensor> {
    let scale = (q.dim(D::Minus1)? as f64).powf(-0.5);
    let scores = matmul(&q.affine(scale, 0.0)?, &k.t()?)?; // (B, H, Q, K)
    let scores = match allowed {
        Some(allowed) => scores.broadcast_add(&allowed.affine(HIDDEN, -HIDDEN)?)?,
        None => scores,
    };
    let weights = softmax::masked(&scores, None)?;
    let kept = dropout.forward(&weights.reshape((examples, ()))?, pass)?;
    matmul(&kept.reshape(weights.dims())?, v)
}
