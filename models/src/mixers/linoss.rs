//! LinOSS. Rusch & Rus, 2024, "Oscillatory State-Space Models", arXiv:2410.03943.
//!     z' = -a ⊙ y + B x,  y' = z,  out = f(Re(C y) + d ⊙ x) and a gated linear layer;  a = max(0, α),  steps δ = σ(τ)
//!     `im`: z_t = s (z_(t-1) - δ a y_(t-1) + δ B x_t),  y_t = s (y_(t-1) + δ z_(t-1) + δ² B x_t),  s = 1 / (1 + δ² a)
//!     `imex`: z_t = z_(t-1) - δ a y_(t-1) + δ B x_t,  y_t = y_(t-1) + δ z_t
//!     `damped`: z_t = (z_(t-1) - δ a y_(t-1) + δ B x_t) / u,  y_t = y_(t-1) + δ z_t
//!         u = 1 + δ max(0, γ),  (√u - 1)²/δ² <= a <= (√u + 1)²/δ²
//! B batch, L length, H width; P = `state` oscillators with complex positions y and velocities z
//! (B, L, P), shared by all channels; α, τ (P) real, B (P, H), C (H, P) complex, d (H), x, out (B,
//! L, H). `im` forgets, `imex` keeps all energy, `damped` learns how much each oscillator loses:
//! D-LinOSS, Boyer, Rusch & Rus, 2025, "Learning to Dissipate Energy in Oscillatory State-Space
//! Models", arXiv:2505.12171, with γ (P), and α cut to the bounds of a, within which a step turns.
//! All is causal. Time O(L·P·H), memory O(L·P).
//! Equations and initial values were read in tk-rusch/linoss@83e6318 models/LinOSS.py: α and τ
//! uniform from 0 to 1, B and C, real and imaginary parts, uniform within H^-½ and P^-½, d normal.
//! The layer behind is (W₁ z + b₁) ⊙ σ(W₂ z + b₂) of z = dropout(f(y)), uniform within H^-½ as
//! Equinox has it; f is the block's. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `state` P; `scheme`: `im`, `imex` or `damped`. With `damped`, the eigenvalues of a step are
//! drawn evenly from the ring between `r_min` and `r_max`, with angles up to `theta_max`, and τ is
//! N(0, ½²); α and γ follow from them (jaredbmit/damped-linoss@450b546
//! src/damped_linoss/models/LinOSS.py, DampedIMEX1Layer, with the figures of
//! src/damped_linoss/scripts/create_experiment.py at 4c4f12d). `direction`: `forward`; `sum` adds a
//! second pass from the end with the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padded positions enter the states as zeros.
//!
//! # Departures
//!
//! The block has no feed-forward network. The published block has no last norm (`block.last_norm =
//! false`) and BatchNorm without gain and shift. That BatchNorm (tk-rusch/linoss@83e6318
//! models/LinOSS.py:191, equinox.nn.BatchNorm of equinox 0.11.4) normalises by the running
//! statistics in training, too, which begin with those of the first batch; ε is 1e-5 and the
//! momentum 0.01 in PyTorch's meaning (`momentum` = 0.99). Here ε is `block.norm_epsilon` = 1e-6,
//! the momentum `block.norm_momentum` = 0.1, and a batch in training is normalised by its own
//! statistics. With `damped`, the published bounds divide by at least 1e-6; here by δ².

use std::f64::consts::PI;

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::{GluOutput, OutputGate, OutputInit},
    ops::{
        Complex,
        activation::{relu, sigmoid},
        columns, linear, pair_scan,
    },
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "linoss",
    title: "LinOSS",
    paper: "Oscillatory State-Space Models",
    year: 2024,
    arxiv: "2410.03943",
    time: Cost::Linear("O(L·P)"),
    memory: Cost::Linear("O(L·P)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("linoss.rs"))],
    ..Model::with_options::<Options>()
};

