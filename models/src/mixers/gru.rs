//! GRU. Cho et al., 2014, "Learning Phrase Representations using RNN Encoder-Decoder for
//! Statistical Machine Translation", arXiv:1406.1078.
//!     h_t = (1 - z_t) n_t + z_t h_(t-1),  n_t = tanh(W_n x_t + b_n + r_t (R_n h_(t-1) + s_n)),  z and r_t = σ(W x_t + b + R h_(t-1) + s),  out = h
//! B batch, L length, D width; x, r, z, n, h, out (B, L, D), W and R (D, D) of each gate, b and s
//! (D). Gates read the state, so that no scan computes them: with `lstm` the reference for what
//! linear recurrences cannot track. All is causal. Time O(L·D²), one position after the other;
//! memory O(L·D). Order of gates, the place of r_t behind the product, the two biases and initial
//! values, uniform within D^-½, are those of PyTorch's GRU: torch.nn.GRU, torch/nn/modules/rnn.py.
//! The residual block around it, without a feed-forward network, is ours.
//!
//! # Options
//!
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padding leaves the states as they were.
//!
//! # Departures
//!
//! The paper multiplies h by r before the product with R_n; PyTorch behind it. In the authors' code
//! R begin orthogonal, W N(0, 0.01²) and biases as 0 (lisa-groundhog/GroundHog@4d2433b
//! experiments/nmt/state.py:115-122), and the maps of x to the two gates have none
//! (experiments/nmt/encdec.py:599, 605).

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::Recurrent,
    ops::Cell,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "gru",
    title: "GRU",
    paper: "Learning Phrase Representations using RNN Encoder-Decoder for Statistical Machine Translation",
    year: 2014,
    arxiv: "1406.1078",
    time: Cost::Linear("O(L·D)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("gru.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |at| {
        let dim = at.block.dim;
        let layer = Recurrent::new(&at.vb, Cell::Gru, dim, dim, (0, 0.0))?;
        Ok(Box::new(Gru(layer)))
    })
}

struct Gru(Recurrent);

impl Mixer for Gru {
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
