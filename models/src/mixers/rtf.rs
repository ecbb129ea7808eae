//! RTF. Parnichkun, Massaroli, Moro, Smith, Hasani, Lechner, An, Ré, Asama, Ermon, Suzuki,
//! Yamashita, Poli, 2024, "State-Free Inference of State-Space Models: The Transfer Function
//! Approach", arXiv:2405.06147.
//!     k = irfft(rfft([0, b₁ ... b_N, 0 ...]) / rfft([1, a₁ ... a_N, 0 ...]) + h₀),  y = k * x,   out = v ⊙ σ(g), [v, g] = W f(y) + c
//! x, y, out (B, L, H), H the width; a, b (H, N), h₀ (H), N = `state`; W (2H, H). The transforms
//! have the longest length, an odd one plus 1, regardless of the batch. At first a = 0, b ~ N(0,
//! 10⁻⁸), h₀ ~ N(0, 1), so a layer starts as a scale for each channel. (With the published b = 0, a
//! has no gradient in the first step.) Time O(L·log L) and memory O(L), for any N. The poles are
//! unconstrained: the recurrence may be unstable, and k is its response wrapped around the length
//! of the transforms.
//!
//! # Options
//!
//! Each of the two directions has its own a, b and h₀. The one that looks ahead does not see the
//! position itself (`direction = forward` leaves it out). With `shared = true` all channels share
//! one a (the code's `num_a = 1`). `state` is N.
//!
//! # Padding
//!
//! Padded positions enter the kernel as zeros.
//!
//! # Departures
//!
//! The block has no feed-forward network. The published block has BatchNorm and separate learning
//! rates for a, b, h₀. b begins as N(0, 1e-4²); the published code begins with zeros, of which a
//! has no gradient. Its other starts of a and b (`init` = xavier, montel) and its bound of the
//! poles (`constraint`), none of which its configurations for this benchmark use, are left out. The
//! norms' ε is `block.norm_epsilon` = 1e-6, in the published code 1e-5 (PyTorch's BatchNorm1d,
//! ruke1ire/RTF@1d9e1e5 experiments/state-spaces/src/models/nn/normalization.py:35). Other
//! numbers of a than 1 and H (`num_a`), and dropout of k, are left out.

use crate::{
    layers::{Direction, LongConv},
    ops::{Complex, irfft, rfft},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "rtf",
    title: "RTF",
    paper: "State-Free Inference of State-Space Models: The Transfer Function Approach",
    year: 2024,
    arxiv: "2405.06147",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<Rtf>(include_str!("rtf.rs"))],
    ..Model::mixer::<Rtf>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// N.
    #[option(default = 4, range = int(1, 1 << 16))]
    state: usize,
    #[option(default = Direction::Both)]
    direction: Direction,
    shared: bool,
}

struct Rtf {
    /// (directions, H or 1, N).
    a: Tensor,
    /// (directions, H, N).
    b: Tensor,
    /// h₀ (directions, H).
    h0: Tensor,
    /// Longest length, the number of taps.
    longest: usize,
    filter: LongConv,
}

impl MixerModel for Rtf {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, state) = (&layer.vb, layer.block.dim, options.state);
        let directions = options.direction.count();
        let normal = |stdev| Init::Randn { mean: 0.0, stdev };
        let coefficients = |name, channels, init| {
            let shape = (directions, channels, state);
            vb.get_with_attributes(shape, name, init, Attributes::NO_DECAY)
        };
        Ok(Self {
            a: coefficients("a", if options.shared { 1 } else { dim }, Init::Const(0.0))?,
            b: coefficients("b", dim, normal(1e-4))?,
            h0: vb.get_with_attributes(
                (directions, dim),
                "h0",
                normal(1.0),
                Attributes::NO_DECAY,
            )?,
            longest: layer.max_length,
            filter: LongConv::new(layer, directions, false)?,
        })
    }
}

impl Rtf {
    /// Returns (H, directions · longest length).
    fn kernel(&self) -> Result<Tensor> {
        let ((directions, dim, _), longest) = (self.b.dims3()?, self.longest);
        let length = longest.next_multiple_of(2);
        // One sequence per direction: coefficient n stands at position n.
        let spectrum = |x: &Tensor| rfft(&swap_axes(x)?.pad_with_zeros(1, 1, 0)?, length);
        let (numerator, denominator) = (spectrum(&self.b)?, spectrum(&self.a)?);
        let bins = numerator.re.dim(1)?;
        let wide = |x: &Tensor| x.broadcast_as((directions, bins, dim))?.contiguous();
        // The 1 before a₁ adds to every bin.
        let denominator = Complex::new(wide(&(&denominator.re + 1.0)?)?, wide(&denominator.im)?);
        let mut ratio = numerator.div(&denominator)?;
        ratio.re = ratio.re.broadcast_add(&self.h0.unsqueeze(1)?)?;
        let kernel = irfft(&ratio, length)?.narrow(1, 0, longest)?; // (directions, longest, H)
        Ok(kernel
            .permute((2, 0, 1))?
            .reshape((dim, directions * longest))?)
    }
}

impl Mixer for Rtf {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.filter.forward(x, &self.kernel()?, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.filter.is_causal()
    }

    fn flops(&self, length: usize) -> u64 {
        self.filter.flops(length, self.h0.dims()[1])
    }
}
