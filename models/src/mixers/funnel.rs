//! Funnel-Transformer. Dai et al., 2020, "Funnel-Transformer: Filtering out Sequential Redundancy
//! for Efficient Language Processing", arXiv:2006.03236.
//!     h' = pool(h),  h ← norm(h' + Attention(h', h))
//! in the first block of each stage except the first. The feed-forward half of that block, and all
//! other blocks, are as usual. pool is the mean of positions 2t and 2t + 1: (B, L, D) -> (B, ⌈L/2⌉,
//! D). A CLS token is kept apart. Queries of this attention are pooled; keys and values are all
//! positions of the previous stage. Post-norm blocks. B batch, L length, D width, E width of a
//! head. Time O(L²·E) per head in the first stage, half of that in a block that shortens it, a
//! quarter in the blocks after it; memory O(L·E).
//!
//! # Options
//!
//! `stages` (3 in the paper's B4-4-4), at most one per layer: of n layers, layer i from 0 is in
//! stage ⌊i · stages / n⌋. Hidden states have length L / 2^(stages - 1), and the head pools them.
//!
//! # Padding
//!
//! The mean is over the valid positions of a pair. A pair is valid if one of its positions is.
//!
//! # Departures
//!
//! Positions are those of the embedding, where the paper has relative ones in every attention;
//! there is no decoder, which serves token-level predictions; an odd last position forms a pair by
//! itself, where the paper cuts it off. Projections begin Xavier-uniform (±0.217 at D = 64) without
//! biases, the feed-forward network Xavier-uniform (±0.177 for a width of 128) with biases N(0,
//! 1e-6²); in the published code all weights begin N(0, 0.02²), cut at two deviations, and biases,
//! of all but queries, as 0 (laiguokun/Funnel-Transformer@1085523 tensorflow/modeling.py:234-252,
//! tensorflow/ops.py:92-124, 283-288). The norms' ε is `block.norm_epsilon` = 1e-6, in the
//! published code 1e-8 (tensorflow/ops.py:179). Where a pair has one valid and one padded position,
//! its mean there counts the padding, and the pair is valid in the published code
//! (pytorch/ops.py:547-621) but padding in the transformers library; here it is the valid position.

