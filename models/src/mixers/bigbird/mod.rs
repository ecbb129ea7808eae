//! BigBird. Zaheer et al., 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062.
//!     y_i = Σ_j a_ij v_j, a_i = softmax(q_i·k_j / √E) over keys j in the listed blocks: i's block and its neighbours (window),
//!     the first and the last (global, which see all themselves), and r random others, drawn per head and block of queries
//! B batch, H heads, L length, E width of a head, S block length; q, k, v (B, H, L, E). Time
//! O(L·(5 + r)·S·E) per head, memory O(L·(5 + r)·S). The paper's ITC form: global tokens are tokens
//! of the sequence. Dropout on the weights. Random blocks depend only on seed and layer. Position 0
//! (the CLS token if there is one) is in the first block.
//!
//! # Options
//!
//! The paper's ETC form adds `global_extra` g learned tokens (0: none), which pass through all
//! layers before the sequence and are dropped after the last one. They see every position and every
//! position sees them, and no block of the sequence is global. `block` is S, `random` is r.
//!
//! # Padding
//!
//! Padded keys get weight zero. Blocks are counted on the longest length, as if every sequence were
//! padded to it. So the padding of a batch changes nothing, but a short sequence has no last block
//! and fewer random ones, as in 2021.
//!
//! # Departures
//!
//! Initial values and the norms' ε are those of the benchmark's 2021 code: weights begin
//! Xavier-uniform, biases of the feed-forward network N(0, 1e-6²), projections have no biases, and
//! ε is `block.norm_epsilon` = 1e-6. In the authors' code weights begin N(0, 0.02²), cut at two
//! deviations, biases, of projections too, as 0, and ε is 1e-12 (google-research/bigbird@5e7d375
//! bigbird/core/utils.py:127-129, 474, bigbird/core/attention.py:696-709,
//! bigbird/core/encoder.py:81-102).

mod external;

use crate::{
    RngKey,
    encoder::blocks,
    mixers::tay2021,
    ops::attention::{BlockLists, BlockMask, StridedPositions},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "bigbird",
    title: "BigBird",
    paper: "Big Bird: Transformers for Longer Sequences",
    year: 2020,
    arxiv: "2007.14062",
    time: Cost::Linear("O(L·S·E)"),
    memory: Cost::Linear("O(L·S)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::paper(build, include_str!("mod.rs")),
        tay2021::bigbird::VARIANT,
    ],
    ..Model::with_options::<Options>()
};

/// Most queries of a block of attention.
const SIDE: usize = 64;

/// Positions from which the 2021 code draws random blocks.
const POOL_2021: usize = 1024;

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(default = 64, range = int(1, LONGEST))]
    block: usize,
    #[option(default = 3, range = int(0, LONGEST))]
    random: usize,
    /// g.
    #[option(range = int(0, LONGEST))]
    global_extra: usize,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    encoder(context, false)
}

/// Returns the encoder of the paper's form, or of `tay2021`.
pub(super) fn encoder(context: &ModelContext, tay2021: bool) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    let extra = options.global_extra;
    require(
        extra == 0 || !tay2021,
        "model.global_extra",
        extra,
        "0 with model.variant = tay2021",
    )?;
    external::around(context, extra, |context| {
        blocks(context, |layer| {
            Ok(Box::new(BigBird::new(layer, &options, tay2021)?))
        })
    })
}

struct BigBird {
    projections: Projections,
    dropout: Dropout,
    pattern: Pattern,
    /// Names the random blocks.
    key: StreamKey,
    /// Longest length without the positions that the 2021 code fills up.
    max_length: usize,
    heads: usize,
    width: usize,
}

