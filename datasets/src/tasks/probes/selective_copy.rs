//! Selective copying: the data tokens of a row in their order, without the noise between them.
//!
//! Jing et al., 2019, arXiv:1706.02761; Gu and Dao, 2023, "Mamba", arXiv:2312.00752. A row ends
//! with as many markers as it has data tokens; before them, the data tokens stand at random places
//! among noise. The answer at the k-th marker is the k-th data token. Rows of training and
//! validation have `train_length` tokens; those of test have this length and its doubles up to
//! `max_length`, in turn.
//!
//! Stored bytes: 0 to 15 the data tokens, 16 noise, 17 the marker. The label of a row is its middle
//! data token, of 16 the eighth.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::common::{Common, lengths, turn};
use super::probe::{Answers, Place, Probe, most_frequent};
use super::text::{shorten, wrap};
use crate::error::Result;
use crate::options::within;
use crate::rng::below;
use crate::{Source, TaskInfo};

const SYMBOLS: u8 = 16;
const NOISE: u8 = SYMBOLS;
const MARKER: u8 = SYMBOLS + 1;

static INFO: TaskInfo = TaskInfo {
    name: "selective_copy",
    title: "Selective copy",
    summary: "Copying: the data tokens in their order, without the noise between them.",
    paper: "Jing et al., 2019, arXiv:1706.02761; Gu and Dao, 2023, arXiv:2312.00752",
    version: 1,
    vocabulary: 2 + MARKER as usize,
    first_id: 1,
    classes: SYMBOLS as usize,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: true,
};

/// Selective copying.
pub struct SelectiveCopy;

/// Options of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    #[serde(flatten)]
    common: Common,
    /// Number of data tokens of a row.
    tokens: u32,
}

impl AsRef<Common> for Options {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl Probe for SelectiveCopy {
    type Options = Options;

    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Options {
        Options {
            common: Common::new([20_000, 1000, 2000], 256, 256),
            tokens: 16,
        }
    }

    fn check(&self, options: &Options) -> Result<()> {
        within(&INFO, "tokens", options.tokens, 1..=1024)?;
        options.common.check(&INFO, 2 * options.tokens, "tokens")
    }

    fn groups(&self, options: &Options) -> Vec<String> {
        let common = &options.common;
        let lengths = lengths(common.train_length, 2, common.max_length);
        let names = lengths.iter().map(|length| format!("length {length}"));
        names.collect()
    }

    fn group(&self, options: &Options, length: usize, _position: usize) -> usize {
        let ratio = length / options.common.train_length as usize;
        ratio.checked_ilog2().unwrap_or(0) as usize
    }

    fn draw(&self, options: &Options, place: &Place, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let common = &options.common;
        let longest = place.choose(common.train_length, common.max_length);
        let length = turn(&lengths(common.train_length, 2, longest), place.row);
        let mut missing = options.tokens;
        let context = length - missing;
        let mut tokens = Vec::with_capacity(length as usize);
        for left in (1..=context).rev() {
            // Every set of places is equally likely.
            let is_data = below(rng, left) < missing;
            missing -= u32::from(is_data);
            tokens.push(match is_data {
                true => below(rng, SYMBOLS.into()) as u8,
                false => NOISE,
            });
        }
        tokens.resize(length as usize, MARKER);
        tokens
    }

    fn answers(&self, _options: &Options, tokens: &[u8]) -> Result<Answers, String> {
        let data = || tokens.iter().copied().filter(|&token| token < SYMBOLS);
        let count = data().count();
        let context = tokens.len().saturating_sub(count);
        if tokens[context..].iter().any(|&token| token != MARKER) {
            return Err(format!("it does not end with {count} markers"));
        }
        let Some(label) = data().nth(count.saturating_sub(1) / 2) else {
            return Err("it has no data tokens".to_owned());
        };
        Ok(Answers {
            label,
            positions: (context..).zip(data()).collect(),
        })
    }

    fn to_text(&self, tokens: &[u8], label: u8) -> String {
        let spell = |&token: &u8| match token {
            NOISE => "·".to_owned(),
            MARKER => "?".to_owned(),
            token if token < SYMBOLS => char::from(b'a' + token).to_string(),
            token => format!("<{token}>"),
        };
        let words = shorten(tokens.iter().map(spell), "·");
        format!("{}\nmiddle data token: {}\n", wrap(&words), spell(&label))
    }

    fn rule(&self) -> (&'static str, fn(&[u8]) -> u8) {
        ("most common data", |tokens| {
            most_frequent(tokens, 0..SYMBOLS)
        })
    }
}
