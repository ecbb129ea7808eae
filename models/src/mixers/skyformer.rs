//! Skyformer. Chen et al., 2021, "Skyformer: Remodel Self-Attention with Gaussian Kernel and
//! Nyström Method", arXiv:2111.00035.
//!     Y = κ(Q, P) Z κ(P, K) V,  κ(q, k) = exp(q·k - |q|²/2 - |k|²/2) of queries and keys over w^¼,  Z ≈ (κ(P, P) + λ I)⁻¹
//!     Z = D A⁺ D,  A = D (κ(P, P) + λ I) D,  D = diag(row sums)^-½,  A⁺ by `iterations` times X ← ¼ X (13 I - A X (15 I - A X (7 I - A X)))
//! A Nyström approximation of attention with a Gaussian kernel, whose rows are not normalised. P
//! are m landmarks, the first half drawn from the queries and the rest from the keys, with
//! replacement. B batch, H heads, L length, E width of a head; Q, K, V, Y (B, H, L, E), P (B, H, m,
//! E), A, D, X, Z (B, H, m, m). Time O(L·m·E + m³·iterations) per head, memory O(L·m + m²). X
//! starts as Aᵀ divided by the largest column sum of A. Landmarks are drawn per seed, step and
//! layer, at the same places for all heads. A sequence of n tokens has them at ⌊n u⌋ for numbers u
//! in [0, 1). Z is computed in 64-bit arithmetic. No dropout on the weights, no biases. Published
//! on the benchmark: 2 layers, D 64, 2 heads, feed-forward 128, 128 landmarks.
//!
//! # Options
//!
//! `landmarks` m (128), `width` w (32 in the published code, the width of its heads; 0: E),
//! `iterations` (6), `ridge` λ (0.1).
//!
//! # Padding
//!
//! Padded keys have no effect.
//!
//! # Departures
//!
//! The first X is scaled separately for each sequence and head, where the published code uses one
//! number for the whole batch. Projections begin Xavier-uniform (±0.217 at D = 64), the
//! feed-forward network Xavier-uniform (±0.177 for a width of 128) with biases N(0, 1e-6²); the
//! published code has PyTorch's linear layers, all uniform within inputs^-½ (±0.125, and ±0.088
//! from a width of 128), biases too (pkuzengqi/Skyformer@1a677cb src/models/attention.py:109-117,
//! src/models/model_transformer.py:59-62). The norms' ε is `block.norm_epsilon` = 1e-6, in the
//! published code 1e-5 (torch.nn.LayerNorm). Its `accumulation` above 1 is left out.

use crate::{
    ops::{IGNORE_INDEX, exact_matmul, merge_heads, pseudo_inverse, split_heads},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "skyformer",
    title: "Skyformer",
    paper: "Skyformer: Remodel Self-Attention with Gaussian Kernel and Nyström Method",
    year: 2021,
    arxiv: "2111.00035",
    time: Cost::Linear("O(L·m·E + m³)"),
    memory: Cost::Linear("O(L·m + m²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Skyformer>(include_str!("skyformer.rs"))],
    ..Model::mixer::<Skyformer>()
};

#[derive(Clone, Copy, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// m.
    #[option(default = 128, range = int(2, LONGEST))]
    landmarks: usize,
    /// w.
    #[option(default = 32, range = int(0, WIDEST))]
    width: usize,
    #[option(default = 6, range = int(0, 100))]
    iterations: usize,
    /// λ.
    #[option(default = 0.1, range = positive(1e3))]
    ridge: f64,
}

struct Skyformer {
    projections: Projections,
    /// Stream of the landmarks' draws.
    stream: StreamKey,
    options: Options,
    heads: usize,
    width: usize,
}

