//! S4. Gu, Goel, Ré, 2022, "Efficiently Modeling Long Sequences with Structured State Spaces",
//! arXiv:2111.00396.
//!     x' = A x + B u, y = C x;  A = Λ - P P*,  Ā = (I - ΔA/2)⁻¹ (I + ΔA/2),  B̄ = (I - ΔA/2)⁻¹ Δ B,  K_l = C Ā^l B̄
//!     y_t = Σ_{j≤t} K_{t-j} x_j + Σ_{j>t} K'_{j-t-1} x_j + D x_t,  out = a ⊙ σ(g), [a, g] = W f(y) + b
//! States whose matrix is diagonal plus a product of rank 1. x, y, out (B, L, H), H the width; Λ =
//! -e^a + i ω, B, P (`n_ssm`, M) complex with M = N/2 modes, each for a pair of conjugates, N =
//! `state`; C, C' (H, M) complex, step Δ (H), D (H), W (2H, H). What is learned in place of C is C̃
//! = C (I - Ā^T) for the longest length T, since the spectrum of T numbers of K is then at each
//! root of unity e^{-iθ}, with s = sin θ/2 and c = cos θ/2,
//!     K̂ = e^{iθ/2} (T_CB - c T_CP T_BP / (1 + c T_PP)),  T_vw = Σ_m Δ v_m w_m / (2 i s - c Δ Λ_m) over both numbers of each pair,
//! where C is C̃ and a second factor P is P̄. At first Λ, P and B are those of HiPPO-LegS in the
//! basis of its eigenvectors, C is N(0, ½) in each part, D N(0, 1). Sums in f64. Time O(L·log L)
//! and the kernels O(T·N) a channel for a whole batch; memory O(L): the sums are computed again in
//! the backward pass. Read in state-spaces/s4@e757cef models/s4/s4.py (class SSMKernelDPLR; nplr)
//! and configs/experiment/lra/s4-*.yaml: Λ, B, P and mostly Δ with the rate 0.001 and without
//! weight decay, N = 4 on ListOps, Text and Retrieval and 64 on images.
//!
//! # Options
//!
//! `state` N. `init`: `legs`, with the imaginary part of B clipped to ±2 as by default in the
//! published code since March 2023, or `legs_unclipped` as in the paper. Δ = e^δ, δ uniform between
//! the logarithms of `dt_min` and `dt_max`. `n_ssm` sets of Λ, B and P are shared by the channels
//! in turn (0: one for each). `direction = forward` has no second kernel.
//!
//! # Padding
//!
//! Padded positions enter the kernels as zeros.
//!
//! # Departures
//!
//! Positions more than T apart do not see each other; the published code doubles T when a longer
//! sequence comes. The configurations for this benchmark have Δ = softplus(δ) (`dt_transform`).
//! Other first matrices (`fout`, `legt`) and corrections of rank 2 are left out. The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the published code 1e-5 (PyTorch's LayerNorm and BatchNorm1d,
//! src/models/nn/normalization.py:25-35). It drops elements a third time, before the activation
//! (src/models/functional/fftconv.py:79, 136).

use std::cell::OnceCell;

use crate::{
    hippo,
    layers::{Direction, LongConv, channels_of_sets, step_size},
    ops::{Complex, dplr_spectrum, irfft},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "s4",
    title: "S4",
    paper: "Efficiently Modeling Long Sequences with Structured State Spaces",
    year: 2022,
    arxiv: "2111.00396",
    time: Cost::Linear("O(L·(N + log L))"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<S4>(include_str!("s4.rs"))],
    ..Model::mixer::<S4>()
};

/// Initial values of B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Start {
    Legs,
    LegsUnclipped,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// N.
    #[option(default = 4, range = int(2, 256))]
    state: usize,
    #[option(default = Start::Legs)]
    init: Start,
    #[option(default = Direction::Both)]
    direction: Direction,
    #[option(default = 1, range = int(0, 1 << 20))]
    n_ssm: usize,
    #[option(default = 0.001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
}

struct S4 {
    /// δ (H).
    log_dt: Tensor,
    /// a (n_ssm, M).
    log_a_real: Tensor,
    /// ω (n_ssm, M).
    a_imag: Tensor,
    /// (n_ssm, M).
    b: Complex,
    /// (n_ssm, M).
    p: Complex,
    /// C̃ of each direction, (directions, H, M).
    c: Complex,
    filter: LongConv,
    /// T.
    longest: usize,
}

