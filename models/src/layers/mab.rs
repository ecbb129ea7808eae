//! The multihead attention block of the Set Transformer. Lee et al., 2018, arXiv:1810.00825.
//!     MAB(Z, x) = O + relu(O W + b),  O = Z W_Q + softmax(Z W_Q (x W_K)ᵀ / √E) x W_V
//! Z (m, D) are learned vectors that query the sequence x (B, L, D); O (B, m, H E), W (H E, H E);
//! the softmax is per head. As in the authors' code, the residual is the projected query, the
//! output of the heads is not projected, and there are no norms. The authors scale by 1/√(H E);
//! here the scale is that of all attention, 1/√E.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Pass, Result, VarBuilder,
    layers::{Dropout, Linear},
    ops::{
        activation::relu,
        attention::{self, AttentionOptions},
    },
    options::BlockOptions,
    params::xavier_uniform,
};

/// Learned vectors, each of which gathers information from a sequence by attention.
pub struct Mab {
    /// Z (m, D).
    seeds: Tensor,
    query: Linear,
    key: Linear,
    value: Linear,
    feed: Linear,
    dropout: Dropout,
    heads: usize,
    width: usize,
}

impl Mab {
    /// Creates parameters `seeds` (m, D), `query`, `key`, `value` (qkv_dim, D) and `feed` (qkv_dim,
    /// qkv_dim) with its bias; `rate` is that of dropout on the weights.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions, seeds: usize, rate: f64) -> Result<Self> {
        let (dim, width) = (block.dim, block.qkv_dim);
        let init = xavier_uniform(dim, width);
        let inward = |name| Linear::new(&vb.pp(name), dim, width, init, None);
        let bias = Some(Init::Const(0.0));
        Ok(Self {
            seeds: vb.get_with_hints((seeds, dim), "seeds", xavier_uniform(seeds, dim))?,
            query: inward("query")?,
            key: inward("key")?,
            value: inward("value")?,
            feed: Linear::new(
                &vb.pp("feed"),
                width,
                width,
                xavier_uniform(width, width),
                bias,
            )?,
            dropout: Dropout::new(&vb.pp("drop"), rate),
            heads: block.heads,
            width,
        })
    }

    /// Maps (B, L, D), whose mask the pass has, to (B, m, qkv_dim). A sequence without a valid token
    /// contributes zeros.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let batch = x.dim(0)?;
        let options = AttentionOptions {
            heads: self.heads,
            mask: pass.mask().map(|mask| mask.valid().clone()),
            dropout: self.dropout.of_attention(batch, pass),
            ..AttentionOptions::default()
        };
        let q = self.query.forward(&self.seeds)?; // (m, H E)
        let q = q.broadcast_left(batch)?.contiguous()?; // (B, m, H E)
        let (k, v) = (self.key.forward(x)?, self.value.forward(x)?);
        let o = (&q + attention::attend(&q, &k, &v, &options)?)?;
        Ok((&o + relu(&self.feed.forward(&o)?, 0.0)?)?)
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        let seeds = self.seeds.dims()[0];
        let products = 2 * 2 * (length * seeds) as u64 * self.width as u64;
        self.query.flops(seeds)
            + self.key.flops(length)
            + self.value.flops(length)
            + products
            + self.feed.flops(seeds)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        Mask, RngKey,
        testing::{check_layer, normal, parameters},
    };

    #[test]
    fn gradients_agree_with_differences_and_nothing_is_gathered_from_padding() {
        let block = BlockOptions {
            dim: 3,
            qkv_dim: 4,
            heads: 2,
            ..BlockOptions::default()
        };
        let parameters = parameters();
        let mab = Mab::new(&parameters.builder(), &block, 2, 0.0).unwrap();
        let valid = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0f64]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        for pass in [pass, pass.with_mask(Some(&mask))] {
            check_layer("mab", &parameters, &[3, 3, 3], |x| mab.forward(x, &pass));
        }
        let pass = pass.with_mask(Some(&mask));
        let [one, other] = ["one", "other"].map(|x| {
            let x = normal(x, &[3, 3, 3]);
            let y = mab.forward(&x, &pass).unwrap().get(2).unwrap();
            y.flatten_all().unwrap().to_vec1::<f64>().unwrap()
        });
        assert_eq!(one, other);
    }
}
