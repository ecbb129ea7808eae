//! Griffin's recurrent layer, the RG-LRU. De et al., 2024, "Griffin: Mixing Gated Linear
//! Recurrences with Local Attention for Efficient Language Models", arXiv:2402.19427.
//!     h_t = a_t ⊙ h_(t-1) + √(1 - a_t²) ⊙ i_t ⊙ u_t,  a = e^(-8 r ⊙ softplus(Λ)),  r = σ(u W_r + b_r),  i = σ(u W_i + b_i)
//!     u = conv(x W_u + b_u),  out = W_o (h ⊙ GELU(x W_y + b_y)) + b_o
//! B batch, L length, D width, D' inner width; x, out (B, L, D), u, a, h (B, L, D'), Λ (D'), conv a
//! depthwise causal convolution of W taps with a bias, W_r and W_i block-diagonal with G blocks;
//! √(1 - a²) is 1 at the first position. All is causal. Time O(L·D'·(D + D' / G)), memory O(L·D').
//! The gated network behind it is the block's, with GELU. This is the layer alone, as in Hawk: no
//! layer of local attention in between. Read in transformers 5.24
//! models/recurrent_gemma/modeling_recurrent_gemma.py, equations and initial values of the layer
//! alike: e^(-softplus(Λ)) is the root of a number uniform from 0.9² to 0.999²; weights are normal,
//! of variance 1 / D in W_u and W_y, 2 / (layers · D') in W_o, 0.01 G / D' in W_r and W_i, 0.01 / W
//! in conv; biases are 0. The authors of HGRN2 have run it on this benchmark.
//!
//! # Options
//!
//! `width` D' (0: D), `blocks` G (0: as many as the block has heads), `taps` W. `direction`:
//! `forward`; `sum` adds a second pass from the end with the same weights, `two` with weights of
//! its own.
//!
//! # Padding
//!
//! At padding, u = 0 before and behind conv, and a = 1, so states pass through unchanged.
//!
//! # Departures
//!
//! W_r and W_i begin as in transformers; the authors' own code has ten times that deviation
//! (google-deepmind/recurrentgemma@2efa84d:recurrentgemma/torch/layers.py:83, 124, 240). 1 - a²
//! below 1e-8 counts as 1e-8 under the root; the published code bounds the root's slope. The
//! feed-forward network begins Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases
//! N(0, 1e-6²); in the cited file its weights begin N(0, 0.01/4), whose 4 is the taps of conv, and
//! its biases as 0 (`_init_weights`, lines 551 and 584-587).

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::BlockLinear,
    ops::{
        Padding, ScanOptions,
        activation::{gelu, sigmoid, softplus},
        depthwise_conv1d, scan,
    },
    prelude::*,
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "griffin",
    title: "Griffin (RG-LRU)",
    paper: "Griffin: Mixing Gated Linear Recurrences with Local Attention for Efficient Language Models",
    year: 2024,
    arxiv: "2402.19427",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"gate": "glu", "norm": "rms"}
    }"#,
    variants: &[Variant::paper(build, include_str!("griffin.rs"))],
    ..Model::with_options::<Options>()
};

/// Exponent of the decay where r = 1.
const SHARPNESS: f64 = 8.0;
/// The least number under the root.
const EPSILON: f64 = 1e-8;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// D'.
    #[option(range = int(0, WIDEST))]
    width: usize,
    /// G.
    #[option(range = int(0, WIDEST))]
    blocks: usize,
    /// W.
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Griffin::new(layer, &options)?))
    })
}

struct Griffin {
    /// W_u.
    inner: Linear,
    /// W_y.
    gate: Linear,
    /// (D', W) and (D').
    conv: [Tensor; 2],
    /// W_r.
    forget: BlockLinear,
    /// W_i.
    input: BlockLinear,
    /// Λ (D').
    decay: Tensor,
    /// W_o.
    outer: Linear,
}

