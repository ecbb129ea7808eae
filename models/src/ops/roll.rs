//! Tracks of channels rolled along rings of positions: what lets positions of ChordMixer (arXiv 2206.05852) exchange information.

use std::sync::Arc;

use candle_core::{DType, Tensor};

use super::check;
use crate::{Result, kernels};

pub use crate::kernels::{Rings, Track};

impl Rings {
    /// One ring for each row of a batch (B, L): of all its positions, or of those that `real` (B, L) has a number other than 0 for.
    ///
    /// # Errors
    /// If the device does not hand `real` over.
    pub fn new(batch: usize, length: usize, real: Option<&Tensor>) -> Result<Arc<Self>> {
        let Some(real) = real else {
            return Ok(Arc::new(Self::of(batch, length, None)));
        };
        check(real.dims() == [batch, length], "rings", || {
            format!("a mask {:?} for ({batch}, {length})", real.shape())
        })?;
        let real = real.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?;
        Ok(Arc::new(Self::of(batch, length, Some(&real))))
    }
}

/// y (B, L, D) of a residual r and x, both (B, L, D): `y_tc = r_tc + x_sc`, where s is the position as many places after t in its ring,
/// circularly, as the track of channel c is shifted by. PyTorch's `roll` by -shift, track by track. A position in no ring keeps its x.
///
/// Tracks lie side by side and cover all channels. One pass, which keeps nothing.
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
    if kernels::supports(x) {
        return Ok(kernels::add_rolled(residual, x, tracks, rings)?);
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

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, close, normal};

    fn tracks(all: &[(usize, usize)]) -> Arc<[Track]> {
        let mut start = 0;
        let track = |&(width, shift): &(usize, usize)| {
            let track = Track {
                start,
                width,
                shift,
            };
            start += width;
            track
        };
        all.iter().map(track).collect()
    }

    /// Rows of which every position, two in front and three with gaps are real.
    fn real() -> Tensor {
        let real = [
            [1.0, 1.0, 1.0, 1.0, 1.0],
            [1.0, 1.0, 0.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 1.0, 1.0],
            [0.0f64; 5],
        ];
        Tensor::new(&real, &Device::Cpu).unwrap()
    }

    #[test]
    fn positions_get_what_stands_ahead_in_their_ring() {
        let tracks = tracks(&[(1, 0), (2, 1), (1, 2), (1, 64)]);
        let rings = Rings::new(4, 5, Some(&real())).unwrap();
        let (residual, x) = (normal("r", &[4, 5, 5]), normal("x", &[4, 5, 5]));
        let rows: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
        let members: [&[usize]; 4] = [&[0, 1, 2, 3, 4], &[0, 1], &[1, 3, 4], &[]];
        let mut wanted = rows.clone();
        for (row, members) in members.iter().enumerate() {
            for (place, position) in members.iter().enumerate() {
                for (channel, shift) in [0, 1, 1, 2, 64].into_iter().enumerate() {
                    let from = members[(place + shift) % members.len()];
                    wanted[row][*position][channel] = rows[row][from][channel];
                }
            }
        }
        let wanted = (Tensor::new(wanted, &Device::Cpu).unwrap() + &residual).unwrap();
        let found = add_rolled(&residual, &x, &tracks, &rings).unwrap();
        close(&found, &wanted, 1e-12, "rolled");
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(131);
        for (shape, all) in [
            ([1, 1, 2], tracks(&[(1, 0), (1, 1)])),
            ([4, 5, 7], tracks(&[(3, 0), (2, 1), (2, 2)])),
            ([3, 130, 33], tracks(&[(16, 0), (1, 1), (16, 64)])),
        ] {
            let [batch, length, _] = shape;
            for real in [None, (length == 5).then(real)] {
                let rings = Rings::new(batch, length, real.as_ref()).unwrap();
                let inputs = [sampler.normal(&shape, 1.0), sampler.normal(&shape, 1.0)];
                let f = |x: &[Tensor]| Ok(add_rolled(&x[0], &x[1], &all, &rings)?);
                agree("rolled", &inputs, f, f);
            }
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let tracks = tracks(&[(1, 0), (1, 1), (1, 2)]);
        let rings = Rings::new(4, 5, Some(&real())).unwrap();
        check_gradient("rolled", &[&[4, 5, 3], &[4, 5, 3]], |x| {
            add_rolled(&x[0], &x[1], &tracks, &rings)
        });
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let x = normal("x", &[2, 3, 4]);
        for (rings, tracks, residual) in [
            ([2, 4], tracks(&[(4, 0)]), &x),
            ([2, 3], tracks(&[(3, 0)]), &x),
            ([2, 3], tracks(&[(4, 0)]), &normal("r", &[2, 3, 5])),
        ] {
            let rings = Rings::new(rings[0], rings[1], None).unwrap();
            let message = add_rolled(residual, &x, &tracks, &rings).unwrap_err();
            assert!(message.to_string().contains("do not fit"), "{message}");
        }
        assert!(Rings::new(2, 3, Some(&normal("real", &[3, 2]))).is_err());
    }
}
