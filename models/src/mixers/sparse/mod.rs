//! Sparse Transformer. Child et al., 2019, "Generating Long Sequences with Sparse Transformers", arXiv:1904.10509.
//!     y_i = Σ_j a_ij v_j over j in A(i), a_i = softmax(q_i·k_j / √E), both ways in time, since sequences are classified whole
//!     `fixed`: A(i) = i's block of l, and the last c positions of every block; `strided`: |i - j| <= l, and j with l | i - j
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E). Time O(L·(l + c·L / l)·E) per head, memory the same without E:
//! O(L·√L·E) with l = √L. Options: `pattern`, `block` l (0: √(longest length), rounded up to a multiple of 8), `summary` c (0: 8),
//! `heads`: `merged`, every head sees both sets in one softmax, or `split`, the first half sees the first set and the others the second.
//! Padded keys get weight zero. Dropout on the weights. Not as in the paper: all heads share one c; no recomputation, no causal form.
//! `variant = tay2021`: l 50, c 10, `fixed`, merged, causal, the first of each block is a summary too, and position 0 sees and is seen by all if it is a CLS token
//! or `first` is set (as for the 2021 dual encoder). The 2021 code masks L x L weights; the blocks computed here give the same numbers.

use candle_core::{Device, Tensor};
use serde::{Deserialize, Serialize};

use crate::{
    Context, Encoder, Mask, Mixer, Result,
    encoder::{self, Build, Site},
    error::require,
    kernels::{self, Plan, Plans, Sight},
    layers::{
        BlockLists, Dropout, Part, Places, Projections, WeightDropout, block_attention,
        fold::{fold, fold_mask, unfold},
        parts::{self, by_head, key_bias, merge},
    },
    mixer::PADDED,
    mixers::Model,
    options::{Variant, to_json},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "sparse",
    title: "Sparse Transformer",
    paper: "Generating Long Sequences with Sparse Transformers",
    year: 2019,
    arxiv: "1904.10509",
    time: "O(L·√L·E)",
    memory: "O(L·√L)",
    masks_padding: true,
    variants: &["paper", "tay2021"],
    defaults: || to_json(&Options::default()),
    build,
    source: include_str!("mod.rs"),
};

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    #[default]
    Fixed,
    Strided,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Heads {
    #[default]
    Merged,
    Split,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    variant: Variant,
    pattern: Kind,
    heads: Heads,
    block: usize,
    summary: usize,
    first: bool,
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    let paper = options.variant == Variant::Paper;
    require(
        paper || options.pattern == Kind::Fixed,
        "model.pattern",
        "strided",
        "fixed with model.variant = tay2021",
    )?;
    require(
        paper || options.heads == Heads::Merged,
        "model.heads",
        "split",
        "merged with model.variant = tay2021",
    )?;
    require(
        !paper || !options.first,
        "model.first",
        "true",
        "false unless model.variant = tay2021",
    )?;
    require(
        options.heads == Heads::Merged || build.block.heads >= 2,
        "model.heads",
        "split",
        "merged where block.heads = 1",
    )?;
    let pattern = options.pattern(build.max_length);
    require(
        options.summary <= pattern.block,
        "model.summary",
        options.summary,
        format!("at most the block, {}", pattern.block),
    )?;
    let hub = !paper && (build.cls || options.first);
    encoder::blocks(build, |site| Ok(Box::new(Sparse::new(site, pattern, hub)?)))
}

impl Options {
    fn pattern(&self, max_length: usize) -> Pattern {
        let or = |value, default| if value == 0 { default } else { value };
        let root = (max_length as f64).sqrt().ceil() as usize;
        let paper = self.variant == Variant::Paper;
        let block = or(
            self.block,
            if paper { root.next_multiple_of(8) } else { 50 },
        );
        Pattern {
            kind: self.pattern,
            heads: self.heads,
            block,
            summary: or(self.summary, if paper { 8 } else { 10 }).min(block),
            causal: !paper,
        }
    }
}

struct Sparse {
    projections: Projections,
    near: Dropout,
    far: Dropout,
    from_hub: Dropout,
    to_hub: Dropout,
    pattern: Pattern,
    /// Whether position 0 sees and is seen by all.
    hub: bool,
    heads: usize,
    width: usize,
}

