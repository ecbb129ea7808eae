//! Longformer. Beltagy et al., 2020, "Longformer: The Long-Document Transformer", arXiv:2004.05150.
//!     y_i = Σ_j a_ij v_j,  a_i = softmax(q_i·k_j / √E) over the keys |i - j| = m·d, m <= w / 2, and over the global keys j < g
//!     y_i = Σ_j b_ij v'_j, b_i = softmax(q'_i·k'_j / √E) over all j, for the global positions i < g
//! B batch, H heads, L length, E width of a head; q, k, v and, from projections of their own, q', k', v' (B, H, L, E).
//! Time O(L·(w + g)·E) per head, memory O(L·(w + g)). Padded keys get weight zero. Dropout on the weights.
//! Options: `window` w, even; `dilation` d of every head and layer (the paper dilates some heads of upper layers); `global` g, the first g positions: the CLS
//! token where there is one, else the first token. Without global positions their projections do not exist. Not as in the paper: no biases, as in the rest of the benchmark.
//! Pooled by the CLS token, the last layer is read at a global position alone: its q, k and v influence nothing, and their projections in that layer stay as they were drawn.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Context, Encoder, Mask, Mixer, Result,
    encoder::{self, Build, Site},
    error::require,
    kernels::{self, AttentionOptions, Plan, Plans},
    layers::{
        BlockLists, Dropout, Linear, Part, Places, Projections, WeightDropout, block_attention,
        fold::{fold, fold_mask, unfold},
        parts::{self, by_head, key_bias, merge},
    },
    mixers::{Model, Variant, tay2021},
    options::{LONGEST, Range, to_json},
    params::xavier_uniform,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "longformer",
    title: "Longformer",
    paper: "Longformer: The Long-Document Transformer",
    year: 2020,
    arxiv: "2004.05150",
    time: "O(L·w·E)",
    memory: "O(L·w)",
    variants: &[
        Variant::paper(build, include_str!("longformer.rs")),
        tay2021::longformer::VARIANT,
    ],
    options: || to_json(&Options::default()),
    ranges: &[
        Range::whole("window", 2, 2 * LONGEST),
        Range::whole("dilation", 1, LONGEST),
        Range::whole("global", 0, LONGEST),
    ],
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    pub(super) window: usize,
    pub(super) dilation: usize,
    global: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            window: 512,
            dilation: 1,
            global: 1,
        }
    }
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        require(
            self.window >= 2 && self.window.is_multiple_of(2),
            "model.window",
            self.window,
            "an even number, at least 2",
        )?;
        require(
            self.dilation >= 1,
            "model.dilation",
            self.dilation,
            "at least 1",
        )
    }
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    options.check()?;
    let pattern = Pattern {
        before: options.window / 2,
        after: options.window / 2,
        dilation: options.dilation,
        global: options.global,
    };
    encoder::blocks(build, |site| Ok(Box::new(Longformer::new(site, pattern)?)))
}

pub(super) struct Longformer {
    projections: Projections,
    global: Option<Global>,
    near: Dropout,
    on_global: Dropout,
    pattern: Pattern,
    heads: usize,
    width: usize,
}

/// The window, and how many first positions are global.
#[derive(Clone, Copy)]
pub(super) struct Pattern {
    pub(super) before: usize,
    pub(super) after: usize,
    pub(super) dilation: usize,
    pub(super) global: usize,
}

impl Longformer {
    pub(super) fn new(site: &Site, pattern: Pattern) -> Result<Self> {
        let dropout =
            |name: &str| Dropout::new(&site.vb.pp("drop").pp(name), site.block.attention_dropout);
        Ok(Self {
            projections: Projections::new(&site.vb, site.block)?,
            global: match pattern.global {
                0 => None,
                count => Some(Global::new(site, count)?),
            },
            near: dropout("near"),
            on_global: dropout("on_global"),
            pattern,
            heads: site.block.heads,
            width: site.block.head_dim(),
        })
    }
}

