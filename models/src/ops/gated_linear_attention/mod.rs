//! Linear attention with decays: a matrix of states that fades, and that keys and values are added
//! to.
//!
//! ```text
//! S_t = diag(a_t) S_(t-1) + k_t v_tᵀ,  y_t = S_tᵀ q_t
//! ```
//!
//! It is the common part of RetNet (arXiv 2307.08621), GLA (2312.06635), Mamba-2 (2405.21060) and
//! HGRN2 (2404.07904). With the delta rule (DeltaNet, 2406.06484; Gated DeltaNet, 2412.06464) a key
//! reads what the state holds for it first, and writes the difference:
//!
//! ```text
//! S_t = diag(a_t) S_(t-1) + β_t k_t (v_t - (diag(a_t) S_(t-1))ᵀ k_t)ᵀ
//! ```
//!
//! Both forms take 16 positions at a time. Within a chunk, weights of pairs of positions are
//! q_i·(k_j ⊙ a_(j+1) ⊙ .. ⊙ a_i); the state carries all that was before. No decay is divided by.

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Device, Tensor};

use super::scan::shift;
use super::{check, exact_matmul, flip};
use crate::cuda::Gpu;
use crate::ops::supports;
use crate::{Packing, Result};

/// Positions of a chunk.
const CHUNK: usize = 16;

/// Number added to the exponent of a weight that is left out. Finite in every float type.
const LEFT_OUT: f64 = -1e4;
/// The least logarithm of a decay that the composed form tells from less: e^-100 is 0 in f32.
const LEAST_LOG_DECAY: f64 = -100.0;

const NAME: &str = "gated linear attention";

/// Options of [`gated_linear_attention`]: all that is not queries q, keys k and values v. Its
/// states S are matrices (K, V) in each of H heads, for keys of width K and values of width V. The
/// defaults compute S_t = S_(t-1) + k_t v_tᵀ.
#[derive(Clone, Copy, Default)]
pub struct GatedLinearAttentionOptions<'a> {
    /// Logarithms of the decays a, not above 0. They are (H) for each head, (B, L, H) for each
    /// position, or (B, L, H, K) for each position and key channel. `None` for a = 1.
    pub log_decay: Option<&'a Tensor>,
    /// Rates β (B, L, H) of the delta rule: a key adds β times the difference between its value and
    /// what the states hold for it. `None` adds the value itself.
    pub delta: Option<&'a Tensor>,
    /// True if states run from the last position to the first: S_t = diag(a_t) S_(t+1) + k_t v_tᵀ
    /// for decays a.
    pub reverse: bool,
    /// True if a query reads the states before its position: y_t = S_(t-1)ᵀ q_t in place of S_tᵀ
    /// q_t.
    pub exclusive: bool,
    /// Weight u (H, K) of a position's own value, for H heads and keys of width K. It adds ((u ⊙
    /// q_t)·k_t) v_t to the output. `None` adds nothing.
    pub bonus: Option<&'a Tensor>,
    /// Least divisor of the output y_t. The divisor is max(|n_t·q_t|, this number), for the state
    /// n_t = a_t ⊙ n_(t-1) + k_t of the keys alone. With a `bonus`, (u ⊙ q_t)·k_t is added to
    /// n_t·q_t. `None` divides by nothing.
    pub normalise: Option<f64>,
    /// Packing of the sequences, if the operands are (1, T, H, ..) with T valid positions in all.
    /// `None` if they are not packed.
    pub packing: Option<&'a Packing>,
}

