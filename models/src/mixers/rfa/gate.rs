//! Gated sums, in chunks: products of all pairs within a chunk, a recurrence between chunks.
//!     S_t = g_t S_(t-1) + (1 - g_t) k_t v_tᵀ,  y_t = q_t S_t = Σ_{j ≤ t} exp(c_t - c_j) (1 - g_j) q_t·k_j v_j,  c_t = Σ_{u ≤ t} ln g_u
//! L length, C positions of a chunk, F features, V width of a value; time O(L·(C + F)·V + L·C·F),
//! memory O(L·C + L/C·F·V).

use crate::{
    ops::{
        ScanOptions,
        activation::{sigmoid, softplus},
        exact_matmul,
    },
    prelude::*,
};

/// C.
const CHUNK: usize = 64;

/// Returns q S of q, k (H, B, L, F) and v (H, B, L, V), as (H, B, L, V), from the first position to
/// the last or, in `reverse`, back.
///
/// g is the sigmoid of `scores` (H, B, L), and 1 where `valid` (1, B, L) is 0, so that S stays as it
/// is there.
pub(super) fn sums(
    operands: [&Tensor; 3],
    (scores, valid): (&Tensor, &Tensor),
    reverse: bool,
) -> Result<Tensor> {
    // ln g = -ln(1 + exp(-score)).
    let kept = softplus(&scores.neg()?)?.neg()?.broadcast_mul(valid)?;
    let added = sigmoid(&scores.neg()?)?.broadcast_mul(valid)?;
    if !reverse {
        return forward(operands, &kept, &added);
    }
    let length = scores.dim(2)? as u32;
    let order: Vec<u32> = (0..length).rev().collect();
    let order = Tensor::new(order, scores.device())?;
    let turned = |x: &Tensor| x.contiguous()?.index_select(&order, 2);
    let [q, k, v] = operands.map(turned);
    let y = forward([&q?, &k?, &v?], &turned(&kept)?, &turned(&added)?)?;
    Ok(turned(&y)?)
}

/// Computes the gated sums; `kept` is ln g, `added` 1 - g, each (H, B, L).
fn forward(operands: [&Tensor; 3], kept: &Tensor, added: &Tensor) -> Result<Tensor> {
    let (heads, batch, length) = kept.dims3()?;
    let chunk = CHUNK.min(length);
    let (count, rows) = (length.div_ceil(chunk), heads * batch);
    // Zeros behind the end: keys that add 0 to the sums.
    let missing = count * chunk - length;
    let chunks = |x: &Tensor| -> Result<Tensor> {
        let x = x.pad_with_zeros(2, 0, missing)?;
        Ok(x.reshape((rows * count, chunk, ()))?)
    };
    let [q, k, v] = operands.map(chunks); // (H B n, C, ·)
    let (q, v, kept) = (q?, v?, chunks(kept)?); // ln g (H B n, C, 1)
    let k = k?.broadcast_mul(&chunks(added)?)?;
    let width = v.dim(2)?;

    let before = lower(chunk, kept.device())?.to_dtype(kept.dtype())?; // (C, C)
    let sums = exact_matmul(&kept.squeeze(2)?, &before.t()?)?.unsqueeze(2)?; // c (H B n, C, 1)
    let distance = sums.broadcast_sub(&sums.t()?)?.broadcast_mul(&before)?;
    let decay = distance.exp()?.broadcast_mul(&before)?; // (H B n, C, C)
    let near = matmul(&(matmul(&q, &k.t()?)? * decay)?, &v)?; // (H B n, C, V)

    if count == 1 {
        return Ok(near.reshape((heads, batch, length, width))?);
    }

    let last = sums.narrow(1, chunk - 1, 1)?; // (H B n, 1, 1)
    let to_end = last.broadcast_sub(&sums)?.exp()?;
    let grown = matmul(&k.broadcast_mul(&to_end)?.t()?.contiguous()?, &v)?; // (H B n, F, V)
    let state = grown.dim(1)? * width;
    let grown = grown.reshape((rows, count, state))?;
    let shrink = last.exp()?.reshape((rows, count, 1))?;
    let shrink = shrink.broadcast_as((rows, count, state))?.contiguous()?;
    // A chunk begins with the state that the one before it left.
    let states = ops::scan(&grown, &shrink, ScanOptions::default())?;
    let states = states.narrow(1, 0, count - 1)?.pad_with_zeros(1, 1, 0)?;
    let states = states.reshape((rows * count, (), width))?;
    let far = matmul(&q.broadcast_mul(&sums.exp()?)?, &states)?;

    let y = add(&near, &far)?.reshape((heads, batch, count * chunk, width))?;
    Ok(y.narrow(2, 0, length)?)
}

