//! Nyströmformer. Xiong et al., 2021, "Nyströmformer: A Nyström-Based Algorithm for Approximating
//! Self-Attention", arXiv:2102.03902.
//!     Y = F Z (G V) + conv(V),  F = softmax(Q K̃ᵀ / √E),  G = softmax(Q̃ Kᵀ / √E),  A = softmax(Q̃ K̃ᵀ / √E),  Z ≈ A⁺
//!     Z ← ¼ Z (13 I - A Z (15 I - A Z (7 I - A Z))), from Z = Aᵀ / (largest column sum of A), `iterations` times
//! The landmarks q̃_s, k̃_s are the means of queries and keys over M segments of the sequence. conv
//! runs along the length, with one kernel of w taps per head. B batch, H heads, L length, E width
//! of a head; Q, K, V, Y (B, H, L, E), Q̃, K̃ (B, H, M, E), F (B, H, L, M), G (B, H, M, L), A, Z
//! (B, H, M, M). Time O(L·M·E + M³·iterations) per head, memory O(L·M + M²). No dropout on the
//! weights. Z is computed in 64-bit arithmetic. Projections have no biases.
//!
//! # Options
//!
//! `landmarks` M, `iterations` (6 do not converge; 25 do), `conv` w (odd; 0: none).
//!
//! # Padding
//!
//! The valid tokens of each sequence are split into segments of nearly equal size. If there are
//! fewer tokens than landmarks, each token is a landmark, and the remaining rows and columns of A
//! are those of the identity. Padded keys and values have no effect.
//!
//! # Departures
//!
//! The first Z is scaled separately for each sequence and head. The published code uses one number
//! for the whole batch, and states that separate scaling converges faster. Weights begin
//! Xavier-uniform, biases of the feed-forward network N(0, 1e-6²); in that code both uniform within
//! inputs^-½, and projections have biases, which begin likewise (mlpen/Nystromformer@5689313
//! LRA/code/attention.py:44-46, 68, LRA/code/model.py:55-61). Kernels of conv begin uniform within
//! w^-½ there and here. The norms' ε is `block.norm_epsilon` = 1e-6, in that code
//! (torch.nn.LayerNorm) 1e-5. Where the length is no multiple of M, lucidrains/nystrom-attention
//! puts zeros before the sequence, which count in the first means and, without a mask, as keys;
//! with a mask, its segments are of positions, padding included. mlpen/Nystromformer has one padded
//! length for all.

use crate::{
    ops::{IGNORE_INDEX, Padding, exact_matmul, merge_heads, pseudo_inverse, split_heads},
    prelude::*,
};

mod xiong2021;

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "nystromformer",
    title: "Nyströmformer",
    paper: "Nyströmformer: A Nyström-Based Algorithm for Approximating Self-Attention",
    year: 2021,
    arxiv: "2102.03902",
    time: Cost::Linear("O(L·M·E + M³)"),
    memory: Cost::Linear("O(L·M + M²)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::paper(build, include_str!("nystromformer.rs")),
        xiong2021::VARIANT,
    ],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 64, range = int(1, LONGEST))]
    landmarks: usize,
    #[option(default = 6, range = int(0, 100))]
    iterations: usize,
    #[option(default = 35, range = int(0, LONGEST))]
    conv: usize,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    build_with(context, |_| Segments::OfValid)
}

/// Returns the encoder whose sequences, of at most N tokens, are cut as `segments(N)` says.
fn build_with(
    context: &ModelContext,
    segments: impl Fn(usize) -> Segments,
) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        options.conv == 0 || options.conv % 2 == 1,
        "model.conv",
        options.conv,
        "0 or an odd number",
    )?;
    encoder::blocks(context, |layer| {
        let segments = segments(layer.max_length);
        Ok(Box::new(Nystromformer::new(layer, &options, segments)?))
    })
}

/// Positions that are divided into segments.
#[derive(Clone, Copy)]
enum Segments {
    /// The valid tokens of each sequence.
    OfValid,
    /// This many positions, valid or not.
    OfPositions(usize),
}

