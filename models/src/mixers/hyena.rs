//! Hyena. Poli et al., 2023, "Hyena Hierarchy: Towards Larger Convolutional Language Models",
//! arXiv:2302.10866.
//!     [x⁰ | .. | x^(O-1) | v] = conv(x W_in + b),  v ← h^o * (v ⊙ x^i) + s^o ⊙ v ⊙ x^i for i = O-1 .. 1 and o = O-1-i,  out = (x⁰ ⊙ v) W_out + b'
//!     h_t = e^(-τ |δ|) ⊙ f(z_t),  f(z) = W_n σ(.. W₁ σ(W₀ z + b₀) + b₁ ..),  σ(u) = sin(φ ⊙ u),  z_t = (τ, cos 2π k t/N, -sin 2π k t/N)
//! Products of the input between long causal filters that a small network makes of the position. B
//! batch, L length, D width, O = `order`, N the longest length; x, x^i, v, out (B, L, D), conv a
//! causal convolution of each channel over W = `taps` positions, with a bias; h^o, s^o, δ (D) for
//! each of O - 1 filters; t = 0 .. N-1, τ = t/(N-1), k even between 0 and K-1 for 2K + 1 =
//! `positions`; φ (F), W₀ (F, `positions`), W₁ .. (F, F) of `inner` layers, W_n (D, F) for F =
//! `filter_width`. Time O(L·log L), memory O(L). Read in HazyResearch/safari@02220c6
//! standalone_hyena.py and src/models/sequence/hyena.py, with F = 64, `positions` = 33 and φ = 14
//! of configs/experiment/pile/hyena.yaml; δ even between ln 0.01 / 1.5 and ln 0.01 / 0.3 and
//! constant, s N(0, 1), all else as PyTorch's linear layers and convolutions. Its authors have not
//! run this benchmark.
//!
//! # Options
//!
//! `order` O (2), `taps` W (3), `filter_width` F, `positions`, an odd number from 3, `inner` (2),
//! `frequency`, the first φ. `direction`: `forward`; `sum` adds a second pass from the end with the
//! same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padded positions are zeros to the convolution and to the filters.
//!
//! # Departures
//!
//! z is learned in the published code, there with a rate of its own; it is constant here. There,
//! nothing of the filter decays; here its matrices do, where no group of `train.groups` says
//! otherwise. The published language model begins all linear weights again, N(0, 0.02²), or N(0,
//! 0.02²/(2n)) where n layers add to the residual, and their biases as 0
//! (src/models/sequence/simple_lm.py:356-375); here those of the layer begin uniform within
//! inputs^-½ (±0.125 at D = 64) as in the layer alone, biases too, and those of the feed-forward
//! network Xavier-uniform (±0.177 at a width of 128) with biases N(0, 1e-6²). The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the published code 1e-5 (src/models/sequence/simple_lm.py:337).
//! From `order` 3 on, filters are laid out as in standalone_hyena.py, one after the other from slow
//! to fast; in src/models/sequence/hyena.py each spans all of it.

use std::f64::consts::TAU;

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::convolve,
    ops::{Padding, columns, depthwise_conv1d},
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hyena",
    title: "Hyena",
    paper: "Hyena Hierarchy: Towards Larger Convolutional Language Models",
    year: 2023,
    arxiv: "2302.10866",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("hyena.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// O.
    #[option(default = 2, range = int(2, 64))]
    order: usize,
    /// W.
    #[option(default = 3, range = int(1, 1024))]
    taps: usize,
    /// F.
    #[option(default = 64, range = int(1, WIDEST))]
    filter_width: usize,
    #[option(default = 33, range = int(3, 1023))]
    positions: usize,
    #[option(default = 2, range = int(0, 64))]
    inner: usize,
    #[option(default = 14.0, range = positive(1e4))]
    frequency: f64,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        !options.positions.is_multiple_of(2),
        "model.positions",
        options.positions,
        "an odd number: the position itself, and pairs of a cosine and a sine",
    )?;
    let places = places(&context.vb, context.max_length, options.positions)?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Hyena::new(layer, &places, &options)?))
    })
}

/// Returns z (N, `count`), the features of each of `longest` positions, which all layers share.
fn places(vb: &VarBuilder, longest: usize, count: usize) -> Result<Tensor> {
    let end = (longest - 1).max(1) as f64;
    let bands = (count - 1) / 2;
    // As torch.linspace(1e-4, K - 1, K).
    let band = move |at: usize| {
        let share = at as f64 / (bands - 1).max(1) as f64;
        1e-4 + share * (bands as f64 - 1.0 - 1e-4)
    };
    let place = |t: usize| {
        let angle = move |at: usize| band(at) * TAU * t as f64 / longest as f64;
        let cosines = (0..bands).map(move |at| angle(at).cos());
        let sines = (0..bands).map(move |at| -angle(at).sin());
        [t as f64 / end].into_iter().chain(cosines).chain(sines)
    };
    let places: Vec<f64> = (0..longest).flat_map(place).collect();
    Ok(Tensor::from_vec(places, (longest, count), vb.device())?.to_dtype(vb.dtype())?)
}

struct Hyena {
    /// W_in.
    inner: Linear,
    /// Weights (taps) and bias of each channel's convolution.
    conv: (Tensor, Tensor),
    filter: Filter,
    /// s of each filter, (O - 1, D).
    skip: Tensor,
    /// W_out.
    outer: Linear,
    dim: usize,
}

