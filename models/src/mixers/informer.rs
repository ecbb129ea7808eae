//! Informer. Zhou et al., 2020, "Informer: Beyond Efficient Transformer for Long Sequence
//! Time-Series Forecasting", arXiv:2012.07436.
//!     y_i = Σ_j softmax_j(q_i·k_j / √E) v_j for the u queries of largest M_i,  y_i = 1/n Σ_j v_j for all others
//!     M_i = max_{j in S_i} q_i·k_j - 1/U Σ_{j in S_i} q_i·k_j,  u = U = min(n, factor ⌈ln n⌉), at least 1
//! B batch, H heads, L length, n valid positions of a row, E width of a head; q, k, v, y (B, H, L,
//! E), M (B, H, L), S_i U keys drawn with replacement. Time O(L·u·E) per head, memory O(L·(u + E)).
//! S_i is drawn per seed, step, layer and position, and shared by heads and examples, as in the
//! authors' code. The choice of queries has no gradient.
//!
//! # Options
//!
//! `factor` (5); `mean_over`: `sample` (M_i as above, the paper's algorithm) or `keys` (1/n in
//! place of 1/U, as in the authors' code).
//!
//! # Padding
//!
//! n counts valid positions only: padded keys are neither drawn nor attended to, nor part of the
//! mean, and padded queries are never among the u.
//!
//! # Departures
//!
//! Dropout on the weights of the chosen queries; the authors' code has none. ⌈ln n⌉ follows the
//! code. Not here: the causal form, and the convolutions that shorten the sequence between the
//! paper's encoder layers. Projections begin Xavier-uniform (±0.217 at D = 64), the feed-forward
//! network Xavier-uniform (±0.177 for a width of 128) with biases N(0, 1e-6²); the published code
//! has PyTorch's linear layers, all uniform within inputs^-½ (±0.125, and ±0.088 from a width of
//! 128), biases too (zhouhaoyi/Informer2020@29f2a73 models/attn.py:137-140,
//! models/encoder.py:31-32). The norms' ε is `block.norm_epsilon` = 1e-6, in the published code
//! 1e-5 (torch.nn.LayerNorm). Blocks are pre-norm, there post-norm (models/encoder.py).

use rayon::prelude::*;

