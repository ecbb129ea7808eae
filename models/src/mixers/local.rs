//! Local attention. Parmar et al., 2018, "Image Transformer", arXiv:1802.05751; the benchmark's simplest baseline.
//!     y_i = Σ_j a_ij v_j over the keys j of i's block, a_i = softmax(q_i·k_j / √E)
//! B batch, H heads, L length, E width of a head, S block length; q, k, v (B, H, L, E), a (B, H, L / S, S, S).
//! Time O(L·S·E) per head, memory O(L·S). Padded keys get weight zero; a block of padding gives zeros. Dropout on the weights.
//! Options: `block` S (0: 64, or 50 for `tay2021`), `neighbours` n: each block also sees n blocks on either side (0: blocks apart from
//! each other, so that nothing ever leaves one); with `exact` only keys at most n·S positions away, which is a sliding window.
//! `variant = tay2021`: what the 2021 code computes, which is not local: S tokens that are L' / S apart see each other, and masks of other
//! tokens apply to them, so padding leaks. Exactly as then only if batches are padded to the longest length; shorter ones have zeros there.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Context, Encoder, Mask, Mixer, Result,
    encoder::{self, Build, Site},
    error::require,
    kernels,
    layers::{
        BlockLists, Dropout, Projections, WeightDropout, block_attention,
        fold::{fold, unfold},
        parts::{self, by_head},
    },
    mixer::PADDED,
    mixers::Model,
    options::{Variant, to_json},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "local",
    title: "Local Attention",
    paper: "Image Transformer",
    year: 2018,
    arxiv: "1802.05751",
    time: "O(L·S·E)",
    memory: "O(L·S)",
    masks_padding: true,
    variants: &["paper", "tay2021"],
    defaults: || to_json(&Options::default()),
    build,
    source: include_str!("local.rs"),
};

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    variant: Variant,
    block: usize,
    neighbours: usize,
    exact: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variant: Variant::Paper,
            block: 0,
            neighbours: 0,
            exact: true,
        }
    }
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    require(
        options.variant == Variant::Paper || options.neighbours == 0,
        "model.neighbours",
        options.neighbours,
        "0 with model.variant = tay2021",
    )?;
    encoder::blocks(build, |site| Ok(Box::new(Local::new(site, &options)?)))
}

struct Local {
    projections: Projections,
    dropout: Dropout,
    groups: Groups,
    heads: usize,
    width: usize,
}

/// Which positions see each other.
enum Groups {
    /// Blocks of neighbours, and blocks near them.
    Contiguous(Contiguous),
    /// Of the 2021 code.
    Strided { block: usize, max_length: usize },
}

struct Contiguous {
    block: usize,
    neighbours: usize,
    exact: bool,
}

impl Local {
    fn new(site: &Site, options: &Options) -> Result<Self> {
        let block = |default| match options.block {
            0 => default,
            block => block,
        };
        Ok(Self {
            projections: Projections::new(&site.vb, site.block)?,
            dropout: Dropout::new(&site.vb.pp("drop"), site.block.attention_dropout),
            groups: match options.variant {
                Variant::Paper => Groups::Contiguous(Contiguous {
                    block: block(64),
                    neighbours: options.neighbours,
                    exact: options.exact,
                }),
                Variant::Tay2021 => Groups::Strided {
                    block: block(50),
                    max_length: site.max_length,
                },
            },
            heads: site.block.heads,
            width: site.block.head_dim(),
        })
    }
}

