//! Softmax attention in f32 on the GPU beside the composed form in f64.

use candle_core::Tensor;
use lra_models::ops::attention::{
    self, AttentionDropout, AttentionOptions, BlockLists, BlockMask, BlockMasks, QueryRange,
    RelativeScores, ScoreFunctions,
};
use lra_models::rng::{RngKey, StreamKey};

use super::operations::{Comparison, compare, draw, mask};

/// Returns attention of every query on every key.
pub(super) fn dense() -> Vec<Comparison> {
    let mut all = Vec::new();
    for [queries, keys] in [[1, 1], [17, 33], [64, 64], [100, 300], [1, 1023]] {
        for (heads, width) in [(1, 3), (2, 32), (3, 64), (1, 128), (2, 96)] {
            for (masked, drops) in [(false, false), (true, false), (true, true)] {
                let row = heads * width;
                let operands = vec![
                    draw("q", &[2, queries, row]),
                    draw("k", &[2, keys, row]),
                    draw("v", &[2, keys, row]),
                ];
                let name = format!(
                    "attention of {queries} queries on {keys} keys, {heads} heads of {width}, \
                     masked {masked}, dropout {drops}"
                );
                all.push(compare(name, operands, 2e-5, move |x| {
                    let mask = mask(2, keys, &x[1])?;
                    let stream = RngKey::new(3, 9, 5).per_example(StreamKey::new("weights"));
                    let options = AttentionOptions {
                        heads,
                        mask: masked.then(|| mask.valid().clone()),
                        dropout: drops.then(|| AttentionDropout::new(&stream, 2, 0.2)),
                        ..AttentionOptions::default()
                    };
                    attention::attend(&x[0], &x[1], &x[2], &options)
                }));
            }
        }
    }
    all
}

/// The tables that additions by distance have.
#[derive(Clone, Copy, Debug)]
enum Tables {
    OfHeads,
    All,
}

/// A call of two examples with two heads.
#[derive(Clone)]
struct Call {
    queries: usize,
    keys: usize,
    width: usize,
    values: usize,
    masked: bool,
    drops: bool,
    /// Tables, the reach, and keys that have a position.
    tables: Option<(Tables, usize, std::ops::Range<usize>)>,
    soft_cap: Option<f64>,
    key_columns: usize,
    block_masks: Option<BlockMasks>,
}

const HEADS: usize = 2;

impl Call {
    /// Returns attention of `length` positions on themselves.
    fn new(length: usize, width: usize) -> Self {
        Self {
            queries: length,
            keys: length,
            width,
            values: width,
            masked: true,
            drops: false,
            tables: None,
            soft_cap: None,
            key_columns: 0,
            block_masks: None,
        }
    }

    fn compare(self, name: &str) -> Comparison {
        let (queries, keys) = (self.queries, self.keys);
        let rows = |name, length, width| draw(name, &[2, length, HEADS * width]);
        let mut operands = vec![
            rows("q", queries, self.width + self.key_columns),
            rows("k", keys, self.width),
            rows("v", keys, self.values),
        ];
        if let Some((tables, reach, placed)) = &self.tables {
            let columns = 2 * reach + 1;
            operands.push(draw("heads", &[HEADS, columns]));
            if matches!(tables, Tables::All) {
                operands.push(draw("queries", &[2, HEADS, queries, columns]));
                operands.push(draw("keys", &[2, HEADS, placed.len(), columns]));
            }
        }
        let name = format!(
            "attention {name}: {queries} queries, {keys} keys, heads of {} and {}, {:?}",
            self.width, self.values, self.tables
        );
        compare(name, operands, 2e-5, move |x| self.attend(x))
    }

