//! ChordMixer. Khalitov et al., 2022, "ChordMixer: A Scalable Neural Attention Model for Sequences
//! with Different Lengths", arXiv:2206.05852.
//!     x ← norm'(x + roll(W₂ gelu(W₁ norm(x) + b₁) + b₂))
//! roll: the channels are split into tracks. Track 0 stays in place. In track i, position t
//! receives the value at t + 2^(i-1), wrapping around the end. With n = ⌈log₂ N⌉ layers and n + 1
//! tracks, N the longest length, each position has seen all others. B batch, L length, D width, F
//! hidden width; x (B, L, D), W₁ (F, D), W₂ (D, F). Time O(L·log N·D·F), memory O(L·log N·D). There
//! is no attention, and positions are not encoded: only products and a shifted copy. Dropout after
//! gelu and on the input of roll. Weights are Xavier-uniform, biases 0.
//!
//! # Options
//!
//! `layers` (0: n, the paper's value, regardless of `block.layers`); `track` T, channels of a track
//! (0: D / (n + 1), as even as possible; in the paper D is (n + 1)·T), the last track takes the
//! rest; `norm_after` norm', any value of `block.norm`. norm is `block.norm`, F is `block.mlp_dim`,
//! gelu is `block.activation`.
//!
//! # Padding
//!
//! A row is rolled over its valid positions only, so no padding enters.
//!
//! # Departures
//!
//! The published code rolls all L positions of a batch, padding included, and pools over them:
//! variant `padded`, whose norms count padding too, `batch_masked` like `batch`. It equals the
//! published code if batches are padded to N, except for the embedding of id 0, which is not zero
//! here. The published norms are LayerNorm and BatchNorm on texts, BatchNorm twice on images. The
//! published code has two dropouts, each with a rate of its own, on the input of roll
//! (RuslanKhalitov/ChordMixer@b46a994 models/chordmixer.py:46, 237); here there is one. Initial
//! values are those of its lines 409-420, and the norms' ε, 1e-5, is that of torch.nn.LayerNorm and
//! BatchNorm1d, as there. Its mode for sequences of several lengths (`var_len`, lines 142-190 and
//! 292-301) rolls each over its own positions, like the form here, but has only as many layers as
//! the first sequence of a batch needs, ⌈log₂ l⌉; here n is the same for all. Its norm GN is not
//! here.

use std::sync::Arc;

use crate::{
    Encoded,
    block::norm::Norm,
    layers::{FeedForward, FusedSublayer},
    ops::{Rings, Track},
    options::{ChannelKind, NormKind, NormPlace},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "chordmixer",
    title: "ChordMixer",
    paper: "ChordMixer: A Scalable Neural Attention Model for Sequences with Different Lengths",
    year: 2022,
    arxiv: "2206.05852",
    time: Cost::Linear("O(L·log L·D)"),
    memory: Cost::Linear("O(L·log L)"),
    reference: Reference::Equations,
    family: Family::Mixer,
    settings: r#"{
        "embed": {"positions": "none", "dropout": 0.0},
        "block": {"activation": "gelu_erf", "norm_epsilon": 1e-5},
        "head": {"hidden": 0}
    }"#,
    variants: &[
        Variant::paper(
            |context| build(context, true),
            include_str!("chordmixer.rs"),
        ),
        Variant {
            name: "padded",
            masks_padding: false,
            ..Variant::paper(
                |context| build(context, false),
                include_str!("chordmixer.rs"),
            )
        },
    ],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, 1000))]
    layers: usize,
    #[option(range = int(0, WIDEST))]
    track: usize,
    #[option(default = NormKind::Layer)]
    norm_after: NormKind,
}

/// Shifts are powers of two, up to 2^62.
const MOST_TRACKS: usize = 64;

fn build(context: &ModelContext, masks: bool) -> Result<Box<dyn Encoder>> {
    let (options, block): (Options, _) = (context.options()?, context.block);
    check(context)?;
    // n, at least 1.
    let hops = context.max_length.max(2).next_power_of_two().ilog2() as usize;
    let count = match options.layers {
        0 => hops,
        layers => layers,
    };
    let layer = |index| {
        let vb = context.vb.layer(index, block.share);
        Layer::new(&vb, block, options.norm_after)
    };
    Ok(Box::new(ChordMixer {
        layers: (0..count).map(layer).collect::<Result<_>>()?,
        tracks: tracks(block.dim, options.track, hops + 1)?,
        masks,
        shared: block.share,
    }))
}

