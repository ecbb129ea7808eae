//! Drawing of the stand-in's rows (`--source synthetic`), described in the header of
//! `image/mod.rs`.

use rand_chacha::ChaCha8Rng;

use super::{INFO, Options};
use crate::error::Result;
use crate::rng::below;
use crate::synthetic::between;
use crate::{Progress, SplitWriter};

/// Vectors (right, down), in 64ths, for the middle of each of ten sectors.
const DIRECTIONS: [(i32, i32); 10] = [
    (64, 0),
    (52, 38),
    (20, 61),
    (-20, 61),
    (-52, 38),
    (-64, 0),
    (-52, -38),
    (-20, -61),
    (20, -61),
    (52, -38),
];

pub(super) fn draw(
    options: &Options,
    progress: &dyn Progress,
    writer: &mut SplitWriter,
) -> Result<()> {
    let side = options.side() as i32;
    options.drawn.draw(&INFO, progress, |split, rng, label| {
        writer.row(split, &[&draw_picture(rng, side, label)], label)
    })
}

fn draw_picture(rng: &mut ChaCha8Rng, side: i32, label: u8) -> Vec<u8> {
    let scale = side / 8;
    let (right, down) = DIRECTIONS[usize::from(label)];
    // From 3 to 4.5 eighths of the side apart: the discs, at most one eighth and a half in radius,
    // do not touch.
    let distance = between(rng, 6 * scale as u32..=9 * scale as u32) as i32;
    let radius = between(rng, 4 * scale as u32..=6 * scale as u32) as i32;
    let across = |direction: i32| direction * distance / 128;
    let (dx, dy) = (across(right), across(down));
    // The dark disc is anywhere such that the bright one is within the picture.
    let mut place = |step: i32| {
        let (low, high) = ((-step).max(0), side - step.max(0));
        let margin = scale / 2;
        low + margin + below(rng, (high - low - 2 * margin) as u32) as i32
    };
    let dark = (place(dx), place(dy));
    let bright = (dark.0 + dx, dark.1 + dy);
    let within = |x: i32, y: i32, centre: (i32, i32)| {
        let (x, y) = (x - centre.0, y - centre.1);
        16 * (x * x + y * y) <= radius * radius
    };
    let mut pixels = Vec::with_capacity((side * side) as usize);
    for y in 0..side {
        for x in 0..side {
            let base = match () {
                () if within(x, y, dark) => 0,
                () if within(x, y, bright) => 192,
                () => 96,
            };
            pixels.push((base + below(rng, 64)) as u8);
        }
    }
    pixels
}