/// The discretisation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Scheme {
    /// Implicit.
    #[default]
    Im,
    /// Implicit in the position, explicit in the velocity.
    Imex,
    /// As `imex`, with damping that is implicit in the velocity.
    Damped,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// P.
    #[option(default = 64, range = int(1, 4096))]
    state: usize,
    scheme: Scheme,
    /// Smallest size of an eigenvalue at first.
    #[option(default = 0.9, range = positive(1.0))]
    r_min: f64,
    /// Largest size of an eigenvalue at first.
    #[option(default = 1.0, range = positive(2.0))]
    r_max: f64,
    /// Largest angle of an eigenvalue at first.
    #[option(default = PI, range = positive(3.2))]
    theta_max: f64,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        options.r_min <= options.r_max && options.r_max <= 1.0,
        "model.r_max",
        options.r_max,
        format!("at least model.r_min = {} and at most 1", options.r_min),
    )?;
    let ring = |of: &Options| [of.r_min, of.r_max, of.theta_max];
    require(
        options.scheme == Scheme::Damped || ring(&options) == ring(&Options::default()),
        "model.scheme",
        to_json(&options.scheme),
        "damped with model.r_min, model.r_max or model.theta_max",
    )?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Linoss::new(layer, &options)?))
    })
}

struct Linoss {
    /// α (P).
    stiffness: Tensor,
    /// τ (P).
    step: Tensor,
    /// γ (P), of damped oscillators.
    damping: Option<Tensor>,
    /// (P, H).
    b: Complex,
    /// (H, P).
    c: Complex,
    /// d (H).
    d: Tensor,
    scheme: Scheme,
    output: GluOutput,
}

/// Initial values of the oscillators: α, τ and γ (P).
struct Oscillators {
    stiffness: Vec<f64>,
    step: Vec<f64>,
    damping: Vec<f64>,
}

impl Oscillators {
    /// Draws the eigenvalues r e^(±iθ) of the steps from a ring. A step has the determinant 1/u =
    /// r² and the trace 1/u + 1 - δ² a/u = 2 r cos θ.
    fn on_ring(vb: &VarBuilder, options: &Options) -> Self {
        let states = options.state;
        let drawn = |name| vb.stream(name).uniform(2, states);
        let (shares, normal) = (drawn("stiffness"), vb.stream("step").normal(1, states));
        let step: Vec<f64> = normal.iter().map(|x| 0.5 * x).collect();
        let (low, high) = (options.r_min.powi(2), options.r_max.powi(2));
        let one = |state: usize| {
            let delta = 1.0 / (1.0 + (-step[state]).exp());
            let r = (low + shares[state] * (high - low)).sqrt();
            let angle = shares[states + state] * options.theta_max;
            let stiffness = (1.0 - 2.0 * angle.cos() / r + 1.0 / (r * r)) / (delta * delta);
            (stiffness, (1.0 / (r * r) - 1.0) / delta)
        };
        let (stiffness, damping) = (0..states).map(one).unzip();
        Self {
            stiffness,
            step,
            damping,
        }
    }
}