impl Mixer for Local {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        if let (true, Groups::Contiguous(groups)) = (kernels::supports(x), &self.groups) {
            let plans = groups.lists(x.dim(1)?).plans(x.dim(1)?);
            let attended = self
                .projections
                .attend(x, context, &self.dropout, Some(plans))?;
            return self.projections.merge(&attended);
        }
        let [q, k, v] = self.projections.split(x)?;
        let (q, k, v) = (by_head(&q)?, by_head(&k)?, by_head(&v)?); // (B, H, L, E)
        let dropout = WeightDropout::new(&self.dropout, context, x.dim(0)?);
        let mask = context.mask();
        let y = match &self.groups {
            Groups::Contiguous(groups) => {
                let lists = groups.lists(x.dim(1)?);
                let part = block_attention::attend(&q, &k, &v, &lists, mask, dropout)?;
                parts::merge(&[part])?
            }
            &Groups::Strided { block, max_length } => {
                attend_strided([&q, &k, &v], block, max_length, mask, dropout)?
            }
        };
        self.projections.merge(&by_head(&y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = match &self.groups {
            Groups::Contiguous(groups) => groups.lists(length).pairs(self.heads),
            &Groups::Strided { block, max_length } => {
                padded_2021(max_length, block) * block * self.heads
            }
        };
        self.projections.flops(length) + parts::flops(pairs, self.width)
    }
}

impl Contiguous {
    fn lists(&self, length: usize) -> BlockLists {
        let reach = self.neighbours;
        if self.exact && reach > 0 {
            return BlockLists::window(length, reach * self.block, reach * self.block);
        }
        let size = self.block.min(length);
        BlockLists::around(length, size, (reach, reach), |_, _| true)
    }
}

/// The length that the 2021 code pads to: a whole block more where nothing is left to fill.
fn padded_2021(max_length: usize, block: usize) -> usize {
    max_length + block - max_length % block
}

/// The 2021 code's grouping. It reshapes L' = n·S positions to (S, n) where (n, S) was meant, so group g holds the positions g, g + n, g + 2n, ..
fn attend_strided(
    [q, k, v]: [&Tensor; 3],
    block: usize,
    max_length: usize,
    mask: Option<&Mask>,
    dropout: WeightDropout,
) -> Result<Tensor> {
    let (batch, _, length, _) = q.dims4()?;
    let padded = padded_2021(max_length, block);
    let groups = padded / block;
    // The projections have no biases: what is filled up has zeros for queries, keys and values.
    let groups_of = |x: &Tensor| fold(&x.pad_with_zeros(2, 0, padded - length)?, groups);
    let (q, k, v) = (groups_of(q)?, groups_of(k)?, groups_of(v)?); // (B * n, H, S, E)
    let real = match mask {
        Some(mask) => mask.real().clone(),
        None => Tensor::ones((batch, length), q.dtype(), q.device())?,
    };
    // -1e9 was given as padding of a boolean mask, where it means true: filled-up positions are keys with score 0 and value 0.
    let filled = Tensor::ones((batch, padded - max_length), q.dtype(), q.device())?;
    let real = real.pad_with_zeros(1, 0, max_length - length)?;
    // The mask is cut into (n, S) after all, so place i of group g goes by the mask of position g·S + i, not of i·n + g.
    let real = Tensor::cat(&[&real, &filled], 1)?.reshape((batch * groups, 1, block, 1))?;
    // A masked query had all scores drowned in the same -1e10: uniform weights over its whole group.
    let q = q.broadcast_mul(&real)?;
    let bias = real.broadcast_mul(&real.affine(PADDED, -PADDED)?.t()?)?; // (B * n, 1, S, S)
    let part = parts::attend(&q, &k, &v, Some(&bias), dropout)?;
    unfold(&parts::merge(&[part])?, groups, length)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        layers::{
            sparse_testing::{by_position, meets_dense, plans_meet_dense, undropped},
            testing::{meets_oracle, normal},
        },
        oracle,
    };

    fn contiguous(
        block: usize,
        neighbours: usize,
        exact: bool,
    ) -> impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor> {
        let groups = Contiguous {
            block,
            neighbours,
            exact,
        };
        move |q, k, v, mask| {
            let lists = groups.lists(q.dim(2)?);
            undropped(q, |drop| {
                parts::merge(&[block_attention::attend(q, k, v, &lists, mask, drop)?])
            })
        }
    }

    #[test]
    fn one_block_or_a_window_over_everything_is_softmax_attention() {
        for (block, neighbours, exact) in [(5, 0, true), (64, 0, true), (4, 1, true), (2, 2, false)]
        {
            let attend = contiguous(block, neighbours, exact);
            meets_oracle("local", 1e-7, oracle::softmax, by_position(attend));
        }
    }

