//! Compression of the S rows that leave the memory to ⌈S/c⌉ rows.

use super::Parts;
use crate::{
    mask::PADDED,
    ops::{activation::relu, pooling::max},
    prelude::*,
};

/// f.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Conv,
    Mean,
    Max,
    MostUsed,
    Dilated,
    None,
}

impl Kind {
    /// Returns whether it has weights.
    pub(super) fn learns(self) -> bool {
        matches!(self, Self::Conv | Self::Dilated)
    }
}

/// f with its weights.
pub(super) struct Compression {
    kind: Kind,
    /// c.
    rate: usize,
    /// Layers of width 3, one for each of the distances 1, 2, 4, ..
    dilated: Vec<Linear>,
    /// Layer of width and stride c.
    conv: Option<Linear>,
}

impl Compression {
    /// Creates the parameters of kinds that have any: `weight` (D, c D), taps one after the other,
    /// and `bias`; `<i>.weight` (D, 3 D) and `<i>.bias` at distance 2^i.
    pub(super) fn new(vb: &VarBuilder, kind: Kind, dim: usize, rate: usize) -> Result<Self> {
        let conv = |vb: &VarBuilder, taps: usize| {
            let init = xavier_uniform(taps * dim, dim);
            Linear::new(vb, taps * dim, dim, init, Some(Init::Const(0.0)))
        };
        let distances = match kind {
            Kind::Dilated => rate.next_power_of_two().ilog2(),
            _ => 0,
        };
        Ok(Self {
            kind,
            rate,
            dilated: (0..distances)
                .map(|i| conv(&vb.pp(i), 3))
                .collect::<Result<_>>()?,
            conv: match kind.learns() {
                true => Some(conv(vb, rate)?),
                false => None,
            },
        })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Maps (N, S, D), zeros at positions that are not valid, to (N, ⌈S/c⌉, D).
    pub(super) fn forward(&self, old: &Tensor, valid: &Mask) -> Result<Parts> {
        let (count, size, dim) = old.dims3()?;
        let rows = size.div_ceil(self.rate);
        let missing = rows * self.rate - size;
        let weights = valid.valid().unsqueeze(2)?; // (N, S, 1)
        let mut x = old.clone();
        for (i, conv) in self.dilated.iter().enumerate() {
            let branch = relu(&conv.forward(&taps(&x, 1 << i)?)?, 0.0)?;
            x = (x + branch.broadcast_mul(&weights)?)?;
        }
        let groups = |x: &Tensor| -> Result<Tensor> {
            let x = x.pad_with_zeros(1, 0, missing)?;
            Ok(x.reshape((count, rows, self.rate, ()))?)
        };
        let (x, weights) = (groups(&x)?, groups(&weights)?);
        let new_valid = weights.max(2)?; // (N, R, 1)
        let rows = match (&self.conv, self.kind) {
            (Some(conv), _) => conv.forward(&x.reshape((count, rows, self.rate * dim))?)?,
            (None, Kind::Max) => {
                let hidden = weights.affine(PADDED, -PADDED)?;
                let most = max(&x.broadcast_add(&hidden)?, 2)?;
                most.broadcast_mul(&new_valid)?
            }
            (None, _) => {
                let there = weights.sum(2)?; // (N, R, 1)
                let there = there.maximum(&there.ones_like()?)?;
                x.sum(2)?.broadcast_div(&there)?
            }
        };
        Ok(Parts {
            rows,
            valid: Mask::new(&new_valid.squeeze(2)?)?,
        })
    }

    /// Counts the operations for S rows.
    pub(super) fn flops(&self, size: usize) -> u64 {
        let dilated: u64 = self.dilated.iter().map(|conv| conv.flops(size)).sum();
        let conv = self.conv.as_ref();
        dilated + conv.map_or(0, |conv| conv.flops(size.div_ceil(self.rate)))
    }
}

/// Returns x (N, S, D) with the rows `distance` before and behind, zeros beyond the ends: (N, S, 3
/// D).
fn taps(x: &Tensor, distance: usize) -> Result<Tensor> {
    let size = x.dim(1)?;
    let kept = size.saturating_sub(distance);
    let before = x.narrow(1, 0, kept)?.pad_with_zeros(1, size - kept, 0)?;
    let behind = x
        .narrow(1, size - kept, kept)?
        .pad_with_zeros(1, 0, size - kept)?;
    Ok(Tensor::cat(&[&before, x, &behind], 2)?)
}
