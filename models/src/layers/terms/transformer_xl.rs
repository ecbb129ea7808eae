//! Transformer-XL's scores. Dai et al., 2019, arXiv:1901.02860, both ways in time as in XLNet (Yang et al., 2019, arXiv:1906.08237).
//!     z_ij = ((q_i + u)·k_j + (q_i + w)·W_R r_{i - j}) / √E,  r_δ = [sin(ω_c δ) ; cos(ω_c δ)],  ω_c = 10000^{-2 c / D}
//! u, w (H, E) and W_R (D to H E) are each layer's own (`untie_r`). Distances are not clipped.
//!
//! r_{i - j} is a rotation of r_{-j} by i, so that with g_i = W_Rᵀ (q_i + w) = [g^s ; g^c] of each head
//!     g_i·r_{i - j} = [g^c sin ωi - g^s cos ωi ; g^s sin ωi + g^c cos ωi]·[sin ωj ; cos ωj]
//! is a product of D more columns of queries and keys. Every form of attention can compute it, whatever pairs it computes, and nothing
//! is kept for a pair; a score costs (E + D) / E times as much, and so do weighted values, which get as many columns of zeros.

use candle_core::{D, Device, Tensor};
use candle_nn::Init;

use super::{Attend, Operands, by_head_times};
use crate::{LayerContext, Result, ops::attention::AttentionOptions, params::xavier_uniform};

/// u, w and W_R.
pub(super) struct TransformerXl {
    content: Tensor,
    position: Tensor,
    /// W_R, (H E, D).
    relative: Tensor,
    heads: usize,
    width: usize,
    /// ⌊D / 2⌋ frequencies.
    frequencies: usize,
}

impl TransformerXl {
    /// Parameters `content` and `position` (H, E), N(0, 0.02²), and `relative` (H E, D), Xavier-uniform.
    pub(super) fn new(at: &LayerContext) -> Result<Self> {
        let (vb, block) = (at.vb.pp("bias"), at.block);
        let (heads, width) = (block.heads, block.head_dim());
        let small = Init::Randn {
            mean: 0.0,
            stdev: 0.02,
        };
        let frequencies = block.dim / 2;
        let init = xavier_uniform(block.dim, block.qkv_dim);
        Ok(Self {
            content: vb.get_with_hints((heads, width), "content", small)?,
            position: vb.get_with_hints((heads, width), "position", small)?,
            relative: vb.get_with_hints((block.qkv_dim, 2 * frequencies), "relative", init)?,
            heads,
            width,
            frequencies,
        })
    }

    pub(super) fn attend(&self, attend: Attend<'_>, operands: Operands) -> Result<Tensor> {
        let scale = operands.scale(self.width);
        let Operands {
            q,
            k,
            v,
            options,
            positions,
        } = operands;
        let (batch, queries, _) = q.dims3()?;
        let keys = k.dim(1)?;
        let split = |x: &Tensor| x.reshape((batch, x.dim(1)?, self.heads, self.width));
        let content = split(&q)?.broadcast_add(&self.content)?;
        let relative = self.relative.reshape((self.heads, self.width, ()))?;
        let shifted = split(&q)?.broadcast_add(&self.position)?.flatten_from(2)?;
        let g = by_head_times(&shifted, &relative)?.transpose(1, 2)?; // (B, Lq, H, D)
        let [sines, cosines] = self.angles(queries, &q)?;
        let (of_sines, of_cosines) = (
            g.narrow(D::Minus1, 0, self.frequencies)?,
            g.narrow(D::Minus1, self.frequencies, self.frequencies)?,
        );
        let turned = [
            (of_cosines.broadcast_mul(&sines)? - of_sines.broadcast_mul(&cosines)?)?,
            (of_sines.broadcast_mul(&sines)? + of_cosines.broadcast_mul(&cosines)?)?,
        ];
        let q = Tensor::cat(&[&content, &turned[0], &turned[1]], 3)?.flatten_from(2)?;
        let places = Tensor::cat(&self.angles(positions.len(), &k)?, 2)?; // (n, 1, D)
        let places = places.pad_with_zeros(0, positions.start, keys - positions.end)?;
        let shape = (batch, keys, self.heads, 2 * self.frequencies);
        let places = places.unsqueeze(0)?.broadcast_as(shape)?;
        let k = Tensor::cat(&[&split(&k)?, &places.contiguous()?], 3)?.flatten_from(2)?;
        let v = split(&v)?.pad_with_zeros(3, 0, 2 * self.frequencies)?;
        let options = AttentionOptions {
            scale: Some(scale),
            ..options
        };
        let y = attend(&q, &k, &v.flatten_from(2)?, &options)?;
        let y = y.reshape((batch, queries, self.heads, ()))?;
        Ok(y.narrow(3, 0, self.width)?.flatten_from(2)?)
    }

    /// Sines and cosines of the first `length` positions, each (length, 1, ⌊D / 2⌋); rounded only in the end.
    fn angles(&self, length: usize, like: &Tensor) -> Result<[Tensor; 2]> {
        let wide = 2.0 * self.frequencies as f64;
        let angle = |i: usize| {
            let (position, c) = (i / self.frequencies, i % self.frequencies);
            position as f64 * 10_000f64.powf(-2.0 * c as f64 / wide)
        };
        let count = length * self.frequencies;
        let table = |f: fn(f64) -> f64| -> Result<Tensor> {
            let values: Vec<f64> = (0..count).map(|i| f(angle(i))).collect();
            let shape = (length, 1, self.frequencies);
            let table = Tensor::from_vec(values, shape, &Device::Cpu)?.to_dtype(like.dtype())?;
            Ok(table.to_device(like.device())?)
        };
        Ok([table(f64::sin)?, table(f64::cos)?])
    }

    pub(super) fn flops(&self, length: usize, pairs: usize) -> u64 {
        let wide = 2 * self.frequencies;
        2 * (length * self.heads * self.width * wide + 2 * pairs * wide) as u64
    }
}