/// Returns a matrix (C, C) with ones on and below the diagonal.
fn lower(size: usize, device: &Device) -> Result<Tensor> {
    let ones: Vec<f32> = (0..size * size)
        .map(|place| f32::from(u8::from(place % size <= place / size)))
        .collect();
    Ok(Tensor::from_vec(ones, (size, size), device)?)
}

/// Counts the operations of one head over one sequence.
pub(super) fn flops(length: usize, features: usize, width: usize) -> usize {
    let chunk = CHUNK.min(length);
    2 * length * (chunk * (features + width) + 2 * features * width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_gradient, close, normal};

    /// Computes the recurrence itself.
    fn loops([q, k, v]: [&Tensor; 3], scores: &Tensor, valid: &[f64], reverse: bool) -> Tensor {
        let (_, _, length, features) = q.dims4().unwrap();
        let width = v.dim(3).unwrap();
        let flat = |x: &Tensor| x.flatten(0, 1).unwrap().to_vec3::<f64>().unwrap();
        let (q, k, v) = (flat(q), flat(k), flat(v));
        let scores = scores.flatten(0, 1).unwrap().to_vec2::<f64>().unwrap();
        let mut all = vec![vec![vec![0.0; width]; length]; q.len()];
        for row in 0..q.len() {
            let mut state = vec![vec![0.0; width]; features];
            for step in 0..length {
                let t = if reverse { length - 1 - step } else { step };
                if valid[t] > 0.0 {
                    let g = 1.0 / (1.0 + (-scores[row][t]).exp());
                    for f in 0..features {
                        for e in 0..width {
                            state[f][e] = g * state[f][e] + (1.0 - g) * k[row][t][f] * v[row][t][e];
                        }
                    }
                }
                for e in 0..width {
                    all[row][t][e] = (0..features).map(|f| q[row][t][f] * state[f][e]).sum();
                }
            }
        }
        Tensor::new(all, &Device::Cpu).unwrap()
    }

    #[test]
    fn chunks_compute_the_recurrence_at_every_length_in_both_directions() {
        for length in [1, 2, 63, 64, 65, 150] {
            let valid: Vec<f64> = (0..length)
                .map(|t| f64::from(u8::from(t % 5 != 3)))
                .collect();
            let shape = |width: usize| [2, 1, length, width];
            let [q, k] = ["q", "k"].map(|name| normal(name, &shape(3)));
            let v = normal("v", &shape(2));
            let scores = normal("scores", &[2, 1, length]).affine(3.0, 2.0).unwrap();
            let mask = Tensor::from_vec(valid.clone(), (1, 1, length), &Device::Cpu).unwrap();
            for reverse in [false, true] {
                let actual = sums([&q, &k, &v], (&scores, &mask), reverse).unwrap();
                let expected = loops([&q, &k, &v], &scores, &valid, reverse);
                let actual = actual.flatten(0, 1).unwrap();
                close(&actual, &expected, 1e-10, &format!("{length} {reverse}"));
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = Tensor::new(&[[[1.0, 1.0, 0.0, 1.0f64]]], &Device::Cpu).unwrap();
        for reverse in [false, true] {
            let shapes: [&[usize]; 4] = [&[2, 1, 4, 3], &[2, 1, 4, 3], &[2, 1, 4, 2], &[2, 1, 4]];
            check_gradient("gated sums", &shapes, |x| {
                sums([&x[0], &x[1], &x[2]], (&x[3], &valid), reverse)
            });
        }
    }
}
