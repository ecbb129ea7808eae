//! cosFormer. Qin et al., 2022, "cosFormer: Rethinking Softmax in Attention", arXiv:2202.08791.
//!     y_i = Σ_j a_ij v_j / Σ_j a_ij,  a_ij = relu(q_i)·relu(k_j) cos(θ_i - θ_j),  θ_i = π/2 · i/M for i = 1, 2, ..
//! cos(θ_i - θ_j) is itself a product of features. With φ(x_i) = [relu(x_i) sin θ_i ; relu(x_i) cos
//! θ_i] this is linear attention: y_i = φ(q_i) S / φ(q_i)·z, S = Σ_j φ(k_j) v_jᵀ, z = Σ_j φ(k_j). B
//! batch, H heads, L length, E width of a head; q, k, v, y (B, L, H, E), φ (B, L, H, 2E), S (B, H,
//! 2E, E), z (B, H, 2E). Time O(L·E²) per head, memory O(L·E + E²). No distance exceeds M, so no
//! weight is negative. A query without a positive feature gets zeros. No dropout on weights (there
//! are none), no scaling, no biases. Published on the benchmark, 8 heads, feed-forward 2 D wide
//! with gelu (layers x D): ListOps 6x128, Text 5x64, Retrieval 4x128, Image 6x512, Pathfinder
//! 6x256.
//!
//! # Options
//!
//! `horizon` M: `longest`, the longest length of the task; `padded`, the padded length of the
//! batch, as in the published code, where a sequence's result depends on its batch; `real`, the
//! number of valid tokens of the sequence, whose places i are then counted among them.
//!
//! # Padding
//!
//! Padded keys are left out of both sums (the authors' code for the benchmark includes them).
//!
//! # Departures
//!
//! The authors' code for the benchmark clips the denominator at 1e-4; here 1e-12 is added to it.
//! Projections begin Xavier-uniform (±0.217 at D = 64), the feed-forward network Xavier-uniform
//! (±0.177 for a width of 128) with biases N(0, 1e-6²); the published code has PyTorch's linear
//! layers, all uniform within inputs^-½ (±0.125, and ±0.088 from a width of 128), biases too
//! (OpenNLPLab/lra@dd871ef src/models/sequence/x_attention/cosformer.py:60-63,
//! src/models/sequence/ff.py:24-42). The norms' ε is `block.norm_epsilon` = 1e-6, in the published
//! code 1e-5 (torch.nn.LayerNorm; BatchNorm on Text and Image,
//! configs/experiment/trans-cosformer-lra-imdb.yaml:15, trans-cosformer-lra-cifar.yaml:12). The
//! package OpenNLPLab/cosFormer raises the denominator to at least 1e-6, and has other activations,
//! a form without the last projection, and a causal one, which are left out.

use std::f64::consts::FRAC_PI_2;

use crate::{
    ops::{
        activation::relu,
        cumsum,
        linear_attention::{self, FeatureMap},
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "cosformer",
    title: "cosFormer",
    paper: "cosFormer: Rethinking Softmax in Attention",
    year: 2022,
    arxiv: "2202.08791",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E + E²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Cosformer>(include_str!("cosformer.rs"))],
    ..Model::mixer::<Cosformer>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Horizon {
    Longest,
    Padded,
    Real,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Horizon::Longest)]
    horizon: Horizon,
}

struct Cosformer {
    projections: Projections,
    horizon: Horizon,
    longest: usize,
    heads: usize,
    width: usize,
}

impl MixerModel for Cosformer {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            horizon: options.horizon,
            longest: layer.max_length,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Cosformer {
    /// Maps queries, keys and values (B, L, H, E) to (B, L, H, E).
    fn attend(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Mask>) -> Result<Tensor> {
        let angles = self.angles(q, mask)?;
        let wave = |x: Tensor| x.to_dtype(q.dtype());
        let (sine, cosine) = (wave(angles.sin()?)?, wave(angles.cos()?)?);
        let features = |x: &Tensor| -> Result<Tensor> {
            let x = relu(x, 0.0)?;
            let parts = [x.broadcast_mul(&sine)?, x.broadcast_mul(&cosine)?];
            Ok(Tensor::cat(&parts, 3)?)
        };
        let (q, k) = (features(q)?, features(k)?);
        linear_attention::attend(&q, &k, v, FeatureMap::Given, GUARD, mask)
    }

    /// Returns θ (1 or B, L, 1, 1), f64, of the positions of x (B, L, H, E).
    fn angles(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let length = x.dim(1)?;
        let places: Vec<f64> = (1..=length).map(|place| place as f64).collect();
        let places = Tensor::from_vec(places, (1, length), x.device())?;
        let shares = match (self.horizon, mask) {
            (Horizon::Longest, _) => (places / self.longest as f64)?,
            (Horizon::Real, Some(mask)) => {
                // Padding may be anywhere: places are among the tokens.
                let places = cumsum(&mask.valid().to_dtype(DType::F64)?, 1)?; // (B, L)
                let tokens = places.narrow(1, length - 1, 1)?;
                let tokens = tokens.maximum(&tokens.ones_like()?)?;
                places.broadcast_div(&tokens)?
            }
            (Horizon::Padded | Horizon::Real, _) => (places / length as f64)?,
        };
        let angles = (shares * FRAC_PI_2)?;
        Ok(angles.reshape((angles.dim(0)?, length, 1, 1))?)
    }
}

impl Mixer for Cosformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?;
        let y = self.attend([&q, &k, &v], pass.mask())?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("queries and keys meet as features of tokens and their positions")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let features = 2 * self.width;
        self.projections.flops(length)
            + linear_attention::flops(length, self.heads, features, self.width)
    }
}

