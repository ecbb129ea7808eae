//! Talking-heads attention. Shazeer et al., 2020, "Talking-Heads Attention", arXiv:2003.02436.
//!     z = q kᵀ / √E,  w = softmax(P z),  y = (R w) v
//! q, k, v, y (B, H, L, E), z, w (B, H, L, L); P and R (H, H) mix the heads of scores and of
//! weights: (P z)_h = Σ_g P_hg z_g. The parameters are P - 1 and R - 1, zero at first, so the model
//! starts as a Transformer. Time O(L²·(E + H)) per head, memory O(L²): all scores are kept. Dropout
//! on R w, as in the paper's code. No biases.
//!
//! # Options
//!
//! None.
//!
//! # Padding
//!
//! Padded keys are hidden between the two mixing steps.
//!
//! # Departures
//!
//! P and R begin as the identity, in the authors' code as truncated N(0, 1/H). Projections begin
//! Xavier-uniform, there as truncated N(0, 1 / inputs), those of queries N(0, 1 / (D E)) with
//! scores that are not divided by √E. The feed-forward network begins Xavier-uniform (±0.177 at D =
//! 64 and a width of 128) with biases N(0, 1e-6²); there as truncated N(0, 1 / inputs), without
//! biases (tensorflow/mesh@da90793 mesh_tensorflow/transformer/transformer_layers.py,
//! DenseReluDense). Dropout there has one mask for all queries (transformer_layers.py:1247-1258),
//! here one for each. Norms are LayerNorm, there RMSNorm, with an ε of 1e-6 in both
//! (mesh_tensorflow/transformer/transformer.py:493, 687).

use crate::{ops::attention::scores, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "talking_heads",
    title: "Talking-Heads",
    paper: "Talking-Heads Attention",
    year: 2020,
    arxiv: "2003.02436",
    time: Cost::Quadratic("O(L²·(E + H))"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<TalkingHeads>(include_str!(
        "talking_heads.rs"
    ))],
    ..Model::mixer::<TalkingHeads>()
};

struct TalkingHeads {
    projections: Projections,
    /// P less the identity, (H, H).
    before: Tensor,
    /// R less the identity, (H, H).
    after: Tensor,
    dropout: Dropout,
    heads: usize,
    width: usize,
}

impl MixerModel for TalkingHeads {
    type Options = NoOptions;

    fn new(layer: &LayerContext, _: &NoOptions) -> Result<Self> {
        let heads = layer.block.heads;
        let zeros = Init::Const(0.0);
        let mixing = |name| layer.vb.get_with_hints((heads, heads), name, zeros);
        Ok(Self {
            projections: Projections::new(layer)?,
            before: mixing("before")?,
            after: mixing("after")?,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            heads,
            width: layer.block.head_dim(),
        })
    }
}

/// Returns x (B, H, L, L) with its heads mixed by `mixing` (H, H).
fn mix(mixing: &Tensor, x: &Tensor) -> Result<Tensor> {
    let (batch, heads, queries, keys) = x.dims4()?;
    let flat = x.reshape((batch, heads, queries * keys))?;
    let mixing = mixing.unsqueeze(0)?.broadcast_as((batch, heads, heads))?;
    let mixed = matmul(&mixing.contiguous()?, &flat)?;
    add(x, &mixed.reshape(x.dims())?)
}

impl Mixer for TalkingHeads {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?; // (B, L, H, E)
        let z = mix(&self.before, &scores(&q, &k)?)?; // (B, H, L, L)
        let w = mix(&self.after, &softmax::masked(&z, pass.mask())?)?;
        let w = self.dropout.forward(&w, pass)?;
        let y = matmul(&w, &swap_axes(&v)?)?; // (B, H, L, E)
        self.projections.merge(&swap_axes(&y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = (length * length * self.heads) as u64;
        self.projections.flops(length) + 4 * pairs * (self.width + self.heads) as u64
    }
}
