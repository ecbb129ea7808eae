//! The 2021 code's Reformer. Its options are those of the paper's form, and have no effect.
//! - `qkv_dim` is ignored: D is used. Queries are the keys; there is no output projection.
//! - The sequence is padded with zeros on the right to the next multiple of ten, by ten if it is
//!   one already.
//! - One round, ten buckets; the random key is a constant, so one rotation serves every head,
//!   layer, batch and step.
//! - The sorted sequence is split into ten chunks, because the number of buckets is used as the
//!   number of chunks: time is O(L²/5).
//! - Scores are multiplied by √E where the paper divides, keys are not scaled to length one, and
//!   nothing excludes the position itself. There is no mask of padding or of other buckets, and no
//!   dropout. Chunk 0 looks back to chunk 9.
//! - Outputs (H, L', E) are reshaped to (L', H E) without a transpose, and then cut to L rows: row
//!   p holds H neighbouring positions of head ⌊p H / L'⌋, and the cut removes the last positions of
//!   the last head instead of the padding.
//!
//! In that code sequences always had the task's full length. Here a batch may be shorter, and then
//! chunks are too.

use crate::{
    RngKey,
    mixers::reformer::{Hash, Options, inward},
    ops::attention::partial_softmax::by_head,
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("reformer.rs"))
};

const CHUNKS: usize = 10;

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    options.check()?;
    encoder::blocks(context, |layer| Ok(Box::new(Chunks::new(layer)?)))
}

struct Chunks {
    query: Linear,
    value: Linear,
    hash: Hash,
    no_dropout: Dropout,
    heads: usize,
    width: usize,
}

impl Chunks {
    fn new(layer: &LayerContext) -> Result<Self> {
        let block = layer.block;
        require(
            block.dim.is_multiple_of(block.heads),
            "block.dim",
            block.dim,
            format!(
                "a multiple of block.heads = {} with model.variant = tay2021, which ignores block.qkv_dim",
                block.heads
            ),
        )?;
        let [query, value] = inward(&layer.vb, block, block.dim)?;
        let width = block.dim / block.heads;
        Ok(Self {
            query,
            value,
            hash: Hash {
                rounds: 1,
                buckets: CHUNKS,
                width,
                key: StreamKey::new("reformer.tay2021"),
                drawn: std::sync::Mutex::default(),
            },
            no_dropout: Dropout::new(&layer.vb.pp("drop"), 0.0),
            heads: block.heads,
            width,
        })
    }

    /// Returns rows of (B H L) sorted by bucket, and where each position went.
    fn sorted(buckets: &[u32], length: usize) -> (Vec<u32>, Vec<u32>) {
        let (mut order, mut back) = (Vec::new(), vec![0; buckets.len()]);
        for (head, buckets) in buckets.chunks(length).enumerate() {
            let first = (head * length) as u32;
            let mut rows: Vec<u32> = (0..length as u32).collect();
            rows.sort_by_key(|&row| buckets[row as usize]);
            for (position, row) in rows.into_iter().enumerate() {
                back[(first + row) as usize] = first + position as u32;
                order.push(first + row);
            }
        }
        (order, back)
    }
}

