//! Hrrformer. Alam, Raff, Biderman, Oates, Holt, 2023, "Recasting Self-Attention with Holographic
//! Reduced Representations", arXiv:2305.19534.
//!     β = Σ_t k_t ⊛ v_t,  v̂_t = β ⊛ q_t†,  w = softmax_t(cos(v_t, v̂_t)),  y_t = w_t v_t,  out = y W_o
//! ⊛ is the circular convolution of two vectors over their E features, q† the reflected q, so that
//! v̂_t[m] = Σ_j β[m+j] q_t[j], indices modulo E: all pairs of a sequence are bound into one
//! vector, from which a query recalls the value that belongs to it. B batch, H heads, L length, E
//! width of a head; q, k, v, y (B, H, L, E), β (B, H, E), w (B, H, L). No position gets another
//! one's value: it keeps its own, times a weight that depends on all others. The softmax is over L
//! numbers within ±1, so that weights lie between e⁻² and e² times the mean: the layer is close to
//! v / n for n valid positions. Since β is the sum of the wrapped diagonals of S = Σ_t k_t v_tᵀ,
//! products replace the Fourier transforms here. Time O(L·E²) per head, memory O(L·E + E²). No
//! biases; weights begin LeCun-normal. Read in FutureComputing4AI/Hrrformer@8a127d1
//! listops/hrrformer_mgpu.py and package hrr 1.2.3: 6 layers of 512 with 8 heads, Adam at 1e-3 that
//! falls by a tenth each epoch, 20 epochs, dropout 0.1, labels smoothed by 0.1, feed-forward
//! networks half as wide as the block.
//!
//! # Options
//!
//! None.
//!
//! # Padding
//!
//! Padded positions are bound into nothing and have weight 0.
//!
//! # Departures
//!
//! The published code binds the keys and values of padding, too. Its blocks have no norm before
//! this layer (one behind the embedding instead), and its mean is over all positions. A vector of
//! zeros has cosine 0 with any other, where the package has NaN. The feed-forward network begins
//! Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases N(0, 1e-6²); the published code
//! has Flax's Dense, whose weights begin LeCun-normal (deviations of 0.125 and 0.088) and whose
//! biases are 0, and its second layer has no biases (FutureComputing4AI/Hrrformer@8a127d1
//! listops/hrrformer_mgpu.py:48-59).

use crate::{
    ops::{
        l2_normalize,
        swap_axes::{merge_heads, split_heads},
    },
    params::LECUN_NORMAL,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hrrformer",
    title: "Hrrformer",
    paper: "Recasting Self-Attention with Holographic Reduced Representations",
    year: 2023,
    arxiv: "2305.19534",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E + E²)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Hrrformer>(include_str!("hrrformer.rs"))],
    ..Model::mixer::<Hrrformer>()
};

struct Hrrformer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    heads: usize,
    width: usize,
}

impl MixerModel for Hrrformer {
    type Options = NoOptions;

    fn new(layer: &LayerContext, _: &NoOptions) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let inward = |name| {
            let vb = vb.pp(name);
            Linear::new(&vb, block.dim, block.qkv_dim, LECUN_NORMAL, None)
        };
        let output = vb.pp("output");
        Ok(Self {
            query: inward("query")?,
            key: inward("key")?,
            value: inward("value")?,
            output: Linear::new(&output, block.qkv_dim, block.dim, LECUN_NORMAL, None)?,
            heads: block.heads,
            width: block.head_dim(),
        })
    }
}

/// Returns x (B, H, M) with its last axis gathered to (B, H, E, E): element (i, j) is that of
/// number `of(i, j)`.
fn spread(x: &Tensor, width: usize, of: impl Fn(usize, usize) -> usize) -> Result<Tensor> {
    let (batch, heads, numbers) = x.dims3()?;
    let pairs = (0..width).flat_map(|i| (0..width).map(move |j| (i, j)));
    let indices: Vec<u32> = pairs.map(|(i, j)| of(i, j) as u32).collect();
    let indices = Tensor::from_vec(indices, width * width, x.device())?;
    let rows = x.reshape((batch * heads, numbers))?;
    let rows = rows.index_select(&indices, 1)?;
    Ok(rows.reshape((batch, heads, width, width))?)
}

/// Returns v̂ (B, H, L, E) of queries, keys and values (B, H, L, E).
fn recall(q: &Tensor, k: &Tensor, v: &Tensor) -> Result<Tensor> {
    let (batch, heads, _, width) = v.dims4()?;
    let pairs = matmul(&k.t()?, v)?; // S (B, H, E, E)
    let pairs = pairs.reshape((batch, heads, width * width))?;
    // β[m] = Σ_j S[j, m-j].
    let diagonals = spread(&pairs, width, |m, j| j * width + (m + width - j) % width)?;
    let bound = diagonals.sum(D::Minus1)?;
    matmul(q, &spread(&bound, width, |j, m| (m + j) % width)?)
}

impl Mixer for Hrrformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let key = zero_padding(&self.key.forward(x)?, pass.mask())?;
        let split = |x: &Tensor| split_heads(x, self.heads);
        let (q, k) = (split(&self.query.forward(x)?)?, split(&key)?);
        let v = split(&self.value.forward(x)?)?;
        let (batch, heads, length, width) = v.dims4()?;
        let recalled = l2_normalize(&recall(&q, &k, &v)?, width)?;
        let cosines = (l2_normalize(&v, width)? * recalled)?.sum(D::Minus1)?; // (B, H, L)
        let cosines = cosines.reshape((batch, heads, 1, length))?;
        let weights = softmax::masked(&cosines, pass.mask())?;
        let weights = weights.reshape((batch, heads, length, 1))?;
        self.output
            .forward(&merge_heads(&v.broadcast_mul(&weights)?)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.query, &self.key, &self.value, &self.output];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        linears + 4 * (length * self.heads * self.width * self.width) as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::testing::{check_layer, close, normal, parameters, pass};

    /// Returns the circular convolution of two vectors.
    fn bind(a: &[f64], b: &[f64]) -> Vec<f64> {
        let width = a.len();
        let at = |m: usize| {
            let terms = (0..width).map(|j| a[j] * b[(m + width - j) % width]);
            terms.sum::<f64>()
        };
        (0..width).map(at).collect()
    }

    #[test]
    fn recall_is_a_circular_convolution_with_the_reflected_query() {
        for width in [1, 2, 5] {
            let shape = [1, 1, 4, width];
            let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &shape));
            let actual = recall(&q, &k, &v).unwrap();
            let rows = |x: &Tensor| x.reshape((4, width)).unwrap().to_vec2::<f64>().unwrap();
            let (q, k, v) = (rows(&q), rows(&k), rows(&v));
            let mut bound = vec![0.0; width];
            for (k, v) in k.iter().zip(&v) {
                let pair = bind(k, v);
                bound.iter_mut().zip(pair).for_each(|(sum, x)| *sum += x);
            }
            let expected = q.iter().flat_map(|q| {
                let reflected: Vec<f64> = (0..width).map(|m| q[(width - m) % width]).collect();
                bind(&bound, &reflected)
            });
            let expected = Tensor::from_vec(expected.collect(), &shape, &Device::Cpu).unwrap();
            close(&actual, &expected, 1e-12, "recall");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 6,
            qkv_dim: 6,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mixer = Hrrformer::new(&layer, &NoOptions {}).unwrap();
        let valid = [[1.0; 4], [1.0, 1.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        check_layer("hrrformer", &parameters, &[2, 4, 6], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }
}
