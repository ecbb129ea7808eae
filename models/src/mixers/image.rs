//! Image Transformer. Parmar et al., 2018, "Image Transformer", arXiv:1802.05751.
//!     y_i = Σ_j a_ij v_j over the keys j of the memory of i's block, a_i = softmax(q_i·k_j / √E)
//! Queries are split into blocks, and each block sees its memory: the block itself and its
//! neighbourhood. B batch, H heads, L length, E width of a head, K keys of a memory; q, k, v (B, H,
//! L, E). Time O(L·K·E) per head, memory O(L·K). Dropout on the weights. `width` is its width (0:
//! the task's); texts have none. The benchmark's rules forbid this shape, since it gives the model
//! the two-dimensional layout. Records say so. The CLS token, if there is one, is in no block: it
//! sees every position and every position sees it. `local` with neighbours and `exact = false` is
//! the 1d form with whole blocks as memory.
//!
//! # Options
//!
//! `shape = 1d`: blocks of `block` positions, with `memory` more on either side (K = 128 + 2·64).
//! `shape = 2d`: blocks of `block_height` x `block_width` pixels, with `memory_height` more rows
//! and `memory_width` more columns on either side, cut off at the edges of the image (K = 16·16).
//! The sequence is an image in row-major order. `width` is that of the image (0: as the task says).
//!
//! # Padding
//!
//! Padded keys get weight zero.
//!
//! # Departures
//!
//! The paper generates images pixel by pixel, so its memories only reach back; memories on both
//! sides are those of tensor2tensor's encoders. Weights begin Xavier-uniform (±0.217 at D = 64),
//! those of tensor2tensor's imagetransformer times √0.2 (±0.097: tensorflow/tensor2tensor@bafdc1b
//! tensor2tensor/models/image_transformer.py:185-187); biases of the feed-forward network begin
//! N(0, 1e-6²), there as 0. Blocks are pre-norm with gelu, there post-norm with relu (lines 202,
//! 267-268).

use std::ops::Range;

use crate::{ops::attention::BlockMask, prelude::*};

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
    family: Family::Xformer,
    variants: &[Variant::paper(build, include_str!("image.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Shape {
    #[serde(rename = "1d")]
    Line,
    #[serde(rename = "2d")]
    Plane,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Shape::Line)]
    shape: Shape,
    #[option(default = 128, range = int(1, LONGEST))]
    block: usize,
    #[option(default = 64, range = int(0, LONGEST))]
    memory: usize,
    #[option(default = 8, range = int(1, LONGEST))]
    block_height: usize,
    #[option(default = 8, range = int(1, LONGEST))]
    block_width: usize,
    #[option(default = 4, range = int(0, LONGEST))]
    memory_height: usize,
    #[option(default = 4, range = int(0, LONGEST))]
    memory_width: usize,
    #[option(range = int(0, LONGEST))]
    width: usize,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    let pattern = options.pattern(context)?;
    encoder::blocks(context, |layer| Ok(Box::new(Image::new(layer, pattern)?)))
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
            return Err(Error::Option {
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
    /// Position of the first pixel: 1 if it follows a CLS token.
    first: usize,
    /// Rows and columns of a block.
    block: [usize; 2],
    /// Number of rows and columns on either side of the block.
    memory: [usize; 2],
    /// Pixels of a row; none if all of them are one row.
    width: Option<usize>,
}

impl Image {
    fn new(layer: &LayerContext, pattern: Pattern) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            pattern,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
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

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn rule_violation(&self) -> Option<&'static str> {
        let tells = "attention knows rows and columns of the image, which the benchmark's rules forbid: comparable with no other score";
        self.pattern.width.map(|_| tells)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self.pattern.block_masks(length).pairs(self.heads);
        self.projections.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + self.projections.score_mods().flops(length, pairs)
    }
}

impl Pattern {
    /// Returns one block mask, which all heads share.
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
mod tests;
