//! CDIL-CNN. Cheng, Khalitov, Yu, Zhang, Yang, 2022, "Classification of long sequential data using
//! circular dilated convolutional neural networks", Neurocomputing 518, 50-59, arXiv:2201.02143.
//!     x ← x + relu(b + Σ_j w_j x_(t + (j-(κ-1)/2) 2^i)),   w_o = g_o v_o / |v_o|
//! i = 0, 1, .. the layer, κ taps that lie 2^i positions apart, circularly: behind the last
//! position comes the first. B batch, L length, D width; x (B, L, D), v (D, D, κ) with rows v_o of
//! an output, g, b (D). With n layers such that (κ-1) 2ⁿ is at least N, the longest length, each
//! position has seen all others but at most κ - 2. Nothing else: no norm, no feed-forward network,
//! no dropout, no positions. Time O(L·log N·κ·D), memory O(L·log N·κ). Read in
//! LeiCheng-no/CDIL-CNN@18639fe experiments/Models/net_conv.py; experiments/_2lra/lra_config.py has
//! κ = 3, D = 64, 9 layers for 1,024 positions and 11 for 4,000, batches of 32 (Image, Text) and
//! 256 (Pathfinder, Retrieval), 100 epochs of Adam at 1e-3, the mean over positions and one linear
//! layer. v begins uniform within (κ D)^-½ and g as its lengths, so that w is v at first; b is N(0,
//! 0.01²). The authors' code draws w anew from N(0, 0.01²), too, but computes it from v and g again
//! before it is used.
//!
//! # Options
//!
//! `layers` (0: n, the paper's rule, regardless of `block.layers`); `kernel` κ, odd.
//!
//! # Padding
//!
//! A sequence is a circle of its valid positions only, so no padding enters.
//!
//! # Departures
//!
//! The published code closes the circle behind all L positions of a batch, padding included, and
//! takes the mean over them.

use crate::{
    ops::{IGNORE_INDEX, activation::relu, l2_normalize, linear},
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "cdil",
    title: "CDIL-CNN",
    paper: "Classification of long sequential data using circular dilated convolutional neural networks",
    year: 2022,
    arxiv: "2201.02143",
    time: Cost::Linear("O(L·log L·D)"),
    memory: Cost::Linear("O(L·log L)"),
    reference: Reference::Equations,
    family: Family::Mixer,
    settings: r#"{
        "embed": {"positions": "none", "dropout": 0.0},
        "block": {"ffn": "none", "norm": "none", "dropout": 0.0},
        "head": {"hidden": 0}
    }"#,
    variants: &[Variant::paper(build, include_str!("cdil.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, MOST_LAYERS))]
    layers: usize,
    /// κ.
    #[option(default = 3, range = int(3, 255))]
    kernel: usize,
}

/// Taps of the last layer lie 2^61 apart.
const MOST_LAYERS: u64 = 62;

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        !options.kernel.is_multiple_of(2),
        "model.kernel",
        options.kernel,
        "odd, as many taps on either side",
    )?;
    let block = BlockOptions {
        layers: match options.layers {
            0 => layers(context.max_length, options.kernel),
            layers => layers,
        },
        ..context.block.clone()
    };
    let context = ModelContext {
        vb: context.vb.clone(),
        block: &block,
        positions: context.positions.clone(),
        ..*context
    };
    encoder::blocks(&context, |layer| Ok(Box::new(Cdil::new(layer, &options)?)))
}

/// Returns the least n, at least 1, with (κ-1) 2ⁿ ≥ N.
fn layers(longest: usize, kernel: usize) -> usize {
    let steps = longest.div_ceil(kernel - 1).next_power_of_two();
    (steps.ilog2() as usize).max(1)
}

struct Cdil {
    /// v (D, D, κ): outputs, inputs, taps.
    weight: Tensor,
    /// g (D).
    gain: Tensor,
    /// b (D).
    bias: Tensor,
    /// Distance of the taps.
    dilation: usize,
}

impl Cdil {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, taps) = (layer.vb.pp("conv"), layer.block.dim, options.kernel);
        let bound = ((dim * taps) as f64).powf(-0.5);
        let numbers = vb.stream("weight");
        // The numbers that v is made of.
        let lengths = |_: &_| {
            let values = numbers.uniform(1, dim * dim * taps);
            let rows = values.chunks(dim * taps);
            let square = |share: &f64| (bound * (2.0 * share - 1.0)).powi(2);
            rows.map(|row| row.iter().map(square).sum::<f64>().sqrt())
                .collect()
        };
        let small = Init::Randn {
            mean: 0.0,
            stdev: 0.01,
        };
        let init = fan_in_uniform(dim * taps);
        Ok(Self {
            weight: vb.get_with_hints((dim, dim, taps), "weight", init)?,
            gain: vb.get_with_values(dim, "gain", Attributes::NO_DECAY, lengths)?,
            bias: vb.get_with_hints(dim, "bias", small)?,
            dilation: 1 << layer.index,
        })
    }

    /// Returns w as (D, κ D), the inputs of a tap side by side.
    fn taps(&self) -> Result<Tensor> {
        let (outputs, inputs, taps) = self.weight.dims3()?;
        let rows = self.weight.reshape((outputs, inputs * taps))?;
        let rows = l2_normalize(&rows, inputs * taps)?;
        let rows = rows.broadcast_mul(&self.gain.unsqueeze(1)?)?;
        let rows = rows.reshape((outputs, inputs, taps))?.transpose(1, 2)?;
        Ok(rows.reshape((outputs, taps * inputs))?)
    }

    /// Returns (B, L κ): the positions that the taps of each position meet.
    fn met(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let taps = self.weight.dim(2)?;
        let circles = Mask::places(mask, (batch, length))?;
        let mut met = vec![IGNORE_INDEX; batch * length * taps];
        for (circle, met) in circles.iter().zip(met.chunks_mut(length * taps)) {
            let Some(step) = self.dilation.checked_rem(circle.len()) else {
                continue;
            };
            for (place, at) in circle.iter().enumerate() {
                for tap in 0..taps {
                    // The middle tap meets the position itself.
                    let ahead = step * (tap + circle.len() - taps / 2 % circle.len());
                    let other = circle[(place + ahead) % circle.len()];
                    met[at * taps + tap] = other as u32;
                }
            }
        }
        Ok(Tensor::from_vec(met, (batch, length * taps), x.device())?)
    }
}

