//! PoNet. Tan, Chen, Wang, Zhang, Zheng, Ling, 2022, "PoNet: Pooling Network for Efficient Token
//! Mixing in Long Sequences", arXiv:2110.02442.
//!     y_t = (g + s_t) ⊙ o_t + l_t,  g = Σ_j α_j k_j,  α = softmax_j(q̄·k_j / √E),  q̄ = mean_j q_j
//!     s_t = max of u over the segment of t,  l_t = max(c_(t-1), c_t, c_(t+1)),  out = W y + b
//! Three poolings: of all positions by attention of the mean query, of segments, of neighbours. q,
//! k, o, u, c are linear maps of x with biases; maxima are of each channel. B batch, H heads, L
//! length, N longest length, E width of a head; q, k, o, u, c, y (B, L, H E), g (B, H E), n
//! segments of ⌊N/n⌋ + 1 positions. Time and memory O(L·H·E). Weights and biases begin uniform
//! within D^-½, as in PyTorch. Read in lxchtan/PoNet@cc9a29a examples/LRA/code/attention_ponet.py,
//! attention.py, run_tasks.py and lra_config.py, which has n = 64 on ListOps and Retrieval, 32 on
//! Image, 1 on Pathfinder, and 4096 on Text; everything else as Nyströmformer on this benchmark
//! (recipe `nystromformer`).
//!
//! # Options
//!
//! `segments` n.
//!
//! # Padding
//!
//! Padded positions are in no mean, no softmax and no maximum.
//!
//! # Departures
//!
//! The published code pads every sequence to N, the next power of two: 2,048 on ListOps and 4,096
//! on Text and Retrieval, so that its segments have 33, 2 and 65 positions. With N = 2,000 and
//! 4,000 as here, n = 62, 2048 and 62 give segments of as many. A segment has the same positions in
//! every batch. The feed-forward network begins Xavier-uniform (±0.177 at D = 64 and a width of
//! 128) with biases N(0, 1e-6²); the published code has PyTorch's linear layers, all uniform within
//! inputs^-½ (±0.125 and ±0.088), biases too (lxchtan/PoNet@cc9a29a
//! examples/LRA/code/model.py:57-63). The norms' ε is `block.norm_epsilon` = 1e-6, in that code
//! 1e-5.

use crate::{
    ops::{pooling::weighted_sum, swap_axes::split_heads},
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "ponet",
    title: "PoNet",
    paper: "PoNet: Pooling Network for Efficient Token Mixing in Long Sequences",
    year: 2022,
    arxiv: "2110.02442",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Ponet>(include_str!("ponet.rs"))],
    ..Model::mixer::<Ponet>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// n.
    #[option(default = 64, range = int(1, LONGEST))]
    segments: usize,
}

struct Ponet {
    query: Linear,
    key: Linear,
    /// Makes o.
    gate: Linear,
    /// Makes u.
    segment: Linear,
    /// Makes c.
    local: Linear,
    output: Linear,
    /// Positions of a segment.
    stretch: usize,
    heads: usize,
    width: usize,
}

impl MixerModel for Ponet {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let linear = |name: &str, inputs, outputs| {
            let init = fan_in_uniform(inputs);
            Linear::new(&vb.pp(name), inputs, outputs, init, Some(init))
        };
        let inward = |name: &str| linear(name, block.dim, block.qkv_dim);
        Ok(Self {
            query: inward("query")?,
            key: inward("key")?,
            gate: inward("gate")?,
            segment: inward("segment")?,
            local: inward("local")?,
            output: linear("output", block.qkv_dim, block.dim)?,
            stretch: layer.max_length / options.segments + 1,
            heads: block.heads,
            width: block.head_dim(),
        })
    }
}

/// The value of padding in a maximum, that of the published code.
const MASKED: f64 = -1e4;

/// Returns x (B, L, C) with [`MASKED`] at padded positions.
fn lowered(x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let Some(mask) = mask else {
        return Ok(x.clone());
    };
    let valid = mask.valid().unsqueeze(2)?;
    Ok(x.broadcast_mul(&valid)?
        .broadcast_add(&valid.affine(-MASKED, MASKED)?)?)
}

/// Returns x (B, L, C) with `before` and `behind` positions of [`MASKED`] around it.
fn surrounded(x: &Tensor, before: usize, behind: usize) -> Result<Tensor> {
    let (batch, _, channels) = x.dims3()?;
    let edge = |count: usize| Tensor::full(MASKED, (batch, count, channels), x.device());
    let edge = |count: usize| edge(count)?.to_dtype(x.dtype());
    let parts = match (before, behind) {
        (0, 0) => return Ok(x.clone()),
        (0, _) => vec![x.clone(), edge(behind)?],
        (_, 0) => vec![edge(before)?, x.clone()],
        _ => vec![edge(before)?, x.clone(), edge(behind)?],
    };
    Ok(Tensor::cat(&parts, 1)?)
}

/// Returns l (B, L, C) of c (B, L, C). Equal values share the gradient.
fn of_neighbours(x: &Tensor) -> Result<Tensor> {
    let length = x.dim(1)?;
    let around = surrounded(x, 1, 1)?;
    let [before, behind] = [0, 2].map(|at| around.narrow(1, at, length));
    Ok(before?.maximum(x)?.maximum(&behind?)?)
}

