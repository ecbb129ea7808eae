//! Diagonal state spaces. Gupta, Gu, Berant, 2022, "Diagonal State Spaces are as Effective as
//! Structured State Spaces", arXiv:2203.14343.
//!     K_l = Re Σ_m W_m/Λ_m softmax_l(Δ Λ_m l),  y_t = Σ_{j≤t} K_{t-j} x_j + Σ_{j>t} K'_{j-t-1} x_j + D x_t,   out = a ⊙ σ(g), [a, g] = W_o f(y) + b
//! l = 0 .. N-1 for the longest length N. x, y, out (B, L, H), H the width; Λ complex, M = `state`
//! numbers that all channels share, step Δ (H), W, W' (H, M) complex, D (H), W_o (2H, H). The sum
//! below the softmax is (e^{ΔΛN} - 1)/(e^{ΔΛ} - 1); 1/z is z̄/(|z|² + 1e-7). A mode whose Λ has a
//! positive real part grows, and its largest number is then its last. `kernel` = `exp`: K_l = Re
//! Σ_m W_m (e^{ΔΛ_m} - 1)/Λ_m e^{ΔΛ_m l} with a real part -e^a that stays negative. At first
//! `Λ = -½ + iω`, W N(0, 1) in each part, D N(0, 1). Time O(L·log L) and the kernel O(L·M) a channel
//! for a whole batch, memory O(L). Read in ag1988/dlr@580d854 src/models/sequence/ss/standalone/dss.py
//! (class DSSKernel) and configs/model/layer/dss.yaml: M = 64, Λ, W and Δ with the rate 1e-3 and
//! without weight decay; `version` = `exp` there, while the figures of ag1988/dss@777084e README.md
//! are of the softmax.
//!
//! # Options
//!
//! `kernel`: `softmax` or `exp`. `state` M. `init`: `skew`, ω the eigenvalues with positive
//! imaginary part of the skew part of HiPPO-LegS with 2 M states, or `lin`, ω_m = π m. Δ = e^δ, δ
//! uniform between the logarithms of `dt_min` and `dt_max`. `direction = forward` has no W'.
//!
//! # Padding
//!
//! Padded positions enter the kernels as zeros.
//!
//! # Departures
//!
//! The shift of the softmax over positions has a gradient here; the published code holds it
//! constant (ag1988/dlr@580d854:src/models/sequence/ss/standalone/dss.py:342-343), which matters
//! once a pole has grown past 0. The published code has no mask: padding, up to the longest
//! sequence of the batch, enters the kernels and is in BatchNorm's statistics (ag1988/dss@777084e
//! src/models/sequence/ss/s4.py, 102-125). The published softmax is over the padded length of the
//! batch, so that the kernel of a sequence depends on its batch; N is in its place here. In the
//! code of the softmax's figures each channel has two steps, alike at first, one for the real and
//! one for the imaginary part of Λ (`sep_dt_re_im`, ag1988/dss@777084e
//! configs/model/layer/dss.yaml:18; ag1988/dlr@580d854 has one); here it has one. By the
//! configurations of both for this benchmark the layer looks back only and has no gate, out = W_o
//! f(y) + b with W_o (H, H) (`bidirectional` and `postact`, lines 3 and 5); here there are two
//! directions, unless `direction = forward`, and a gate. The norms' ε is `block.norm_epsilon` =
//! 1e-6, in the published code 1e-5 (BatchNorm1d, which its configurations for this benchmark have,
//! src/models/nn/components.py:165).

use crate::{
    hippo,
    layers::{Direction, GluOutput, OutputGate, OutputInit, convolve, step_size},
    ops::{Complex, Modes, StateSpaceOptions, flip, state_space},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "dss",
    title: "DSS",
    paper: "Diagonal State Spaces are as Effective as Structured State Spaces",
    year: 2022,
    arxiv: "2203.14343",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<Dss>(include_str!("dss.rs"))],
    ..Model::mixer::<Dss>()
};

/// Forms of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kernel {
    Softmax,
    Exp,
}

/// Initial values of ω.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Start {
    Skew,
    Lin,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Kernel::Softmax)]
    kernel: Kernel,
    /// M.
    #[option(default = 64, range = int(1, 4096))]
    state: usize,
    #[option(default = Start::Skew)]
    init: Start,
    #[option(default = 0.001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
    #[option(default = Direction::Both)]
    direction: Direction,
}

struct Dss {
    kernel: Kernel,
    /// δ (H).
    log_dt: Tensor,
    /// Real part of Λ (M), or a.
    re: Tensor,
    /// Imaginary part of Λ (M).
    im: Tensor,
    /// Real and imaginary part of W of each direction, (directions, H, M).
    weight: [Tensor; 2],
    /// D (H).
    d: Tensor,
    /// N.
    longest: usize,
    output: GluOutput,
}

