//! State spaces whose steps and projections depend on the token, as in Mamba (arXiv 2312.00752).

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::check;
use super::scan::{ScanOptions, composed as scan};
use crate::Result;
use crate::cuda::Gpu;
use crate::ops::supports;

/// Positions per chunk in the composed form, which keeps all states of a chunk.
const CHUNK: usize = 64;

/// Returns y (B, L, D) of the state space of Mamba (arXiv:2312.00752), which has N states in each
/// channel d: `h_tn = e^(δ_td a_dn) h_(t-1)n + δ_td b_tn x_td`,
/// `y_td = Σ_n c_tn h_tn + skip_d x_td`. States are zeros at first.
///
/// x and the steps `delta` δ are (B, L, D). `a` is (D, N), and negative for states that fade.
/// `projections` (B, L, 2 N) has b and then c, which all channels share. `skip` is (D). A position
/// with δ = 0 leaves every state as it was.
///
/// It takes O(B L D N) time in one pass. For the backward pass a CPU keeps N/32 states for each
/// position and channel, and a GPU N/16. For f64 all states of a chunk are in memory at once, and
/// with gradients those of all chunks, O(B L D N).
///
/// # Errors
/// If shapes do not fit.
pub fn selective_scan(
    x: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    projections: &Tensor,
    skip: &Tensor,
) -> Result<Tensor> {
    let ((batch, length, width), (channels, modes)) = (x.dims3()?, a.dims2()?);
    let fits = channels == width
        && modes > 0
        && delta.dims() == x.dims()
        && projections.dims() == [batch, length, 2 * modes]
        && skip.dims() == [width];
    check(fits, "selective scan", || {
        let (x, delta, a) = (x.shape(), delta.shape(), a.shape());
        let (projections, skip) = (projections.shape(), skip.shape());
        format!(
            "x {x:?}, steps {delta:?}, a {a:?}, projections {projections:?} and skip {skip:?} do not fit"
        )
    })?;
    if supports(x) {
        let parameters = Tensor::cat(&[&a.t()?, &skip.unsqueeze(0)?], 0)?;
        return Ok(cpu::selective_scan(x, delta, projections, &parameters)?);
    }
    match Gpu::of(x).filter(|_| cuda::takes(x)) {
        Some(gpu) => Ok(cuda::selective_scan(
            &gpu,
            [x, delta, a, projections, skip],
        )?),
        None => composed(x, delta, a, projections, skip),
    }
}

/// Computes [`selective_scan`] by chunks, with all their states in memory.
fn composed(
    x: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    projections: &Tensor,
    skip: &Tensor,
) -> Result<Tensor> {
    let ((batch, length, width), modes) = (x.dims3()?, a.dim(1)?);
    let mut state: Option<Tensor> = None; // (B, 1, D N)
    let mut all = Vec::new();
    for start in (0..length).step_by(CHUNK) {
        let rows = CHUNK.min(length - start);
        let part = |x: &Tensor| x.narrow(1, start, rows);
        let (delta, projections) = (part(delta)?, part(projections)?);
        let flat = |x: Tensor| x.reshape((batch, rows, width * modes));
        let decay = flat(delta.unsqueeze(3)?.broadcast_mul(a)?.exp()?)?;
        let input = (part(x)? * delta)?.unsqueeze(3)?;
        let row = |start| projections.narrow(2, start, modes)?.unsqueeze(2); // (B, rows, 1, N)
        let input = flat(input.broadcast_mul(&row(0)?)?)?;
        let input = match &state {
            Some(state) => {
                let first = (decay.narrow(1, 0, 1)? * state)?;
                (input + first.pad_with_zeros(1, 0, rows - 1)?)?
            }
            None => input,
        };
        let h = scan(&input, &decay, ScanOptions::default())?;
        state = Some(h.narrow(1, rows - 1, 1)?);
        let h = h.reshape((batch, rows, width, modes))?;
        all.push(h.broadcast_mul(&row(modes)?)?.sum(D::Minus1)?);
    }
    let skipped = x.broadcast_mul(skip)?;
    match all.is_empty() {
        true => Ok(skipped),
        false => Ok((Tensor::cat(&all, 1)? + skipped)?),
    }
}
