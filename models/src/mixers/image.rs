//! Image Transformer. Parmar et al., 2018, "Image Transformer", arXiv:1802.05751.
//!     y_i = Σ_j a_ij v_j over the keys j of the memory of i's block, a_i = softmax(q_i·k_j / √E)
//! Queries are cut in blocks, and each block sees its memory: itself and what is near it. B batch, H heads, L length, E width of a head,
//! K keys of a memory; q, k, v (B, H, L, E). Time O(L·K·E) per head, memory O(L·K). Padded keys get weight zero. Dropout on the weights.
//! `shape = 1d`: blocks of `block` positions, and `memory` more on either side (K = 128 + 2·64).
//! `shape = 2d`: blocks of `block_height` x `block_width` pixels, and `memory_height` rows and `memory_width` columns more on either side, as far as the image
//! goes (K = 16·16). The sequence is an image row by row, as wide as the task says or `width` says (0: as the task says); no text has such a form. The benchmark's
//! rules forbid it, as it tells the model what is above what: records say so.
//! The CLS token, where there is one, is in no block: it sees everything and everything sees it. The paper generates images pixel by pixel, so that its memories
//! reach back only; to both sides is what tensor2tensor's encoders have. `local` with neighbours and `exact = false` is the 1d form with whole blocks as memory.

use std::ops::Range;

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder,
    error::require,
    layers::{Dropout, Projections, Takes},
    model::{Cost, Model, Reference, Variant},
    ops::attention::{BlockMask, BlockMasks, partial_softmax},
    options::{self, LONGEST, to_json},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "image",
    title: "Image Transformer",
    paper: "Image Transformer",
    year: 2018,
    arxiv: "1802.05751",
    time: Cost::Linear("O(L·K·E)"),
    memory: Cost::Linear("O(L·K)"),
    reference: Reference::Equations,
    settings: "",
    variants: &[Variant::paper(build, include_str!("image.rs"))],
    options: || to_json(&Options::default()),
    ranges: &[
        options::Range::whole("block", 1, LONGEST),
        options::Range::whole("memory", 0, LONGEST),
        options::Range::whole("block_height", 1, LONGEST),
        options::Range::whole("block_width", 1, LONGEST),
        options::Range::whole("memory_height", 0, LONGEST),
        options::Range::whole("memory_width", 0, LONGEST),
        options::Range::whole("width", 0, LONGEST),
    ],
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Shape {
    #[serde(rename = "1d")]
    Line,
    #[serde(rename = "2d")]
    Plane,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    shape: Shape,
    block: usize,
    memory: usize,
    block_height: usize,
    block_width: usize,
    memory_height: usize,
    memory_width: usize,
    width: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            shape: Shape::Line,
            block: 128,
            memory: 64,
            block_height: 8,
            block_width: 8,
            memory_height: 4,
            memory_width: 4,
            width: 0,
        }
    }
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    let pattern = options.pattern(context)?;
    encoder::blocks(context, |at| Ok(Box::new(Image::new(at, pattern)?)))
}

impl Options {
    fn pattern(&self, context: &ModelContext) -> Result<Pattern> {
        let first = usize::from(context.cls);
        let line = Pattern {
            first,
            block: [1, self.block],
            memory: [0, self.memory],
            width: None,
        };
        if self.shape == Shape::Line {
            return Ok(line);
        }
        let Some([_, columns]) = context.geometry.grid else {
            let allowed = "1d for this task, whose sequences are no images";
            return Err(crate::Error::Option {
                key: "model.shape".to_owned(),
                value: "2d".to_owned(),
                allowed: allowed.to_owned(),
            });
        };
        let pixels = context.max_length - first;
        require(
            self.width == 0 || pixels.is_multiple_of(self.width),
            "model.width",
            self.width,
            format!("0 or what divides the {pixels} pixels into rows"),
        )?;
        Ok(Pattern {
            first,
            block: [self.block_height, self.block_width],
            memory: [self.memory_height, self.memory_width],
            width: Some(if self.width == 0 { columns } else { self.width }),
        })
    }
}

struct Image {
    projections: Projections,
    dropout: Dropout,
    pattern: Pattern,
    heads: usize,
    width: usize,
}

/// Blocks of queries and their memories.
#[derive(Clone, Copy)]
struct Pattern {
    /// Position of the first pixel: 1 behind a CLS token.
    first: usize,
    /// Rows and columns of a block.
    block: [usize; 2],
    /// Rows and columns on either side of it.
    memory: [usize; 2],
    /// Pixels of a row; none if all of them are one row.
    width: Option<usize>,
}

impl Image {
    fn new(at: &LayerContext, pattern: Pattern) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(at)?,
            dropout: Dropout::new(&at.vb.pp("drop"), at.block.attention_dropout),
            pattern,
            heads: at.block.heads,
            width: at.block.head_dim(),
        })
    }
}

impl Mixer for Image {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let block_masks = Some(self.pattern.block_masks(x.dim(1)?));
        let y = self
            .projections
            .attend(x, pass, &self.dropout, block_masks)?;
        self.projections.merge(&y)
    }

    fn takes(&self) -> Takes {
        Takes::ALL
    }

    fn against_rules(&self) -> Option<&'static str> {
        let tells = "attention knows rows and columns of the image, which the benchmark's rules forbid: comparable with no other score";
        self.pattern.width.map(|_| tells)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self.pattern.block_masks(length).pairs(self.heads);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.projections.terms().flops(length, pairs)
    }
}

