//! SeqBoat. Ren et al., 2023, "Sparse Modular Activation for Efficient Sequence Modeling",
//! arXiv:2306.11197.
//!     m = SiLU(K→ * x̂ + K← * x̂ + ω ⊙ x̂) as in Mega,  [u | c] = m W_u + b_u,  P = softmax(u / τ), position t is active if P_t1 > P_t0
//!     of the active positions alone: [z | r | V] = SiLU(m W_m + b_m),  Q = g₀ ⊙ z + b₀, K = g₁ ⊙ z + b₁,  h = ((A V) ⊙ r) W_h + b_h
//!     A = softmax(Q Kᵀ / √s + w_(j-i)) over the active keys at most C active positions away,  out = SiLU(x + c + P₁ h),  h = 0 elsewhere
//! In pre-norm blocks x̂ is norm(x) and out is not normalised; in post-norm blocks x̂ is x. B batch,
//! L length, D width, s width of z, v width of V and r, C window, N longest length; x, m, c, out
//! (B, L, D), u, P (B, L, 2), τ one number, w (2 N - 1). The fewer positions are active, the farther
//! the window reaches. The choice gets no gradient, P₁ does. Time O(L·C·(s + v)) and O(L·D·h) for
//! the h modes of m, memory O(L·C). Read in renll/SeqBoat@5a34aed, standalone_seqboat.py and
//! fairseq/modules/seqboat_unit.py: weights, g and w start as N(0, 0.02²) cut at two deviations,
//! biases as 0, τ as `temperature` √D. Published norms, all with ε = 1e-5: LayerNorm for ListOps,
//! ScaleNorm (g x/√(mean x² + ε), `block.scale_norm = rms`) for texts, both post-norm, BatchNorm
//! and pre-norm for images. The block has no feed-forward network.
//!
//! # Options
//!
//! `attention`: softmax, or `relu2` max(z, 0)², z = Q Kᵀ / (2 C) + w, as published for images;
//! `distance` of w: `position` j - i between the positions themselves, or `order`, w (2 C + 1), as
//! published for Text, between their numbers among the active ones; `window` C; `temperature`, 0.3
//! as published for ListOps, Text and Retrieval (Image 0.4, Pathfinder and Path-X 1); `shared` s
//! (0: D / 2), `values` v (0: `block.mlp_dim`), `modes` and `taps` as of Mega; `hidden_dropout` on
//! V.
//!
//! # Padding
//!
//! At padding x̂ is zero in both kernels of m, though not in ω ⊙ x̂, as in the authors' code.
//! Padding is never active.
//!
//! # Departures
//!
//! Parameters of m begin as those of Mega here; in the published code their normal numbers are cut
//! at two deviations, too. Images there get sinusoidal positions times a learned number
//! (`--add-apos`); here `embed.positions = sinusoid` has no such number. C is 128, as in
//! renll/SeqBoat@5a34aed experiment/run_lra_*.sh, where Path-X has 256. Embedding and head are
//! those of this benchmark. There, a batch in which some row is active everywhere is not
//! compressed: the windows of all its rows are then of positions, not of active ones
//! (fairseq/modules/seqboat_unit.py:591-621), so that a row depends on its batch. Not here: Laplace
//! attention, rotary and T5's biases, attention without windows, `always_act`.

use super::mega::MovingAverage;
use crate::{
    Encoded,
    block::norm::Norm,
    ops::{
        IGNORE_INDEX,
        activation::{relu, sigmoid, silu},
        columns,
    },
    options::{ChannelKind, NormPlace},
    prelude::*,
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "seqboat",
    title: "SeqBoat",
    paper: "Sparse Modular Activation for Efficient Sequence Modeling",
    year: 2023,
    arxiv: "2306.11197",
    time: Cost::Linear("O(L·C·E)"),
    memory: Cost::Linear("O(L·C)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"ffn": "none", "norm_place": "post", "scale_norm": "rms", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::paper(build, include_str!("seqboat.rs"))],
    ..Model::with_options::<Options>()
};

/// Map from scores to weights.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Weighing {
    Softmax,
    Relu2,
}

