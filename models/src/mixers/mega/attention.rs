//! Attention of one head whose queries and keys are one vector with separate scales and offsets,
//! for Mega and gated attention units.

use crate::{
    ops::{
        activation::relu,
        attention::{AttentionDropout, BlockLists, RelativeScores},
    },
    prelude::*,
};

/// Map from scores z to weights.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::mixers) enum Weighing {
    /// softmax(z), z = q·k / √s + w.
    Softmax,
    /// ½ (1 + erf((z - √½) / √(1 / 2π))), z = q·k / n + w.
    Laplace,
    /// max(z, 0)², z = q·k / n + w.
    Relu2,
}

/// q = g₀ ⊙ z + b₀, k = g₁ ⊙ z + b₁ for z (B, L, s), and a learned number for each distance.
pub(in crate::mixers) struct SharedAttention {
    /// g (2, s).
    scale: Tensor,
    /// b (2, s).
    shift: Tensor,
    /// w (2 M - 1), that of distance 0 in the middle.
    distance: Tensor,
    /// Number of positions that see each other; M if all do.
    chunk: usize,
    weighing: Weighing,
    dropout: Dropout,
}

impl SharedAttention {
    /// Creates parameters `scale`, `distance`, both N(0, 0.02²), and `shift`, zeros. `chunk` is the
    /// longest length where all positions see each other.
    pub(in crate::mixers) fn new(
        vb: &VarBuilder,
        width: usize,
        chunk: usize,
        weighing: Weighing,
        dropout: f64,
    ) -> Result<Self> {
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 0.02,
        };
        let pair =
            |name, init| vb.get_with_attributes((2, width), name, init, Attributes::NO_DECAY);
        Ok(Self {
            scale: pair("scale", normal)?,
            shift: pair("shift", Init::Const(0.0))?,
            distance: vb.get_with_hints(2 * chunk - 1, "distance", normal)?,
            chunk,
            weighing,
            dropout: Dropout::new(&vb.pp("drop"), dropout),
        })
    }

    /// Returns the weighted sums of v (B, L, W) at each position of z (B, L, s).
    pub(in crate::mixers) fn forward(&self, z: &Tensor, v: &Tensor, pass: &Pass) -> Result<Tensor> {
        let vector = |index| -> Result<Tensor> {
            let z = z.broadcast_mul(&self.scale.get(index)?)?;
            Ok(z.broadcast_add(&self.shift.get(index)?)?)
        };
        let (q, k) = (vector(0)?, vector(1)?);
        match self.weighing {
            Weighing::Softmax => self.softmax([&q, &k, v], pass),
            Weighing::Laplace => self.elementwise([&q, &k, v], pass, laplace),
            Weighing::Relu2 => self.elementwise([&q, &k, v], pass, |x| Ok(relu(x, 0.0)?.sqr()?)),
        }
    }

    /// Returns w for distances below `size`, (2 size - 1).
    fn distances(&self, size: usize) -> Result<Tensor> {
        Ok(self.distance.narrow(0, self.chunk - size, 2 * size - 1)?)
    }

    /// Computes one head, without the weights in memory.
    fn softmax(&self, [q, k, v]: [&Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let (batch, length, _) = q.dims3()?;
        let size = self.chunk.min(length);
        let chunks = || BlockLists::around(length, size, (0, 0), |_, _| true).block_masks(length);
        let options = AttentionOptions {
            heads: 1,
            mask: match pass.mask() {
                Some(mask) if size < length => Some(with_empty_chunks(mask.valid(), size)?),
                mask => mask.map(Mask::valid).cloned(),
            },
            dropout: self.dropout.of_attention(batch, pass),
            block_masks: (size < length).then(chunks),
            relative: Some(RelativeScores {
                reach: size - 1,
                keys: 0..length,
                of_heads: Some(self.distances(size)?.unsqueeze(0)?),
                of_queries: None,
                of_keys: None,
            }),
            ..AttentionOptions::default()
        };
        attention::attend(q, k, v, &options)
    }

    /// Attends with weights `weigh` of the scores; n is the number of valid positions of a chunk.
    fn elementwise(
        &self,
        [q, k, v]: [&Tensor; 3],
        pass: &Pass,
        weigh: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let ((batch, length, _), values) = (q.dims3()?, v.dim(2)?);
        let size = self.chunk.min(length);
        let chunks = length.div_ceil(size);
        let fill = chunks * size - length;
        let split = |x: &Tensor| -> Result<Tensor> {
            let x = x.pad_with_zeros(1, 0, fill)?;
            Ok(x.reshape((batch, chunks, size, ()))?)
        };
        let (q, k, v) = (split(q)?, split(k)?, split(v)?);
        let valid = match pass.mask() {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), v.dtype(), v.device())?,
        };
        let valid = split(&valid.unsqueeze(2)?)?.squeeze(3)?.unsqueeze(2)?; // (B, chunks, 1, size)
        let count = valid.sum_keepdim(D::Minus1)?;
        let share = count.maximum(&count.ones_like()?)?.recip()?;
        let scores = matmul(&q.broadcast_mul(&share)?, &k.t()?)?;
        let scores = scores.broadcast_add(&self.pairs(size)?)?;
        let weights = weigh(&scores)?.broadcast_mul(&valid)?; // (B, chunks, size, size)
        let weights = match self.dropout.of_attention(batch, pass) {
            Some(dropout) => dropped(&weights, &dropout)?,
            None => weights,
        };
        let y = matmul(&weights, &v)?.reshape((batch, chunks * size, values))?;
        Ok(y.narrow(1, 0, length)?.contiguous()?)
    }

    /// Returns w_(j - i), (size, size).
    fn pairs(&self, size: usize) -> Result<Tensor> {
        let column = |i: usize, j: usize| (size - 1 + j - i) as u32;
        let columns = (0..size).flat_map(|i| (0..size).map(move |j| column(i, j)));
        let columns: Vec<u32> = columns.collect();
        let columns = Tensor::from_vec(columns, size * size, self.distance.device())?;
        let pairs = self
            .distances(size)?
            .contiguous()?
            .index_select(&columns, 0)?;
        Ok(pairs.reshape((size, size))?)
    }

    /// Counts the operations for one sequence with values of `width`.
    pub(in crate::mixers) fn flops(&self, length: usize, width: usize) -> u64 {
        let (shared, size) = (self.scale.dims()[1], self.chunk.min(length));
        let pairs = length / size * size * size + (length % size) * (length % size);
        2 * pairs as u64 * (shared + width) as u64
    }
}