impl Linoss {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, states) = (&layer.vb, layer.block.dim, options.state);
        let given = |name, values: Vec<f64>| {
            vb.get_with_values(states, name, Attributes::NO_DECAY, |_| values)
        };
        let oscillators = match options.scheme {
            Scheme::Damped => Oscillators::on_ring(vb, options),
            Scheme::Im | Scheme::Imex => {
                let shares = |name| vb.stream(name).uniform(1, states);
                Oscillators {
                    stiffness: shares("stiffness"),
                    step: shares("step"),
                    damping: Vec::new(),
                }
            }
        };
        let matrix =
            |name, shape: (usize, usize)| vb.get_with_hints(shape, name, fan_in_uniform(shape.1));
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let (inward, outward) = ((states, dim), (dim, states));
        Ok(Self {
            stiffness: given("stiffness", oscillators.stiffness)?,
            step: given("step", oscillators.step)?,
            damping: match options.scheme {
                Scheme::Damped => Some(given("damping", oscillators.damping)?),
                Scheme::Im | Scheme::Imex => None,
            },
            b: Complex::new(matrix("b_re", inward)?, matrix("b_im", inward)?),
            c: Complex::new(matrix("c_re", outward)?, matrix("c_im", outward)?),
            d: vb.get_with_hints(dim, "d", normal)?,
            scheme: options.scheme,
            output: GluOutput::new(vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }

    /// Returns the matrix of a step (4, P), rows zz, zy, yz, yy, and what an input adds to z and to
    /// y (P).
    fn steps(&self) -> Result<([Tensor; 4], [Tensor; 2])> {
        let step = sigmoid(&self.step)?;
        let ones = step.ones_like()?;
        let u = match &self.damping {
            Some(damping) => ((relu(damping, 0.0)? * &step)? + 1.0)?,
            None => ones.clone(),
        };
        let force = match self.scheme {
            Scheme::Im | Scheme::Imex => relu(&self.stiffness, 0.0)?,
            Scheme::Damped => {
                let bound = |sign: f64| u.sqrt()?.affine(1.0, sign)?.sqr()? / step.sqr()?;
                let (least, most) = (bound(-1.0)?, bound(1.0)?);
                let above = |bound: &Tensor| relu(&(&self.stiffness - bound)?, 0.0);
                ((&least + above(&least)?)? - above(&most)?)?
            }
        };
        let pull = (&step * &force)?; // δ a
        let turn = (&step * &pull)?; // δ² a
        Ok(match self.scheme {
            Scheme::Im => {
                let s = (turn + 1.0)?.recip()?;
                let added = [(&s * &step)?, (&s * step.sqr()?)?];
                let matrix = [s.clone(), (&s * pull)?.neg()?, added[0].clone(), s];
                (matrix, added)
            }
            Scheme::Imex | Scheme::Damped => {
                let added = [(&step / &u)?, (step.sqr()? / &u)?];
                let [slowed, turned] = [(pull / &u)?.neg()?, (&ones - (turn / &u)?)?];
                let matrix = [u.recip()?, slowed, added[0].clone(), turned];
                (matrix, added)
            }
        })
    }

    /// Returns Re(C y) + d ⊙ x (B, L, H).
    fn oscillate(&self, x: &Tensor) -> Result<Tensor> {
        let (matrix, [to_z, to_y]) = self.steps()?;
        // Real and imaginary parts are oscillators of their own.
        let twice = |x: &Tensor| Tensor::cat(&[x, x], 0);
        let rows = matrix
            .iter()
            .map(twice)
            .collect::<candle_core::Result<Vec<_>>>()?;
        let input = linear(x, &Tensor::cat(&[&self.b.re, &self.b.im], 0)?, None)?;
        let added = [to_z, to_y].map(|to| twice(&to).and_then(|to| input.broadcast_mul(&to)));
        let [to_z, to_y] = added;
        let pairs = pair_scan(&cat(&[&to_z?, &to_y?], 2)?, &Tensor::stack(&rows, 0)?)?;
        let planes = 2 * self.step.elem_count();
        let y = columns(&pairs, planes, planes)?;
        let c = Tensor::cat(&[&self.c.re, &self.c.im.neg()?], 1)?;
        Ok((linear(&y, &c, None)? + x.broadcast_mul(&self.d)?)?)
    }
}

impl Mixer for Linoss {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = zero_padding(x, pass.mask())?;
        self.output.forward(&self.oscillate(&x)?, pass)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let matrices = self.b.re.elem_count() + self.c.re.elem_count();
        // Real and imaginary parts, a multiply-add being two.
        (4 * length * matrices) as u64 + self.output.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parameters;

    /// Returns the determinant of each oscillator's step.
    fn determinants(scheme: Scheme) -> Vec<f64> {
        let (parameters, block) = (parameters(), BlockOptions::default());
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let options = Options {
            scheme,
            ..Options::default()
        };
        let ([zz, zy, yz, yy], _) = Linoss::new(&layer, &options).unwrap().steps().unwrap();
        let product = |a: Tensor, b: Tensor| (a * b).unwrap();
        let all = (product(zz, yy) - product(zy, yz)).unwrap();
        all.to_vec1().unwrap()
    }

    #[test]
    fn one_scheme_keeps_energy_and_the_other_loses_some() {
        let kept = determinants(Scheme::Imex);
        assert!(kept.iter().all(|x| (x - 1.0).abs() < 1e-12), "{kept:?}");
        // r² between 0.9² and 1.
        let damped = determinants(Scheme::Damped);
        assert!(
            damped.iter().all(|x| (0.8099..1.0001).contains(x)),
            "{damped:?}"
        );
        let lost = determinants(Scheme::Im);
        assert!(lost.iter().all(|x| (0.5..1.0).contains(x)), "{lost:?}");
    }
}
