//! LSTM. Hochreiter & Schmidhuber, 1997, "Long Short-Term Memory", Neural Computation 9(8), with
//! the forget gate of Gers et al., 2000.
//!     [i | f | g | o] = W_x x_t + W_h h_(t-1) + b,  c_t = σ(f) ⊙ c_(t-1) + σ(i) ⊙ tanh(g),  h_t = σ(o) ⊙ tanh(c_t),  out = W_o h
//! B batch, L length, D width, D' inner width; x, out (B, L, D), i, f, g, o, c, h (B, L, D'), W_x
//! (4 D', D), W_h (4 D', D'), W_o (D, D') without a bias. `direction = both` (the default) has a
//! second recurrence from the end with weights of its own, and W_o (D, 2 D') reads both. Time
//! O(L·D'·(D + D')), one position after the other, memory O(L·D'). No feed-forward (`block.ffn` =
//! none). The order of gates and initial values, uniform within D'^-½, are those of torch.nn.LSTM,
//! which has two biases where their sum is here. It is the reference of what a state that is no
//! linear recurrence can do.
//!
//! # Options
//!
//! `width` D' (0: D); `direction` both or forward; `forget` (0) is added to b of the forget gate at
//! first, and 1 keeps states for longer.
//!
//! # Padding
//!
//! Padding leaves h and c as they were.
//!
//! # Departures
//!
//! The published layers have neither the residual nor the norm of the block around it.

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result, VarBuilder,
    context::{LayerContext, ModelContext},
    encoder,
    layers::{Direction, Linear},
    model::{Cost, Model, Reference, Variant},
    ops::lstm::{self, lstm},
    options::WIDEST,
    params::{Attributes, fan_in_uniform},
    rng::Stream,
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
    family: crate::Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("lstm.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// D'.
    #[option(range = int(0, WIDEST))]
    width: usize,
    #[option(default = Direction::Both)]
    direction: Direction,
    #[option(range = not_negative)]
    forget: f64,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    encoder::blocks(context, |at| Ok(Box::new(Lstm::new(at, &options)?)))
}

/// A recurrence in one direction.
struct Recurrence {
    /// W_x and b.
    input: Linear,
    /// W_h.
    weight: Tensor,
    width: usize,
}

impl Recurrence {
    fn new(vb: &VarBuilder, dim: usize, width: usize, forget: f64) -> Result<Self> {
        let bound = (width as f64).powf(-0.5);
        let init = fan_in_uniform(width);
        let input = vb.pp("input");
        let biases = |stream: &Stream| {
            let shares = stream.uniform(1, 4 * width).into_iter().enumerate();
            let number = |(place, share): (usize, f64)| {
                let more = if place / width == 1 { forget } else { 0.0 };
                (2.0 * share - 1.0) * bound + more
            };
            shares.map(number).collect()
        };
        input.get_with_values(4 * width, "bias", Attributes::of_rank(1), biases)?;
        Ok(Self {
            input: Linear::new(&input, dim, 4 * width, init, Some(Init::Const(0.0)))?,
            weight: vb.get_with_hints((4 * width, width), "weight", init)?,
            width,
        })
    }

    fn forward(&self, x: &Tensor, reverse: bool, pass: &Pass) -> Result<Tensor> {
        lstm(&self.input.forward(x)?, &self.weight, reverse, pass.mask())
    }

    fn flops(&self, length: usize) -> u64 {
        self.input.flops(length) + lstm::flops(length, self.width)
    }
}

struct Lstm {
    ahead: Recurrence,
    back: Option<Recurrence>,
    /// W_o.
    output: Linear,
}

impl Lstm {
    fn new(at: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&at.vb, at.block.dim);
        let width = if options.width == 0 {
            dim
        } else {
            options.width
        };
        let recurrence = |name: &str| Recurrence::new(&vb.pp(name), dim, width, options.forget);
        let both = options.direction == Direction::Both;
        let row = options.direction.count() * width;
        Ok(Self {
            ahead: recurrence("ahead")?,
            back: both.then(|| recurrence("back")).transpose()?,
            output: Linear::new(&vb.pp("output"), row, dim, fan_in_uniform(row), None)?,
        })
    }
}

impl Mixer for Lstm {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let ahead = self.ahead.forward(x, false, pass)?;
        let h = match &self.back {
            Some(back) => Tensor::cat(&[&ahead, &back.forward(x, true, pass)?], 2)?,
            None => ahead,
        };
        self.output.forward(&h)
    }

    fn is_causal(&self) -> bool {
        self.back.is_none()
    }

    fn flops(&self, length: usize) -> u64 {
        let back = self.back.as_ref().map_or(0, |back| back.flops(length));
        self.ahead.flops(length) + back + self.output.flops(length)
    }
}
