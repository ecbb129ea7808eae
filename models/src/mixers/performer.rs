//! Performer. Choromanski et al., 2020, "Rethinking Attention with Performers", arXiv:2009.14794.
//!     y_i = φ(q_i) S / (φ(q_i)·z),  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j),  φ_r(x) = exp(w_r·x' - |x'|²/2),  x' = x / E^¼
//! FAVOR+: w_r are M Gaussian directions, orthogonal in blocks of E, so that the mean of φ(q)·φ(k)
//! / M is exp(q·k / √E): softmax attention without its L x L weights. B batch, H heads, L length, E
//! width of a head, M features; q, k, v (B, L, H, E), φ (B, L, H, M), S (B, H, M, E). Time O(L·M·E)
//! per head, memory O(L·M + M·E). `trig` is unbiased too, but its features have either sign, so
//! denominators come near 0: 2ε is added where they are within ε of it. Otherwise nothing is added
//! to the denominator φ(q_i)·z. As in the authors' code, exp is shifted by the largest w·x' (of the
//! row for queries, of the sequence's valid keys for keys), which cancels except for epsilon. w
//! depends on seed, layer and step, not on the batch; heads share it.
//!
//! # Options
//!
//! `features` M (0: E·ln E, rounded up to a multiple of 8); `redraw`, the steps after which w is
//! redrawn (0: never); `epsilon`, added to each feature; `kernel`: `favor`, `relu` for φ(x) =
//! max(x, 0) + 0.001 without w, or `auto`, which is `favor`; `trig`:
//!     φ(x) = exp(|x'|²/2) [sin w·x' ; cos w·x']
//!
//! # Padding
//!
//! Padded keys are left out of both sums and of the shift.
//!
//! # Departures
//!
//! Projections begin Xavier-uniform and have no biases, and `epsilon` and 0.001 are the authors'
//! figures (google-research/google-research@0c1bbe5
//! performer/fast_attention/tensorflow/fast_attention.py). Biases of the feed-forward network, N(0,
//! 1e-6²), and the norms' ε, `block.norm_epsilon` = 1e-6, are those of the benchmark's 2021 code.
//! The causal form is left out.

mod trig;

use std::sync::{Mutex, PoisonError};

use crate::{
    RngKey,
    mixers::tay2021,
    ops::linear_attention::{self, EPS, FeatureMap},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "performer",
    title: "Performer",
    paper: "Rethinking Attention with Performers",
    year: 2020,
    arxiv: "2009.14794",
    time: Cost::Linear("O(L·M·E)"),
    memory: Cost::Linear("O(L·M + M·E)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::mixer::<Performer>(include_str!("performer.rs")),
        tay2021::performer::VARIANT,
    ],
    ..Model::mixer::<Performer>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kernel {
    /// Kernel of the variant.
    Auto,
    /// Positive orthogonal random features of the softmax kernel.
    Favor,
    /// Trigonometric random features of the softmax kernel.
    Trig,
    /// max(x, 0) + 0.001, no random features.
    Relu,
}

#[derive(Clone, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {
    #[option(range = int(0, WIDEST))]
    pub(super) features: usize,
    #[option(default = Kernel::Auto)]
    pub(super) kernel: Kernel,
    #[option(range = int(0, 1_000_000_000))]
    pub(super) redraw: u64,
    #[option(default = 1e-6, range = probability)]
    pub(super) epsilon: f64,
}

impl Options {
    pub(super) fn check(&self) -> Result<()> {
        require(
            (0.0..1.0).contains(&self.epsilon),
            "model.epsilon",
            self.epsilon,
            "at least 0 and less than 1",
        )
    }
}

struct Performer {
    projections: Projections,
    heads: usize,
    width: usize,
    features: Features,
}

enum Features {
    Favor(Favor),
    Trig(Favor),
    Relu,
}

impl MixerModel for Performer {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        options.check()
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let width = layer.block.head_dim();
        let favor = || {
            let count = match options.features {
                0 => default_count(width),
                count => count,
            };
            Favor::new(layer, count, options.redraw, options.epsilon)
        };
        let features = match options.kernel {
            Kernel::Favor | Kernel::Auto => Features::Favor(favor()),
            Kernel::Trig => Features::Trig(favor()),
            Kernel::Relu => Features::Relu,
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            heads: layer.block.heads,
            width,
            features,
        })
    }
}

