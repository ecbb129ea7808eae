//! BigBird. Zaheer et al., 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062.
//!     y_i = Σ_j a_ij v_j, a_i = softmax(q_i·k_j / √E) over keys j in the listed blocks: i's block and its neighbours (window),
//!     the first and the last (global, which see all themselves), and r random others, drawn per head and block of queries
//! B batch, H heads, L length, E width of a head, S block length; q, k, v (B, H, L, E). Time O(L·(5 + r)·S·E) per head, memory O(L·(5 + r)·S).
//! The paper's ITC form: global tokens are tokens of the sequence; none are added (ETC). Options: `block` S, `random` r. Padded keys get weight zero. Dropout on the weights.
//! Random blocks depend on seed and layer only. Blocks are counted on the longest length, as if every sequence were padded to it: how far a batch is padded then
//! changes nothing, but a short sequence has no last block and fewer random ones; so it was in 2021. Position 0 (the CLS token where there is one) is in the first block.
//! `variant = tay2021`: random blocks from the first 1,024 positions only (ours, not NumPy's draws), zeros up to a multiple of S (a whole block if there is no rest)
//! that count as real keys, no dropout on the weights. Exactly as then only if batches are padded to the longest length.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Context, Draws, Encoder, Mask, Mixer, Result,
    draws::StreamKey,
    encoder::{self, Build, Site},
    error::require,
    layers::{
        BlockLists, Dropout, Projections, WeightDropout, block_attention,
        parts::{self, by_head, key_bias, merge},
    },
    mixers::Model,
    options::to_json,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "bigbird",
    title: "BigBird",
    paper: "Big Bird: Transformers for Longer Sequences",
    year: 2020,
    arxiv: "2007.14062",
    time: "O(L·S·E)",
    memory: "O(L·S)",
    masks_padding: true,
    variants: &["paper", "tay2021"],
    defaults: || to_json(&Options::default()),
    build,
    source: include_str!("bigbird.rs"),
};

/// Positions from which the 2021 code draws random blocks.
const POOL_2021: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Variant {
    Paper,
    Tay2021,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    variant: Variant,
    block: usize,
    random: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            variant: Variant::Paper,
            block: 64,
            random: 3,
        }
    }
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    require(
        options.block >= 1,
        "model.block",
        options.block,
        "at least 1",
    )?;
    encoder::blocks(build, |site| Ok(Box::new(BigBird::new(site, &options)?)))
}

struct BigBird {
    projections: Projections,
    listed: Dropout,
    global: Dropout,
    pattern: Pattern,
    /// Names the random blocks.
    key: StreamKey,
    /// Longest length without what the 2021 code fills up.
    max_length: usize,
    heads: usize,
    width: usize,
}

impl BigBird {
    fn new(site: &Site, options: &Options) -> Result<Self> {
        let tay2021 = options.variant == Variant::Tay2021;
        let (size, max_length) = (options.block, site.max_length);
        let rate = match options.variant {
            Variant::Paper => site.block.attention_dropout,
            Variant::Tay2021 => 0.0,
        };
        let dropout = |name: &str| Dropout::new(&site.vb.pp("drop").pp(name), rate);
        Ok(Self {
            projections: Projections::new(&site.vb, site.block)?,
            listed: dropout("listed"),
            global: dropout("global"),
            pattern: Pattern {
                size,
                // 2021: a whole block more where nothing is left to fill.
                blocks: match options.variant {
                    Variant::Paper => max_length.div_ceil(size),
                    Variant::Tay2021 => max_length / size + 1,
                },
                random: options.random,
                tay2021,
            },
            key: StreamKey::new(&site.vb.pp("blocks").prefix()),
            max_length,
            heads: site.block.heads,
            width: site.block.head_dim(),
        })
    }

    /// Queries, keys, values and mask as the 2021 code pads them.
    fn filled_up(
        &self,
        qkv: &[Tensor; 3],
        mask: Option<&Mask>,
    ) -> Result<([Tensor; 3], Option<Mask>)> {
        let (batch, _, length, _) = qkv[0].dims4()?;
        let full = self.pattern.blocks * self.pattern.size;
        // The projections have no biases: what is filled up has zeros for queries, keys and values.
        let fill = |x: &Tensor| x.pad_with_zeros(2, 0, full - length);
        let filled = [fill(&qkv[0])?, fill(&qkv[1])?, fill(&qkv[2])?];
        if mask.is_none() && length == self.max_length {
            return Ok((filled, None));
        }
        let ones = |count: usize| Tensor::ones((batch, count), qkv[0].dtype(), qkv[0].device());
        let real = match mask {
            Some(mask) => mask.real().clone(),
            None => ones(length)?,
        };
        let real = real.pad_with_zeros(1, 0, self.max_length - length)?;
        // The mask's padding value was given as a number; as a boolean it means true: score 0, value 0.
        let real = Tensor::cat(&[&real, &ones(full - self.max_length)?], 1)?;
        Ok((filled, Some(Mask::new(&real)?)))
    }
}