impl BigBird {
    fn new(layer: &LayerContext, options: &Options, tay2021: bool) -> Result<Self> {
        let (size, max_length) = (options.block, layer.max_length - options.global_extra);
        let rate = match tay2021 {
            true => 0.0,
            false => layer.block.attention_dropout,
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop").pp("listed"), rate),
            pattern: Pattern {
                size,
                // 2021: a length that is a multiple of the block size is filled up by a whole
                // block.
                blocks: match tay2021 {
                    true => max_length / size + 1,
                    false => max_length.div_ceil(size),
                },
                random: options.random,
                extra: options.global_extra,
                tay2021,
            },
            key: StreamKey::new(&layer.vb.pp("blocks").prefix()),
            max_length,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }

    /// Returns attention of queries, keys and values (B, L, H E) as the 2021 code pads them: zeros
    /// up to a whole number of blocks are keys.
    fn attend_2021(&self, [q, k, v]: [&Tensor; 3], options: AttentionOptions) -> Result<Tensor> {
        let (batch, length, _) = q.dims3()?;
        let full = self.pattern.blocks * self.pattern.size;
        // The projections have no biases: positions that fill up have zeros for keys and values.
        let fill = |x: &Tensor| x.pad_with_zeros(1, 0, full - length);
        let ones = |count: usize| Tensor::ones((batch, count), q.dtype(), q.device());
        let valid = match &options.mask {
            Some(valid) => valid.clone(),
            None => ones(length)?,
        };
        let valid = valid.pad_with_zeros(1, 0, self.max_length - length)?;
        // The mask's padding value was given as a number; as a boolean it means true: score 0,
        // value 0.
        let valid = Tensor::cat(&[&valid, &ones(full - self.max_length)?], 1)?;
        let options = AttentionOptions {
            mask: Some(valid),
            ..options
        };
        attention::attend(q, &fill(k)?, &fill(v)?, &options)
    }
}

impl Mixer for BigBird {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let rows = match pass.fixed("blocks") {
            Some(random) => self.pattern.given_rows(self.heads, random)?,
            None => self.pattern.rows(self.heads, &pass.rng, self.key),
        };
        let block_masks = Some(self.pattern.block_masks(self.heads, x.dim(1)?, &rows));
        let y = match self.pattern.tay2021 {
            true => {
                let [q, k, v] = self.projections.qkv(x)?;
                let options = self.projections.options(x, pass, &self.dropout)?;
                self.attend_2021(
                    [&q, &k, &v],
                    AttentionOptions {
                        block_masks,
                        ..options
                    },
                )?
            }
            false => self
                .projections
                .attend(x, pass, &self.dropout, block_masks)?,
        };
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        match self.pattern.tay2021 {
            true => Supports::none("the 2021 code has zeros for keys, without positions"),
            false => Supports::ALL,
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let rng = RngKey::new(0, 0, 0);
        let rows = self.pattern.rows(self.heads, &rng, self.key);
        let block_masks = self.pattern.block_masks(self.heads, length, &rows);
        let pairs = block_masks.pairs(self.heads);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.projections.score_mods().flops(length, pairs)
    }
}

struct Pattern {
    /// S.
    size: usize,
    /// Blocks of the longest length.
    blocks: usize,
    /// r.
    random: usize,
    /// g, tokens before the sequence: with any, no block of it is global.
    extra: usize,
    tay2021: bool,
}

impl Pattern {
    /// Returns whether the block sees everything.
    fn is_global(&self, block: usize) -> bool {
        self.extra == 0 && (block == 0 || block + 1 == self.blocks)
    }

    /// Returns blocks that each block of queries sees, in the order (head, block); empty for global
    /// ones, which see all.
    fn rows(&self, heads: usize, rng: &RngKey, key: StreamKey) -> Vec<Vec<usize>> {
        let blocks = self.blocks;
        // Each head and row has a random order of blocks: the first r that are not listed yet are
        // taken.
        let order = rng.at_step(0).shared(key).uniform(heads * blocks, blocks);
        self.with_random(heads, |index, listed| {
            let mut others: Vec<usize> = (0..blocks)
                .filter(|other| !listed.contains(other) && self.may_draw(index % blocks, *other))
                .collect();
            let place = |other: &usize| order[index * blocks + other];
            others.sort_by(|one, other| place(one).total_cmp(&place(other)));
            others.truncate(self.random);
            others
        })
    }

