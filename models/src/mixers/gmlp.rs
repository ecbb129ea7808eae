//! gMLP. Liu et al., 2021, "Pay Attention to MLPs", arXiv:2105.08050.
//!     y = (u ⊙ (W norm(v) + b + a)) W_out,  [u | v] = gelu(x W_in);  W along the length: the spatial gating unit
//! B batch, L length, D width, N longest length, G width of u and of v; x, y (B, L, D), u, v, a (B,
//! L, G), W (N, N), b (N), one number per position. Time O(L²·G), memory O(L·G + N²), where N² is
//! for the gradient of W. The block has no feed-forward network (`block.ffn` = none): the unit
//! replaces both sublayers. W starts near 0 and b at 1, so a layer starts as a feed-forward
//! network. A shorter sequence uses the first L rows and columns of W. The small attention has no
//! biases, and dropout on its weights.
//!
//! # Options
//!
//! `hidden` G (0: half of block.mlp_dim); `spatial`: `full` W, or `toeplitz`, W_ij = w_(i-j), with
//! 2N - 1 weights and time O(L·log L·G); `attention` (0: a = 0): the width of a single head of
//! softmax attention with output a (64 in the paper's aMLP).
//!
//! # Padding
//!
//! norm(v) is zero at padding.
//!
//! # Departures
//!
//! The paper pads to N and mixes padding in. It has no public code and says only that W begins near
//! 0 and b with 1: here W is N(0, 1e-6²), W_in and W_out are LeCun-normal with biases 0. w of
//! `toeplitz` begins N(0, 1e-6²), too, and the small attention Xavier-uniform; the paper says
//! nothing of either, nor of the norms' ε, `block.norm_epsilon` = 1e-6 here.

use crate::{
    layers::LayerNorm,
    ops::{Lags, activation::gelu_erf, columns},
    params::LECUN_NORMAL,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "gmlp",
    title: "gMLP",
    paper: "Pay Attention to MLPs",
    year: 2021,
    arxiv: "2105.08050",
    time: Cost::Quadratic("O(L²)"),
    memory: Cost::Quadratic("O(L²)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"block": {"ffn": "none"}}"#,
    variants: &[Variant::mixer::<GatedMlp>(include_str!("gmlp.rs"))],
    ..Model::mixer::<GatedMlp>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Spatial {
    Full,
    Toeplitz,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, WIDEST))]
    hidden: usize,
    #[option(default = Spatial::Full)]
    spatial: Spatial,
    #[option(range = int(0, WIDEST))]
    attention: usize,
}

struct GatedMlp {
    /// W_in.
    inner: Linear,
    /// W_out.
    outer: Linear,
    norm: LayerNorm,
    along: Along,
    attention: Option<SmallAttention>,
    hidden: usize,
}

/// W and b.
enum Along {
    Full(Linear),
    Toeplitz {
        /// w (2N - 1): weights of the position itself and of 1, 2, .. N - 1 positions before it,
        /// then of 1, 2, .. ahead.
        weight: Tensor,
        /// (N).
        bias: Tensor,
    },
}

impl MixerModel for GatedMlp {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let dim = layer.block.dim;
        let hidden = match options.hidden {
            0 => (layer.block.mlp_dim / 2).max(1),
            hidden => hidden,
        };
        let linear = |name, inputs, outputs| {
            let bias = Some(Init::Const(0.0));
            Linear::new(&layer.vb.pp(name), inputs, outputs, LECUN_NORMAL, bias)
        };
        let small =
            || SmallAttention::new(&layer.vb.pp("attention"), layer, options.attention, hidden);
        Ok(Self {
            inner: linear("inner", dim, 2 * hidden)?,
            outer: linear("outer", hidden, dim)?,
            norm: LayerNorm::new(&layer.vb.pp("gate_norm"), hidden, layer.block.norm_epsilon)?,
            along: Along::new(&layer.vb.pp("spatial"), options.spatial, layer.max_length)?,
            attention: (options.attention > 0).then(small).transpose()?,
            hidden,
        })
    }
}

