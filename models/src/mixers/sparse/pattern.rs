//! Which keys a query sees: the near set A and the far one, as blocks for candle's operations and as plans for the attention kernel.

use candle_core::{Device, Tensor};

use super::{Heads, Kind};
use crate::{
    Mask, Result,
    kernels::{Plan, Plans, Sight},
    layers::{
        BlockLists, Part, Places, WeightDropout, block_attention,
        fold::{fold, fold_mask, unfold},
        parts::{self, key_bias, merge},
    },
    mixer::PADDED,
};

/// The settings of the two sets.
#[derive(Clone, Copy)]
pub struct Pattern {
    pub(super) kind: Kind,
    pub(super) heads: Heads,
    /// l.
    pub(super) block: usize,
    /// c.
    pub(super) summary: usize,
    /// Keys after the query are hidden, and the first of each block is a summary: the 2021 code. Of `fixed` only.
    pub(super) causal: bool,
}

impl Pattern {
    /// (B, H, L, E) of queries, keys and values to what the queries gather, of the same shape.
    pub(super) fn attend(
        &self,
        [q, k, v]: &[Tensor; 3],
        mask: Option<&Mask>,
        [near, far]: [WeightDropout; 2],
    ) -> Result<Tensor> {
        match self.heads {
            Heads::Merged => {
                merge(&self.parts(&[q.clone(), k.clone(), v.clone()], mask, [near, far])?)
            }
            Heads::Split => {
                let heads = q.dim(1)?;
                let half = heads.div_ceil(2);
                let take = |start, count| -> Result<[Tensor; 3]> {
                    let part = |x: &Tensor| x.narrow(1, start, count)?.contiguous();
                    Ok([part(q)?, part(k)?, part(v)?])
                };
                let first = merge(&[self.near(&take(0, half)?, mask, near)?])?;
                let others = take(half, heads - half)?;
                let second = match self.far(&others, mask, far)? {
                    Some(part) => merge(&[part])?,
                    // A sequence too short to have a summary.
                    None => others[2].zeros_like()?,
                };
                Ok(Tensor::cat(&[&first, &second], 1)?)
            }
        }
    }

    /// The same before the softmax takes the sets together.
    pub(super) fn parts(
        &self,
        qkv: &[Tensor; 3],
        mask: Option<&Mask>,
        [near, far]: [WeightDropout; 2],
    ) -> Result<Vec<Part>> {
        let mut parts = vec![self.near(qkv, mask, near)?];
        parts.extend(self.far(qkv, mask, far)?);
        Ok(parts)
    }

    /// The block, or the window; without what the far set has too where one softmax takes both.
    fn near(
        &self,
        [q, k, v]: &[Tensor; 3],
        mask: Option<&Mask>,
        dropout: WeightDropout,
    ) -> Result<Part> {
        block_attention::attend(q, k, v, &self.near_lists(q.dim(2)?), mask, dropout)
    }

    fn near_lists(&self, length: usize) -> BlockLists {
        let (size, block) = (self.block.min(length), self.block as isize);
        let merged = self.heads == Heads::Merged;
        match self.kind {
            Kind::Fixed => BlockLists::around(length, size, (0, 0), |i, j| {
                !(merged && self.is_summary(j as usize) || self.causal && j > i)
            }),
            Kind::Strided => BlockLists::around(length, size, (1, 1), |i, j| {
                (i - j).abs() <= block && !(merged && (i - j) % block == 0)
            }),
        }
    }