impl Pattern {
    /// One block mask, which all heads share.
    fn block_masks(&self, length: usize) -> BlockMasks {
        let mut block_mask = BlockMask::new(0.0);
        let cls = (self.first > 0).then(|| block_mask.key_block([0]));
        if cls.is_some() {
            let all: Vec<u32> = (0..length as u32).collect();
            let all = block_mask.key_blocks_of(&all);
            block_mask.query_block([0]);
            all.iter()
                .for_each(|(keys, _)| block_mask.allow(*keys, None));
        }
        let pixels = length - self.first;
        let width = self.width.unwrap_or(pixels).max(1);
        let rows = pixels.div_ceil(width);
        let [height, breadth] = self.block;
        for (top, left) in (0..rows)
            .step_by(height)
            .flat_map(|top| (0..width).step_by(breadth).map(move |left| (top, left)))
        {
            let wider = |from: usize, side: usize| {
                from.saturating_sub(self.memory[side])..from + self.block[side] + self.memory[side]
            };
            let area = |rows_seen: Range<usize>, columns: Range<usize>| -> Vec<u32> {
                let of_row = |row: usize| {
                    let columns = columns.start..columns.end.min(width);
                    columns.map(move |column| row * width + column)
                };
                let pixels = (rows_seen.start..rows_seen.end.min(rows))
                    .flat_map(of_row)
                    .filter(|pixel| *pixel < pixels);
                pixels.map(|pixel| (self.first + pixel) as u32).collect()
            };
            let queries = area(top..top + height, left..left + breadth);
            let keys = block_mask.key_blocks_of(&area(wider(top, 0), wider(left, 1)));
            for queries in queries.chunks(SIDE) {
                block_mask.query_block(queries.iter().copied());
                let keys = keys.iter().map(|(keys, _)| *keys).chain(cls);
                keys.for_each(|keys| block_mask.allow(keys, None));
            }
        }
        BlockMasks::new(vec![block_mask])
    }
}

/// Most queries of a block of attention.
const SIDE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        context::Geometry, ops::attention::testing::plans_meet_dense, options::BlockOptions,
        testing::parameters,
    };

    #[test]
    fn two_dimensions_want_an_image_and_say_that_the_rules_forbid_them() {
        let built = |shape, width, grid| {
            let options = Options {
                shape,
                width,
                ..Options::default()
            };
            let parameters = parameters();
            let context = ModelContext {
                vb: parameters.builder(),
                block: &BlockOptions::default(),
                model: &to_json(&options),
                max_length: 24,
                cls: false,
                geometry: Geometry { grid, towers: 1 },
                positions: None,
                conditional: false,
                layers: options::Layers::Last,
                name: MODEL.name,
            };
            build(&context)
        };
        let image = Some([4, 6]);
        for (shape, width, grid, forbidden) in [
            (Shape::Line, 0, None, false),
            (Shape::Line, 0, image, false),
            (Shape::Plane, 0, image, true),
            (Shape::Plane, 8, image, true),
        ] {
            let encoder = built(shape, width, grid).unwrap();
            assert_eq!(encoder.against_rules().is_some(), forbidden);
        }
        for (width, grid, wanted) in [(0, None, "model.shape = 2d"), (5, image, "model.width = 5")]
        {
            let error = built(Shape::Plane, width, grid).err().unwrap().to_string();
            assert!(error.starts_with(wanted), "{error}");
        }
    }

    /// Rows and columns are told apart by `width`; the first position is a CLS token if `first` is 1.
    fn check(pattern: Pattern, length: usize, all: bool) {
        let width = pattern.width.unwrap_or(1 << 20);
        let sees = |_, i: usize, j: usize| {
            let (Some(i), Some(j)) = (i.checked_sub(pattern.first), j.checked_sub(pattern.first))
            else {
                return true;
            };
            let near = |i: usize, j: usize, side: usize| {
                let (size, memory) = (pattern.block[side], pattern.memory[side]);
                let start = i / size * size;
                j + memory >= start && j < start + size + memory
            };
            let seen = near(i / width, j / width, 0) && near(i % width, j % width, 1);
            assert!(!all || seen);
            seen
        };
        let block_masks = pattern.block_masks(length);
        plans_meet_dense("image", length, 2, &block_masks, sees);
    }

    #[test]
    fn equals_dense_attention_under_the_mask_of_its_definition() {
        for first in [0, 1] {
            for length in [1, 2, 3, 5, 8, 13, 20] {
                for (block, memory) in [(4, 0), (4, 2), (3, 4), (1, 1), (30, 5)] {
                    let line = Pattern {
                        first,
                        block: [1, block],
                        memory: [0, memory],
                        width: None,
                    };
                    check(line, length, false);
                }
                for (block, memory) in [([2, 2], [1, 1]), ([2, 3], [0, 1]), ([1, 2], [2, 0])] {
                    let plane = Pattern {
                        first,
                        block,
                        memory,
                        width: Some(5),
                    };
                    check(plane, length, false);
                }
            }
        }
    }

    #[test]
    fn memories_as_large_as_the_image_give_softmax_attention() {
        for (block, memory, width) in [
            ([1, 4], [0, 20], None),
            ([2, 3], [4, 5], Some(5)),
            ([9, 9], [0, 0], Some(5)),
        ] {
            for first in [0, 1] {
                let pattern = Pattern {
                    first,
                    block,
                    memory,
                    width,
                };
                check(pattern, 20, width.is_some() || first == 0);
            }
        }
    }

    #[test]
    fn blocks_of_more_queries_than_a_tile_are_cut() {
        let pattern = Pattern {
            first: 1,
            block: [9, 10],
            memory: [1, 2],
            width: Some(12),
        };
        check(pattern, 140, false);
    }
}