struct Nystromformer {
    projections: Projections,
    /// (H, w).
    conv: Option<Tensor>,
    segments: Segments,
    landmarks: usize,
    iterations: usize,
    heads: usize,
    dim: usize,
}

impl Nystromformer {
    fn new(layer: &LayerContext, options: &Options, segments: Segments) -> Result<Self> {
        let heads = layer.block.heads;
        // PyTorch's bound for a kernel that reads w numbers.
        let bound = (options.conv as f64).powf(-0.5);
        let init = Init::Uniform {
            lo: -bound,
            up: bound,
        };
        let weight = || {
            let shape = (heads, options.conv);
            layer.vb.pp("conv").get_with_hints(shape, "weight", init)
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            conv: (options.conv > 0).then(weight).transpose()?,
            segments,
            landmarks: options.landmarks,
            iterations: options.iterations,
            heads,
            dim: layer.block.qkv_dim,
        })
    }

    /// Returns whether every position is to be a landmark of its own, in which case the published
    /// code computes softmax attention.
    fn is_softmax_attention(&self) -> bool {
        matches!(self.segments, Segments::OfPositions(positions) if positions <= self.landmarks)
    }

    /// Returns F Z G V of queries, keys and values (B, L, H E).
    fn attend(
        &self,
        (q, k, v): (&Tensor, &Tensor, &Tensor),
        mask: Option<&Mask>,
    ) -> Result<Tensor> {
        let options = |mask| AttentionOptions {
            heads: self.heads,
            mask,
            ..AttentionOptions::default()
        };
        if self.is_softmax_attention() {
            return attention::attend(q, k, v, &options(mask.map(|mask| mask.valid().clone())));
        }
        let landmarks = self.segments.landmarks((q, k), mask, self.landmarks)?;
        let valid = options(mask.map(|mask| mask.valid().clone()));
        let seen = attention::attend(&landmarks.queries, k, v, &valid)?; // G V (B, M, H E)
        let seen = split_heads(&seen, self.heads)?;
        let values = exact_matmul(&self.inverse(&landmarks)?, &seen.to_dtype(DType::F64)?)?;
        let values = merge_heads(&values.to_dtype(v.dtype())?)?; // Z G V
        let valid = landmarks.valid.map(|valid| valid.to_dtype(v.dtype()));
        attention::attend(q, &landmarks.keys, &values, &options(valid.transpose()?))
    }

    /// Returns Z (B, H, M, M) of the landmarks, of type f64: A can be nearly singular, and its
    /// products are few.
    fn inverse(&self, landmarks: &Landmarks) -> Result<Tensor> {
        let heads = |x: &Tensor| -> Result<Tensor> {
            Ok(split_heads(x, self.heads)?.to_dtype(DType::F64)?)
        };
        let (q, k) = (heads(&landmarks.queries)?, heads(&landmarks.keys)?); // (B, H, M, E)
        let scale = (q.dim(3)? as f64).powf(-0.5);
        let scores = exact_matmul(&q.affine(scale, 0.0)?, &k.t()?)?; // (B, H, M, M)
        let Some(valid) = &landmarks.valid else {
            return pseudo_inverse(&softmax::masked(&scores, None)?, self.iterations);
        };
        let mask = Mask::new(valid)?;
        let valid = valid.unsqueeze(1)?.unsqueeze(3)?; // (B, 1, M, 1)
        let identity = Tensor::eye(scores.dim(3)?, DType::F64, scores.device())?;
        let beyond = identity.broadcast_mul(&valid.affine(-1.0, 1.0)?)?; // (B, 1, M, M)
        let a = softmax::masked(&scores, Some(&mask))?;
        let a = a.broadcast_mul(&valid)?.broadcast_add(&beyond)?;
        pseudo_inverse(&a, self.iterations)
    }
}

impl Mixer for Nystromformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.qkv(x)?; // (B, L, H E)
        let mask = pass.mask();
        let mut y = self.attend((&q, &k, &v), mask)?;
        if let Some(conv) = &self.conv {
            y = (y + convolve(&v, conv, mask)?)?;
        }
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("its queries and keys meet through landmarks, which are means")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let slots = self.segments.slots(self.landmarks, length);
        let taps = self.conv.as_ref().map_or(0, |conv| conv.dims()[1]);
        let steps = 4 * self.iterations * self.heads * slots.pow(3);
        let products = match self.is_softmax_attention() {
            true => 2 * length * length * self.dim,
            false => (4 * length + 2 * slots) * slots * self.dim + steps,
        };
        self.projections.flops(length) + 2 * (products + length * taps * self.dim) as u64
    }
}

