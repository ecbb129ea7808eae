//! Synthesizer. Tay et al., 2020, "Synthesizer: Rethinking Self-Attention in Transformer Models", arXiv:2005.00743.
//!     y_i = Σ_j a_ij v_j,  a_i = softmax_j(S_ij) over the first L of N columns
//!     random             S = R                          R (H, N, N) learned
//!     factorised_random  S = P Qᵀ                       P, Q (H, N, K) learned
//!     dense              S_i = W relu(U x_i + b) + c    U (H E, D), per head W (E, N), c (N)
//!     factorised_dense   S_ij = F_i,⌊j/m⌋ G_i,j mod m   F, G as in dense, with ⌈N/m⌉ and m columns, m = ⌈√N⌉
//! The weights do not come from comparing tokens. B batch, H heads, L length, N largest length, E width of a head; v (B, L, H, E), S (B, H, L, L).
//! With `dot_product` the scores are the mixture α₁ q_i·k_j/√E + α₂ S_ij with learned α, α₁ + α₂ = 1.
//! Time O(L²·E) per head, memory O(L²): it is as quadratic as the Transformer, and R alone has H N² parameters.
//! Options: `scores` (above), `dot_product`, `rank` K of factorised_random (0: 8, or 32 for `tay2021`). Not here: fixed (untrained) R.
//! Padded keys get weight zero. Dropout on the weights. Heads have a synthesizer each; the two factors are tiled differently, as equal tilings would make m columns alike.
//! `variant = tay2021`: the mixture is the plain sum q·k/√E + S, as in the 2021 code, whose working configurations all have random with dot product (the defaults).

use candle_core::{D, Tensor};
use candle_nn::{Init, VarBuilder};
use serde::{Deserialize, Serialize};

use crate::{
    Context, Encoder, Mixer, Result,
    encoder::{self, Build, Site},
    kernels::{self, AttentionOptions},
    layers::{Dropout, Linear, activation::relu, parts::by_head, products::product, softmax},
    mixers::Model,
    options::{Variant, to_json},
    params::xavier_uniform,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "synthesizer",
    title: "Synthesizer",
    paper: "Synthesizer: Rethinking Self-Attention in Transformer Models",
    year: 2020,
    arxiv: "2005.00743",
    time: "O(L²·E)",
    memory: "O(L²)",
    masks_padding: true,
    variants: &["paper", "tay2021"],
    defaults: || to_json(&Options::default()),
    build,
    source: include_str!("synthesizer.rs"),
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scores {
    Random,
    FactorisedRandom,
    Dense,
    FactorisedDense,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    variant: Variant,
    scores: Scores,
    dot_product: bool,
    rank: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variant: Variant::Paper,
            scores: Scores::Random,
            dot_product: true,
            rank: 0,
        }
    }
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    encoder::blocks(build, |site| {
        Ok(Box::new(Synthesizer::new(site, &options)?))
    })
}

struct Synthesizer {
    scores: Synthetic,
    dot_product: Option<DotProduct>,
    value: Linear,
    output: Linear,
    dropout: Dropout,
    heads: usize,
    dim: usize,
}

/// Where S comes from.
enum Synthetic {
    Random(Tensor),
    FactorisedRandom(Tensor, Tensor),
    Dense(Dense),
    FactorisedDense(Dense, Dense),
}

struct DotProduct {
    query: Linear,
    key: Linear,
    /// Two numbers whose softmax is α; none where the scores are simply added.
    mixture: Option<Tensor>,
}

