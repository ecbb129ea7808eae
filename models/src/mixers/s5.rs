//! S5. Smith, Warrington, Linderman, 2022, "Simplified State Space Layers for Sequence Modeling",
//! arXiv:2208.04933.
//!     h_t = Λ̄ h_{t-1} + B̄ x_t,  y_t = 2 Re(C [h_t; h'_t]) + D x_t,  Λ̄ = e^{ΔΛ}, B̄ = (Λ̄ - 1)/Λ · B;   z = dropout(f(y)),  out = z ⊙ σ(W z + b)
//! x, y, out (B, L, H), H the width; P states, shared by all channels: Λ (P), B (P, H), C (H, 2P)
//! complex, step Δ = e^δ (P), D (H), W (H, H). Each state represents a pair of conjugates. Time
//! O(L·P·H), memory O(L·P).
//!
//! # Options
//!
//! h' runs from the end (`direction = forward` leaves it out). Both directions include the position
//! itself. `state` is the paper's 2P (its P counts both). At first Λ holds the eigenvalues of
//! HiPPO-LegS in `blocks` blocks, those with negative imaginary part. B = V* B₀ and C = C₀ V in
//! their basis, B₀ and C₀ as given by `c_init` (`complex_normal`: C itself). δ is uniform between
//! the logarithms of `dt_min` and `dt_max`. `gate = half_linear`: y ⊙ σ(W z + b) (the code's
//! half_glu2), `full`: a ⊙ σ(g), [a, g] = W z + b, W (2H, H) (full_glu). `clip` keeps Re Λ below
//! -1e-4.
//!
//! # Padding
//!
//! Padded positions enter the states as zeros; the published code lets them in.
//!
//! # Departures
//!
//! The block has no feed-forward network. The published block has BatchNorm, no last norm
//! (`block.last_norm = false`), dropout tied over positions, and separate learning rates for Λ, B
//! and δ (`train.groups`). BatchNorm's ε is `block.norm_epsilon` = 1e-6 and its momentum
//! `block.norm_momentum` = 0.1; in the published code ε is 1e-5 and the momentum, in PyTorch's
//! meaning, 0.05, on Pathfinder and Path-X 0.1 (flax.linen.BatchNorm, lindermanlab/S5@3c18fdb
//! s5/layers.py:44-45; `bn_momentum`, run_train.py:61 and bin/run_experiments/run_lra_*.sh).
//! LayerNorm's ε is 1e-6 there, too. The output without a gate (`gelu`), the bilinear
//! discretization and a state without conjugates (`conj_sym` = False) are left out.

use crate::{
    hippo,
    layers::{Direction, GluOutput, OutputGate, OutputInit, step_size},
    ops::{Complex, SharedStates, shared_state_space},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "s5",
    title: "S5",
    paper: "Simplified State Space Layers for Sequence Modeling",
    year: 2022,
    arxiv: "2208.04933",
    time: Cost::Linear("O(L·P)"),
    memory: Cost::Linear("O(L·P)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::mixer::<S5>(include_str!("s5.rs"))],
    ..Model::mixer::<S5>()
};

/// Initial values of C.
#[allow(
    clippy::enum_variant_names,
    reason = "they are the names of the published code"
)]
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutputMatrix {
    /// C₀ truncated normal with variance 1/(H·state), as flax derives it from its shape.
    LecunNormal,
    /// C₀ truncated normal with variance 1/state.
    TruncStandardNormal,
    /// C normal, real and imaginary parts with variance 1/2.
    ComplexNormal,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 64, range = int(2, 4096))]
    state: usize,
    #[option(default = 4, range = int(1, 2048))]
    blocks: usize,
    #[option(default = Direction::Both)]
    direction: Direction,
    #[option(default = OutputGate::Half)]
    gate: OutputGate,
    #[option(default = OutputMatrix::LecunNormal)]
    c_init: OutputMatrix,
    #[option(default = 0.001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
    clip: bool,
}

struct S5 {
    /// Λ (P).
    lambda: Complex,
    /// (P, H).
    b: Complex,
    /// (H, P), or (H, 2P) with both directions.
    c: Complex,
    /// D (H).
    d: Tensor,
    /// δ (P).
    log_step: Tensor,
    output: GluOutput,
    clip: bool,
}

