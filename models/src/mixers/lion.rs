//! LION. Afzal et al., 2025, "Linear Attention for Sequence Modeling in Both Directions",
//! arXiv:2502.16249.
//!     y = scale(Q Kᵀ ⊙ M) V,  M_ij = Π a_t over t = j .. i - 1 for j < i and t = i + 1 .. j for j > i,  M_ii = 1,  out = W_o y
//! B batch, L length, D width, H heads of width E; q, k = φ(x W_q), φ(x W_k) with φ(x) = (SiLU(x) +
//! ½) / |SiLU(x) + ½|, v (B, L, H, E); x, out (B, L, D); `scale` divides rows by their sums. A
//! token's own decay is that of what it writes, in both directions. Variants: `s` a = 1 - σ(x W_a +
//! b), (B, L, H, E), for each key channel; `d` a = σ(-b), (H); `lit` a = 1. Time O(L·E²) per head:
//! two walks in chunks that leave the position itself out, numerators and denominators as one value
//! of width E + 1. Memory O(L·E). M is that of `create_matrix_from_tensor` in
//! LIONS-EPFL/LION@32a0136 img_classification/lion/models_lion.py, φ its `silu_shifted`. Decays for
//! each channel, weights of q, k and a from N(0, 0.1²) and b so that a = e^(-Δ/2) with Δ between
//! 0.001 and 0.1, even in its logarithm (the real part of HiPPO's modes), are a reproduction from
//! the text. Values are not scaled by their decays there and here alike. W_v and W_o begin uniform
//! within inputs^-½, without biases.
//!
//! # Options
//!
//! `decay_init`: `hippo`; or `log_uniform` (twice as fast), `retention` (1 - a = 2^(-5 - h) in head
//! h), `random` (b = 0, so that states forget half at each token). `lit` has no decays.
//!
//! # Padding
//!
//! Padding has k = 0 and a = 1.
//!
//! # Departures
//!
//! The code for this benchmark is not public, so settings and initial values are a reproduction
//! from the text. The code for images begins all linear maps N(0, 0.02²) and biases as 0
//! (img_classification/lion/models_lion.py:419-423); here the feed-forward network begins
//! Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases N(0, 1e-6²), the others as
//! above. `d` draws -b from N(0, 1) in the published code, so that states forget about half at each
//! token (models_lion.py:113 and Masked_Language_Modeling/src/bert_layers.py:227); here a begins
//! near 1 by `decay_init`. `lit` has φ(x) = elu(x) + 1 there (models_lion.py:79, 110); here it has
//! that of the other variants. Decays of `s` are one for each head there (line 118), and queries,
//! keys, values and outputs have biases (lines 99-101, 470); here nothing but decays has. 1e-6 is
//! added there to the sums of weights times E^-½ (lines 160, 178); here sums below 1e-6 count as
//! 1e-6, and for `lit` 1e-18 is added. The walks along curves through an image (`order` = S) are
//! left out. The norms' ε is 1e-6 in both (line 471). The published code puts 1 in place of the
//! first decay, that of CLS, and builds its decays by `torch.tensor`, so that W_a and b of `s` get
//! no gradient (models_lion.py:144, 149); here position 0 has a decay of its own, and all have
//! gradients.

use candle_core::{D, Tensor};
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder,
    layers::{Linear, by_head, head_decays},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::{silu, softplus},
        gated_linear_attention::{self, divide_by_last, with_ones},
        l2_normalize,
        linear_attention::{self, FeatureMap},
    },
    params::{Attributes, DecayInit, fan_in_uniform, inverse_softplus},
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "lion",
    title: "LION",
    paper: "Linear Attention for Sequence Modeling in Both Directions",
    year: 2025,
    arxiv: "2502.16249",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{"embed": {"positions": "none"}}"#,
    variants: &[
        Variant {
            name: "s",
            ..Variant::paper(|at| build(at, Decays::Selective), SOURCE)
        },
        Variant {
            name: "d",
            ..Variant::paper(|at| build(at, Decays::Heads), SOURCE)
        },
        Variant {
            name: "lit",
            ..Variant::paper(|at| build(at, Decays::None), SOURCE)
        },
    ],
    ..Model::with_options::<Options>()
};

const SOURCE: &str = include_str!("lion.rs");
/// The least sum of a row's weights.
const FLOOR: f64 = 1e-6;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = DecayInit::Hippo)]
    decay_init: DecayInit,
}

/// The decays of a variant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Decays {
    None,
    Heads,
    Selective,
}

fn build(context: &ModelContext, decays: Decays) -> Result<Box<dyn Encoder>> {
    let Options { decay_init } = context.options()?;
    encoder::blocks(context, |layer| {
        Ok(Box::new(Lion::new(layer, decays, decay_init)?))
    })
}

/// Where decays come from.
enum Gate {
    None,
    /// b (H).
    Heads(Tensor),
    /// W_a (H E, D) and b (H E).
    Selective(Linear),
}

struct Lion {
    query: Linear,
    key: Linear,
    value: Linear,
    gate: Gate,
    output: Linear,
    heads: usize,
    /// E.
    width: usize,
}

