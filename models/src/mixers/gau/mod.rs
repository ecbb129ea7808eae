//! GAU, the gated attention unit, which is FLASH-Quad. Hua et al., 2022, "Transformer Quality in
//! Linear Time", arXiv:2202.10447.
//!     [U | V | z] = SiLU(x W + b),  Q = g₀ ⊙ z + b₀, K = g₁ ⊙ z + b₁,  y = (U ⊙ (A V)) W_o + b_o,  A = max(Q Kᵀ / n + w_(j-i), 0)²
//! B batch, L length, D width, e width of U and V, s that of z, n the number of valid keys, N
//! longest length; x, y (B, L, D), U, V (B, L, e), z, Q, K (B, L, s), A (B, L, L), w (2 N - 1), a
//! learned number for each distance. There is one head and no softmax. The block has no
//! feed-forward network (`block.ffn` = none): the unit replaces both sublayers. Time O(L²·(s + e)),
//! memory O(L²). Weights, g and w start as N(0, 0.02²), biases as 0. A CLS token starts at zero and
//! has U = 0 forever if there is no position encoding: use mean pooling. The norms published for
//! runs on this benchmark are ScaleNorm (g x/√(mean x² + ε), g = 1 at first, `block.scale_norm =
//! rms`) for texts and BatchNorm for images.
//!
//! # Options
//!
//! `hidden` e (0: `block.mlp_dim`); `shared` s (0: D / 2); `attention` relu2, or `laplace` and
//! `softmax` as in Mega; `chunk` C (0: none) as in Mega-chunk, with w (2 C - 1) and n the valid keys
//! of a chunk; `hidden_dropout` on A V.
//!
//! # Padding
//!
//! Padding is never a key.
//!
//! # Departures
//!
//! The paper encodes positions by rotary vectors and w; here, as in the runs on this benchmark by
//! the authors of Mega, only w does, and each layer has its own. No public code of the authors was
//! found: initial values are those of facebookresearch/mega@aeaa4b4
//! fairseq/modules/gated_attention_unit.py:64-72. Norms have `block.norm_epsilon` = 1e-5, the ε of
//! BatchNorm there; its ScaleNorm has 1e-6 (scale_norm.py:12), which recipe `mega` sets on Text.

pub mod flash;
#[cfg(test)]
mod tests;

use super::mega::{SharedAttention, Weighing};
use crate::{
    ops::{activation::silu, columns},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "gau",
    title: "GAU",
    paper: "Transformer Quality in Linear Time",
    year: 2022,
    arxiv: "2202.10447",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"ffn": "none", "norm": "scale", "scale_norm": "rms", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::mixer::<Gated>(include_str!("mod.rs"))],
    ..Model::mixer::<Gated>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, WIDEST))]
    hidden: usize,
    #[option(range = int(0, WIDEST))]
    shared: usize,
    #[option(default = Weighing::Relu2)]
    attention: Weighing,
    #[option(range = int(0, LONGEST))]
    chunk: usize,
    #[option(range = probability)]
    hidden_dropout: f64,
}

/// Term beside A V that is gated together with it.
trait Beside: Send + Sync {
    /// Returns (B, L, e) from z (B, L, s) and V (B, L, e).
    fn forward(&self, z: &Tensor, v: &Tensor, pass: &Pass) -> Result<Tensor>;

    /// Counts the operations for one sequence.
    fn flops(&self, length: usize) -> u64;
}

/// The unit.
struct Gated {
    /// W and b.
    inner: Linear,
    /// W_o and b_o.
    outer: Linear,
    attention: SharedAttention,
    beside: Option<Box<dyn Beside>>,
    dropout: Dropout,
    hidden: usize,
    shared: usize,
}

/// Returns e and s.
fn widths(layer: &LayerContext, options: &Options) -> (usize, usize) {
    let or = |size: usize, usual: usize| if size == 0 { usual } else { size };
    let hidden = or(options.hidden, layer.block.mlp_dim);
    (hidden, or(options.shared, layer.block.dim.div_ceil(2)))
}

impl MixerModel for Gated {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (dim, (hidden, shared)) = (layer.block.dim, widths(layer, options));
        let linear = |name, inputs, outputs| {
            let (weight, bias) = (NARROW, Some(Init::Const(0.0)));
            Linear::new(&layer.vb.pp(name), inputs, outputs, weight, bias)
        };
        let chunk = match options.chunk {
            0 => layer.max_length,
            chunk => chunk,
        };
        let vb = layer.vb.pp("attention");
        let rate = layer.block.attention_dropout;
        Ok(Self {
            inner: linear("inner", dim, 2 * hidden + shared)?,
            outer: linear("outer", hidden, dim)?,
            attention: SharedAttention::new(&vb, shared, chunk, options.attention, rate)?,
            beside: None,
            dropout: Dropout::new(&layer.vb.pp("hidden_drop"), options.hidden_dropout)
                .tied(layer.block.dropout_tied),
            hidden,
            shared,
        })
    }
}

impl Gated {
    /// Returns this unit with a term beside A V.
    fn with(self, beside: Box<dyn Beside>) -> Self {
        Self {
            beside: Some(beside),
            ..self
        }
    }
}

/// N(0, 0.02²).
const NARROW: Init = Init::Randn {
    mean: 0.0,
    stdev: 0.02,
};

impl Mixer for Gated {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let all = silu(&self.inner.forward(x)?)?;
        let part = |start, width| columns(&all, start, width);
        let (u, v) = (part(0, self.hidden)?, part(self.hidden, self.hidden)?);
        let z = part(2 * self.hidden, self.shared)?;
        let mut y = self.attention.forward(&z, &v, pass)?;
        if let Some(beside) = &self.beside {
            y = (y + beside.forward(&z, &v, pass)?)?;
        }
        let y = self.dropout.forward(&y, pass)?;
        self.outer.forward(&(u * y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = self.inner.flops(length) + self.outer.flops(length);
        let beside = self.beside.as_ref();
        let beside = beside.map_or(0, |beside| beside.flops(length));
        linears + self.attention.flops(length, self.hidden) + beside
    }
}
