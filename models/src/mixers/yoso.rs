//! YOSO in expectation. Zeng, Xiong, Ravi, Acharya, Fung, Singh, 2021, "You Only Sample (Almost)
//! Once: Linear Cost Self-Attention Via Bernoulli Sampling", arXiv:2111.09714.
//!     w_ij = (1 - arccos(q̂_i·k̂_j)/π)^τ,  y_i = z_i/|z_i| + Σ_t κ_t v_(i+t),  z_i = Σ_j w_ij v_j,  x̂ = x/|x|
//! w_ij is the probability that τ random hyperplanes leave q and k on the same side: the weight
//! that the paper's samples have on average. Weights are not divided by their sum; instead outputs
//! have length 1. B batch, H heads, L length, E width of a head; q, k, v, y (B, L, H, E), w (B, H,
//! L, L); κ (H, W) a kernel for each head, none if W = 0. Time O(L²·E) per head, memory O(L·E):
//! longer sequences go through blocks of queries that are computed again in the backward pass. κ
//! begins uniform within W^-½. Read in mlpen/YOSO@6000487
//! encoders/backbones/efficient_attentions/yoso/yoso_v1/yoso.py (class YOSOEAttention) and
//! LRA/models/yoso-v1-32/config.json: τ = 11 on ListOps and no kernel, everything else as
//! Nyströmformer on this benchmark (recipe `nystromformer`). LRA/models/yoso-v2-16/config.json has
//! τ = 12 on Text and Retrieval, 10 on Image.
//!
//! # Options
//!
//! `hash_code_len` τ; `conv_window` W, odd, or 0.
//!
//! # Padding
//!
//! Padded keys have weight 0, and padded values enter the kernel as zeros.
//!
//! # Departures
//!
//! Samples of hash codes, by which the paper's cost is O(L), are left out; the paper has figures of
//! the expectation, too, as YOSO-E. The derivative is that of w; the authors' is τ w/2 in its
//! place, which has no pole where q̂ and k̂ are equal. Products are held within ±(1 - 1e-6)
//! instead. The authors' projections have biases. Projections begin Xavier-uniform (±0.217 at D =
//! 64), the feed-forward network Xavier-uniform (±0.177 for a width of 128) with biases N(0,
//! 1e-6²); the published code has PyTorch's linear layers, all uniform within inputs^-½ (±0.125,
//! and ±0.088 from a width of 128), biases too (mlpen/YOSO@6000487
//! encoders/backbones/efficient_attention.py:47-49, 83, LRA/model.py:50-61). The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the published code 1e-5 (torch.nn.LayerNorm).

use crate::{
    ops::{
        Padding,
        checkpoint::checkpoint,
        collision_probability, depthwise_conv1d, l2_normalize,
        swap_axes::{merge_heads, split_heads},
    },
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "yoso",
    title: "YOSO-E",
    paper: "You Only Sample (Almost) Once: Linear Cost Self-Attention Via Bernoulli Sampling",
    year: 2021,
    arxiv: "2111.09714",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Yoso>(include_str!("yoso.rs"))],
    ..Model::mixer::<Yoso>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// τ.
    #[option(default = 11, range = int(1, 64))]
    hash_code_len: usize,
    /// W.
    #[option(range = int(0, 4095))]
    conv_window: usize,
}

/// Queries of a block that is computed again.
const BLOCK: usize = 256;

struct Yoso {
    projections: Projections,
    /// κ (H, W).
    kernel: Option<Tensor>,
    tau: usize,
    heads: usize,
    width: usize,
}

impl MixerModel for Yoso {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        let window = options.conv_window;
        require(
            window == 0 || !window.is_multiple_of(2),
            "model.conv_window",
            window,
            "odd, as many taps on either side, or 0",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (window, heads) = (options.conv_window, layer.block.heads);
        let kernel = || {
            let vb = layer.vb.pp("conv");
            vb.get_with_hints((heads, window), "weight", fan_in_uniform(window))
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            kernel: (window > 0).then(kernel).transpose()?,
            tau: options.hash_code_len,
            heads,
            width: layer.block.head_dim(),
        })
    }
}

