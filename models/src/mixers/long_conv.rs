//! Long convolutions. Fu, Epstein, Nguyen, Thomas, Zhang, Dao, Rudra, Ré, 2023, "Simple
//! Hardware-Efficient Long Convolutions for Sequence Modeling", arXiv:2302.06646.
//!     k = sign(w) ⊙ max(|w| - λ, 0),  y_t = Σ_{j≤t} k_{t-j} x_j + Σ_{j>t} k'_{j-t-1} x_j + D x_t,   out = a ⊙ σ(g), [a, g] = W f(y) + b
//! x, y, out (B, L, H), H the width; the kernels w, w' (H, N) are parameters, N(0, 0.002²) at
//! first, N the longest length; λ = `squash`, D (H), W (2H, H). `direction = forward` has no w'.
//! Time O(L·log L), memory O(L), and H·N weights for each direction. A length beyond N is refused.
//!
//! # Options
//!
//! `kernel_dropout` drops taps in training. `squash` is λ; `direction = forward` has no w'.
//!
//! # Padding
//!
//! Padded positions enter the kernels as zeros.
//!
//! # Departures
//!
//! The block has no feed-forward network. The published block has BatchNorm or LayerNorm, and a
//! separate learning rate for w. In the published configurations each channel has two kernels with
//! a D each, both of which W (2H, 2H) reads, which begins uniform within (2H)^-½ (`channels`,
//! HazyResearch/safari@02220c6 configs/model/layer/long-conv.yaml:2), and there is no k' but on
//! Pathfinder and Path-X (`bidirectional`, line 6). The start `double_exp`, kernels that fade, is
//! left out (src/models/sequence/long_conv_kernel.py:57-64). The norms' ε is `block.norm_epsilon` =
//! 1e-6, in the published code 1e-5 (PyTorch's LayerNorm and BatchNorm1d,
//! src/models/nn/components.py:271, 281). The published code ignores the length of a shorter
//! sequence and uses all N taps, so that its causal kernel wraps around, and of k' only the
//! farthest taps are used (src/models/sequence/long_conv_kernel.py:67-78, long_conv.py:131-149);
//! here kernels are cut.

use crate::{
    layers::{Direction, LongConv},
    ops::activation::relu,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "long_conv",
    title: "Long Conv",
    paper: "Simple Hardware-Efficient Long Convolutions for Sequence Modeling",
    year: 2023,
    arxiv: "2302.06646",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<LongConvMixer>(include_str!(
        "long_conv.rs"
    ))],
    ..Model::mixer::<LongConvMixer>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// λ.
    #[option(default = 0.001, range = not_negative)]
    squash: f64,
    #[option(range = probability)]
    kernel_dropout: f64,
    #[option(default = Direction::Both)]
    direction: Direction,
}

struct LongConvMixer {
    /// w (H, directions · N).
    kernel: Tensor,
    squash: f64,
    dropout: f64,
    /// Stream of the dropout.
    key: StreamKey,
    filter: LongConv,
}

impl MixerModel for LongConvMixer {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let directions = options.direction.count();
        let small = Init::Randn {
            mean: 0.0,
            stdev: 0.002,
        };
        let shape = (layer.block.dim, directions * layer.max_length);
        Ok(Self {
            kernel: layer
                .vb
                .get_with_attributes(shape, "kernel", small, Attributes::NO_DECAY)?,
            squash: options.squash,
            dropout: options.kernel_dropout,
            key: StreamKey::new(&layer.vb.pp("kernel_drop").prefix()),
            filter: LongConv::new(layer, directions, true)?,
        })
    }
}

impl LongConvMixer {
    fn taps(&self, pass: &Pass) -> Result<Tensor> {
        // max(w - λ, 0) - max(-w - λ, 0).
        let above = relu(&self.kernel.affine(1.0, -self.squash)?, 0.0)?;
        let below = relu(&self.kernel.affine(-1.0, -self.squash)?, 0.0)?;
        let kernel = (above - below)?;
        if !pass.train || self.dropout == 0.0 {
            return Ok(kernel);
        }
        let stream = pass.rng.shared(self.key);
        let mask = stream.mask_tensor(
            kernel.shape(),
            self.dropout,
            kernel.dtype(),
            kernel.device(),
        )?;
        Ok((kernel * mask)?)
    }
}

impl Mixer for LongConvMixer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.filter.forward(x, &self.taps(pass)?, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.filter.is_causal()
    }

    fn flops(&self, length: usize) -> u64 {
        self.filter.flops(length, self.kernel.dims()[0])
    }
}