/// Small beside the threshold at which the published code clips; its square has a reciprocal in
/// f32.
const GUARD: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        mask::zero_padding,
        options::BlockOptions,
        reference,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &crate::Parameters, horizon: Horizon) -> Cosformer {
        let block = BlockOptions {
            dim: 6,
            qkv_dim: 6,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        Cosformer::new(&layer, &Options { horizon }).unwrap()
    }

    fn mask() -> Mask {
        let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0], [0.0; 5]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn weights_are_products_times_the_cosine_of_the_distance() {
        let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[3, 5, 2, 3]));
        let mask = mask();
        for (horizon, longest) in [
            (Horizon::Longest, [9.0; 3]),
            (Horizon::Padded, [5.0; 3]),
            (Horizon::Real, [5.0, 3.0, 1.0]),
        ] {
            // The angle stands behind the features of each row.
            let angle =
                |place: usize| FRAC_PI_2 * ((place / 2 % 5 + 1) as f64) / longest[place / 10];
            let angles: Vec<f64> = (0..30).map(angle).collect();
            let angles = Tensor::from_vec(angles, (3, 5, 2, 1), &Device::Cpu).unwrap();
            let marked = |x: &Tensor| Tensor::cat(&[x, &angles], 3).unwrap();
            let kernel = |q: &[f64], k: &[f64]| {
                let product = |i: usize| q[i].max(0.0) * k[i].max(0.0);
                (0..3).map(product).sum::<f64>() * (q[3] - k[3]).cos()
            };
            let valid = Some(mask.valid());
            let expected =
                reference::attention(&marked(&q), &marked(&k), &v, valid, kernel).unwrap();
            let mixer = mixer(&parameters(), horizon);
            let actual = mixer.attend([&q, &k, &v], Some(&mask)).unwrap();
            let read = |x: &Tensor| zero_padding(&x.flatten_from(2).unwrap(), Some(&mask)).unwrap();
            close(&read(&actual), &read(&expected), 1e-9, "cosformer");
        }
    }

    #[test]
    fn padding_may_be_anywhere() {
        let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[1, 3, 2, 3]));
        let padding = normal("padding", &[1, 2, 2, 3]);
        let split = |x: &Tensor| [x.narrow(1, 0, 1).unwrap(), x.narrow(1, 1, 2).unwrap()];
        let attend = |arrange: &dyn Fn(&Tensor) -> Vec<Tensor>, valid: [f64; 5]| {
            let mask = Mask::new(&Tensor::new(&[valid], &Device::Cpu).unwrap()).unwrap();
            let [q, k, v] = [&q, &k, &v].map(|x| Tensor::cat(&arrange(x), 1).unwrap());
            let mixer = mixer(&parameters(), Horizon::Real);
            mixer.attend([&q, &k, &v], Some(&mask)).unwrap()
        };
        let behind = |x: &Tensor| vec![x.clone(), padding.clone()];
        let expected = attend(&behind, [1.0, 1.0, 1.0, 0.0, 0.0]);
        let front = |x: &Tensor| vec![padding.clone(), x.clone()];
        let actual = attend(&front, [0.0, 0.0, 1.0, 1.0, 1.0]);
        let tokens = |x: &Tensor, start| x.narrow(1, start, 3).unwrap();
        close(
            &tokens(&actual, 2),
            &tokens(&expected, 0),
            1e-12,
            "in front",
        );
        let between = |x: &Tensor| {
            let [first, rest] = split(x);
            vec![first, padding.clone(), rest]
        };
        let actual = attend(&between, [1.0, 0.0, 0.0, 1.0, 1.0]);
        let [first, rest] = split(&tokens(&expected, 0));
        close(&actual.narrow(1, 0, 1).unwrap(), &first, 1e-12, "before");
        close(&actual.narrow(1, 3, 2).unwrap(), &rest, 1e-12, "behind");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for horizon in [Horizon::Longest, Horizon::Real] {
            let parameters = parameters();
            let mixer = mixer(&parameters, horizon);
            check_layer("cosformer", &parameters, &[3, 5, 6], |x| {
                let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_mask(Some(&mask));
                zero_padding(&mixer.forward(x, &pass)?, Some(&mask))
            });
        }
    }
}
