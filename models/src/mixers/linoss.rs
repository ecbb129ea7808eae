//! LinOSS. Rusch & Rus, 2024, "Oscillatory State-Space Models", arXiv:2410.03943.
//!     z' = -a ⊙ y + B x,  y' = z,  out = f(Re(C y) + d ⊙ x) and a gated linear layer;  a = max(0, α),  steps δ = σ(τ)
//!     `im`: z_t = s (z_(t-1) - δ a y_(t-1) + δ B x_t),  y_t = s (y_(t-1) + δ z_(t-1) + δ² B x_t),  s = 1 / (1 + δ² a)
//!     `imex`: z_t = z_(t-1) - δ a y_(t-1) + δ B x_t,  y_t = y_(t-1) + δ z_t
//! B batch, L length, H width; P = `state` oscillators with complex positions y and velocities z
//! (B, L, P), shared by all channels; α, τ (P) real, B (P, H), C (H, P) complex, d (H), x, out (B,
//! L, H). `im` forgets, `imex` keeps all energy. All is causal. Time O(L·P·H), memory O(L·P).
//! Equations and initial values were read in tk-rusch/linoss@83e6318 models/LinOSS.py: α and τ
//! uniform from 0 to 1, B and C, real and imaginary parts, uniform within H^-½ and P^-½, d normal.
//! The layer behind is (W₁ z + b₁) ⊙ σ(W₂ z + b₂) of z = dropout(f(y)), uniform within H^-½ as
//! Equinox has it; f is the block's. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `state` P; `scheme`: `im` or `imex`. `direction`: `forward`; `sum` adds a second pass from the
//! end with the same weights, `two` with weights of its own.
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
//! statistics.

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
    rng::Stream,
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
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// P.
    #[option(default = 64, range = int(1, 4096))]
    state: usize,
    scheme: Scheme,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Linoss::new(layer, &options)?))
    })
}

struct Linoss {
    /// α (P).
    stiffness: Tensor,
    /// τ (P).
    step: Tensor,
    /// (P, H).
    b: Complex,
    /// (H, P).
    c: Complex,
    /// d (H).
    d: Tensor,
    scheme: Scheme,
    output: GluOutput,
}

impl Linoss {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, states) = (&layer.vb, layer.block.dim, options.state);
        let shares = |name| {
            let values = |stream: &Stream| stream.uniform(1, states);
            vb.get_with_values(states, name, Attributes::NO_DECAY, values)
        };
        let matrix =
            |name, shape: (usize, usize)| vb.get_with_hints(shape, name, fan_in_uniform(shape.1));
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        let (inward, outward) = ((states, dim), (dim, states));
        Ok(Self {
            stiffness: shares("stiffness")?,
            step: shares("step")?,
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
        let (step, force) = (sigmoid(&self.step)?, relu(&self.stiffness, 0.0)?);
        let pull = (&step * &force)?; // δ a
        let turn = (&step * &pull)?; // δ² a
        let ones = step.ones_like()?;
        Ok(match self.scheme {
            Scheme::Im => {
                let s = (turn + 1.0)?.recip()?;
                let added = [(&s * &step)?, (&s * step.sqr()?)?];
                let matrix = [s.clone(), (&s * pull)?.neg()?, added[0].clone(), s];
                (matrix, added)
            }
            Scheme::Imex => {
                let matrix = [ones, pull.neg()?, step.clone(), turn.affine(-1.0, 1.0)?];
                (matrix, [step.clone(), step.sqr()?])
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
        let lost = determinants(Scheme::Im);
        assert!(lost.iter().all(|x| (0.5..1.0).contains(x)), "{lost:?}");
    }
}
