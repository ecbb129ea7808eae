//! S4D. Gu, Gupta, Goel, Ré, 2022, "On the Parameterization and Initialization of Diagonal State
//! Space Models", arXiv:2206.11893.
//!     K_l = 2 Re Σ_m C_m (e^{ΔA_m} - 1)/A_m · e^{ΔA_m l},  y_t = Σ_{j≤t} K_{t-j} x_j + Σ_{j>t} K'_{j-t-1} x_j + D x_t,  out = a ⊙ σ(g), [a, g] = W f(y) + b
//! x, y, out (B, L, H), H the width; A = -e^{a} + i·ω, C and C' (H, N/2) complex with m < N/2 (each
//! mode represents a pair of conjugates), step Δ (H), D (H), W (2H, H); N = `model.state`. C ~ N(0,
//! 1/2) in each part, times B if there is one. Time O(L·N) by a scan for up to 12 modes, O(L·log L)
//! by Fourier transforms for more (`compute` = `scan`, `fft`); memory O(L). The block has no
//! feed-forward network: norm, this mixer, dropout, residual (`block.ffn = none`).
//!
//! # Options
//!
//! The second kernel, with its own C', looks ahead and does not include the position itself;
//! `direction = forward` leaves it out. `init`: `lin` a = ln ½, ω = π m; `inv` ω = (N/π)(N/(2m+1) -
//! 1); `legs` the eigenvalues of HiPPO-LegS, whose B is folded into the initial C, with its
//! imaginary part clipped to ±2 as by default in state-spaces/s4 since March 2023 (`B_clip` in
//! src/models/hippo/hippo.py and src/models/sequence/kernels/dplr.py, commit e757cef);
//! `legs_unclipped` the same without the clip, as in the paper; `real` A = -(n+1), N modes and C ~
//! N(0, 2), without the factor 2. Δ = e^δ, δ uniform between the logarithms of `dt_min` and
//! `dt_max`. `n_ssm` sets of A are shared by the channels in turn (0: one for each). `taps` cuts
//! the kernels to K positions, to test how far a task needs to look. `state` is N; `frequency` is a
//! factor of ω at first, 3 and 5 in S4D-FT (Yu et al., 2024); `compute` is `auto`, which goes by
//! the number of modes, `scan` or `fft`.
//!
//! # Padding
//!
//! Padded positions enter the filter as zeros, so no position sees them. Their own outputs are the
//! tail of the filter, as published. `block.norm = batch` counts these outputs in its statistics,
//! with either way of computing the filter.
//!
//! # Departures
//!
//! The published code has BatchNorm (`block.norm = batch`), separate learning rates for a, ω and δ
//! (`train.groups`), and no positions. B is a parameter of its own there, 1 or HiPPO's at first
//! (src/models/sequence/kernels/ssm.py:532, 586), and the configurations have Δ = softplus(δ)
//! (`dt_transform`, configs/model/layer/s4.yaml:25); here B is folded into C and Δ = e^δ. With
//! `init = real` the published code has the factor 2 and C ~ N(0, 1/2) (kernels/ssm.py:182, 527,
//! and src/models/functional/vandermonde.py:45), which is the same filter at first. The norms' ε is
//! `block.norm_epsilon` = 1e-6, in state-spaces/s4 1e-5 (PyTorch's LayerNorm and BatchNorm1d,
//! src/models/nn/normalization.py:25-35). The published code drops elements a third time, before
//! the activation (src/models/functional/fftconv.py:79, 136).

use crate::{
    hippo,
    layers::{Direction, GluOutput, OutputGate, OutputInit, channels_of_sets, convolve, step_size},
    ops::{Complex, Modes, StateSpaceOptions, state_space, state_space_sum},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "s4d",
    title: "S4D",
    paper: "On the Parameterization and Initialization of Diagonal State Space Models",
    year: 2022,
    arxiv: "2206.11893",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<S4d>(include_str!("mod.rs"))],
    ..Model::mixer::<S4d>()
};

/// Initial values of A.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Start {
    Lin,
    Inv,
    Legs,
    LegsUnclipped,
    Real,
}

