//! Toeplitz neural network. Qin et al., 2023, "Toeplitz Neural Network for Sequence Modeling",
//! arXiv:2305.04749.
//!     y = (u ⊙ T v) W_o + b_o,  u = silu(x W_u + b_u),  v = silu(x W_v + b_v),  T_ij = γ^|i - j| t(i - j): the gated Toeplitz unit
//!     t(δ) = W_out relu(norm(z_n)) + b_out,  z_k = W_k relu(norm(z_(k - 1))) + b_k,  z_0 = w δ + b: a small network of the lag
//! B batch, L length, D width, G = e D channels, r width of the network, n its hidden layers; x, y
//! (B, L, D), u, v, t (.., G), T one L x L Toeplitz matrix for each channel, z (2L - 1, r). The
//! product with T is a convolution, computed by fast Fourier transforms. t is computed once for the
//! whole batch, at any length. Time O(L·log L·G + L·r·(G + n·r)), memory O(L·G). The block's
//! feed-forward network is silu(x W₁) ⊙ (x V) through W₂, as in the paper. γ is not trained. Norms
//! are LayerNorms with `block.norm_epsilon`. W_u, W_v, W_o and their biases start as N(0, 0.02²),
//! those of the network as U(-1/√inputs, 1/√inputs). No dropout within the unit. Published on the
//! benchmark (layers x D, e, feed-forward over D, r x n, γ): ListOps 4x128, 1, 1, 32x2, 1; Text
//! 4x128, 1, 2, 32x2, 0.9; Retrieval 2x64, 1, 1.5, 16x2, 0.6. Image, Pathfinder and Path-X have an
//! operator over two dimensions there (12x128, 2, 3, 16x2, 0.7; 6x64, 3, 2.5, 16x2, 1 and 0.999),
//! which the benchmark's rules forbid and which is left out.
//!
//! # Options
//!
//! `expand` e (1), `rpe_dim` r (32), `rpe_layers` n (3), `gamma` γ (0.99; 1: no decay).
//!
//! # Padding
//!
//! v is zero at padding, which the published code ignores.
//!
//! # Departures
//!
//! The published code has BatchNorm before each half of a block. The lag's network has a norm
//! before each layer, there before the last one only, and n is 3, there always 2: the code does not
//! read the script's `dpb_layers` (OpenNLPLab/lra@dd871ef
//! src/models/sequence/tnn_draft/dpb_v4.py:31-76, class DynamicPosBiasV4). The feed-forward network
//! begins Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases N(0, 1e-6²); there
//! uniform within inputs^-½ (±0.125 and ±0.088), biases too (OpenNLPLab/lra@dd871ef
//! src/models/sequence/glu.py:21-23). The published code has no weights for lags of 1,024 and more
//! (`tno_max_l` in configs/model/tno.yaml;
//! src/models/sequence/tnn_draft/dynamic_toeplitz_encoding_multihead_v4.py:311-329), which matters
//! where γ = 1; here all lags have. The norms' ε is `block.norm_epsilon` = 1e-6, in the published
//! code 1e-5 (torch.nn.BatchNorm1d and SyncBatchNorm, src/models/nn/components.py:206, 214;
//! torch.nn.LayerNorm, dpb_v4.py:55).

use crate::{
    layers::LayerNorm,
    ops::{
        Lags,
        activation::{self, relu},
    },
    options::Activation,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "tnn",
    title: "TNN",
    paper: "Toeplitz Neural Network for Sequence Modeling",
    year: 2023,
    arxiv: "2305.04749",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{"block": {"gate": "glu", "activation": "silu"}}"#,
    variants: &[Variant::mixer::<Toeplitz>(include_str!("tnn.rs"))],
    ..Model::mixer::<Toeplitz>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// e.
    #[option(default = 1, range = int(1, 64))]
    expand: usize,
    /// r.
    #[option(default = 32, range = int(2, WIDEST))]
    rpe_dim: usize,
    /// n.
    #[option(default = 3, range = int(0, 100))]
    rpe_layers: usize,
    /// γ.
    #[option(default = 0.99, range = not_negative)]
    gamma: f64,
}

/// The gated Toeplitz unit.
struct Toeplitz {
    /// W_u.
    gate: Linear,
    /// W_v.
    value: Linear,
    /// W_o.
    output: Linear,
    lags: LagNetwork,
    /// γ.
    gamma: f64,
    /// G.
    width: usize,
}

impl MixerModel for Toeplitz {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        require(
            options.gamma <= 1.0,
            "model.gamma",
            options.gamma,
            "at most 1, because a weight would grow with distance",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let width = options.expand * dim;
        let small = Init::Randn {
            mean: 0.0,
            stdev: 0.02,
        };
        let linear =
            |name, inputs, outputs| Linear::new(&vb.pp(name), inputs, outputs, small, Some(small));
        Ok(Self {
            gate: linear("gate", dim, width)?,
            value: linear("value", dim, width)?,
            output: linear("output", width, dim)?,
            lags: LagNetwork::new(&vb.pp("rpe"), layer, options, width)?,
            gamma: options.gamma,
            width,
        })
    }
}

impl Toeplitz {
    /// Returns T v for v (B, L, G).
    fn mix(&self, v: &Tensor) -> Result<Tensor> {
        // Lags 0, 1, .. L - 1 back and then 1, .. L - 1 ahead; the convolution needs as many ahead
        // as back, so that the last one is always 0.
        let length = v.dim(1)? as i64;
        let lags: Vec<i64> = (0..length).chain((1..length).map(|lag| -lag)).collect();
        let taps = self.lags.forward(&lags, v)?; // (2L - 1, G)
        let taps = match self.gamma < 1.0 {
            true => {
                let decay = |lag: &i64| self.gamma.powi(lag.unsigned_abs() as i32);
                let decay = column(lags.iter().map(decay).collect(), v)?;
                taps.broadcast_mul(&decay)?
            }
            false => taps,
        };
        let taps = taps.pad_with_zeros(0, 0, 1)?.t()?.contiguous()?; // (G, 2L)
        ops::fft_conv(v, &taps, Lags::Bidirectional)
    }
}

