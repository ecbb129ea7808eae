//! Attention dropout, drawn again wherever it is needed instead of being stored.

use candle_core::{Device, Result, Tensor};
use lra_cpu::philox;
use lra_cpu::simd::Lanes;
use lra_cpu::tile::{PAD, SIDE};
use rayon::prelude::*;

use crate::cuda::{Gpu, MOST_BLOCKS};
use crate::ops::dropout;
use crate::rng::{Stream, mask_constants};

/// Words that sixteen Philox blocks hold; a row of weights starts at a multiple of it.
const GROUP: usize = 64;
/// Blocks side by side in the layout of a row.
const BLOCKS: usize = 16;
const MULTIPLIER: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Dropout of attention weights. A weight is dropped or kept as a function of (stream, example,
/// head, query, key).
///
/// Within an example, the weight of (head, query, key) has the number
/// `(head * queries + query) * padded keys + key`. Padded keys are the number of keys, rounded up
/// to a multiple of 64.
#[derive(Clone, Debug)]
pub struct AttentionDropout {
    /// The Philox key of the stream.
    key: [u32; 2],
    /// The last three words of the counter, for each example.
    counters: Vec<[u32; 3]>,
    /// Words below this are dropped.
    threshold: u32,
    /// Factor on the weights that are kept: 1 / (1 - rate).
    keep: f32,
}

impl AttentionDropout {
    /// Returns the dropout of the weights of `batch` examples. Each weight is dropped with
    /// probability `rate`, in [0, 1), by random numbers from `stream`.
    #[must_use]
    pub fn new(stream: &Stream, batch: usize, rate: f64) -> Self {
        let (threshold, keep) = mask_constants(rate);
        let counters = (0..batch).map(|example| stream.counter(example)).collect();
        AttentionDropout {
            key: stream.key(),
            counters,
            threshold,
            keep,
        }
    }

    /// Returns the factors on attention weights, (B, H, Lq, Lk) for `heads` H, `queries` Lq and
    /// `keys` Lk. They are 0 for a dropped weight, and 1 / (1 - rate) for any other. They are for
    /// attention that keeps its weights in memory.
    ///
    /// # Errors
    /// If the device refuses the tensor.
    pub(crate) fn factors(
        &self,
        heads: usize,
        queries: usize,
        keys: usize,
        device: &Device,
    ) -> Result<Tensor> {
        let rows = self.counters.len();
        let fits = rows * heads * queries * keys > 0 && rows <= MOST_BLOCKS;
        if let Some(gpu) = Gpu::on(device).filter(|_| fits) {
            let row = row_length(keys);
            let size = (rows, heads * queries * row);
            let all = dropout::cuda::factors(&gpu, self.philox_words(), size, device)?;
            return all.reshape((rows, heads, queries, row))?.narrow(3, 0, keys);
        }
        let mut factors = vec![0.0; self.counters.len() * heads * queries * keys];
        if keys > 0 {
            factors
                .par_chunks_mut(keys)
                .enumerate()
                .for_each(|(row, factors)| {
                    let (example, row) = (row / (heads * queries), row % (heads * queries));
                    self.fill(example, row * row_length(keys), factors);
                });
        }
        Tensor::from_vec(factors, (self.counters.len(), heads, queries, keys), device)
    }

    /// Returns the structure `Philox` of `cuda/philox.cuh` as bits.
    pub(in crate::ops) fn philox_words(&self) -> [u32; 7] {
        let [row, tail0, tail1] = self.counters.first().copied().unwrap_or_default();
        let [key0, key1] = self.key;
        let keep = self.keep.to_bits();
        [key0, key1, row, tail0, tail1, self.threshold, keep]
    }

    /// Writes the factors of an example's weights from number `first` on, a multiple of 64.
    pub(crate) fn fill(&self, example: usize, first: usize, factors: &mut [f32]) {
        let mut words = [0; 4 * GROUP];
        for (index, factors) in factors.chunks_mut(words.len()).enumerate() {
            let words = &mut words[..factors.len()];
            let first = first + index * 4 * GROUP;
            philox::fill(self.key, self.counters[example], first, words);
            for (factor, word) in factors.iter_mut().zip(words) {
                *factor = if *word < self.threshold {
                    0.0
                } else {
                    self.keep
                };
            }
        }
    }

    /// Examples that it can draw for.
    pub(super) fn batch(&self) -> usize {
        self.counters.len()
    }
}

/// A tile's place in the stream.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    pub(super) dropout: &'a AttentionDropout,
    pub(super) example: usize,
    /// Number of the weight of the tile's first query and key.
    pub(super) first: usize,
    /// Distance between the weights of neighbouring queries.
    pub(super) row: usize,
}

/// Returns the distance between the weights of neighbouring queries.
pub(super) fn row_length(keys: usize) -> usize {
    keys.next_multiple_of(GROUP)
}

/// Writes the factors of a tile (keys, queries): zero or `keep`.
///
/// One register holds the same key of as many queries, so each computes the blocks of its own row
/// of weights; the four words of a block belong to four keys, sixteen apart.
#[inline(always)]
pub(super) fn kept_factors<S: Lanes>(s: S, tile: Tile, out: &mut [f32; SIDE * SIDE]) {
    let Tile {
        dropout,
        example,
        first,
        row,
    } = tile;
    let rest = dropout.counters[example];
    let threshold = s.splat_u32s(dropout.threshold);
    let (zero, keep) = (s.splat_f32s(0.0), s.splat_f32s(dropout.keep));
    let mut offsets = [0u32; PAD];
    for queries in (0..SIDE).step_by(S::F32_LANES) {
        for (lane, offset) in offsets[..S::F32_LANES].iter_mut().enumerate() {
            let number = first + (queries + lane) * row;
            *offset = (number / GROUP * BLOCKS) as u32;
        }
        let start = s.partial_load_u32s(&offsets[..S::F32_LANES]);
        for block in 0..BLOCKS {
            let counter = s.add_u32s(start, s.splat_u32s(block as u32));
            for (word, bits) in philox(s, dropout.key, rest, counter)
                .into_iter()
                .enumerate()
            {
                let dropped = s.less_than_u32s(bits, threshold);
                let out = &mut out[(word * BLOCKS + block) * SIDE + queries..][..S::F32_LANES];
                let (out, _) = S::as_mut_simd_f32s(out);
                out[0] = s.select_f32s(dropped, zero, keep);
            }
        }
    }
}

/// Computes Philox4x32-10 of as many counters as there are lanes (Salmon et al., 2011).
#[inline(always)]
fn philox<S: Lanes>(s: S, mut key: [u32; 2], rest: [u32; 3], first: S::u32s) -> [S::u32s; 4] {
    let multiplier = [s.splat_u32s(MULTIPLIER[0]), s.splat_u32s(MULTIPLIER[1])];
    let [mut a, mut b, mut c, mut d] = [
        first,
        s.splat_u32s(rest[0]),
        s.splat_u32s(rest[1]),
        s.splat_u32s(rest[2]),
    ];
    for _ in 0..10 {
        let (left_low, left_high) = s.widening_mul_u32s(multiplier[0], a);
        let (right_low, right_high) = s.widening_mul_u32s(multiplier[1], c);
        a = s.xor_u32s(s.xor_u32s(right_high, b), s.splat_u32s(key[0]));
        b = right_low;
        c = s.xor_u32s(s.xor_u32s(left_high, d), s.splat_u32s(key[1]));
        d = left_low;
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    [a, b, c, d]
}