impl MixerModel for Dss {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        step_size::check(options.dt_min, options.dt_max)?;
        let most = hippo::LARGEST / 2;
        require(
            options.init == Start::Lin || options.state <= most,
            "model.state",
            options.state,
            format!("at most {most} for model.init = skew"),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, modes) = (&layer.vb, layer.block.dim, options.state);
        let own = Attributes::NO_DECAY;
        let (name, value) = match options.kernel {
            Kernel::Softmax => ("lambda_re", -0.5),
            Kernel::Exp => ("log_lambda_re", 0.5f64.ln()),
        };
        let omega = |_: &_| match options.init {
            Start::Skew => hippo::legs(2 * modes).omega[modes..].to_vec(),
            Start::Lin => (0..modes)
                .map(|m| std::f64::consts::PI * m as f64)
                .collect(),
        };
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let bounds = step_size::log_uniform(options.dt_min, options.dt_max);
        let shape = (options.direction.count(), dim, modes);
        let weight = |name| vb.get_with_attributes(shape, name, normal, own);
        Ok(Self {
            kernel: options.kernel,
            log_dt: vb.get_with_attributes(dim, "log_dt", bounds, own)?,
            re: vb.get_with_attributes(modes, name, Init::Const(value), own)?,
            im: vb.get_with_values(modes, "lambda_im", own, omega)?,
            weight: [weight("w_re")?, weight("w_im")?],
            d: vb.get_with_hints(dim, "d", normal)?,
            longest: layer.max_length,
            output: GluOutput::new(vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }
}

/// Added to |z|² in a reciprocal.
const EPSILON: f64 = 1e-7;

/// Returns the product of complex (H, M) with a real (M).
fn scaled(z: &Complex, factor: &Tensor) -> Result<Complex> {
    let part = |x: &Tensor| x.broadcast_mul(factor);
    Ok(Complex::new(part(&z.re)?, part(&z.im)?))
}

/// Returns the first `taps` numbers of Σ_m c_m a_mˡ, (taps, H), of a, c (H, M).
fn powers(a: &Complex, c: &Complex, taps: usize) -> Result<Tensor> {
    let impulse = Tensor::ones((1, 1, a.re.dim(0)?), a.re.dtype(), a.re.device())?;
    let impulse = impulse.pad_with_zeros(1, 0, taps - 1)?;
    let modes = Modes::Complex {
        a: a.clone(),
        c: c.clone(),
    };
    Ok(state_space(&impulse, &modes, None, StateSpaceOptions::default())?.squeeze(0)?)
}

impl Dss {
    /// Returns 1 of each mode that grows and 0 of all others, (M); none if none grows.
    fn growing(&self) -> Result<Option<Tensor>> {
        if self.kernel == Kernel::Exp {
            return Ok(None);
        }
        let grows = self.re.detach().gt(0.0)?.to_dtype(self.re.dtype())?;
        let any = grows.max_all()?.to_dtype(DType::F32)?.to_scalar::<f32>()? > 0.0;
        Ok(any.then_some(grows))
    }

    /// Returns `taps` numbers of the kernel of each direction, (H, directions · taps).
    fn kernels(&self, taps: usize) -> Result<Tensor> {
        let dtype = self.re.dtype();
        let double = |x: &Tensor| x.to_dtype(DType::F64);
        let growing = self.growing()?;
        let re = match self.kernel {
            Kernel::Softmax => double(&self.re)?,
            Kernel::Exp => double(&self.re)?.exp()?.neg()?,
        };
        let pole = Complex::new(re, double(&self.im)?); // (M)
        let dt = double(&self.log_dt)?.exp()?.unsqueeze(1)?; // (H, 1)
        let times = |x: &Tensor| dt.broadcast_mul(&x.unsqueeze(0)?);
        let step = Complex::new(times(&pole.re)?, times(&pole.im)?); // (H, M)
        // Growing modes are walked from their last number.
        let step = match &growing {
            Some(grows) => scaled(&step, &double(grows)?.affine(-2.0, 1.0)?)?,
            None => step,
        };
        let a = step.exp()?;
        let rise = a.affine(1.0, -1.0)?;
        let below = match self.kernel {
            Kernel::Softmax => {
                let last = step.affine(self.longest as f64, 0.0)?.exp()?;
                let last = last.affine(1.0, -1.0)?;
                let wide = |x: &Tensor| x.unsqueeze(0)?.broadcast_as(last.re.shape());
                last.mul(&Complex::new(wide(&pole.re)?, wide(&pole.im)?))?
            }
            Kernel::Exp => Complex::new(
                pole.re.unsqueeze(0)?.broadcast_as(a.re.shape())?,
                pole.im.unsqueeze(0)?.broadcast_as(a.re.shape())?,
            ),
        };
        let square = (below.re.sqr()? + below.im.sqr()?)?;
        let square = match self.kernel {
            Kernel::Softmax => square.affine(1.0, EPSILON)?,
            Kernel::Exp => square.maximum(EPSILON)?,
        };
        let inverse = square.recip()?;
        let inverse = Complex::new((&below.re * &inverse)?, (below.im.neg()? * inverse)?);
        let factor = rise.mul(&inverse)?;
        let single = |z: &Complex| -> Result<Complex> {
            Ok(Complex::new(z.re.to_dtype(dtype)?, z.im.to_dtype(dtype)?))
        };
        let (a, factor) = (single(&a)?, single(&factor)?);
        let kernel = |direction: usize| -> Result<Tensor> {
            let [re, im] = [0, 1].map(|part| self.weight[part].get(direction));
            let c = Complex::new(re?, im?).mul(&factor)?;
            let Some(grows) = &growing else {
                return Ok(powers(&a, &c, taps)?.t()?);
            };
            let falls = scaled(&c, &grows.affine(-1.0, 1.0)?)?;
            let last = powers(&a, &scaled(&c, grows)?, self.longest)?;
            let last = flip(&last.unsqueeze(0)?)?.squeeze(0)?.narrow(0, 0, taps)?;
            Ok((powers(&a, &falls, taps)? + last)?.t()?)
        };
        let directions = 0..self.weight[0].dim(0)?;
        let kernels: Vec<Tensor> = directions.map(kernel).collect::<Result<_>>()?;
        Ok(Tensor::cat(&kernels, 1)?)
    }
}

impl Mixer for Dss {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = pass.padded(x, |x, pass| {
            // A sequence longer than the longest has no view beyond it.
            let taps = x.dim(1)?.min(self.longest);
            let (kernels, directions) = (self.kernels(taps)?, self.weight[0].dim(0)?);
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

    /// Counts the product with W_o and transforms of twice the length; not the kernels, which are
    /// made once for a batch.
    fn flops(&self, length: usize) -> u64 {
        let numbers = (length * self.d.elem_count()) as f64;
        let transforms = 2.0 * 5.0 * numbers * (2.0 * length as f64).log2();
        transforms as u64 + self.output.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::testing::{check_layer, close, parameters, pass};

    fn mixer(parameters: &crate::Parameters, kernel: Kernel, modes: usize) -> Dss {
        let block = BlockOptions {
            dim: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 7);
        let options = Options {
            kernel,
            state: modes,
            ..Options::default()
        };
        Dss::new(&layer, &options).unwrap()
    }

    fn set(parameters: &crate::Parameters, path: &str, values: &[f64]) {
        let all = parameters.all();
        let (_, var) = all.iter().find(|(known, _)| known == path).unwrap();
        var.set(&Tensor::new(values, &Device::Cpu).unwrap())
            .unwrap();
    }

    #[test]
    fn a_softmax_over_lags_weighs_modes_that_grow_and_modes_that_fall() {
        let parameters = parameters();
        let mixer = mixer(&parameters, Kernel::Softmax, 3);
        set(&parameters, "lambda_re", &[-0.5, 0.8, 2.0]);
        set(&parameters, "lambda_im", &[1.5, -2.0, 30.0]);
        set(&parameters, "log_dt", &[0.2, -1.0]);
        let values = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        let [re, im] = [&mixer.re, &mixer.im].map(values);
        let (dt, w) = (
            values(&mixer.log_dt),
            [0, 1].map(|at| values(&mixer.weight[at])),
        );
        let mut expected = Vec::new();
        for (channel, dt) in dt.iter().enumerate() {
            for direction in 0..2 {
                for lag in 0..5 {
                    let term = |m: usize| {
                        let wave = |lag: usize| {
                            let step = dt.exp();
                            let size = (step * re[m] * (lag as f64 - 6.0)).exp();
                            let angle = step * im[m] * lag as f64;
                            [size * angle.cos(), size * angle.sin()]
                        };
                        let all = (0..7).map(wave);
                        let sum = all.fold([0.0; 2], |sum, x| [sum[0] + x[0], sum[1] + x[1]]);
                        let times = |a: [f64; 2], b: [f64; 2]| {
                            [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
                        };
                        let over = |a: [f64; 2], b: [f64; 2]| {
                            let square = b[0] * b[0] + b[1] * b[1];
                            times(a, [b[0] / square, -b[1] / square])
                        };
                        let at = (direction * 2 + channel) * 3 + m;
                        let scale = over([w[0][at], w[1][at]], [re[m], im[m]]);
                        times(scale, over(wave(lag), sum))[0]
                    };
                    expected.push((0..3).map(term).sum::<f64>());
                }
            }
        }
        let expected = Tensor::from_vec(expected, (2, 10), &Device::Cpu).unwrap();
        close(&mixer.kernels(5).unwrap(), &expected, 1e-6, "softmax");
    }

    #[test]
    fn gradients_agree_with_differences() {
        for (kernel, re) in [
            (Kernel::Softmax, [-0.5, -0.2]),
            (Kernel::Softmax, [-0.5, 0.9]),
            (Kernel::Exp, [0.1, -0.4]),
        ] {
            let parameters = parameters();
            let mixer = mixer(&parameters, kernel, 2);
            let name = match kernel {
                Kernel::Softmax => "lambda_re",
                Kernel::Exp => "log_lambda_re",
            };
            set(&parameters, name, &re);
            set(&parameters, "log_dt", &[0.2, -1.0]);
            check_layer("dss", &parameters, &[2, 4, 2], |x| {
                mixer.forward(x, &pass())
            });
        }
    }
}
