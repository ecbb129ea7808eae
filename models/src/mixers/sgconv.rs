//! SGConv. Li, Cai, Zhang, Chen, Dey, 2022, "What Makes Convolutional Models Great on Long Sequence
//! Modeling?", arXiv:2210.09298.
//!     k = [ρ^{S-1} w₀, ρ^{S-2} up(w₁), ... up(w_{S-1})] / Z,  y_t = Σ_{j≤t} k_{t-j} x_j + Σ_{j>t} k'_{j-t-1} x_j + D x_t,   out = a ⊙ σ(g), [a, g] = W f(y) + b
//! x, y, out (B, L, H), H the width; w_i, w'_i (H, κ), N(0, 1) at first, κ = `kernel`; up(w_i)
//! interpolates w_i linearly to κ·2^{max(0, i-1) + i₀} taps (PyTorch's `interpolate`,
//! `align_corners = False`), so that early lags are fine and late ones coarse; S is the number of
//! scales needed to cover the longest length N, and k is cut to N. ρ, from `decay_min` to
//! `decay_max` over the channels, makes late taps small. Z (H) is the norm of a channel's kernel,
//! before the cut, in the first training step, constant afterwards. i₀ = `first_scale`; D (H), W
//! (2H, H). Time O(L·log L), memory O(L), H·κ·S weights for each direction. Z is state that is
//! saved with the run. Before it is set, scoring uses the current norm.
//!
//! # Options
//!
//! `direction = forward` has no k'. `kernel` is κ, `first_scale` i₀; ρ lies between `decay_min` and
//! `decay_max`.
//!
//! # Padding
//!
//! Padded positions enter the kernels as zeros.
//!
//! # Departures
//!
//! The block has no feed-forward network. The published block has BatchNorm and a separate learning
//! rate for w. On Path-X w begins there with cosines (`mode` = cat_cos in ctlllll/SGConv@0c2b3ab
//! src/models/sequence/gconv.py:124-125). On Image ρ is 1 there and number t = 1, 2, .. of the
//! kernel is divided by t (`mode` = cat_randn_learnable_fixed, gconv.py:144-152 and 199-200). The
//! norms' ε is `block.norm_epsilon` = 1e-6, in the published code 1e-5 (PyTorch's LayerNorm and
//! BatchNorm1d, src/models/nn/components.py:261, 271).

use std::sync::{Arc, OnceLock};

use crate::{
    layers::{Direction, LongConv},
    ops::linear,
    params::{Buffer, Commit},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "sgconv",
    title: "SGConv",
    paper: "What Makes Convolutional Models Great on Long Sequence Modeling?",
    year: 2022,
    arxiv: "2210.09298",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<SgConv>(include_str!("sgconv.rs"))],
    ..Model::mixer::<SgConv>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// κ.
    #[option(default = 2, range = int(1, 4096))]
    kernel: usize,
    /// i₀.
    #[option(range = int(0, 20))]
    first_scale: usize,
    #[option(default = 2.0, range = positive(1e3))]
    decay_min: f64,
    #[option(default = 2.0, range = positive(1e3))]
    decay_max: f64,
    #[option(default = Direction::Both)]
    direction: Direction,
}

struct SgConv {
    /// w of each scale, (directions, H, κ).
    weights: Vec<Tensor>,
    /// Taps of each scale.
    taps: Vec<usize>,
    /// ρ of each channel.
    rho: Vec<f64>,
    /// Matrices that stretch each scale, (taps, κ), and its powers of ρ (H, 1); made when they are
    /// first needed.
    scales: OnceLock<Vec<(Tensor, Tensor)>>,
    /// Z (directions, H, 1); zeros before the first step.
    norm: Buffer,
    length: usize,
    filter: LongConv,
}

/// Returns weights of linear interpolation: row t has the weights of the κ numbers in number t of
/// `taps`, half-way between them linear and beyond the outer ones constant.
fn stretch(size: usize, taps: usize) -> Vec<f64> {
    let mut rows = vec![0.0; taps * size];
    for (tap, row) in rows.chunks_exact_mut(size).enumerate() {
        let at = ((tap as f64 + 0.5) * size as f64 / taps as f64 - 0.5).max(0.0);
        let left = (at.floor() as usize).min(size - 1);
        let right = (left + 1).min(size - 1);
        row[left] += 1.0 - (at - left as f64);
        row[right] += at - left as f64;
    }
    rows
}

