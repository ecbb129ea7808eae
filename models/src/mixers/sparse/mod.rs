//! Sparse Transformer. Child et al., 2019, "Generating Long Sequences with Sparse Transformers", arXiv:1904.10509.
//!     y_i = Σ_j a_ij v_j over j in A(i), a_i = softmax(q_i·k_j / √E), both ways in time, since sequences are classified whole
//!     `fixed`: A(i) = i's block of l, and the last c positions of every block; `strided`: |i - j| <= l, and j with l | i - j
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E). Time O(L·(l + c·L / l)·E) per head, memory the same without E:
//! O(L·√L·E) with l = √L. Options: `pattern`, `block` l (0: √(longest length), rounded up to a multiple of 8), `summary` c (0: 8),
//! `heads`: `merged`, every head sees both sets in one softmax, or `split`, the first half sees the first set and the others the second.
//! Padded keys get weight zero. Dropout on the weights. Not as in the paper: all heads share one c; no recomputation, no causal form.

pub(super) mod pattern;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use self::pattern::Pattern;
use crate::{
    Context, Encoder, Mask, Mixer, Result,
    encoder::{self, Build, Site},
    error::require,
    kernels,
    layers::{
        Dropout, Projections, WeightDropout,
        parts::{self, by_head, key_bias, merge},
    },
    mixers::{Model, Variant, tay2021},
    options::{LONGEST, Range, to_json},
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
    variants: &[
        Variant::paper(build, include_str!("mod.rs")),
        tay2021::sparse::VARIANT,
    ],
    options: || to_json(&Options::default()),
    ranges: &[
        Range::whole("block", 0, LONGEST),
        Range::whole("summary", 0, LONGEST),
    ],
};

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    #[default]
    Fixed,
    Strided,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Heads {
    #[default]
    Merged,
    Split,
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    pub(super) pattern: Kind,
    pub(super) heads: Heads,
    block: usize,
    summary: usize,
    /// Of `tay2021` only.
    pub(super) first: bool,
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    require(
        !options.first,
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
    let root = (build.max_length as f64).sqrt().ceil() as usize;
    let pattern = options.pattern((root.next_multiple_of(8), 8), false)?;
    encoder::blocks(build, |site| {
        Ok(Box::new(Sparse::new(site, pattern, false)?))
    })
}

impl Options {
    /// `defaults`: l and c where they are not set.
    pub(super) fn pattern(&self, defaults: (usize, usize), causal: bool) -> Result<Pattern> {
        let or = |value, default| if value == 0 { default } else { value };
        let block = or(self.block, defaults.0);
        require(
            self.summary <= block,
            "model.summary",
            self.summary,
            format!("at most the block, {block}"),
        )?;
        Ok(Pattern {
            kind: self.pattern,
            heads: self.heads,
            block,
            summary: or(self.summary, defaults.1).min(block),
            causal,
        })
    }
}

pub(super) struct Sparse {
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
    pub(super) fn new(site: &Site, pattern: Pattern, hub: bool) -> Result<Self> {
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

#[cfg(test)]
mod tests;
