//! DeltaNet. Yang et al., 2024, "Parallelizing Linear Transformers with the Delta Rule over
//! Sequence Length", arXiv:2406.06484.
//!     S_t = S_(t-1) + β_t k_t (v_t - S_(t-1)ᵀ k_t)ᵀ,  y_t = S_tᵀ q_t E^-½,  out = W_o RMSNorm(y)
//!     q, k = unit(SiLU(conv(x W_q))), unit(SiLU(conv(x W_k))),  v = SiLU(conv(x W_v)),  β = σ(x W_β)
//! B batch, L length, D width, H heads of width E; q, k, v, y (B, L, H, E), β (B, L, H), S (H, E,
//! E); x, out (B, L, D); conv a causal convolution of each channel, W = `taps`, without a bias;
//! unit(z) = z (|z|² + 1e-6)^-½ for each head's vector z. A key takes the share β of what the state
//! holds for it away first. All is causal: a position sees those before it. Time O(L·E²) per head,
//! in chunks whose writes are solved for at once; memory O(L·E). Read in
//! flash-linear-attention@bc3b101 fla/layers/delta_net.py; the norm of each head has one gain for
//! all of them, and a SwiGLU follows, with 4 heads. Weights begin uniform within inputs^-½. Its
//! authors have not run this benchmark.
//!
//! # Options
//!
//! `taps` W (4); `negative` doubles β, so that the state may turn its sign along a key (Grazzi et
//! al., 2024, arXiv:2411.12537). `direction`: `forward`; `sum` adds a second pass from the end with
//! the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padding has k = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! In the published language model all linear maps and convolutions begin N(0, 0.02²), biases as 0,
//! and the SwiGLU has no biases (fla/models/delta_net/modeling_delta_net.py, _init_weights;
//! fla/modules/mlp.py); here they begin as in the layer alone, uniform within inputs^-½ (±0.125 at
//! D = 64), and the SwiGLU Xavier-uniform (±0.177 at a width of 128) with biases N(0, 1e-6²). The
//! heads' norms have the ε of the block's, `block.norm_epsilon` = 1e-6, as in that language model;
//! the layer alone has 1e-5.

use candle_core::Tensor;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{GatedHeadSizes, GatedHeads, Linear, ShortConv, by_head, unit_heads},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::sigmoid,
        gated_linear_attention::{self, gated_linear_attention},
    },
    params::fan_in_uniform,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "deltanet",
    title: "DeltaNet",
    paper: "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
    year: 2024,
    arxiv: "2406.06484",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"gate": "glu", "activation": "silu", "norm": "rms"}
    }"#,
    variants: &[Variant::paper(build, include_str!("deltanet.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    negative: bool,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(DeltaNet::new(layer, &options)?))
    })
}

struct DeltaNet {
    /// Projections and convolutions of q, k and v.
    inputs: [(Linear, ShortConv); 3],
    /// W_β.
    rate: Linear,
    output: GatedHeads,
    /// The largest β.
    most: f64,
    heads: usize,
    /// E.
    width: usize,
}

impl DeltaNet {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, row, heads) = (block.dim, block.qkv_dim, block.heads);
        let linear = |vb, outputs| Linear::new(&vb, dim, outputs, fan_in_uniform(dim), None);
        let input = |name: &str| -> Result<(Linear, ShortConv)> {
            let at = vb.pp(name);
            let conv = ShortConv::new(&at.pp("conv"), row, options.taps, false)?;
            Ok((linear(at, row)?, conv))
        };
        let sizes = GatedHeadSizes {
            dim,
            heads,
            values: block.head_dim(),
        };
        Ok(Self {
            inputs: [input("query")?, input("key")?, input("value")?],
            rate: linear(vb.pp("rate"), heads)?,
            output: GatedHeads::new(vb, sizes, block.norm_epsilon, false)?,
            most: if options.negative { 2.0 } else { 1.0 },
            heads,
            width: block.head_dim(),
        })
    }
}

impl Mixer for DeltaNet {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let input = |index: usize| -> Result<Tensor> {
            let (linear, conv) = &self.inputs[index];
            conv.forward(&linear.forward(x)?, pass)
        };
        let unit = |x: &Tensor| unit_heads(x, self.width);
        let q = unit(&input(0)?)?.affine((self.width as f64).powf(-0.5), 0.0)?;
        let k = zero_padding(&unit(&input(1)?)?, pass.mask())?;
        let v = input(2)?;
        let delta = sigmoid(&self.rate.forward(x)?)?.affine(self.most, 0.0)?;
        let options = GatedLinearAttentionOptions {
            delta: Some(&delta),
            ..Default::default()
        };
        let [q, k, v] = [q, k, v].map(|x| by_head(&x, self.heads));
        let y = gated_linear_attention(&q?, &k?, &v?, &options)?;
        self.output.forward(&y, x)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let (heads, width) = (self.heads, self.width);
        let inputs = self.inputs.iter().map(|(linear, _)| linear.flops(length));
        inputs.sum::<u64>()
            + self.rate.flops(length)
            + gated_linear_attention::flops(length, heads, width, width)
            + gated_linear_attention::flops_of_delta(length, heads, width, width)
            + self.output.flops(length)
    }
}
