//! Rotation of neighbouring columns by position (RoFormer, arXiv:2104.09864).

pub(in crate::ops) mod cpu;
#[cfg(test)]
mod tests;

use candle_core::{Device, Tensor};

use super::check;
use crate::Result;
use crate::ops::supports;

/// Rotates the first `columns` of x (B, L, W), which has W columns, by position. Returns (B, L, W).
/// Columns are taken in groups of `width`. Columns 2c and 2c + 1 of a group are rotated by the
/// angle t·10000^{-2 c / width} at position t, as in RoFormer (arXiv:2104.09864). The first
/// position is t = `start`. The last column of a group stays as it is if it has no partner, and so
/// do all columns after the first `columns`.
///
/// The gradient is the opposite rotation. It takes O(B L W) time, and keeps only angles.
///
/// # Errors
/// If `columns` is not a multiple of `width`, or is more than W.
pub fn rotary(x: &Tensor, start: usize, columns: usize, width: usize) -> Result<Tensor> {
    let (_, length, row) = x.dims3()?;
    check(
        columns.is_multiple_of(width) && columns <= row,
        "rotary",
        || format!("{columns} columns of {row} in groups of {width}"),
    )?;
    if supports(x) {
        let turns = rounded_turns(start, length, width);
        return Ok(cpu::rotate(x, columns, width, turns)?);
    }
    composed(x, columns, width, &turns(positions(start, length), width))
}

/// Returns the [`turns`] of `length` positions from `start` on, as the fused form takes them.
pub(super) fn rounded_turns(start: usize, length: usize, width: usize) -> Vec<[f32; 2]> {
    let turns = turns(positions(start, length), width);
    let rounded = turns.into_iter().map(|turn| turn.map(|x| x as f32));
    rounded.collect()
}

/// Returns `length` positions from `start` on.
fn positions(start: usize, length: usize) -> impl Iterator<Item = Option<i64>> {
    (start..start + length).map(|position| Some(position as i64))
}

/// Positions whose turns are found together.
const PERIOD: i64 = 64;

/// Returns cosine and sine of t·10000^{-2 c / width} for each position t and pair c; zeros for
/// none. A position is a multiple of [`PERIOD`] and a rest, so that few angles need their
/// functions: cos (a + b) = cos a cos b - sin a sin b, and alike for the sine.
pub(crate) fn turns(positions: impl Iterator<Item = Option<i64>>, width: usize) -> Vec<[f64; 2]> {
    let rates = (0..width / 2).map(|c| 10_000f64.powf(-2.0 * c as f64 / width as f64));
    let rates: Vec<f64> = rates.collect();
    let of = |position: i64| -> Vec<[f64; 2]> {
        let turn = |rate: &f64| {
            let (sine, cosine) = (position as f64 * rate).sin_cos();
            [cosine, sine]
        };
        rates.iter().map(turn).collect()
    };
    let mut rests: Vec<Option<Vec<[f64; 2]>>> = vec![None; PERIOD as usize];
    let (mut multiple, mut of_multiple) = (0, of(0));
    let mut turns = Vec::new();
    for position in positions {
        let Some(position) = position else {
            turns.resize(turns.len() + rates.len(), [0.0; 2]);
            continue;
        };
        let rest = position.rem_euclid(PERIOD);
        if position - rest != multiple {
            multiple = position - rest;
            of_multiple = of(multiple);
        }
        let of_rest = rests[rest as usize].get_or_insert_with(|| of(rest));
        let both = of_multiple.iter().zip(&*of_rest);
        turns.extend(both.map(|([cos_a, sin_a], [cos_b, sin_b])| {
            [cos_a * cos_b - sin_a * sin_b, sin_a * cos_b + cos_a * sin_b]
        }));
    }
    turns
}

fn composed(x: &Tensor, columns: usize, width: usize, turns: &[[f64; 2]]) -> Result<Tensor> {
    let (batch, length, row) = x.dims3()?;
    let pairs = width / 2;
    if pairs * columns == 0 {
        return Ok(x.clone());
    }
    let table = |which: usize| -> Result<Tensor> {
        let values: Vec<f64> = turns.iter().map(|turn| turn[which]).collect();
        let shape = (1, length, 1, pairs, 1);
        let table = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(x.dtype())?;
        Ok(table.to_device(x.device())?)
    };
    let (cosines, sines) = (table(0)?, table(1)?);
    let heads = x.narrow(2, 0, columns)?.contiguous()?;
    let heads = heads.reshape((batch, length, columns / width, width))?;
    let paired = heads.narrow(3, 0, 2 * pairs)?.contiguous()?;
    let paired = paired.reshape((batch, length, columns / width, pairs, 2))?;
    let (a, b) = (paired.narrow(4, 0, 1)?, paired.narrow(4, 1, 1)?);
    let rotated = Tensor::cat(
        &[
            (a.broadcast_mul(&cosines)? - b.broadcast_mul(&sines)?)?,
            (a.broadcast_mul(&sines)? + b.broadcast_mul(&cosines)?)?,
        ],
        4,
    )?;
    let rotated = rotated.flatten_from(3)?; // (B, L, heads, 2 pairs)
    let rotated = match width - 2 * pairs {
        0 => rotated,
        rest => Tensor::cat(&[&rotated, &heads.narrow(3, 2 * pairs, rest)?], 3)?,
    };
    let rotated = rotated.flatten_from(2)?;
    Ok(match row - columns {
        0 => rotated,
        rest => Tensor::cat(&[&rotated, &x.narrow(2, columns, rest)?], 2)?,
    })
}