impl MixerModel for S4 {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        let dim = context.block.dim;
        require(
            options.state.is_multiple_of(2),
            "model.state",
            options.state,
            "an even number, since modes stand for pairs",
        )?;
        step_size::check(options.dt_min, options.dt_max)?;
        require(
            options.n_ssm == 0 || dim.is_multiple_of(options.n_ssm),
            "model.n_ssm",
            options.n_ssm,
            format!("0, or a divisor of block.dim = {dim}"),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, modes) = (&layer.vb, layer.block.dim, options.state / 2);
        let sets = match options.n_ssm {
            0 => dim,
            sets => sets,
        };
        let clip = (options.init == Start::Legs).then_some(hippo::LARGEST_B);
        let start = hippo::modes(options.state, clip);
        let own = Attributes::NO_DECAY;
        let repeated = |name: &str, values: &dyn Fn(usize) -> f64| {
            vb.get_with_values((sets, modes), name, own, |_| {
                (0..modes).map(values).collect::<Vec<_>>().repeat(sets)
            })
        };
        let complex = |[re, im]: [&str; 2], values: &[[f64; 2]]| -> Result<Complex> {
            let part = |name: &str, part: usize| repeated(name, &|m| values[m][part]);
            Ok(Complex::new(part(re, 0)?, part(im, 1)?))
        };
        let [least, most] = [options.dt_min, options.dt_max].map(f64::ln);
        let shares = vb.stream("log_dt").uniform(1, dim).into_iter();
        let log_dt: Vec<f64> = shares.map(|share| least + share * (most - least)).collect();
        let directions = options.direction.count();
        let longest = layer.max_length;
        let truncated = OnceCell::new();
        let c = |name, part: usize| {
            let all = || {
                let numbers = vb.stream("c").normal(2, directions * dim * modes);
                let (re, im) = numbers.split_at(directions * dim * modes);
                let scale = 0.5f64.sqrt();
                let drawn = re.iter().zip(im).map(|(re, im)| [re * scale, im * scale]);
                let drawn: Vec<[f64; 2]> = drawn.collect();
                let rows = drawn.chunks(modes).enumerate();
                let truncate = |(row, c)| truncate(c, &start, f64::exp(log_dt[row % dim]), longest);
                rows.flat_map(truncate).collect::<Vec<_>>()
            };
            vb.get_with_values((directions, dim, modes), name, Attributes::MATRIX, |_| {
                let all = truncated.get_or_init(all);
                all.iter().map(|c: &[f64; 2]| c[part]).collect()
            })
        };
        Ok(Self {
            log_a_real: repeated("log_a_real", &|_| 0.5f64.ln())?,
            a_imag: repeated("a_imag", &|m| start.omega[m])?,
            b: complex(["b_real", "b_imag"], &start.b)?,
            p: complex(["p_real", "p_imag"], &start.p)?,
            c: Complex::new(c("c_real", 0)?, c("c_imag", 1)?),
            log_dt: vb.get_with_values(dim, "log_dt", own, |_| log_dt.clone())?,
            filter: LongConv::new(layer, directions, true)?,
            longest,
        })
    }
}

