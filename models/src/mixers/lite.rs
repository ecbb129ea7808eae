//! Lite Transformer. Wu et al., 2020, "Lite Transformer with Long-Short Range Attention",
//! arXiv:2004.11886.
//!     y = [MultiHeadAttention(x_1) ; W_O conv(g)],  x = [x_1 ; x_2] halves of the channels,  g = u ⊙ σ(u'),  [u ; u'] = W_I x_2
//!     `light`: conv(g)_i = Σ_t softmax_t(w_h)_t g_{i + t - r},  `dynamic`: conv(g)_i = Σ_t softmax_t(W_h g_i)_t g_{i + t - r}
//! Half the channels attend over all distances. The other half is convolved with nearby positions.
//! B batch, L length, D width; x, y (B, L, D), x_1, x_2, g, u, u' (B, L, D/2), W_I (D, D/2), W_O
//! (D/2, D/2); kernels of w taps, r = (w - 1) / 2, h the group of a channel, G groups: w_h (w) or
//! W_h (w, D/2). Time O(L²·E + L·w·E) per head, memory O(L·E + L·w). Dropout on the weights of
//! attention and, at the same rate, on kernels. No projection mixes the two halves.
//!
//! # Options
//!
//! `conv`; `kernel` w (0: 3, 7, 15, then 31, by layer); `groups` G (0: the number of heads, or its
//! largest divisor that divides D/2).
//!
//! # Padding
//!
//! Padded positions enter the convolution as zeros, without renormalising its weights, and are
//! hidden keys.
//!
//! # Departures
//!
//! The paper's experiments use `dynamic`, a feed-forward network as wide as the block
//! (`block.mlp_dim = D`, which depends on D and is not set here), and post-norm. Its code has
//! biases, and no gate before light convolutions. Projections of queries, keys and values begin
//! Xavier-uniform (±0.306 at D = 64), there over √2 (±0.217: mit-han-lab/lite-transformer@d2d98c3
//! fairseq/modules/multihead_attention.py:72-74); kernels as in LightweightConv1dTBC there
//! (fairseq/modules/lightweight_convolution.py:136-152), all other weights as there. Biases of the
//! feed-forward network begin N(0, 1e-6²), there as 0. The norms' ε is `block.norm_epsilon` = 1e-6,
//! there 1e-5 (fairseq/modules/layer_norm.py:9). W_h of `dynamic` begins Xavier-uniform, as in the
//! CUDA kernel's layer there (fairseq/modules/dynamicconv_layer/dynamicconv_layer.py:84); the other
//! one begins it uniform within (D/2)^-½ (fairseq/modules/dynamic_convolution.py:105-106). On IWSLT
//! the feed-forward network begins there uniform within (2 / inputs)^½
//! (fairseq/models/transformer_multibranch_v2.py:932-937, 1012).

