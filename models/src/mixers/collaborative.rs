//! Collaborative attention. Cordonnier, Loukas & Jaggi, 2020, "Multi-Head Attention: Collaborate
//! Instead of Concatenate", arXiv:2006.16362.
//!     z_h = ((x W_Q) diag(m_h) (x W_K)ᵀ + 1 (x b_h)ᵀ) / √(K / H),  y_h = softmax(z_h) v_h
//! x (B, L, D); W_Q and W_K (D, K), shared by all heads; m (H, K), the weights of the shared
//! columns in each head; b (D, H), which gives each key a score of its own; v (B, H, L, E), z (B,
//! H, L, L). With K = H E, m the indicator of a head's own columns and b = 0, this is multi-head
//! attention. Time O(L²·(K + E)) per head, memory O(L²): all weights are kept. Fewer parameters
//! than attention if K < H E. Dropout on the weights. No biases.
//!
//! # Options
//!
//! K: `shared` (0: qkv_dim).
//!
//! # Padding
//!
//! Padded keys are hidden.
//!
//! # Departures
//!
//! m starts uniform in [0, 2), with mean one; the authors convert trained heads, and draw m from
//! N(0, 0.2²) otherwise. Weights begin Xavier-uniform; in their code uniform within inputs^-½,
//! values and output with biases (epfml/collaborative-attention@5b05408
//! src/collaborative_attention/collaborative_attention.py:61-69, 150-162). The authors' layer can
//! have a LayerNorm with ε = 1e-5 (`use_layer_norm`), which is left out; the block's has
//! `block.norm_epsilon` = 1e-6. The block around it is the recipe's: its feed-forward network
//! begins Xavier-uniform with biases N(0, 1e-6²).

use crate::{ops::attention::weigh, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "collaborative",
    title: "Collaborative Heads",
    paper: "Multi-Head Attention: Collaborate Instead of Concatenate",
    year: 2020,
    arxiv: "2006.16362",
    time: Cost::Quadratic("O(L²·(K + E))"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Collaborative>(include_str!(
        "collaborative.rs"
    ))],
    ..Model::mixer::<Collaborative>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// K.
    #[option(range = int(0, WIDEST))]
    shared: usize,
}

struct Collaborative {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// m (H, K).
    mixing: Tensor,
    /// b.
    content: Linear,
    dropout: Dropout,
    heads: usize,
    shared: usize,
    width: usize,
}

impl MixerModel for Collaborative {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let shared = match options.shared {
            0 => block.qkv_dim,
            shared => shared,
        };
        let linear = |name, inputs, outputs| {
            let init = xavier_uniform(inputs, outputs);
            Linear::new(&vb.pp(name), inputs, outputs, init, None)
        };
        Ok(Self {
            query: linear("query", block.dim, shared)?,
            key: linear("key", block.dim, shared)?,
            value: linear("value", block.dim, block.qkv_dim)?,
            output: linear("output", block.qkv_dim, block.dim)?,
            mixing: vb.get_with_hints(
                (block.heads, shared),
                "mixing",
                Init::Uniform { lo: 0.0, up: 2.0 },
            )?,
            content: linear("content", block.dim, block.heads)?,
            dropout: Dropout::new(&vb.pp("drop"), block.attention_dropout),
            heads: block.heads,
            shared,
            width: block.head_dim(),
        })
    }
}

impl Mixer for Collaborative {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let scale = (self.shared as f64 / self.heads as f64).powf(-0.5);
        let q = self.query.forward(x)?.affine(scale, 0.0)?.unsqueeze(1)?;
        let q = q.broadcast_mul(&self.mixing.unsqueeze(1)?.unsqueeze(0)?)?; // (B, H, L, K)
        let q = q.reshape((batch, self.heads * length, self.shared))?;
        let k = self.key.forward(x)?.t()?; // (B, K, L)
        let z = matmul(&q, &k)?.reshape((batch, self.heads, length, length))?;
        let content = self.content.forward(x)?.affine(scale, 0.0)?.t()?; // (B, H, L)
        let z = z.broadcast_add(&content.unsqueeze(2)?)?;
        let v = self.value.forward(x)?;
        let v = v.reshape((batch, length, self.heads, self.width))?;
        let dropout = self.dropout.of_attention(batch, pass);
        let v = swap_axes(&v)?;
        let y = weigh(&z, &v, pass.mask(), dropout.as_ref())?; // (B, H, L, E)
        let y = swap_axes(&y)?;
        self.output.forward(&y.flatten_from(2)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.query, &self.key, &self.value, &self.output];
        let linears: u64 = linears.iter().map(|linear| linear.flops(length)).sum();
        let pairs = (length * length * self.heads) as u64;
        linears + self.content.flops(length) + 2 * pairs * (self.shared + self.width) as u64
    }
}
