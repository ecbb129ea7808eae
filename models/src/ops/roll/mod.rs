//! Tracks of channels rolled along rings of positions, by which positions of ChordMixer (arXiv
//! 2206.05852) exchange information.

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::check;
use crate::Result;
use crate::ops::supports;

pub use self::cpu::{Rings, Track};

impl Rings {
    /// Returns one ring for each of `batch` rows of `length` positions. It is made of the positions
    /// where `valid` (B, L) is not 0, or of all positions without `valid`.
    ///
    /// # Errors
    /// If `valid` has another shape, or cannot be read from its device.
    pub fn new(batch: usize, length: usize, valid: Option<&Tensor>) -> Result<Arc<Self>> {
        let Some(valid) = valid else {
            return Ok(Arc::new(Self::of(batch, length, None)));
        };
        check(valid.dims() == [batch, length], "rings", || {
            format!("a mask {:?} for ({batch}, {length})", valid.shape())
        })?;
        let valid = valid.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        Ok(Arc::new(Self::of(batch, length, Some(&valid))))
    }
}

/// Returns y (B, L, D) from `residual` r and x, both (B, L, D): `y_tc = r_tc + x_sc`. Position s is
/// as many places after t in its ring as the shift of the track of channel c. It is t itself if t
/// is in no ring. This is PyTorch's `roll` by -shift, track by track, as in ChordMixer
/// (arXiv:2206.05852).
///
/// `tracks` lie side by side and cover all channels. It takes one pass, and keeps no operand.
///
/// # Errors
/// If shapes do not fit.
pub fn add_rolled(
    residual: &Tensor,
    x: &Tensor,
    tracks: &Arc<[Track]>,
    rings: &Arc<Rings>,
) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    let mut end = 0;
    let covered = tracks.iter().all(|track| {
        let follows = track.start == end;
        end += track.width;
        follows
    });
    let fits = covered && end == width && (rings.batch, rings.length) == (batch, length);
    check(fits && residual.dims() == x.dims(), "add_rolled", || {
        let (residual, x, of) = (residual.shape(), x.shape(), (rings.batch, rings.length));
        format!(
            "residual {residual:?}, x {x:?}, {end} channels in tracks and rings of {of:?} do not fit"
        )
    })?;
    if supports(x) {
        return Ok(cpu::add_rolled(residual, x, tracks, rings)?);
    }
    let rows = x.reshape((batch * length, width))?;
    let track = |track: &Track| -> Result<Tensor> {
        let mut from = Vec::with_capacity(batch * length);
        for row in 0..batch {
            let steps = rings.steps(row, track.shift, false);
            let ahead = |position| (row * length + rings.ahead(row, position, steps)) as u32;
            from.extend((0..length).map(ahead));
        }
        let from = Tensor::from_vec(from, batch * length, x.device())?;
        let x = rows.narrow(1, track.start, track.width)?.contiguous()?;
        Ok(x.index_select(&from, 0)?)
    };
    let rolled: Vec<Tensor> = tracks.iter().map(track).collect::<Result<_>>()?;
    Ok((residual + Tensor::cat(&rolled, 1)?.reshape(x.dims())?)?)
}