impl Sparse {
    fn new(site: &Site, pattern: Pattern, hub: bool) -> Result<Self> {
        let dropout =
            |name: &str| Dropout::new(&site.vb.pp("drop").pp(name), site.block.attention_dropout);
        Ok(Self {
            projections: Projections::new(&site.vb, site.block)?,
            near: dropout("near"),
            far: dropout("far"),
            from_hub: dropout("from_hub"),
            to_hub: dropout("to_hub"),
            pattern,
            hub,
            heads: site.block.heads,
            width: site.block.head_dim(),
        })
    }

    /// The pattern for all positions but 0, counted from the second; position 0 sees all and all see it.
    fn attend_with_hub(&self, qkv: &[Tensor; 3], context: &Context) -> Result<Tensor> {
        let [q, k, v] = qkv;
        let (batch, _, length, _) = q.dims4()?;
        let mask = context.mask();
        let drop = |dropout| WeightDropout::new(dropout, context, batch);
        let take = |x: &Tensor, start, count| x.narrow(2, start, count)?.contiguous();
        let everywhere = key_bias(mask)?;
        let hub = take(q, 0, 1)?;
        let hub = parts::attend(&hub, k, v, everywhere.as_ref(), drop(&self.from_hub))?;
        let hub = merge(&[hub])?;
        if length == 1 {
            return Ok(hub);
        }
        let rest = [q, k, v].map(|x| take(x, 1, length - 1));
        let [q_rest, k_rest, v_rest] = rest;
        let rest = [q_rest?, k_rest?, v_rest?];
        let bias = everywhere.map(|bias| bias.narrow(3, 0, 1)).transpose()?;
        let (key, value) = (take(k, 0, 1)?, take(v, 0, 1)?);
        let on_hub = parts::attend(&rest[0], &key, &value, bias.as_ref(), drop(&self.to_hub))?;
        let mask = mask
            .map(|mask| Mask::new(&mask.real().narrow(1, 1, length - 1)?))
            .transpose()?;
        let dropouts = [drop(&self.near), drop(&self.far)];
        let mut parts = self.pattern.parts(&rest, mask.as_ref(), dropouts)?;
        parts.push(on_hub);
        Ok(Tensor::cat(&[&hub, &merge(&parts)?], 2)?)
    }
}

impl Mixer for Sparse {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        if !self.hub && kernels::supports(x) {
            let plans = Some(self.pattern.plans(x.dim(1)?, self.heads));
            let attended = self.projections.attend(x, context, &self.near, plans)?;
            return self.projections.merge(&attended);
        }
        let [q, k, v] = self.projections.split(x)?;
        let qkv = [by_head(&q)?, by_head(&k)?, by_head(&v)?]; // (B, H, L, E)
        let y = if self.hub {
            self.attend_with_hub(&qkv, context)?
        } else {
            let drop = |dropout| WeightDropout::new(dropout, context, x.dim(0).unwrap_or(1));
            let dropouts = [drop(&self.near), drop(&self.far)];
            self.pattern.attend(&qkv, context.mask(), dropouts)?
        };
        self.projections.merge(&by_head(&y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = if self.hub {
            let around = (2 * length - 1) * self.heads;
            around + self.pattern.pairs(length - 1, self.heads)
        } else {
            self.pattern.pairs(length, self.heads)
        };
        self.projections.flops(length) + parts::flops(pairs, self.width)
    }
}

/// Which keys a query sees: a near set and a far one.
#[derive(Clone, Copy)]
struct Pattern {
    kind: Kind,
    heads: Heads,
    /// l.
    block: usize,
    /// c.
    summary: usize,
    /// Keys after the query are hidden, and the first of each block is a summary: the 2021 code. Of `fixed` only.
    causal: bool,
}

impl Pattern {
    fn attend(
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

    fn parts(
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

    /// The same for the attention kernel, one plan or one per head.
    fn plans(&self, length: usize, heads: usize) -> Plans {
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
    fn pairs(&self, length: usize, heads: usize) -> usize {
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

#[cfg(test)]
mod tests;