/// The distance that w goes by.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Distance {
    /// Between positions.
    Position,
    /// Between numbers of active positions.
    Order,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Weighing::Softmax)]
    attention: Weighing,
    #[option(default = Distance::Position)]
    distance: Distance,
    #[option(default = 128, range = int(1, LONGEST))]
    window: usize,
    #[option(default = 0.3, range = positive(1e3))]
    temperature: f64,
    #[option(range = int(0, WIDEST))]
    shared: usize,
    #[option(range = int(0, WIDEST))]
    values: usize,
    #[option(default = 16, range = int(1, 1024))]
    modes: usize,
    #[option(default = 1024, range = int(0, LONGEST))]
    taps: usize,
    #[option(range = probability)]
    hidden_dropout: f64,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    const REASON: &str = "because an activation follows the sum with the block's input";
    let (options, block): (Options, _) = (context.options()?, context.block);
    require(
        matches!(block.ffn, ChannelKind::None),
        "block.ffn",
        to_json(&block.ffn),
        "none",
    )?;
    context.refuse_block_axes(REASON)?;
    let layer = |layer: usize| {
        let vb = context.vb.layer(layer, block.share);
        Layer::new(&vb.pp("mixer"), block, &options, context.max_length)
    };
    Ok(Box::new(SeqBoat {
        layers: (0..block.layers).map(layer).collect::<Result<_>>()?,
        last_norm: encoder::last_norm(context)?,
        shared: block.share,
    }))
}

struct SeqBoat {
    layers: Vec<Layer>,
    last_norm: Option<Norm>,
    /// True if all layers have the same weights.
    shared: bool,
}

impl Encoder for SeqBoat {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let mut x = x.clone();
        for (index, layer) in self.layers.iter().enumerate() {
            let pass = match self.shared {
                true => pass.of_repetition(index),
                false => *pass,
            };
            x = layer.forward(&x, &pass)?;
        }
        let hidden = match &self.last_norm {
            Some(norm) => norm.forward(&x, pass)?,
            None => x,
        };
        Ok(Encoded {
            hidden,
            mask: pass.mask().cloned(),
        })
    }

    fn flops(&self, length: usize) -> u64 {
        let layers = self.layers.iter().map(|layer| layer.flops(length));
        layers.fold(0, u64::saturating_add)
    }
}

struct Layer {
    norm: Norm,
    place: NormPlace,
    average: MovingAverage,
    /// W_u and b_u.
    route: Linear,
    /// W_m and b_m, which map to z, r and V.
    inner: Linear,
    /// W_h and b_h.
    outer: Linear,
    /// ln τ (1).
    log_temperature: Tensor,
    attention: WindowAttention,
    dropout: Dropout,
    average_dropout: Dropout,
    values_dropout: Dropout,
    /// D, s and v.
    widths: [usize; 3],
}

/// Returns numbers N(0, 0.02²) that are cut at two deviations and not scaled again, as `Normal` of
/// the published code.
fn narrow(stream: &Stream, count: usize) -> Vec<f64> {
    // The deviation that a normal distribution has left after the cut.
    const LEFT: f64 = 0.879_625_661_034_239_8;
    let numbers = stream.truncated_normal(1, count).into_iter();
    numbers.map(|x| 0.02 * LEFT * x).collect()
}

/// Returns a layer with weights of [`narrow`] and a bias of zeros.
fn linear(vb: &VarBuilder, inputs: usize, outputs: usize) -> Result<Linear> {
    let count = inputs * outputs;
    let weights = |stream: &Stream| narrow(stream, count);
    vb.get_with_values((outputs, inputs), "weight", Attributes::MATRIX, weights)?;
    let zeros = Init::Const(0.0);
    Linear::new(vb, inputs, outputs, zeros, Some(zeros))
}

