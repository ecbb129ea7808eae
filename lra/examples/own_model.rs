//! Neighbours: a model of one's own, in a program of one's own.
//!     y_i = W m_i + b,  m_i the mean of x_j over |i - j| ≤ r
//! x, y (B, L, D), W (D, D), b (D), r = `model.reach`. Padded positions count as zeros, and nobody sees them. Time O(L), memory O(L).
//!
//! `cargo run --release --example own_model -- run --task listops --model neighbours --set model.reach=4`

use std::process::ExitCode;

use candle_core::Tensor;
use lra::models::{
    Cost, Encoder, Family, LayerContext, Mixer, Model, ModelContext, Pass, Reference, Result,
    Variant, encoder,
    layers::Linear,
    mask::zero_padding,
    options::{Range, to_json},
    params::xavier_uniform,
};
use serde::{Deserialize, Serialize};

/// Registry entry of the model.
const NEIGHBOURS: Model = Model {
    name: "neighbours",
    title: "Neighbours",
    paper: "none: an example",
    year: 2026,
    arxiv: "",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::None,
    family: Family::Xformer,
    settings: "",
    variants: &[Variant::paper(build, include_str!("own_model.rs"))],
    options: || to_json(&Options::default()),
    ranges: &[Range::int("reach", 1, 64)],
};

/// The keys under `model.`, with their defaults.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    reach: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { reach: 2 }
    }
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let Options { reach } = context.options()?;
    encoder::blocks(context, |at| Ok(Box::new(Neighbours::new(at, reach)?)))
}

struct Neighbours {
    reach: usize,
    output: Linear,
}

impl Neighbours {
    fn new(at: &LayerContext, reach: usize) -> Result<Self> {
        let dim = at.block.dim;
        let weight = xavier_uniform(dim, dim);
        let bias = Some(candle_nn::Init::Const(0.0));
        Ok(Self {
            reach,
            output: Linear::new(&at.vb.pp("output"), dim, dim, weight, bias)?,
        })
    }
}

impl Mixer for Neighbours {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let length = x.dim(1)?;
        let x = zero_padding(x, pass.mask())?.pad_with_zeros(1, self.reach, self.reach)?;
        let shifted = |by| x.narrow(1, by, length);
        let mut sum = shifted(0)?;
        for by in 1..=2 * self.reach {
            sum = (sum + shifted(by)?)?;
        }
        let mean = (sum / (2 * self.reach + 1) as f64)?;
        self.output.forward(&mean)
    }

    fn flops(&self, length: usize) -> u64 {
        self.output.flops(length)
    }
}

fn main() -> ExitCode {
    lra::main_of(lra::this_crate!(), &[&NEIGHBOURS])
}

#[cfg(test)]
mod tests {
    use lra::models::conformance::CHECKS;

    #[test]
    fn it_keeps_what_every_model_promises() {
        for promise in CHECKS {
            (promise.check)(&super::NEIGHBOURS);
        }
    }
}