use crate::{
    ops::{
        Padding, activation,
        attention::{BlockLists, RelativeScores},
        columns, depthwise_conv1d,
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "lite",
    title: "Lite Transformer",
    paper: "Lite Transformer with Long-Short Range Attention",
    year: 2020,
    arxiv: "2004.11886",
    time: Cost::Quadratic("O(L²·E + L·w·E)"),
    memory: Cost::Linear("O(L·E + L·w)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Lite>(include_str!("lite.rs"))],
    ..Model::mixer::<Lite>()
};

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Conv {
    #[default]
    Light,
    Dynamic,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    conv: Conv,
    #[option(range = int(0, LONGEST))]
    kernel: usize,
    #[option(range = int(0, LONGEST))]
    groups: usize,
}

/// Taps of a kernel by layer; the last is that of all further layers.
const KERNELS: [usize; 4] = [3, 7, 15, 31];

impl Options {
    fn groups(&self, block: &BlockOptions) -> usize {
        match self.groups {
            0 => greatest_common_divisor(block.heads, block.dim / 2),
            groups => groups,
        }
    }
}

fn greatest_common_divisor(a: usize, b: usize) -> usize {
    match b {
        0 => a,
        b => greatest_common_divisor(b, a % b),
    }
}

struct Lite {
    attention: Projections,
    dropout: Dropout,
    /// W_I.
    gate: Linear,
    kernel: Kernel,
    /// W_O.
    output: Linear,
    groups: usize,
    /// w.
    taps: usize,
    /// D / 2.
    half: usize,
    /// Width of a head of attention.
    width: usize,
    heads: usize,
}

/// Source of the weights of the taps.
enum Kernel {
    /// (G, w), and their dropout, one number for all examples and positions.
    Light(Tensor, StreamKey, f64),
    /// Layer from the input to G w, and the dropout of the weights.
    Dynamic(Linear, Dropout),
}

impl MixerModel for Lite {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        let block = context.block;
        require(
            block.dim.is_multiple_of(2),
            "block.dim",
            block.dim,
            "even, as half of it attends",
        )?;
        require(
            block.qkv_dim.is_multiple_of(2 * block.heads),
            "block.qkv_dim",
            block.qkv_dim,
            format!(
                "a multiple of twice block.heads = {}, as half of it attends",
                block.heads
            ),
        )?;
        let (half, groups) = (block.dim / 2, options.groups(block));
        require(
            half.is_multiple_of(groups),
            "model.groups",
            groups,
            format!("what divides the {half} channels of the convolution"),
        )?;
        require(
            options.kernel > 0 || !block.share,
            "model.kernel",
            0,
            "at least 1 where block.share = true: all layers then have one kernel",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let block = layer.block;
        let half = block.dim / 2;
        let attending = BlockOptions {
            dim: half,
            qkv_dim: block.qkv_dim / 2,
            ..block.clone()
        };
        let attention_at = LayerContext {
            vb: layer.vb.pp("attention"),
            shared: layer.shared.clone(),
            block: &attending,
            ..*layer
        };
        let (vb, rate) = (layer.vb.pp("conv"), block.attention_dropout);
        let linear = |name: &str, outputs: usize| {
            let init = xavier_uniform(half, outputs);
            Linear::new(&vb.pp(name), half, outputs, init, None)
        };
        let (groups, drop) = (options.groups(block), vb.pp("drop"));
        let taps = match options.kernel {
            0 => KERNELS[layer.index.min(KERNELS.len() - 1)],
            taps => taps,
        };
        let kernel = match options.conv {
            Conv::Light => {
                let init = xavier_uniform(taps, groups * taps);
                let weights = vb
                    .pp("kernel")
                    .get_with_hints((groups, taps), "weight", init)?;
                Kernel::Light(weights, StreamKey::new(&drop.prefix()), rate)
            }
            Conv::Dynamic => {
                Kernel::Dynamic(linear("kernel", groups * taps)?, Dropout::new(&drop, rate))
            }
        };
        Ok(Self {
            attention: Projections::new(&attention_at)?,
            dropout: Dropout::new(&layer.vb.pp("attention").pp("drop"), rate),
            gate: linear("gate", 2 * half)?,
            kernel,
            output: linear("output", half)?,
            groups,
            taps,
            half,
            width: attending.head_dim(),
            heads: block.heads,
        })
    }
}

impl Lite {
    /// Maps g, (B, L, D/2) to (B, L, D/2).
    fn gated(&self, x: &Tensor) -> Result<Tensor> {
        let both = self.gate.forward(x)?;
        let half = |index: usize| columns(&both, index * self.half, self.half);
        Ok((half(0)? * activation::sigmoid(&half(1)?)?)?)
    }

    fn convolve(&self, g: &Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.kernel {
            Kernel::Light(scores, key, rate) => {
                let mut weights = softmax::masked(scores, None)?; // (G, w)
                if pass.train && *rate > 0.0 {
                    let stream = pass.rng.shared(*key);
                    let (dtype, device) = (weights.dtype(), weights.device());
                    let kept = stream.mask_tensor(weights.shape(), *rate, dtype, device)?;
                    weights = (weights * kept)?;
                }
                let of_group = (self.groups, self.half / self.groups, self.taps);
                let weights = weights.unsqueeze(1)?.broadcast_as(of_group)?;
                let weights = weights.contiguous()?.reshape((self.half, self.taps))?;
                depthwise_conv1d(g, &weights, None, Padding::Same, 1)
            }
            Kernel::Dynamic(scores, dropout) => {
                self.convolve_dynamically(g, &scores.forward(g)?, dropout, pass)
            }
        }
    }

    /// Convolves by attention whose scores depend on distances: the softmax over taps is one over
    /// the window around a query, with zeros where the window leaves the sequence.
    fn convolve_dynamically(
        &self,
        g: &Tensor,
        scores: &Tensor,
        dropout: &Dropout,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (batch, length, _) = g.dims3()?;
        let (before, after) = ((self.taps - 1) / 2, self.taps / 2);
        let wider = before + length + after;
        let scores = scores.reshape((batch, length, self.groups, self.taps))?;
        let scores = swap_axes(&scores)?; // (B, G, L, w)
        let scores =
            scores
                .pad_with_zeros(2, before, after)?
                .pad_with_zeros(3, after - before, 0)?;
        let options = AttentionOptions {
            heads: self.groups,
            dropout: dropout.of_attention(batch, pass),
            block_masks: Some(window(wider, before, after)),
            relative: Some(RelativeScores {
                reach: after,
                keys: 0..wider,
                of_heads: None,
                of_queries: Some(scores),
                of_keys: None,
            }),
            ..AttentionOptions::default()
        };
        let values = g.pad_with_zeros(1, before, after)?;
        let nothing = values.zeros_like()?;
        let y = attention::attend(&nothing, &nothing, &values, &options)?;
        Ok(y.narrow(1, before, length)?)
    }
}

/// Returns block masks in which position i of `length` sees i - `before` to i + `after`.
fn window(length: usize, before: usize, after: usize) -> BlockMasks {
    // Kernels are short: blocks of their length would be many, and hardly worth starting.
    let size = after.clamp(SHORTEST, length.max(SHORTEST));
    let neighbours = after.div_ceil(size);
    let (least, most) = (-(before as isize), after as isize);
    let lists = BlockLists::around(length, size, (neighbours, neighbours), |i, j| {
        (least..=most).contains(&(j - i))
    });
    lists.block_masks(length)
}

/// Fewest positions of a block.
const SHORTEST: usize = 32;

impl Mixer for Lite {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let far = columns(x, 0, self.half)?;
        let far = self.attention.attend(&far, pass, &self.dropout, None)?;
        let near = columns(x, self.half, self.half)?;
        let near = self.gated(&zero_padding(&near, pass.mask())?)?;
        let near = self.output.forward(&self.convolve(&near, pass)?)?;
        cat(&[&self.attention.merge(&far)?, &near], 2)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self.heads * length * length;
        let weights = match &self.kernel {
            Kernel::Light(..) => 0,
            Kernel::Dynamic(scores, _) => scores.flops(length),
        };
        self.attention.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.attention.score_mods().flops(length, pairs)
            + self.gate.flops(length)
            + self.output.flops(length)
            + weights
            + 2 * (length * self.half * self.taps) as u64
    }
}

#[cfg(test)]
mod tests;
