//! Memory-compressed attention. Liu et al., 2018, "Generating Wikipedia by Summarizing Long
//! Sequences", arXiv:1801.10198.
//!     y_i = Σ_u a_iu V'_u, a_i = softmax_u(q_i·K'_u / √E),  K'_u = Σ_{t < c} C_t K_{c u + t}, V' likewise with the same C
//! A convolution with kernel and stride c shortens keys and values before softmax attention. B
//! batch, H heads, L length, E width of a head, T = L / c groups; q, y (B, H, L, E), K', V' (B, H,
//! T, E), C (H E, E or H E, c). Time O(L²/c·E) per head, memory O(L·E). Dropout on the weights.
//!
//! # Options
//!
//! `factor` c; `convolve`: `heads`, a kernel for each head, as in the memory-compressed-attention
//! package, `all`, one kernel over all channels, or `input`, one kernel over x (D, D, c), from
//! which keys and values are then projected, as in tensor2tensor; `local` S: layers 0, 2, .. use
//! attention within blocks of S instead, as in the paper, where S = 256 (0: no such layers).
//!
//! # Padding
//!
//! Padded positions count as zeros in their group, and so do missing positions of the last group. A
//! group without a valid token is hidden.
//!
//! # Departures
//!
//! The package puts zeros before the first token if L is no multiple of c (line 50), so its groups
//! begin elsewhere; here zeros follow the last token. tensor2tensor leaves the incomplete
//! last group out, and puts the first token itself in front of the groups, since its form is causal
//! (tensorflow/tensor2tensor@bafdc1b tensor2tensor/layers/common_attention.py:5869-5893,
//! 6028-6043). The package adds a key and a value that belong to no token; `block.memory = 1` does
//! the same, and an encoder needs none. Not here: biases, the causal form. Weights begin
//! Xavier-uniform (±0.217 at D = 64, C ±0.306 at E = 16 and c = 3); in the package uniform within
//! inputs^-½ (±0.125, C ±0.144), biases of C and of the output too
//! (lucidrains/memory-compressed-attention@a806696
//! memory_compressed_attention/memory_compressed_attention.py:10, 36-37). The package divides
//! scores by √(H E) (line 66). It has no feed-forward network and no norms: biases of that network
//! begin N(0, 1e-6²), and the norms' ε is `block.norm_epsilon` = 1e-6, as in tensor2tensor
//! (tensorflow/tensor2tensor@bafdc1b tensor2tensor/layers/common_hparams.py:144).

use crate::{
    layers::ScoreMods,
    ops::{Padding, attention::BlockLists, conv1d},
    params::xavier_uniform_with_gain,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "compressed",
    title: "Memory-Compressed Attention",
    paper: "Generating Wikipedia by Summarizing Long Sequences",
    year: 2018,
    arxiv: "1801.10198",
    time: Cost::Quadratic("O(L²/c·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Compressed>(include_str!("compressed.rs"))],
    ..Model::mixer::<Compressed>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Convolve {
    Heads,
    All,
    Input,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 3, range = int(1, LONGEST))]
    factor: usize,
    #[option(default = Convolve::Heads)]
    convolve: Convolve,
    #[option(range = int(0, LONGEST))]
    local: usize,
}

struct Compressed {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    keys: Keys,
    score_mods: ScoreMods,
    dropout: Dropout,
    heads: usize,
    width: usize,
}

/// Keys that the queries of a layer see.
enum Keys {
    /// The keys of their block of this length.
    Local(usize),
    /// Groups, of keys and values.
    Projected(Compression),
    /// Groups, from which keys and values are projected.
    Input(Compression),
}

/// A convolution without overlap.
struct Compression {
    /// C (G · O, I, c) for G groups of channels, as in PyTorch.
    kernel: Tensor,
}

impl MixerModel for Compressed {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (block, vb) = (layer.block, layer.vb.pp("compress"));
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let inward =
            |name, init| Linear::new(&layer.vb.pp(name), block.dim, block.qkv_dim, init, None);
        let gain = ScoreMods::query_gain(block);
        let of_queries = xavier_uniform_with_gain(block.dim, block.qkv_dim, gain);
        let compression = |channels: usize, of_group: usize| {
            let init = xavier_uniform(options.factor * of_group, of_group);
            let shape = (channels, of_group, options.factor);
            let kernel = vb.get_with_hints(shape, "weight", init)?;
            Ok::<_, Error>(Compression { kernel })
        };
        let row = block.qkv_dim;
        let keys = match options.convolve {
            _ if options.local > 0 && layer.index.is_multiple_of(2) => Keys::Local(options.local),
            Convolve::Heads => Keys::Projected(compression(row, block.head_dim())?),
            Convolve::All => Keys::Projected(compression(row, row)?),
            Convolve::Input => Keys::Input(compression(block.dim, block.dim)?),
        };
        Ok(Self {
            query: inward("query", of_queries)?,
            key: inward("key", init)?,
            value: inward("value", init)?,
            output: Linear::new(&layer.vb.pp("output"), row, block.dim, init, None)?,
            keys,
            score_mods: ScoreMods::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            heads: block.heads,
            width: block.head_dim(),
        })
    }
}