impl Performer {
    /// Returns attention of x (B, L, D) on itself by [`trig`], to (B, L, H, E).
    fn attend_by_waves(
        &self,
        x: &Tensor,
        directions: &Tensor,
        epsilon: f64,
        mask: Option<&Mask>,
    ) -> Result<Tensor> {
        let [q, k, v] = self.projections.qkv(x)?;
        let score_mods = self.projections.score_mods();
        let (k, v, mask) = score_mods.append_memory(&k, &v, mask.map(Mask::valid))?;
        let split = |x: &Tensor| x.reshape((x.dim(0)?, x.dim(1)?, self.heads, self.width));
        let [q, k, v] = [&q, &k, &v].map(split);
        let mask = mask.as_ref().map(Mask::new).transpose()?;
        trig::attend([&q?, &k?, &v?], directions, epsilon, mask.as_ref())
    }
}

impl Mixer for Performer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let map = match &self.features {
            Features::Favor(favor) => favor_map(&favor.directions(pass, x)?, favor.epsilon as f32)?,
            Features::Trig(favor) => {
                let directions = favor.directions(pass, x)?;
                let y = self.attend_by_waves(x, &directions, favor.epsilon, pass.mask())?;
                return self.projections.merge(&y);
            }
            Features::Relu => RELU,
        };
        let mask = pass.mask();
        let y = self.projections.attend_by_features(x, map, EPS, mask)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::BY_FEATURES
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        matches!(self.features, Features::Favor(_))
            .then_some("the shift of exponents is a constant, and ε does not let it cancel")
    }

    fn flops(&self, length: usize) -> u64 {
        let slots = self.projections.score_mods().slots();
        let (count, map) = match &self.features {
            Features::Favor(favor) => (favor.count, favor.flops(length) + favor.flops(slots) / 2),
            // Sines and cosines.
            Features::Trig(favor) => (
                2 * favor.count,
                favor.flops(length) + favor.flops(slots) / 2,
            ),
            Features::Relu => (self.width, 0),
        };
        self.projections.flops(length)
            + linear_attention::flops(length, self.heads, count, self.width)
            + linear_attention::flops_of_keys(slots, self.heads, count, self.width)
            + map * self.heads as u64
    }
}

/// Returns E ln E, the order of the paper's bound, rounded up to a multiple of 8.
fn default_count(width: usize) -> usize {
    let count = width as f64 * (width as f64).ln();
    (count.ceil() as usize).next_multiple_of(8).max(8)
}

/// Returns the feature map of FAVOR+ by directions w (M, E).
fn favor_map(w: &Tensor, epsilon: f32) -> Result<FeatureMap> {
    let width = w.dim(1)? as f64;
    Ok(FeatureMap::Favor {
        directions: w.affine(width.powf(-0.25), 0.0)?,
        epsilon,
    })
}

/// The deterministic kernel of the 2021 code: features max(x, 0) + 0.001 of q and k as they are.
const RELU: FeatureMap = FeatureMap::Relu { floor: 1e-3 };

/// The random directions of one layer.
pub(super) struct Favor {
    /// M.
    pub(super) count: usize,
    width: usize,
    redraw: u64,
    pub(super) epsilon: f64,
    directions: StreamKey,
    norms: StreamKey,
    /// The matrix in use and the key of its draws.
    drawn: Mutex<Option<(RngKey, Tensor)>>,
}

impl Favor {
    pub(super) fn new(layer: &LayerContext, count: usize, redraw: u64, epsilon: f64) -> Self {
        Self {
            count,
            width: layer.block.head_dim(),
            redraw,
            epsilon,
            directions: StreamKey::new(&layer.vb.pp("directions").prefix()),
            norms: StreamKey::new(&layer.vb.pp("norms").prefix()),
            drawn: Mutex::new(None),
        }
    }

    /// Returns w (M, E) of this pass, of the type of `x` and where it is.
    pub(super) fn directions(&self, pass: &Pass, x: &Tensor) -> Result<Tensor> {
        match pass.fixed("directions") {
            Some(w) => Ok(w.clone()),
            None => self.matrix(&pass.rng, x.dtype(), x.device()),
        }
    }