    fn attend(&self, x: &[Tensor]) -> lra_models::Result<Tensor> {
        let mask = mask(2, self.keys, &x[1])?;
        let stream = RngKey::new(3, 9, 5).per_example(StreamKey::new("weights"));
        let columns = draw("columns", &[self.keys, self.key_columns.max(1)]);
        let columns = columns.to_dtype(x[0].dtype())?.to_device(x[0].device())?;
        let options = AttentionOptions {
            heads: HEADS,
            mask: self.masked.then(|| mask.valid().clone()),
            dropout: self.drops.then(|| AttentionDropout::new(&stream, 2, 0.2)),
            block_masks: self.block_masks.clone(),
            relative: self
                .tables
                .as_ref()
                .map(|(_, reach, placed)| RelativeScores {
                    reach: *reach,
                    keys: placed.clone(),
                    of_heads: x.get(3).cloned(),
                    of_queries: x.get(4).cloned(),
                    of_keys: x.get(5).cloned(),
                }),
            functions: ScoreFunctions {
                soft_cap: self.soft_cap,
            },
            key_columns: (self.key_columns > 0).then_some(columns),
            ..AttentionOptions::default()
        };
        attention::attend(&x[0], &x[1], &x[2], &options)
    }
}

/// Returns attention with additions by distance, a cap, columns of all keys, and values of another
/// width than keys.
pub(super) fn by_distance() -> Vec<Comparison> {
    let mut all = Vec::new();
    for drops in [false, true] {
        for length in [1, 65, 300] {
            let call = Call {
                drops,
                tables: Some((Tables::OfHeads, length - 1, 0..length)),
                ..Call::new(length, 16)
            };
            let wide = Call {
                values: 130,
                ..call.clone()
            };
            let all_tables = Call {
                tables: Some((Tables::All, 9, 2.min(length - 1)..length)),
                soft_cap: Some(2.5),
                ..call.clone()
            };
            let columns = Call {
                tables: None,
                key_columns: 7,
                ..call.clone()
            };
            all.push(call.compare("by distance"));
            all.push(wide.compare("by distance"));
            all.push(all_tables.compare("by distance, capped"));
            all.push(columns.compare("with columns of keys"));
        }
    }
    let call = Call {
        queries: 70,
        values: 32,
        soft_cap: Some(1.5),
        ..Call::new(200, 128)
    };
    all.push(call.compare("capped"));
    all
}

/// Returns a mask of blocks of every second position, whose keys 0 to 9 are in two blocks, with
/// diagonals, and queries without a block.
fn overlapping(length: usize) -> BlockMask {
    let mut mask = BlockMask::new(-1.5);
    let count = length.min(10);
    let first = mask.key_block(0..count as u32);
    let ranges = (0..count).map(|j| QueryRange::new(j / 2..20, Some(j)));
    let ranges = mask.ranges(ranges);
    let positions: Vec<u32> = (0..length as u32).step_by(2).collect();
    let blocks = mask.key_blocks_of(&positions);
    for queries in positions.chunks(20).step_by(2) {
        mask.query_block(queries.iter().copied());
        mask.allow(first, Some(&ranges));
        blocks.iter().for_each(|(keys, _)| mask.allow(*keys, None));
    }
    mask
}

/// Returns attention under block masks.
pub(super) fn in_blocks() -> Vec<Comparison> {
    let mut all = Vec::new();
    for drops in [false, true] {
        for length in [7, 130, 300] {
            let chunks = BlockLists::around(length, 40.min(length), (1, 0), |_, _| true);
            let causal = BlockLists::window(length, 19, 0);
            let call = |block_masks| Call {
                drops,
                block_masks: Some(block_masks),
                ..Call::new(length, 16)
            };
            let by_distance = Call {
                tables: Some((Tables::OfHeads, length - 1, 0..length)),
                values: 70,
                ..call(chunks.block_masks(length))
            };
            let all_tables = Call {
                tables: Some((Tables::All, 9, 0..length)),
                soft_cap: Some(2.5),
                ..call(chunks.block_masks(length))
            };
            let per_head = vec![overlapping(length), BlockMask::new(-1.5)];
            let per_example = (0..4).map(|_| overlapping(length)).collect();
            all.push(call(chunks.block_masks(length)).compare("in chunks"));
            all.push(call(causal.block_masks(length)).compare("in a window"));
            all.push(by_distance.compare("in chunks"));
            all.push(all_tables.compare("in chunks, capped"));
            all.push(call(BlockMasks::new(per_head)).compare("in blocks of a head"));
            all.push(call(BlockMasks::new(per_example)).compare("in blocks of an example"));
        }
    }
    all
}