    #[test]
    fn equals_dense_attention_under_the_mask_of_its_definition() {
        for length in [1, 3, 4, 5, 8, 13] {
            meets_dense("blocks", length, 2, contiguous(4, 0, true), |_, i, j| {
                i / 4 == j / 4
            });
            meets_dense("sliding", length, 2, contiguous(4, 1, true), |_, i, j| {
                i.abs_diff(j) <= 4
            });
            meets_dense(
                "two each way",
                length,
                1,
                contiguous(2, 2, true),
                |_, i, j| i.abs_diff(j) <= 4,
            );
            for (block, neighbours, exact) in
                [(4, 1, true), (2, 2, true), (4, 1, false), (4, 0, true)]
            {
                let groups = Contiguous {
                    block,
                    neighbours,
                    exact,
                };
                let plans = groups.lists(length).plans(length);
                plans_meet_dense("plan", length, 2, plans, |_, i, j| {
                    match exact && neighbours > 0 {
                        true => i.abs_diff(j) <= block * neighbours,
                        false => (i / block).abs_diff(j / block) <= neighbours,
                    }
                });
            }
            meets_dense("whole", length, 2, contiguous(4, 1, false), |_, i, j| {
                (i / 4).abs_diff(j / 4) <= 1
            });
        }
    }

    /// The 2021 code in loops: groups g + n·i, masks of g·S + i, filled-up positions with zeros and a mask of ones.
    fn strided_in_loops(
        [q, k, v]: [&[Vec<f64>]; 3],
        real: &[f64],
        block: usize,
        max: usize,
    ) -> Vec<f64> {
        let (length, width) = (q.len(), q[0].len());
        let groups = max / block + 1;
        let zeros = vec![0.0; width];
        let row = |x: &[Vec<f64>], at: usize| x.get(at).unwrap_or(&zeros).clone();
        let seen = |at: usize| at >= max || at < length && real[at] == 1.0;
        let mut y = vec![0.0; length * width];
        for position in 0..length {
            let (group, place) = (position % groups, position / groups);
            let query = row(q, position);
            let mut weights: Vec<f64> = (0..block)
                .map(|other| {
                    let key = row(k, group + groups * other);
                    let dot: f64 = query.iter().zip(&key).map(|(a, b)| a * b).sum();
                    let both = seen(group * block + place) && seen(group * block + other);
                    if both {
                        (dot / (width as f64).sqrt()).exp()
                    } else {
                        0.0
                    }
                })
                .collect();
            if !seen(group * block + place) {
                weights = vec![1.0; block];
            }
            let total: f64 = weights.iter().sum();
            for (other, weight) in weights.iter().enumerate() {
                for (channel, value) in row(v, group + groups * other).iter().enumerate() {
                    y[position * width + channel] += weight / total * value;
                }
            }
        }
        y
    }

    #[test]
    fn the_2021_variant_is_the_2021_code() {
        // Lengths that leave a rest, that get a whole block more, and that are shorter than the longest.
        for (length, max, real_tokens) in [(10, 10, 10), (10, 10, 7), (12, 12, 9), (7, 13, 5)] {
            let [q, k, v] = ["q", "k", "v"].map(|path| normal(path, &[1, 1, length, 3]));
            let real: Vec<f64> = (0..length)
                .map(|i| f64::from(u8::from(i < real_tokens)))
                .collect();
            let mask = Tensor::from_vec(real.clone(), (1, length), &Device::Cpu).unwrap();
            let mask = Mask::new(&mask).unwrap();
            let y = undropped(&q, |drop| {
                attend_strided([&q, &k, &v], 4, max, Some(&mask), drop)
            })
            .unwrap();
            let rows = |x: &Tensor| x.flatten(0, 2).unwrap().to_vec2::<f64>().unwrap();
            let wanted = strided_in_loops([&rows(&q), &rows(&k), &rows(&v)], &real, 4, max);
            let found: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
            for (found, wanted) in found.iter().zip(&wanted) {
                assert!((found - wanted).abs() < 1e-9, "{length} {max}");
            }
        }
    }
}
