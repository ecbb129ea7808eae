//! Random feature attention (RFA). Peng et al., 2021, "Random Feature Attention", arXiv:2103.02143.
//!     y_i = φ(q̂_i) S / max(|φ(q̂_i)·z|, ε),  S = Σ_j φ(k̂_j) v_jᵀ,  z = Σ_j φ(k̂_j),  x̂ = x / (|x| + 0.001)
//!     φ(x) = [sin(W x) ; cos(W x)] / √M,  W = w ⊙ σ, rows of w from N(0, I): φ(q̂)·φ(k̂) is exp(-|σ ⊙ (q̂ - k̂)|² / 2) in the mean
//! B batch, H heads, L length, E width of a head, M draws; q, k, v (B, L, H, E), w (H, M, E), σ (H,
//! E), 1 at first, φ (B, L, H, 2M), S (B, H, 2M, E). Time O(L·M·E) per head, memory O(L·M + M·E).
//! Each token sees itself. No biases except that of the gate.
//!
//! # Options
//!
//! `features` M; `redraw`, the steps after which w is redrawn (0: never; the published code picks
//! one of 500 draws at every step); `epsilon` ε; `kernel`: `gaussian`, or `arccos` for φ(x) = max(W
//! x, 0) / √M; `gate`: `none`, or `both`:
//!     S_t = g_t S_(t-1) + (1 - g_t) φ(k̂_t) v_tᵀ,  z_t alike,  g_t = sigmoid(w_g·x_t + b_g), one number per head
//!
//! # Padding
//!
//! Padded tokens are in no sum and close no gate.
//!
//! # Departures
//!
//! The paper gates sums over the past. Here tokens may see both sides, so the first half of the
//! heads (rounded up) runs from the first token to the last, and the other half backwards. The
//! published code has factors 0.1 in place of 1/√M, and clips denominators at 1, which concerns the
//! first tokens of causal attention and few others. σ acts as the temperature. Projections begin
//! Xavier-uniform, in that code √½ times that; it has biases there, which begin uniform within
//! D^-½, that of the output as 0 (Noahs-ARK/RFA@b075fa8
//! random_feature_attention/causal_attention.py:180-199). That code has no gates; here their
//! weights begin Xavier-uniform and b_g as 0. It has neither a feed-forward network nor norms; here
//! biases of that network begin N(0, 1e-6²), and the norms' ε is `block.norm_epsilon` = 1e-6.

use crate::{RngKey, ops::activation::relu, prelude::*};

mod gate;

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "rfa",
    title: "RFA",
    paper: "Random Feature Attention",
    year: 2021,
    arxiv: "2103.02143",
    time: Cost::Linear("O(L·M·E)"),
    memory: Cost::Linear("O(L·M + M·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Rfa>(include_str!("rfa.rs"))],
    ..Model::mixer::<Rfa>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kernel {
    Gaussian,
    Arccos,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Gate {
    None,
    Both,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 64, range = int(1, WIDEST))]
    features: usize,
    #[option(default = 1, range = int(0, 1_000_000_000))]
    redraw: u64,
    #[option(default = 1e-3, range = positive(1e3))]
    epsilon: f64,
    #[option(default = Kernel::Gaussian)]
    kernel: Kernel,
    #[option(default = Gate::None)]
    gate: Gate,
}

struct Rfa {
    projections: Projections,
    features: Features,
    /// w_g and b_g, (H, D) and (H).
    gate: Option<Linear>,
    epsilon: f64,
    heads: usize,
    width: usize,
}

impl MixerModel for Rfa {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let block = layer.block;
        let gate = || {
            let init = xavier_uniform(block.dim, block.heads);
            let bias = Some(Init::Const(0.0));
            Linear::new(&layer.vb.pp("gate"), block.dim, block.heads, init, bias)
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            features: Features::new(layer, options)?,
            gate: (options.gate == Gate::Both).then(gate).transpose()?,
            epsilon: options.epsilon,
            heads: block.heads,
            width: block.head_dim(),
        })
    }
}

impl Rfa {
    /// Returns y (B, L, H, E) of queries, keys and values (B, L, H, E); gates read x (B, L, D).
    fn attend(&self, qkv: [Tensor; 3], x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let directions = self.features.directions(pass, x)?;
        let by_head = |x: Tensor| x.permute((2, 0, 1, 3))?.contiguous();
        let [q, k, v] = qkv.map(by_head); // (H, B, L, E)
        let q = self.features.forward(&q?, &directions)?;
        let k = self.features.forward(&k?, &directions)?;
        // A column of ones: its sum is the denominator.
        let v = v?;
        let v = Tensor::cat(&[&v, &v.narrow(3, 0, 1)?.ones_like()?], 3)?;
        let sums = self.sums([&q, &k, &v], x, pass)?;
        let total = sums.narrow(3, self.width, 1)?.abs()?;
        // max(·, ε), with no gradient below ε.
        let total = total.affine(1.0, -self.epsilon)?.relu()?;
        let total = total.affine(1.0, self.epsilon)?;
        let y = sums.narrow(3, 0, self.width)?.broadcast_div(&total)?;
        Ok(y.permute((1, 2, 0, 3))?.contiguous()?)
    }