impl Start {
    /// Returns whether A has the eigenvalues of HiPPO-LegS.
    fn is_legs(self) -> bool {
        matches!(self, Self::Legs | Self::LegsUnclipped)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Compute {
    Auto,
    Scan,
    Fft,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// N.
    #[option(default = 4, range = int(1, 4096))]
    state: usize,
    #[option(default = Start::Lin)]
    init: Start,
    #[option(default = Direction::Both)]
    direction: Direction,
    #[option(default = 1, range = int(0, 1 << 20))]
    n_ssm: usize,
    #[option(default = 0.001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
    /// Factor of ω at first: 3 and 5 in S4D-FT (Yu et al., 2024).
    #[option(default = 1.0, range = positive(1e6))]
    frequency: f64,
    /// K; 0 for all.
    #[option(range = int(0, LONGEST))]
    taps: usize,
    #[option(default = Compute::Auto)]
    compute: Compute,
}

/// Number of complex modes up to which states are walked: the cost of a walk grows with the number
/// of modes, the cost of transforms does not.
const MOST_SCANNED: usize = 12;

struct S4d {
    /// δ (H).
    log_dt: Tensor,
    /// a (n_ssm, M), M modes.
    log_a_real: Tensor,
    /// ω (n_ssm, M); none for real modes.
    a_imag: Option<Tensor>,
    /// C of each direction, (directions, H, M); the imaginary part of complex ones.
    c: (Tensor, Option<Tensor>),
    /// D (H).
    d: Tensor,
    output: GluOutput,
    fft: bool,
    taps: usize,
}

impl MixerModel for S4d {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        let (even, dim) = (options.state.is_multiple_of(2), context.block.dim);
        require(
            even || options.init == Start::Real,
            "model.state",
            options.state,
            "an even number, since complex modes stand for pairs (init = real takes any)",
        )?;
        step_size::check(options.dt_min, options.dt_max)?;
        require(
            options.n_ssm == 0 || dim.is_multiple_of(options.n_ssm),
            "model.n_ssm",
            options.n_ssm,
            format!("0, or a divisor of block.dim = {dim}"),
        )?;
        require(
            !options.init.is_legs() || options.state <= hippo::LARGEST,
            "model.state",
            options.state,
            format!(
                "at most {} for model.init = legs and legs_unclipped",
                hippo::LARGEST
            ),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let real = options.init == Start::Real;
        let modes = options.state / if real { 1 } else { 2 };
        let sets = match options.n_ssm {
            0 => dim,
            sets => sets,
        };
        let start = start(options);
        let repeated = |values: &[f64]| values.repeat(sets);
        let directions = options.direction.count();
        let fixed = |name: &str, values: Vec<f64>| {
            vb.get_with_values((sets, modes), name, Attributes::NO_DECAY, |_| values)
        };
        let shape = (directions, dim, modes);
        // Complex C: real and imaginary part of N(0, 1/2) each, times B.
        let count = directions * dim * modes;
        let stream = vb.stream("c");
        let draw = |part: usize| {
            let numbers = stream.normal(2, count);
            let (re, im) = numbers.split_at(count);
            let element = |at: usize| {
                let (x, y) = (re[at] * 0.5f64.sqrt(), im[at] * 0.5f64.sqrt());
                let b = start.b[at % modes];
                [x * b[0] - y * b[1], x * b[1] + y * b[0]][part]
            };
            (0..count).map(element).collect()
        };
        let c = |name, part| vb.get_with_values(shape, name, Attributes::MATRIX, |_| draw(part));
        let normal = |stdev| Init::Randn { mean: 0.0, stdev };
        let bounds = step_size::log_uniform(options.dt_min, options.dt_max);
        let scanned = real || modes <= MOST_SCANNED;
        Ok(Self {
            log_dt: vb.get_with_attributes(dim, "log_dt", bounds, Attributes::NO_DECAY)?,
            log_a_real: fixed("log_a_real", repeated(&start.log_a_real))?,
            a_imag: match real {
                true => None,
                false => Some(fixed("a_imag", repeated(&start.a_imag))?),
            },
            c: match real {
                true => (
                    vb.get_with_attributes(shape, "c", normal(2f64.sqrt()), Attributes::MATRIX)?,
                    None,
                ),
                false => (c("c_real", 0)?, Some(c("c_imag", 1)?)),
            },
            d: vb.get_with_hints(dim, "d", normal(1.0))?,
            output: GluOutput::new(vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
            fft: match options.compute {
                Compute::Auto => !scanned,
                Compute::Scan => false,
                Compute::Fft => true,
            },
            taps: options.taps,
        })
    }
}

impl S4d {
    /// Returns e^{ΔA} (H, M) and the weights with which each direction reads the states.
    fn modes(&self) -> Result<Vec<Modes>> {
        let dt = self.log_dt.exp()?.unsqueeze(1)?; // (H, 1)
        let dim = self.log_dt.elem_count();
        let all = |x: &Tensor| channels_of_sets(x, dim);
        let decay = all(&self.log_a_real.exp()?.neg()?)?;
        let directions = 0..self.c.0.dim(0)?;
        let Some((a_imag, c_imag)) = self.a_imag.as_ref().zip(self.c.1.as_ref()) else {
            let a = decay.broadcast_mul(&dt)?.exp()?;
            let factor = ((&a - 1.0)? / decay)?;
            return directions
                .map(|of| {
                    let c = (self.c.0.get(of)? * &factor)?;
                    Ok(Modes::Real { a: a.clone(), c })
                })
                .collect();
        };
        let pole = Complex::new(decay, all(a_imag)?);
        let step = Complex::new(pole.re.broadcast_mul(&dt)?, pole.im.broadcast_mul(&dt)?);
        let a = step.exp()?;
        let factor = a.affine(1.0, -1.0)?.div(&pole)?.affine(2.0, 0.0)?;
        directions
            .map(|of| {
                let c = Complex::new(self.c.0.get(of)?, c_imag.get(of)?).mul(&factor)?;
                Ok(Modes::Complex { a: a.clone(), c })
            })
            .collect()
    }

    /// Returns the filters of u (B, L, H), and D u; positions that are 0 in `valid` count as zeros.
    fn filter(&self, u: &Tensor, pass: &Pass) -> Result<Tensor> {
        let modes = self.modes()?;
        if self.taps == 0 && !self.fft {
            let walks: Vec<_> = modes.iter().zip([FORWARD, AHEAD]).collect();
            return state_space_sum(u, &walks, Some(&self.d), pass.sequences());
        }
        pass.padded(u, |u, pass| self.convolve(u, &modes, pass))
    }

    /// Computes the same map as a convolution, in a pass over sequences that are not packed.
    fn convolve(&self, u: &Tensor, modes: &[Modes], pass: &Pass) -> Result<Tensor> {
        let length = u.dim(1)?;
        let u = &zero_padding(u, pass.mask())?;
        let taps = match self.taps {
            0 => length,
            taps => taps.min(length),
        };
        let impulse = Tensor::ones((1, 1, u.dim(2)?), u.dtype(), u.device())?;
        let impulse = impulse.pad_with_zeros(1, 0, taps - 1)?;
        let kernel = |modes: &Modes| {
            let answer = state_space(&impulse, modes, None, FORWARD)?;
            Ok::<_, Error>(answer.squeeze(0)?.t()?) // (H, taps)
        };
        let filters: Vec<Tensor> = modes.iter().map(kernel).collect::<Result<_>>()?;
        let kernel = Tensor::cat(&filters, 1)?;
        convolve(u, &kernel, filters.len(), Some(&self.d))
    }
}

const FORWARD: StateSpaceOptions = StateSpaceOptions {
    reverse: false,
    exclusive: false,
};
const AHEAD: StateSpaceOptions = StateSpaceOptions {
    reverse: true,
    exclusive: true,
};

impl Mixer for S4d {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = self.filter(x, pass)?;
        self.output.forward(&y, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.c.0.dims()[0] == 1
    }

    /// Counts the product with W and the filters: 8 operations a complex mode, or transforms of
    /// twice the length.
    fn flops(&self, length: usize) -> u64 {
        let (directions, dim, modes) = self.c.0.dims3().unwrap_or_default();
        let numbers = (length * dim) as f64;
        let filter = match self.fft {
            true => 2.0 * 5.0 * numbers * (2.0 * length as f64).log2(),
            false => 8.0 * numbers * (modes * directions) as f64,
        };
        filter as u64 + self.output.flops(length)
    }
}

/// Initial values of modes.
struct Modal {
    /// a (M).
    log_a_real: Vec<f64>,
    /// ω (M).
    a_imag: Vec<f64>,
    /// B (M), complex.
    b: Vec<[f64; 2]>,
}

fn start(options: &Options) -> Modal {
    use std::f64::consts::PI;
    let n = options.state;
    if options.init.is_legs() {
        let clip = (options.init == Start::Legs).then_some(hippo::LARGEST_B);
        return legs(n, options.frequency, clip);
    }
    let modes = if options.init == Start::Real {
        n
    } else {
        n / 2
    };
    let each = |f: &dyn Fn(f64) -> f64| (0..modes).map(|m| f(m as f64)).collect::<Vec<f64>>();
    let size = n as f64;
    let inverse = |m: f64| size / PI * (size / (2.0 * m + 1.0) - 1.0) * options.frequency;
    let (log_a_real, a_imag) = match options.init {
        Start::Real => (each(&|n| (n + 1.0).ln()), Vec::new()),
        Start::Inv => (each(&|_| 0.5f64.ln()), each(&inverse)),
        _ => {
            let linear = |m| PI * m * options.frequency;
            (each(&|_| 0.5f64.ln()), each(&linear))
        }
    };
    Modal {
        log_a_real,
        a_imag,
        b: vec![[1.0, 0.0]; modes],
    }
}

/// Returns the modes of HiPPO-LegS with positive ω, and B, its imaginary part within ±`clip`.
fn legs(size: usize, frequency: f64, clip: Option<f64>) -> Modal {
    let hippo::Modes { omega, b, .. } = hippo::modes(size, clip);
    Modal {
        log_a_real: vec![0.5f64.ln(); size / 2],
        a_imag: omega.iter().map(|omega| omega * frequency).collect(),
        b,
    }
}

#[cfg(test)]
mod tests;