use crate::{
    Encoded,
    block::{Block, norm::Norm},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "funnel",
    title: "Funnel-Transformer",
    paper: "Funnel-Transformer: Filtering out Sequential Redundancy for Efficient Language Processing",
    year: 2020,
    arxiv: "2006.03236",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Package,
    family: Family::Xformer,
    settings: r#"{"block": {"norm_place": "post"}}"#,
    variants: &[Variant::paper(build, include_str!("funnel.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Number of lengths, each half of the one before.
    #[option(default = 3, range = int(1, 1000))]
    stages: usize,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let Options { stages } = context.options()?;
    let (block, cls) = (context.block, context.cls);
    const REASON: &str = "because blocks differ in length";
    require(
        block.residual != Residual::Reversible,
        "block.residual",
        "reversible",
        format!("plain, {REASON}"),
    )?;
    context.refuse_one_length(REASON)?;
    let stage = |layer: usize| layer * stages.min(block.layers) / block.layers;
    let halves = |layer: usize| layer > 0 && stage(layer) != stage(layer - 1);
    let blocks = encoder::residual_blocks(context, |layer| {
        Ok(Box::new(Funnel {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            halves: halves(layer.index),
            cls,
            width: block.qkv_dim,
        }))
    })?;
    let blocks = blocks.into_iter().enumerate();
    Ok(Box::new(Stages {
        blocks: blocks
            .map(|(layer, block)| (block, halves(layer)))
            .collect(),
        last_norm: encoder::last_norm(context)?,
        shared: block.share,
        cls,
    }))
}

/// All blocks, each with a flag for halving the length.
struct Stages {
    blocks: Vec<(Block, bool)>,
    last_norm: Option<Norm>,
    /// Whether all blocks have the same weights.
    shared: bool,
    cls: bool,
}

impl Encoder for Stages {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let (mut x, mut mask) = (x.clone(), pass.mask().cloned());
        for (index, (block, halves)) in self.blocks.iter().enumerate() {
            let pass = match self.shared {
                true => pass.of_repetition(index),
                false => *pass,
            };
            let before = pass.with_mask(mask.as_ref());
            if *halves {
                let (short, valid) = pool(&x, mask.as_ref(), self.cls)?;
                x = block.forward_to(&x, &short, &before, &pass.with_mask(valid.as_ref()))?;
                mask = valid;
            } else {
                x = block.forward(&x, &before)?;
            }
        }
        let hidden = match &self.last_norm {
            Some(norm) => norm.forward(&x, &pass.with_mask(mask.as_ref()))?,
            None => x,
        };
        Ok(Encoded { hidden, mask })
    }

    fn keeps_length(&self) -> bool {
        !self.blocks.iter().any(|(_, halves)| *halves)
    }

    /// Returns the slot of a position: a state stands for all positions of which it is the mean.
    fn slot_of(&self, position: usize) -> usize {
        let halvings = self.blocks.iter().filter(|(_, halves)| *halves);
        let first = usize::from(self.cls);
        halvings.fold(position, |slot, _| match slot.checked_sub(first) {
            Some(slot) => first + slot / 2,
            None => slot,
        })
    }

    fn flops(&self, mut length: usize) -> u64 {
        let mut sum = 0u64;
        for (block, halves) in &self.blocks {
            let short = match halves {
                true => half(length, self.cls),
                false => length,
            };
            sum = sum.saturating_add(block.flops_to(length, short));
            length = short;
        }
        sum
    }
}

/// Softmax attention, whose queries are pooled in a block that halves the length.
struct Funnel {
    projections: Projections,
    dropout: Dropout,
    halves: bool,
    cls: bool,
    width: usize,
}

impl Mixer for Funnel {
    /// Maps (B, L, D) to (B, L, D), or as many positions as are left.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = match self.halves {
            true => {
                let (queries, _) = pool(x, pass.mask(), self.cls)?;
                let (projections, dropout) = (&self.projections, &self.dropout);
                projections.attend_to(&queries, x, pass, dropout)?
            }
            false => self.projections.attend(x, pass, &self.dropout, None)?,
        };
        self.projections.merge(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        let queries = match self.halves {
            true => half(length, self.cls),
            false => length,
        };
        let products = 2 * 2 * (queries * length) as u64 * self.width as u64;
        self.projections.flops_to(queries, length) + products
    }
}

/// Returns the number of positions that are left of `length`.
fn half(length: usize, cls: bool) -> usize {
    let cls = usize::from(cls);
    cls + (length - cls).div_ceil(2)
}

/// Returns the mean of each pair of positions, over those that are valid, and which pairs are: (B,
/// L, D) -> (B, ⌈L/2⌉, D).
fn pool(x: &Tensor, mask: Option<&Mask>, cls: bool) -> Result<(Tensor, Option<Mask>)> {
    let (batch, length, dim) = x.dims3()?;
    let first = usize::from(cls);
    let short = half(length, cls) - first;
    if length - first < 2 {
        return Ok((x.clone(), mask.cloned()));
    }
    let valid = match mask {
        Some(mask) => mask.valid().clone(),
        None => Tensor::ones((batch, length), x.dtype(), x.device())?,
    };
    let pairs = |x: &Tensor| -> Result<Tensor> {
        let rest = x.narrow(1, first, length - first)?;
        Ok(rest.pad_with_zeros(1, 0, 2 * short - (length - first))?)
    };
    let both = pairs(&valid)?.reshape((batch, short, 2))?;
    let count = both.sum_keepdim(2)?;
    let weights = both.broadcast_div(&count.maximum(&count.ones_like()?)?)?;
    let weights = weights.unsqueeze(3)?; // (B, short, 2, 1)
    let y = pairs(x)?.reshape((batch, short, 2, dim))?;
    let y = y.broadcast_mul(&weights)?.sum(2)?;
    let valid_pairs = both.max(2)?;
    let (y, valid) = match cls {
        true => (
            Tensor::cat(&[&x.narrow(1, 0, 1)?, &y], 1)?,
            Tensor::cat(&[&valid.narrow(1, 0, 1)?, &valid_pairs], 1)?,
        ),
        false => (y, valid_pairs),
    };
    Ok((y, mask.map(|_| Mask::new(&valid)).transpose()?))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::testing::{check_gradient, close, normal};

    fn mask() -> Mask {
        let valid = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0], [0.0; 4]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn pairs_are_means_over_what_is_real_and_cls_stays() {
        let x = normal("x", &[3, 4, 1]);
        let h: Vec<Vec<f64>> = x.squeeze(2).unwrap().to_vec2().unwrap();
        for (cls, expected, valid) in [
            (
                true,
                [
                    [h[0][0], (h[0][1] + h[0][2]) / 2.0, h[0][3]],
                    [h[1][0], h[1][1], 0.0],
                    [h[2][0], 0.0, 0.0],
                ],
                [[1.0, 1.0, 1.0], [1.0, 1.0, 0.0], [0.0; 3]],
            ),
            (
                false,
                [
                    [(h[0][0] + h[0][1]) / 2.0, (h[0][2] + h[0][3]) / 2.0, 0.0],
                    [(h[1][0] + h[1][1]) / 2.0, 0.0, 0.0],
                    [0.0; 3],
                ],
                [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0; 3]],
            ),
        ] {
            let (y, mask) = pool(&x, Some(&mask()), cls).unwrap();
            let left = half(4, cls);
            let cut = |rows: &[[f64; 3]; 3]| {
                let rows = Tensor::new(rows, &Device::Cpu).unwrap();
                rows.narrow(1, 0, left).unwrap()
            };
            close(&y.squeeze(2).unwrap(), &cut(&expected), 1e-12, "means");
            close(mask.unwrap().valid(), &cut(&valid), 1e-12, "mask");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for cls in [false, true] {
            for mask in [None, Some(&mask)] {
                check_gradient("pool", &[&[3, 4, 2]], |x| Ok(pool(&x[0], mask, cls)?.0));
            }
        }
    }
}
