//! State tracking: the product of the elements of a finite group read so far, at every position.
//!
//! Merrill, Petty and Sabharwal, 2024, "The Illusion of State in State-Space Models",
//! arXiv:2404.08819. A row is a word of uniform random elements; the answer at position t is the
//! product of the first t + 1 elements, and the label of a row is the product of all. Words of
//! training and validation have `min_length` to `train_length` elements, those of test
//! `test_min_length` to `max_length`; lengths are drawn evenly until a word is new, so short words
//! are rarer. Scores are grouped by the number of elements multiplied: up to `train_length`, up to
//! twice as many, and so on.
//!
//! Stored bytes are the numbers of elements (`group.rs`).

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use self::group::{Group, LARGEST, Table};
use super::common::{Common, bounded};
use super::probe::{Answers, Place, Probe};
use super::text::wrap;
use crate::error::Result;
use crate::rng::below;
use crate::synthetic::between;
use crate::{Source, TaskInfo};

mod group;

static INFO: TaskInfo = TaskInfo {
    name: "state_tracking",
    title: "State tracking",
    summary: "State: the product of all group elements so far, beyond the trained length.",
    paper: "Merrill et al., 2024, arXiv:2404.08819",
    version: 1,
    vocabulary: 1 + LARGEST,
    first_id: 1,
    classes: LARGEST,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: true,
};

/// State tracking.
pub struct StateTracking;

/// Options of the task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Options {
    #[serde(flatten)]
    common: Common,
    /// Group of the elements.
    group: Group,
    /// Length of the shortest words of the training and validation splits.
    min_length: u32,
    /// Length of the shortest words of the test split.
    test_min_length: u32,
}

impl AsRef<Common> for Options {
    fn as_ref(&self) -> &Common {
        &self.common
    }
}

impl Options {
    /// Returns the largest number of elements of each group of scores.
    fn bounds(&self) -> Vec<u32> {
        let (first, last) = (self.common.train_length, self.common.max_length);
        let mut bounds = super::common::lengths(first, 2, last);
        if bounds.last() != Some(&last) {
            bounds.push(last);
        }
        bounds
    }
}

impl Probe for StateTracking {
    type Options = Options;

    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Options {
        Options {
            common: Common::new([20_000, 1000, 1000], 32, 256),
            group: Group::A5,
            min_length: 1,
            test_min_length: 33,
        }
    }

    fn check(&self, options: &Options) -> Result<()> {
        let common = &options.common;
        common.check(&INFO, 1, "")?;
        let (least, train, test) = ((1, ""), common.train_length, common.max_length);
        bounded(
            &INFO,
            "min_length",
            options.min_length,
            least,
            (train, "train_length"),
        )?;
        bounded(
            &INFO,
            "test_min_length",
            options.test_min_length,
            least,
            (test, "max_length"),
        )
    }

    fn departure(&self, options: &Options) -> Option<(&'static str, String)> {
        let name = options.group.name().to_owned();
        (options.group != Group::A5).then_some(("group", name))
    }

    fn classes(&self, options: &Options) -> usize {
        options.group.table().size()
    }

    fn groups(&self, options: &Options) -> Vec<String> {
        let bounds = options.bounds();
        let from = std::iter::once(0).chain(bounds.iter().copied());
        let names = from.zip(&bounds);
        names
            .map(|(before, last)| format!("length {} to {last}", before + 1))
            .collect()
    }

    fn group(&self, options: &Options, _length: usize, position: usize) -> usize {
        let bounds = options.bounds();
        bounds.partition_point(|&bound| bound as usize <= position)
    }

    fn draw(&self, options: &Options, place: &Place, rng: &mut ChaCha8Rng) -> Vec<u8> {
        let common = &options.common;
        let length = between(
            rng,
            place.choose(
                options.min_length..=common.train_length,
                options.test_min_length..=common.max_length,
            ),
        );
        let elements = options.group.table().size() as u32;
        (0..length).map(|_| below(rng, elements) as u8).collect()
    }

    fn answers(&self, options: &Options, tokens: &[u8]) -> Result<Answers, String> {
        let table: &Table = options.group.table();
        let mut state = None;
        let mut positions = Vec::with_capacity(tokens.len());
        for (position, &element) in tokens.iter().enumerate() {
            if usize::from(element) >= table.size() {
                return Err(format!("there is no element {element}"));
            }
            let product = state.map_or(element, |state| table.product(state, element));
            state = Some(product);
            positions.push((position, product));
        }
        match state {
            Some(label) => Ok(Answers { label, positions }),
            None => Err("it is empty".to_owned()),
        }
    }

    fn to_text(&self, tokens: &[u8], label: u8) -> String {
        let words: Vec<String> = tokens.iter().map(u8::to_string).collect();
        format!("{}\nproduct: {label}\n", wrap(&words))
    }

    fn rule(&self) -> (&'static str, fn(&[u8]) -> u8) {
        ("last token", |tokens| {
            tokens.last().copied().unwrap_or_default()
        })
    }
}
