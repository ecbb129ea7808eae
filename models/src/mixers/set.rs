//! Set Transformer. Lee et al., 2018, "Set Transformer: A Framework for Attention-based
//! Permutation-Invariant Neural Networks", arXiv:1810.00825.
//!     y = Attention(x, h),  h = MAB(I, x) = O + relu(O W + b),  O = I W_Q + softmax(I W_Q (x W_K)ᵀ / √E) x W_V
//! The induced set attention block: m learned inducing points I attend to all positions, then every
//! position attends to them. B batch, L length, H heads, E width of a head; x, y (B, L, D), I (m,
//! D), O, h (B, m, H E), W (H E, H E). Time O(L·m·E) per head, memory O(L·E + m·E). No other part
//! mixes positions, so only the embeddings carry the order of tokens. The block provides the
//! residual and the feed-forward network of the second half. The paper's pooling by attention works
//! with any model: `head.pooling = attention`.
//!
//! # Options
//!
//! `points` m (32 in the paper's code).
//!
//! # Padding
//!
//! Padding is hidden from the inducing points.
//!
//! # Departures
//!
//! As in the authors' code (juho-lee/set_transformer@73432c6 modules.py:6-53), the residual of the
//! first half is the projected query, without the LayerNorm of the paper; there the scale is 1/√(H
//! E). We add dropout on both kinds of weights. I begins uniform within (6 / (m + D))^½, in that
//! code (6 / (D (m + 1)))^½; weights begin Xavier-uniform and b with 0, there uniform within
//! inputs^-½ and with biases everywhere. The norms' ε is `block.norm_epsilon` = 1e-6, in that code
//! 1e-5 (torch.nn.LayerNorm).

use crate::{layers::Mab, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "set",
    title: "Set Transformer",
    paper: "Set Transformer: A Framework for Attention-based Permutation-Invariant Neural Networks",
    year: 2018,
    arxiv: "1810.00825",
    time: Cost::Linear("O(L·m·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Set>(include_str!("set.rs"))],
    ..Model::mixer::<Set>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// m.
    #[option(default = 32, range = int(1, LONGEST))]
    points: usize,
}

struct Set {
    /// I and the first half.
    induce: Mab,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    dropout: Dropout,
    points: usize,
    heads: usize,
    width: usize,
}

impl MixerModel for Set {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let points = options.points;
        let (dim, width) = (layer.block.dim, layer.block.qkv_dim);
        let linear = |name, inputs, outputs| {
            let weight = xavier_uniform(inputs, outputs);
            Linear::new(&layer.vb.pp(name), inputs, outputs, weight, None)
        };
        let rate = layer.block.attention_dropout;
        Ok(Self {
            induce: Mab::new(&layer.vb.pp("induce"), layer.block, points, rate)?,
            query: linear("query", dim, width)?,
            key: linear("key", width, width)?,
            value: linear("value", width, width)?,
            output: linear("output", width, dim)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), rate),
            points,
            heads: layer.block.heads,
            width,
        })
    }
}

impl Mixer for Set {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let h = self.induce.forward(x, pass)?; // (B, m, H E)
        let options = AttentionOptions {
            heads: self.heads,
            dropout: self.dropout.of_attention(x.dim(0)?, pass),
            ..AttentionOptions::default()
        };
        let (q, k, v) = (
            self.query.forward(x)?,
            self.key.forward(&h)?,
            self.value.forward(&h)?,
        );
        self.output
            .forward(&attention::attend(&q, &k, &v, &options)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let products = 2 * 2 * (length * self.points) as u64 * self.width as u64;
        let outer = [&self.query, &self.output].map(|linear| linear.flops(length));
        let inner = [&self.key, &self.value].map(|linear| linear.flops(self.points));
        let linears: u64 = outer.iter().chain(&inner).sum();
        self.induce.flops(length) + linears + products
    }
}