/// Returns C̃ = C (I - Ā^T) of C (M) and a step Δ, by T products with Ā.
fn truncate(c: &[[f64; 2]], start: &hippo::Modes, dt: f64, longest: usize) -> Vec<[f64; 2]> {
    let mul = |a: [f64; 2], b: [f64; 2]| [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]];
    let half = 0.5 * dt;
    let pole = |m: usize| [-0.5 * half, start.omega[m] * half];
    let modes = 0..c.len();
    // 1 + ΔΛ/2, and the inverse of 1 - ΔΛ/2.
    let ahead: Vec<_> = modes
        .clone()
        .map(|m| [1.0 + pole(m)[0], pole(m)[1]])
        .collect();
    let inverse = |m: usize| {
        let below = [1.0 - pole(m)[0], -pole(m)[1]];
        let square = below[0].powi(2) + below[1].powi(2);
        [below[0] / square, -below[1] / square]
    };
    let inverse: Vec<_> = modes.clone().map(inverse).collect();
    // Σ over both numbers of each pair.
    let dot = |p: &[[f64; 2]], v: &[[f64; 2]]| -> f64 {
        let terms = p.iter().zip(v).map(|(p, v)| p[0] * v[0] - p[1] * v[1]);
        2.0 * terms.sum::<f64>()
    };
    // P̄ through the inverse, less what the product of rank 1 takes off.
    let conjugate = |m: usize| mul(inverse[m], [start.p[m][0], -start.p[m][1]]);
    let through: Vec<_> = modes.clone().map(conjugate).collect();
    let share = half / (1.0 + half * dot(&start.p, &through));
    let mut v = c.to_vec();
    for _ in 0..longest {
        let low = half * dot(&start.p, &v);
        for (m, v) in v.iter_mut().enumerate() {
            let p = start.p[m];
            let next = mul(ahead[m], *v);
            *v = mul(inverse[m], [next[0] - low * p[0], next[1] + low * p[1]]);
        }
        let low = share * dot(&start.p, &v);
        for (v, through) in v.iter_mut().zip(&through) {
            *v = [v[0] - low * through[0], v[1] - low * through[1]];
        }
    }
    let both = c.iter().zip(&v);
    both.map(|(c, v)| [c[0] - v[0], c[1] - v[1]]).collect()
}

impl S4 {
    /// Returns the kernel of each direction, (H, directions · T).
    fn kernels(&self) -> Result<Tensor> {
        let (directions, dim, _) = self.c.re.dims3()?;
        let double = |x: &Tensor| x.to_dtype(DType::F64);
        let all = |x: &Tensor| channels_of_sets(&double(x)?, dim);
        let both = |z: &Complex| -> Result<Complex> { Ok(Complex::new(all(&z.re)?, all(&z.im)?)) };
        let dt = double(&self.log_dt)?.exp()?.unsqueeze(1)?; // (H, 1)
        let times = |x: &Tensor| x.broadcast_mul(&dt);
        let (re, im) = (all(&self.log_a_real)?.exp()?.neg()?, all(&self.a_imag)?);
        let step = Complex::new(times(&re)?, times(&im)?); // (H, M)
        let (b, p) = (both(&self.b)?, both(&self.p)?);
        let conjugate = Complex::new(p.re.clone(), p.im.neg()?);
        let mut products = Vec::new();
        for input in [&b, &p] {
            for direction in 0..directions {
                let part = |x: &Tensor| double(&x.get(direction)?);
                let c = Complex::new(part(&self.c.re)?, part(&self.c.im)?);
                products.push(c.mul(input)?);
            }
        }
        products.push(b.mul(&conjugate)?);
        products.push(p.mul(&conjugate)?);
        // Twice the real parts of v and of v times the conjugate of the step.
        let mut rows = Vec::new();
        for v in &products {
            rows.push(times(&v.re)?.affine(2.0, 0.0)?);
        }
        for v in &products {
            let product = ((&v.re * &step.re)? + (&v.im * &step.im)?)?;
            rows.push(times(&product)?.affine(2.0, 0.0)?);
        }
        rows.push(step.re.affine(2.0, 0.0)?);
        rows.push((step.re.sqr()? + step.im.sqr()?)?);
        let rows = Tensor::stack(&rows, 1)?; // (H, .., M)
        let spectra = dplr_spectrum(&rows, directions, self.longest)?;
        let spectra = spectra.to_dtype(self.log_dt.dtype())?;
        // (H, 2 · directions, F) to (directions, F, H).
        let part = |from: usize| {
            spectra
                .narrow(1, from, directions)?
                .permute((1, 2, 0))?
                .contiguous()
        };
        let spectra = Complex::new(part(0)?, part(directions)?);
        let kernels = irfft(&spectra, self.longest)?; // (directions, T, H)
        Ok(kernels.permute((2, 0, 1))?.reshape((dim, ()))?)
    }
}