impl Lion {
    fn new(layer: &LayerContext, decays: Decays, init: DecayInit) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, row, heads) = (block.dim, block.qkv_dim, block.heads);
        let small = Init::Randn {
            mean: 0.0,
            stdev: 0.1,
        };
        // softplus b = r.
        let biases = |count: usize| {
            move |stream: &Stream| -> Vec<f64> {
                match init.rates(stream, heads, count / heads) {
                    Some(rates) => rates.iter().copied().map(inverse_softplus).collect(),
                    None => vec![0.0; count],
                }
            }
        };
        let gate = vb.pp("decay");
        let bias = |count| gate.get_with_values(count, "bias", Attributes::NO_DECAY, biases(count));
        let gate = match decays {
            Decays::None => Gate::None,
            Decays::Heads => Gate::Heads(bias(heads)?),
            Decays::Selective => {
                bias(row)?;
                Gate::Selective(Linear::new(&gate, dim, row, small, Some(Init::Const(0.0)))?)
            }
        };
        let linear = |name: &str, inputs: usize, outputs: usize, init| {
            Linear::new(&vb.pp(name), inputs, outputs, init, None)
        };
        Ok(Self {
            query: linear("query", dim, row, small)?,
            key: linear("key", dim, row, small)?,
            value: linear("value", dim, row, fan_in_uniform(dim))?,
            gate,
            output: linear("output", row, dim, fan_in_uniform(row))?,
            heads,
            width: block.head_dim(),
        })
    }

    /// Returns φ of x (B, L, H E).
    fn features(&self, x: &Tensor) -> Result<Tensor> {
        l2_normalize(&silu(x)?.affine(1.0, 0.5)?, self.width)
    }
}

impl Mixer for Lion {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let q = self.features(&self.query.forward(x)?)?;
        let k = self.features(&self.key.forward(x)?)?;
        let k = zero_padding(&k, pass.mask())?;
        let v = self.value.forward(x)?;
        let [q, k, v] = [q, k, v].map(|x| by_head(&x, self.heads));
        let (q, k, v) = (q?, k?, v?);
        let log_decay = match &self.gate {
            Gate::None => {
                let (map, mask) = (FeatureMap::Given, pass.mask());
                let y = linear_attention::attend(&q, &k, &v, map, linear_attention::EPS, mask)?;
                return self.output.forward(&y.flatten_from(2)?);
            }
            Gate::Heads(bias) => head_decays(&softplus(bias)?.neg()?, pass.mask())?,
            Gate::Selective(gate) => {
                let log_decay = softplus(&gate.forward(x)?)?.neg()?;
                by_head(&zero_padding(&log_decay, pass.mask())?, self.heads)?
            }
        };
        let decay = log_decay.exp()?;
        let decay = match &self.gate {
            Gate::Selective(_) => decay,
            _ => decay.unsqueeze(D::Minus1)?,
        };
        let (written, v) = (k.broadcast_mul(&decay)?, with_ones(&v)?);
        let walk = |reverse| {
            let options = GatedLinearAttentionOptions {
                log_decay: Some(&log_decay),
                reverse,
                exclusive: true,
                packing: pass.packing(),
                ..Default::default()
            };
            gated_linear_attention::gated_linear_attention(&q, &written, &v, &options)
        };
        let own = v.broadcast_mul(&(&q * &k)?.sum_keepdim(D::Minus1)?)?;
        let y = divide_by_last(&((walk(false)? + walk(true)?)? + own)?, FLOOR)?;
        self.output.forward(&y.flatten_from(2)?)
    }

    fn supports_varlen(&self) -> bool {
        !matches!(self.gate, Gate::None)
    }

    fn flops(&self, length: usize) -> u64 {
        let (heads, width) = (self.heads, self.width);
        let linears = [&self.query, &self.key, &self.value, &self.output];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let walks = 2 * gated_linear_attention::flops(length, heads, width, width + 1);
        linears
            + match &self.gate {
                Gate::None => linear_attention::flops(length, heads, width, width),
                Gate::Heads(_) => walks,
                Gate::Selective(gate) => gate.flops(length) + walks,
            }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        options::BlockOptions,
        testing::{close, normal, parameters},
    };

    /// Forms the mask and the matrix of weights as the formula has them.
    #[test]
    fn two_walks_are_the_weights_of_the_formula() {
        const LENGTH: usize = 6;
        let parameters = parameters();
        let block = BlockOptions {
            dim: 3,
            qkv_dim: 3,
            heads: 1,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mixer = Lion::new(&layer, Decays::Selective, DecayInit::Hippo).unwrap();
        let x = normal("x", &[1, LENGTH, 3]);
        let rows = |x: Tensor| x.squeeze(0).unwrap().to_vec2::<f64>().unwrap();
        let features =
            |linear: &Linear| rows(mixer.features(&linear.forward(&x).unwrap()).unwrap());
        let (q, k) = (features(&mixer.query), features(&mixer.key));
        let v = rows(mixer.value.forward(&x).unwrap());
        let Gate::Selective(gate) = &mixer.gate else {
            panic!("a gate of every token");
        };
        let decays = rows(softplus(&gate.forward(&x).unwrap()).unwrap());
        let decay = |t: usize, c: usize| (-decays[t][c]).exp();
        let mut expected = vec![vec![0.0; 3]; LENGTH];
        for i in 0..LENGTH {
            let weight = |j: usize| -> f64 {
                let between = if j < i { j..i } else { i + 1..j + 1 };
                let kept = |c| between.clone().map(|t| decay(t, c)).product::<f64>();
                (0..3).map(|c| q[i][c] * k[j][c] * kept(c)).sum()
            };
            let total: f64 = (0..LENGTH).map(weight).sum();
            for e in 0..3 {
                expected[i][e] = (0..LENGTH).map(|j| weight(j) * v[j][e]).sum::<f64>() / total;
            }
        }
        let expected = Tensor::new(vec![expected], &Device::Cpu).unwrap();
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        let actual = mixer.forward(&x, &pass).unwrap();
        close(
            &actual,
            &mixer.output.forward(&expected).unwrap(),
            1e-12,
            "lion",
        );
    }
}
