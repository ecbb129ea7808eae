//! LazyFormer. Ying et al., 2021, "LazyFormer: Self Attention with Lazy Update", arXiv:2102.12702.
//!     a = softmax(q kᵀ / √E) in the first of every m layers;  yˡ = a vˡ in all of them
//! q, k, v, y (B, H, L, E), a (B, H, L, L). The other layers have values and an output projection,
//! but no queries and no keys. Time O(L²·E) per head, half of it for the weights, which only every
//! m-th layer computes; memory O(L²), since the weights are passed on. Dropout on the weights in
//! the layer that computes them, none where they are reused, as in the paper. Post-norm, as in the
//! paper's BERT. No biases. Not with reversible blocks, which keep no weights.
//!
//! # Options
//!
//! m: `reuse` (2).
//!
//! # Padding
//!
//! Padded keys are hidden.
//!
//! # Departures
//!
//! The authors' code is not public; weights begin Xavier-uniform, as in all attention here.

use crate::{ops::attention::scores, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "lazyformer",
    title: "LazyFormer",
    paper: "LazyFormer: Self Attention with Lazy Update",
    year: 2021,
    arxiv: "2102.12702",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"norm_place": "post"}}"#,
    variants: &[Variant::mixer::<LazyFormer>(include_str!("lazyformer.rs"))],
    ..Model::mixer::<LazyFormer>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// m.
    #[option(default = 2, range = int(1, 1000))]
    reuse: usize,
}

struct LazyFormer {
    /// Queries and keys, in a layer that computes weights.
    pair: Option<[Linear; 2]>,
    value: Linear,
    output: Linear,
    dropout: Dropout,
    heads: usize,
    dim: usize,
}

impl MixerModel for LazyFormer {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        require(
            context.block.residual != Residual::Reversible,
            "block.residual",
            "reversible",
            "another one, because weights go from block to block and are not recomputed",
        )?;
        require(
            !context.block.share || options.reuse == 1,
            "block.share",
            true,
            "false, because layers that reuse weights have no queries; or model.reuse = 1",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let inward = |name| Linear::new(&vb.pp(name), block.dim, block.qkv_dim, init, None);
        Ok(Self {
            pair: match layer.index % options.reuse {
                0 => Some([inward("query")?, inward("key")?]),
                _ => None,
            },
            value: inward("value")?,
            output: Linear::new(&vb.pp("output"), block.qkv_dim, block.dim, init, None)?,
            dropout: Dropout::new(&vb.pp("drop"), block.attention_dropout),
            heads: block.heads,
            dim: block.qkv_dim,
        })
    }
}

impl LazyFormer {
    /// Returns (B, L, H E) as (B, L, H, E).
    fn split(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        Ok(x.reshape((batch, length, self.heads, width / self.heads))?)
    }

    /// Returns a before and after dropout, (B, H, L, L).
    fn weights(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let Some([query, key]) = &self.pair else {
            return pass.carried().ok_or_else(|| {
                Error::Input("lazyformer: no block before has left its weights".to_owned())
            });
        };
        let z = scores(
            &self.split(&query.forward(x)?)?,
            &self.split(&key.forward(x)?)?,
        )?;
        let weights = softmax::masked(&z, pass.mask())?;
        pass.carry(&weights);
        self.dropout.forward(&weights, pass)
    }
}

impl Mixer for LazyFormer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let weights = self.weights(x, pass)?;
        let v = swap_axes(&self.split(&self.value.forward(x)?)?)?;
        let y = matmul(&weights, &v)?; // (B, H, L, E)
        let y = swap_axes(&y)?;
        self.output.forward(&y.flatten_from(2)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let product = 2 * (length * length * self.dim) as u64;
        let pair = self.pair.iter().flatten();
        let pair: u64 = pair.map(|linear| linear.flops(length)).sum();
        let scores = if self.pair.is_some() { product } else { 0 };
        pair + scores + self.value.flops(length) + product + self.output.flops(length)
    }
}
