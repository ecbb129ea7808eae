//! The linear recurrence h_t = a_t h_{t-1} + x_t along a sequence, element by element.
//!
//! It is the common part of linear recurrent units (LRU, arXiv 2303.06349), S5 (arXiv 2208.04933)
//! and selective state spaces (Mamba, arXiv 2312.00752): states shared by all channels, or
//! coefficients that depend on the token. For states of each channel's own, see
//! [`super::state_space()`].

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::Tensor;

use super::{Complex, check};
use crate::cuda::Gpu;
use crate::ops::supports;
use crate::{Packing, Result};

/// Options of [`scan`]: the kind of its numbers, and its direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanOptions {
    /// True if numbers are complex. The first half of the last axis then has their real parts, and
    /// the second half their imaginary parts.
    pub complex: bool,
    /// True if the scan runs from the last position to the first: h_t = a_t h_{t+1} + x_t in place
    /// of h_t = a_t h_{t-1} + x_t.
    pub reverse: bool,
}

/// Returns all states h (B, L, W) of `h_t = a_t h_{t-1} + x_t` from h_0 = 0, for x (B, L, W) with W
/// columns. `a` is (B, L, W), with a coefficient for each position, or (W) for coefficients that
/// all positions share.
///
/// Complex numbers lie in W as [`ScanOptions`] says. So one product with a matrix makes x, and
/// another one reads h: y = Re(C h) = h \[Re C | -Im C\]ᵀ.
///
/// For f32 on the CPU and on a GPU it takes O(B L W) time, and keeps only h. For f64 it takes ⌈log₂
/// L⌉ passes of doubling reach, which keep a tensor of that size each.
///
/// # Errors
/// If shapes do not fit.
pub fn scan(x: &Tensor, a: &Tensor, options: ScanOptions) -> Result<Tensor> {
    scan_packed(x, a, options, None)
}

/// Returns the states (1, T, W) of the [`scan`] of packed sequences x (1, T, W), with T valid
/// positions and W columns. Each sequence starts from zeros. `a` is (1, T, W) or (W). Without
/// `packing`, x is (B, L, W) and the result is that of [`scan`].
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn scan_packed(
    x: &Tensor,
    a: &Tensor,
    options: ScanOptions,
    packing: Option<&Packing>,
) -> Result<Tensor> {
    let ScanOptions { complex, reverse } = options;
    let (_, _, width) = x.dims3()?;
    let fits = (a.dims() == x.dims() || a.dims() == [width]) && (!complex || width % 2 == 0);
    check(fits, "scan", || {
        let numbers = if complex { "complex" } else { "real" };
        let (x, a) = (x.shape(), a.shape());
        format!("x {x:?} and coefficients {a:?} do not fit ({numbers} numbers)")
    })?;
    if supports(x) {
        let options = cpu::Scan {
            complex,
            reverse,
            offsets: packing.map(|packing| packing.offsets().clone()),
        };
        return Ok(cpu::scan(x, a, options)?);
    }
    let Some(packing) = packing else {
        return match Gpu::of(x).filter(|_| cuda::takes(x)) {
            Some(gpu) => Ok(cuda::scan(&gpu, x, a, options)?),
            None => composed(x, a, options),
        };
    };
    let coefficients = match a.rank() {
        1 => a.clone(),
        _ => packing.unpack(a)?,
    };
    packing.pack(&scan(&packing.unpack(x)?, &coefficients, options)?)
}

/// Returns the scan by doubling: after a pass with `reach` r, h_t is the sum over the last 2r
/// positions (Hillis and Steele, 1986).
pub(super) fn composed(x: &Tensor, a: &Tensor, options: ScanOptions) -> Result<Tensor> {
    let product = |a: &Tensor, b: &Tensor| -> Result<Tensor> {
        match options.complex {
            true => Complex::from_planes(a)?
                .mul(&Complex::from_planes(b)?)?
                .planes(),
            false => Ok(a.broadcast_mul(b)?),
        }
    };
    let varies = a.rank() == 3;
    let mut a = match varies {
        true => a.clone(),
        false => a.reshape((1, 1, a.elem_count()))?,
    };
    let (mut h, mut reach) = (x.clone(), 1);
    // One pass at least, so that a has a gradient, zeros, even for a single position.
    while reach < x.dim(1)?.max(2) {
        h = (&h + product(&a, &shift(&h, reach, options.reverse)?)?)?;
        a = match varies {
            true => product(&a, &shift(&a, reach, options.reverse)?)?,
            false => product(&a, &a)?,
        };
        reach *= 2;
    }
    Ok(h)
}

/// Returns each position's predecessor at distance `by` (its successor if `reverse`), zeros where
/// there is none.
pub(super) fn shift(x: &Tensor, by: usize, reverse: bool) -> Result<Tensor> {
    let length = x.dim(1)?;
    Ok(match reverse {
        true => x.pad_with_zeros(1, 0, by)?.narrow(1, by, length)?,
        false => x.pad_with_zeros(1, by, 0)?.narrow(1, 0, length)?,
    })
}