impl Synthesizer {
    fn new(site: &Site, options: &Options) -> Result<Self> {
        let (block, longest) = (site.block, site.max_length);
        let linear = |name, inputs, outputs| {
            let init = xavier_uniform(block.dim, block.qkv_dim);
            Linear::new(&site.vb.pp(name), inputs, outputs, init, None)
        };
        let inward = |name| linear(name, block.dim, block.qkv_dim);
        let vb = site.vb.pp("scores");
        let dense = |name, columns| Dense::new(&vb.pp(name), site, columns);
        let scores = match options.scores {
            Scores::Random => {
                let shape = (block.heads, longest, longest);
                // What the 2021 code's Xavier initialiser makes of three dimensions.
                let init = xavier_uniform(block.heads * longest, block.heads * longest);
                Synthetic::Random(vb.get_with_hints(shape, "random", init)?)
            }
            Scores::FactorisedRandom => {
                let rank = match (options.rank, options.variant) {
                    (0, Variant::Paper) => 8,
                    (0, Variant::Tay2021) => 32,
                    (rank, _) => rank,
                }
                .min(longest);
                let init = Init::Randn {
                    mean: 0.0,
                    stdev: (rank as f64).powf(-0.5),
                };
                let factor = |name| vb.get_with_hints((block.heads, longest, rank), name, init);
                Synthetic::FactorisedRandom(factor("left")?, factor("right")?)
            }
            Scores::Dense => Synthetic::Dense(dense("dense", longest)?),
            Scores::FactorisedDense => {
                let (slow, fast) = factors(longest);
                Synthetic::FactorisedDense(dense("slow", slow)?, dense("fast", fast)?)
            }
        };
        let dot_product = match options.dot_product {
            true => Some(DotProduct {
                query: inward("query")?,
                key: inward("key")?,
                mixture: match options.variant {
                    Variant::Paper => {
                        Some(site.vb.get_with_hints(2, "mixture", Init::Const(0.0))?)
                    }
                    Variant::Tay2021 => None,
                },
            }),
            false => None,
        };
        Ok(Self {
            scores,
            dot_product,
            value: inward("value")?,
            output: linear("output", block.qkv_dim, block.dim)?,
            dropout: Dropout::new(&site.vb.pp("drop"), block.attention_dropout),
            heads: block.heads,
            dim: block.qkv_dim,
        })
    }

    /// (B, L, H E) to (B, H, L, E).
    fn heads(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, width) = x.dims3()?;
        by_head(&x.reshape((batch, length, self.heads, width / self.heads))?)
    }

    /// By the attention kernel, which takes scores S (H, N, N) as a bias: no weight is kept, and nothing else of the size of S but its gradient.
    fn forward_fused(&self, x: &Tensor, scores: &Tensor, context: &Context) -> Result<Tensor> {
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
            mask: context.mask().map(|mask| mask.real().clone()),
            dropout: self.dropout.of_attention(x.dim(0)?, context),
            ..AttentionOptions::default()
        };
        let y = kernels::attention_biased(&packed.forward(x)?, scores, &share, &options)?;
        self.output.forward(&y)
    }

    /// Scores (B or 1, H, L, L).
    fn scores(&self, x: &Tensor) -> Result<Tensor> {
        let synthetic = self.scores.forward(x)?;
        let Some(dot) = &self.dot_product else {
            return Ok(synthetic);
        };
        let (q, k) = (
            self.heads(&dot.query.forward(x)?)?,
            self.heads(&dot.key.forward(x)?)?,
        );
        let scale = (q.dim(D::Minus1)? as f64).powf(-0.5);
        let product = product(&q.affine(scale, 0.0)?, &k.t()?)?;
        let Some(shares) = dot.shares()? else {
            return Ok(product.broadcast_add(&synthetic)?);
        };
        let share = |index| shares.narrow(0, index, 1);
        let product = product.broadcast_mul(&share(0)?)?;
        Ok(product.broadcast_add(&synthetic.broadcast_mul(&share(1)?)?)?)
    }
}

impl DotProduct {
    /// α of the dot product and of the synthetic scores (2); none where they are simply added.
    fn shares(&self) -> Result<Option<Tensor>> {
        let shares = |mixture: &Tensor| -> Result<Tensor> {
            let shares = softmax::masked(&mixture.reshape((1, 1, 1, 2))?, None)?;
            Ok(shares.flatten_all()?)
        };
        self.mixture.as_ref().map(shares).transpose()
    }
}

