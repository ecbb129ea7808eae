//! Attention by a kernel that is a product of features, in time linear in the length.
//!     y_i = Σ_j φ(q_i)·φ(k_j) v_j / Σ_j φ(q_i)·φ(k_j) = φ(q_i) S / (φ(q_i)·z),  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j)

use candle_core::{D, Tensor};

use super::{activation, exact_matmul, linear, matmul};
pub use crate::kernels::FeatureMap;
use crate::{
    Mask, Result,
    kernels::{self, LinearAttentionOptions},
};

/// A guard for denominators that have none in the paper: it changes nothing but 0 / 0, which becomes 0.
/// Far from the ends of f32's range, so that gradients over it are finite.
pub const LEAST: f64 = 1e-30;

/// Queries (B, Lq, H, M) and keys (B, L, H, M), or of the width that `map` takes, and values (B, L, H, E) to (B, Lq, H, E); φ is `map`.
///
/// Features must not be negative. Padded keys are left out of both sums; their features must be finite.
/// `guard` is added to the denominator, so that a sequence with no real key gives zeros.
///
/// # Errors
/// If a tensor operation fails.
pub fn attend(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    map: FeatureMap,
    guard: f64,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    if kernels::supports(v) {
        let options = LinearAttentionOptions {
            heads: v.dim(2)?,
            map,
            guard,
            mask: mask.map(|mask| mask.valid().clone()),
        };
        let (batch, queries, heads, width) = (q.dim(0)?, q.dim(1)?, v.dim(2)?, v.dim(3)?);
        let [q, k, v] = [q, k, v].map(|x| x.flatten_from(2));
        let y = kernels::linear_attention(&q?, &k?, &v?, &options)?;
        return Ok(y.reshape((batch, queries, heads, width))?);
    }
    let heads = |x: &Tensor| x.transpose(1, 2)?.contiguous(); // (B, H, L, ..)
    let [q, k] = features(&map, q, k, mask)?;
    let (q, k, v) = (heads(&q)?, heads(&k)?, heads(v)?);
    let (batch, heads, length, _) = v.dims4()?;
    // Sums over positions are products with a row of ones, which is much faster than candle's reductions.
    let (v, ones) = match mask {
        Some(mask) => {
            let real = mask.valid();
            let column = real.reshape((batch, 1, length, 1))?;
            let row = real.reshape((batch, 1, 1, length))?;
            (v.broadcast_mul(&column)?, row)
        }
        None => {
            let ones = Tensor::ones((1, 1, 1, length), v.dtype(), v.device())?;
            (v, ones)
        }
    };
    let ones = ones.broadcast_as((batch, heads, 1, length))?.contiguous()?;
    let sums = matmul(&k.t()?, &v)?; // S (B, H, M, E)
    let totals = exact_matmul(&ones, &k)?; // z (B, H, 1, M)
    let weights = matmul(&q, &totals.t()?)?; // (B, H, L, 1)
    let scale = weights.affine(1.0, guard)?.recip()?;
    let y = matmul(&q, &sums)?.broadcast_mul(&scale)?; // (B, H, L, E)
    Ok(y.transpose(1, 2)?.contiguous()?)
}

/// The same of a sequence on itself, of queries, keys and values side by side (B, L, 3 H E); (B, L, H E).
///
/// # Errors
/// If a tensor operation fails.
pub fn attend_packed(
    qkv: &Tensor,
    heads: usize,
    map: FeatureMap,
    guard: f64,
    mask: Option<&Mask>,
) -> Result<Tensor> {
    // The kernel for packed projections leaves padded queries out.
    let counted = mask.is_some_and(Mask::is_counted);
    if kernels::supports(qkv) && !counted {
        let options = LinearAttentionOptions {
            heads,
            map,
            guard,
            mask: mask.map(|mask| mask.valid().clone()),
        };
        return Ok(kernels::linear_attention_packed(qkv, &options)?);
    }
    let (batch, length, row) = qkv.dims3()?;
    let part = |index: usize| -> Result<Tensor> {
        let part = qkv.narrow(2, index * (row / 3), row / 3)?.contiguous()?;
        Ok(part.reshape((batch, length, heads, ()))?)
    };
    let y = attend(&part(0)?, &part(1)?, &part(2)?, map, guard, mask)?;
    Ok(y.flatten_from(2)?)
}

