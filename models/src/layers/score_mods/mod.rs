//! Score modifications: terms of attention scores beside the product of query and key, and keys
//! that belong to no token. They are options of the block around every mixer that supports them
//! ([`Supports`]).
//!
//! ```text
//! q, k ← rotated by position            block.rotary    RoFormer
//! k, v ← [k ; M_k], [v ; M_v]           block.memory    all-attention
//! z_ij ← z_ij + ..                      block.bias      T5, ALiBi, Gaussian, Shaw, Transformer-XL, DeBERTa
//! z_ij ← c tanh(z_ij / c)               block.soft_cap  Gemma 2
//! ```
//! Positions are those of the sequence that the mixer receives, so the CLS token is at position 0.
//! A hidden key stays hidden, whatever is added to its score.

mod content;
mod distance;
mod memory;
mod rotary;
mod transformer_xl;

use std::ops::Range;

use candle_core::Tensor;

use self::{
    content::{Deberta, Shaw, ThirdTerm},
    distance::ByDistance,
    memory::Memory,
};
pub use self::{rotary::Rotary, transformer_xl::TransformerXl};
pub use crate::supports::Supports;
use crate::{
    LayerContext, Result,
    ops::attention::{self, AttentionOptions, RelativeScores, ScoreFunctions},
    options::{BlockOptions, PairBias},
};

/// A form of attention, such as [`attention::attend`].
pub type Attend<'a> = &'a dyn Fn(&Tensor, &Tensor, &Tensor, &AttentionOptions) -> Result<Tensor>;

/// Modifications of the attention scores of one mixer, beside the product of query and key:
/// rotations, biases, memory slots and a soft cap.
#[derive(Default)]
pub struct ScoreMods {
    bias: Option<Bias>,
    rotary: Option<Rotary>,
    memory: Option<Memory>,
    functions: ScoreFunctions,
    heads: usize,
    /// E.
    width: usize,
}

/// Bias that is added to scores.
enum Bias {
    /// Bias by distance alone.
    ByDistance(ByDistance),
    Shaw(Shaw),
    TransformerXl(TransformerXl),
    Deberta(Deberta),
}

/// Operands of attention: queries (B, Lq, H E), keys and values (B, Lk, H E). Those of the keys in
/// `positions` belong to tokens in their order.
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    options: AttentionOptions,
    positions: Range<usize>,
}

impl Operands {
    /// Returns the factor on products.
    fn scale(&self, width: usize) -> f64 {
        let usual = || (width as f64).powf(-0.5);
        self.options.scale.unwrap_or_else(usual)
    }

    /// Returns empty scores by distances up to `reach`.
    fn by_distance(&self, reach: usize) -> RelativeScores {
        RelativeScores {
            reach,
            keys: self.positions.clone(),
            of_heads: None,
            of_queries: None,
            of_keys: None,
        }
    }
}