impl Mixer for S4 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.filter.forward(x, &self.kernels()?, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.filter.is_causal()
    }

    /// Counts the product with W and transforms of twice the length; not the kernels, which are
    /// made once for a batch.
    fn flops(&self, length: usize) -> u64 {
        self.filter.flops(length, self.log_dt.elem_count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters, pass};

    fn mixer(parameters: &crate::Parameters, options: &Options) -> S4 {
        let block = BlockOptions {
            dim: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 7);
        S4::new(&layer, options).unwrap()
    }

    fn mul(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
        [a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]]
    }

    /// Returns A x of half of the conjugate pairs.
    fn times(start: &hippo::Modes, x: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let terms = start
            .p
            .iter()
            .zip(x)
            .map(|(p, x)| p[0] * x[0] + p[1] * x[1]);
        let low = 2.0 * terms.sum::<f64>();
        let row = |(m, x): (usize, &[f64; 2])| {
            let y = mul([-0.5, start.omega[m]], *x);
            [y[0] - low * start.p[m][0], y[1] - low * start.p[m][1]]
        };
        x.iter().enumerate().map(row).collect()
    }

    /// Returns a + h b.
    fn sum(a: &[[f64; 2]], h: f64, b: &[[f64; 2]]) -> Vec<[f64; 2]> {
        let both = a.iter().zip(b);
        both.map(|(a, b)| [a[0] + h * b[0], a[1] + h * b[1]])
            .collect()
    }

    /// Checks that C̃, which is learned, gives the kernel of the C that it stands for.
    #[test]
    fn kernels_begin_as_impulse_responses() {
        let parameters = parameters();
        let options = Options {
            init: Start::LegsUnclipped,
            ..Options::default()
        };
        let mixer = mixer(&parameters, &options);
        let actual: Vec<Vec<f64>> = mixer.kernels().unwrap().to_vec2().unwrap();
        let log_dt: Vec<f64> = mixer.log_dt.to_vec1().unwrap();
        let start = hippo::modes(4, None);
        let numbers = parameters.builder().stream("c").normal(2, 8);
        for (channel, log_dt) in log_dt.iter().enumerate() {
            let half = 0.5 * log_dt.exp();
            // (1 - ΔA/2)⁻¹ r, a fixed point.
            let solved = |r: &[[f64; 2]]| {
                let step = |y: Vec<[f64; 2]>, _| sum(r, half, &times(&start, &y));
                (0..400).fold(r.to_vec(), step)
            };
            for direction in 0..2 {
                let at = 2 * (2 * direction + channel);
                let c =
                    |m: usize| [numbers[at + m], numbers[8 + at + m]].map(|c| c * 0.5f64.sqrt());
                let mut state = solved(&sum(&[[0.0; 2]; 2], 2.0 * half, &start.b));
                for lag in 0..7 {
                    let terms = state.iter().enumerate().map(|(m, x)| mul(c(m), *x)[0]);
                    let expected = 2.0 * terms.sum::<f64>();
                    let actual = actual[channel][7 * direction + lag];
                    assert!(
                        (actual - expected).abs() < 1e-9,
                        "{lag}: {actual} {expected}"
                    );
                    state = solved(&sum(&state, half, &times(&start, &state)));
                }
            }
        }
    }

    /// C Ā^T by T steps at once, and by two walks of half as many.
    #[test]
    fn c_is_truncated_for_the_longest_length() {
        let start = hippo::modes(4, None);
        let walked = |c: &[[f64; 2]], steps: usize| {
            let truncated = truncate(c, &start, 1e-3, steps);
            sum(c, -1.0, &truncated)
        };
        for half in [3, 700] {
            let c = [[0.3, -0.8], [1.1, 0.2]];
            let (once, twice) = (walked(&c, 2 * half), walked(&walked(&c, half), half));
            for (once, twice) in once.iter().zip(&twice) {
                let apart = (once[0] - twice[0]).hypot(once[1] - twice[1]);
                assert!(apart < 1e-9, "{half}: {once:?} {twice:?}");
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        for (direction, n_ssm, sets) in [(Direction::Both, 1, 1), (Direction::Forward, 0, 2)] {
            let parameters = parameters();
            let options = Options {
                direction,
                n_ssm,
                ..Options::default()
            };
            let mixer = mixer(&parameters, &options);
            assert_eq!(mixer.log_a_real.dims()[0], sets, "n_ssm = {n_ssm}");
            check_layer("s4", &parameters, &[2, 4, 2], |x| mixer.forward(x, &pass()));
        }
    }
}
