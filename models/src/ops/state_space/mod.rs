//! Diagonal state spaces with states of each channel's own, in one pass along the sequence: S4D
//! (arXiv 2206.11893), DSS (arXiv 2203.14343), and with real modes Mega's exponential moving
//! average (arXiv 2209.10655).

pub(in crate::ops) mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use candle_core::{D, Tensor};

use super::scan::{ScanOptions, composed as scan, shift};
use super::{Complex, check};
use crate::cuda::Gpu;
use crate::ops::supports;
use crate::{Error, Result, mask::zero_padding, packing::Sequences};

/// Coefficients of [`state_space`]: N modes, each with a state of its own, for each of D channels.
#[derive(Clone, Debug)]
pub enum Modes {
    /// Real coefficients and states.
    Real {
        /// Factors a (D, N) on the N states of each of D channels, from one position to the next.
        a: Tensor,
        /// Weights c (D, N) of the N states of each of D channels in the output.
        c: Tensor,
    },
    /// Complex coefficients and states. The output is the real part. For a mode that stands for a
    /// pair of conjugates, c contains the factor 2.
    Complex {
        /// Complex factors a (D, N) on the N states of each of D channels, from one position to the
        /// next.
        a: Complex,
        /// Complex weights c (D, N) of the N states of each of D channels in the output.
        c: Complex,
    },
}

/// Options of [`state_space`]: its direction, and the influence of a position on its own output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSpaceOptions {
    /// True if states run from the last position to the first.
    pub reverse: bool,
    /// True if the output y_t reads the state h_{t-1} of the position before, or h_{t+1} with
    /// `reverse`, in place of h_t, so that a position does not see itself. The second direction of
    /// S4 does so.
    pub exclusive: bool,
}

/// Returns y (B, L, D) of x (B, L, D), each channel by itself: `h_tn = a_n h_{t-1,n} + x_t`,
/// `y_t = Re Σ_n c_n h_tn + skip x_t`. `modes` are a and c (D, N), for N states in each channel,
/// and `skip` is (D).
///
/// It is the convolution of x with the kernel K_l = Re Σ_n c_n a_nˡ, which is never in memory.
/// Applied to a unit impulse (1, L, D) it is that kernel. For two directions see
/// [`state_space_sum`].
///
/// For f32 on the CPU it takes O(B L D N) time in one pass with states in registers. For its
/// backward pass it keeps N/64 complex states for each position and channel. Beyond a dozen complex
/// modes, [`super::fft_conv`] with the impulse response is faster. On a GPU it is that convolution.
/// For f64 it is a [`super::scan()`] over D N columns, with O(B L D N log L) memory.
///
/// # Errors
/// If shapes do not fit.
pub fn state_space(
    x: &Tensor,
    modes: &Modes,
    skip: Option<&Tensor>,
    options: StateSpaceOptions,
) -> Result<Tensor> {
    state_space_sum(x, &[(modes, options)], skip, Sequences::Full)
}

