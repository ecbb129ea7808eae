//! Exact attention by its definition, in f64 and plain loops, for tests: an approximation must meet
//! it in the limit in which it is exact.

use candle_core::{Device, Tensor};

use crate::{Error, Result};

/// Returns attention (B, L, H, V) by a positive kernel κ:
/// `y_i = Σ_j κ(q_i, k_j) v_j / Σ_j κ(q_i, k_j)` over valid j. `q` and `k` are (B, L, H, E) and `v`
/// is (B, L, H, V), for H heads with keys of width E and values of width V. All are f64 in main
/// memory. `valid` is (B, L), 1 for valid keys, or absent if all are valid. A sequence without a
/// valid key gives zeros. No gradient passes, so tests take difference quotients.
///
/// # Errors
/// If shapes do not fit, or a tensor is not f64.
pub fn attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    valid: Option<&Tensor>,
    kernel: impl Fn(&[f64], &[f64]) -> f64,
) -> Result<Tensor> {
    let (batch, length, heads, _) = q.dims4()?;
    let width = v.dim(3)?;
    let fits = q.dims() == k.dims()
        && v.dims()[..3] == [batch, length, heads]
        && valid.is_none_or(|valid| valid.dims() == [batch, length]);
    if !fits {
        let shapes = [q, k, v].map(Tensor::shape);
        let valid = valid.map(Tensor::shape);
        return Err(Error::Input(format!(
            "attention: q, k and v {shapes:?} and valid {valid:?} do not fit"
        )));
    }
    let rows = |x: &Tensor| x.flatten(0, 2)?.to_vec2::<f64>();
    let (q, k, v) = (rows(q)?, rows(k)?, rows(v)?);
    let valid = valid.map(|valid| valid.to_vec2::<f64>()).transpose()?;
    let mut y = Vec::with_capacity(q.len() * width);
    for example in 0..batch {
        for i in 0..length {
            for head in 0..heads {
                let row = |position: usize| (example * length + position) * heads + head;
                let (mut total, mut sums) = (0.0, vec![0.0; width]);
                for j in 0..length {
                    if valid.as_ref().is_some_and(|valid| valid[example][j] == 0.0) {
                        continue;
                    }
                    let weight = kernel(&q[row(i)], &k[row(j)]);
                    total += weight;
                    for (sum, value) in sums.iter_mut().zip(&v[row(j)]) {
                        *sum += weight * value;
                    }
                }
                let share = |sum: &f64| if total > 0.0 { sum / total } else { 0.0 };
                y.extend(sums.iter().map(share));
            }
        }
    }
    Ok(Tensor::from_vec(
        y,
        (batch, length, heads, width),
        &Device::Cpu,
    )?)
}

/// Returns `exp(q·k / √E)` for vectors `q` and `k` of E numbers: the kernel of softmax attention.
/// The exponent is not shifted, so scores must be of ordinary size.
#[must_use]
pub fn softmax(q: &[f64], k: &[f64]) -> f64 {
    (dot(q, k) / (q.len() as f64).sqrt()).exp()
}

/// Returns `φ(q)·φ(k)` with `φ(x) = elu(x) + 1`, for vectors `q` and `k` of one width: the kernel
/// of linear attention (arXiv:2006.16236).
#[must_use]
pub fn elu_plus_one(q: &[f64], k: &[f64]) -> f64 {
    let feature = |x: &f64| if *x > 0.0 { x + 1.0 } else { x.exp() };
    q.iter().zip(k).map(|(q, k)| feature(q) * feature(k)).sum()
}

/// Returns `φ(q)·φ(k)` with `φ(x) = max(x, 0) + 0.001`, for vectors `q` and `k` of one width. It is
/// the kernel of the deterministic Performer in the benchmark's code of 2021.
#[must_use]
pub fn relu(q: &[f64], k: &[f64]) -> f64 {
    let feature = |x: &f64| x.max(0.0) + 1e-3;
    q.iter().zip(k).map(|(q, k)| feature(q) * feature(k)).sum()
}

fn dot(q: &[f64], k: &[f64]) -> f64 {
    q.iter().zip(k).map(|(q, k)| q * k).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::normal;

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let x = normal("x", &[1, 3, 1, 2]);
        let short = normal("x", &[1, 2, 1, 2]);
        let wide = normal("x", &[1, 3, 1, 3]);
        for (k, v, valid) in [
            (&short, &short, None),
            (&wide, &x, None),
            (&x, &short, None),
            (&x, &x, Some(normal("valid", &[1, 2]))),
        ] {
            assert!(attention(&x, k, v, valid.as_ref(), softmax).is_err());
        }
        assert!(attention(&x, &x, &wide, None, softmax).is_ok());
    }
}