/// Means of queries and of keys, each (B, M, H E).
struct Landmarks {
    queries: Tensor,
    keys: Tensor,
    /// (B, M), f64: 1 for landmarks that are means of positions, 0 for empty ones; none where all
    /// are means.
    valid: Option<Tensor>,
}

impl Segments {
    /// Returns M for sequences of `length`.
    fn slots(self, landmarks: usize, length: usize) -> usize {
        match self {
            Self::OfValid => landmarks.min(length),
            Self::OfPositions(positions) => landmarks.min(positions),
        }
    }

    /// Returns the landmarks of queries and keys (B, L, H E).
    fn landmarks(
        self,
        (q, k): (&Tensor, &Tensor),
        mask: Option<&Mask>,
        landmarks: usize,
    ) -> Result<Landmarks> {
        let (batch, length, _) = q.dims3()?;
        let slots = self.slots(landmarks, length);
        let mut segments = Vec::with_capacity(batch * length);
        // Number of segments that have positions, row by row.
        let mut counts = vec![slots; batch];
        let mut sizes = vec![1.0; slots];
        match (self, mask) {
            (Self::OfPositions(positions), _) => {
                let segment = |position: usize| position * slots / positions;
                sizes.fill(0.0);
                (0..positions).for_each(|position| sizes[segment(position)] += 1.0);
                let row = (0..length).map(|position| segment(position) as u32);
                (0..batch).for_each(|_| segments.extend(row.clone()));
            }
            (Self::OfValid, None) => {
                let row = (0..length).map(|position| (position * slots / length) as u32);
                (0..batch).for_each(|_| segments.extend(row.clone()));
            }
            (Self::OfValid, Some(mask)) => {
                let valid = mask.valid().to_dtype(DType::F32)?;
                for (row, count) in valid.to_vec2::<f32>()?.iter().zip(&mut counts) {
                    let tokens = row.iter().filter(|valid| **valid > 0.0).count();
                    *count = slots.min(tokens);
                    let mut before = 0;
                    segments.extend(row.iter().map(|valid| match *valid > 0.0 {
                        true => {
                            before += 1;
                            ((before - 1) * *count / tokens) as u32
                        }
                        false => IGNORE_INDEX,
                    }));
                }
            }
        }
        let segments = Tensor::from_vec(segments, (batch, length), q.device())?;
        let mean = |x: &Tensor| match self {
            Self::OfValid => ops::segment_mean(x, &segments, slots),
            Self::OfPositions(_) => {
                let sizes = Tensor::new(sizes.as_slice(), x.device())?.to_dtype(x.dtype())?;
                let sums = ops::segment_sum(&zero_padding(x, mask)?, &segments, slots)?;
                Ok(sums.broadcast_div(&sizes.unsqueeze(1)?)?)
            }
        };
        let valid = counts.iter().any(|count| *count < slots).then(|| {
            let row = |count: usize| (0..slots).map(move |slot| f64::from(u8::from(slot < count)));
            let valid: Vec<f64> = counts.iter().copied().flat_map(row).collect();
            Tensor::from_vec(valid, (batch, slots), q.device())
        });
        Ok(Landmarks {
            queries: mean(q)?,
            keys: mean(k)?,
            valid: valid.transpose()?,
        })
    }
}

/// Convolves values (B, L, H E) along the length by `weight` (H, w), the same for all channels of a
/// head.
fn convolve(v: &Tensor, weight: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let (heads, taps) = weight.dims2()?;
    let row = v.dim(2)?;
    let weight = weight
        .unsqueeze(1)?
        .broadcast_as((heads, row / heads, taps))?
        .reshape((row, taps))?;
    ops::depthwise_conv1d(&zero_padding(v, mask)?, &weight, None, Padding::Same, 1)
}

#[cfg(test)]
mod tests;
