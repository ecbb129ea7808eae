//! LSTM. Hochreiter & Schmidhuber, 1997, "Long Short-Term Memory", Neural Computation 9(8).
//!     c_t = σ(f_t) c_(t-1) + σ(i_t) tanh(g_t),  h_t = σ(o_t) tanh(c_t),  [i | f | g | o]_t = W x_t + b + R h_(t-1) + r,  out = h
//! B batch, L length, D width; x, h, out (B, L, D), c, i, f, g, o (B, L, D), W and R (4 D, D), b
//! and r (4 D). With the forget gate of Gers et al., 2000. Gates read the state, so that no scan
//! computes them: with `gru` the reference for what linear recurrences cannot track. All is causal.
//! Time O(L·D²), one position after the other; memory O(L·D). Order of gates, the two biases and
//! initial values, uniform within D^-½, are those of PyTorch's LSTM: torch.nn.LSTM,
//! torch/nn/modules/rnn.py, reset_parameters. The residual block around it, without a feed-forward
//! network, is ours.
//!
//! # Options
//!
//! `forget_bias` (0, as in PyTorch): number added to the biases b of f at first. `direction`:
//! `forward`; `sum` adds a second pass from the end with the same weights, `two` with weights of
//! its own.
//!
//! # Padding
//!
//! Padding leaves the states as they were.
//!
//! # Departures
//!
//! No public code of the authors was found.

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::Recurrent,
    ops::Cell,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "lstm",
    title: "LSTM",
    paper: "Long Short-Term Memory",
    year: 1997,
    arxiv: "",
    time: Cost::Linear("O(L·D)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("lstm.rs"))],
    ..Model::with_options::<Options>()
};

/// Number of gate f.
const FORGET: usize = 1;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = not_negative)]
    forget_bias: f64,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |at| {
        let (dim, start) = (at.block.dim, (FORGET, options.forget_bias));
        let layer = Recurrent::new(&at.vb, Cell::Lstm, dim, dim, start)?;
        Ok(Box::new(Lstm(layer)))
    })
}

struct Lstm(Recurrent);

impl Mixer for Lstm {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.0.forward(x, pass)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        self.0.flops(length)
    }
}