/// Returns the sum (B, L, D) over `walks` of [`state_space`] of x (B, L, D), plus `skip` (D) times
/// x, in one operation. A walk is modes with a direction. The modes of all walks are real, or all
/// are complex, and their numbers are equal.
///
/// Padded positions of `sequences` count as zeros, whatever x has there. No other position sees
/// them, and they get no gradient. Their outputs are computed from the states before and behind
/// them, as at any position of zeros. A BatchNorm over padding reads them.
///
/// # Errors
/// If shapes do not fit.
pub fn state_space_sum(
    x: &Tensor,
    walks: &[(&Modes, StateSpaceOptions)],
    skip: Option<&Tensor>,
    sequences: Sequences,
) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    let coefficients: Vec<Vec<&Tensor>> = walks
        .iter()
        .map(|(modes, _)| match modes {
            Modes::Real { a, c } => vec![a, c],
            Modes::Complex { a, c } => vec![&a.re, &a.im, &c.re, &c.im],
        })
        .collect();
    let kind = coefficients.first().map_or(0, Vec::len);
    let shapes = || coefficients.iter().flatten().map(|x| x.dims());
    let modes = shapes()
        .next()
        .map_or(0, |shape| shape.iter().skip(1).product());
    let fits = modes * width * length > 0
        && coefficients.iter().all(|all| all.len() == kind)
        && shapes().all(|shape| shape == [width, modes])
        && skip.is_none_or(|skip| skip.dims() == [width])
        && match sequences {
            Sequences::Full => true,
            Sequences::Padded(mask) => mask.valid().dims() == [batch, length],
            Sequences::Packed(packing) => [batch, length] == [1, packing.rows()],
        };
    check(fits, "state space", || {
        let shapes: Vec<_> = shapes().collect();
        let skip = skip.map(Tensor::dims);
        format!(
            "x {:?}, modes {shapes:?}, skip {skip:?} and sequences do not fit",
            x.dims()
        )
    })?;
    if !supports(x) {
        if let Sequences::Packed(packing) = sequences {
            let y = state_space_sum(&packing.unpack(x)?, walks, skip, Sequences::Full)?;
            return packing.pack(&y);
        }
        let x = match sequences {
            Sequences::Padded(mask) => zero_padding(x, Some(mask))?,
            _ => x.clone(),
        };
        let y = match Gpu::of(&x) {
            Some(gpu) => cuda::state_spaces(&gpu, &x, walks)?,
            None => composed_sum(&x, walks)?,
        };
        return Ok(match skip {
            Some(skip) => (y + x.broadcast_mul(skip)?)?,
            None => y,
        });
    }
    let all = coefficients.iter().flatten();
    let mut rows: Vec<Tensor> = all.map(|x| x.t()).collect::<Result<_, _>>()?;
    rows.push(match skip {
        Some(skip) => skip.unsqueeze(0)?,
        None => Tensor::zeros((1, width), x.dtype(), x.device())?,
    });
    let walk = |(_, options): &(&Modes, StateSpaceOptions)| cpu::ScanDirection {
        reverse: options.reverse,
        exclusive: options.exclusive,
    };
    let options = cpu::StateSpace {
        modes,
        complex: kind == 4,
        walks: walks.iter().map(walk).collect(),
        rows: match sequences {
            Sequences::Full => cpu::Rows::Full,
            Sequences::Padded(mask) => cpu::Rows::Padded(mask.valid().flatten_all()?.to_vec1()?),
            Sequences::Packed(packing) => cpu::Rows::Packed(packing.offsets().clone()),
        },
    };
    cpu::state_space(x, &Tensor::cat(&rows, 0)?, options).map_err(Error::from)
}

/// Computes the sum over walks with every state in memory.
fn composed_sum(x: &Tensor, walks: &[(&Modes, StateSpaceOptions)]) -> Result<Tensor> {
    let mut sum = None;
    for (modes, options) in walks {
        let y = composed(x, modes, *options)?;
        sum = Some(match sum {
            Some(sum) => (sum + y)?,
            None => y,
        });
    }
    Ok(sum.unwrap_or_else(|| x.clone()))
}

/// Computes [`state_space`] with every state in memory.
fn composed(x: &Tensor, modes: &Modes, options: StateSpaceOptions) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    // Every channel N times: (B, L, D N).
    let repeat = |count: usize| {
        let x = x.unsqueeze(3)?;
        let x = x.broadcast_as((batch, length, width, count))?;
        Ok::<_, Error>(x.reshape((batch, length, width * count))?)
    };
    let read = |h: &Tensor, c: &Tensor| {
        let h = match options.exclusive {
            true => shift(h, 1, options.reverse)?,
            false => h.clone(),
        };
        let h = h.reshape((batch, length, width, c.dim(1)?))?;
        Ok::<_, Error>(h.broadcast_mul(c)?.sum(D::Minus1)?)
    };
    let scanned = |complex| ScanOptions {
        complex,
        reverse: options.reverse,
    };
    match modes {
        Modes::Real { a, c } => {
            let h = scan(&repeat(a.dim(1)?)?, &a.flatten_all()?, scanned(false))?;
            read(&h, c)
        }
        Modes::Complex { a, c } => {
            let x = repeat(a.re.dim(1)?)?;
            let x = Complex::new(x.clone(), x.zeros_like()?).planes()?;
            let a = Complex::new(a.re.flatten_all()?, a.im.flatten_all()?).planes()?;
            let h = Complex::from_planes(&scan(&x, &a, scanned(true))?)?;
            Ok((read(&h.re, &c.re)? - read(&h.im, &c.im)?)?)
        }
    }
}