impl Mixer for BigBird {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let [q, k, v] = self.projections.split(x)?;
        let qkv = [by_head(&q)?, by_head(&k)?, by_head(&v)?]; // (B, H, L, E)
        let drop = |dropout| WeightDropout::new(dropout, context, batch);
        let dropouts = [drop(&self.listed), drop(&self.global)];
        let rows = self.pattern.rows(self.heads, &context.draws, self.key);
        let y = if self.pattern.tay2021 {
            let (filled, mask) = self.filled_up(&qkv, context.mask())?;
            let y = self
                .pattern
                .attend(&filled, &rows, mask.as_ref(), dropouts)?;
            y.narrow(2, 0, length)?.contiguous()?
        } else {
            self.pattern.attend(&qkv, &rows, context.mask(), dropouts)?
        };
        self.projections.merge(&by_head(&y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let filled = match self.pattern.tay2021 {
            true => self.pattern.blocks * self.pattern.size,
            false => length,
        };
        let rows = self
            .pattern
            .rows(self.heads, &Draws::new(0, 0, 0), self.key);
        let pairs = self.pattern.pairs(filled, self.heads, &rows);
        self.projections.flops(length) + parts::flops(pairs, self.width)
    }
}

struct Pattern {
    /// S.
    size: usize,
    /// Blocks of the longest length.
    blocks: usize,
    /// r.
    random: usize,
    tay2021: bool,
}

impl Pattern {
    /// Whether the block sees everything.
    fn is_global(&self, block: usize) -> bool {
        block == 0 || block + 1 == self.blocks
    }

    /// Blocks that each block of queries sees, in the order (head, block); empty for global ones, which see all.
    fn rows(&self, heads: usize, draws: &Draws, key: StreamKey) -> Vec<Vec<usize>> {
        let blocks = self.blocks;
        // A random order of blocks for each head and row: the first r that are not listed yet are taken.
        let order = draws.at_step(0).shared(key).uniform(heads * blocks, blocks);
        let row = |index: usize| {
            let block = index % blocks;
            if self.is_global(block) {
                return Vec::new();
            }
            let mut listed = vec![0, block - 1, block, block + 1, blocks - 1];
            listed.sort_unstable();
            listed.dedup();
            let mut others: Vec<usize> = (0..blocks)
                .filter(|other| !listed.contains(other) && self.may_draw(block, *other))
                .collect();
            let place = |other: &usize| order[index * blocks + other];
            others.sort_by(|one, other| place(one).total_cmp(&place(other)));
            listed.extend(others.into_iter().take(self.random));
            listed
        };
        (0..heads * blocks).map(row).collect()
    }

    /// Whether `block` may draw `other`, which is not global and not in its window.
    fn may_draw(&self, block: usize, other: usize) -> bool {
        if !self.tay2021 {
            return true;
        }
        // The last block of the pool. The 2021 code has slices of a list per row, with the last two rows and those at the pool's end cut short.
        let last = (POOL_2021.min(self.blocks * self.size) / self.size).saturating_sub(1);
        match block {
            _ if block + 3 == self.blocks => other <= last.saturating_sub(4),
            _ if block + 2 == self.blocks => other <= last.saturating_sub(3),
            _ if block + 1 == last => other + 2 <= block,
            _ => other <= last,
        }
    }

