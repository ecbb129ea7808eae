//! Transformer. Vaswani et al., 2017, "Attention Is All You Need", arXiv:1706.03762.
//!     y_i = Σ_j a_ij v_j,  a_ij = exp(q_i·k_j / √E) / Σ_j' exp(q_i·k_j' / √E)
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E), a (B, H, L, L).
//! Time O(L²·E) per head. `attention`: `fused` works through tiles of a and keeps L numbers for the backward pass, memory O(L·E);
//! `materialised` keeps every weight, memory O(L²), as published. Same numbers up to rounding, same dropout.
//! Padded keys get weight zero. Dropout on the weights. As in the 2021 code the projections have no biases.
//! `variant = tay2021`: the same. There a padded query has uniform weights, but what it gets is not read here.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder,
    layers::{Dropout, Projections, Takes},
    model::{Cost, Model, Reference, Variant},
    ops::attention,
    options::to_json,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "transformer",
    title: "Transformer",
    paper: "Attention Is All You Need",
    year: 2017,
    arxiv: "1706.03762",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Package,
    settings: "",
    // Both compute the same wherever anybody reads it.
    variants: &[
        PAPER,
        Variant {
            name: "tay2021",
            ..PAPER
        },
    ],
    options: || to_json(&Options::default()),
    ranges: &[],
};

/// The computation, for models that are a Transformer with settings of their own.
pub const PAPER: Variant = Variant::paper(build, include_str!("transformer.rs"));

/// How the weights are computed.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Attention {
    /// Tile by tile, where there is a kernel for it; else materialised.
    #[default]
    Fused,
    /// All L x L weights at once, in memory.
    Materialised,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    attention: Attention,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let Options { attention } = context.options()?;
    encoder::blocks(context, |at| Ok(Box::new(Transformer::new(at, attention)?)))
}

/// Softmax attention, for models that repeat or shorten what is around it.
pub(super) fn mixer(at: &LayerContext) -> Result<Box<dyn Mixer>> {
    Ok(Box::new(Transformer::new(at, Attention::Fused)?))
}

struct Transformer {
    projections: Projections,
    dropout: Dropout,
    dim: usize,
    heads: usize,
    attention: Attention,
}

impl Transformer {
    fn new(at: &LayerContext, attention: Attention) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(at)?,
            dropout: Dropout::new(&at.vb.pp("drop"), at.block.attention_dropout),
            dim: at.block.qkv_dim,
            heads: at.block.heads,
            attention,
        })
    }
}

impl Mixer for Transformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = match self.attention {
            Attention::Fused => self.projections.attend(x, pass, &self.dropout, None)?,
            Attention::Materialised => {
                let [q, k, v] = self.projections.qkv(x)?; // (B, L, H E)
                let options = self.projections.options(x, pass, &self.dropout)?;
                let (terms, length) = (self.projections.terms(), x.dim(1)?);
                terms.attend_by(&attention::composed, [&q, &k, &v], options, 0..length)?
            }
        };
        self.projections.merge(&y)
    }

    fn takes(&self) -> Takes {
        Takes::ALL
    }

    fn flops(&self, length: usize) -> u64 {
        let products = 2 * 2 * (length * length) as u64 * self.dim as u64;
        let terms = self.projections.terms();
        self.projections.flops(length)
            + products
            + terms.flops(length, self.heads * length * length)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Mask, Parameters, RngKey, ops::attention::AttentionOptions, options::BlockOptions,
        reference, testing::meets_reference,
    };

    #[test]
    fn is_attention_with_the_exponential_kernel() {
        meets_reference("transformer", 1e-7, reference::softmax, |q, k, v, mask| {
            let options = AttentionOptions {
                heads: q.dim(2)?,
                mask: mask.map(|mask| mask.valid().clone()),
                ..AttentionOptions::default()
            };
            let flat = |x: &Tensor| x.flatten_from(2);
            let y = attention::attend(&flat(q)?, &flat(k)?, &flat(v)?, &options)?;
            Ok(y.reshape(q.dims())?)
        });
    }

    /// Output at real positions, and gradients from there, of one training pass, f32, with a mask and dropout.
    fn pass(attention: Attention) -> Vec<Tensor> {
        let parameters = Parameters::new(5, &Device::Cpu, DType::F32);
        let block = BlockOptions {
            attention_dropout: 0.3,
            ..BlockOptions::default()
        };
        let at = |vb: crate::VarBuilder| LayerContext::new(vb, &block, 70);
        let mixer = Transformer::new(&at(parameters.builder()), attention).unwrap();
        let rng = RngKey::new(1, 2, 3);
        let x = rng
            .shared(crate::rng::StreamKey::new("x"))
            .normal(3, 70 * 64);
        let x = Tensor::from_vec(x, (3, 70, 64), &Device::Cpu).unwrap();
        let real: Vec<f32> = (0..210)
            .map(|i| f32::from(u8::from(i % 70 < 70 - i / 70 * 30)))
            .collect();
        let real = Tensor::from_vec(real, (3, 70), &Device::Cpu).unwrap();
        let mask = Mask::new(&real).unwrap();
        let pass = Pass::new(true, rng);
        let x = x.to_dtype(DType::F32).unwrap();
        let y = mixer.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
        let y = y.broadcast_mul(&real.unsqueeze(2).unwrap()).unwrap();
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let mut tensors = vec![y.detach()];
        for (_, var) in parameters.all() {
            tensors.push(gradients.get(&var).unwrap().clone());
        }
        tensors
    }

    #[test]
    fn fused_and_materialised_agree_with_dropout_and_mask() {
        let (fused, materialised) = (pass(Attention::Fused), pass(Attention::Materialised));
        for (index, (one, other)) in fused.iter().zip(&materialised).enumerate() {
            let most = |x: Tensor| {
                x.abs()
                    .unwrap()
                    .max_all()
                    .unwrap()
                    .to_scalar::<f32>()
                    .unwrap()
            };
            let (apart, scale) = (most((one - other).unwrap()), most(other.clone()));
            assert!(
                apart <= 1e-5 * scale.max(1.0),
                "tensor {index}: {apart} of {scale}"
            );
        }
    }
}
