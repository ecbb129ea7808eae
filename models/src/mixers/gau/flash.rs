//! FLASH. Hua et al., 2022, "Transformer Quality in Linear Time", arXiv:2202.10447.
//!     y = (U ⊙ (A V + Q' (K'ᵀ V) / n)) W_o + b_o,  A within chunks of C positions,  Q' = g₂ ⊙ z + b₂, K' = g₃ ⊙ z + b₃
//! all else as in the gated attention unit: U, V (B, L, e), z, Q', K' (B, L, s), A (B, L / C, C,
//! C), n the valid positions of a sequence, in A those of a chunk. K'ᵀ V (B, s, e) is the sum over
//! all positions, including the position's own chunk, as in the paper's non-causal form. Time
//! O(L·C·(s + e) + L·s·e), memory O(L·C). Equations and code of the unit:
//! `models/src/mixers/gau/mod.rs`.
//!
//! # Options
//!
//! `chunk` C (256); `hidden`, `shared`, `attention` and `hidden_dropout` as of GAU.
//!
//! # Padding
//!
//! Padding adds nothing to K'ᵀ V.
//!
//! # Departures
//!
//! Those of GAU. g₂ and g₃ begin N(0, 0.02²), b₂ and b₃ as 0, like g and b of the unit.
//! lucidrains/FLASH-pytorch divides by the size of a chunk and by the padded length, padding
//! included; here, as the equations say, by the number of valid keys.

use super::Beside;
use super::Gated;
use super::NARROW;
use super::Options;
use super::widths;
use crate::prelude::*;

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "flash",
    title: "FLASH",
    time: Cost::Linear("O(L·C·E)"),
    memory: Cost::Linear("O(L·C)"),
    variants: &[Variant::paper(build, include_str!("flash.rs"))],
    options: || {
        to_json(&Options {
            chunk: 256,
            ..Options::default()
        })
    },
    ..super::MODEL
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(options.chunk > 0, "model.chunk", 0, "at least 1")?;
    encoder::blocks(context, |layer| {
        let (hidden, shared) = widths(layer, &options);
        let linear = LinearAttention::new(&layer.vb.pp("linear"), shared, hidden)?;
        Ok(Box::new(
            Gated::new(layer, &options)?.with(Box::new(linear)),
        ))
    })
}

/// Q' (K'ᵀ V) / n.
pub(super) struct LinearAttention {
    /// g₂ and g₃ (2, s).
    scale: Tensor,
    /// b₂ and b₃ (2, s).
    shift: Tensor,
    /// s e.
    products: usize,
}

impl LinearAttention {
    pub(super) fn new(vb: &VarBuilder, shared: usize, hidden: usize) -> Result<Self> {
        let pair =
            |name, init| vb.get_with_attributes((2, shared), name, init, Attributes::NO_DECAY);
        Ok(Self {
            scale: pair("scale", NARROW)?,
            shift: pair("shift", Init::Const(0.0))?,
            products: shared * hidden,
        })
    }
}

impl Beside for LinearAttention {
    fn forward(&self, z: &Tensor, v: &Tensor, pass: &Pass) -> Result<Tensor> {
        let vector = |index| -> Result<Tensor> {
            let z = z.broadcast_mul(&self.scale.get(index)?)?;
            Ok(z.broadcast_add(&self.shift.get(index)?)?)
        };
        let (q, k) = (vector(0)?, zero_padding(&vector(1)?, pass.mask())?);
        let sum = matmul(&k.t()?.contiguous()?, v)?; // (B, s, e)
        let mean = match pass.mask().map(Mask::valid) {
            Some(valid) => {
                let count = valid.sum_keepdim(1)?;
                let count = count.maximum(&count.ones_like()?)?;
                sum.broadcast_div(&count.unsqueeze(2)?)?
            }
            None => (sum / z.dim(1)? as f64)?,
        };
        matmul(&q, &mean)
    }

    fn flops(&self, length: usize) -> u64 {
        2 * 2 * (length * self.products) as u64
    }
}