impl Mixer for Longformer {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        if kernels::supports(x) {
            let plans = Some(self.pattern.plans(length));
            let mut y = self.projections.attend(x, context, &self.near, plans)?;
            if let Some(global) = &self.global {
                let first = global.forward_fused(x, context)?;
                let count = first.dim(1)?;
                let others = y.narrow(1, count, length - count)?;
                y = Tensor::cat(&[&first, &others], 1)?;
            }
            return self.projections.merge(&y);
        }
        let first = match &self.global {
            Some(global) => Some(global.forward(x, context)?), // (B, H, min(g, L), E)
            None => None,
        };
        let others = length.saturating_sub(self.pattern.global);
        let others = if others > 0 {
            let [q, k, v] = self.projections.split(x)?;
            let (q, k, v) = (by_head(&q)?, by_head(&k)?, by_head(&v)?); // (B, H, L, E)
            let drop = |dropout| WeightDropout::new(dropout, context, batch);
            let dropouts = [drop(&self.near), drop(&self.on_global)];
            let y = self.pattern.attend(&q, &k, &v, context.mask(), dropouts)?;
            Some(y.narrow(2, self.pattern.global, others)?)
        } else {
            None
        };
        let y: Vec<Tensor> = first.into_iter().chain(others).collect();
        self.projections.merge(&by_head(&Tensor::cat(&y, 2)?)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let global = match &self.global {
            Some(global) => global.flops(length),
            None => 0,
        };
        let pairs = self.pattern.pairs(length, self.heads);
        self.projections.flops(length) + parts::flops(pairs, self.width) + global
    }
}

impl Pattern {
    /// What every position takes from its window and from the global keys, in one softmax.
    fn attend(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Mask>,
        [near, on_global]: [WeightDropout; 2],
    ) -> Result<Tensor> {
        let (batch, _, length, _) = q.dims4()?;
        let global = self.global.min(length);
        if global == 0 {
            return merge(&[self.window(q, k, v, mask, near)?]);
        }
        let first = |x: &Tensor| x.narrow(2, 0, global)?.contiguous();
        let bias = key_bias(mask)?
            .map(|bias| bias.narrow(3, 0, global))
            .transpose()?;
        let on_global = parts::attend(q, &first(k)?, &first(v)?, bias.as_ref(), on_global)?;
        // Global keys are not in the window too: they would count twice.
        let ordinary = Tensor::ones((batch, length - global), q.dtype(), q.device())?
            .pad_with_zeros(1, global, 0)?;
        let ordinary = match mask {
            Some(mask) => (ordinary * mask.real())?,
            None => ordinary,
        };
        let near = self.window(q, k, v, Some(&Mask::new(&ordinary)?), near)?;
        merge(&[near, on_global])
    }

    /// The sliding window; a dilated one slides over every d-th position.
    fn window(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Mask>,
        dropout: WeightDropout,
    ) -> Result<Part> {
        let length = q.dim(2)?;
        let lists = self.lists(length);
        if self.dilation == 1 {
            return block_attention::attend(q, k, v, &lists, mask, dropout);
        }
        let mask = fold_mask(mask, q, self.dilation)?;
        let every = |x: &Tensor| fold(x, self.dilation);
        let (q, k, v) = (every(q)?, every(k)?, every(v)?);
        let part = block_attention::attend(&q, &k, &v, &lists, mask.as_ref(), dropout)?;
        part.arranged(|x| unfold(x, self.dilation, length))
    }

    /// The same for the attention kernel: window and global keys in one plan, which all heads share.
    fn plans(&self, length: usize) -> Plans {
        let mut plan = Plan::new(0.0);
        let first: Vec<u32> = (0..self.global.min(length) as u32).collect();
        let first = plan.key_blocks_of(&first);
        let lists = self.lists(length);
        for start in 0..self.dilation.min(length) {
            let queries = Places::every(self.dilation, start, length);
            let keys = queries.without(self.global);
            lists.add_to(&mut plan, 0, (queries, keys), |plan, _| {
                first.iter().for_each(|(keys, _)| plan.see(*keys, None));
            });
        }
        Plans::new(vec![plan])
    }

    fn lists(&self, length: usize) -> BlockLists {
        BlockLists::window(length.div_ceil(self.dilation), self.before, self.after)
    }