use crate::{
    ops::{IGNORE_INDEX, Order, pooling::weighted_sum, top_k},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "informer",
    title: "Informer",
    paper: "Informer: Beyond Efficient Transformer for Long Sequence Time-Series Forecasting",
    year: 2020,
    arxiv: "2012.07436",
    time: Cost::Linear("O(L·log L·E)"),
    memory: Cost::Linear("O(L·log L)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::mixer::<Informer>(include_str!("informer.rs"))],
    ..Model::mixer::<Informer>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MeanOver {
    Sample,
    Keys,
}

#[derive(Clone, Copy, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 5, range = int(1, LONGEST))]
    factor: usize,
    #[option(default = MeanOver::Sample)]
    mean_over: MeanOver,
}

struct Informer {
    projections: Projections,
    dropout: Dropout,
    /// Stream of the draws.
    stream: StreamKey,
    options: Options,
    heads: usize,
    width: usize,
}

impl MixerModel for Informer {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let options = *options;
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            stream: StreamKey::new(&layer.vb.pp("samples").prefix()),
            options,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Informer {
    /// Returns u and U of a row with `valid` positions.
    fn count(&self, valid: usize) -> usize {
        let logarithm = (valid.max(1) as f64).ln().ceil() as usize;
        (self.options.factor * logarithm).max(1).min(valid)
    }

    /// Maps queries, keys and values (B, L, H E) to (B, L, H E).
    fn attend(&self, [q, k, v]: [&Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let (batch, length, row) = q.dims3()?;
        // A row for each head of a position, one after the other.
        let split = |x: &Tensor| x.reshape((batch, (), self.width));
        let chosen = self.chosen(q, k, pass)?; // (B, u H)
        let places = self.places(&chosen, length)?.to_device(q.device())?; // (B, L H)
        let chosen = Tensor::new(chosen, q.device())?;
        let active = take(&split(q)?, &chosen)?.reshape((batch, (), row))?;
        let options = self.projections.options(q, pass, &self.dropout)?;
        let active = attention::attend(&active, k, v, &options)?; // (B, u, H E)
        let valid = match pass.mask() {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), v.dtype(), v.device())?,
        };
        let number = valid.sum_keepdim(1)?;
        let share = valid.broadcast_div(&number.maximum(&number.ones_like()?)?)?;
        let mean = weighted_sum(v, &share)?.unsqueeze(1)?; // (B, 1, H E)
        let rows = split(&cat(&[&active, &mean], 1)?)?;
        Ok(take(&rows, &places)?.reshape((batch, length, row))?)
    }

    /// Returns for each head of each of `length` positions its rank among the chosen ones, (B, L
    /// H). Positions that are not chosen have the rank after the last, which is the rank of the
    /// mean.
    fn places(&self, chosen: &[Vec<u32>], length: usize) -> Result<Tensor> {
        let mut places = Vec::with_capacity(chosen.len() * length * self.heads);
        for chosen in chosen {
            let first = places.len();
            let mean = (0..length * self.heads).map(|row| (chosen.len() + row % self.heads) as u32);
            places.extend(mean);
            for (place, row) in chosen.iter().enumerate() {
                if *row != IGNORE_INDEX {
                    places[first + *row as usize] = place as u32;
                }
            }
        }
        let shape = (chosen.len(), length * self.heads);
        Ok(Tensor::from_vec(places, shape, &Device::Cpu)?)
    }

    /// Returns the u queries of largest M of each row and head, largest first: (B, u H), numbers
    /// among the L H that there are, heads beside each other. [`IGNORE_INDEX`] after them where a
    /// row has fewer than others.
    ///
    /// Draws may be fixed: `samples` (L, U), in [0, 1), which become valid keys in proportion.
    fn chosen(&self, q: &Tensor, k: &Tensor, pass: &Pass) -> Result<Vec<Vec<u32>>> {
        let (batch, length, row) = q.dims3()?;
        let host = |x: &Tensor| -> Result<Vec<f32>> {
            let x = x.detach().to_device(&Device::Cpu)?.to_dtype(DType::F32)?;
            Ok(x.flatten_all()?.to_vec1()?)
        };
        let (q, k) = (host(q)?, host(k)?);
        let valid: Vec<Vec<usize>> = match pass.mask() {
            Some(mask) => host(mask.valid())?
                .chunks(length)
                .map(|valid| (0..length).filter(|&at| valid[at] > 0.0).collect())
                .collect(),
            None => vec![(0..length).collect(); batch],
        };
        let counts: Vec<usize> = valid.iter().map(|valid| self.count(valid.len())).collect();
        // The count is not that of the longest row: draws for a row must not depend on the other
        // rows.
        let most = self.count(length).max(1);
        let samples = self.samples(length, most, pass)?;
        let mut measures = vec![f32::NEG_INFINITY; batch * self.heads * length];
        let rows = measures.par_chunks_mut(length).enumerate();
        rows.for_each(|(index, measures)| {
            let (example, head) = (index / self.heads, index % self.heads);
            let place = |at: usize| (example * length + at) * row + head * self.width;
            let (valid, count) = (&valid[example], counts[example]);
            let divisor = match self.options.mean_over {
                MeanOver::Sample => count,
                MeanOver::Keys => valid.len(),
            } as f32;
            for &at in valid {
                let query = &q[place(at)..][..self.width];
                let (mut max, mut sum) = (f32::NEG_INFINITY, 0.0);
                for sample in &samples[at * most..][..count] {
                    let key = (sample * valid.len() as f64) as usize;
                    let key = valid[key.min(valid.len() - 1)];
                    let score = dot(query, &k[place(key)..][..self.width]);
                    (max, sum) = (score.max(max), sum + score);
                }
                measures[at] = max - sum / divisor;
            }
        });
        let measures = Tensor::from_vec(measures, (batch, self.heads, length), &Device::Cpu)?;
        let (_, order) = top_k(&measures, most, Order::Largest)?;
        let mut chosen = vec![vec![IGNORE_INDEX; most * self.heads]; batch];
        for (index, order) in order.flatten(0, 1)?.to_vec2::<u32>()?.iter().enumerate() {
            let (example, head) = (index / self.heads, index % self.heads);
            for (rank, position) in order.iter().take(counts[example]).enumerate() {
                let row = *position as usize * self.heads + head;
                chosen[example][rank * self.heads + head] = row as u32;
            }
        }
        Ok(chosen)
    }

    /// Returns numbers in [0, 1), `count` for each of `length` positions.
    fn samples(&self, length: usize, count: usize, pass: &Pass) -> Result<Vec<f64>> {
        let Some(fixed) = pass.fixed("samples") else {
            return Ok(pass.rng.shared(self.stream).uniform(length, count));
        };
        let (rows, columns) = fixed.dims2()?;
        if rows < length || columns < count {
            let reason = format!(
                "informer: fixed samples {rows} x {columns} for {length} queries of {count} keys"
            );
            return Err(Error::Input(reason));
        }
        let fixed = fixed.narrow(0, 0, length)?.narrow(1, 0, count)?;
        Ok(fixed.flatten_all()?.to_dtype(DType::F64)?.to_vec1()?)
    }
}

/// Returns the dot product, summed in eight lanes, which one instruction can add.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0.0; 8];
    for (a, b) in a.chunks(8).zip(b.chunks(8)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}

impl Mixer for Informer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.qkv(x)?;
        self.projections.merge(&self.attend([&q, &k, &v], pass)?)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("queries are chosen by their products with keys of tokens alone")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self.heads * self.count(length) * length;
        let measures = 2 * pairs * self.width;
        self.projections.flops(length) + measures as u64 + partial_softmax::flops(pairs, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Mask, RngKey,
        mask::zero_padding,
        ops::attention::partial_softmax::by_head,
        options::BlockOptions,
        params::Parameters,
        reference,
        rng::FixedDraws,
        testing::{DenseReference, check_layer, close, normal, parameters},
    };

    /// Returns two heads on sequences of up to 9.
    fn mixer(parameters: &Parameters, dim: usize, factor: usize) -> Informer {
        let block = BlockOptions {
            dim,
            qkv_dim: dim,
            heads: 2,
            attention_dropout: 0.0,
            ..BlockOptions::default()
        };
        let options = Options {
            factor,
            ..Options::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        Informer::new(&layer, &options).unwrap()
    }

    /// Maps queries, keys and values (B, L, H, E) to (B, L, H, E).
    fn attend(mixer: &Informer, qkv: [&Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = qkv.map(|x| x.flatten_from(2));
        let y = mixer.attend([&q?, &k?, &v?], pass)?;
        Ok(y.reshape(qkv[0].dims())?)
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    fn qkv() -> [Tensor; 3] {
        ["q", "k", "v"].map(|name| normal(name, &[3, 9, 2, 3]))
    }

    #[test]
    fn with_all_queries_chosen_it_is_softmax_attention() {
        let mixer = mixer(&parameters(), 6, 5);
        let twin = DenseReference::whole(reference::softmax);
        let apart = twin.compare(|q, k, v, _| attend(&mixer, [q, k, v], &pass()));
        assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
        // Outputs at valid positions, in rows with padding.
        let mut valid = [[1.0; 9], [0.0; 9], [0.0; 9]];
        valid[1][2..6].fill(1.0);
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let [q, k, v] = &qkv();
        let expected = reference::attention(q, k, v, Some(mask.valid()), reference::softmax);
        let actual = attend(&mixer, [q, k, v], &pass().with_mask(Some(&mask)));
        let [actual, expected] = [actual, expected].map(|y| {
            let y = y.unwrap().flatten_from(2).unwrap();
            zero_padding(&y, Some(&mask)).unwrap()
        });
        close(&actual, &expected, 1e-12, "padded");
    }

    #[test]
    fn the_largest_measures_attend_and_the_others_get_the_mean() {
        // u = U = ⌈ln 9⌉ = 3 of 9. Every query is scored with keys 0, 4 and 8.
        let samples = [[0.05, 0.5, 0.95]; 9];
        let samples = Tensor::new(&samples, &Device::Cpu).unwrap();
        let draws = FixedDraws::new([("samples".to_owned(), samples)].into());
        let [q, k, v] = &qkv();
        let pass = pass().with_fixed_draws(&draws);
        let actual = attend(&mixer(&parameters(), 6, 1), [q, k, v], &pass).unwrap();
        let all = reference::attention(q, k, v, None, reference::softmax).unwrap();
        let mean = reference::attention(q, k, v, None, |_, _| 1.0).unwrap();
        let rows = |x: &Tensor| by_head(x).unwrap().flatten(0, 2).unwrap().to_vec2::<f64>();
        let [q, k, actual, all, mean] = [q, k, &actual, &all, &mean].map(|x| rows(x).unwrap());
        for first in (0..q.len()).step_by(9) {
            let measure = |i: usize| {
                let score = |j: usize| -> f64 {
                    q[first + i]
                        .iter()
                        .zip(&k[first + j])
                        .map(|(q, k)| q * k)
                        .sum()
                };
                let scores = [0, 4, 8].map(score);
                scores.iter().fold(f64::MIN, |a, b| a.max(*b)) - scores.iter().sum::<f64>() / 3.0
            };
            let mut order: Vec<usize> = (0..9).collect();
            order.sort_by(|a, b| measure(*b).total_cmp(&measure(*a)));
            for (rank, i) in order.into_iter().enumerate() {
                let expected = if rank < 3 { &all } else { &mean };
                for (actual, expected) in actual[first + i].iter().zip(&expected[first + i]) {
                    assert!((actual - expected).abs() < 1e-12, "{first} {i}");
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0], [0.0; 5]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let parameters = parameters();
        let mixer = mixer(&parameters, 4, 1);
        check_layer("informer", &parameters, &[3, 5, 4], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }

    #[test]
    fn too_few_fixed_samples_are_an_error() {
        let samples = Tensor::zeros((9, 2), DType::F64, &Device::Cpu).unwrap();
        let draws = FixedDraws::new([("samples".to_owned(), samples)].into());
        let [q, k, v] = &qkv();
        let mixer = mixer(&parameters(), 6, 1);
        assert!(attend(&mixer, [q, k, v], &pass().with_fixed_draws(&draws)).is_err());
    }
}