    fn attend(
        &self,
        [q, k, v]: &[Tensor; 3],
        rows: &[Vec<usize>],
        mask: Option<&Mask>,
        [listed, global]: [WeightDropout; 2],
    ) -> Result<Tensor> {
        let (_, heads, length, _) = q.dims4()?;
        let (size, present) = (self.size, length.div_ceil(self.size));
        let take = |from: usize, to: usize| q.narrow(2, from, to - from)?.contiguous();
        // Queries of the first and, where the sequence has it, of the last block; all that lie between.
        let first = size.min(length);
        let last = match present == self.blocks && present > 1 {
            true => (present - 1) * size,
            false => length,
        };
        let mut globals = vec![take(0, first)?];
        if last < length {
            globals.push(take(last, length)?);
        }
        let globals = Tensor::cat(&globals, 2)?;
        let bias = key_bias(mask)?;
        let global = merge(&[parts::attend(&globals, k, v, bias.as_ref(), global)?])?;
        let mut y = vec![global.narrow(2, 0, first)?];
        if last > first {
            let lists = self.lists(heads, length, rows);
            let part = block_attention::attend(&take(first, last)?, k, v, &lists, mask, listed)?;
            y.push(merge(&[part])?);
        }
        if last < length {
            y.push(global.narrow(2, first, length - last)?);
        }
        Ok(Tensor::cat(&y, 2)?)
    }

    /// Lists of the blocks that a sequence of `length` has and that are not global.
    fn lists(&self, heads: usize, length: usize, rows: &[Vec<usize>]) -> BlockLists {
        let present = length.div_ceil(self.size);
        let rows: Vec<Vec<usize>> = (0..heads * self.blocks)
            .filter(|index| index % self.blocks < present && !self.is_global(index % self.blocks))
            .map(|index| {
                let blocks = rows[index].iter().copied();
                blocks.filter(|&block| block < present).collect()
            })
            .collect();
        BlockLists::new(self.size, heads, &rows)
    }

