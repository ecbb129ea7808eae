//! The synthesised scores S, from the parameters only or from each query only.

use std::sync::Arc;

use super::Form;
use super::Options;
use super::Scores;
use crate::{ops::activation::relu, params::Buffer, prelude::*};

/// Source of S.
pub(super) enum Synthetic {
    Random(Tensor),
    FixedRandom(Buffer),
    FactorisedRandom(Tensor, Tensor),
    Dense(Dense),
    FactorisedDense(Dense, Dense),
}

/// Scores for one input.
pub(super) enum Synthesised {
    /// Scores that every input shares, (H, N, N) with N at least L.
    Shared(Tensor),
    /// Scores of each query, (B, H, L, L).
    ByQuery(Tensor),
}

impl Synthetic {
    /// Returns the kind of scores that `options` ask for.
    pub(super) fn new(layer: &LayerContext, options: &Options, form: &Form) -> Result<Self> {
        let (block, longest) = (layer.block, layer.max_length);
        let vb = layer.vb.pp("scores");
        let dense = |name, columns| Dense::new(&vb.pp(name), layer, columns);
        Ok(match options.scores {
            Scores::Random | Scores::FixedRandom => {
                let shape = (block.heads, longest, longest);
                // Result of the 2021 code's Xavier initialiser for three dimensions.
                let init = xavier_uniform(block.heads * longest, block.heads * longest);
                match options.scores {
                    Scores::FixedRandom => {
                        let unchanged = Arc::new(|old: &Tensor, _: &Tensor| Ok(old.clone()));
                        Self::FixedRandom(vb.buffer(shape, "random", init, unchanged)?)
                    }
                    _ => Self::Random(vb.get_with_hints(shape, "random", init)?),
                }
            }
            Scores::FactorisedRandom => {
                let rank = match options.rank {
                    0 => form.rank,
                    rank => rank,
                }
                .min(longest);
                let init = (form.factors)(block.heads, longest, rank);
                let factor = |name| vb.get_with_hints((block.heads, longest, rank), name, init);
                Self::FactorisedRandom(factor("left")?, factor("right")?)
            }
            Scores::Dense => Self::Dense(dense("dense", longest)?),
            Scores::FactorisedDense => {
                let (slow, fast) = factors(longest);
                Self::FactorisedDense(dense("slow", slow)?, dense("fast", fast)?)
            }
        })
    }

    /// Returns S for x (B, L, D).
    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Synthesised> {
        let (_, length, _) = x.dims3()?;
        let scores = match self {
            Self::Random(scores) => return Ok(Synthesised::Shared(scores.clone())),
            Self::FixedRandom(scores) => {
                let scores = pass.fixed("random").unwrap_or(scores.value());
                return Ok(Synthesised::Shared(scores.clone()));
            }
            Self::FactorisedRandom(left, right) => {
                return Ok(Synthesised::Shared(low_rank(left, right, length)?));
            }
            Self::Dense(dense) => dense.forward(x)?,
            Self::FactorisedDense(slow, fast) => {
                let slow = slow.forward(x)?.unsqueeze(4)?; // (B, H, L, N / m, 1)
                let fast = fast.forward(x)?.unsqueeze(3)?; // (B, H, L, 1, m)
                slow.broadcast_mul(&fast)?.flatten_from(3)?
            }
        };
        Ok(Synthesised::ByQuery(scores.narrow(3, 0, length)?))
    }

    pub(super) fn flops(&self, length: usize) -> u64 {
        match self {
            Self::Random(_) | Self::FixedRandom(_) => 0,
            Self::FactorisedRandom(left, _) => {
                2 * (length * length * left.dims()[0] * left.dims()[2]) as u64
            }
            Self::Dense(dense) => dense.flops(length),
            Self::FactorisedDense(slow, fast) => slow.flops(length) + fast.flops(length),
        }
    }
}

/// Maps the first `length` rows of P and Q (H, N, K) to P Qᵀ (H, L, L).
fn low_rank(left: &Tensor, right: &Tensor, length: usize) -> Result<Tensor> {
    let first = |x: &Tensor| x.narrow(1, 0, length)?.contiguous();
    matmul(&first(left)?, &first(right)?.t()?)
}

/// Returns columns of the two factors: ⌈N / m⌉ and m, with m = ⌈√N⌉.
pub(super) fn factors(longest: usize) -> (usize, usize) {
    let fast = (longest as f64).sqrt().ceil() as usize;
    (longest.div_ceil(fast), fast)
}

/// W relu(U x + b) + c, W and c for each head.
pub(super) struct Dense {
    inner: Linear,
    weight: Tensor,
    bias: Tensor,
}

impl Dense {
    fn new(vb: &VarBuilder, layer: &LayerContext, columns: usize) -> Result<Self> {
        let block = layer.block;
        let width = block.head_dim();
        let bias = Some(Init::Const(0.0));
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let inner = Linear::new(&vb.pp("inner"), block.dim, block.qkv_dim, init, bias)?;
        let init = xavier_uniform(width, columns);
        Ok(Self {
            inner,
            weight: vb.get_with_hints((block.heads, width, columns), "weight", init)?,
            bias: vb.get_with_attributes(
                (block.heads, 1, columns),
                "bias",
                Init::Const(0.0),
                Attributes::NO_DECAY,
            )?,
        })
    }

    /// Maps (B, L, D) to (B, H, L, columns).
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let (heads, width, columns) = self.weight.dims3()?;
        let hidden = relu(&self.inner.forward(x)?, 0.0)?;
        // The batch beside the length: one product per head, and one gradient for its weight.
        let hidden = hidden
            .reshape((batch * length, heads, width))?
            .transpose(0, 1)?
            .contiguous()?;
        let scores = matmul(&hidden, &self.weight)?.broadcast_add(&self.bias)?;
        let scores = scores.reshape((heads, batch, length, columns))?;
        Ok(scores.transpose(0, 1)?)
    }

    fn flops(&self, length: usize) -> u64 {
        self.inner.flops(length) + 2 * (length * self.weight.elem_count()) as u64
    }
}
