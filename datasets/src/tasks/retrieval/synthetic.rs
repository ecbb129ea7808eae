//! Drawing of the stand-in's rows (`--source synthetic`), described in the header of
//! `retrieval/mod.rs`.

use rand_chacha::ChaCha8Rng;

use super::{INFO, Options};
use crate::error::Result;
use crate::rng::below;
use crate::synthetic::{between, word};
use crate::{Progress, SplitWriter};

const TOPICS: [&[u8]; 3] = [b"Alpha", b"Gamma", b"Omega"];

pub(super) fn draw(
    options: &Options,
    progress: &dyn Progress,
    writer: &mut SplitWriter,
) -> Result<()> {
    options.drawn.draw(&INFO, progress, |split, rng, label| {
        let texts =
            topics(rng, label, TOPICS.len()).map(|topic| draw_text(rng, options.max_length, topic));
        writer.row(split, &[&texts[0], &texts[1]], label)
    })
}

/// Draws two of `topics` topics: the same one for label 1, two different ones for 0.
pub(super) fn topics(rng: &mut ChaCha8Rng, label: u8, topics: usize) -> [usize; 2] {
    let first = below(rng, topics as u32) as usize;
    let second = match label {
        1 => first,
        _ => (first + 1 + below(rng, topics as u32 - 1) as usize) % topics,
    };
    [first, second]
}

fn draw_text(rng: &mut ChaCha8Rng, max_length: u32, topic: usize) -> Vec<u8> {
    let length = between(rng, max_length / 2..=max_length * 3 / 2).min(max_length) as usize;
    let mut text = Vec::with_capacity(length + 8);
    while text.len() < length {
        match below(rng, 8) {
            0 => text.extend_from_slice(TOPICS[topic]),
            _ => word(rng, &mut text),
        }
        text.push(b' ');
    }
    text.truncate(length);
    text
}