impl MixerModel for Skyformer {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let options = *options;
        Ok(Self {
            projections: Projections::new(layer)?,
            stream: StreamKey::new(&layer.vb.pp("landmarks").prefix()),
            options,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Skyformer {
    /// Maps queries, keys and values (B, L, H E) to (B, L, H E).
    fn attend(&self, [q, k, v]: [&Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let (batch, length, _) = q.dims3()?;
        let mask = pass.mask();
        let heads = |x: &Tensor| split_heads(&zero_padding(x, mask)?, self.heads);
        let divisor = match self.options.width {
            0 => self.width,
            width => width,
        };
        let scale = (divisor as f64).powf(-0.25);
        let (q, k) = (heads(q)?.affine(scale, 0.0)?, heads(k)?.affine(scale, 0.0)?);
        let p = self.landmarks([&q, &k], pass)?;
        let z = self.inverse(&gaussian(&p, &p)?)?;
        let keys = gaussian(&p, &k)?; // (B, H, m, L)
        let keys = match mask {
            Some(mask) => {
                let valid = mask.valid().reshape((batch, 1, 1, length))?;
                keys.broadcast_mul(&valid)?
            }
            None => keys,
        };
        let sums = matmul(&keys, &heads(v)?)?; // (B, H, m, E)
        let sums = exact_matmul(&z, &sums.to_dtype(DType::F64)?)?.to_dtype(v.dtype())?;
        merge_heads(&matmul(&gaussian(&q, &p)?, &sums)?)
    }

    /// Returns P (B, H, m, E) of queries and keys (B, H, L, E).
    fn landmarks(&self, [q, k]: [&Tensor; 2], pass: &Pass) -> Result<Tensor> {
        let (batch, heads, length, _) = q.dims4()?;
        let draws = self.draws(pass)?;
        let tokens: Vec<Vec<u32>> = match pass.mask() {
            Some(mask) => {
                let valid = mask.valid().to_dtype(DType::F32)?.to_vec2::<f32>()?;
                let places = |row: Vec<f32>| (0..).zip(row).filter(|(_, valid)| *valid > 0.0);
                let places = |row| places(row).map(|(place, _)| place).collect();
                valid.into_iter().map(places).collect()
            }
            None => vec![(0..length as u32).collect(); batch],
        };
        let chosen = |draws: &[f64]| -> Result<Tensor> {
            let place = |tokens: &Vec<u32>, draw: f64| match tokens.len() {
                0 => IGNORE_INDEX,
                count => tokens[((draw * count as f64) as usize).min(count - 1)],
            };
            let rows = tokens
                .iter()
                .flat_map(|tokens| std::iter::repeat_n(tokens, heads))
                .flat_map(|tokens| draws.iter().map(move |draw| place(tokens, *draw)));
            let shape = (batch, heads, draws.len());
            Ok(Tensor::from_vec(rows.collect(), shape, q.device())?)
        };
        let (of_queries, of_keys) = draws.split_at(draws.len() / 2);
        let landmarks = [take(q, &chosen(of_queries)?)?, take(k, &chosen(of_keys)?)?];
        Ok(Tensor::cat(&landmarks, 2)?)
    }

    /// Returns m numbers in [0, 1). They may be fixed: `landmarks` (m).
    fn draws(&self, pass: &Pass) -> Result<Vec<f64>> {
        let count = self.options.landmarks;
        let Some(fixed) = pass.fixed("landmarks") else {
            return Ok(pass.rng.shared(self.stream).uniform(1, count));
        };
        if fixed.elem_count() != count {
            let given = fixed.elem_count();
            let reason = format!("skyformer: {given} fixed landmarks, where {count} are wanted");
            return Err(Error::Input(reason));
        }
        Ok(fixed.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
    }

    /// Returns Z (B, H, m, m), f64, of κ(P, P).
    fn inverse(&self, gram: &Tensor) -> Result<Tensor> {
        let gram = gram.to_dtype(DType::F64)?;
        let identity = Tensor::eye(gram.dim(3)?, DType::F64, gram.device())?;
        let gram = gram.broadcast_add(&identity.affine(self.options.ridge, 0.0)?)?;
        let d = gram.sum_keepdim(D::Minus1)?.powf(-0.5)?; // (B, H, m, 1)
        let around = |x: &Tensor| Ok::<_, Error>(x.broadcast_mul(&d)?.broadcast_mul(&d.t()?)?);
        around(&pseudo_inverse(&around(&gram)?, self.options.iterations)?)
    }
}

/// Returns κ of rows (.., n, E) and (.., m, E): (.., n, m).
fn gaussian(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let half = |x: &Tensor| x.sqr()?.sum_keepdim(D::Minus1)?.affine(0.5, 0.0);
    let exponent = matmul(x, &y.t()?)?.broadcast_sub(&half(x)?)?;
    Ok(exponent.broadcast_sub(&half(y)?.t()?)?.exp()?)
}

impl Mixer for Skyformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.qkv(x)?;
        self.projections.merge(&self.attend([&q, &k, &v], pass)?)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("queries and keys meet through landmarks")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let (m, row) = (self.options.landmarks, self.heads * self.width);
        let steps = 4 * self.options.iterations * self.heads * m.pow(3);
        // κ of queries and of keys with the landmarks, sums over keys, sums of queries over them;
        // and all products that are m x m.
        let products = 4 * length * m * row + 2 * m * m * row + steps;
        self.projections.flops(length) + 2 * products as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        Mask, RngKey,
        options::BlockOptions,
        rng::FixedDraws,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &crate::Parameters, options: Options) -> Skyformer {
        let block = BlockOptions {
            dim: 6,
            qkv_dim: 6,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        Skyformer::new(&layer, &options).unwrap()
    }

    fn mask(rows: &[[f64; 5]]) -> Mask {
        let rows = Tensor::from_vec(rows.concat(), (rows.len(), 5), &Device::Cpu).unwrap();
        Mask::new(&rows).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    /// Returns the middles of n equal parts, for queries and for keys: all of n queries and n keys
    /// are landmarks.
    fn all(count: usize) -> FixedDraws {
        let middle = |i: usize| ((i % count) as f64 + 0.5) / count as f64;
        let draws: Vec<f64> = (0..2 * count).map(middle).collect();
        let draws = Tensor::from_vec(draws, 2 * count, &Device::Cpu).unwrap();
        FixedDraws::new([("landmarks".to_owned(), draws)].into())
    }

    /// A Nyström approximation through all points is exact.
    #[test]
    fn with_all_tokens_as_landmarks_it_is_gaussian_attention() {
        let qkv = ["q", "k", "v"].map(|name| normal(name, &[2, 5, 6]));
        for (count, valid) in [(5, [1.0; 5]), (3, [1.0, 1.0, 1.0, 0.0, 0.0])] {
            let options = Options {
                landmarks: 2 * count,
                width: 0,
                iterations: 60,
                ridge: 1e-9,
            };
            let draws = all(count);
            let mask = mask(&[valid; 2]);
            let pass = pass().with_fixed_draws(&draws);
            let mixer = mixer(&parameters(), options);
            let actual = mixer.attend([&qkv[0], &qkv[1], &qkv[2]], &pass.with_mask(Some(&mask)));
            let heads = |x: &Tensor| {
                let x = x.narrow(1, 0, count).unwrap();
                split_heads(&x, 2).unwrap()
            };
            let scaled = |x: &Tensor| heads(x).affine(3f64.powf(-0.25), 0.0).unwrap();
            let weights = gaussian(&scaled(&qkv[0]), &scaled(&qkv[1])).unwrap();
            let expected = merge_heads(&weights.matmul(&heads(&qkv[2])).unwrap()).unwrap();
            let actual = actual.unwrap().narrow(1, 0, count).unwrap();
            close(&actual, &expected, 1e-5, "gaussian");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask(&[[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]]);
        let parameters = parameters();
        let options = Options {
            landmarks: 3,
            ..Options::default()
        };
        let mixer = mixer(&parameters, options);
        check_layer("skyformer", &parameters, &[3, 5, 6], |x| {
            let y = mixer.forward(x, &pass().with_mask(Some(&mask)))?;
            zero_padding(&y, Some(&mask))
        });
    }

    #[test]
    fn fixed_landmarks_of_another_number_are_an_error() {
        let draws = all(2);
        let mixer = mixer(&parameters(), Options::default());
        let x = normal("x", &[2, 5, 6]);
        let result = mixer.forward(&x, &pass().with_fixed_draws(&draws));
        let error = result.unwrap_err().to_string();
        assert!(error.contains("4 fixed landmarks"), "{error}");
    }
}