impl Layer {
    fn new(
        vb: &VarBuilder,
        block: &BlockOptions,
        options: &Options,
        longest: usize,
    ) -> Result<Self> {
        let or = |size: usize, usual: usize| if size == 0 { usual } else { size };
        let dim = block.dim;
        let (shared, values) = (
            or(options.shared, dim.div_ceil(2)),
            or(options.values, block.mlp_dim),
        );
        let taps = (options.taps > 0).then_some(options.taps);
        let dropout = |name, rate| Dropout::new(&vb.pp(name), rate).tied(block.dropout_tied);
        let temperature = options.temperature * (dim as f64).sqrt();
        let rate = block.attention_dropout;
        Ok(Self {
            norm: Norm::new(&vb.pp("norm"), block)?,
            place: block.norm_place,
            average: MovingAverage::new(&vb.pp("average"), dim, options.modes, taps)?,
            route: linear(&vb.pp("route"), dim, 2 + dim)?,
            inner: linear(&vb.pp("inner"), dim, shared + 2 * values)?,
            outer: linear(&vb.pp("outer"), values, dim)?,
            log_temperature: vb.get_with_hints(
                1,
                "log_temperature",
                Init::Const(temperature.ln()),
            )?,
            attention: WindowAttention::new(
                &vb.pp("attention"),
                shared,
                longest,
                options,
                Dropout::new(&vb.pp("attention_drop"), rate),
            )?,
            dropout: dropout("drop", block.dropout),
            average_dropout: dropout("average_drop", block.dropout),
            values_dropout: dropout("values_drop", options.hidden_dropout),
            widths: [dim, shared, values],
        })
    }

    /// Maps (B, L, D) to (B, L, D), with its residual.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let normal = match self.place {
            NormPlace::Pre => self.norm.forward(x, pass)?,
            NormPlace::Post => x.clone(),
        };
        let average = self.average.forward(&normal, pass.mask(), true)?;
        let average = self.average_dropout.forward(&average, pass)?;
        let routed = self.route.forward(&average)?;
        let [dim, ..] = self.widths;
        let lead = (columns(&routed, 1, 1)? - columns(&routed, 0, 1)?)?; // (B, L, 1)
        let active = Active::new(&lead, pass.mask())?;
        let share = sigmoid(&lead.broadcast_div(&self.log_temperature.exp()?)?)?;
        let h = self.of_active(&take(&average, &active.taken)?, &active, pass)?;
        let h = take(&h, &active.returned)?.broadcast_mul(&share)?;
        let y = silu(&add(x, &add(&columns(&routed, 2, dim)?, &h)?)?)?;
        match self.place {
            NormPlace::Pre => Ok(y),
            NormPlace::Post => self.norm.forward(&y, pass),
        }
    }

    /// Returns h (B, M, D) of m (B, M, D) at the active positions.
    fn of_active(&self, m: &Tensor, active: &Active, pass: &Pass) -> Result<Tensor> {
        let [_, shared, values] = self.widths;
        let all = silu(&self.inner.forward(m)?)?;
        let part = |start, width| columns(&all, start, width);
        let (z, r) = (part(0, shared)?, part(shared, values)?);
        let v = self
            .values_dropout
            .forward(&part(shared + values, values)?, pass)?;
        let gathered = self.attention.forward(&z, &v, active, pass)?;
        let h = self.outer.forward(&(gathered * r)?)?;
        self.dropout.forward(&h, pass)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.route, &self.inner, &self.outer];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let [_, shared, values] = self.widths;
        let attention = 2 * self.attention.pairs(length) as u64 * (shared + values) as u64;
        linears + attention
    }
}

/// The active positions of a batch.
struct Active {
    /// Those of each sequence, in order.
    positions: Vec<Vec<u32>>,
    /// (B, M), M the most of a sequence: positions, filled up with [`IGNORE_INDEX`].
    taken: Tensor,
    /// (B, L): the number of each position among the active ones, or [`IGNORE_INDEX`].
    returned: Tensor,
}

