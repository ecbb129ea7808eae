//! minGRU. Feng et al., 2024, "Were RNNs All We Needed?", arXiv:2410.01201.
//!     h_t = (1 - z_t) ⊙ h_(t-1) + z_t ⊙ g(u_t),  z = σ(x W_z + b),  u = x W_u,  g(u) = u + ½ for u ≥ 0 and σ(u) below,  out = h W_o
//! B batch, L length, D width, D' inner width; x, out (B, L, D), z, u, h (B, L, D'). States are
//! positive and averages of what came before, so that a scan over the length computes them. All is
//! causal: a position sees those before it. Time and memory O(L·D'). g is that of the paper's
//! appendix on stability. g and the inner width were read in lucidrains/minGRU-pytorch@2707433
//! minGRU_pytorch/minGRU.py and minGRULM.py. Weights begin uniform within inputs^-½. Its authors
//! have not run this benchmark.
//!
//! # Options
//!
//! `width` D' (0: 3/2 D, rounded up); `memory` τ (0): b starts such that states average over 1 to τ
//! positions, evenly in the logarithm; 0 starts with b = 0, an average over two positions.
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padding has z = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! The package minGRU-pytorch has no b, and rounds the inner width down. Its convolution before the
//! layer, off by default, is left out. The feed-forward network begins Xavier-uniform (±0.177 at D
//! = 64 and a width of 128) with biases N(0, 1e-6²); there uniform within inputs^-½ (±0.125 and
//! ±0.088), biases too (minGRULM.py:21-25). The package's norm divides rows by their length, 1e-12
//! at least (minGRULM.py:17); here `block.norm_epsilon` = 1e-6 is added to the mean of squares. In
//! the authors' code (BorealisAI/minRNNs@ff52e9d models/minRNNs.py, class minGRU) all three linear
//! maps have biases, which begin uniform within inputs^-½, too, and states may begin from g of a
//! learned vector, N(0, 1) at first; here they begin from 0.

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::Linear,
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        ScanOptions,
        activation::{relu, sigmoid},
        scan_packed,
    },
    options::WIDEST,
    params::{Attributes, fan_in_uniform},
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "min_gru",
    title: "minGRU",
    paper: "Were RNNs All We Needed?",
    year: 2024,
    arxiv: "2410.01201",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"norm": "rms"}}"#,
    variants: &[Variant::paper(build, include_str!("min_gru.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// D'.
    #[option(range = int(0, WIDEST))]
    width: usize,
    /// τ.
    #[option(range = not_negative)]
    memory: f64,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(MinGru::new(layer, &options)?))
    })
}

struct MinGru {
    /// W_u.
    inner: Linear,
    /// W_z and b.
    gate: Linear,
    /// W_o.
    outer: Linear,
}

impl MinGru {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let width = match options.width {
            0 => (3 * dim).div_ceil(2),
            width => width,
        };
        let (gate, memory) = (vb.pp("gate"), options.memory);
        let biases = |stream: &Stream| closed(stream, width, memory);
        gate.get_with_values(width, "bias", Attributes::NO_DECAY, biases)?;
        let init = fan_in_uniform(dim);
        Ok(Self {
            inner: Linear::new(&vb.pp("inner"), dim, width, init, None)?,
            gate: Linear::new(&gate, dim, width, init, Some(Init::Const(0.0)))?,
            outer: Linear::new(&vb.pp("outer"), width, dim, fan_in_uniform(width), None)?,
        })
    }
}

/// Returns `width` numbers b with σ(b) = 1/t, for t from 1 to `memory` positions, evenly in the
/// logarithm; zeros if `memory` is 0.
pub(super) fn closed(stream: &Stream, width: usize, memory: f64) -> Vec<f64> {
    let shares = stream.uniform(1, width).into_iter();
    // At least 1.001, of which b is finite.
    let times = shares.map(|share| memory.max(1.0).powf(share).max(1.001));
    match memory > 0.0 {
        true => times.map(|time| -(time - 1.0).ln()).collect(),
        false => vec![0.0; width],
    }
}

/// Returns g(u): u + ½ where u ≥ 0, and σ(u) elsewhere.
pub(super) fn positive(u: &Tensor) -> Result<Tensor> {
    let below = relu(&u.neg()?, 0.0)?.neg()?;
    Ok((relu(u, 0.0)? + sigmoid(&below)?)?)
}

impl Mixer for MinGru {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let z = zero_padding(&sigmoid(&self.gate.forward(x)?)?, pass.mask())?;
        let input = (&z * positive(&self.inner.forward(x)?)?)?;
        let kept = z.affine(-1.0, 1.0)?;
        let h = scan_packed(&input, &kept, ScanOptions::default(), pass.packing())?;
        self.outer.forward(&h)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.inner, &self.gate, &self.outer];
        linears.map(|linear| linear.flops(length)).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        options::BlockOptions,
        testing::{close, parameters},
    };

    #[test]
    fn states_are_made_of_positive_numbers() {
        let u = Tensor::new(&[-40.0, -1.0, 0.0, 2.0f64], &Device::Cpu).unwrap();
        let expected = [(-40f64).exp(), 1.0 / (1.0 + 1f64.exp()), 0.5, 2.5];
        let expected = Tensor::new(&expected, &Device::Cpu).unwrap();
        close(&positive(&u).unwrap(), &expected, 1e-15, "g");
    }

    #[test]
    fn gates_begin_with_the_memory_that_is_asked_for() {
        let block = BlockOptions {
            dim: 64,
            ..BlockOptions::default()
        };
        for (memory, range) in [(0.0, 1.9..2.1), (1000.0, 1.0..1001.0)] {
            let parameters = parameters();
            let layer = LayerContext::new(parameters.builder(), &block, 9);
            let options = Options {
                memory,
                ..Options::default()
            };
            let mixer = MinGru::new(&layer, &options).unwrap();
            let bias = mixer.gate.operands().1.unwrap();
            let times = sigmoid(bias).unwrap().recip().unwrap();
            let times: Vec<f64> = times.to_vec1().unwrap();
            assert!(times.len() == 96 && times.iter().all(|time| range.contains(time)));
            let long = times.iter().filter(|time| **time > 31.6).count();
            assert_eq!(long > 30, memory > 0.0, "half of them beyond the root");
        }
    }
}
