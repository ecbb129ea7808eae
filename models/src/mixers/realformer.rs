//! RealFormer. He et al., 2020, "RealFormer: Transformer Likes Residual Attention",
//! arXiv:2012.11747.
//!     zˡ = qˡ kˡᵀ / √E + zˡ⁻¹,  yˡ = softmax(zˡ) vˡ
//! q, k, v, y (B, H, L, E), z (B, H, L, L) of layer l, z⁰ = 0. Scores are passed from block to
//! block, before masks and softmax. No additional parameters. Time O(L²·E) per head, memory O(L²)
//! in each layer: the scores form a residual stream, so all of them are kept. Post-norm, as in the
//! paper's BERT. Dropout on the weights. No biases. Not with reversible blocks, which keep no
//! scores.
//!
//! # Options
//!
//! None.
//!
//! # Padding
//!
//! Padded keys are hidden.
//!
//! # Departures
//!
//! Weights begin Xavier-uniform, in the authors' code N(0, 0.02²) cut at two deviations, with
//! biases in attention (google-research/google-research@5b09c22 realformer/realformer.py,
//! create_initializer). Biases of the feed-forward network begin N(0, 1e-6²), there as 0. The
//! norms' ε is `block.norm_epsilon` = 1e-6, there 1e-12 (tf_slim 1.1.0 layers/layers.py:2351,
//! layer_norm). Its norm behind the embedding (embedding_postprocessor) is left out. Its running
//! mean of the scores (`use_running_mean`, off unless it is set) is left out.

use crate::{
    ops::attention::{scores, weigh},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "realformer",
    title: "RealFormer",
    paper: "RealFormer: Transformer Likes Residual Attention",
    year: 2020,
    arxiv: "2012.11747",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"norm_place": "post"}}"#,
    variants: &[Variant::mixer::<RealFormer>(include_str!("realformer.rs"))],
    ..Model::mixer::<RealFormer>()
};

struct RealFormer {
    projections: Projections,
    dropout: Dropout,
    dim: usize,
}

impl MixerModel for RealFormer {
    type Options = NoOptions;

    fn check(_: &NoOptions, context: &ModelContext) -> Result<()> {
        require(
            context.block.residual != Residual::Reversible,
            "block.residual",
            "reversible",
            "another one, because scores go from block to block and are not recomputed",
        )
    }

    fn new(layer: &LayerContext, _: &NoOptions) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            dim: layer.block.qkv_dim,
        })
    }
}

impl Mixer for RealFormer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?; // (B, L, H, E)
        let mut z = scores(&q, &k)?; // (B, H, L, L)
        if let Some(before) = pass.carried() {
            z = add(&z, &before)?;
        }
        pass.carry(&z);
        let dropout = self.dropout.of_attention(x.dim(0)?, pass);
        let v = swap_axes(&v)?;
        let y = weigh(&z, &v, pass.mask(), dropout.as_ref())?; // (B, H, L, E)
        self.projections.merge(&swap_axes(&y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        self.projections.flops(length) + 4 * (length * length * self.dim) as u64
    }
}