impl Mixer for Chunks {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, dim) = x.dims3()?;
        let (heads, width) = (self.heads, self.width);
        let filled = CHUNKS - length % CHUNKS;
        let padded = length + filled;
        let split = |x: &Tensor| -> Result<Tensor> {
            let x = by_head(&x.reshape((batch, length, heads, width))?)?;
            Ok(x.pad_with_zeros(2, 0, filled)?)
        };
        let (q, v) = (self.query.forward(x)?, self.value.forward(x)?);
        let rotations = match pass.fixed("rotations") {
            Some(rotations) => rotations.clone(),
            None => self.hash.rotations(&RngKey::new(0, 0, 0), &q)?,
        };
        let buckets = self
            .hash
            .buckets(&q.pad_with_zeros(1, 0, filled)?, &rotations)?;
        let (q, v) = (split(&q)?, split(&v)?); // (B, H, L', E)
        let (order, back) = Self::sorted(&buckets, padded);
        let order = Tensor::new(order, x.device())?;
        let rows = |x: &Tensor| x.reshape((batch * heads * padded, width));
        let chunked = |x: &Tensor| -> Result<Tensor> {
            let sorted = rows(x)?.index_select(&order, 0)?;
            Ok(sorted.reshape((batch, heads, CHUNKS, padded / CHUNKS, width))?)
        };
        let (q, v) = (chunked(&q)?, chunked(&v)?);
        let look_back = |x: &Tensor| -> Result<Tensor> {
            let last = x.narrow(2, CHUNKS - 1, 1)?;
            let others = x.narrow(2, 0, CHUNKS - 1)?;
            let before = Tensor::cat(&[&last, &others], 2)?;
            Ok(Tensor::cat(&[x, &before], 3)?)
        };
        // `attend` divides by √E: times E gives the multiplication by √E of the published code.
        let scaled = q.affine(width as f64, 0.0)?;
        let dropout = self.no_dropout.of_weights(batch, pass);
        let part =
            partial_softmax::attend(&scaled, &look_back(&q)?, &look_back(&v)?, None, dropout)?;
        let y = rows(&partial_softmax::merge(&[part])?)?;
        let y = y.index_select(&Tensor::new(back, x.device())?, 0)?;
        let y = y.reshape((batch, padded, dim))?; // of (B, H, L', E)
        Ok(y.narrow(1, 0, length)?.contiguous()?)
    }

    fn flops(&self, length: usize) -> u64 {
        let padded = length + CHUNKS - length % CHUNKS;
        let pairs = padded * 2 * (padded / CHUNKS) * self.heads;
        let hashing = 2 * padded * self.heads * self.width * CHUNKS / 2;
        self.query.flops(length)
            + self.value.flops(length)
            + partial_softmax::flops(pairs, self.width)
            + hashing as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        options::BlockOptions,
        reference,
        testing::{normal, parameters},
    };

    #[test]
    fn with_few_tokens_every_chunk_is_one_and_rows_hold_neighbours() {
        let block = BlockOptions {
            dim: 4,
            qkv_dim: 2,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters().builder(), &block, 9);
        let mixer = Chunks::new(&layer).unwrap();
        let x = normal("x", &[1, 9, 4]);
        let pass = Pass::new(false, RngKey::new(5, 6, 7));
        let actual = mixer.forward(&x, &pass).unwrap();
        let actual: Vec<f64> = actual.flatten_all().unwrap().to_vec1().unwrap();
        let split = |linear: &Linear| -> Vec<Vec<Vec<f64>>> {
            let y = linear.forward(&x).unwrap().reshape((9, 2, 2)).unwrap();
            let y = y.transpose(0, 1).unwrap().pad_with_zeros(1, 0, 1).unwrap();
            y.to_vec3().unwrap()
        };
        let (q, v) = (split(&mixer.query), split(&mixer.value));
        let rotations = mixer
            .hash
            .rotations(&RngKey::new(0, 0, 0), &x)
            .unwrap()
            .to_dtype(DType::F64)
            .unwrap();
        let q_all = Tensor::new(q.clone(), &Device::Cpu).unwrap();
        let q_all = by_head(&q_all.unsqueeze(0).unwrap()).unwrap(); // (1, 10, 2, 2)
        let buckets = mixer
            .hash
            .buckets(&q_all.flatten_from(2).unwrap(), &rotations);
        let buckets = buckets.unwrap();
        let mut expected = Vec::new();
        for head in 0..2 {
            let mut order: Vec<usize> = (0..10).collect();
            order.sort_by_key(|&i| buckets[head * 10 + i]);
            for i in 0..10 {
                let position = order.iter().position(|&j| j == i).unwrap();
                let seen = [order[position], order[(position + 9) % 10]];
                // √E·q·k is softmax's q·k/√E with q times E.
                let query: Vec<f64> = q[head][i].iter().map(|x| x * 2.0).collect();
                let weights = seen.map(|j| reference::softmax(&query, &q[head][j]));
                let weighted = |channel: usize| -> f64 {
                    (0..2).map(|s| weights[s] * v[head][seen[s]][channel]).sum()
                };
                let total = weights[0] + weights[1];
                expected.extend([weighted(0) / total, weighted(1) / total]);
            }
        }
        for (actual, expected) in actual.iter().zip(&expected) {
            assert!((actual - expected).abs() < 1e-12, "{actual} {expected}");
        }
    }
}
