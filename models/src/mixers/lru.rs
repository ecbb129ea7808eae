//! LRU. Orvieto et al., 2023, "Resurrecting Recurrent Neural Networks for Long Sequences",
//! arXiv:2303.06349.
//!     h_t = λ ⊙ h_{t-1} + e^γ ⊙ (B x_t),  y_t = Re(C h_t) + D x_t,  λ = e^{-e^ν + i e^θ};   out = a ⊙ σ(g), [a, g] = W dropout(f(y)) + b
//! x, y, out (B, L, H), H the width; P = `state` complex states, shared by all channels: ν, θ, γ
//! (P), B (P, H), C (H, P), D (H), W (2H, H). B and C are normal; their real and imaginary parts
//! have variance 1/(2H) and 1/P. Time O(L·P·H), memory O(L·P).
//!
//! # Options
//!
//! At first |λ|² is uniform between `r_min`² and `r_max`², the phase is uniform between 0 and
//! `max_phase`, and γ = ln √(1 - |λ|²), which keeps the states at the size of a white-noise input.
//! `direction = both` adds states that run from the end, with their own C (H, 2P), as in S5.
//! `state` is P. `gate = half`: out = z ⊙ σ(W z + b) with z = dropout(f(y)) and W (H, H), as the
//! paper has on Path-X (appendix D.1: a GLU without one linear map, that of S5, which is
//! lindermanlab/S5@3c18fdb:s5/layers.py:72-75); `half_linear`: y in place of the first z.
//!
//! # Padding
//!
//! Padded positions enter the states as zeros.
//!
//! # Departures
//!
//! The block has no feed-forward network. The published block has BatchNorm and separate learning
//! rates for ν, θ, γ and B (`train.groups`). The authors released no code: the output begins as in
//! S5, LeCun-normal with zero biases. The norms' ε is `block.norm_epsilon` = 1e-6 and BatchNorm's
//! momentum `block.norm_momentum` = 0.1; a reproduction by others,
//! NicolasZucchet/minimal-LRU@bbd71b1, has flax's BatchNorm with 1e-5 and, in PyTorch's meaning,
//! 0.01 (lru/model.py:116).

use crate::{
    layers::{Direction, GluOutput, OutputGate, OutputInit},
    ops::{Complex, SharedStates, shared_state_space},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "lru",
    title: "LRU",
    paper: "Resurrecting Recurrent Neural Networks for Long Sequences",
    year: 2023,
    arxiv: "2303.06349",
    time: Cost::Linear("O(L·P)"),
    memory: Cost::Linear("O(L·P)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::mixer::<Lru>(include_str!("lru.rs"))],
    ..Model::mixer::<Lru>()
};

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// P.
    #[option(default = 64, range = int(1, 4096))]
    state: usize,
    #[option(default = Direction::Forward)]
    direction: Direction,
    #[option(range = probability)]
    r_min: f64,
    #[option(default = 0.99, range = positive(1.0))]
    r_max: f64,
    #[option(default = std::f64::consts::TAU, range = positive(7.0))]
    max_phase: f64,
    #[option(default = OutputGate::Full)]
    gate: OutputGate,
}

struct Lru {
    /// ν (P).
    nu_log: Tensor,
    /// θ (P).
    theta_log: Tensor,
    /// γ (P).
    gamma_log: Tensor,
    /// (P, H).
    b: Complex,
    /// (H, P), or (H, 2P) with both directions.
    c: Complex,
    /// D (H).
    d: Tensor,
    output: GluOutput,
}

impl MixerModel for Lru {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        require(
            options.r_min < options.r_max && options.r_max < 1.0,
            "model.r_max",
            options.r_max,
            format!("more than model.r_min = {} and less than 1", options.r_min),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, states) = (&layer.vb, layer.block.dim, options.state);
        let normal = |variance: f64| Init::Randn {
            mean: 0.0,
            stdev: variance.sqrt(),
        };
        let drawn = vb.stream("lambda").uniform(2, states);
        let (radii, phases) = drawn.split_at(states);
        let (least, most) = (options.r_min.powi(2), options.r_max.powi(2));
        // Not 0, of which there is no logarithm.
        let positive = |x: f64| x.max(1e-12);
        let squares = radii.iter().map(|u| positive(u * (most - least) + least));
        let squares: Vec<f64> = squares.collect();
        let vector = |name: &str, values: Vec<f64>| {
            vb.get_with_values(states, name, Attributes::NO_DECAY, |_| values)
        };
        let each = |f: &dyn Fn(f64) -> f64| squares.iter().map(|x| f(*x)).collect();
        let phase = |u: &f64| positive(u * options.max_phase).ln();
        let directions = options.direction.count();
        let b = |name| {
            let init = normal(0.5 / dim as f64);
            vb.get_with_attributes((states, dim), name, init, Attributes::NO_DECAY)
        };
        let c = |name| {
            let init = normal(1.0 / states as f64);
            vb.get_with_hints((dim, directions * states), name, init)
        };
        Ok(Self {
            nu_log: vector("nu_log", each(&|square| (-0.5 * square.ln()).ln()))?,
            theta_log: vector("theta_log", phases.iter().map(phase).collect())?,
            gamma_log: vector("gamma_log", each(&|square| 0.5 * (1.0 - square).ln()))?,
            b: Complex::new(b("b_re")?, b("b_im")?),
            c: Complex::new(c("c_re")?, c("c_im")?),
            d: vb.get_with_hints(dim, "d", normal(1.0))?,
            output: GluOutput::new(vb, layer.block, options.gate, OutputInit::Flax)?,
        })
    }
}

impl Mixer for Lru {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let u = zero_padding(x, pass.mask())?;
        let lambda = Complex::new(self.nu_log.exp()?.neg()?, self.theta_log.exp()?).exp()?;
        let scale = self.gamma_log.exp()?.unsqueeze(1)?;
        let scaled = |b: &Tensor| b.broadcast_mul(&scale);
        let b = Complex::new(scaled(&self.b.re)?, scaled(&self.b.im)?);
        let with = SharedStates {
            lambda: &lambda,
            b: &b,
            c: &self.c,
            d: &self.d,
        };
        let y = shared_state_space(&u, &with, pass.packing())?;
        self.output.forward(&y, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.c.re.dims()[1] == self.b.re.dims()[0]
    }

    fn flops(&self, length: usize) -> u64 {
        let matrices = self.b.re.elem_count() + self.c.re.elem_count();
        // Real and imaginary parts, a multiply-add being two.
        (4 * length * matrices) as u64 + self.output.flops(length)
    }
}
