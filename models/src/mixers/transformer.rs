//! Transformer. Vaswani et al., 2017, "Attention Is All You Need", arXiv:1706.03762.
//!     y_i = Σ_j a_ij v_j,  a_ij = exp(q_i·k_j / √E) / Σ_j' exp(q_i·k_j' / √E)
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E), a (B, H, L, L).
//! Time O(L²·E) per head, memory O(L²): `attention = materialised` keeps every weight, as published.
//! Padded keys get weight zero. Dropout on the weights. As in the 2021 code the projections have no biases.

use candle_core::{D, Tensor};
use serde::{Deserialize, Serialize};

use crate::{
    Context, Encoder, Mask, Mixer, Result,
    encoder::{self, Build, Site},
    layers::{Dropout, Projections, softmax},
    mixers::Model,
    options::to_json,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "transformer",
    title: "Transformer",
    paper: "Attention Is All You Need",
    year: 2017,
    arxiv: "1706.03762",
    time: "O(L²·E)",
    memory: "O(L²)",
    masks_padding: true,
    variants: &["paper"],
    defaults: || to_json(&Options::default()),
    build,
    source: include_str!("transformer.rs"),
};

/// How the weights are computed.
#[derive(Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Attention {
    /// All L x L weights at once, in memory.
    #[default]
    Materialised,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    attention: Attention,
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let Options { attention } = build.options()?;
    encoder::blocks(build, |site| {
        Ok(Box::new(match attention {
            Attention::Materialised => Transformer::new(site)?,
        }))
    })
}

struct Transformer {
    projections: Projections,
    dropout: Dropout,
    dim: usize,
}

impl Transformer {
    fn new(site: &Site) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(&site.vb, site.block)?,
            dropout: Dropout::new(&site.vb.pp("drop"), site.block.attention_dropout),
            dim: site.block.qkv_dim,
        })
    }
}

impl Mixer for Transformer {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?; // (B, H, L, E)
        let weights = weights(&q, &k, context.mask())?; // (B, H, L, L)
        let weights = self.dropout.forward(&weights, context)?;
        self.projections.merge(&weights.matmul(&v)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let products = 2 * 2 * (length * length) as u64 * self.dim as u64;
        self.projections.flops(length) + products
    }
}

/// Attention weights (B, H, Q, K) of queries (B, H, Q, E) on keys (B, H, K, E).
fn weights(q: &Tensor, k: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let scale = (q.dim(D::Minus1)? as f64).powf(-0.5);
    softmax::masked(&q.affine(scale, 0.0)?.matmul(&k.t()?)?, mask)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{layers::testing::meets_oracle, oracle};

    #[test]
    fn is_attention_with_the_exponential_kernel() {
        meets_oracle("transformer", 1e-7, oracle::softmax, |q, k, v, mask| {
            Ok(weights(q, k, mask)?.matmul(v)?)
        });
    }
}
