//! Spectra of the kernels of states whose matrix is diagonal plus one of rank 1, as in S4
//! (arXiv:2111.00396), at the roots of unity e^{-iθ}. With s = sin θ/2 and c = cos θ/2,
//!
//! ```text
//! K̂_d = e^{iθ/2} (T_CB,d - c T_CP,d T_BP / (1 + c T_PP)),  T = Σ_m v / (2is - cλ)
//! ```
//!
//! for direction d. The sum is over both numbers of each pair of conjugates, v is one of J products
//! of M modes, and λ are the M steps times eigenvalues.
//!
//! All numbers are f64, since poles lie near the imaginary axis. It takes O(F M) time a channel for
//! F roots. Only the operand is kept: the sums are computed again in the backward pass.

mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{DType, Device, Tensor};

use super::checkpoint::checkpoint;
use super::{Complex, check, exact_matmul};
use crate::Result;
use crate::cuda::Gpu;

/// Returns the spectra (H, 2 · directions, F) of the convolution kernels of S4 (arXiv:2111.00396)
/// for H channels, in 1 or 2 `directions`. Along the second axis are the real parts for all
/// directions, then the imaginary parts. F is ⌊longest/2⌋ + 1, the number of the upper half of the
/// `longest` roots of unity.
///
/// `rows` (H, 2 J + 2, M) of type f64 describe the M modes of each channel by J products v of their
/// coefficients. First come the J rows 2 Re v, then the J rows 2 Re(v λ̄), then 2 Re λ and |λ|² for
/// the eigenvalues λ times the step. The products are `C B` of each direction, then `C P` of each,
/// then `B P̄` and `P P̄`. J is 2 · directions + 2. The formula is in [the module](self).
///
/// # Errors
/// If shapes do not fit, or `rows` are not f64.
pub fn dplr_spectrum(rows: &Tensor, directions: usize, longest: usize) -> Result<Tensor> {
    let (channels, count, modes) = rows.dims3()?;
    let fits = count == 4 * directions + 6
        && matches!(directions, 1 | 2)
        && longest > 0
        && channels * modes > 0
        && rows.dtype() == DType::F64;
    check(fits, "rank-1 spectrum", || {
        format!("rows {rows:?}, {directions} directions and {longest} roots do not fit")
    })?;
    let gpu = Gpu::on(rows.device()).filter(|_| cuda::takes((channels, count, modes)));
    if let Some(gpu) = gpu {
        return Ok(cuda::dplr_spectrum(&gpu, rows, directions, longest)?);
    }
    let circle = Circle::new(longest, rows.device())?;
    let group = (TABLE / (modes * circle.sines.elem_count())).clamp(1, channels);
    let mut spectra = Vec::new();
    for start in (0..channels).step_by(group) {
        let rows = rows
            .narrow(0, start, group.min(channels - start))?
            .contiguous()?;
        let circle = circle.clone();
        spectra.push(checkpoint(&rows, move |rows| {
            circle.spectra(rows, directions)
        })?);
    }
    Ok(Tensor::cat(&spectra, 0)?)
}

/// Numbers of a table of modes and frequencies.
const TABLE: usize = 1 << 18;

/// The upper half of the roots of unity e^{-iθ}.
#[derive(Clone)]
struct Circle {
    /// s = sin θ/2, (1, 1, F).
    sines: Tensor,
    /// c = cos θ/2, (1, 1, F).
    cosines: Tensor,
}

impl Circle {
    fn new(longest: usize, device: &Device) -> Result<Self> {
        let bins = longest / 2 + 1;
        let angle = |bin: usize| std::f64::consts::PI * bin as f64 / longest as f64;
        let row = |f: fn(f64) -> f64| {
            let values: Vec<f64> = (0..bins).map(|bin| f(angle(bin))).collect();
            Tensor::from_vec(values, (1, 1, bins), device)
        };
        Ok(Self {
            sines: row(f64::sin)?,
            cosines: row(f64::cos)?,
        })
    }

    /// Returns K̂ (h, 2 · directions, F) of the rows (h, 2 J + 2, M) of some channels.
    fn spectra(&self, rows: &Tensor, directions: usize) -> Result<Tensor> {
        let (s, c) = (&self.sines, &self.cosines);
        let products = 2 * directions + 2;
        let column = |at: usize| rows.narrow(1, 2 * products + at, 1)?.transpose(1, 2); // (h, M, 1)
        let twice = s.affine(2.0, 0.0)?;
        // 1 / ((2is - cλ) (2is - cλ̄)), (h, M, F).
        let x = column(1)?
            .broadcast_mul(&c.sqr()?)?
            .broadcast_sub(&twice.sqr()?)?;
        let y = column(0)?.broadcast_mul(&(c * &twice)?)?;
        let square = (x.sqr()? + y.sqr()?)?.recip()?;
        let inverse = [(x * &square)?, (y * square)?];
        let sums = rows.narrow(1, 0, 2 * products)?.contiguous()?;
        let [re, im] = inverse.map(|part| exact_matmul(&sums, &part)); // (h, 2 J, F)
        let (re, im) = (re?, im?);
        let of_values = |x: &Tensor| x.narrow(1, 0, products)?.broadcast_mul(&twice);
        let of_products = |x: &Tensor| x.narrow(1, products, products)?.broadcast_mul(c);
        let all = Complex::new(
            (of_values(&im)? + of_products(&re)?)?.neg()?,
            (of_values(&re)? - of_products(&im)?)?,
        );
        let take = |from: usize, count: usize| -> Result<Complex> {
            let part = |x: &Tensor| x.narrow(1, from, count)?.contiguous();
            Ok(Complex::new(part(&all.re)?, part(&all.im)?))
        };
        let (cb, cp) = (take(0, directions)?, take(directions, directions)?);
        let (bp, pp) = (take(2 * directions, 1)?, take(2 * directions + 1, 1)?);
        let scaled = |z: &Complex| -> Result<Complex> {
            Ok(Complex::new(z.re.broadcast_mul(c)?, z.im.broadcast_mul(c)?))
        };
        let correction = cp.mul(&scaled(&bp)?.div(&scaled(&pp)?.affine(1.0, 1.0)?)?)?;
        let sum = Complex::new((cb.re - correction.re)?, (cb.im - correction.im)?);
        let turned = sum.mul(&Complex::new(c.clone(), s.clone()))?;
        Ok(Tensor::cat(&[turned.re, turned.im], 1)?)
    }
}