impl Griffin {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let given = |option, default| if option == 0 { default } else { option };
        let width = given(options.width, block.dim);
        let blocks = given(options.blocks, block.heads);
        require(
            width.is_multiple_of(blocks),
            "model.blocks",
            blocks,
            format!(
                "a divisor of the inner width, {width} (model.width, or block.dim where it is 0)"
            ),
        )?;
        let normal = |variance: f64| Init::Randn {
            mean: 0.0,
            stdev: variance.sqrt(),
        };
        let zeros = Some(Init::Const(0.0));
        let linear = |name, inputs, outputs, variance| {
            Linear::new(&vb.pp(name), inputs, outputs, normal(variance), zeros)
        };
        let inward = 1.0 / block.dim as f64;
        let outward = 2.0 / (block.layers * width) as f64;
        let gate = |name| {
            let size = width / blocks;
            BlockLinear::new(
                &vb.pp(name),
                blocks,
                size,
                normal(0.01 / size as f64),
                zeros,
            )
        };
        let conv = vb.pp("conv");
        let of_taps = normal(0.01 / options.taps as f64);
        // softplus(Λ) = -ln a.
        let decays = |stream: &Stream| {
            let squares = stream.uniform(1, width).into_iter();
            let squares = squares.map(|u| 0.81 + u * (0.999f64.powi(2) - 0.81));
            squares
                .map(|square| (square.powf(-0.5) - 1.0).ln())
                .collect()
        };
        Ok(Self {
            inner: linear("inner", block.dim, width, inward)?,
            gate: linear("gate", block.dim, width, inward)?,
            conv: [
                conv.get_with_hints((width, options.taps), "weight", of_taps)?,
                conv.get_with_hints(width, "bias", Init::Const(0.0))?,
            ],
            forget: gate("forget")?,
            input: gate("input")?,
            decay: vb.get_with_values(width, "decay", Attributes::NO_DECAY, decays)?,
            outer: linear("outer", width, block.dim, outward)?,
        })
    }
}

/// Returns (B, L, 1), or (1, L, 1) without a mask: 1 where a sequence begins, 0 elsewhere.
fn starts(x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let (_, length, _) = x.dims3()?;
    let valid = match mask {
        Some(mask) => mask.valid().clone(),
        None => Tensor::ones((1, length), x.dtype(), x.device())?,
    };
    let before = valid.pad_with_zeros(1, 1, 0)?.narrow(1, 0, length)?;
    Ok((&valid * before.affine(-1.0, 1.0)?)?.unsqueeze(2)?)
}

impl Mixer for Griffin {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [weight, bias] = &self.conv;
        let u = zero_padding(&self.inner.forward(x)?, pass.mask())?;
        let u = depthwise_conv1d(&u, weight, Some(bias), Padding::Causal, 1)?;
        let rate = softplus(&self.decay)?.affine(-SHARPNESS, 0.0)?;
        let log_decay = sigmoid(&self.forget.forward(&u)?)?.broadcast_mul(&rate)?;
        let log_decay = zero_padding(&log_decay, pass.mask())?;
        let decay = log_decay.exp()?;
        let rest = decay.sqr()?.affine(-1.0, 1.0)?.maximum(EPSILON)?.sqrt()?;
        let first = starts(x, pass.mask())?;
        let scale = rest.broadcast_mul(&first.affine(-1.0, 1.0)?)?;
        let scale = scale.broadcast_add(&first)?;
        let input = ((sigmoid(&self.input.forward(&u)?)? * u)? * scale)?;
        let input = zero_padding(&input, pass.mask())?;
        let h = scan(&input, &decay, ScanOptions::default())?;
        let gate = gelu(&self.gate.forward(x)?)?;
        self.outer.forward(&(h * gate)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.inner, &self.gate, &self.outer];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        linears + self.forget.flops(length) + self.input.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{parameters, pass};

    #[test]
    fn decays_begin_between_their_bounds() {
        let block = BlockOptions {
            dim: 64,
            ..BlockOptions::default()
        };
        let parameters = parameters();
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mixer = Griffin::new(&layer, &Options::default()).unwrap();
        let decays = softplus(&mixer.decay)
            .unwrap()
            .neg()
            .unwrap()
            .exp()
            .unwrap();
        let decays: Vec<f64> = decays.to_vec1().unwrap();
        assert!(decays.iter().all(|a| (0.9..=0.999).contains(a)));
        let squares = decays.iter().map(|a| a * a).sum::<f64>() / 64.0;
        assert!((squares - 0.904).abs() < 0.02, "{squares}");
    }

    #[test]
    fn sequences_begin_at_their_first_real_position() {
        let valid = [[1.0f64, 1.0, 1.0, 0.0], [0.0, 0.0, 1.0, 1.0], [0.0; 4]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let x = Tensor::zeros((3, 4, 2), DType::F64, &Device::Cpu).unwrap();
        let rows = |mask| {
            let starts = starts(&x, mask).unwrap().squeeze(2).unwrap();
            starts.to_vec2::<f64>().unwrap()
        };
        let expected = [[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0; 4]];
        assert_eq!(rows(Some(&mask)), expected);
        assert_eq!(rows(pass().mask()), expected[..1]);
    }

    #[test]
    fn blocks_that_do_not_divide_the_width_are_refused() {
        let (parameters, block) = (parameters(), BlockOptions::default());
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let options = Options {
            width: 10,
            blocks: 4,
            ..Options::default()
        };
        let error = Griffin::new(&layer, &options).err().unwrap().to_string();
        assert!(error.contains("model.blocks"), "{error}");
    }
}
