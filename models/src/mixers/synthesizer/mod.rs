//! Synthesizer. Tay et al., 2020, "Synthesizer: Rethinking Self-Attention in Transformer Models",
//! arXiv:2005.00743.
//!     y_i = Σ_j a_ij v_j,  a_i = softmax_j(S_ij) over the first L of N columns
//!     random             S = R                          R (H, N, N) learned
//!     fixed_random       S = R                          R (H, N, N) as it is drawn, not trained
//!     factorised_random  S = P Qᵀ                       P, Q (H, N, K) learned
//!     dense              S_i = W relu(U x_i + b) + c    U (H E, D), per head W (E, N), c (N)
//!     factorised_dense   S_ij = F_i,⌊j/m⌋ G_i,j mod m   F, G as in dense, with ⌈N/m⌉ and m columns, m = ⌈√N⌉
//! The weights do not depend on comparisons of tokens. B batch, H heads, L length, N largest
//! length, E width of a head; v (B, L, H, E), S (B, H, L, L). Time O(L²·E) per head, memory O(L²),
//! as quadratic as the Transformer. R alone has H N² parameters. Dropout on the weights. Each head
//! has its own synthesizer. The two factors are tiled differently, since equal tilings would make m
//! columns equal.
//!
//! # Options
//!
//! With `dot_product` the scores are the mixture α₁ q_i·k_j/√E + α₂ S_ij with learned α, α₁ +
//! α₂ = 1. `scores` (above), `dot_product`, `rank` K of factorised_random (0: 8).
//!
//! # Padding
//!
//! Padded keys get weight zero.
//!
//! # Departures
//!
//! Initial values are those of the 2021 code but for P and Q, N(0, 1/K) here: they begin
//! Xavier-uniform there (variant `tay2021`), and by TensorFlow's default with K = 16 in the
//! authors' other code (tensorflow/mesh@da90793 mesh_tensorflow/transformer/attention.py:229-247).
//! In the latter α₂ is the sigmoid of one number, which begins as 0 (lines 288-297), and S of
//! `dense` is W relu(q), without biases (lines 299-308); in the 2021 code all heads of `dense`
//! share one W, without biases. `factorised_dense` and `fixed_random` are in neither.

mod scores;

use self::scores::Synthesised;
use self::scores::Synthetic;
use crate::{
    encoder::blocks,
    layers::score_mods::Rotary,
    mixers::tay2021,
    ops::attention::{attend_biased, partial_softmax::by_head, weigh},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "synthesizer",
    title: "Synthesizer",
    paper: "Synthesizer: Rethinking Self-Attention in Transformer Models",
    year: 2020,
    arxiv: "2005.00743",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::paper(build, include_str!("mod.rs")),
        tay2021::synthesizer::VARIANT,
    ],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Scores {
    Random,
    FixedRandom,
    FactorisedRandom,
    Dense,
    FactorisedDense,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(default = Scores::Random)]
    pub(super) scores: Scores,
    #[option(default = true)]
    pub(super) dot_product: bool,
    #[option(range = int(0, LONGEST))]
    rank: usize,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    encoder(context, PAPER)
}

const PAPER: Form = Form {
    mixed: true,
    rank: 8,
    factors: |_, _, rank| Init::Randn {
        mean: 0.0,
        stdev: (rank as f64).powf(-0.5),
    },
};

/// Differences between the variants.
pub(super) struct Form {
    /// Whether the scores are a mixture with learned shares; otherwise they are a plain sum.
    pub(super) mixed: bool,
    /// K where none is set.
    pub(super) rank: usize,
    /// Initial values of P and Q, from H, N and K.
    pub(super) factors: fn(usize, usize, usize) -> Init,
}

/// Returns the encoder of the variant that `form` says.
pub(super) fn encoder(context: &ModelContext, form: Form) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks(context, |layer| {
        Ok(Box::new(Synthesizer::new(layer, &options, &form)?))
    })
}

struct Synthesizer {
    scores: Synthetic,
    dot_product: Option<DotProduct>,
    rotary: Option<Rotary>,
    value: Linear,
    output: Linear,
    dropout: Dropout,
    heads: usize,
    dim: usize,
}

struct DotProduct {
    query: Linear,
    key: Linear,
    /// Two numbers whose softmax is α; none where the scores are simply added.
    mixture: Option<Tensor>,
}

impl Synthesizer {
    fn new(layer: &LayerContext, options: &Options, form: &Form) -> Result<Self> {
        let block = layer.block;
        let linear = |name, inputs, outputs| {
            let init = xavier_uniform(block.dim, block.qkv_dim);
            Linear::new(&layer.vb.pp(name), inputs, outputs, init, None)
        };
        let inward = |name| linear(name, block.dim, block.qkv_dim);
        let dot_product = match options.dot_product {
            true => Some(DotProduct {
                query: inward("query")?,
                key: inward("key")?,
                mixture: match form.mixed {
                    true => Some(layer.vb.get_with_hints(2, "mixture", Init::Const(0.0))?),
                    false => None,
                },
            }),
            false => None,
        };
        Ok(Self {
            scores: Synthetic::new(layer, options, form)?,
            dot_product,
            rotary: block.rotary.then(|| Rotary::new(block.head_dim())),
            value: inward("value")?,
            output: linear("output", block.qkv_dim, block.dim)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            heads: block.heads,
            dim: block.qkv_dim,
        })
    }

