//! A needle in a haystack: the value of a marked key in noise.
//!
//! A row holds, at a random place, the marker, a key and its value, and ends with a question and
//! the key; the answer is the value. Noise consists of keys and values, so that only the marker
//! tells the needle. Rows of training and validation have `train_length` tokens; those of test have
//! this length, four times as many, and so on up to `max_length`, in turn.
//!
//! Stored bytes: 0 to 63 the values, 64 to 95 the keys, 96 the marker, 97 the question.

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::common::{Common, lengths, turn};
use super::probe::{Answers, Place, Probe, most_frequent};
use super::text::{shorten, wrap};
use crate::error::Result;
use crate::rng::below;
use crate::{Source, TaskInfo};

const VALUES: u8 = 64;
const KEYS: u8 = 32;
const MARKER: u8 = VALUES + KEYS;
const QUESTION: u8 = MARKER + 1;

/// Ratio of a tested length to the next smaller one.
const FACTOR: u32 = 4;

static INFO: TaskInfo = TaskInfo {
    name: "needle",
    title: "Needle",
    summary: "Recall over a distance: the value of the one marked key in a long row of noise.",
    paper: "after Kamradt, 2023, \"Needle in a haystack\", and Hsieh et al., 2024, arXiv:2404.06654",
    version: 1,
    vocabulary: 2 + QUESTION as usize,
    first_id: 1,
    classes: VALUES as usize,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: true,
};

/// A needle in a haystack.
pub struct Needle;

/// Options of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    #[serde(flatten)]
    common: Common,
}

impl AsRef<Common> for Options {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl Probe for Needle {
    type Options = Options;

    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Options {
        Options {
            common: Common::new([20_000, 500, 150], 1024, 16_384),
        }
    }

    fn check(&self, options: &Options) -> Result<()> {
        options.common.check(&INFO, 8, "")
    }

    fn groups(&self, options: &Options) -> Vec<String> {
        let common = &options.common;
        let lengths = lengths(common.train_length, FACTOR, common.max_length);
        let names = lengths.iter().map(|length| format!("length {length}"));
        names.collect()
    }

    fn group(&self, options: &Options, length: usize, _position: usize) -> usize {
        let ratio = length / options.common.train_length as usize;
        ratio.checked_ilog(FACTOR as usize).unwrap_or(0) as usize
    }

    fn draw(&self, options: &Options, place: &Place, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let common = &options.common;
        let longest = place.choose(common.train_length, common.max_length);
        let length = turn(&lengths(common.train_length, FACTOR, longest), place.row) as usize;
        let mut tokens: Vec<u8> = (0..length)
            .map(|_| below(rng, MARKER.into()) as u8)
            .collect();
        let key = VALUES + below(rng, KEYS.into()) as u8;
        let value = below(rng, VALUES.into()) as u8;
        let at = below(rng, length as u32 - 4) as usize;
        tokens[at..at + 3].copy_from_slice(&[MARKER, key, value]);
        tokens[length - 2..].copy_from_slice(&[QUESTION, key]);
        tokens
    }

    fn answers(&self, _options: &Options, tokens: &[u8]) -> Result<Answers, String> {
        let at = tokens.iter().position(|&token| token == MARKER);
        let needle = at.and_then(|at| tokens.get(at + 1..at + 3));
        match (needle, tokens) {
            (Some(&[key, label]), [.., QUESTION, asked]) if key == *asked && label < VALUES => {
                Ok(Answers {
                    label,
                    positions: vec![(tokens.len() - 1, label)],
                })
            }
            _ => Err("no marked key that is asked for".to_owned()),
        }
    }

    fn to_text(&self, tokens: &[u8], label: u8) -> String {
        let marked = tokens.iter().position(|&token| token == MARKER);
        let marked = marked.unwrap_or(tokens.len());
        let told = |at: usize| (marked..=marked + 2).contains(&at) || at + 2 >= tokens.len();
        let spell = |(at, &token): (usize, &u8)| match token {
            _ if !told(at) => "·".to_owned(),
            MARKER => "needle:".to_owned(),
            QUESTION => "question:".to_owned(),
            token if token < VALUES => format!("v{token}"),
            token if token < MARKER => format!("k{}", token - VALUES),
            token => format!("<{token}>"),
        };
        let words = shorten(tokens.iter().enumerate().map(spell), "·");
        format!("{}\nanswer: v{label}\n", wrap(&words))
    }

    fn rule(&self) -> (&'static str, fn(&[u8]) -> u8) {
        ("most common value", |tokens| {
            most_frequent(tokens, 0..VALUES)
        })
    }
}
