//! Hierarchical Transformer. Zhang et al., 2019, "HIBERT", arXiv:1905.06566; with learned queries
//! for a segment's vector Liu & Lapata, 2019, "Hierarchical Transformers for Multi-Document
//! Summarization", arXiv:1905.13164.
//!     h_s = lower(x_s),  v_s = aggregate(h_s),  y = upper(v + p)
//! x_s (B, S, D) segment s of the sequence, B batch, S its length; v, y (B, ⌈L/S⌉, D) one vector
//! per segment; p sines and cosines of s. The head pools y. All segments go through the same lower
//! blocks and do not see each other. The upper blocks use softmax attention. Time O(L·S·E +
//! (L/S)²·E) per head of width E; S = √L balances the two terms; memory O(L·E). A CLS token is the
//! first token of the first segment, whose vector is read by `head.pooling = cls` and `first`.
//!
//! # Options
//!
//! `segment` S (0: ⌈√N⌉, N the longest length); `lower` blocks (0: half of `block.layers`, rounded
//! up); `upper` blocks (0: the rest of `block.layers`); `mixer` of the lower blocks, any model
//! without settings of its own, with its default options; `aggregate`: `mean` over valid positions,
//! the `first` of them (HIBERT has the last position), or `attention`, W_O MAB(z, h) with one
//! learned vector z (see `head.pooling = attention`).
//!
//! # Padding
//!
//! A segment without a valid token is hidden from the upper blocks.
//!
//! # Departures
//!
//! Tokens carry their position in the sequence; in the papers they carry that in the segment.
//! Weights begin Xavier-uniform as in nlpyang/hiersumm@476e6bf
//! src/abstractive/model_builder.py:101-103; biases of the feed-forward network begin N(0, 1e-6²),
//! there uniform within inputs^-½ (±0.125 and ±0.088 at D = 64 and a width of 128). Projections
//! have biases there, which begin likewise (src/abstractive/attn.py:58-68). z of `attention` begins
//! uniform within (6 / (D + 1))^½ and b as 0; there scores of a segment's tokens are a linear map
//! (attn.py:216), and its vector is added to each of them
//! (src/abstractive/transformer_encoder.py:158-180). The norms' ε is 1e-6 in both. No public code
//! of HIBERT was found.

use crate::{
    Encoded,
    context::Geometry,
    layers::{Pool, embedding::sinusoid},
    mixers::{self, MODELS, transformer},
    options::{ChannelKind, Pooling},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hierarchical",
    title: "Hierarchical Transformer",
    paper: "HIBERT: Document Level Pre-training of Hierarchical Bidirectional Transformers for Document Summarization",
    year: 2019,
    arxiv: "1905.06566",
    time: Cost::Sqrt("O(L·√L·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[Variant::paper(build, include_str!("hierarchical.rs"))],
    ..Model::with_options::<Options>()
};

/// Reduction of a segment to a vector.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Aggregate {
    Mean,
    First,
    Attention,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// S.
    #[option(range = int(0, LONGEST))]
    segment: usize,
    #[option(range = int(0, 1000))]
    lower: usize,
    #[option(range = int(0, 1000))]
    upper: usize,
    #[option(default = transformer::MODEL.name.to_owned())]
    mixer: String,
    #[option(default = Aggregate::Mean)]
    aggregate: Aggregate,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    let block = context.block;
    context.refuse_one_length("because blocks differ in length")?;
    require(
        !matches!(block.ffn, ChannelKind::Switch | ChannelKind::Moe),
        "block.ffn",
        "switch or moe",
        "another one, because experts are balanced over sequences, not over segments",
    )?;
    let plain = |model: &&&Model| model.settings.is_empty();
    let model = mixers::find(&options.mixer);
    let model = model.filter(|model| plain(&model)).ok_or_else(|| {
        let names = MODELS
            .iter()
            .filter(plain)
            .map(|model| model.name.to_owned());
        Error::Word {
            key: "model.mixer".to_owned(),
            value: options.mixer.clone(),
            known: names.collect(),
        }
    })?;
    let lower = match options.lower {
        0 => block.layers.div_ceil(2),
        lower => lower,
    };
    let upper = match options.upper {
        0 => block.layers.saturating_sub(lower),
        upper => upper,
    };
    let segment = match options.segment {
        0 => (context.max_length as f64).sqrt().ceil() as usize,
        segment => segment.min(context.max_length),
    };
    let segments = context.max_length.div_ceil(segment);
    let stack = |name, layers, max_length, model: &Model, conditional| {
        let block = BlockOptions {
            layers,
            ..block.clone()
        };
        model.build(&ModelContext {
            geometry: Geometry {
                grid: None,
                ..context.geometry
            },
            conditional,
            ..ModelContext::new(
                context.vb.pp(name),
                &block,
                model,
                &model.defaults(),
                max_length,
            )
        })
    };
    require(
        !(context.cls && context.conditional),
        "embed.positions",
        "conditional",
        "another value where head.pooling = cls, whose token is one of the first segment",
    )?;
    let below = stack("lower", lower, segment, model, context.conditional)?;
    require(
        below.losses().is_empty(),
        "model.mixer",
        model.name,
        "a mixer without a loss of its own, such as linear",
    )?;
    let vb = context.vb.pp("aggregate");
    let (pooling, output) = match options.aggregate {
        Aggregate::Mean => (Pooling::Mean, None),
        Aggregate::First => (Pooling::First, None),
        Aggregate::Attention => {
            let (inputs, outputs) = (block.qkv_dim, block.dim);
            let init = xavier_uniform(inputs, outputs);
            let output = Linear::new(&vb.pp("output"), inputs, outputs, init, None)?;
            (Pooling::Attention, Some(output))
        }
    };
    Ok(Box::new(Hierarchical {
        segment,
        lower: below,
        pool: Pool::new(&vb, pooling, block)?,
        output,
        upper: match upper {
            0 => None,
            _ => Some(stack("upper", upper, segments, &transformer::MODEL, false)?),
        },
    }))
}