impl Hyena {
    fn new(layer: &LayerContext, places: &Tensor, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let (width, filters) = (dim * (options.order + 1), options.order - 1);
        let linear = |name: &str, outputs: usize| {
            let init = fan_in_uniform(dim);
            Linear::new(&vb.pp(name), dim, outputs, init, Some(init))
        };
        let taps = fan_in_uniform(options.taps);
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        Ok(Self {
            inner: linear("inner", width)?,
            conv: (
                vb.get_with_hints((width, options.taps), "conv.weight", taps)?,
                vb.get_with_hints(width, "conv.bias", taps)?,
            ),
            filter: Filter::new(&vb.pp("filter"), filters * dim, places, options)?,
            skip: vb.get_with_attributes((filters, dim), "skip", normal, Attributes::NO_DECAY)?,
            outer: linear("outer", dim)?,
            dim,
        })
    }
}

/// The network that makes filters of positions.
struct Filter {
    /// z (N, `positions`).
    places: Tensor,
    /// τ (N, 1).
    time: Tensor,
    /// W₀ and the layers behind it, with their biases.
    layers: Vec<Linear>,
    /// φ (F).
    frequency: Tensor,
    /// W_n.
    last: Linear,
    /// -|δ| (1, filters · D).
    decay: Tensor,
}

impl Filter {
    fn new(vb: &VarBuilder, outputs: usize, places: &Tensor, options: &Options) -> Result<Self> {
        let (width, inputs) = (options.filter_width, options.positions);
        let (dtype, device) = (vb.dtype(), vb.device());
        let [slow, fast] = [1.5, 0.3].map(|share| 0.01f64.ln() / share);
        let decay = |at: usize| slow + (fast - slow) * at as f64 / (outputs - 1).max(1) as f64;
        let decay: Vec<f64> = (0..outputs).map(decay).collect();
        let layer = |at: usize| {
            let inputs = if at == 0 { inputs } else { width };
            let (vb, init) = (vb.pp(at), fan_in_uniform(inputs));
            Linear::new(&vb, inputs, width, init, Some(init))
        };
        Ok(Self {
            time: places.narrow(1, 0, 1)?.contiguous()?,
            places: places.clone(),
            layers: (0..=options.inner).map(layer).collect::<Result<_>>()?,
            frequency: vb.get_with_hints(width, "frequency", Init::Const(options.frequency))?,
            last: Linear::new(&vb.pp("last"), width, outputs, fan_in_uniform(width), None)?,
            decay: Tensor::from_vec(decay, (1, outputs), device)?.to_dtype(dtype)?,
        })
    }

    /// Counts the operations for so many positions.
    fn flops(&self, taps: usize) -> u64 {
        let layers = self.layers.iter().chain([&self.last]);
        layers.map(|layer| layer.flops(taps)).sum()
    }

    /// Returns the first `taps` numbers of all filters, (filters · D, taps).
    fn forward(&self, taps: usize) -> Result<Tensor> {
        let mut z = self.places.narrow(0, 0, taps)?.unsqueeze(0)?;
        for layer in &self.layers {
            z = layer.forward(&z)?.broadcast_mul(&self.frequency)?.sin()?;
        }
        let filters = self.last.forward(&z)?.squeeze(0)?; // (taps, filters · D)
        let time = self.time.narrow(0, 0, taps)?;
        let fade = time.broadcast_mul(&self.decay)?.exp()?;
        Ok((filters * fade)?.t()?.contiguous()?)
    }
}

impl Mixer for Hyena {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let dim = self.dim;
        let all = zero_padding(&self.inner.forward(x)?, pass.mask())?;
        let (weight, bias) = &self.conv;
        let all = depthwise_conv1d(&all, weight, Some(bias), Padding::Causal, 1)?;
        let all = zero_padding(&all, pass.mask())?;
        let count = self.skip.dim(0)?;
        let taps = x.dim(1)?.min(self.filter.places.dim(0)?);
        let filters = self.filter.forward(taps)?;
        let mut v = columns(&all, (count + 1) * dim, dim)?;
        for filter in 0..count {
            let gate = columns(&all, (count - filter) * dim, dim)?;
            let u = (v * gate)?;
            let kernel = filters.narrow(0, filter * dim, dim)?.contiguous()?;
            v = convolve(&u, &kernel, 1, Some(&self.skip.get(filter)?))?;
        }
        self.outer.forward(&(v * columns(&all, 0, dim)?)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    /// Counts the projections, transforms of twice the length, and the network of the filters,
    /// which runs once for a batch.
    fn flops(&self, length: usize) -> u64 {
        let numbers = (length * self.skip.elem_count()) as f64;
        let transforms = 20.0 * numbers * (2.0 * length as f64).log2();
        let linears = self.inner.flops(length) + self.outer.flops(length);
        linears + transforms as u64 + self.filter.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters, pass};

    #[test]
    fn gradients_agree_with_differences() {
        for order in [2, 3] {
            let parameters = parameters();
            let block = BlockOptions {
                dim: 2,
                ..BlockOptions::default()
            };
            let layer = LayerContext::new(parameters.builder(), &block, 5);
            let options = Options {
                order,
                filter_width: 3,
                positions: 5,
                frequency: 1.0,
                ..Options::default()
            };
            let places = places(&layer.vb, layer.max_length, options.positions).unwrap();
            let mixer = Hyena::new(&layer, &places, &options).unwrap();
            check_layer("hyena", &parameters, &[2, 4, 2], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}