/// Returns z (B, H, count, E) of the queries from `first` on, of q̂, k̂ and v side by side (B, H,
/// L, 3 E).
fn collide(qkv: &Tensor, (first, count): (usize, usize), tau: usize) -> Result<Tensor> {
    let width = qkv.dim(3)? / 3;
    let part = |at: usize| qkv.narrow(3, at * width, width);
    let q = part(0)?.narrow(2, first, count)?.contiguous()?;
    let (k, v) = (part(1)?.contiguous()?, part(2)?.contiguous()?);
    let weights = collision_probability(&matmul(&q, &k.t()?)?, tau)?;
    matmul(&weights, &v)
}

impl Yoso {
    /// Returns Σ_t κ_t v_(i+t) of values (B, L, H E).
    fn convolve(&self, v: &Tensor, kernel: &Tensor) -> Result<Tensor> {
        let (heads, window) = kernel.dims2()?;
        let kernel = kernel.unsqueeze(1)?;
        let kernel = kernel.broadcast_as((heads, self.width, window))?;
        let kernel = kernel.reshape((heads * self.width, window))?.contiguous()?;
        depthwise_conv1d(v, &kernel, None, Padding::Same, 1)
    }
}

impl Mixer for Yoso {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, values] = self.projections.qkv(x)?;
        // A value of zeros is one of weight 0.
        let values = zero_padding(&values, pass.mask())?;
        let unit = |x: &Tensor| l2_normalize(&split_heads(x, self.heads)?, self.width);
        let parts = [unit(&q)?, unit(&k)?, split_heads(&values, self.heads)?];
        let (qkv, length) = (Tensor::cat(&parts, 3)?, x.dim(1)?);
        let z = match length <= BLOCK {
            true => collide(&qkv, (0, length), self.tau)?,
            false => {
                let blocks = (0..length).step_by(BLOCK).map(|first| {
                    let (count, tau) = (BLOCK.min(length - first), self.tau);
                    checkpoint(&qkv, move |qkv| collide(qkv, (first, count), tau))
                });
                Tensor::cat(&blocks.collect::<Result<Vec<_>>>()?, 2)?
            }
        };
        let mut y = merge_heads(&l2_normalize(&z, self.width)?)?;
        if let Some(kernel) = &self.kernel {
            y = add(&y, &self.convolve(&values, kernel)?)?;
        }
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("weights are powers of an angle, without scores")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let attention = 4 * length as u64 * (length * self.heads * self.width) as u64;
        self.projections.flops(length) + attention
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;
    use crate::testing::{agree, check_layer, meets_reference, parameters, pass};

    #[test]
    fn weights_are_powers_of_the_share_of_hyperplanes() {
        let kernel = |q: &[f64], k: &[f64]| {
            let product: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
            let length = |x: &[f64]| x.iter().map(|x| x * x).sum::<f64>().sqrt();
            let cosine = product / (length(q) * length(k));
            (1.0 - cosine.acos() / std::f64::consts::PI).powi(9)
        };
        // The reference divides by the sum of weights, so that sums are undone on both sides.
        meets_reference("yoso", 1e-7, kernel, |q, k, v, mask| {
            let by_head = |x: &Tensor| swap_axes(x);
            let unit = |x: &Tensor| l2_normalize(&by_head(x)?, 3);
            let sum = |v: &Tensor| -> Result<Tensor> {
                let v = match mask {
                    Some(mask) => v.broadcast_mul(&mask.valid().reshape((3, 5, 1, 1))?)?,
                    None => v.clone(),
                };
                let v = by_head(&v)?;
                let qkv = Tensor::cat(&[unit(q)?, unit(k)?, v], 3)?;
                collide(&qkv, (0, 5), 9)
            };
            let y = (sum(v)? / sum(&v.ones_like()?)?.affine(1.0, 1e-30)?)?;
            swap_axes(&y)
        });
    }

    #[test]
    fn blocks_of_queries_change_nothing() {
        let qkv = Var::from_tensor(&crate::testing::normal("qkv", &[2, 1, 5, 9])).unwrap();
        let whole = collide(&qkv, (0, 5), 4).unwrap();
        let parts = [(0, 2), (2, 3)]
            .map(|block| checkpoint(&qkv, move |qkv| collide(qkv, block, 4)).unwrap());
        let parts = Tensor::cat(&parts, 2).unwrap();
        agree(&parts, &whole, &[qkv], 1e-10, "blocks");
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
        let options = Options {
            hash_code_len: 3,
            conv_window: 3,
        };
        let mixer = Yoso::new(&layer, &options).unwrap();
        let valid = [[1.0; 4], [1.0, 1.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        check_layer("yoso", &parameters, &[2, 4, 6], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }
}
