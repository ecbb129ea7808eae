//! Primal-Attention. Chen, Tao, Tonin, Suykens, 2023, "Primal-Attention: Self-attention through
//! Asymmetric Kernel SVD in Primal Representation", arXiv:2305.19798.
//!     e_t = F_eᵀ q̂_t,  r_t = F_rᵀ k̂_t,  y_t = M [e_t ; r_t] + c,  out = W y + b,  F_e = X'ᵀ W_e,  F_r = X'ᵀ W_r,  x̂ = x/|x|
//!     J = mean_layers (½ mean|Λ e_t|² + ½ mean|Λ r_t|² - mean_heads tr(W_eᵀ W_r))²
//! The left and right singular vectors of an asymmetric kernel, of which J makes them: scores e and
//! r of low rank in place of weights and values. B batch, H heads, L length, E width of a head, D =
//! H E; q, k, y (B, H, L, E) linear maps of x with biases, e, r (B, H, L, s), M (E, 2s), Λ (H, s),
//! W_e, W_r (H, p, s). X' (B, H, p, E) are p rows of x, evenly spaced from the first to the last,
//! cut into heads: so F depends on the sequence. Time O(L·s·E) per head, memory O(L·(s + E)). At
//! first the heads of W_e are orthonormal vectors of p s numbers, and so are those of W_r, Λ is
//! uniform within 0 and 1, and linear maps begin as PyTorch's. Read in
//! yingyichen-cyy/PrimalAttention@084d122 PrimalAttention_LRA/PrimalFormer/attentions/attention.py,
//! attention_primal_cos.py, model_wrapper.py and bashes/run_tasks.sh: s = 20 on ListOps and Text,
//! 30 elsewhere; p = 10 s, η 0.1 (Text 0.05, Retrieval 0), everything else as Nyströmformer on this
//! benchmark.
//!
//! # Options
//!
//! `low_rank` s; `rank_multi` p / s. Loss `ksvd`: J, whose weight `train.aux.ksvd` is η. Heads are
//! cut out of x, so that E = D/H for any `block.qkv_dim`.
//!
//! # Padding
//!
//! Rows of X' are chosen among the valid positions of a sequence, which are also those that J has
//! the mean over. A sequence of fewer than p has some of them several times.
//!
//! # Departures
//!
//! The published J squares a mean over all sequences of a batch; here each sequence has a J of its
//! own, and the loss is their mean. The published rows of X' are those of the padded length. Blocks
//! that keep no states cannot have J, so reversible ones are refused. The form with softmax
//! attention in the other layers (Primal.+Trans.) is left out. The feed-forward network begins
//! Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases N(0, 1e-6²); the published code
//! has PyTorch's linear layers, all uniform within inputs^-½ (±0.125 and ±0.088), biases too
//! (yingyichen-cyy/PrimalAttention@084d122 PrimalAttention_LRA/PrimalFormer/model.py:54-60). Its
//! `trace_no_x` = False is left out.

use crate::{
    ops::{
        IGNORE_INDEX, l2_normalize,
        swap_axes::{merge_heads, split_heads},
    },
    params::{fan_in_uniform, orthonormal},
    prelude::*,
};

/// Loss J.
const KSVD: Loss = Loss::new("ksvd", 0.1);

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "primal",
    title: "Primal-Attention",
    paper: "Primal-Attention: Self-attention through Asymmetric Kernel SVD in Primal Representation",
    year: 2023,
    arxiv: "2305.19798",
    time: Cost::Linear("O(L·s·E)"),
    memory: Cost::Linear("O(L·(s + E))"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"norm_epsilon": 1e-5}}"#,
    variants: &[Variant::mixer::<Primal>(include_str!("primal.rs")).with_losses(&[KSVD])],
    ..Model::mixer::<Primal>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// s.
    #[option(default = 20, range = int(1, 4096))]
    low_rank: usize,
    /// p / s.
    #[option(default = 10, range = int(1, 1000))]
    rank_multi: usize,
}