impl Mixer for Toeplitz {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let silu = |linear: &Linear| activation::apply(Activation::Silu, &linear.forward(x)?);
        let (u, v) = (silu(&self.gate)?, silu(&self.value)?);
        let y = self.mix(&zero_padding(&v, pass.mask())?)?;
        self.output.forward(&(u * y)?)
    }

    /// Counts a transform as 5 n log₂ n operations for n numbers; there are three, of v, of the
    /// weights and of their product, each of 2L numbers.
    fn flops(&self, length: usize) -> u64 {
        let numbers = 2.0 * length as f64;
        let transforms = (3.0 * 2.5 * numbers * numbers.log2()) as u64 * self.width as u64;
        let linears = [&self.gate, &self.value, &self.output];
        let linears: u64 = linears.iter().map(|linear| linear.flops(length)).sum();
        linears + self.lags.flops(2 * length - 1) + transforms
    }
}

/// The network of the lag.
struct LagNetwork {
    first: Linear,
    /// Norms with the layers behind them, the last of which gives G numbers.
    layers: Vec<(LayerNorm, Linear)>,
}

impl LagNetwork {
    fn new(vb: &VarBuilder, layer: &LayerContext, options: &Options, width: usize) -> Result<Self> {
        let dim = options.rpe_dim;
        let linear = |name: &str, inputs: usize, outputs| {
            let bound = (inputs as f64).powf(-0.5);
            let init = Init::Uniform {
                lo: -bound,
                up: bound,
            };
            Linear::new(&vb.pp(name), inputs, outputs, init, Some(init))
        };
        let pair = |number: usize| {
            let norm = vb.pp(format!("{number}_norm"));
            let outputs = if number == options.rpe_layers {
                width
            } else {
                dim
            };
            Ok((
                LayerNorm::new(&norm, dim, layer.block.norm_epsilon)?,
                linear(&number.to_string(), dim, outputs)?,
            ))
        };
        Ok(Self {
            first: linear("first", 1, dim)?,
            layers: (0..=options.rpe_layers).map(pair).collect::<Result<_>>()?,
        })
    }

    /// Returns t (lags, G), of the type of `like`.
    fn forward(&self, lags: &[i64], like: &Tensor) -> Result<Tensor> {
        let lags = lags.iter().map(|lag| *lag as f64).collect();
        let mut z = self.first.forward(&column(lags, like)?)?;
        for (norm, linear) in &self.layers {
            z = linear.forward(&relu(&norm.forward(&z)?, 0.0)?)?;
        }
        Ok(z)
    }

    fn flops(&self, lags: usize) -> u64 {
        let layers = self.layers.iter().map(|(_, linear)| linear.flops(lags));
        self.first.flops(lags) + layers.sum::<u64>()
    }
}

/// Returns (n, 1), of the type of `like`.
fn column(values: Vec<f64>, like: &Tensor) -> Result<Tensor> {
    let count = values.len();
    let column = Tensor::from_vec(values, (count, 1), &Device::Cpu)?;
    Ok(column.to_dtype(like.dtype())?.to_device(like.device())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Mask, RngKey,
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &crate::Parameters, gamma: f64, layers: usize) -> Toeplitz {
        let block = BlockOptions {
            dim: 3,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let options = Options {
            expand: 2,
            rpe_dim: 4,
            rpe_layers: layers,
            gamma,
        };
        Toeplitz::new(&layer, &options).unwrap()
    }

    #[test]
    fn each_channel_is_multiplied_by_its_toeplitz_matrix() {
        for (length, gamma) in [(1, 0.9), (2, 1.0), (5, 0.8), (8, 0.0)] {
            let mixer = mixer(&parameters(), gamma, 2);
            let v = normal("v", &[2, length, 6]);
            let rows: Vec<Vec<f64>> = v.get(1).unwrap().to_vec2().unwrap();
            let weight = |lag: i64| -> Vec<f64> {
                let t = mixer.lags.forward(&[lag], &v).unwrap();
                let t: Vec<f64> = t.flatten_all().unwrap().to_vec1().unwrap();
                let decay = gamma.powi(lag.unsigned_abs() as i32);
                t.into_iter().map(|t| t * decay).collect()
            };
            let mut expected = vec![0.0; length * 6];
            for (i, j) in (0..length).flat_map(|i| (0..length).map(move |j| (i, j))) {
                let weights = weight(i as i64 - j as i64);
                for channel in 0..6 {
                    expected[i * 6 + channel] += weights[channel] * rows[j][channel];
                }
            }
            let expected = Tensor::from_vec(expected, (length, 6), &Device::Cpu).unwrap();
            let y = mixer.mix(&v).unwrap().get(1).unwrap();
            close(&y, &expected, 1e-11, &format!("{length}, {gamma}"));
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = [[1.0; 4], [1.0, 1.0, 0.0, 0.0], [0.0; 4]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        for (gamma, layers) in [(0.9, 1), (1.0, 0)] {
            let parameters = parameters();
            let mixer = mixer(&parameters, gamma, layers);
            check_layer("tnn", &parameters, &[3, 4, 3], |x| {
                let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_mask(Some(&mask));
                zero_padding(&mixer.forward(x, &pass)?, Some(&mask))
            });
        }
    }
}