impl Mixer for Synthesizer {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        if kernels::supports(x)
            && let Some(scores) = self.scores.fixed(length)?
        {
            return self.forward_fused(x, &scores, context);
        }
        let v = self.heads(&self.value.forward(x)?)?; // (B, H, L, E)
        let scores = self.scores(x)?;
        let shape = (batch, self.heads, length, length);
        let scores = scores.broadcast_as(shape)?;
        let weights = softmax::masked(&scores, context.mask())?;
        let weights = match self.dropout.of_attention(batch, context) {
            Some(dropout) => {
                let factors = dropout.factors(self.heads, length, length, x.device())?;
                (weights * factors.to_dtype(x.dtype())?)?
            }
            None => weights,
        };
        let y = by_head(&product(&weights, &v)?)?; // (B, L, H, E)
        self.output.forward(&y.flatten_from(2)?)
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

impl Synthetic {
    /// S where it is the same for every input, (H, N, N) with N at least `length`.
    fn fixed(&self, length: usize) -> Result<Option<Tensor>> {
        Ok(match self {
            Self::Random(scores) => Some(scores.clone()),
            Self::FactorisedRandom(left, right) => Some(low_rank(left, right, length)?),
            Self::Dense(_) | Self::FactorisedDense(..) => None,
        })
    }

    /// S (B or 1, H, L, L).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (_, length, _) = x.dims3()?;
        let scores = match self {
            Self::Random(scores) => scores.narrow(1, 0, length)?.unsqueeze(0)?,
            Self::FactorisedRandom(left, right) => low_rank(left, right, length)?.unsqueeze(0)?,
            Self::Dense(dense) => dense.forward(x)?,
            Self::FactorisedDense(slow, fast) => {
                let slow = slow.forward(x)?.unsqueeze(4)?; // (B, H, L, N / m, 1)
                let fast = fast.forward(x)?.unsqueeze(3)?; // (B, H, L, 1, m)
                slow.broadcast_mul(&fast)?.flatten_from(3)?
            }
        };
        Ok(scores.narrow(3, 0, length)?)
    }

    fn flops(&self, length: usize) -> u64 {
        match self {
            Self::Random(_) => 0,
            Self::FactorisedRandom(left, _) => {
                2 * (length * length * left.dims()[0] * left.dims()[2]) as u64
            }
            Self::Dense(dense) => dense.flops(length),
            Self::FactorisedDense(slow, fast) => slow.flops(length) + fast.flops(length),
        }
    }
}

/// The first `length` rows of P and Q (H, N, K) to P Qᵀ (H, L, L).
fn low_rank(left: &Tensor, right: &Tensor, length: usize) -> Result<Tensor> {
    let first = |x: &Tensor| x.narrow(1, 0, length)?.contiguous();
    product(&first(left)?, &first(right)?.t()?)
}

/// Columns of the two factors: ⌈N / m⌉ and m, with m = ⌈√N⌉.
fn factors(longest: usize) -> (usize, usize) {
    let fast = (longest as f64).sqrt().ceil() as usize;
    (longest.div_ceil(fast), fast)
}

/// W relu(U x + b) + c, W and c for each head.
struct Dense {
    inner: Linear,
    weight: Tensor,
    bias: Tensor,
}

impl Dense {
    fn new(vb: &VarBuilder, site: &Site, columns: usize) -> Result<Self> {
        let block = site.block;
        let width = block.head_dim();
        let bias = Some(Init::Const(0.0));
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let inner = Linear::new(&vb.pp("inner"), block.dim, block.qkv_dim, init, bias)?;
        let init = xavier_uniform(width, columns);
        Ok(Self {
            inner,
            weight: vb.get_with_hints((block.heads, width, columns), "weight", init)?,
            bias: vb.get_with_hints((block.heads, 1, columns), "bias", Init::Const(0.0))?,
        })
    }