struct Primal {
    query: Linear,
    key: Linear,
    /// W_e and W_r (H, p, s).
    weights: [Tensor; 2],
    /// Λ (H, s).
    lambda: Tensor,
    /// M and c.
    mix: Linear,
    output: Linear,
    /// Share of this layer in J.
    share: f64,
    heads: usize,
    width: usize,
    low_rank: usize,
    samples: usize,
}

impl MixerModel for Primal {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        let block = context.block;
        require(
            block.dim.is_multiple_of(block.heads),
            "block.heads",
            block.heads,
            format!("a divisor of block.dim = {}", block.dim),
        )?;
        require(
            block.residual != Residual::Reversible,
            "block.residual",
            "reversible",
            "another, because the loss ksvd needs the states of each layer",
        )?;
        let most = options.low_rank * options.low_rank * options.rank_multi;
        require(
            block.heads <= most,
            "block.heads",
            block.heads,
            format!("at most model.low_rank² model.rank_multi = {most}"),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (heads, rank) = (block.heads, options.low_rank);
        let width = block.dim / heads;
        let samples = rank * options.rank_multi;
        let linear = |name: &str, inputs, outputs| {
            let init = fan_in_uniform(inputs);
            Linear::new(&vb.pp(name), inputs, outputs, init, Some(init))
        };
        let weights = |name| {
            let shape = (heads, samples, rank);
            vb.get_with_values(shape, name, Attributes::MATRIX, |stream| {
                orthonormal(stream, heads, samples * rank)
            })
        };
        let unit = Init::Uniform { lo: 0.0, up: 1.0 };
        Ok(Self {
            query: linear("query", block.dim, block.dim)?,
            key: linear("key", block.dim, block.dim)?,
            weights: [weights("w_e")?, weights("w_r")?],
            lambda: vb.get_with_attributes((heads, rank), "lambda", unit, Attributes::NO_DECAY)?,
            mix: linear("mix", 2 * rank, width)?,
            output: linear("output", block.dim, block.dim)?,
            share: 1.0 / block.layers as f64,
            heads,
            width,
            low_rank: rank,
            samples,
        })
    }
}

impl Primal {
    /// Returns X' as (B, H, p, E).
    fn sampled(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let all = Mask::places(mask, (batch, length))?;
        let mut rows = vec![IGNORE_INDEX; batch * self.samples];
        for (places, rows) in all.iter().zip(rows.chunks_mut(self.samples)) {
            let Some(last) = places.len().checked_sub(1) else {
                continue;
            };
            let steps = (self.samples - 1).max(1);
            for (index, row) in rows.iter_mut().enumerate() {
                *row = places[index * last / steps] as u32;
            }
        }
        let rows = Tensor::from_vec(rows, (batch, self.samples), x.device())?;
        split_heads(&take(x, &rows)?, self.heads)
    }

    /// Returns J of each sequence (B), as the share of this layer, of scores (B, H, L, s).
    fn loss(&self, scores: &[Tensor; 2], mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, _, length, _) = scores[0].dims4()?;
        let lambda = self.lambda.unsqueeze(1)?.unsqueeze(0)?; // (1, H, 1, s)
        let energy = |scores: &Tensor| -> Result<Tensor> {
            let squares = scores.broadcast_mul(&lambda)?.sqr()?;
            Ok(squares.sum(D::Minus1)?.sum(1)?) // (B, L)
        };
        let energy = (energy(&scores[0])? + energy(&scores[1])?)?;
        let mean = match mask {
            Some(mask) => {
                let valid = mask.valid();
                let count = valid.sum(1)?;
                let count = count.maximum(&count.ones_like()?)?;
                (energy * valid)?.sum(1)?.div(&count)?
            }
            None => energy.sum(1)?.affine(1.0 / length as f64, 0.0)?,
        };
        let trace = (&self.weights[0] * &self.weights[1])?.sum_all()?;
        let trace = trace.reshape(1)?.broadcast_as(batch)?;
        let per_head = 1.0 / self.heads as f64;
        let gap = (mean.affine(0.5 * per_head, 0.0)? - trace.affine(per_head, 0.0)?)?;
        Ok(gap.sqr()?.affine(self.share, 0.0)?)
    }
}