    /// Maps (B, L, H E) to (B, H, L, E).
    fn heads(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        by_head(&x.reshape((batch, length, self.heads, width / self.heads))?)
    }

    /// Returns the first `columns` of x, queries or keys, rotated where that is asked for.
    fn rotate(&self, x: Tensor, columns: usize) -> Result<Tensor> {
        match &self.rotary {
            Some(rotary) => rotary.forward(&x, columns),
            None => Ok(x),
        }
    }

    /// Attends by scores S (H, N, N) that all examples share.
    fn attend_fixed(&self, x: &Tensor, scores: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (packed, share) = match &self.dot_product {
            Some(dot) => {
                let shares = dot.shares()?;
                let query = match &shares {
                    Some(shares) => dot.query.times(&shares.narrow(0, 0, 1)?)?,
                    None => dot.query.clone(),
                };
                let packed = Linear::stacked(&[&query, &dot.key, &self.value])?;
                let share = shares.map(|shares| shares.narrow(0, 1, 1)).transpose()?;
                (packed, share)
            }
            None => {
                let nothing = self.value.silenced()?;
                (Linear::stacked(&[&nothing, &nothing, &self.value])?, None)
            }
        };
        let share = match share {
            Some(share) => share,
            None => Tensor::ones(1, x.dtype(), x.device())?,
        };
        let options = AttentionOptions {
            heads: self.heads,
            mask: pass.mask().map(|mask| mask.valid().clone()),
            dropout: self.dropout.of_attention(x.dim(0)?, pass),
            padded_queries: pass.mask().is_some_and(Mask::is_counted),
            ..AttentionOptions::default()
        };
        let packed = self.rotate(packed.forward(x)?, 2 * self.dim)?;
        let y = attend_biased(&packed, (scores, &share), &options)?;
        self.output.forward(&y)
    }

    /// Returns `synthetic` scores (B, H, L, L), mixed with those of the dot product.
    fn mixed(&self, x: &Tensor, synthetic: Tensor) -> Result<Tensor> {
        let Some(dot) = &self.dot_product else {
            return Ok(synthetic);
        };
        let (q, k) = (
            self.heads(&self.rotate(dot.query.forward(x)?, self.dim)?)?,
            self.heads(&self.rotate(dot.key.forward(x)?, self.dim)?)?,
        );
        let scale = (q.dim(D::Minus1)? as f64).powf(-0.5);
        let product = matmul(&q.affine(scale, 0.0)?, &k.t()?)?;
        let Some(shares) = dot.shares()? else {
            return Ok(product.broadcast_add(&synthetic)?);
        };
        let share = |index| shares.narrow(0, index, 1);
        let product = product.broadcast_mul(&share(0)?)?;
        Ok(product.broadcast_add(&synthetic.broadcast_mul(&share(1)?)?)?)
    }
}

impl DotProduct {
    /// Returns α of the dot product and of the synthetic scores (2); none where they are simply
    /// added.
    fn shares(&self) -> Result<Option<Tensor>> {
        let shares = |mixture: &Tensor| -> Result<Tensor> {
            let shares = softmax::masked(&mixture.reshape((1, 1, 1, 2))?, None)?;
            Ok(shares.flatten_all()?)
        };
        self.mixture.as_ref().map(shares).transpose()
    }
}

impl Mixer for Synthesizer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, _, _) = x.dims3()?;
        let synthetic = match self.scores.forward(x, pass)? {
            Synthesised::Shared(scores) => return self.attend_fixed(x, &scores, pass),
            Synthesised::ByQuery(scores) => scores,
        };
        let v = self.heads(&self.value.forward(x)?)?; // (B, H, L, E)
        let scores = self.mixed(x, synthetic)?;
        let dropout = self.dropout.of_attention(batch, pass);
        let y = by_head(&weigh(&scores, &v, pass.mask(), dropout.as_ref())?)?; // (B, L, H, E)
        self.output.forward(&y.flatten_from(2)?)
    }

    fn supports(&self) -> Supports {
        let rotary = match self.dot_product {
            Some(_) => Ok(()),
            None => Err("without dot_product nothing is rotated: there are no queries and keys"),
        };
        Supports {
            rotary,
            ..Supports::none("its scores are made for N positions, by pair, as they are")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let product = 2 * (length * length * self.dim) as u64;
        let dot = self.dot_product.as_ref().map_or(0, |dot| {
            dot.query.flops(length) + dot.key.flops(length) + product
        });
        let linear = self.value.flops(length) + self.output.flops(length);
        self.scores.flops(length) + dot + linear + product
    }
}

#[cfg(test)]
mod tests;