/// Returns the first valid one of the states (R, S, D) of each segment, as (R, D). In a segment
/// without a valid position it is that at position 0.
fn first_valid(hidden: &Tensor, mask: &Mask) -> Result<Tensor> {
    let (rows, size, _) = hidden.dims3()?;
    let places = Mask::places(Some(mask), (rows, size))?;
    let first = |row: &Vec<usize>| row.first().map_or(0, |place| *place as u32);
    let first: Vec<u32> = places.iter().map(first).collect();
    let first = Tensor::from_vec(first, (rows, 1), hidden.device())?;
    Ok(take(hidden, &first)?.squeeze(1)?)
}

struct Hierarchical {
    segment: usize,
    lower: Box<dyn Encoder>,
    pool: Pool,
    /// W_O, for aggregate = attention.
    output: Option<Linear>,
    /// The blocks over segments, if there are any.
    upper: Option<Box<dyn Encoder>>,
}

impl Encoder for Hierarchical {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let (batch, length, dim) = x.dims3()?;
        let size = self.segment.min(length);
        let segments = length.div_ceil(size);
        let missing = segments * size - length;
        let valid = match (pass.mask(), missing) {
            (Some(mask), _) => Some(mask.valid().clone()),
            (None, 0) => None,
            (None, _) => Some(Tensor::ones((batch, length), x.dtype(), x.device())?),
        };
        // Segments are rows of a batch.
        let x = x.pad_with_zeros(1, 0, missing)?;
        let x = x.reshape((batch * segments, size, dim))?;
        let mask = match &valid {
            Some(valid) => {
                let valid = valid.pad_with_zeros(1, 0, missing)?;
                Some(Mask::new(&valid.reshape((batch * segments, size))?)?)
            }
            None => None,
        };
        let within = pass.with_rng(pass.rng.of_parts(segments));
        let within = within.with_mask(mask.as_ref());
        let encoded = self.lower.forward(&x, &within)?;
        let (hidden, valid) = (&encoded.hidden, encoded.mask.as_ref());
        let v = match (&self.pool, valid) {
            (Pool::First, Some(valid)) => first_valid(hidden, valid)?,
            _ => self.pool.forward(hidden, valid, &within)?,
        };
        let v = match &self.output {
            Some(output) => output.forward(&v)?,
            None => v,
        };
        let v = v.reshape((batch, segments, dim))?;
        let mask = match mask {
            Some(mask) => Some(Mask::new(&mask.has_valid().reshape((batch, segments))?)?),
            None => None,
        };
        match &self.upper {
            Some(upper) => {
                let positions = sinusoid(segments, dim, v.dtype(), v.device())?;
                let v = v.broadcast_add(&positions)?;
                upper.forward(&v, &pass.with_mask(mask.as_ref()))
            }
            None => Ok(Encoded { hidden: v, mask }),
        }
    }

    fn rule_violation(&self) -> Option<&'static str> {
        self.lower.rule_violation()
    }

    fn keeps_length(&self) -> bool {
        false
    }

    /// Returns the slot of a position: a segment's vector stands for all of its positions.
    fn slot_of(&self, position: usize) -> usize {
        position / self.segment
    }

    fn flops(&self, length: usize) -> u64 {
        let size = self.segment.min(length);
        let segments = length.div_ceil(size);
        let output = self.output.as_ref().map_or(0, |output| output.flops(1));
        let segment = self.lower.flops(size) + self.pool.flops(size) + output;
        let upper = self.upper.as_ref();
        (segments as u64)
            .saturating_mul(segment)
            .saturating_add(upper.map_or(0, |upper| upper.flops(segments)))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use serde_json::json;

    use super::*;
    use crate::{
        Parameters, RngKey,
        mask::zero_padding,
        options::{NormKind, overlay},
        testing::{check_layer, close, normal, parameters},
    };

    fn encoder(
        model: &'static Model,
        options: serde_json::Value,
        parameters: &Parameters,
        path: &str,
    ) -> Box<dyn Encoder> {
        let block = BlockOptions {
            // Differences are too coarse where a norm stretches a short row.
            norm: NormKind::None,
            layers: 2,
            dim: 4,
            qkv_dim: 6,
            heads: 2,
            mlp_dim: 5,
            ..BlockOptions::default()
        };
        let mut own = model.defaults();
        overlay(&mut own, &options);
        let vb = parameters.builder();
        let context = ModelContext::new(
            if path.is_empty() { vb } else { vb.pp(path) },
            &block,
            model,
            &own,
            7,
        );
        model.build(&context).unwrap()
    }

    fn mask() -> Mask {
        let valid = [[1.0; 7], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 7]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    #[test]
    fn one_segment_with_mean_is_a_transformer_whose_states_are_averaged() {
        let parameters = parameters();
        let options = json!({"segment": 7, "lower": 2});
        let hierarchical = encoder(&MODEL, options, &parameters, "");
        let transformer = encoder(&transformer::MODEL, json!({}), &parameters, "lower");
        let (x, mask) = (normal("x", &[3, 7, 4]), mask());
        for mask in [None, Some(&mask)] {
            let pass = pass().with_mask(mask);
            let actual = hierarchical.forward(&x, &pass).unwrap();
            let expected = transformer.forward(&x, &pass).unwrap();
            let mean = Pool::Mean.forward(&expected.hidden, mask, &pass).unwrap();
            close(&actual.hidden, &mean.unsqueeze(1).unwrap(), 1e-12, "mean");
        }
    }

    /// Without upper blocks a segment's vector depends on the segment alone.
    #[test]
    fn segments_meet_in_the_upper_blocks_alone() {
        let parameters = parameters();
        for (lower, apart) in [(2, true), (1, false)] {
            let options = json!({"segment": 3, "lower": lower, "aggregate": "first"});
            let path = format!("of {lower}");
            let encoder = encoder(&MODEL, options, &parameters, &path);
            let x = normal("x", &[1, 7, 4]);
            let alone = encoder.forward(&x.narrow(1, 3, 3).unwrap(), &pass());
            let all = encoder.forward(&x, &pass()).unwrap().hidden;
            let second = all.narrow(1, 1, 1).unwrap();
            let difference = (second - alone.unwrap().hidden).unwrap().abs().unwrap();
            let most = difference.max_all().unwrap().to_scalar::<f64>().unwrap();
            assert_eq!(most < 1e-12, apart, "{most}");
        }
    }

    /// Without upper blocks, the vector of a single segment is one of its states.
    #[test]
    fn first_is_the_first_valid_position_wherever_padding_is() {
        let parameters = parameters();
        let options = json!({"segment": 3, "lower": 2, "aggregate": "first"});
        let hierarchical = encoder(&MODEL, options, &parameters, "");
        let transformer = encoder(&transformer::MODEL, json!({}), &parameters, "lower");
        let x = normal("x", &[4, 3, 4]);
        let valid = [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0], [0.0; 3]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let pass = pass().with_mask(Some(&mask));
        let actual = hierarchical.forward(&x, &pass).unwrap().hidden;
        let states = transformer.forward(&x, &pass).unwrap().hidden;
        for (row, place) in [0, 1, 2, 0].into_iter().enumerate() {
            let of_row = |x: &Tensor, at| x.narrow(0, row, 1).and_then(|x| x.narrow(1, at, 1));
            let (actual, expected) = (of_row(&actual, 0), of_row(&states, place));
            close(&actual.unwrap(), &expected.unwrap(), 1e-12, "first");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for aggregate in ["mean", "first", "attention"] {
            let parameters = parameters();
            let options = json!({"segment": 3, "aggregate": aggregate});
            let encoder = encoder(&MODEL, options, &parameters, "");
            check_layer(aggregate, &parameters, &[3, 7, 4], |x| {
                let y = encoder.forward(x, &pass().with_mask(Some(&mask)))?;
                zero_padding(&y.hidden, y.mask.as_ref())
            });
        }
    }

    #[test]
    fn a_mixer_that_does_not_fit_is_refused_with_those_that_do() {
        let parameters = parameters();
        let mut own = MODEL.defaults();
        for name in ["gtrxl", "routing", "wings"] {
            overlay(&mut own, &json!({"mixer": name}));
            let block = BlockOptions::default();
            let built = MODEL.build(&ModelContext::new(
                parameters.builder(),
                &block,
                &MODEL,
                &own,
                7,
            ));
            let error = built.err().unwrap().to_string();
            assert!(error.contains(name) && error.contains("linear"), "{error}");
        }
    }
}
