//! Mamba. Gu & Dao, 2023, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
//! arXiv:2312.00752.
//!     [u | z] = x W_in,  u ← SiLU(conv(u)),  [r | b | c] = u W_x,  δ = softplus(r W_δ + b_δ),  a = -exp(α)
//!     h_t = e^(δ_t a) h_(t-1) + δ_t b_t u_t,  y = (c·h + skip ⊙ u) ⊙ SiLU(z) W_out,  each of D' channels with N states of its own
//! B batch, L length, D width, D' = `expand` D, N states, R rank of the steps δ; x (B, L, D), u, z,
//! δ (B, L, D'), b, c (B, L, N), r (B, L, R), α (D', N), skip (D'), conv a depthwise causal
//! convolution of W taps. Everything is causal: a position sees only earlier ones. Time O(L·D'·(D +
//! N)), memory O(L·D'). The block has no feed-forward network (`block.ffn` = none): the mixer
//! replaces both sublayers. Real states that depend on the input do poorly on this benchmark,
//! according to published runs; this model is a control. At first α = ln 1 .. ln N and skip = 1,
//! both without weight decay; b_δ is softplus⁻¹ of log-uniform numbers between 0.001 and 0.1; W_δ
//! is uniform up to R^-½; all others start as PyTorch's layers do. Only conv and δ have a bias.
//!
//! # Options
//!
//! `state` N, `expand`, `taps` W, `rank` R (0: D / 16, rounded up). `direction`: `forward`; `sum`
//! adds a second pass from the end with the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! At padding, u = 0 before conv and δ = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! W_out begins uniform within inputs^-½ (±0.088 at D = 64); the published language model divides
//! that by the root of the number of layers (state-spaces/mamba@e9594ce
//! mamba_ssm/models/mixer_seq_simple.py:113-121).

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder::{Ways, blocks_both_ways},
    layers::{Linear, ShortConv},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        self,
        activation::{silu, softplus},
        columns,
    },
    options::WIDEST,
    params::{Attributes, fan_in_uniform, inverse_softplus_of_steps},
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "mamba",
    title: "Mamba",
    paper: "Mamba: Linear-Time Sequence Modeling with Selective State Spaces",
    year: 2023,
    arxiv: "2312.00752",
    time: Cost::Linear("O(L·D·N)"),
    memory: Cost::Linear("O(L·D)"),
    reference: Reference::Package,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"ffn": "none", "norm": "rms", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::paper(build, include_str!("mamba.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 16, range = int(1, 1024))]
    state: usize,
    #[option(default = 2, range = int(1, 64))]
    expand: usize,
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    #[option(range = int(0, WIDEST))]
    rank: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Mamba::new(layer, &options)?))
    })
}

struct Mamba {
    /// W_in.
    inner: Linear,
    conv: ShortConv,
    /// W_x.
    selection: Linear,
    /// W_δ and b_δ.
    step: Linear,
    /// α.
    a_log: Tensor,
    skip: Tensor,
    /// W_out.
    outer: Linear,
    /// D'.
    width: usize,
    /// R.
    rank: usize,
    /// N.
    state: usize,
}

impl Mamba {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let (width, state) = (options.expand * dim, options.state);
        let rank = match options.rank {
            0 => dim.div_ceil(16),
            rank => rank,
        };
        let linear = |name, inputs: usize, outputs| {
            Linear::new(&vb.pp(name), inputs, outputs, fan_in_uniform(inputs), None)
        };
        let biases = |stream: &Stream| inverse_softplus_of_steps(stream, width);
        let step = vb.pp("step");
        step.get_with_values(width, "bias", Attributes::NO_DECAY, biases)?;
        let logarithms = |_: &Stream| {
            let row = (1..=state).map(|n| (n as f64).ln());
            (0..width).flat_map(|_| row.clone()).collect()
        };
        Ok(Self {
            inner: linear("inner", dim, 2 * width)?,
            conv: ShortConv::new(&vb.pp("conv"), width, options.taps, true)?,
            selection: linear("selection", width, rank + 2 * state)?,
            step: Linear::new(
                &step,
                rank,
                width,
                fan_in_uniform(rank),
                Some(Init::Const(0.0)),
            )?,
            a_log: vb.get_with_values((width, state), "a_log", Attributes::NO_DECAY, logarithms)?,
            skip: vb.get_with_hints(width, "skip", Init::Const(1.0))?,
            outer: linear("outer", width, dim)?,
            width,
            rank,
            state,
        })
    }
}