/// Refuses options that its layers, which are no residual blocks of the usual kind, cannot have.
fn check(context: &ModelContext) -> Result<()> {
    const REASON: &str = "because a layer is one rolled network and nothing else";
    let block = context.block;
    require(
        block.ffn == ChannelKind::Dense,
        "block.ffn",
        to_json(&block.ffn),
        format!("dense, {REASON}"),
    )?;
    require(
        block.norm_place == NormPlace::Pre,
        "block.norm_place",
        "post",
        "pre: model.norm_after is the norm behind the sum",
    )?;
    context.refuse_block_axes(REASON)
}

/// Divides channels into tracks of `size`, or into `count` tracks of sizes as equal as possible.
fn tracks(dim: usize, size: usize, count: usize) -> Result<Arc<[Track]>> {
    let count = match size {
        0 => count,
        size => dim.div_ceil(size),
    };
    let least = dim.div_ceil(MOST_TRACKS);
    let allowed = format!("0 or at least {least}, which makes {MOST_TRACKS} tracks");
    require(count <= MOST_TRACKS, "model.track", size, allowed)?;
    let start = |track: usize| match size {
        0 => track * dim / count,
        size => (track * size).min(dim),
    };
    let track = |index: usize| Track {
        start: start(index),
        width: start(index + 1) - start(index),
        shift: (1 << index) >> 1,
    };
    Ok((0..count).map(track).collect())
}

struct ChordMixer {
    layers: Vec<Layer>,
    tracks: Arc<[Track]>,
    /// Whether padding is in no ring.
    masks: bool,
    /// True if all layers have the same weights.
    shared: bool,
}

impl Encoder for ChordMixer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let mask = pass.mask().filter(|_| self.masks);
        let pass = pass.with_mask(mask);
        let (batch, length, _) = x.dims3()?;
        let rings = Rings::new(batch, length, mask.map(Mask::valid))?;
        let mut x = x.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            let pass = match self.shared {
                true => pass.of_repetition(index),
                false => pass,
            };
            let y = layer.network(&x, &pass)?;
            let sum = ops::add_rolled(&x, &y, &self.tracks, &rings)?;
            x = layer.norm_after.forward(&sum, &pass)?;
        }
        Ok(Encoded {
            hidden: x,
            mask: mask.cloned(),
        })
    }

    fn flops(&self, length: usize) -> u64 {
        let layers = self.layers.iter().map(|layer| layer.network.flops(length));
        layers.fold(0, u64::saturating_add)
    }
}

struct Layer {
    norm: Norm,
    /// W₁, b₁, W₂ and b₂.
    network: FeedForward,
    dropout: Dropout,
    norm_after: Norm,
}

impl Layer {
    fn new(vb: &VarBuilder, block: &BlockOptions, norm_after: NormKind) -> Result<Self> {
        let weight = xavier_uniform(block.dim, block.mlp_dim);
        let after = BlockOptions {
            norm: norm_after,
            ..block.clone()
        };
        Ok(Self {
            norm: Norm::new(&vb.pp("norm"), block)?,
            network: FeedForward::drawn(vb, block, weight, Init::Const(0.0))?,
            dropout: Dropout::new(&vb.pp("outer_drop"), block.dropout),
            norm_after: Norm::new(&vb.pp("norm_after"), &after)?,
        })
    }

    /// Returns the network's output (B, L, D), which is rolled next.
    fn network(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (norm, x) = match &self.norm {
            Norm::Layer(norm) => (Some(norm), x.clone()),
            norm => (None, norm.forward(x, pass)?),
        };
        let around = FusedSublayer {
            norm,
            dropout: Some(&self.dropout),
            residual: false,
        };
        self.network.forward(&x, around, pass)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};
    use serde_json::json;

    use super::*;
    use crate::{
        Parameters, RngKey,
        options::Activation,
        testing::{check_layer, close, normal, parameters},
    };

    fn encoder(
        parameters: &Parameters,
        block: &BlockOptions,
        options: serde_json::Value,
        longest: usize,
    ) -> Box<dyn Encoder> {
        let mut all = MODEL.defaults();
        crate::options::overlay(&mut all, &options);
        let vb = parameters.builder();
        let context = ModelContext::new(vb, block, &MODEL, &all, longest);
        MODEL.build(&context).unwrap()
    }

