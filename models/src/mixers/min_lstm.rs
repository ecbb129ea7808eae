//! minLSTM. Feng et al., 2024, "Were RNNs All We Needed?", arXiv:2410.01201.
//!     h_t = f'_t ⊙ h_(t-1) + i'_t ⊙ g(u_t),  f' = f / (f + i),  i' = i / (f + i),  f = σ(x W_f + b_f),  i = σ(x W_i + b_i),  u = x W_u,  out = h W_o
//! B batch, L length, D width, D' inner width; x, out (B, L, D), f, i, u, h (B, L, D'); g(u) = u +
//! ½ for u ≥ 0 and σ(u) below. Gates depend on no state and f' + i' = 1, so that states are
//! averages of positive numbers, and a scan over the length computes them. All is causal. Time and
//! memory O(L·D'). The equations, the inner width and the absence of other biases were read in
//! lucidrains/minGRU-pytorch@38b26e1 minGRU_pytorch/minLSTM.py and minLM.py. Weights begin uniform
//! within inputs^-½. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `width` D' (0: 3/2 D, rounded up); `memory` τ (0): b_f = -b_i start such that states average
//! over 1 to τ positions, evenly in the logarithm; 0 starts with 0, an average over two positions.
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padding has i' = 0 and f' = 1, so states pass through unchanged.
//!
//! # Departures
//!
//! The package minGRU-pytorch has no b_f and b_i, and rounds the inner width down. Its convolution
//! before the layer, off by default, is left out. The feed-forward network begins Xavier-uniform
//! (±0.177 at D = 64 and a width of 128) with biases N(0, 1e-6²); there uniform within inputs^-½
//! (±0.125 and ±0.088), biases too (minLM.py:19-23). The package's norms have the ε of
//! torch.nn.RMSNorm, 1.2e-7 in 32 bits (minLM.py:67), here `block.norm_epsilon` = 1e-6. In the
//! authors' code (BorealisAI/minRNNs@ff52e9d models/minRNNs.py, class minLSTM) all four linear maps
//! have biases, which begin uniform within inputs^-½, too, b_f with `forget_bias_init_scale` more;
//! gates are divided by their sum only where `use_coeff_norm` asks for it, and states may begin
//! from g of a learned vector, N(0, 1) at first.

use super::min_gru::{closed, positive};
use crate::{
    encoder::{Ways, blocks_both_ways},
    ops::{
        ScanOptions,
        activation::{sigmoid, softplus},
        scan_packed,
    },
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "min_lstm",
    title: "minLSTM",
    paper: "Were RNNs All We Needed?",
    year: 2024,
    arxiv: "2410.01201",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"norm": "rms"}}"#,
    variants: &[Variant::paper(build, include_str!("min_lstm.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// D'.
    #[option(range = int(0, WIDEST))]
    width: usize,
    /// τ.
    #[option(range = not_negative)]
    memory: f64,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(MinLstm::new(layer, &options)?))
    })
}

struct MinLstm {
    /// W_u.
    inner: Linear,
    /// W_f and b_f.
    forget: Linear,
    /// W_i and b_i.
    input: Linear,
    /// W_o.
    outer: Linear,
}

impl MinLstm {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let width = match options.width {
            0 => (3 * dim).div_ceil(2),
            width => width,
        };
        // i' = σ(b_i) where b_f = -b_i.
        let biases = closed(&vb.stream("memory"), width, options.memory);
        let gate = |name: &str, sign: f64| {
            let vb = vb.pp(name);
            let biases = biases.iter().map(|bias| sign * bias).collect();
            vb.get_with_values(width, "bias", Attributes::NO_DECAY, |_| biases)?;
            Linear::new(&vb, dim, width, fan_in_uniform(dim), Some(Init::Const(0.0)))
        };
        Ok(Self {
            inner: Linear::new(&vb.pp("inner"), dim, width, fan_in_uniform(dim), None)?,
            forget: gate("forget", -1.0)?,
            input: gate("input", 1.0)?,
            outer: Linear::new(&vb.pp("outer"), width, dim, fan_in_uniform(width), None)?,
        })
    }

    /// Returns i' (B, L, D').
    fn share(&self, x: &Tensor) -> Result<Tensor> {
        // ln σ(z) = -softplus(-z), and i / (f + i) = σ(ln i - ln f).
        let [forget, input] = [&self.forget, &self.input]
            .map(|gate| -> Result<Tensor> { softplus(&gate.forward(x)?.neg()?) });
        sigmoid(&(forget? - input?)?)
    }
}

impl Mixer for MinLstm {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let share = zero_padding(&self.share(x)?, pass.mask())?;
        let input = (&share * positive(&self.inner.forward(x)?)?)?;
        let kept = share.affine(-1.0, 1.0)?;
        let h = scan_packed(&input, &kept, ScanOptions::default(), pass.packing())?;
        self.outer.forward(&h)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.inner, &self.forget, &self.input, &self.outer];
        linears.map(|linear| linear.flops(length)).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Parameters,
        testing::{close, normal, parameters},
    };

    #[test]
    fn gates_begin_with_the_memory_that_is_asked_for() {
        let block = BlockOptions {
            dim: 64,
            ..BlockOptions::default()
        };
        for (memory, range) in [(0.0, 0.499..0.501), (1000.0, 0.00099..1.0)] {
            let parameters = parameters();
            let layer = LayerContext::new(parameters.builder(), &block, 9);
            let options = Options {
                memory,
                ..Options::default()
            };
            let mixer = MinLstm::new(&layer, &options).unwrap();
            let x = normal("x", &[1, 1, 64]).zeros_like().unwrap();
            let shares = mixer.share(&x).unwrap().flatten_all().unwrap();
            let shares: Vec<f64> = shares.to_vec1().unwrap();
            assert!(shares.len() == 96 && shares.iter().all(|share| range.contains(share)));
            let long = shares.iter().filter(|share| **share < 1.0 / 31.6).count();
            assert_eq!(long > 30, memory > 0.0, "half of them beyond the root");
        }
    }

    #[test]
    fn shares_are_those_of_the_two_gates() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 6,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mixer = MinLstm::new(&layer, &Options::default()).unwrap();
        let x = normal("x", &[2, 3, 6]);
        let gate = |linear: &Linear| sigmoid(&linear.forward(&x).unwrap()).unwrap();
        let (forget, input) = (gate(&mixer.forget), gate(&mixer.input));
        let expected = (&input / (&forget + &input).unwrap()).unwrap();
        close(&mixer.share(&x).unwrap(), &expected, 1e-12, "i'");
    }

    /// σ(-200) is 0 in f32.
    #[test]
    fn closed_gates_share_by_their_logarithms() {
        let parameters = Parameters::new(3, &Device::Cpu, DType::F32);
        let block = BlockOptions {
            dim: 6,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mixer = MinLstm::new(&layer, &Options::default()).unwrap();
        for (path, var) in parameters.all() {
            let logit = match path.as_str() {
                "forget.bias" => -200.0,
                "input.bias" => -201.0,
                _ => continue,
            };
            let bias = var.as_detached_tensor().affine(0.0, logit).unwrap();
            var.set(&bias).unwrap();
        }
        let x = Tensor::zeros((1, 2, 6), DType::F32, &Device::Cpu).unwrap();
        let share = mixer.share(&x).unwrap();
        let expected = share.ones_like().unwrap();
        let expected = (expected / (1.0 + 1f64.exp())).unwrap();
        close(&share, &expected, 1e-4, "i'");
    }
}