    fn pairs(&self, length: usize, heads: usize, rows: &[Vec<usize>]) -> usize {
        let present = length.div_ceil(self.size);
        let globals = (0..present).filter(|&block| self.is_global(block)).count();
        let global = (globals * self.size).min(length) * length * heads;
        global + self.lists(heads, length, rows).pairs(heads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        layers::{
            sparse_testing::{by_position, meets_dense, undropped},
            testing::{meets_oracle, parameters},
        },
        options::BlockOptions,
        oracle,
    };

    fn rows(pattern: &Pattern, heads: usize, seed: u64) -> Vec<Vec<usize>> {
        pattern.rows(heads, &Draws::new(seed, 7, 3), StreamKey::new("blocks"))
    }

    fn run(
        pattern: &Pattern,
        heads: usize,
    ) -> impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor> {
        let rows = rows(pattern, heads, 1);
        move |q, k, v, mask| {
            let qkv = [q.clone(), k.clone(), v.clone()];
            undropped(q, |drop| pattern.attend(&qkv, &rows, mask, [drop, drop]))
        }
    }

    fn paper(size: usize, blocks: usize, random: usize) -> Pattern {
        Pattern {
            size,
            blocks,
            random,
            tay2021: false,
        }
    }

    #[test]
    fn all_blocks_listed_is_softmax_attention() {
        for pattern in [
            paper(8, 1, 3),
            paper(3, 2, 3),
            paper(1, 5, 2),
            paper(1, 5, 9),
        ] {
            meets_oracle(
                "bigbird",
                1e-7,
                oracle::softmax,
                by_position(run(&pattern, 2)),
            );
        }
    }

    #[test]
    fn equals_dense_attention_under_the_mask_of_its_definition() {
        let pattern = paper(2, 9, 2);
        let drawn = rows(&pattern, 3, 1);
        // Lengths up to the longest, 18: the last block is there from 17 on.
        for length in [1, 2, 3, 5, 12, 16, 17, 18] {
            meets_dense("bigbird", length, 3, run(&pattern, 3), |head, i, j| {
                let (i, j) = (i / 2, j / 2);
                let global = [i, j].iter().any(|block| [0, 8].contains(block));
                global || i.abs_diff(j) <= 1 || drawn[head * 9 + i].contains(&j)
            });
        }
    }

    #[test]
    fn random_blocks_are_others_and_depend_on_seed_head_and_row_only() {
        let pattern = paper(64, 32, 3);
        let drawn = rows(&pattern, 4, 1);
        for (index, row) in drawn.iter().enumerate() {
            let block = index % 32;
            if pattern.is_global(block) {
                assert!(row.is_empty());
                continue;
            }
            let mut distinct = row.clone();
            distinct.sort_unstable();
            distinct.dedup();
            assert_eq!(distinct.len(), row.len());
            let near = [0, block - 1, block, block + 1, 31];
            let random = row.iter().filter(|other| !near.contains(other));
            assert_eq!(random.count(), 3);
            assert!(near.iter().all(|other| row.contains(other)));
        }
        let elsewhere = Draws::new(1, 90, 5).branch(1);
        assert_eq!(pattern.rows(4, &elsewhere, StreamKey::new("blocks")), drawn);
        assert_ne!(rows(&pattern, 4, 2), drawn);
        assert_ne!(drawn[5], drawn[32 + 5]);
        // Each of the 27 others of row 15 is as likely as any: 3 of 27 in 2,000 draws, three standard errors being 42.
        let mut counts = [0; 32];
        for row in
            (0..500).flat_map(|seed| rows(&pattern, 4, seed).into_iter().skip(15).step_by(32))
        {
            row[5..].iter().for_each(|&other| counts[other] += 1);
        }
        let others = (1..31).filter(|other| !(14..=16).contains(other));
        assert!(
            others
                .map(|other| counts[other])
                .all(|count: i32| (count - 222).abs() < 56)
        );
    }

    /// Slices of the list 1 to N - 2, as the 2021 code takes them.
    fn pool_2021(block: usize, blocks: usize, last: usize) -> Vec<usize> {
        let list: Vec<usize> = (1..blocks - 1).collect();
        let slice = |from: usize, to: usize| -> Vec<usize> {
            let to = to.min(list.len());
            list[from.min(to)..to].to_vec()
        };
        match block {
            1 => slice(2, last),
            2 => slice(3, last),
            _ if block == blocks - 3 => slice(0, last - 4),
            _ if block == blocks - 2 => slice(0, last - 3),
            _ if block - 2 > last => slice(0, last),
            _ if block + 1 == last => slice(0, block - 2),
            _ => [slice(0, block - 2), slice(block + 1, last)].concat(),
        }
    }

    #[test]
    fn the_2021_variant_draws_from_the_2021_pools() {
        for blocks in [16, 17, 32, 63] {
            let pattern = Pattern {
                size: 64,
                blocks,
                random: 3,
                tay2021: true,
            };
            for block in 1..blocks - 1 {
                let pool = pool_2021(block, blocks, 15);
                let found: Vec<usize> = (1..blocks - 1)
                    .filter(|other| other.abs_diff(block) > 1 && pattern.may_draw(block, *other))
                    .collect();
                assert_eq!(found, pool, "{block} of {blocks}");
            }
        }
    }

    #[test]
    fn the_2021_variant_has_zeros_at_the_end_as_keys() {
        let options = Options {
            variant: Variant::Tay2021,
            block: 2,
            random: 1,
        };
        let vb = parameters().builder();
        let block = BlockOptions::default();
        let site = Site {
            vb,
            block: &block,
            max_length: 10,
            cls: false,
            layer: 0,
        };
        let bigbird = BigBird::new(&site, &options).unwrap();
        assert_eq!(bigbird.pattern.blocks, 6);
        let drawn = rows(&bigbird.pattern, 2, 1);
        let x = |name: &str| crate::layers::testing::normal(name, &[1, 2, 9, 3]);
        let (q, k) = (x("q"), x("k"));
        let ones = Tensor::ones((1, 2, 9, 1), q.dtype(), q.device()).unwrap();
        let (filled, mask) = bigbird
            .filled_up(&[q.clone(), k.clone(), ones], None)
            .unwrap();
        let y = undropped(&q, |drop| {
            bigbird
                .pattern
                .attend(&filled, &drawn, mask.as_ref(), [drop, drop])
        })
        .unwrap();
        let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
        let (q, k) = (
            q.flatten(0, 2).unwrap().to_vec2::<f64>().unwrap(),
            k.flatten(0, 2).unwrap().to_vec2::<f64>().unwrap(),
        );
        for (head, i) in (0..2).flat_map(|head: usize| (0..9usize).map(move |i| (head, i))) {
            let seen = |j: usize| {
                let (from, to) = (i / 2, j / 2);
                let global = from == 0 || to == 0 || to == 5;
                global || from.abs_diff(to) <= 1 || drawn[head * 6 + from].contains(&to)
            };
            let weight = |j: usize| -> f64 {
                let pairs = q[head * 9 + i].iter().zip(&k[head * 9 + j]);
                (pairs.map(|(a, b)| a * b).sum::<f64>() / 3f64.sqrt()).exp()
            };
            // Position 9 is padding, 10 and 11 are keys with score 0 and value 0.
            let real: f64 = (0..9).filter(|&j| seen(j)).map(weight).sum();
            let wanted = real / (real + 2.0);
            assert!((y[head * 12 + i] - wanted).abs() < 1e-9, "{head} {i}");
        }
    }
}