impl ScoreMods {
    /// Builds the modifications that the block's options ask for. Their parameters are below `bias`
    /// and `memory` at the layer. Those that all layers share are below `bias` at the model.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(layer: &LayerContext) -> Result<Self> {
        let (block, vb) = (layer.block, layer.vb.pp("bias"));
        let bias = match block.bias {
            PairBias::None => None,
            PairBias::T5 => Some(Bias::ByDistance(ByDistance::t5(layer)?)),
            PairBias::Alibi => Some(Bias::ByDistance(ByDistance::alibi(layer)?)),
            PairBias::Gauss => Some(Bias::ByDistance(ByDistance::gauss(&vb, block)?)),
            PairBias::Shaw => Some(Bias::Shaw(Shaw::new(&vb, block, layer.max_length)?)),
            PairBias::Xl => Some(Bias::TransformerXl(TransformerXl::new(&vb, &vb, block)?)),
            PairBias::Deberta => Some(Bias::Deberta(Deberta::new(layer, ThirdTerm::FromKey)?)),
            PairBias::DebertaPaper => {
                Some(Bias::Deberta(Deberta::new(layer, ThirdTerm::FromQuery)?))
            }
        };
        let memory = match block.memory {
            0 => None,
            slots => Some(Memory::new(&layer.vb.pp("memory"), block, slots)?),
        };
        Ok(Self {
            bias,
            rotary: block.rotary.then(|| Rotary::new(block.head_dim())),
            memory,
            functions: ScoreFunctions {
                soft_cap: (block.soft_cap > 0.0).then_some(block.soft_cap),
            },
            heads: block.heads,
            width: block.head_dim(),
        })
    }

    /// Returns the modifications of attention in which no query sees a later key. T5's buckets are
    /// then those of its decoder.
    #[must_use]
    pub(crate) fn causal(self) -> Self {
        let bias = match self.bias {
            Some(Bias::ByDistance(bias)) => Some(Bias::ByDistance(bias.causal())),
            other => other,
        };
        Self { bias, ..self }
    }

    /// Returns the factor of the initial weights of queries. It is E^-½ for heads E wide if the
    /// products of queries and keys are not divided by √E, as in T5, and 1 otherwise.
    #[must_use]
    pub(crate) fn query_gain(block: &BlockOptions) -> f64 {
        match block.bias {
            PairBias::T5 => (block.head_dim() as f64).powf(-0.5),
            _ => 1.0,
        }
    }

    /// Returns whether there are no modifications except rotations, which are applied before
    /// attention.
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.bias.is_none() && self.memory.is_none() && self.functions.is_identity()
    }

    /// Returns `options` with the functions of the scores.
    fn with_functions(&self, options: AttentionOptions) -> AttentionOptions {
        AttentionOptions {
            functions: self.functions,
            ..options
        }
    }

    /// Returns `options` with the modifications of attention within a sequence of `length`, if they
    /// depend on positions alone. Attention can then take queries, keys and values side by side.
    /// `None` if a bias depends on contents, or there are memory slots.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn content_independent(
        &self,
        length: usize,
        options: &AttentionOptions,
    ) -> Result<Option<AttentionOptions>> {
        let options = self.with_functions(options.clone());
        Ok(match (&self.bias, &self.memory) {
            (None, None) => Some(options),
            (Some(Bias::ByDistance(bias)), None) => {
                Some(bias.options(options, length, 0..length)?)
            }
            _ => None,
        })
    }

    /// Rotates the first `columns` of x (B, L, W), queries or keys of all heads, by position.
    /// Returns (B, L, W), or x itself without rotary positions.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn rotate(&self, x: &Tensor, columns: usize) -> Result<Tensor> {
        match &self.rotary {
            Some(rotary) => rotary.forward(x, columns),
            None => Ok(x.clone()),
        }
    }

    /// Returns keys and values with S memory slots behind them, and the mask over both. `k` and `v`
    /// are (B, L, H E) and become (B, L + S, H E). `mask` is (B, L) and becomes (B, L + S).
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn append_memory(
        &self,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
    ) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        match &self.memory {
            Some(memory) => memory.beside(k, v, mask),
            None => Ok((k.clone(), v.clone(), mask.cloned())),
        }
    }

    /// Returns attention (B, Lq, H E) of queries (B, Lq, H E), already rotated, on keys and values
    /// (B, Lk, H E); `qkv` has them in this order. The keys in `positions` belong to tokens, in
    /// order. The first of them has the position of the first query.
    ///
    /// # Errors
    /// Errors of [`attention::attend`].
    pub fn attend(
        &self,
        qkv: [&Tensor; 3],
        options: AttentionOptions,
        positions: Range<usize>,
    ) -> Result<Tensor> {
        self.attend_with(&attention::attend, qkv, options, positions)
    }

    /// Computes [`ScoreMods::attend`], with the same shapes, by another form of attention. `attend`
    /// may get [`AttentionOptions::key_columns`], and more keys behind the existing ones.
    ///
    /// # Errors
    /// Errors of `attend`.
    pub(crate) fn attend_with(
        &self,
        attend: Attend<'_>,
        [q, k, v]: [&Tensor; 3],
        options: AttentionOptions,
        positions: Range<usize>,
    ) -> Result<Tensor> {
        let (k, v, mask) = self.append_memory(k, v, options.mask.as_ref())?;
        let block_masks = match (&options.block_masks, &self.memory) {
            (Some(block_masks), Some(memory)) => {
                let first = k.dim(1)? - memory.slots();
                Some(block_masks.beside(first as u32..k.dim(1)? as u32))
            }
            (block_masks, _) => block_masks.clone(),
        };
        let operands = Operands {
            q: q.clone(),
            k,
            v,
            options: AttentionOptions {
                mask,
                block_masks,
                ..self.with_functions(options)
            },
            positions,
        };
        let Operands {
            q, k, v, options, ..
        } = match &self.bias {
            None => operands,
            Some(Bias::TransformerXl(bias)) => {
                let Operands {
                    q,
                    k,
                    v,
                    options,
                    positions,
                } = operands;
                let token = |key| positions.contains(&key).then(|| key - positions.start);
                let keys = (0..k.dim(1)?).map(|key| token(key).map(|at| at as i64));
                let places = bias.places(keys, &k)?;
                return bias.attend(attend, [&q, &k, &v], options, &places);
            }
            Some(Bias::ByDistance(bias)) => {
                let (queries, positions) = (q.dim(1)?, operands.positions.clone());
                Operands {
                    options: bias.options(operands.options, queries, positions)?,
                    ..operands
                }
            }
            Some(Bias::Shaw(bias)) => bias.apply(operands)?,
            Some(Bias::Deberta(bias)) => bias.apply(operands)?,
        };
        attend(&q, &k, &v, &options)
    }

    /// Counts the floating-point operations that the modifications add to attention over one
    /// sequence of `length`. `pairs` is the number of pairs of query and key whose scores are
    /// computed, summed over the heads.
    #[must_use]
    pub fn flops(&self, length: usize, pairs: usize) -> u64 {
        let bias = match &self.bias {
            None | Some(Bias::ByDistance(_)) => 0,
            Some(Bias::Shaw(bias)) => bias.flops(length, self.heads * self.width),
            Some(Bias::Deberta(bias)) => bias.flops(length, self.heads * self.width),
            Some(Bias::TransformerXl(bias)) => bias.flops(length, pairs),
        };
        let memory = self.slots() * length * self.heads * self.width;
        bias + 4 * memory as u64
    }

    /// Returns the number of memory slots, keys that belong to no token.
    #[must_use]
    pub(crate) fn slots(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::slots)
    }
}

#[cfg(test)]
mod tests;