    /// Counts the operations of projecting the queries and keys of one head.
    pub(super) fn flops(&self, length: usize) -> u64 {
        4 * (length * self.count * self.width) as u64
    }

    /// Returns w (M, E): orthogonal directions in blocks of E, with the lengths of independent
    /// Gaussian vectors.
    fn matrix(&self, rng: &RngKey, dtype: DType, device: &Device) -> Result<Tensor> {
        let step = match self.redraw {
            0 => 0,
            steps => rng.step() / steps * steps,
        };
        let place = RngKey::new(rng.seed(), step, 0);
        let mut drawn = self.drawn.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, matrix)) = drawn.as_ref()
            && *known == place
        {
            return Ok(matrix.clone());
        }
        let rows = self.draw(&place);
        let matrix = Tensor::from_vec(rows, (self.count, self.width), &Device::Cpu)?
            .to_dtype(dtype)?
            .to_device(device)?;
        *drawn = Some((place, matrix.clone()));
        Ok(matrix)
    }

    fn draw(&self, rng: &RngKey) -> Vec<f64> {
        let (count, width) = (self.count, self.width);
        let blocks = count.div_ceil(width);
        let mut rows = rng.shared(self.directions).normal(blocks * width, width);
        rows.chunks_mut(width * width)
            .for_each(|block| orthonormalize(block, width));
        rows.truncate(count * width);
        let lengths = rng.shared(self.norms).normal(count, width);
        for (row, other) in rows.chunks_mut(width).zip(lengths.chunks(width)) {
            let length = other.iter().map(|x| x * x).sum::<f64>().sqrt();
            row.iter_mut().for_each(|x| *x *= length);
        }
        rows
    }
}

