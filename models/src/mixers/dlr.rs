//! Diagonal linear RNNs. Gupta, Mehta, Berant, 2022, "Simplifying and Understanding State Space
//! Models with Diagonal Linear RNNs", arXiv:2212.00768.
//!     K_l = Re Σ_n W_n e^{Λ_n l},  y_t = Σ_{j≤t} K_{t-j} x_j + Σ_{j>t} K'_{j-t-1} x_j + D x_t,   out = a ⊙ σ(g), [a, g] = W_o f(y) + b
//! A linear recurrence with one factor e^Λ for each of N states, which all channels share, and no
//! step size. x, y, out (B, L, H), H the width; Λ_n = -r_n² + i ω_n, n < N = `state`; W, W' (H, N)
//! complex, D (H), W_o (2H, H). At first ω_n = 2πn/N, r² half of e^δ with δ uniform between the
//! logarithms of `dt_min` and `dt_max`, both parts of W N(0, 1/N²), D N(0, 1). Exponents are made
//! in f64. Time O(L·log L) and the kernel O(L·N) a channel for a whole batch, memory O(L·N). Read
//! in ag1988/dlr@580d854 src/models/sequence/ss/standalone/dss.py (class DLRKernel, `version` = '')
//! and configs/model/layer/dlr.yaml; the README's ListOps has N = 1024 and the rate 8e-4 for all
//! parameters, W and Λ without weight decay. Figures on this benchmark are those of others (Amos et
//! al., 2024, arXiv:2310.02980).
//!
//! # Options
//!
//! `state` N; `dt_min`, `dt_max`; `direction = forward` has no W'.
//!
//! # Padding
//!
//! Padded positions enter the kernels as zeros.
//!
//! # Departures
//!
//! The published N is 1024 and more: N = 64 here, which is the N of other state spaces, leaves
//! weights for the width of small models. The GLU is that of the experiments (`postact: glu`); the
//! layer by itself has none (configs/model/layer/dlr.yaml:5). The forms with real W or imaginary Λ
//! are left out. On ListOps the published layer looks back only and is post-norm
//! (configs/experiment/dss-listops-subtrees.yaml:16, 22; ag1988/dlr@580d854). The norm of the
//! published configurations is (s / σ) (x - μ + m), with one s, which begins as 1, and one m, which
//! begins as 0, for all channels and no ε (`norm: layer` with `transposed: True`,
//! src/models/nn/components.py:117-134 and configs/model/dlr.yaml:6); here it is LayerNorm, with a
//! gain and a shift for each channel and ε = `block.norm_epsilon` = 1e-6. BatchNorm's ε is 1e-5
//! there (components.py:165).

use std::f64::consts::TAU;