    /// The summaries, or the column; none if the sequence is too short to have any.
    fn far(
        &self,
        [q, k, v]: &[Tensor; 3],
        mask: Option<&Mask>,
        dropout: WeightDropout,
    ) -> Result<Option<Part>> {
        let length = q.dim(2)?;
        Ok(match self.kind {
            Kind::Fixed => {
                let places = self.summaries(length);
                if places.is_empty() {
                    return Ok(None);
                }
                let index = Tensor::new(places.as_slice(), q.device())?;
                let padding = key_bias(mask)?
                    .map(|bias| bias.index_select(&index, 3))
                    .transpose()?; // (B, 1, 1, K)
                let bias = match (padding, self.causal) {
                    (bias, false) => bias,
                    (None, true) => Some(future(length, &places, q)?),
                    (Some(bias), true) => Some(bias.broadcast_add(&future(length, &places, q)?)?),
                };
                let (k, v) = (k.index_select(&index, 2)?, v.index_select(&index, 2)?);
                Some(parts::attend(q, &k, &v, bias.as_ref(), dropout)?)
            }
            Kind::Strided => {
                let mask = fold_mask(mask, q, self.block)?;
                let columns = |x: &Tensor| fold(x, self.block);
                let (q, k, v) = (columns(q)?, columns(k)?, columns(v)?); // (B * l, H, L / l, E)
                let bias = key_bias(mask.as_ref())?;
                let part = parts::attend(&q, &k, &v, bias.as_ref(), dropout)?;
                Some(part.arranged(|x| unfold(x, self.block, length))?)
            }
        })
    }

    /// Both sets for the attention kernel, one plan or one per head.
    pub(super) fn plans(&self, length: usize, heads: usize) -> Plans {
        match self.heads {
            Heads::Merged => Plans::new(vec![self.plan(length, true, true)]),
            Heads::Split => {
                let near = |head| head < heads.div_ceil(2);
                let plan = |head| self.plan(length, near(head), !near(head));
                Plans::new((0..heads).map(plan).collect())
            }
        }
    }

    fn plan(&self, length: usize, near: bool, far: bool) -> Plan {
        let mut plan = Plan::new(0.0);
        let all = Places::all(length);
        let lists = match near {
            true => self.near_lists(length),
            false => BlockLists::new(
                self.block,
                1,
                &vec![Vec::new(); length.div_ceil(self.block)],
            ),
        };
        if self.kind == Kind::Strided && far {
            if near {
                plan = plan.revisiting();
                lists.add_to(&mut plan, 0, (all, all), |_, _| {});
            }
            for first in 0..self.block.min(length) {
                let column = Places::every(self.block, first, length);
                let whole = BlockLists::around(column.count, column.count, (0, 0), |_, _| true);
                whole.add_to(&mut plan, 0, (column, column), |_, _| {});
            }
            return plan;
        }
        let summaries = match far {
            true => self.summaries(length),
            false => Vec::new(),
        };
        let summaries = plan.key_blocks_of(&summaries);
        lists.add_to(&mut plan, 0, (all, all), |plan, queries| {
            for (keys, places) in &summaries {
                // In the causal form a summary is seen from its own position on.
                let sight = |&place: &u32| {
                    let hidden = (place as usize).saturating_sub(queries.start);
                    Sight::new(hidden.min(queries.len())..queries.len(), None)
                };
                let sights = self.causal.then(|| plan.sights(places.iter().map(sight)));
                plan.see(*keys, sights.as_ref());
            }
        });
        plan
    }

    fn is_summary(&self, position: usize) -> bool {
        let place = position % self.block;
        place >= self.block - self.summary || self.causal && place == 0
    }

    fn summaries(&self, length: usize) -> Vec<u32> {
        let positions = (0..length).filter(|&position| self.is_summary(position));
        positions.map(|position| position as u32).collect()
    }

    /// Pairs of query and key over all heads.
    pub(super) fn pairs(&self, length: usize, heads: usize) -> usize {
        if length == 0 {
            return 0;
        }
        let far = match self.kind {
            Kind::Fixed => length * self.summaries(length).len(),
            Kind::Strided => self.block * length.div_ceil(self.block).pow(2),
        };
        let (near_heads, far_heads) = match self.heads {
            Heads::Merged => (heads, heads),
            Heads::Split => (heads.div_ceil(2), heads / 2),
        };
        self.near_lists(length).pairs(near_heads) + far * far_heads
    }
}

/// The bias (L, K) that hides keys at `places` from queries before them.
fn future(length: usize, places: &[u32], like: &Tensor) -> Result<Tensor> {
    let bias: Vec<f64> = (0..length)
        .flat_map(|i| places.iter().map(move |&j| j as usize > i))
        .map(|hidden| if hidden { -PADDED } else { 0.0 })
        .collect();
    let bias = Tensor::from_vec(bias, (length, places.len()), &Device::Cpu)?;
    Ok(bias.to_dtype(like.dtype())?.to_device(like.device())?)
}