    /// Numerators and, in the last column, denominators: (H, B, L, E + 1) of queries, keys (H, B,
    /// L, F) and values (H, B, L, E + 1).
    fn sums(&self, [q, k, v]: [&Tensor; 3], x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let valid = match pass.mask() {
            Some(mask) => mask.valid().unsqueeze(0)?, // (1, B, L)
            None => Tensor::ones((1, x.dim(0)?, x.dim(1)?), v.dtype(), v.device())?,
        };
        let Some(gate) = &self.gate else {
            let k = k.broadcast_mul(&valid.unsqueeze(3)?)?;
            return matmul(q, &matmul(&k.t()?, v)?);
        };
        let scores = gate.forward(x)?.permute((2, 0, 1))?.contiguous()?; // (H, B, L)
        let ahead = self.heads.div_ceil(2);
        let half = |first: usize, count: usize, reverse: bool| {
            let part = |x: &Tensor| x.narrow(0, first, count);
            let operands = [&part(q)?, &part(k)?, &part(v)?];
            gate::sums(operands, (&part(&scores)?, &valid), reverse)
        };
        if ahead == self.heads {
            return half(0, ahead, false);
        }
        let halves = [
            half(0, ahead, false)?,
            half(ahead, self.heads - ahead, true)?,
        ];
        Ok(Tensor::cat(&halves, 0)?)
    }
}

impl Mixer for Rfa {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = self.attend(self.projections.split(x)?, x, pass)?;
        self.projections.merge(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        let features = self.features.count * self.features.per_direction();
        let mapped = 2 * 2 * length * self.features.count * self.width;
        let sums = match &self.gate {
            None => 2 * 2 * length * features * (self.width + 1),
            Some(_) => gate::flops(length, features, self.width + 1),
        };
        let gate = self.gate.as_ref().map_or(0, |gate| gate.flops(length));
        self.projections.flops(length) + (self.heads * (mapped + sums)) as u64 + gate
    }
}

/// φ of all heads.
struct Features {
    /// σ (H E).
    scale: Tensor,
    kernel: Kernel,
    /// M.
    count: usize,
    redraw: u64,
    heads: usize,
    stream: StreamKey,
}

impl Features {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let width = layer.block.qkv_dim;
        Ok(Self {
            // A vector, which does not decay.
            scale: layer.vb.get_with_hints(width, "scale", Init::Const(1.0))?,
            kernel: options.kernel,
            count: options.features,
            redraw: options.redraw,
            heads: layer.block.heads,
            stream: StreamKey::new(&layer.vb.pp("directions").prefix()),
        })
    }

    /// Returns the number of features that a direction gives.
    fn per_direction(&self) -> usize {
        match self.kernel {
            Kernel::Gaussian => 2,
            Kernel::Arccos => 1,
        }
    }

    /// Returns w (H, M, E) of this pass, of the type of x (B, L, D) and where it is.
    fn directions(&self, pass: &Pass, x: &Tensor) -> Result<Tensor> {
        if let Some(fixed) = pass.fixed("directions") {
            return Ok(fixed.to_dtype(x.dtype())?);
        }
        // None for redraw = 0: drawn once for all steps.
        let age = pass.rng.step().checked_rem(self.redraw);
        let step = age.map_or(0, |age| pass.rng.step() - age);
        let stream = RngKey::new(pass.rng.seed(), step, 0).shared(self.stream);
        let numbers = stream.normal(self.count, self.scale.elem_count());
        let width = self.scale.elem_count() / self.heads;
        let w = Tensor::from_vec(numbers, (self.heads, self.count, width), &Device::Cpu)?;
        Ok(w.to_dtype(x.dtype())?.to_device(x.device())?)
    }

    /// Returns φ(x̂) (H, B, L, F) of x (H, B, L, E).
    fn forward(&self, x: &Tensor, directions: &Tensor) -> Result<Tensor> {
        let (heads, batch, length, width) = x.dims4()?;
        // The small term is for the gradient of a vector of zeros.
        let norm = x.sqr()?.sum_keepdim(3)?.affine(1.0, 1e-24)?.sqrt()?;
        let x = x.broadcast_div(&norm.affine(1.0, 1e-3)?)?;
        let x = x.broadcast_mul(&self.scale.reshape((heads, 1, 1, width))?)?;
        let x = x.reshape((heads, batch * length, width))?;
        let projected = matmul(&x, &directions.t()?)?; // (H, B L, M)
        let features = match self.kernel {
            Kernel::Gaussian => Tensor::cat(&[projected.sin()?, projected.cos()?], 2)?,
            Kernel::Arccos => relu(&projected, 0.0)?,
        };
        let features = features.affine((self.count as f64).powf(-0.5), 0.0)?;
        Ok(features.reshape((heads, batch, length, ()))?)
    }
}

#[cfg(test)]
mod tests;
