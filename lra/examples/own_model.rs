//! Neighbours: a model of your own, in a program of your own.
//!     y_i = W m_i + b,  m_i the mean of x_j over |i - j| ≤ r
//! x, y (B, L, D), W (D, D), b (D). Time O(L), memory O(L).
//!
//! # Options
//!
//! `reach` r.
//!
//! # Padding
//!
//! Padded positions count as zeros, and no output is read there.
//!
//! # Departures
//!
//! None known.
//!
//! # Use
//!
//! `cargo run --release --example own_model -- run --task listops --model neighbours --set
//! model.reach=4`

use std::process::ExitCode;

use lra::models::prelude::*;

/// Registry entry of the model.
const NEIGHBOURS: Model = Model {
    name: "neighbours",
    title: "Neighbours",
    paper: "none: an example",
    year: 2026,
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    variants: &[Variant::mixer::<Neighbours>(include_str!("own_model.rs"))],
    ..Model::mixer::<Neighbours>()
};

/// The keys under `model.`, with their defaults and ranges.
#[derive(Options, Serialize, Deserialize)]
#[options(crate = lra::models)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 2, range = int(1, 64))]
    reach: usize,
}

struct Neighbours {
    reach: usize,
    output: Linear,
}

impl MixerModel for Neighbours {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let dim = layer.block.dim;
        let (weight, bias) = (xavier_uniform(dim, dim), Some(Init::Const(0.0)));
        Ok(Self {
            reach: options.reach,
            output: Linear::new(&layer.vb.pp("output"), dim, dim, weight, bias)?,
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
    use lra::models::{conformance::CHECKS, testing};

    use super::*;

    #[test]
    fn gradients_are_difference_quotients() -> Result<()> {
        let parameters = testing::parameters();
        let block = BlockOptions {
            dim: 4,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let mixer = Neighbours::new(&layer, &Options::default())?;
        let pass = testing::pass();
        testing::check_layer("neighbours", &parameters, &[2, 5, 4], |x| {
            mixer.forward(x, &pass)
        });
        Ok(())
    }

    #[test]
    fn it_keeps_what_every_model_promises() {
        for promise in CHECKS {
            (promise.check)(&NEIGHBOURS);
        }
    }
}