/// Returns y (B, L, H, V) of queries q and keys k, both (B, L, H, K), and values v (B, L, H, V):
/// `S_t = diag(a_t) S_(t-1) + k_t v_tᵀ`, `y_t = S_tᵀ q_t` in each head. K is the width of a key and
/// V that of a value. The states S (K, V) are zeros at first. The decays a, the delta rule and
/// other forms are set by [`GatedLinearAttentionOptions`].
///
/// A position with k = 0 and a = 1 leaves the states as they were. A sequence and head take O(L (K
/// V + C (K + V))) time, with chunks of C = 16 positions. For the backward pass, a CPU keeps the
/// states of every fourth chunk. A GPU keeps every 1, 2, 4 or more, so that states take no more
/// memory than the operands. Elsewhere, and for more than 128 keys on GPUs, the states of all
/// chunks are kept.
///
/// # Errors
/// If shapes do not fit.
pub fn gated_linear_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &GatedLinearAttentionOptions,
) -> Result<Tensor> {
    if let Some(floor) = options.normalise {
        let options = GatedLinearAttentionOptions {
            normalise: None,
            ..*options
        };
        let y = gated_linear_attention(q, k, &with_ones(v)?, &options)?;
        return divide_by_last(&y, floor);
    }
    if let Some(bonus) = options.bonus {
        let options = GatedLinearAttentionOptions {
            bonus: None,
            ..*options
        };
        let y = gated_linear_attention(q, k, v, &options)?;
        check(bonus.dims() == &k.dims()[2..], NAME, || {
            format!("a bonus of {:?} for keys {:?}", bonus.shape(), k.shape())
        })?;
        let own = (q * k)?.broadcast_mul(bonus)?.sum_keepdim(D::Minus1)?;
        return Ok((y + v.broadcast_mul(&own)?)?);
    }
    let (batch, length, heads, _) = q.dims4()?;
    // The same decay at every position.
    let spread = match options.log_decay {
        Some(decay) if decay.dims() == [heads] => {
            Some(decay.broadcast_as((batch, length, heads))?.contiguous()?)
        }
        _ => None,
    };
    let log_decay = spread.as_ref().or(options.log_decay);
    check_shapes(q, k, v, log_decay, options.delta)?;
    if supports(v) {
        let op = cpu::GatedLinearAttention {
            reverse: options.reverse,
            exclusive: options.exclusive,
            offsets: options.packing.map(|packing| packing.offsets().clone()),
        };
        return Ok(cpu::gated_linear_attention(
            op,
            [q, k, v],
            log_decay,
            options.delta,
        )?);
    }
    let Some(packing) = options.packing else {
        return on_gpu_or_composed([q, k, v], log_decay, options);
    };
    let unpacked = |x: &Tensor| -> Result<Tensor> {
        let trailing = &x.dims()[2..];
        let x = packing.unpack(&x.flatten_from(2)?)?;
        let (batch, length, _) = x.dims3()?;
        Ok(x.reshape([&[batch, length], trailing].concat())?)
    };
    let [q, k, v] = [unpacked(q)?, unpacked(k)?, unpacked(v)?];
    let log_decay = log_decay.map(unpacked).transpose()?;
    let delta = options.delta.map(unpacked).transpose()?;
    let options = GatedLinearAttentionOptions {
        delta: delta.as_ref(),
        ..*options
    };
    let y = on_gpu_or_composed([&q, &k, &v], log_decay.as_ref(), &options)?;
    let (heads, values) = (y.dim(2)?, y.dim(3)?);
    let y = packing.pack(&y.flatten_from(2)?)?;
    Ok(y.reshape((1, (), heads, values))?)
}

/// Returns values (B, L, H, V) with a one behind each, (B, L, H, V + 1): its output is the sum of
/// the weights.
///
/// # Errors
/// If a tensor operation fails.
pub(crate) fn with_ones(v: &Tensor) -> Result<Tensor> {
    let (batch, length, heads, _) = v.dims4()?;
    let ones = Tensor::ones((batch, length, heads, 1), v.dtype(), v.device())?;
    Ok(Tensor::cat(&[v, &ones], 3)?)
}

/// Returns (B, L, H, V) of the outputs (B, L, H, V + 1) of values [`with_ones`]: each divided by
/// the size of the last, or by `floor` if that is more.
///
/// # Errors
/// If a tensor operation fails.
pub(crate) fn divide_by_last(y: &Tensor, floor: f64) -> Result<Tensor> {
    let values = y.dim(3)? - 1;
    let size = y.narrow(3, values, 1)?.abs()?.maximum(floor)?;
    Ok(y.narrow(3, 0, values)?.broadcast_div(&size)?)
}

/// Returns the floating-point operations of [`gated_linear_attention`] for one sequence of `length`
/// positions and all `heads`. These are products with the states and within chunks, and a
/// multiply-add is two operations. The states of a head are `keys` by `values`.
#[must_use]
pub fn flops(length: usize, heads: usize, keys: usize, values: usize) -> u64 {
    2 * (length * heads * (2 * keys * values + CHUNK * (keys + values))) as u64
}