impl Mixer for Mamba {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let both = self.inner.forward(x)?;
        let half = |start| columns(&both, start, self.width);
        let (u, z) = (half(0)?, half(self.width)?);
        let u = self.conv.forward(&u, pass)?;
        let selection = self.selection.forward(&u)?;
        let part = |start, width| columns(&selection, start, width);
        let projections = part(self.rank, 2 * self.state)?;
        let step = softplus(&self.step.forward(&part(0, self.rank)?)?)?;
        let step = zero_padding(&step, pass.mask())?;
        let a = self.a_log.exp()?.neg()?;
        let y = ops::selective_scan(&u, &step, &a, &projections, &self.skip)?;
        self.outer.forward(&(y * silu(&z)?)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.inner, &self.selection, &self.step, &self.outer];
        linears.map(|linear| linear.flops(length)).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Mask, Parameters, RngKey,
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &Parameters, dim: usize, options: &Options) -> Mamba {
        let block = BlockOptions {
            dim,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        Mamba::new(&layer, options).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    const SMALL: Options = Options {
        state: 3,
        expand: 2,
        taps: 2,
        rank: 1,
        direction: Ways::Forward,
    };

    #[test]
    fn steps_begin_between_a_thousandth_and_a_tenth() {
        let mixer = mixer(&parameters(), 64, &Options::default());
        let (_, bias) = mixer.step.operands();
        let steps = softplus(bias.unwrap()).unwrap().to_vec1::<f64>().unwrap();
        assert!(steps.iter().all(|step| (1e-3..=1e-1).contains(step)));
        let middle = steps.iter().map(|step| step.log10()).sum::<f64>() / 128.0;
        assert!((middle + 2.0).abs() < 0.2, "{middle}");
        let a: Vec<f64> = mixer
            .a_log
            .get(5)
            .unwrap()
            .exp()
            .unwrap()
            .to_vec1()
            .unwrap();
        assert!((a[15] - 16.0).abs() < 1e-9 && a.len() == 16);
    }

    #[test]
    fn a_position_sees_those_before_it_and_no_padding_between_them() {
        let parameters = parameters();
        let mixer = mixer(&parameters, 3, &SMALL);
        let x = normal("x", &[1, 7, 3]);
        let y = mixer.forward(&x, &pass()).unwrap();
        let first = mixer.forward(&x.narrow(1, 0, 4).unwrap(), &pass()).unwrap();
        close(&y.narrow(1, 0, 4).unwrap(), &first, 1e-12, "causal");
        // Padding at the end of a window of the convolution acts like zeros before a sequence.
        let valid = Tensor::new(&[[0.0, 0.0, 0.0, 1.0, 1.0, 1.0, 1.0f64]], &Device::Cpu);
        let mask = Mask::new(&valid.unwrap()).unwrap();
        let late = mixer.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
        let alone = mixer.forward(&x.narrow(1, 3, 4).unwrap(), &pass()).unwrap();
        close(&late.narrow(1, 3, 4).unwrap(), &alone, 1e-12, "padding");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = [[1.0; 4], [1.0, 1.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let parameters = parameters();
        let mixer = mixer(&parameters, 2, &SMALL);
        check_layer("mamba", &parameters, &[2, 4, 2], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }

    /// A layer as wide as that of the smallest published model, 768: 24 of them and an embedding of
    /// 50,280 ids are its 130 million.
    #[test]
    fn weights_are_as_many_as_in_the_published_model() {
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        mixer(&parameters, 768, &Options::default());
        let layer = parameters.elements() + 768;
        let all = 24 * layer + 50_280 * 768 + 768;
        assert_eq!(all, 129_135_360);
    }
}