impl Mixer for GatedMlp {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let both = gelu_erf(&self.inner.forward(x)?)?;
        let half = |start| columns(&both, start, self.hidden);
        let (u, v) = (half(0)?, half(self.hidden)?);
        let v = zero_padding(&self.norm.forward(&v)?, pass.mask())?;
        let mut gate = self.along.forward(&v)?;
        if let Some(attention) = &self.attention {
            gate = (gate + attention.forward(x, pass)?)?;
        }
        self.outer.forward(&(u * gate)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let attention = self.attention.as_ref();
        self.inner.flops(length)
            + self.outer.flops(length)
            + self.along.flops(length, self.hidden)
            + attention.map_or(0, |attention| attention.flops(length))
    }
}

impl Along {
    fn new(vb: &VarBuilder, spatial: Spatial, longest: usize) -> Result<Self> {
        let init = Init::Randn {
            mean: 0.0,
            stdev: 1e-6,
        };
        let bias = Init::Const(1.0);
        Ok(match spatial {
            Spatial::Full => Self::Full(Linear::new(vb, longest, longest, init, Some(bias))?),
            Spatial::Toeplitz => Self::Toeplitz {
                weight: vb.get_with_hints(2 * longest - 1, "weight", init)?,
                bias: vb.get_with_hints(longest, "bias", bias)?,
            },
        })
    }

    /// Returns W v + b for v (B, L, G).
    fn forward(&self, v: &Tensor) -> Result<Tensor> {
        let (_, length, width) = v.dims3()?;
        match self {
            Self::Full(linear) => {
                let v = swap_axes(v)?; // (B, G, L)
                let y = linear.leading(length, length)?.forward(&v)?;
                swap_axes(&y)
            }
            Self::Toeplitz { weight, bias } => {
                let longest = bias.dim(0)?;
                // The convolution needs as many taps ahead as behind; the last one is always 0.
                let taps = weight.pad_with_zeros(0, 0, 1)?.unsqueeze(0)?;
                let taps = taps.broadcast_as((width, 2 * longest))?.contiguous()?;
                let bias = bias.narrow(0, 0, length)?.unsqueeze(1)?; // (L, 1)
                let y = ops::fft_conv(v, &taps, Lags::Bidirectional)?;
                Ok(y.broadcast_add(&bias)?)
            }
        }
    }

    /// Counts a transform as 5 n log₂ n operations for n numbers; there are two of v and its
    /// product, each of 2L numbers.
    fn flops(&self, length: usize, width: usize) -> u64 {
        match self {
            Self::Full(_) => 2 * (length * length * width) as u64,
            Self::Toeplitz { .. } => {
                let numbers = 2.0 * length as f64;
                (2.0 * 2.5 * numbers * numbers.log2()) as u64 * width as u64
            }
        }
    }
}

/// A single head beside W.
struct SmallAttention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    dropout: Dropout,
    width: usize,
}

impl SmallAttention {
    fn new(vb: &VarBuilder, layer: &LayerContext, width: usize, outputs: usize) -> Result<Self> {
        let linear = |name, inputs, outputs| {
            let init = xavier_uniform(inputs, outputs);
            Linear::new(&vb.pp(name), inputs, outputs, init, None)
        };
        let dim = layer.block.dim;
        Ok(Self {
            query: linear("query", dim, width)?,
            key: linear("key", dim, width)?,
            value: linear("value", dim, width)?,
            output: linear("output", width, outputs)?,
            dropout: Dropout::new(&vb.pp("drop"), layer.block.attention_dropout),
            width,
        })
    }