impl MixerModel for S5 {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        let Options { state, blocks, .. } = options;
        require(
            state.is_multiple_of(2 * blocks),
            "model.state",
            state,
            format!("a multiple of 2 model.blocks = {}", 2 * blocks),
        )?;
        step_size::check(options.dt_min, options.dt_max)?;
        require(
            state / blocks <= hippo::LARGEST,
            "model.blocks",
            blocks,
            format!(
                "at least {}, a block having at most {} states",
                state.div_ceil(hippo::LARGEST),
                hippo::LARGEST
            ),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let (all, size) = (options.state, options.state / options.blocks);
        let (states, half) = (all / 2, size / 2);
        let directions = options.direction.count();
        let basis = hippo::legs(size);
        let hippo::Legs { omega, vectors } = &*basis;
        // Block of state p, and index of its eigenvector in the block.
        let place = |p: usize| (p / half * size, p % half);
        let b = |part: usize| {
            let drawn = vb.stream("b").truncated_normal(1, all * dim);
            let scale = (all as f64).powf(-0.5);
            let element = |p: usize, h: usize| {
                let (first, m) = place(p);
                // V* is the conjugate, transposed.
                let terms = (0..size).map(|n| vectors[n][m][part] * drawn[(first + n) * dim + h]);
                terms.sum::<f64>() * if part == 0 { scale } else { -scale }
            };
            let elements = (0..states).flat_map(|p| (0..dim).map(move |h| (p, h)));
            elements.map(|(p, h)| element(p, h)).collect::<Vec<_>>()
        };
        let c = |part: usize| {
            let mut c = vec![0.0; dim * directions * states];
            for direction in 0..directions {
                let stream = vb.stream(&format!("c.{direction}"));
                let (drawn, scale) = match options.c_init {
                    OutputMatrix::ComplexNormal => (stream.normal(2, dim * states), 0.5f64.sqrt()),
                    OutputMatrix::LecunNormal => (
                        stream.truncated_normal(2, dim * all),
                        ((dim * all) as f64).powf(-0.5),
                    ),
                    OutputMatrix::TruncStandardNormal => (
                        stream.truncated_normal(2, dim * all),
                        (all as f64).powf(-0.5),
                    ),
                };
                let (re, im) = drawn.split_at(drawn.len() / 2);
                for (h, p) in (0..dim).flat_map(|h| (0..states).map(move |p| (h, p))) {
                    let element = if options.c_init == OutputMatrix::ComplexNormal {
                        [re, im][part][h * states + p]
                    } else {
                        let (first, m) = place(p);
                        let terms = (0..size).map(|n| {
                            let (v, layer) = (vectors[n][m], h * all + first + n);
                            let (x, y) = (re[layer], im[layer]);
                            [x * v[0] - y * v[1], x * v[1] + y * v[0]][part]
                        });
                        terms.sum()
                    };
                    c[(h * directions + direction) * states + p] = element * scale;
                }
            }
            c
        };
        let matrix =
            |name: &str, shape: (usize, usize), values: &dyn Fn() -> Vec<f64>, attributes| {
                vb.get_with_values(shape, name, attributes, |_| values())
            };
        let vector = |name: &str, values: Vec<f64>| {
            vb.get_with_values(states, name, Attributes::NO_DECAY, |_| values)
        };
        let (b_shape, c_shape) = ((states, dim), (dim, directions * states));
        Ok(Self {
            lambda: Complex::new(
                vector("lambda_re", vec![-0.5; states])?,
                vector("lambda_im", (0..states).map(|p| omega[p % half]).collect())?,
            ),
            b: Complex::new(
                matrix("b_re", b_shape, &|| b(0), Attributes::NO_DECAY)?,
                matrix("b_im", b_shape, &|| b(1), Attributes::NO_DECAY)?,
            ),
            c: Complex::new(
                matrix("c_re", c_shape, &|| c(0), Attributes::MATRIX)?,
                matrix("c_im", c_shape, &|| c(1), Attributes::MATRIX)?,
            ),
            d: vb.get_with_hints(
                dim,
                "d",
                Init::Randn {
                    mean: 0.0,
                    stdev: 1.0,
                },
            )?,
            log_step: vb.get_with_hints(
                states,
                "log_step",
                step_size::log_uniform(options.dt_min, options.dt_max),
            )?,
            output: GluOutput::new(vb, layer.block, options.gate, OutputInit::Flax)?,
            clip: options.clip,
        })
    }
}

impl Mixer for S5 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let u = zero_padding(x, pass.mask())?;
        let re = match self.clip {
            true => self.lambda.re.minimum(-1e-4)?,
            false => self.lambda.re.clone(),
        };
        let lambda = Complex::new(re, self.lambda.im.clone());
        let step = self.log_step.exp()?;
        let next = Complex::new((&lambda.re * &step)?, (&lambda.im * &step)?).exp()?;
        let enter = next.affine(1.0, -1.0)?.div(&lambda)?;
        let column = |x: &Tensor| x.unsqueeze(1);
        let b = Complex::new(column(&enter.re)?, column(&enter.im)?).mul(&self.b)?;
        let with = SharedStates {
            lambda: &next,
            b: &b,
            c: &self.c.affine(2.0, 0.0)?,
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