    /// Returns the rows for random blocks from elsewhere, (H, N - 2, r) or, where no block is
    /// global, (H, N, r): one row for each block that is not global.
    fn given_rows(&self, heads: usize, random: &Tensor) -> Result<Vec<Vec<usize>>> {
        let blocks = self.blocks;
        let random = random.to_dtype(DType::U32)?.to_vec3::<u32>()?;
        let first = usize::from(self.is_global(0));
        let row = |index: usize| random.get(index / blocks)?.get(index % blocks - first);
        Ok(self.with_random(heads, |index, _| {
            let row = row(index).map(Vec::as_slice).unwrap_or_default();
            row.iter().map(|&block| block as usize).collect()
        }))
    }

    /// Returns global blocks and the window, and the blocks that `random` returns for (head * N +
    /// block, these).
    fn with_random(
        &self,
        heads: usize,
        random: impl Fn(usize, &[usize]) -> Vec<usize>,
    ) -> Vec<Vec<usize>> {
        let blocks = self.blocks;
        let row = |index: usize| {
            let block = index % blocks;
            if self.is_global(block) {
                return Vec::new();
            }
            let mut listed: Vec<usize> =
                (block.saturating_sub(1)..(block + 2).min(blocks)).collect();
            if self.is_global(0) {
                listed.extend([0, blocks - 1]);
            }
            listed.sort_unstable();
            listed.dedup();
            let random = random(index, &listed);
            listed.extend(random);
            listed
        };
        (0..heads * blocks).map(row).collect()
    }

    /// Returns whether `block` may draw `other`, which is not global and not in its window.
    fn may_draw(&self, block: usize, other: usize) -> bool {
        if !self.tay2021 {
            return true;
        }
        // The last block of the pool. The 2021 code has slices of a list per row, with the last two
        // rows and those at the pool's end cut short.
        let last = (POOL_2021.min(self.blocks * self.size) / self.size).saturating_sub(1);
        match block {
            _ if block + 3 == self.blocks => other <= last.saturating_sub(4),
            _ if block + 2 == self.blocks => other <= last.saturating_sub(3),
            _ if block + 1 == last => other + 2 <= block,
            _ => other <= last,
        }
    }

    /// Returns a block mask for each head; global blocks list all.
    fn block_masks(&self, heads: usize, length: usize, rows: &[Vec<usize>]) -> BlockMasks {
        let (extra, length) = (self.extra, length - self.extra);
        let keys = match self.tay2021 {
            true => self.blocks * self.size,
            false => length,
        };
        let present = keys.div_ceil(self.size);
        let row = |index: usize| -> Vec<usize> {
            match self.is_global(index % self.blocks) {
                true => (0..present).collect(),
                false => rows[index]
                    .iter()
                    .copied()
                    .filter(|&block| block < present)
                    .collect(),
            }
        };
        let rows: Vec<Vec<usize>> = (0..heads * self.blocks)
            .filter(|index| index % self.blocks < present)
            .map(row)
            .collect();
        let lists = BlockLists::new(self.size, heads, &rows);
        if extra == 0 {
            return lists.block_masks_between(length, keys);
        }
        let block_mask = |head| Self::beside_extra(&lists, head, extra, length);
        BlockMasks::new((0..heads).map(block_mask).collect())
    }

    /// Returns the block mask of `head` over `length` tokens behind `extra` positions that see all
    /// and are seen by all.
    fn beside_extra(lists: &BlockLists, head: usize, extra: usize, length: usize) -> BlockMask {
        let mut block_mask = BlockMask::new(0.0);
        let first: Vec<u32> = (0..extra as u32).collect();
        let tokens: Vec<u32> = (extra as u32..(extra + length) as u32).collect();
        let (first_keys, keys) = (
            block_mask.key_blocks_of(&first),
            block_mask.key_blocks_of(&tokens),
        );
        for queries in first.chunks(SIDE) {
            block_mask.query_block(queries.iter().copied());
            for (keys, _) in first_keys.iter().chain(&keys) {
                block_mask.allow(*keys, None);
            }
        }
        let positions = StridedPositions {
            first: extra,
            ..StridedPositions::all(length)
        };
        lists.add_to(&mut block_mask, head, (positions, positions), |mask, _| {
            first_keys
                .iter()
                .for_each(|(keys, _)| mask.allow(*keys, None));
        });
        block_mask
    }
}

#[cfg(test)]
mod tests;