    /// Maps (B, L, D) to (B, L, G).
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let options = AttentionOptions {
            heads: 1,
            mask: pass.mask().map(Mask::valid).cloned(),
            dropout: self.dropout.of_attention(x.dim(0)?, pass),
            padded_queries: pass.mask().is_some_and(Mask::is_counted),
            ..AttentionOptions::default()
        };
        let projections = Linear::stacked(&[&self.query, &self.key, &self.value])?;
        let y = attention::attend_packed(&projections.forward(x)?, &options)?;
        self.output.forward(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.query, &self.key, &self.value, &self.output];
        let products = 2 * 2 * (length * length * self.width) as u64;
        linears
            .map(|linear| linear.flops(length))
            .iter()
            .sum::<u64>()
            + products
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Parameters, RngKey,
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &Parameters, spatial: Spatial, attention: usize) -> GatedMlp {
        of_length(6, parameters, spatial, attention)
    }

    fn of_length(
        longest: usize,
        parameters: &Parameters,
        spatial: Spatial,
        attention: usize,
    ) -> GatedMlp {
        let block = BlockOptions {
            dim: 3,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, longest);
        let options = Options {
            hidden: 2,
            spatial,
            attention,
        };
        GatedMlp::new(&layer, &options).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    #[test]
    fn it_begins_as_a_feed_forward_network() {
        let parameters = parameters();
        let mixer = mixer(&parameters, Spatial::Full, 0);
        let x = normal("x", &[2, 5, 3]);
        let both = gelu_erf(&mixer.inner.forward(&x).unwrap()).unwrap();
        let expected = mixer
            .outer
            .forward(&both.narrow(2, 0, 2).unwrap().contiguous().unwrap());
        let y = mixer.forward(&x, &pass()).unwrap();
        close(&y, &expected.unwrap(), 1e-4, "gmlp at its start");
    }

    #[test]
    fn a_toeplitz_matrix_has_equal_weights_at_equal_distances() {
        let weight = normal("w", &[11]);
        let bias = normal("b", &[6]);
        let w: Vec<f64> = weight.to_vec1().unwrap();
        let matrix: Vec<f64> = (0..36)
            .map(|place| match (place / 6, place % 6) {
                (i, j) if j <= i => w[i - j],
                (i, j) => w[5 + j - i],
            })
            .collect();
        let matrix = Tensor::from_vec(matrix, (6, 6), &Device::Cpu).unwrap();
        let toeplitz = Along::Toeplitz {
            weight,
            bias: bias.clone(),
        };
        for length in [1, 2, 5, 6] {
            let v = normal("v", &[2, length, 3]);
            let part = matrix
                .narrow(0, 0, length)
                .unwrap()
                .narrow(1, 0, length)
                .unwrap();
            let part = part.contiguous().unwrap().broadcast_left(2).unwrap();
            let expected = part.contiguous().unwrap().matmul(&v).unwrap();
            let bias = bias.narrow(0, 0, length).unwrap().unsqueeze(1).unwrap();
            let expected = expected.broadcast_add(&bias).unwrap();
            let y = toeplitz.forward(&v).unwrap();
            assert_eq!(y.dtype(), DType::F64);
            close(&y, &expected, 1e-12, &format!("toeplitz, {length}"));
        }
    }

    /// The kernel leaves out blocks of queries that are all padding, unless a norm counts them.
    #[test]
    fn padding_attends_as_other_positions_do_where_a_norm_counts_it() {
        let valid: Vec<f64> = (0..140).map(|at| f64::from(u8::from(at < 73))).collect();
        let valid = Tensor::from_vec(valid, (2, 70), &Device::Cpu).unwrap();
        let output = |dtype| {
            let parameters = Parameters::new(3, &Device::Cpu, dtype);
            let mixer = of_length(70, &parameters, Spatial::Full, 2);
            let mask = Mask::new(&valid.to_dtype(dtype).unwrap()).unwrap();
            let mask = mask.counted();
            let x = normal("x", &[2, 70, 3]).to_dtype(dtype).unwrap();
            let y = mixer.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
            y.to_dtype(DType::F64).unwrap()
        };
        let (kernel, composed) = (output(DType::F32), output(DType::F64));
        close(&kernel, &composed, 1e-4, "gmlp where padding is counted");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = Tensor::new(
            &[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0f64]],
            &Device::Cpu,
        );
        let mask = Mask::new(&valid.unwrap()).unwrap();
        for (spatial, attention) in [
            (Spatial::Full, 0),
            (Spatial::Toeplitz, 0),
            (Spatial::Full, 2),
        ] {
            let parameters = parameters();
            let mixer = mixer(&parameters, spatial, attention);
            check_layer("gmlp", &parameters, &[2, 4, 3], |x| {
                mixer.forward(x, &pass().with_mask(Some(&mask)))
            });
        }
    }
}