impl Mixer for Compressed {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let mask = pass.mask();
        let q = self.query.forward(x)?; // (B, L, H E)
        let projected = |x: &Tensor| Ok::<_, Error>((self.key.forward(x)?, self.value.forward(x)?));
        let mut options = AttentionOptions {
            heads: self.heads,
            mask: mask.map(|mask| mask.valid().clone()),
            dropout: self.dropout.of_attention(batch, pass),
            ..AttentionOptions::default()
        };
        let (k, v) = match &self.keys {
            Keys::Local(size) => {
                let lists = BlockLists::around(length, *size, (0, 0), |_, _| true);
                options.block_masks = Some(lists.block_masks(length));
                projected(x)?
            }
            Keys::Projected(compression) => {
                options.mask = compression.mask(mask)?;
                let (k, v) = projected(&zero_padding(x, mask)?)?;
                (compression.forward(&k)?, compression.forward(&v)?)
            }
            Keys::Input(compression) => {
                options.mask = compression.mask(mask)?;
                projected(&compression.forward(&zero_padding(x, mask)?)?)?
            }
        };
        let keys = k.dim(1)?;
        self.output
            .forward(&self.score_mods.attend([&q, &k, &v], options, 0..keys)?)
    }

    fn supports(&self) -> Supports {
        const REASON: &str = "a key is of several positions";
        Supports {
            scores: Err(REASON),
            rotary: Err(REASON),
            ..Supports::ALL
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let outer = self.query.flops(length) + self.output.flops(length);
        let (inner, pairs, convolutions) = match &self.keys {
            Keys::Local(size) => (length, length * *size.min(&length), 0),
            Keys::Projected(it) => (length, length * it.groups(length), 2 * it.flops(length)),
            Keys::Input(it) => (
                it.groups(length),
                length * it.groups(length),
                it.flops(length),
            ),
        };
        let inner = self.key.flops(inner) + self.value.flops(inner);
        let mixing = partial_softmax::flops(self.heads * pairs, self.width);
        outer + inner + convolutions + mixing + self.score_mods.flops(length, self.heads * pairs)
    }
}

impl Compression {
    /// Returns c.
    fn factor(&self) -> usize {
        self.kernel.dims()[2]
    }

    /// Returns T.
    fn groups(&self, length: usize) -> usize {
        length.div_ceil(self.factor())
    }

    /// Maps (B, L, W) to (B, T, W).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let ((batch, length, row), (_, width, factor)) = (x.dims3()?, self.kernel.dims3()?);
        let groups = self.groups(length);
        let right = groups * factor - length;
        if width == row {
            let padding = Padding::Zeros { left: 0, right };
            return conv1d(x, &self.kernel, None, padding, factor);
        }
        // One product for each head, of its c E numbers of every group.
        let heads = row / width;
        let x = x.pad_with_zeros(1, 0, right)?;
        let x = x.reshape((batch * groups, factor, heads, width))?;
        let x = x.permute((2, 0, 1, 3))?.contiguous()?;
        let x = x.reshape((heads, batch * groups, factor * width))?;
        let kernel = self.kernel.reshape((heads, width, width, factor))?;
        let kernel = kernel.permute((0, 3, 2, 1))?.contiguous()?;
        let y = matmul(&x, &kernel.reshape((heads, factor * width, width))?)?;
        Ok(y.transpose(0, 1)?
            .contiguous()?
            .reshape((batch, groups, row))?)
    }

    /// Returns (B, T), 1 for groups with a valid token.
    fn mask(&self, mask: Option<&Mask>) -> Result<Option<Tensor>> {
        let Some(mask) = mask else { return Ok(None) };
        let (batch, length) = mask.valid().dims2()?;
        let groups = self.groups(length);
        let missing = groups * self.factor() - length;
        let valid = mask.valid().pad_with_zeros(1, 0, missing)?;
        let valid = valid.reshape((batch, groups, self.factor()))?;
        Ok(Some(valid.max(D::Minus1)?))
    }

    /// Counts the operations for one sequence.
    fn flops(&self, length: usize) -> u64 {
        2 * self.groups(length) as u64 * self.kernel.elem_count() as u64
    }
}

#[cfg(test)]
mod tests;