/// Returns the floating-point operations that the delta rule adds to [`flops`].
#[must_use]
pub(crate) fn flops_of_delta(length: usize, heads: usize, keys: usize, values: usize) -> u64 {
    // Six products of a chunk's pairs make the inverse.
    let pairs = CHUNK * (keys + values + 6 * CHUNK);
    2 * (length * heads * (keys * values + pairs)) as u64
}

fn check_shapes(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    log_decay: Option<&Tensor>,
    delta: Option<&Tensor>,
) -> Result<()> {
    let (batch, length, heads, _) = q.dims4()?;
    let tokens = [batch, length, heads];
    let fits = k.dims() == q.dims()
        && v.rank() == 4
        && v.dims()[..3] == tokens
        && log_decay.is_none_or(|x| x.dims() == tokens || x.dims() == q.dims())
        && delta.is_none_or(|x| x.dims() == tokens);
    check(fits, NAME, || {
        let [q, k, v] = [q, k, v].map(Tensor::shape);
        let [log_decay, delta] = [log_decay, delta].map(|x| x.map(Tensor::shape));
        format!(
            "queries {q:?}, keys {k:?}, values {v:?}, decays {log_decay:?} and rates {delta:?} do not fit"
        )
    })
}

/// Computes attention by kernels if there are some for the operands, otherwise by tensor
/// operations.
fn on_gpu_or_composed(
    [q, k, v]: [&Tensor; 3],
    log_decay: Option<&Tensor>,
    options: &GatedLinearAttentionOptions,
) -> Result<Tensor> {
    match Gpu::of(v).filter(|_| cuda::takes(k)) {
        Some(gpu) => {
            let operands = [q, k, v];
            Ok(cuda::gated_linear_attention(
                &gpu, operands, log_decay, options,
            )?)
        }
        None => composed([q, k, v], log_decay, options),
    }
}

/// Computes attention in the direction, and at the positions, that the options say.
fn composed(
    [q, k, v]: [&Tensor; 3],
    log_decay: Option<&Tensor>,
    options: &GatedLinearAttentionOptions,
) -> Result<Tensor> {
    let in_order = |x: &Tensor| match options.reverse {
        true => flip(x),
        false => Ok(x.clone()),
    };
    let next = |x: Tensor, ahead| match options.exclusive {
        true => shift(&x, 1, ahead),
        false => Ok(x),
    };
    let [q, k, v] = [next(in_order(q)?, true)?, in_order(k)?, in_order(v)?];
    let log_decay = log_decay.map(in_order).transpose()?;
    let delta = options.delta.map(in_order).transpose()?;
    let y = forward([&q, &k, &v], log_decay.as_ref(), delta.as_ref())?;
    in_order(&next(y, false)?)
}

