//! H3. Fu, Dao, Saab, Thomas, Rudra, Ré, 2022, "Hungry Hungry Hippos: Towards Language Modeling
//! with State Space Models", arXiv:2212.14052.
//!     q, k, v = x W_q + b_q, x W_k + b_k, x W_v + b_v,  out = (q ⊙ (K * (k' ⊙ v) + D k' ⊙ v)) W_o + b_o,  k' = J * k + E k
//!     K_l = 2 Re Σ_m C_m B_m Δ / (1 - ΔA_m/2) λ_mˡ,  λ = (1 + ΔA/2) / (1 - ΔA/2),  J_l = Σ_n β_n γ_(n+l) for l < N
//! Linear attention whose sums over the past are two state spaces: one that shifts, J, which finds
//! what comes behind a key, and a diagonal one, K, which remembers. All * are causal. B batch, L
//! length, H width, N = `state`, M = N/2 modes, each for a pair of conjugates; x, q, k, v, out (B,
//! L, H); β, γ (H, N), E, D (H); A = -e^a + iω, B, C (H, M) complex, step Δ (H). Time O(L·log L),
//! memory O(L). Read in HazyResearch/safari@02220c6 src/models/sequence/h3.py, ssm/ss_kernel.py,
//! ss_kernel_diag.py (`disc` = bilinear) and ss_kernel_shift.py, and configs/model/layer/h3.yaml: N
//! = 64, ω = π m, a = ln ½, B = 1, both parts of C N(0, ½), Δ = e^δ, β one and then zeros, γ
//! uniform within N^-½, D and E N(0, 1); A, B, β and Δ do not decay; linear layers begin as
//! PyTorch's. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `state` N, an even number. δ is uniform between the logarithms of `dt_min` and `dt_max`.
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padded positions are zeros to both state spaces.
//!
//! # Departures
//!
//! Heads of more than one column (`head_dim`, 1 in the published layer) are left out, as are the
//! layers of softmax attention that the published language models have among these. A, B, β and Δ
//! have a rate of at most 0.001 in the published layer (h3.yaml); here they have that of the run,
//! where no group of `train.groups` says otherwise. The published language model begins all linear
//! weights again, N(0, 0.02²), those of the feed-forward network's second layer N(0, 0.02²/(2n))
//! for n layers, and their biases as 0 (src/models/sequence/long_conv_lm.py:113-142). Here those of
//! the layer begin uniform within inputs^-½ (±0.125 at D = 64) as in the layer alone, biases too,
//! and those of the feed-forward network Xavier-uniform (±0.177 at a width of 128) with biases N(0,
//! 1e-6²). The norms' ε is `block.norm_epsilon` = 1e-6, in the published code 1e-5
//! (src/models/sequence/long_conv_lm.py:88).

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::{convolve, step_size},
    ops::{Complex, Modes, StateSpaceOptions, irfft, rfft, state_space},
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "h3",
    title: "H3",
    paper: "Hungry Hungry Hippos: Towards Language Modeling with State Space Models",
    year: 2022,
    arxiv: "2212.14052",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("h3.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// N.
    #[option(default = 64, range = int(2, 4096))]
    state: usize,
    #[option(default = 0.001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        options.state.is_multiple_of(2),
        "model.state",
        options.state,
        "an even number, since modes stand for pairs",
    )?;
    step_size::check(options.dt_min, options.dt_max)?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(H3::new(layer, &options)?))
    })
}

struct H3 {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    shift: Shift,
    memory: Memory,
}

/// The state space that shifts.
struct Shift {
    /// β (H, N).
    b: Tensor,
    /// γ (H, N).
    c: Tensor,
    /// E (H).
    d: Tensor,
}

/// The diagonal state space.
struct Memory {
    /// δ (H).
    log_dt: Tensor,
    /// a (H, M).
    log_a_real: Tensor,
    /// ω (H, M).
    a_imag: Tensor,
    /// (H, M).
    b: Complex,
    /// (H, M).
    c: Complex,
    /// D (H).
    d: Tensor,
}

fn normal(variance: f64) -> Init {
    Init::Randn {
        mean: 0.0,
        stdev: variance.sqrt(),
    }
}

impl H3 {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let init = fan_in_uniform(dim);
        let linear = |name: &str| Linear::new(&vb.pp(name), dim, dim, init, Some(init));
        Ok(Self {
            query: linear("query")?,
            key: linear("key")?,
            value: linear("value")?,
            output: linear("output")?,
            shift: Shift::new(&vb.pp("shift"), dim, options.state)?,
            memory: Memory::new(&vb.pp("memory"), dim, options)?,
        })
    }
}

