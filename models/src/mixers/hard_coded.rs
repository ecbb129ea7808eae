//! Hard-coded Gaussian heads. You, Sun & Iyyer, 2020, "Hard-Coded Gaussian Attention for Neural
//! Machine Translation", arXiv:2005.00742.
//!     y_i = Σ_j N(j; i + o_h, s²) v_j,  N(j; c, s²) = exp(-(j - c)² / (2 s²)) / (s √(2π))
//! v, y (B, H, L, E). There are no queries and no keys. The density is not renormalised, so the
//! weights of positions near an end sum to less than one. Time O(L·s·E) per head, memory O(L·E).
//! Densities beyond 5 s, less than 2e-6 / s, are left out, so this is a convolution with fixed
//! weights. No dropout on the weights, since they are fixed. No biases.
//!
//! # Options
//!
//! Heads alternate between o_h = -`offset` and o_h = `offset` (1); s: `deviation` (1).
//!
//! # Padding
//!
//! Padded positions have v = 0.
//!
//! # Departures
//!
//! Blocks are pre-norm with gelu, in the authors' code post-norm with relu (new_transformer.py:40).
//! The feed-forward network begins Xavier-uniform, in the authors' code with √2 times that in the
//! inner layer (fallcat/stupidNMT@f8331f5 models/new_transformer.py:56-62); its biases begin N(0,
//! 1e-6²), there as 0. The norms' ε is `block.norm_epsilon` = 1e-6, in that code 1e-5
//! (torch.nn.LayerNorm, line 30).

use crate::{
    ops::{Padding, depthwise_conv1d},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hard_coded",
    title: "Hard-Coded Gaussian",
    paper: "Hard-Coded Gaussian Attention for Neural Machine Translation",
    year: 2020,
    arxiv: "2005.00742",
    time: Cost::Linear("O(L·s·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<HardCoded>(include_str!("hard_coded.rs"))],
    ..Model::mixer::<HardCoded>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Distance to the positions that heads look at, to the left or to the right.
    #[option(default = 1, range = int(0, 1000))]
    offset: usize,
    /// s, in positions.
    #[option(default = 1.0, range = positive(1000.0))]
    deviation: f64,
}

struct HardCoded {
    value: Linear,
    output: Linear,
    /// Densities by head and distance from -`reach` to `reach`: a row of 2 `reach` + 1 for each of the
    /// H E channels.
    weights: Tensor,
    reach: usize,
    dim: usize,
}

impl MixerModel for HardCoded {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let Options { offset, deviation } = *options;
        // The reach is at most the number of positions.
        let reach = (5.0 * deviation).ceil() as usize + offset;
        let reach = reach.min(layer.max_length);
        let density = |distance: f64, head: usize| {
            let centre = match head % 2 {
                0 => -(offset as f64),
                _ => offset as f64,
            };
            let x = (distance - centre) / deviation;
            match x.abs() <= 5.0 {
                true => (-0.5 * x * x).exp() / (deviation * std::f64::consts::TAU.sqrt()),
                false => 0.0,
            }
        };
        let mut weights = Vec::with_capacity(block.qkv_dim * (2 * reach + 1));
        for channel in 0..block.qkv_dim {
            let head = channel / block.head_dim();
            weights.extend((0..=2 * reach).map(|tap| density(tap as f64 - reach as f64, head)));
        }
        let weights = Tensor::from_vec(weights, (block.qkv_dim, 2 * reach + 1), vb.device())?;
        Ok(Self {
            value: Linear::new(&vb.pp("value"), block.dim, block.qkv_dim, init, None)?,
            output: Linear::new(&vb.pp("output"), block.qkv_dim, block.dim, init, None)?,
            weights: weights.to_dtype(vb.dtype())?,
            reach,
            dim: block.qkv_dim,
        })
    }
}

impl Mixer for HardCoded {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let v = self.value.forward(x)?; // (B, L, H E)
        let v = match pass.mask() {
            Some(mask) => v.broadcast_mul(&mask.valid().unsqueeze(2)?)?,
            None => v,
        };
        let (left, right) = (self.reach, self.reach);
        let padding = Padding::Zeros { left, right };
        let y = depthwise_conv1d(&v, &self.weights, None, padding, 1)?;
        self.output.forward(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        let taps = 2 * self.reach + 1;
        let linears = self.value.flops(length) + self.output.flops(length);
        linears + 2 * (length * self.dim * taps) as u64
    }
}