/// Returns s (B, L, C) of u (B, L, C), for segments of `stretch` positions: maxima of pairs, of
/// pairs of these, and so on.
fn of_segments(x: &Tensor, stretch: usize) -> Result<Tensor> {
    let (batch, length, channels) = x.dims3()?;
    // A single segment that the sequence does not fill needs no more than the sequence.
    let stretch = stretch.min(length);
    let segments = length.div_ceil(stretch);
    let most = surrounded(x, 0, segments * stretch - length)?;
    let mut most = most.reshape((batch, segments, stretch, channels))?;
    let mut left = stretch;
    while left > 1 {
        let half = left.div_ceil(2);
        let first = most.narrow(2, 0, half)?;
        most = first.maximum(&most.narrow(2, left - half, half)?)?;
        left = half;
    }
    let all = most.broadcast_as((batch, segments, stretch, channels))?;
    let all = all.reshape((batch, segments * stretch, channels))?;
    Ok(all.narrow(1, 0, length)?)
}

impl Ponet {
    /// Returns g (B, 1, H E) of x (B, L, D).
    fn of_all(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let shares = match mask {
            Some(mask) => {
                let valid = mask.valid();
                let count = valid.sum_keepdim(1)?;
                valid.broadcast_div(&count.maximum(&count.ones_like()?)?)?
            }
            None => {
                let ones = Tensor::ones((batch, length), x.dtype(), x.device())?;
                ones.affine(1.0 / length as f64, 0.0)?
            }
        };
        let mean = weighted_sum(&self.query.forward(x)?, &shares)?; // (B, H E)
        let scale = (self.width as f64).powf(-0.5);
        let mean = mean.affine(scale, 0.0)?;
        let mean = mean.reshape((batch, self.heads, 1, self.width))?;
        let keys = split_heads(&self.key.forward(x)?, self.heads)?; // (B, H, L, E)
        let weights = softmax::masked(&matmul(&mean, &keys.t()?)?, mask)?;
        let sum = matmul(&weights, &keys)?; // (B, H, 1, E)
        Ok(sum.reshape((batch, 1, self.heads * self.width))?)
    }
}

impl Mixer for Ponet {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mask = pass.mask();
        let segment = of_segments(&lowered(&self.segment.forward(x)?, mask)?, self.stretch)?;
        let local = of_neighbours(&lowered(&self.local.forward(x)?, mask)?)?;
        let pooled = segment.broadcast_add(&self.of_all(x, mask)?)?;
        let y = add(&(pooled * self.gate.forward(x)?)?, &local)?;
        self.output.forward(&zero_padding(&y, mask)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [
            &self.query,
            &self.key,
            &self.gate,
            &self.segment,
            &self.local,
            &self.output,
        ];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        linears + 6 * (length * self.heads * self.width) as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;
    use crate::testing::{check_layer, close, normal, parameters, pass};

    #[test]
    fn maxima_are_those_of_plain_loops() {
        for length in [1, 2, 7, 12] {
            let x = normal("x", &[1, length, 2]);
            let rows: Vec<Vec<f64>> = x.get(0).unwrap().to_vec2().unwrap();
            let most = |from: usize, to: usize, channel: usize| {
                let part = rows[from..to.min(length)].iter();
                part.map(|row| row[channel]).fold(f64::MIN, f64::max)
            };
            let all = |range: &dyn Fn(usize) -> (usize, usize)| {
                let places = (0..length).flat_map(|at| [(at, 0), (at, 1)]);
                let values = places.map(|(at, channel)| {
                    let (from, to) = range(at);
                    most(from, to, channel)
                });
                Tensor::from_vec(values.collect(), (1, length, 2), &Device::Cpu).unwrap()
            };
            let expected = all(&|at| (at.saturating_sub(1), at + 2));
            close(&of_neighbours(&x).unwrap(), &expected, 1e-12, "neighbours");
            for stretch in [1, 2, 3, 5, 40] {
                let start = |at: usize| at / stretch * stretch;
                let expected = all(&|at| (start(at), start(at) + stretch));
                let actual = of_segments(&x, stretch).unwrap();
                close(&actual, &expected, 1e-12, "segments");
            }
        }
    }

    /// The published code pads to 2,048 and 4,096; the other lengths are those of the benchmark.
    #[test]
    fn segments_are_as_long_as_in_the_published_code() {
        let (parameters, block) = (parameters(), BlockOptions::default());
        for (longest, segments, stretch) in [
            (2048, 64, 33),
            (4096, 4096, 2),
            (4096, 64, 65),
            (2000, 62, 33),
            (4000, 2048, 2),
            (4000, 62, 65),
        ] {
            let layer = LayerContext::new(parameters.builder(), &block, longest);
            let mixer = Ponet::new(&layer, &Options { segments }).unwrap();
            assert_eq!(mixer.stretch, stretch, "{longest} / {segments}");
        }
    }

    /// The same token twice is one parameter that is read twice.
    #[test]
    fn equal_values_share_the_gradient() {
        let x = Var::from_tensor(&Tensor::ones((1, 6, 1), DType::F64, &Device::Cpu).unwrap());
        let x = x.unwrap();
        for y in [of_segments(&x, 3), of_neighbours(&x)] {
            let gradients = y.unwrap().sum_all().unwrap().backward().unwrap();
            let sum = gradients.get(&x).unwrap().sum_all().unwrap();
            assert!((sum.to_scalar::<f64>().unwrap() - 6.0).abs() < 1e-12);
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 6,
            qkv_dim: 4,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let mixer = Ponet::new(&layer, &Options { segments: 2 }).unwrap();
        let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        check_layer("ponet", &parameters, &[2, 5, 6], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }
}