/// Computes attention from the first position to the last, chunk by chunk.
fn forward(
    [q, k, v]: [&Tensor; 3],
    log_decay: Option<&Tensor>,
    delta: Option<&Tensor>,
) -> Result<Tensor> {
    let heads = |x: &Tensor| -> Result<Tensor> {
        let x = if x.rank() == 3 {
            x.unsqueeze(3)?
        } else {
            x.clone()
        };
        Ok(x.transpose(1, 2)?.contiguous()?) // (B, H, L, ..)
    };
    let [q, k, v] = [heads(q)?, heads(k)?, heads(v)?];
    let log_decay = log_decay.map(heads).transpose()?;
    let log_decay = log_decay.map(|x| x.maximum(LEAST_LOG_DECAY)).transpose()?;
    let delta = delta.map(heads).transpose()?;
    let length = v.dim(2)?;
    let mut state: Option<Tensor> = None; // (B, H, K, V)
    let mut all = Vec::new();
    for start in (0..length).step_by(CHUNK) {
        let rows = CHUNK.min(length - start);
        let part = |x: &Tensor| x.narrow(2, start, rows)?.contiguous();
        let (q, k, v) = (part(&q)?, part(&k)?, part(&v)?);
        let triangle = Triangle::new(rows, &v)?;
        let decays = log_decay.as_ref().map(part).transpose()?;
        let sums = decays
            .map(|x| exact_matmul(&triangle.lower, &x))
            .transpose()?;
        let decayed = |x: &Tensor, sums: Option<Tensor>| match sums {
            Some(sums) => x.broadcast_mul(&sums.exp()?),
            None => Ok(x.clone()),
        };
        let mut v = v;
        if let Some(delta) = &delta {
            let delta = part(delta)?;
            if let Some(state) = &state {
                v = (v - exact_matmul(&decayed(&k, sums.clone())?, state)?)?;
            }
            let read = weights(&k, &k, sums.as_ref(), &triangle.strict)?;
            let inverse = triangle.inverse(&read.broadcast_mul(&delta)?)?;
            v = exact_matmul(&inverse, &v.broadcast_mul(&delta)?)?;
        }
        let scores = weights(&q, &k, sums.as_ref(), &triangle.lower)?;
        let mut y = exact_matmul(&scores, &v)?;
        let last = sums
            .as_ref()
            .map(|x| x.narrow(2, rows - 1, 1))
            .transpose()?;
        let after = match (&sums, &last) {
            (Some(sums), Some(last)) => Some(last.broadcast_sub(sums)?),
            _ => None,
        };
        let added = exact_matmul(&decayed(&k, after)?.t()?, &v)?;
        state = Some(match state {
            Some(state) => {
                y = (y + exact_matmul(&decayed(&q, sums)?, &state)?)?;
                (decayed(&state, last.map(|x| x.t()).transpose()?)? + added)?
            }
            None => added,
        });
        all.push(y);
    }
    Ok(Tensor::cat(&all, 2)?.transpose(1, 2)?.contiguous()?)
}

/// Returns the weights (B, H, C, C) of rows x and k (B, H, C, K) where `mask` (C, C) is 1, from the
/// running sums of the logarithms of decays, (B, H, C, 1) or (B, H, C, K).
fn weights(x: &Tensor, k: &Tensor, sums: Option<&Tensor>, mask: &Tensor) -> Result<Tensor> {
    let Some(sums) = sums else {
        return Ok(exact_matmul(x, &k.t()?)?.broadcast_mul(mask)?);
    };
    let left_out = mask.affine(-LEFT_OUT, LEFT_OUT)?.unsqueeze(2)?;
    let between = sums.unsqueeze(3)?.broadcast_sub(&sums.unsqueeze(2)?)?; // (B, H, C, C, ..)
    let decay = between.broadcast_add(&left_out)?.exp()?;
    match sums.dim(3)? {
        1 => Ok((exact_matmul(x, &k.t()?)? * decay.squeeze(4)?)?),
        _ => {
            let pairs = x.unsqueeze(3)?.broadcast_mul(&k.unsqueeze(2)?)?;
            Ok((pairs * decay)?.sum(D::Minus1)?)
        }
    }
}

/// Constants of a chunk of C positions, (C, C) each.
struct Triangle {
    /// 1 where the column is not after the row.
    lower: Tensor,
    /// 1 where the column is before the row.
    strict: Tensor,
    identity: Tensor,
}

impl Triangle {
    fn new(rows: usize, like: &Tensor) -> Result<Self> {
        let of = |holds: fn(usize, usize) -> bool| -> Result<Tensor> {
            let number = |at: usize| f32::from(u8::from(holds(at / rows, at % rows)));
            let numbers = Tensor::from_iter((0..rows * rows).map(number), &Device::Cpu)?;
            let square = numbers.reshape((rows, rows))?.to_dtype(like.dtype())?;
            Ok(square.to_device(like.device())?)
        };
        Ok(Self {
            lower: of(|i, j| j <= i)?,
            strict: of(|i, j| j < i)?,
            identity: of(|i, j| i == j)?,
        })
    }

    /// Returns (I + n)⁻¹ for n (B, H, C, C) with zeros on and above the diagonal, whose Cth power
    /// is 0: the product of I + m, I + m², I + m⁴ and so on for m = -n.
    fn inverse(&self, n: &Tensor) -> Result<Tensor> {
        let mut power = n.neg()?;
        let mut inverse = power.broadcast_add(&self.identity)?;
        let mut reach = 2;
        while reach < n.dim(D::Minus1)? {
            power = exact_matmul(&power, &power)?;
            inverse = (&inverse + exact_matmul(&inverse, &power)?)?;
            reach *= 2;
        }
        Ok(inverse)
    }
}