impl MixerModel for SgConv {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        require(
            options.decay_min <= options.decay_max,
            "model.decay_min",
            options.decay_min,
            format!("at most model.decay_max = {}", options.decay_max),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, length) = (&layer.vb, layer.block.dim, layer.max_length);
        let directions = options.direction.count();
        let size = options.kernel;
        let mut taps = Vec::new();
        while taps.iter().sum::<usize>() < length {
            let doublings = taps.len().saturating_sub(1) + options.first_scale;
            taps.push(size << doublings.min(40));
        }
        let count = taps.len();
        let rho = |channel: usize| {
            let share = channel as f64 / (dim.max(2) - 1) as f64;
            options.decay_min + (options.decay_max - options.decay_min) * share
        };
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let commit: Commit = Arc::new(|before, sum| {
            // The first step sets the norm, to the same value in each of its passes; later steps
            // leave it.
            let missing = before.eq(0.0)?.to_dtype(before.dtype())?;
            let passes = sum.narrow(0, sum.dim(0)? - 1, 1)?.maximum(1.0)?;
            let found = sum.narrow(0, 0, sum.dim(0)? - 1)?.broadcast_div(&passes)?;
            Ok((before + (found * missing)?)?)
        });
        Ok(Self {
            weights: (0..count)
                .map(|scale| {
                    let name = format!("kernel.{scale}");
                    vb.get_with_attributes(
                        (directions, dim, size),
                        &name,
                        normal,
                        Attributes::MATRIX,
                    )
                })
                .collect::<Result<_>>()?,
            rho: (0..dim).map(rho).collect(),
            taps,
            scales: OnceLock::new(),
            norm: vb.buffer((directions, dim, 1), "norm", Init::Const(0.0), commit)?,
            length,
            filter: LongConv::new(layer, directions, true)?,
        })
    }
}

impl SgConv {
    fn scales(&self) -> Result<&[(Tensor, Tensor)]> {
        if let Some(scales) = self.scales.get() {
            return Ok(scales);
        }
        let (like, size) = (self.norm.value(), self.weights[0].dims()[2]);
        let constant = |values: Vec<f64>, shape: (usize, usize)| {
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu)?;
            Ok::<_, Error>(tensor.to_dtype(like.dtype())?.to_device(like.device())?)
        };
        let count = self.taps.len();
        let scale = |(scale, &taps): (usize, &usize)| {
            let power = (count - 1 - scale) as i32;
            let factors = self.rho.iter().map(|rho| rho.powi(power)).collect();
            let stretch = constant(stretch(size, taps), (taps, size))?;
            Ok((stretch, constant(factors, (self.rho.len(), 1))?))
        };
        let scales = self.taps.iter().enumerate().map(scale);
        let scales = scales.collect::<Result<Vec<_>>>()?;
        Ok(self.scales.get_or_init(|| scales))
    }

    /// Returns (H, directions · N).
    fn kernel(&self, pass: &Pass) -> Result<Tensor> {
        let scaled = |(kernel, (stretch, factor)): (&Tensor, &(Tensor, Tensor))| {
            Ok::<_, Error>(linear(kernel, stretch, None)?.broadcast_mul(factor)?)
        };
        let parts: Vec<Tensor> = self
            .weights
            .iter()
            .zip(self.scales()?)
            .map(scaled)
            .collect::<Result<_>>()?;
        let whole = Tensor::cat(&parts, 2)?; // (directions, H, N or more)
        let now = whole.detach().sqr()?.sum_keepdim(2)?.sqrt()?; // (directions, H, 1)
        if pass.updates().is_some() {
            let one = now.ones_like()?.narrow(0, 0, 1)?;
            self.norm.add(&Tensor::cat(&[&now, &one], 0)?, pass)?;
        }
        let kept = self.norm.value();
        let missing = kept.eq(0.0)?.to_dtype(kept.dtype())?;
        let norm = (kept + (now * missing)?)?;
        let kernel = whole.narrow(2, 0, self.length)?.broadcast_div(&norm)?;
        let (directions, dim, length) = kernel.dims3()?;
        Ok(kernel
            .transpose(0, 1)?
            .reshape((dim, directions * length))?)
    }
}

impl Mixer for SgConv {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.filter.forward(x, &self.kernel(pass)?, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.filter.is_causal()
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        Some("the length Z of each kernel is a constant")
    }

    fn flops(&self, length: usize) -> u64 {
        self.filter.flops(length, self.norm.value().dims()[1])
    }
}