impl Mixer for Cdil {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, dim) = x.dims3()?;
        let met = take(x, &self.met(x, pass.mask())?)?;
        let met = met.reshape((batch, length, met.dim(1)? / length * dim))?;
        relu(&linear(&met, &self.taps()?, Some(&self.bias))?, 0.0)
    }

    fn flops(&self, length: usize) -> u64 {
        2 * length as u64 * self.weight.elem_count() as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;
    use crate::testing::{check_layer, close, normal, parameters, pass};

    fn block(dim: usize) -> BlockOptions {
        BlockOptions {
            dim,
            ..BlockOptions::default()
        }
    }

    #[test]
    fn layers_are_as_many_as_the_authors_have() {
        assert_eq!([1024, 4000].map(|longest| layers(longest, 3)), [9, 11]);
        assert_eq!([1, 2, 5].map(|longest| layers(longest, 3)), [1, 1, 2]);
        assert_eq!(layers(1 << 20, 5), 18);
    }

    #[test]
    fn taps_meet_positions_around_the_circle() {
        let (parameters, block) = (parameters(), block(2));
        let layer = LayerContext {
            index: 1,
            ..LayerContext::new(parameters.builder(), &block, 9)
        };
        let options = Options {
            kernel: 5,
            ..Options::default()
        };
        let cdil = Cdil::new(&layer, &options).unwrap();
        let valid = [[1.0, 1.0, 0.0, 1.0, 0.0], [0.0; 5]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let met = cdil.met(&normal("x", &[2, 5, 2]), Some(&mask)).unwrap();
        let met: Vec<Vec<u32>> = met.to_vec2().unwrap();
        // Places 0, 1 and 2 of the circle are positions 0, 1 and 3; taps at -4, -2, 0, 2 and 4.
        let none = [IGNORE_INDEX; 5];
        let expected = [
            [3, 1, 0, 3, 1],
            [0, 3, 1, 0, 3],
            none,
            [1, 0, 3, 1, 0],
            none,
        ];
        assert_eq!(met[0], expected.concat());
        assert!(met[1].iter().all(|at| *at == IGNORE_INDEX));
    }

    #[test]
    fn the_last_layer_has_seen_every_position_but_at_most_one() {
        for (length, unseen) in [(1, 0), (2, 0), (5, 0), (15, 0), (16, 1), (19, 0)] {
            let (parameters, block) = (parameters(), block(5));
            let options = MODEL.defaults();
            let vb = parameters.builder();
            let context = ModelContext::new(vb, &block, &MODEL, &options, length);
            let encoder = MODEL.build(&context).unwrap();
            // Biases so large that no relu stops a gradient.
            for (_, bias) in parameters
                .all()
                .iter()
                .filter(|(path, _)| path.ends_with("bias"))
            {
                bias.set(&bias.ones_like().unwrap().affine(1e3, 0.0).unwrap())
                    .unwrap();
            }
            let x = Var::from_tensor(&normal("x", &[1, length, 5])).unwrap();
            let y = encoder.forward(&x, &pass()).unwrap().hidden;
            let one = (y.narrow(1, 0, 1).unwrap() * normal("weights", &[1, 1, 5])).unwrap();
            let gradients = one.sum_all().unwrap().backward().unwrap();
            let rows = gradients.get(&x).unwrap().get(0).unwrap();
            let rows = rows.to_vec2::<f64>().unwrap();
            let zeros = rows.iter().filter(|row| row.iter().all(|x| *x == 0.0));
            assert_eq!(zeros.count(), unseen, "length {length}");
        }
    }

    #[test]
    fn weights_begin_as_their_directions() {
        let (parameters, block) = (parameters(), block(4));
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let cdil = Cdil::new(&layer, &Options::default()).unwrap();
        let expected = cdil.weight.transpose(1, 2).unwrap();
        let expected = expected.reshape((4, 12)).unwrap();
        close(&cdil.taps().unwrap(), &expected, 1e-12, "w");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let (parameters, block) = (parameters(), block(3));
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let cdil = Cdil::new(&layer, &Options::default()).unwrap();
        let valid = [[1.0; 4], [1.0, 1.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        check_layer("cdil", &parameters, &[2, 4, 3], |x| {
            cdil.forward(x, &pass().with_mask(Some(&mask)))
        });
    }
}