impl Active {
    /// Returns the valid positions where `lead` (B, L, 1) is more than 0.
    fn new(lead: &Tensor, mask: Option<&Mask>) -> Result<Self> {
        let (batch, length, _) = lead.dims3()?;
        let leads = lead.detach().squeeze(2)?.to_dtype(DType::F64)?;
        let leads = leads.to_vec2::<f64>()?;
        let valid = Mask::places(mask, (batch, length))?;
        let of_row = |(places, leads): (Vec<usize>, &Vec<f64>)| -> Vec<u32> {
            let places = places.into_iter().filter(|at| leads[*at] > 0.0);
            places.map(|at| at as u32).collect()
        };
        let positions: Vec<Vec<u32>> = valid.into_iter().zip(&leads).map(of_row).collect();
        // One place at least, so that no tensor is empty.
        let most = positions.iter().map(Vec::len).max().unwrap_or(0).max(1);
        let mut taken = vec![IGNORE_INDEX; batch * most];
        let mut returned = vec![IGNORE_INDEX; batch * length];
        for (row, positions) in positions.iter().enumerate() {
            taken[row * most..][..positions.len()].copy_from_slice(positions);
            for (number, at) in positions.iter().enumerate() {
                returned[row * length + *at as usize] = number as u32;
            }
        }
        Ok(Self {
            positions,
            taken: Tensor::from_vec(taken, (batch, most), lead.device())?,
            returned: Tensor::from_vec(returned, (batch, length), lead.device())?,
        })
    }
}

/// Attention of one head among the active positions, each on those at most C away.
struct WindowAttention {
    /// g (2, s).
    scale: Tensor,
    /// b (2, s).
    shift: Tensor,
    /// w, that of distance 0 in the middle.
    distance: Tensor,
    of: Distance,
    weighing: Weighing,
    /// C.
    window: usize,
    /// Queries of a block: C, or N if that is less, and there is one block alone.
    size: usize,
    /// True if a block has neighbours.
    neighbours: bool,
    dropout: Dropout,
}

impl WindowAttention {
    fn new(
        vb: &VarBuilder,
        width: usize,
        longest: usize,
        options: &Options,
        dropout: Dropout,
    ) -> Result<Self> {
        let distances = match options.distance {
            Distance::Position => 2 * longest - 1,
            Distance::Order => 2 * options.window + 1,
        };
        Ok(Self {
            scale: vb.get_with_values((2, width), "scale", Attributes::NO_DECAY, |stream| {
                narrow(stream, 2 * width)
            })?,
            shift: vb.get_with_attributes(
                (2, width),
                "shift",
                Init::Const(0.0),
                Attributes::NO_DECAY,
            )?,
            distance: vb.get_with_values(
                distances,
                "distance",
                Attributes::NO_DECAY,
                |stream| narrow(stream, distances),
            )?,
            of: options.distance,
            weighing: options.attention,
            window: options.window,
            size: options.window.min(longest),
            neighbours: options.window < longest,
            dropout,
        })
    }

    /// Returns the keys of a block: its own, and as many before and behind.
    fn keys(&self) -> usize {
        match self.neighbours {
            true => 3 * self.size,
            false => self.size,
        }
    }

    /// Counts the pairs of query and key of all blocks if all positions are active.
    fn pairs(&self, length: usize) -> usize {
        length.next_multiple_of(self.size) * self.keys()
    }

    /// Returns A V (B, M, v) of z (B, M, s) and V (B, M, v).
    fn forward(&self, z: &Tensor, v: &Tensor, active: &Active, pass: &Pass) -> Result<Tensor> {
        let (batch, most, width) = z.dims3()?;
        let blocks = most.div_ceil(self.size);
        let vector = |index| -> Result<Tensor> {
            let z = z.broadcast_mul(&self.scale.get(index)?)?;
            Ok(z.broadcast_add(&self.shift.get(index)?)?)
        };
        let by = match self.weighing {
            Weighing::Softmax => (width as f64).powf(-0.5),
            Weighing::Relu2 => 1.0 / (2 * self.window) as f64,
        };
        let q = vector(0)?.affine(by, 0.0)?;
        let q = q.pad_with_zeros(1, 0, blocks * self.size - most)?;
        let q = q.reshape((batch, blocks, self.size, width))?;
        let (k, v) = (self.around(&vector(1)?)?, self.around(v)?);
        let (indices, seen) = self.of_pairs(active, blocks);
        let shape = (batch, blocks, self.size, self.keys());
        let indices = Tensor::from_vec(
            indices,
            batch * blocks * self.size * self.keys(),
            z.device(),
        )?;
        let added = self.distance.index_select(&indices, 0)?.reshape(shape)?;
        let scores = (matmul(&q, &k.t()?)? + added)?;
        let seen = Tensor::from_vec(seen, shape, z.device())?.to_dtype(z.dtype())?;
        let weights = match self.weighing {
            // Far below any score. Rows that see no key are not read.
            Weighing::Softmax => softmax::masked(&(scores + seen.affine(1e9, -1e9)?)?, None)?,
            Weighing::Relu2 => (relu(&scores, 0.0)?.sqr()? * seen)?,
        };
        let weights = match self.dropout.of_attention(batch, pass) {
            Some(dropout) => {
                let factors = dropout.factors(blocks, self.size, self.keys(), z.device())?;
                (weights * factors.to_dtype(z.dtype())?)?
            }
            None => weights,
        };
        let y = matmul(&weights, &v)?.reshape((batch, blocks * self.size, v.dim(3)?))?;
        Ok(y.narrow(1, 0, most)?.contiguous()?)
    }