/// Features of queries and of keys, each (B, L, H, M).
fn features(map: &FeatureMap, q: &Tensor, k: &Tensor, mask: Option<&Mask>) -> Result<[Tensor; 2]> {
    Ok(match map {
        FeatureMap::Given => [q.clone(), k.clone()],
        FeatureMap::EluPlusOne => [activation::elu_plus_one(q)?, activation::elu_plus_one(k)?],
        FeatureMap::Relu { floor } => [activation::relu(q, *floor)?, activation::relu(k, *floor)?],
        FeatureMap::Favor {
            directions,
            epsilon,
        } => {
            let directions = directions.detach();
            let project = |x: &Tensor| linear(x, &directions, None);
            let (q_projected, mut k_projected) = (project(q)?, project(k)?);
            let mut k = k.clone();
            // Shifts are constants (they cancel but for ε), so no gradient has to pass through the maxima.
            let q_shift = q_projected.detach().max_keepdim(D::Minus1)?; // (B, L, H, 1)
            let k_largest = k_projected.detach().max_keepdim(D::Minus1)?; // (B, L, H, 1)
            let k_shift = match mask {
                Some(mask) => {
                    let (batch, length, _, _) = k.dims4()?;
                    let column = |x: &Tensor| x.reshape((batch, length, 1, 1));
                    let real = column(mask.valid())?;
                    let any = mask.has_valid().reshape((batch, 1, 1, 1))?;
                    let shift = k_largest.broadcast_add(&column(mask.additive())?)?;
                    let shift = shift.max_keepdim(1)?.broadcast_mul(&any)?; // (B, 1, H, 1)
                    // A padded key is a zero that projects to the shift: whatever it was, its features are 1 + ε.
                    k = k.broadcast_mul(&real)?;
                    let padded = real.affine(-1.0, 1.0)?.broadcast_mul(&shift)?; // (B, L, H, 1)
                    k_projected = k_projected.broadcast_mul(&real)?.broadcast_add(&padded)?;
                    shift
                }
                None => k_largest.max_keepdim(1)?,
            };
            let epsilon = f64::from(*epsilon);
            [
                (exponential(&q_projected, q, &q_shift)? + epsilon)?,
                (exponential(&k_projected, &k, &k_shift)? + epsilon)?,
            ]
        }
    })
}

/// exp(w·x' - |x'|²/2 - shift) with x' = x / E^¼, (B, L, H, M).
pub(crate) fn exponential(projected: &Tensor, x: &Tensor, shift: &Tensor) -> Result<Tensor> {
    let scale = (x.dim(D::Minus1)? as f64).powf(-0.5) / 2.0;
    let half = x.sqr()?.sum_keepdim(D::Minus1)?.affine(scale, 0.0)?; // (B, L, H, 1)
    let exponent = projected.broadcast_sub(&half.broadcast_add(shift)?)?;
    Ok(exponent.exp()?)
}

/// Operations of [`attend`] for one sequence, all heads together: `features` per head, values `width` wide.
#[must_use]
pub fn flops(length: usize, heads: usize, features: usize, width: usize) -> u64 {
    let products = width + 1; // of S and z with features of queries
    2 * (length * heads * features * products) as u64
        + flops_of_keys(length, heads, features, width)
}