/// Orthonormalises the rows of a square matrix by Gram-Schmidt, each pass done twice against
/// rounding.
fn orthonormalize(block: &mut [f64], width: usize) {
    for index in 0..width {
        let (done, rest) = block.split_at_mut(index * width);
        let row = &mut rest[..width];
        for _ in 0..2 {
            for other in done.chunks(width) {
                let along: f64 = row.iter().zip(other).map(|(a, b)| a * b).sum();
                row.iter_mut().zip(other).for_each(|(a, b)| *a -= along * b);
            }
        }
        let norm = row.iter().map(|x| x * x).sum::<f64>().sqrt();
        row.iter_mut().for_each(|x| *x /= norm);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        ops::linear_attention::exponential,
        reference,
        testing::{DenseReference, meets_reference, normal},
    };

    fn favor(count: usize, width: usize, redraw: u64) -> Favor {
        Favor {
            count,
            width,
            redraw,
            epsilon: 1e-6,
            directions: StreamKey::new("directions"),
            norms: StreamKey::new("norms"),
            drawn: Mutex::new(None),
        }
    }

    #[test]
    fn the_relu_kernel_is_attention_with_the_kernel_of_its_features() {
        meets_reference("performer relu", 1e-9, reference::relu, |q, k, v, mask| {
            linear_attention::attend(q, k, v, RELU, EPS, mask)
        });
    }

    /// Returns the root of the mean squared difference from softmax attention, over outputs and
    /// over gradients.
    fn errors(count: usize) -> (f64, f64) {
        let twin = DenseReference::new(reference::softmax, 0.5);
        let (mut output, mut gradient, rng) = (0.0, 0.0, 16);
        for seed in 0..rng {
            let rng = RngKey::new(seed, 0, 0);
            let w = favor(count, twin.width(), 0)
                .matrix(&rng, DType::F64, &Device::Cpu)
                .unwrap();
            let apart = twin.compare(|q, k, v, mask| {
                linear_attention::attend(q, k, v, favor_map(&w, 1e-6)?, EPS, mask)
            });
            output += apart.output.powi(2);
            gradient += apart.gradient.powi(2);
        }
        let root = |sum: f64| (sum / 16.0).sqrt();
        (root(output), root(gradient))
    }

    #[test]
    fn outputs_and_gradients_approach_softmax_attention_as_features_grow() {
        let (few, many) = (errors(16), errors(1024));
        // Errors fall as one over the root of the features: 64 times as many, an eighth of the
        // error.
        for (few, many) in [(few.0, many.0), (few.1, many.1)] {
            assert!((5.0..13.0).contains(&(few / many)), "{few} {many}");
        }
        assert!(many.0 < 0.1, "{many:?}");
    }

    #[test]
    fn a_product_of_features_is_an_unbiased_estimate_of_the_exponential() {
        let width = 4;
        let [q, k] = ["q", "k"].map(|name| normal(name, &[1, width]));
        let scale = (width as f64).powf(-0.25);
        let row = |x: &Tensor| x.squeeze(0).unwrap().to_vec1::<f64>().unwrap();
        let exact = reference::softmax(&row(&q), &row(&k));
        let zero = Tensor::zeros((1, 1), DType::F64, &Device::Cpu).unwrap();
        let estimates: Vec<f64> = (0..2000)
            .map(|seed| {
                let rng = RngKey::new(seed, 0, 0);
                let w = favor(8, width, 0)
                    .matrix(&rng, DType::F64, &Device::Cpu)
                    .unwrap();
                let phi = |x: &Tensor| {
                    let projected = x.matmul(&w.t().unwrap()).unwrap();
                    exponential(&(projected * scale).unwrap(), x, &zero).unwrap()
                };
                let product = (phi(&q) * phi(&k)).unwrap().mean_all().unwrap();
                product.to_scalar::<f64>().unwrap()
            })
            .collect();
        let n = estimates.len() as f64;
        let mean = estimates.iter().sum::<f64>() / n;
        let variance = estimates.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
        let error = (variance / n).sqrt();
        assert!(
            (mean - exact).abs() < 3.0 * error,
            "{mean} +- {error}, exact {exact}"
        );
    }

    #[test]
    fn directions_are_orthogonal_in_blocks_and_as_long_as_gaussian_vectors() {
        let (count, width) = (20, 8);
        let rows = favor(count, width, 0).draw(&RngKey::new(1, 0, 0));
        let dot = |a: usize, b: usize| -> f64 {
            let row = |index: usize| &rows[index * width..(index + 1) * width];
            row(a).iter().zip(row(b)).map(|(a, b)| a * b).sum()
        };
        for a in 0..count {
            for b in a - a % width..a {
                assert!(dot(a, b).abs() < 1e-12, "{a} {b}");
            }
        }
        let mean = (0..count).map(|a| dot(a, a)).sum::<f64>() / count as f64;
        // |w|² has mean 8 and variance 16: three standard errors of 20 are 2.7.
        assert!((mean - width as f64).abs() < 2.7, "{mean}");
    }

    #[test]
    fn features_are_redrawn_every_so_many_steps() {
        let drawn = |redraw: u64, seed: u64, step: u64| -> Vec<Vec<f64>> {
            let rng = RngKey::new(seed, step, 3).with_branch(1);
            let matrix = favor(8, 4, redraw).matrix(&rng, DType::F64, &Device::Cpu);
            matrix.unwrap().to_vec2().unwrap()
        };
        assert_eq!(drawn(0, 1, 0), drawn(0, 1, 1000));
        assert_eq!(drawn(10, 1, 10), drawn(10, 1, 19));
        assert_ne!(drawn(10, 1, 9), drawn(10, 1, 10));
        assert_ne!(drawn(0, 1, 0), drawn(0, 2, 0));
        let favor = favor(8, 4, 10);
        let matrix = |seed: u64, step: u64| -> Vec<Vec<f64>> {
            let matrix = favor.matrix(&RngKey::new(seed, step, 0), DType::F64, &Device::Cpu);
            matrix.unwrap().to_vec2().unwrap()
        };
        assert_eq!(matrix(1, 0), matrix(1, 5));
        assert_eq!(matrix(1, 12), drawn(10, 1, 12));
        assert_eq!(matrix(2, 12), drawn(10, 2, 12));
    }

    #[test]
    fn the_default_number_of_features_follows_the_width() {
        assert_eq!([1, 8, 32, 64].map(default_count), [8, 24, 112, 272]);
    }
}