    /// Returns the rows of x (B, M, W) that each block sees, (B, blocks, keys, W).
    fn around(&self, x: &Tensor) -> Result<Tensor> {
        let (batch, most, width) = x.dims3()?;
        let blocks = most.div_ceil(self.size);
        let filled = blocks * self.size;
        let shape = (batch, blocks, self.size, width);
        if !self.neighbours {
            let x = x.pad_with_zeros(1, 0, filled - most)?;
            return Ok(x.reshape(shape)?);
        }
        let x = x.pad_with_zeros(1, self.size, filled - most + self.size)?;
        let part = |index: usize| -> Result<Tensor> {
            let x = x.narrow(1, index * self.size, filled)?.contiguous()?;
            Ok(x.reshape(shape)?)
        };
        cat(&[&part(0)?, &part(1)?, &part(2)?], 2)
    }

    /// Returns the place in w of every pair of a block's queries and keys, and 1 where the query
    /// sees the key; in the order (B, blocks, queries, keys).
    fn of_pairs(&self, active: &Active, blocks: usize) -> (Vec<u32>, Vec<f32>) {
        let (size, keys) = (self.size, self.keys());
        let count = active.positions.len() * blocks * size * keys;
        let (mut indices, mut seen) = (vec![0; count], vec![0.0; count]);
        let pairs = indices.chunks_mut(keys).zip(seen.chunks_mut(keys));
        for (row, (indices, seen)) in pairs.enumerate() {
            let positions = &active.positions[row / (blocks * size)];
            let query = row % (blocks * size);
            let Some(at) = positions.get(query) else {
                continue;
            };
            let before = if self.neighbours { size } else { 0 };
            let first = (query / size * size) as isize - before as isize;
            let reach = self.window as isize;
            let nearest = (query as isize - reach - first).max(-first).max(0) as usize;
            for key in nearest..keys {
                let number = (first + key as isize) as usize;
                if number >= positions.len() || number > query + self.window {
                    break;
                }
                let (apart, middle) = match self.of {
                    Distance::Position => {
                        let apart = positions[number] as isize - *at as isize;
                        (apart, self.distance.elem_count() / 2)
                    }
                    Distance::Order => (number as isize - query as isize, self.window),
                };
                indices[key] = (middle as isize + apart) as u32;
                seen[key] = 1.0;
            }
        }
        (indices, seen)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use serde_json::json;

    use super::*;
    use crate::{
        Parameters, RngKey,
        testing::{check_layer, close, normal, parameters},
    };

    fn encoder(
        parameters: &Parameters,
        place: NormPlace,
        options: serde_json::Value,
    ) -> Box<dyn Encoder> {
        let block = BlockOptions {
            layers: 1,
            dim: 4,
            mlp_dim: 3,
            ffn: ChannelKind::None,
            norm_place: place,
            dropout: 0.2,
            ..BlockOptions::default()
        };
        let mut all = MODEL.defaults();
        crate::options::overlay(&mut all, &options);
        let context = ModelContext::new(parameters.builder(), &block, &MODEL, &all, 9);
        MODEL.build(&context).unwrap()
    }

    fn mask() -> Mask {
        let valid = [[1.0; 9], [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for (attention, distance, window, place) in [
            ("softmax", "position", 2, NormPlace::Post),
            ("relu2", "order", 2, NormPlace::Pre),
            ("softmax", "order", 20, NormPlace::Post),
        ] {
            let parameters = parameters();
            let options = json!({"attention": attention, "distance": distance, "window": window, "modes": 2, "hidden_dropout": 0.2});
            let encoder = encoder(&parameters, place, options);
            let pass = Pass::new(true, RngKey::new(1, 0, 0));
            check_layer(attention, &parameters, &[2, 9, 4], |x| {
                Ok(encoder.forward(x, &pass.with_mask(Some(&mask)))?.hidden)
            });
        }
    }

    /// Every block of queries, pair by pair.
    #[test]
    fn a_query_sees_the_active_keys_of_its_window() {
        for (window, weighing, of) in [
            (2, Weighing::Softmax, Distance::Position),
            (3, Weighing::Relu2, Distance::Order),
            (40, Weighing::Softmax, Distance::Order),
        ] {
            let parameters = parameters();
            let options = Options {
                window,
                attention: weighing,
                distance: of,
                ..Options::default()
            };
            let dropout = Dropout::new(&parameters.builder(), 0.0);
            let attention =
                WindowAttention::new(&parameters.builder(), 3, 20, &options, dropout).unwrap();
            for (path, var) in parameters.all() {
                var.set(&normal(&path, var.dims())).unwrap();
            }
            let lead = normal("lead", &[1, 20, 1]);
            let active = Active::new(&lead, None).unwrap();
            let positions = &active.positions[0];
            let count = positions.len();
            assert!((5..18).contains(&count), "{count}");
            let (z, v) = (normal("z", &[1, count, 3]), normal("v", &[1, count, 2]));
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            let y = attention.forward(&z, &v, &active, &pass).unwrap();
            let rows = |x: &Tensor| x.to_vec2::<f64>().unwrap();
            let (z, v) = (rows(&z.get(0).unwrap()), rows(&v.get(0).unwrap()));
            let (scale, shift) = (rows(&attention.scale), rows(&attention.shift));
            let table = attention.distance.to_vec1::<f64>().unwrap();
            let mut expected = vec![vec![0.0; 2]; count];
            for i in 0..count {
                let keys: Vec<usize> = (0..count).filter(|j| i.abs_diff(*j) <= window).collect();
                let score = |j: usize| {
                    let product = (0..3).map(|n| {
                        let q = scale[0][n] * z[i][n] + shift[0][n];
                        q * (scale[1][n] * z[j][n] + shift[1][n])
                    });
                    let (by, place) = (
                        match weighing {
                            Weighing::Softmax => 3f64.powf(-0.5),
                            Weighing::Relu2 => 0.5 / window as f64,
                        },
                        match of {
                            Distance::Position => {
                                19 + positions[j] as usize - positions[i] as usize
                            }
                            Distance::Order => window + j - i,
                        },
                    );
                    let score = by * product.sum::<f64>() + table[place];
                    match weighing {
                        Weighing::Softmax => score.exp(),
                        Weighing::Relu2 => score.max(0.0).powi(2),
                    }
                };
                let total: f64 = match weighing {
                    Weighing::Softmax => keys.iter().map(|j| score(*j)).sum(),
                    Weighing::Relu2 => 1.0,
                };
                for j in keys {
                    (0..2).for_each(|n| expected[i][n] += score(j) / total * v[j][n]);
                }
            }
            let expected = Tensor::new(vec![expected], &Device::Cpu).unwrap();
            close(&y, &expected, 1e-10, "window");
        }
    }

    /// Rows without an active position are x and c alone.
    #[test]
    fn no_position_may_be_active() {
        let parameters = parameters();
        let encoder = encoder(&parameters, NormPlace::Post, json!({}));
        let (_, bias) = parameters
            .all()
            .into_iter()
            .find(|(path, _)| path.ends_with("route.bias"))
            .unwrap();
        let closed = [1e3, -1e3, 0.0, 0.0, 0.0, 0.0];
        bias.set(&Tensor::new(&closed, &Device::Cpu).unwrap())
            .unwrap();
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        let y = encoder.forward(&normal("x", &[2, 9, 4]), &pass).unwrap();
        let sum = y.hidden.sqr().unwrap().sum_all().unwrap();
        assert!(sum.to_scalar::<f64>().unwrap().is_finite());
    }
}