use crate::{
    layers::{Direction, GluOutput, OutputGate, OutputInit, convolve, step_size},
    ops::exact_matmul,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "dlr",
    title: "DLR",
    paper: "Simplifying and Understanding State Space Models with Diagonal Linear RNNs",
    year: 2022,
    arxiv: "2212.00768",
    time: Cost::Linear("O(L·(N + log L))"),
    memory: Cost::Linear("O(L·N)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<Dlr>(include_str!("dlr.rs"))],
    ..Model::mixer::<Dlr>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// N.
    #[option(default = 64, range = int(1, 8192))]
    state: usize,
    #[option(default = 0.0001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
    #[option(default = Direction::Both)]
    direction: Direction,
}

struct Dlr {
    /// r (N).
    root: Tensor,
    /// ω (N).
    angle: Tensor,
    /// Real and imaginary part of W of each direction, (directions, H, N).
    weight: [Tensor; 2],
    /// D (H).
    d: Tensor,
    output: GluOutput,
}

impl MixerModel for Dlr {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        step_size::check(options.dt_min, options.dt_max)
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, states) = (&layer.vb, layer.block.dim, options.state);
        let [min, max] = [options.dt_min, options.dt_max].map(f64::ln);
        let own = Attributes::NO_DECAY;
        let root = vb.get_with_values(states, "lambda_root", own, |stream| {
            let shares = stream.uniform(1, states).into_iter();
            let steps = shares.map(|share| (min + share * (max - min)).exp());
            steps.map(|step| (0.5 * step).sqrt()).collect()
        });
        let angle = vb.get_with_values(states, "lambda_im", own, |_| {
            let shares = (0..states).map(|n| n as f64 / states as f64);
            shares.map(|share| TAU * share).collect()
        });
        let normal = |stdev| Init::Randn { mean: 0.0, stdev };
        let weight = |name| {
            let shape = (options.direction.count(), dim, states);
            vb.get_with_attributes(shape, name, normal(1.0 / states as f64), own)
        };
        Ok(Self {
            root: root?,
            angle: angle?,
            weight: [weight("w_re")?, weight("w_im")?],
            d: vb.get_with_hints(dim, "d", normal(1.0))?,
            output: GluOutput::new(vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }
}

impl Dlr {
    /// Returns `taps` numbers of the kernel of each direction, (H, directions · taps).
    fn kernels(&self, taps: usize) -> Result<Tensor> {
        let dtype = self.root.dtype();
        let lags: Vec<f64> = (0..taps).map(|lag| lag as f64).collect();
        let lags = Tensor::from_vec(lags, (1, taps), self.root.device())?;
        let times = |x: &Tensor| -> Result<Tensor> {
            let x = x.to_dtype(DType::F64)?.unsqueeze(1)?;
            Ok(x.broadcast_mul(&lags)?)
        };
        let decay = self.root.to_dtype(DType::F64)?.sqr()?.neg()?;
        let (size, angle) = (times(&decay)?.exp()?, times(&self.angle)?);
        let re = (&size * angle.cos()?)?.to_dtype(dtype)?; // (N, taps)
        let im = (size * angle.sin()?)?.to_dtype(dtype)?;
        let (directions, dim, states) = self.weight[0].dims3()?;
        let rows = |x: &Tensor| x.reshape((directions * dim, states));
        let [w_re, w_im] = [rows(&self.weight[0])?, rows(&self.weight[1])?];
        let kernels = (exact_matmul(&w_re, &re)? - exact_matmul(&w_im, &im)?)?;
        let kernels: Vec<Tensor> = (0..directions)
            .map(|at| kernels.narrow(0, at * dim, dim))
            .collect::<candle_core::Result<_>>()?;
        Ok(Tensor::cat(&kernels, 1)?)
    }
}

impl Mixer for Dlr {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = pass.padded(x, |x, pass| {
            let (kernels, directions) = (self.kernels(x.dim(1)?)?, self.weight[0].dim(0)?);
            let x = zero_padding(x, pass.mask())?;
            convolve(&x, &kernels, directions, Some(&self.d))
        })?;
        self.output.forward(&y, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.weight[0].dims()[0] == 1
    }

    /// Counts the products with W and W_o, and transforms of twice the length.
    fn flops(&self, length: usize) -> u64 {
        let numbers = (length * self.d.elem_count()) as f64;
        let transforms = 2.0 * 5.0 * numbers * (2.0 * length as f64).log2();
        let kernels = 4 * length as u64 * self.weight[0].elem_count() as u64;
        kernels + transforms as u64 + self.output.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters, pass};

    fn mixer(parameters: &crate::Parameters, options: &Options) -> Dlr {
        let block = BlockOptions {
            dim: 3,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        Dlr::new(&layer, options).unwrap()
    }

    #[test]
    fn kernels_begin_as_sums_of_waves_that_die_away() {
        let options = Options {
            state: 5,
            dt_min: 0.02,
            dt_max: 0.02,
            ..Options::default()
        };
        let mixer = mixer(&parameters(), &options);
        let actual: Vec<Vec<f64>> = mixer.kernels(4).unwrap().to_vec2().unwrap();
        let [re, im] = [0, 1].map(|part| mixer.weight[part].to_vec3::<f64>().unwrap());
        for (direction, channel, lag) in [(0, 0, 0), (0, 2, 3), (1, 0, 1), (1, 1, 3)] {
            let term = |n: usize| {
                let angle = TAU * n as f64 / 5.0 * lag as f64;
                let size = (-0.01 * lag as f64).exp();
                let (re, im) = (re[direction][channel][n], im[direction][channel][n]);
                size * (re * angle.cos() - im * angle.sin())
            };
            let expected: f64 = (0..5).map(term).sum();
            assert!((actual[channel][direction * 4 + lag] - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        for direction in [Direction::Both, Direction::Forward] {
            let parameters = parameters();
            let options = Options {
                state: 4,
                direction,
                ..Options::default()
            };
            let mixer = mixer(&parameters, &options);
            check_layer("dlr", &parameters, &[2, 4, 3], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}