    fn block(dim: usize, mlp_dim: usize) -> BlockOptions {
        BlockOptions {
            dim,
            mlp_dim,
            activation: Activation::GeluErf,
            ..BlockOptions::default()
        }
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    fn mask() -> Mask {
        let valid = [
            [1.0; 6],
            [1.0, 1.0, 1.0, 1.0, 0.0, 0.0],
            [0.0, 1.0, 0.0, 1.0, 1.0, 0.0],
        ];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn the_last_layer_has_seen_every_position() {
        for length in [1, 2, 3, 13, 16, 17] {
            let parameters = parameters();
            let encoder = encoder(&parameters, &block(6, 7), json!({}), length);
            let x = Var::from_tensor(&normal("x", &[1, length, 6])).unwrap();
            let y = encoder.forward(&x, &pass()).unwrap().hidden;
            let weights = normal("weights", &[6]);
            let one = y.narrow(1, length / 2, 1).unwrap();
            let one = one.broadcast_mul(&weights).unwrap().sum_all().unwrap();
            let gradients = one.backward().unwrap();
            let rows = gradients.get(&x).unwrap().get(0).unwrap();
            for row in rows.to_vec2::<f64>().unwrap() {
                assert!(row.iter().any(|x| *x != 0.0), "length {length}");
            }
        }
    }

    #[test]
    fn a_padded_row_is_what_it_is_alone() {
        let parameters = parameters();
        let encoder = encoder(&parameters, &block(7, 5), json!({}), 9);
        let (x, mask) = (normal("x", &[3, 6, 7]), mask());
        let y = encoder.forward(&x, &pass().with_mask(Some(&mask)));
        let y = y.unwrap().hidden;
        for (row, members) in [&[0, 1, 2, 3, 4, 5u32][..], &[0, 1, 2, 3], &[1, 3, 4]]
            .into_iter()
            .enumerate()
        {
            let members = Tensor::new(members, &Device::Cpu).unwrap();
            let part = |x: &Tensor| x.narrow(0, row, 1)?.index_select(&members, 1);
            let alone = encoder.forward(&part(&x).unwrap(), &pass()).unwrap();
            close(&part(&y).unwrap(), &alone.hidden, 1e-12, "alone");
        }
    }

    #[test]
    fn tracks_are_as_even_as_they_come_or_as_wide_as_asked() {
        let of = |dim, size, count| {
            let tracks = tracks(dim, size, count).unwrap();
            let pairs = tracks.iter().map(|track| (track.width, track.shift));
            pairs.collect::<Vec<_>>()
        };
        assert_eq!(of(12, 0, 3), [(4, 0), (4, 1), (4, 2)]);
        assert_eq!(of(8, 0, 3), [(2, 0), (3, 1), (3, 2)]);
        assert_eq!(of(2, 0, 3), [(0, 0), (1, 1), (1, 2)]);
        assert_eq!(of(8, 3, 9), [(3, 0), (3, 1), (2, 2)]);
        assert!(tracks(130, 2, 3).is_err());
        assert_eq!(tracks(128, 2, 3).unwrap()[63].shift, 1 << 62);
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for (variant, dropout) in [("paper", 0.3), ("padded", 0.0)] {
            let parameters = parameters();
            let block = BlockOptions {
                dropout,
                ..block(4, 3)
            };
            let options = json!({"variant": variant, "layers": 2, "norm_after": "rms"});
            let encoder = encoder(&parameters, &block, options, 6);
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            check_layer("chordmixer", &parameters, &[3, 6, 4], |x| {
                let y = encoder.forward(x, &pass.with_mask(Some(&mask)))?;
                Ok(y.hidden)
            });
        }
    }

    /// Published sizes: ListOps .19, Text .69, Image 2.6, Pathfinder 1.7 and Path-X .54 million,
    /// norms not counted.
    #[test]
    fn weights_are_as_many_as_in_the_published_configurations() {
        for (longest, track, hidden, layers, expected) in [
            (2048, 8, 88, 11, 187_880),
            (4096, 16, 96, 12, 482_880),
            (4000, 20, 128, 12, 803_376),
            (1024, 28, 420, 10, 2_594_480),
            (1024, 24, 320, 10, 1_695_440),
            (16384, 10, 128, 14, 541_492),
        ] {
            let dim = (layers + 1) * track;
            let count = |norm, norm_after| {
                let parameters = Parameters::meta(&Device::Cpu, DType::F32);
                let block = BlockOptions {
                    norm,
                    ..block(dim, hidden)
                };
                let options = json!({"track": track, "norm_after": norm_after});
                encoder(&parameters, &block, options, longest);
                parameters.elements()
            };
            assert_eq!(count(NormKind::None, "none"), expected, "{longest}");
            let norms = 4 * dim * layers;
            assert_eq!(
                count(NormKind::Layer, "layer"),
                expected + norms,
                "{longest}"
            );
            // The most even split has these tracks, too.
            assert_eq!(
                tracks(dim, 0, layers + 1).unwrap(),
                tracks(dim, track, 1).unwrap()
            );
        }
    }
}
