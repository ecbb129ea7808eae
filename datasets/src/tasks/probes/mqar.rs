//! Multi-query associative recall: pairs of key and value, then each key once more, among filler.
//!
//! Arora et al., 2023, "Zoology", arXiv:2312.04927. A row of L tokens begins with L /
//! `tokens_per_pair` pairs, whose keys differ, as do their values. Behind them, each key stands
//! once more at an even distance from the pairs, and the answer at its position is its value. The
//! distances are drawn without repetition, with probabilities inverse to the distance (a power law,
//! with the exponent 1 in place of 0.99, so that whole numbers suffice). All other positions hold
//! random tokens that are no key of the row. Lengths take turns: `min_length` and its doubles.
//!
//! Tokens are bytes, so there are 128 keys and 128 values, and not the 8,192 tokens of the paper.
//! Stored bytes: 0 to 127 the keys, 128 to 255 the values. The label of a row is the answer to its
//! last query.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::common::{Common, bounded, lengths, turn};
use super::probe::{Answers, Place, Probe};
use super::text::wrap;
use crate::error::Result;
use crate::options::{refused, within};
use crate::rng::below;
use crate::{Source, TaskInfo};

/// Number of keys, and of values.
const KEYS: u8 = 128;

/// Weight of the shortest distance in the draw of distances.
const WEIGHT: u32 = 1 << 24;

static INFO: TaskInfo = TaskInfo {
    name: "mqar",
    title: "MQAR",
    summary: "Recall: the value that came with a key, for every key that comes again.",
    paper: "Arora et al., 2023, arXiv:2312.04927",
    version: 1,
    vocabulary: 1 + 2 * KEYS as usize,
    first_id: 1,
    classes: KEYS as usize,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: true,
};

/// Multi-query associative recall.
pub struct Mqar;

/// Options of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    #[serde(flatten)]
    common: Common,
    /// Length of the shortest rows, in tokens.
    min_length: u32,
    /// Length of a row over its number of pairs.
    tokens_per_pair: u32,
}

impl AsRef<Common> for Options {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl Options {
    fn pairs(&self, length: usize) -> usize {
        length / self.tokens_per_pair as usize
    }
}

impl Probe for Mqar {
    type Options = Options;

    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Options {
        Options {
            common: Common::new([20_000, 1000, 3000], 256, 256),
            min_length: 64,
            tokens_per_pair: 16,
        }
    }

    fn check(&self, options: &Options) -> Result<()> {
        let per_pair = options.tokens_per_pair;
        // Pairs, and as many queries at every other position.
        within(&INFO, "tokens_per_pair", per_pair, 4..=1024)?;
        options.common.check(&INFO, per_pair, "tokens_per_pair")?;
        let (least, train) = ((per_pair, "tokens_per_pair"), options.common.train_length);
        bounded(
            &INFO,
            "min_length",
            options.min_length,
            least,
            (train, "train_length and max_length"),
        )?;
        let longest = options.common.max_length;
        if longest / per_pair > u32::from(KEYS) {
            let allowed = format!(
                "at most {} (tokens_per_pair = {per_pair} times {KEYS} keys)",
                u32::from(KEYS) * per_pair + per_pair - 1
            );
            return Err(refused(&INFO, "max_length", longest, allowed));
        }
        Ok(())
    }

    fn groups(&self, options: &Options) -> Vec<String> {
        let lengths = lengths(options.min_length, 2, options.common.max_length);
        let names = lengths.iter().map(|length| format!("length {length}"));
        names.collect()
    }

    fn group(&self, options: &Options, length: usize, _position: usize) -> usize {
        let ratio = length / options.min_length as usize;
        ratio.checked_ilog2().unwrap_or(0) as usize
    }

    fn draw(&self, options: &Options, place: &Place, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let longest = place.choose(options.common.train_length, options.common.max_length);
        let length = turn(&lengths(options.min_length, 2, longest), place.row) as usize;
        let pairs = options.pairs(length);
        let keys = choose(rng, pairs);
        let values = choose(rng, pairs);
        let filler: Vec<u8> = (0..=u8::MAX).filter(|it| !keys.contains(it)).collect();
        let fill = |_| filler[below(rng, filler.len() as u32) as usize];
        let mut tokens: Vec<u8> = (0..length).map(fill).collect();
        for (pair, (key, value)) in keys.iter().zip(&values).enumerate() {
            (tokens[2 * pair], tokens[2 * pair + 1]) = (*key, KEYS + *value);
        }
        let places = distances(rng, (length - 2 * pairs) / 2, pairs);
        for (key, place) in keys.iter().zip(places) {
            tokens[2 * pairs + 2 * place] = *key;
        }
        tokens
    }

    fn answers(&self, options: &Options, tokens: &[u8]) -> Result<Answers, String> {
        let pairs = options.pairs(tokens.len());
        let (context, rest) = tokens.split_at(2 * pairs);
        let mut values = [None; 256];
        for pair in context.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            if key >= KEYS || value < KEYS || values[usize::from(key)].is_some() {
                return Err("it does not begin with pairs of different keys".to_owned());
            }
            values[usize::from(key)] = Some(value - KEYS);
        }
        let answer =
            |(at, token): (usize, &u8)| Some((2 * pairs + at, values[usize::from(*token)]?));
        let positions: Vec<_> = rest.iter().enumerate().filter_map(answer).collect();
        match positions.last() {
            Some(&(_, label)) if positions.len() == pairs => Ok(Answers { label, positions }),
            _ => Err(format!("{} queries for {pairs} pairs", positions.len())),
        }
    }

    fn to_text(&self, tokens: &[u8], label: u8) -> String {
        let spell = |&token: &u8| match token < KEYS {
            true => format!("k{token}"),
            false => format!("v{}", token - KEYS),
        };
        let words: Vec<String> = tokens.iter().map(spell).collect();
        format!("{}\nanswer to the last query: v{label}\n", wrap(&words))
    }

    fn rule(&self) -> (&'static str, fn(&[u8]) -> u8) {
        // The number of pairs is not known to a rule, but the first one is always there.
        ("first value", |tokens| {
            tokens.get(1).map_or(0, |value| value.saturating_sub(KEYS))
        })
    }
}

/// Returns `count` different numbers below [`KEYS`], in a random order.
fn choose(rng: &mut ChaCha8Rng, count: usize) -> Vec<u8> {
    let mut all: Vec<u8> = (0..KEYS).collect();
    for place in 0..count {
        let from = place + below(rng, (all.len() - place) as u32) as usize;
        all.swap(place, from);
    }
    all.truncate(count);
    all
}

/// Returns `count` different numbers below `space`; 0 has the weight 1, 1 the weight 1/2, and so
/// on.
fn distances(rng: &mut ChaCha8Rng, space: usize, count: usize) -> Vec<usize> {
    let mut weights: Vec<u32> = (1..=space as u32).map(|it| WEIGHT / it).collect();
    let mut total: u32 = weights.iter().sum();
    let mut drawn = Vec::with_capacity(count);
    for _ in 0..count {
        let mut left = below(rng, total);
        let found = weights.iter().position(|&weight| match left < weight {
            true => true,
            false => {
                left -= weight;
                false
            }
        });
        let place = found.unwrap_or_default();
        total -= std::mem::take(&mut weights[place]);
        drawn.push(place);
    }
    drawn
}