impl Mixer for Primal {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let sampled = self.sampled(x, pass.mask())?.t()?; // (B, H, E, p)
        let score = |linear: &Linear, weights: &Tensor| -> Result<Tensor> {
            let x = split_heads(&linear.forward(x)?, self.heads)?;
            let features = matmul(&sampled, &weights.unsqueeze(0)?)?; // (B, H, E, s)
            matmul(&l2_normalize(&x, self.width)?, &features)
        };
        let scores = [
            score(&self.query, &self.weights[0])?,
            score(&self.key, &self.weights[1])?,
        ];
        if pass.wants_losses() {
            pass.add_loss(&KSVD, &self.loss(&scores, pass.mask())?)?;
        }
        let y = self.mix.forward(&Tensor::cat(&scores, 3)?)?;
        let y = zero_padding(&merge_heads(&y)?, pass.mask())?;
        self.output.forward(&y)
    }

    fn losses(&self) -> &'static [Loss] {
        &[KSVD]
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.query, &self.key, &self.output];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let product = self.heads * self.width * self.low_rank;
        let scores = 4 * (product * (length + self.samples)) as u64;
        linears + scores + self.mix.flops(length * self.heads)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        loss::AuxLosses,
        testing::{check_layer, close, normal, parameters, pass},
    };

    fn mixer(parameters: &crate::Parameters) -> Primal {
        let block = BlockOptions {
            dim: 6,
            qkv_dim: 6,
            heads: 2,
            layers: 1,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let options = Options {
            low_rank: 2,
            rank_multi: 2,
        };
        Primal::new(&layer, &options).unwrap()
    }

    fn mask() -> Mask {
        let valid = [[1.0; 5], [1.0, 0.0, 1.0, 1.0, 0.0], [0.0; 5]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn rows_are_evenly_spaced_among_real_positions() {
        let mixer = mixer(&parameters());
        let x = normal("x", &[3, 5, 6]);
        let rows = merge_heads(&mixer.sampled(&x, Some(&mask())).unwrap()).unwrap();
        for (row, expected) in [[0u32, 1, 2, 4], [0, 0, 2, 3]].iter().enumerate() {
            let expected = Tensor::new(&expected[..], &Device::Cpu).unwrap();
            let expected = x.get(row).unwrap().index_select(&expected, 0).unwrap();
            close(&rows.get(row).unwrap(), &expected, 1e-15, "rows");
        }
        let none = rows.get(2).unwrap();
        close(&none, &none.zeros_like().unwrap(), 1e-15, "none");
    }

    #[test]
    fn heads_begin_orthonormal() {
        let mixer = mixer(&parameters());
        for weights in &mixer.weights {
            let rows = weights.flatten_from(1).unwrap();
            let products = matmul(&rows, &rows.t().unwrap()).unwrap();
            let expected = Tensor::eye(2, DType::F64, &Device::Cpu).unwrap();
            close(&products, &expected, 1e-12, "products");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let (parameters, mask) = (parameters(), mask());
        let mixer = mixer(&parameters);
        check_layer("primal", &parameters, &[3, 5, 6], |x| {
            let losses = AuxLosses::default();
            let pass = pass();
            let pass = pass.with_losses(&losses);
            let y = mixer.forward(x, &pass.with_mask(Some(&mask)))?;
            let loss = losses.means()?.remove(0).1;
            Ok(zero_padding(&y, Some(&mask))?.broadcast_add(&loss)?)
        });
    }
}