/// Those of `count` keys: what S and z are sums of.
#[must_use]
pub fn flops_of_keys(count: usize, heads: usize, features: usize, width: usize) -> u64 {
    2 * (count * heads * features * (width + 1)) as u64
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::testing::{check_gradient, normal};

    /// The shift shows where ε is large: with the largest w·k, though negative, as in the authors' code.
    #[test]
    fn keys_are_shifted_by_the_largest_projection_of_real_keys() {
        let directions = [[0.5, 1.0], [2.0, 0.25], [1.0, 1.0f64]];
        let rows = [[-1.0, -2.0], [-0.5, -1.5], [-3.0, -0.25], [4.0, 4.0]];
        let epsilon = 0.25f64;
        let dot = |a: &[f64; 2], b: &[f64; 2]| a[0] * b[0] + a[1] * b[1];
        let half = |x: &[f64; 2]| dot(x, x) * 2f64.powf(-0.5) / 2.0;
        let features = |x: &[f64; 2], shift: f64| -> Vec<f64> {
            let feature = |w| (dot(w, x) - half(x) - shift).exp() + epsilon;
            directions.iter().map(feature).collect()
        };
        let largest = |rows: &[[f64; 2]]| {
            let all = rows
                .iter()
                .flat_map(|x| directions.iter().map(move |w| dot(w, x)));
            all.fold(f64::NEG_INFINITY, f64::max)
        };
        for (count, masked) in [(3, false), (3, true)] {
            let length = if masked { 4 } else { count };
            let keys: Vec<Vec<f64>> = rows[..count]
                .iter()
                .map(|x| features(x, largest(&rows[..count])))
                .collect();
            let mut wanted = Vec::new();
            for x in &rows[..count] {
                let query = features(x, largest(&[*x]));
                let weight = |key: &Vec<f64>| query.iter().zip(key).map(|(a, b)| a * b).sum();
                let weights: Vec<f64> = keys.iter().map(weight).collect();
                let total: f64 = weights.iter().sum();
                let pairs = weights.iter().zip(&rows);
                wanted.push(pairs.map(|(weight, v)| weight * v[0]).sum::<f64>() / total);
            }
            for dtype in [DType::F32, DType::F64] {
                let tensor = |rows: &[[f64; 2]]| {
                    let shape = (rows.len(), 2);
                    let rows = Tensor::from_vec(rows.concat(), shape, &Device::Cpu).unwrap();
                    rows.to_dtype(dtype).unwrap()
                };
                let x = tensor(&rows[..length]).reshape((1, length, 1, 2)).unwrap();
                let real: Vec<f32> = (0..length)
                    .map(|i| f32::from(u8::from(i < count)))
                    .collect();
                let real = Tensor::from_vec(real, (1, length), &Device::Cpu).unwrap();
                let mask = Mask::new(&real.to_dtype(dtype).unwrap()).unwrap();
                let map = FeatureMap::Favor {
                    directions: tensor(&directions),
                    epsilon: epsilon as f32,
                };
                let mask = masked.then_some(&mask);
                let y = attend(&x, &x, &x, map, LEAST, mask).unwrap();
                let y = y
                    .to_dtype(DType::F64)
                    .unwrap()
                    .reshape((length, 2))
                    .unwrap();
                let y: Vec<Vec<f64>> = y.to_vec2().unwrap();
                for (found, wanted) in y.iter().zip(&wanted) {
                    assert!(
                        (found[0] - wanted).abs() < 1e-5,
                        "{dtype:?} {masked}: {found:?} {wanted}"
                    );
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let real = [[1.0, 1.0, 0.0], [0.0, 0.0, 0.0f64]];
        let mask = Mask::new(&Tensor::new(&real, &Device::Cpu).unwrap()).unwrap();
        for mask in [None, Some(&mask)] {
            // (B, L, H, ..)
            let shapes: [&[usize]; 3] = [&[2, 3, 2, 4], &[2, 3, 2, 4], &[2, 3, 2, 2]];
            check_gradient("kernel attention", &shapes, |inputs| {
                attend(
                    &inputs[0],
                    &inputs[1],
                    &inputs[2],
                    FeatureMap::EluPlusOne,
                    1e-6,
                    mask,
                )
            });
        }
    }
    /// On the kernel's numbers, float32, and on those of the composed operations.
    #[test]
    fn a_sequence_without_a_real_key_gives_zeros_and_finite_gradients_under_the_least_guard() {
        let mask = Tensor::new(&[[1.0, 0.0, 1.0], [0.0, 0.0, 0.0f64]], &Device::Cpu).unwrap();
        for dtype in [DType::F32, DType::F64] {
            let mask = Mask::new(&mask.to_dtype(dtype).unwrap()).unwrap();
            let [q, k, v] = ["q", "k", "v"].map(|name| {
                let x = normal(name, &[2, 3, 2, 4]).to_dtype(dtype).unwrap();
                Var::from_tensor(&(x * 30.0).unwrap()).unwrap()
            });
            let map = FeatureMap::Relu { floor: 1e-3 };
            let y = attend(&q, &k, &v, map, LEAST, Some(&mask)).unwrap();
            let without = y.get(1).unwrap().abs().unwrap().sum_all().unwrap();
            assert_eq!(
                without
                    .to_dtype(DType::F64)
                    .unwrap()
                    .to_vec0::<f64>()
                    .unwrap(),
                0.0
            );
            let gradients = (y * 1e3).unwrap().sum_all().unwrap().backward().unwrap();
            for var in [&q, &k, &v] {
                let gradient = gradients
                    .get(var)
                    .unwrap()
                    .sqr()
                    .unwrap()
                    .sum_all()
                    .unwrap();
                let gradient = gradient.to_dtype(DType::F64).unwrap();
                assert!(gradient.to_vec0::<f64>().unwrap().is_finite(), "{dtype:?}");
            }
        }
    }
}
