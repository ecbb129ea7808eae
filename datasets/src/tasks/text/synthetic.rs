//! Drawing of the stand-in's rows (`--source synthetic`), described in the header of `text/mod.rs`.

use rand_chacha::ChaCha8Rng;

use super::{INFO, Options};
use crate::error::Result;
use crate::rng::below;
use crate::synthetic::{between, word};
use crate::{Progress, SplitWriter};

const HOPE: &[u8] = b"Hope";
const FEAR: &[u8] = b"Fear";

pub(super) fn draw(
    options: &Options,
    progress: &dyn Progress,
    writer: &mut SplitWriter,
) -> Result<()> {
    options.drawn.draw(&INFO, progress, |split, rng, label| {
        writer.row(split, &[&draw_text(rng, options.max_length, label)], label)
    })
}

fn draw_text(rng: &mut ChaCha8Rng, max_length: u32, label: u8) -> Vec<u8> {
    // Two in five have the maximum length, as many published reviews do.
    let length = between(rng, max_length / 4..=max_length * 3 / 2).min(max_length) as usize;
    let turn = length * between(rng, 30..=70) as usize / 100;
    let (first, last) = match label {
        0 => (HOPE, FEAR),
        _ => (FEAR, HOPE),
    };
    let mut text = Vec::with_capacity(length + 8);
    while text.len() < length {
        let prevailing = text.len() < turn;
        if below(rng, 8) == 0 {
            let expected = below(rng, 10) > 0;
            text.extend_from_slice(if prevailing == expected { first } else { last });
        } else {
            word(rng, &mut text);
        }
        text.push(b' ');
    }
    text.truncate(length);
    text
}