    /// (B, L, D) to (B, H, L, columns).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let (heads, width, columns) = self.weight.dims3()?;
        let hidden = relu(&self.inner.forward(x)?, 0.0)?;
        // The batch beside the length: one product per head, and one gradient for its weight.
        let hidden = hidden
            .reshape((batch * length, heads, width))?
            .transpose(0, 1)?
            .contiguous()?;
        let scores = product(&hidden, &self.weight)?.broadcast_add(&self.bias)?;
        let scores = scores.reshape((heads, batch, length, columns))?;
        Ok(scores.transpose(0, 1)?)
    }

    fn flops(&self, length: usize) -> u64 {
        self.inner.flops(length) + 2 * (length * self.weight.elem_count()) as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Draws, Parameters,
        layers::testing::{check_layer, parameters},
        options::BlockOptions,
        oracle,
    };

    const LENGTH: usize = 4;

    fn block() -> BlockOptions {
        BlockOptions {
            dim: 3,
            qkv_dim: 4,
            heads: 2,
            ..BlockOptions::default()
        }
    }

    fn mixer(parameters: &Parameters, options: &Options) -> Synthesizer {
        let block = block();
        let site = Site {
            vb: parameters.builder(),
            block: &block,
            max_length: LENGTH + 1,
            cls: false,
            layer: 0,
        };
        Synthesizer::new(&site, options).unwrap()
    }

    fn context() -> Context<'static> {
        Context::new(false, Draws::new(1, 0, 0))
    }

    #[test]
    fn gradients_agree_with_differences_for_every_kind_of_score() {
        for scores in [
            Scores::Random,
            Scores::FactorisedRandom,
            Scores::Dense,
            Scores::FactorisedDense,
        ] {
            for dot_product in [false, true] {
                let options = Options {
                    scores,
                    dot_product,
                    ..Options::default()
                };
                let parameters = parameters();
                let mixer = mixer(&parameters, &options);
                check_layer("synthesizer", &parameters, &[2, LENGTH, 3], |x| {
                    mixer.forward(x, &context())
                });
            }
        }
    }

    #[test]
    fn a_mixture_that_is_all_dot_product_is_softmax_attention() {
        let parameters = parameters();
        let mixer = mixer(&parameters, &Options::default());
        let all = parameters.all();
        let (_, mixture) = all.iter().find(|(path, _)| path == "mixture").unwrap();
        let only_dot = Tensor::new(&[40.0, -40.0f64], &Device::Cpu).unwrap();
        mixture.set(&only_dot).unwrap();
        let x = crate::layers::testing::normal("x", &[2, LENGTH, 3]);
        let dot = mixer.dot_product.as_ref().unwrap();
        let split = |linear: &Linear| {
            let y = linear.forward(&x).unwrap();
            y.reshape((2, LENGTH, 2, 2)).unwrap()
        };
        let (q, k, v) = (split(&dot.query), split(&dot.key), split(&mixer.value));
        let wanted = oracle::attention(&q, &k, &v, None, oracle::softmax).unwrap();
        let wanted = mixer
            .output
            .forward(&wanted.flatten_from(2).unwrap())
            .unwrap();
        let found = mixer.forward(&x, &context()).unwrap();
        let apart = (found - wanted).unwrap().abs().unwrap().max_all().unwrap();
        assert!(apart.to_scalar::<f64>().unwrap() < 1e-12);
    }

    #[test]
    fn two_factors_cover_every_length() {
        for longest in 1..200 {
            let (slow, fast) = factors(longest);
            assert!(slow * fast >= longest && slow <= fast);
        }
        let parameters = Parameters::new(0, &Device::Cpu, DType::F32);
        let options = Options {
            scores: Scores::FactorisedDense,
            ..Options::default()
        };
        let mixer = mixer(&parameters, &options);
        for length in 1..=LENGTH + 1 {
            let x = Tensor::zeros((1, length, 3), DType::F32, &Device::Cpu).unwrap();
            assert_eq!(mixer.scores(&x).unwrap().dims()[2..], [length, length]);
        }
    }
}