impl Shift {
    fn new(vb: &VarBuilder, dim: usize, state: usize) -> Result<Self> {
        let first = |_: &_| {
            let row = (0..state).map(|n| f64::from(u8::from(n == 0)));
            row.collect::<Vec<_>>().repeat(dim)
        };
        Ok(Self {
            b: vb.get_with_values((dim, state), "b", Attributes::NO_DECAY, first)?,
            c: vb.get_with_hints((dim, state), "c", fan_in_uniform(state))?,
            d: vb.get_with_hints(dim, "d", normal(1.0))?,
        })
    }

    /// Returns J (H, N).
    fn kernel(&self) -> Result<Tensor> {
        let state = self.b.dim(1)?;
        let spectrum = |x: &Tensor| rfft(&x.t()?.unsqueeze(0)?.contiguous()?, 2 * state);
        let (b, c) = (spectrum(&self.b)?, spectrum(&self.c)?);
        let product = c.mul(&Complex::new(b.re, b.im.neg()?))?;
        let taps = irfft(&product, 2 * state)?.narrow(1, 0, state)?;
        Ok(taps.squeeze(0)?.t()?.contiguous()?)
    }
}

impl Memory {
    fn new(vb: &VarBuilder, dim: usize, options: &Options) -> Result<Self> {
        let (modes, own) = (options.state / 2, Attributes::NO_DECAY);
        let constant =
            |name, value: f64| vb.get_with_attributes((dim, modes), name, Init::Const(value), own);
        let omega = |_: &_| {
            let row = (0..modes).map(|m| std::f64::consts::PI * m as f64);
            row.collect::<Vec<_>>().repeat(dim)
        };
        let bounds = step_size::log_uniform(options.dt_min, options.dt_max);
        let c = |name| vb.get_with_hints((dim, modes), name, normal(0.5));
        Ok(Self {
            log_dt: vb.get_with_attributes(dim, "log_dt", bounds, own)?,
            log_a_real: constant("log_a_real", 0.5f64.ln())?,
            a_imag: vb.get_with_values((dim, modes), "a_imag", own, omega)?,
            b: Complex::new(constant("b_real", 1.0)?, constant("b_imag", 0.0)?),
            c: Complex::new(c("c_real")?, c("c_imag")?),
            d: vb.get_with_hints(dim, "d", normal(1.0))?,
        })
    }

    /// Returns `taps` numbers of K, (H, taps).
    fn kernel(&self, taps: usize) -> Result<Tensor> {
        let half = self.log_dt.exp()?.affine(0.5, 0.0)?.unsqueeze(1)?; // (H, 1)
        let step = Complex::new(
            self.log_a_real.exp()?.neg()?.broadcast_mul(&half)?,
            self.a_imag.broadcast_mul(&half)?,
        );
        let below = step.affine(-1.0, 1.0)?;
        let a = step.affine(1.0, 1.0)?.div(&below)?;
        let scaled = |x: &Tensor| x.broadcast_mul(&half)?.affine(4.0, 0.0);
        let c = self.c.mul(&self.b)?.div(&below)?;
        let c = Complex::new(scaled(&c.re)?, scaled(&c.im)?);
        let (dtype, device) = (self.d.dtype(), self.d.device());
        let impulse = Tensor::ones((1, 1, self.d.elem_count()), dtype, device)?;
        let impulse = impulse.pad_with_zeros(1, 0, taps - 1)?;
        let modes = Modes::Complex { a, c };
        let answer = state_space(&impulse, &modes, None, StateSpaceOptions::default())?;
        Ok(answer.squeeze(0)?.t()?.contiguous()?)
    }
}

impl Mixer for H3 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let taps = x.dim(1)?;
        let k = zero_padding(&self.key.forward(x)?, pass.mask())?;
        let k = convolve(&k, &self.shift.kernel()?, 1, Some(&self.shift.d))?;
        let kv = zero_padding(&(k * self.value.forward(x)?)?, pass.mask())?;
        let y = convolve(&kv, &self.memory.kernel(taps)?, 1, Some(&self.memory.d))?;
        self.output.forward(&(y * self.query.forward(x)?)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    /// Counts the projections, and transforms of twice the length; not the kernels, which are made
    /// once for a batch.
    fn flops(&self, length: usize) -> u64 {
        let numbers = (length * self.memory.d.elem_count()) as f64;
        let transforms = 2.0 * 20.0 * numbers * (2.0 * length as f64).log2();
        let linears = [&self.query, &self.key, &self.value, &self.output];
        transforms as u64
            + linears
                .map(|linear| linear.flops(length))
                .iter()
                .sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters, pass};

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let options = Options {
            state: 4,
            ..Options::default()
        };
        let mixer = H3::new(&layer, &options).unwrap();
        check_layer("h3", &parameters, &[2, 4, 2], |x| mixer.forward(x, &pass()));
    }
}