    fn pairs(&self, length: usize, heads: usize) -> usize {
        if length <= self.global {
            return 0;
        }
        self.lists(length).pairs(heads * self.dilation) + length * self.global * heads
    }
}

/// Attention of the first positions on all, with projections of their own.
struct Global {
    query: Linear,
    key: Linear,
    value: Linear,
    dropout: Dropout,
    count: usize,
    heads: usize,
    width: usize,
}

impl Global {
    fn new(site: &Site, count: usize) -> Result<Self> {
        let (dim, inner) = (site.block.dim, site.block.qkv_dim);
        let vb = site.vb.pp("global");
        let linear = |name| Linear::new(&vb.pp(name), dim, inner, xavier_uniform(dim, inner), None);
        Ok(Self {
            query: linear("query")?,
            key: linear("key")?,
            value: linear("value")?,
            dropout: Dropout::new(&vb.pp("drop"), site.block.attention_dropout),
            count,
            heads: site.block.heads,
            width: site.block.head_dim(),
        })
    }

    /// By the kernel, (B, min(g, L), H E).
    fn forward_fused(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let first = x.narrow(1, 0, self.count.min(length))?.contiguous()?;
        let options = AttentionOptions {
            heads: self.heads,
            mask: context.mask().map(|mask| mask.real().clone()),
            dropout: self.dropout.of_attention(batch, context),
            ..AttentionOptions::default()
        };
        let q = self.query.forward(&first)?;
        let (k, v) = (self.key.forward(x)?, self.value.forward(x)?);
        Ok(kernels::attention(&q, &k, &v, &options)?)
    }

    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let heads = |linear: &Linear, x: &Tensor| -> Result<Tensor> {
            let y = linear.forward(x)?; // (B, L, H * E)
            let y = y.reshape((batch, (), self.heads, self.width))?;
            by_head(&y)
        };
        let first = x.narrow(1, 0, self.count.min(length))?.contiguous()?;
        let q = heads(&self.query, &first)?; // (B, H, g, E)
        let (k, v) = (heads(&self.key, x)?, heads(&self.value, x)?);
        let bias = key_bias(context.mask())?;
        let dropout = WeightDropout::new(&self.dropout, context, batch);
        merge(&[parts::attend(&q, &k, &v, bias.as_ref(), dropout)?])
    }

    fn flops(&self, length: usize) -> u64 {
        let first = self.count.min(length);
        let projections =
            self.query.flops(first) + self.key.flops(length) + self.value.flops(length);
        projections + parts::flops(self.heads * first * length, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        layers::{
            sparse_testing::{by_position, meets_dense, plans_meet_dense, undropped},
            testing::meets_oracle,
        },
        oracle,
    };

    fn run(
        pattern: Pattern,
    ) -> impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor> {
        move |q, k, v, mask| undropped(q, |drop| pattern.attend(q, k, v, mask, [drop, drop]))
    }

    #[test]
    fn a_window_over_everything_is_softmax_attention() {
        for (window, global) in [(4, 0), (8, 0), (4, 2), (1, 5)] {
            let pattern = Pattern {
                before: window,
                after: window,
                dilation: 1,
                global,
            };
            meets_oracle(
                "longformer",
                1e-7,
                oracle::softmax,
                by_position(run(pattern)),
            );
        }
    }

    #[test]
    fn equals_dense_attention_under_the_mask_of_its_definition() {
        for (before, after, dilation, global) in [
            (2, 2, 1, 0),
            (1, 2, 1, 0),
            (2, 2, 1, 2),
            (1, 1, 3, 0),
            (2, 2, 2, 1),
        ] {
            let pattern = Pattern {
                before,
                after,
                dilation,
                global,
            };
            for length in [1, 2, 3, 4, 5, 8, 13] {
                let sees = |_, i: usize, j: usize| {
                    let near = if j <= i {
                        (i - j).is_multiple_of(dilation) && (i - j) / dilation <= before
                    } else {
                        (j - i).is_multiple_of(dilation) && (j - i) / dilation <= after
                    };
                    near || j < global
                };
                meets_dense("longformer", length, 2, run(pattern), sees);
                plans_meet_dense("plan", length, 2, pattern.plans(length), sees);
            }
        }
    }
}