/// Returns `valid` (B, L) with ones in chunks of `size` positions that have none: a query in such a
/// chunk attends to all of it, as published.
fn with_empty_chunks(valid: &Tensor, size: usize) -> Result<Tensor> {
    let (batch, length) = valid.dims2()?;
    let chunks = length.div_ceil(size);
    let padded = valid.pad_with_zeros(1, 0, chunks * size - length)?;
    let chunks = padded.reshape((batch, chunks, size))?;
    let empty = chunks.max_keepdim(2)?.affine(-1.0, 1.0)?;
    let all = chunks.broadcast_add(&empty)?.reshape((batch, ()))?;
    Ok(all.narrow(1, 0, length)?.contiguous()?)
}

fn dropped(weights: &Tensor, dropout: &AttentionDropout) -> Result<Tensor> {
    let (_, chunks, queries, keys) = weights.dims4()?;
    let factors = dropout.factors(chunks, queries, keys, weights.device())?;
    Ok((weights * factors.to_dtype(weights.dtype())?)?)
}

/// Returns ½ (1 + erf((x - μ) / (σ √2))), μ = √½, σ = √(1 / 4π).
fn laplace(x: &Tensor) -> Result<Tensor> {
    use std::f64::consts::{FRAC_1_SQRT_2, TAU};
    let scale = TAU.sqrt();
    let erf = x.affine(scale, -FRAC_1_SQRT_2 * scale)?.erf()?;
    Ok(erf.affine(0.5, 0.5)?)
}
