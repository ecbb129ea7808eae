//! Growing contours and distractors, dash by dash, by the rules of the original generator.
//!
//! Three of those rules look like slips and decide how images look, so they are kept: the newest dash of
//! a contour does not count as occupied until the next one is placed, so contours can cross; the seed of
//! the second contour is placed without any test; and the last dash of the first contour never counts.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::field::Field;
use super::parameters::Parameters;
use super::seeds::{Seed, seeds};
use super::strokes::Strokes;
use super::turns::{Turns, radians};
use crate::rng::below;

/// ChaCha8Rng of a candidate cell before a contour is given up.
const TRIES: usize = 3;
/// Attempts per distractor.
const DISTRACTOR_ATTEMPTS: usize = 5;
/// Sum of candidate weights below which there is nowhere to go.
const NOWHERE: f64 = 1e-4;

/// A placed dash: its first pixel and which of the [`Strokes`] it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dash {
    pub(super) start: (i32, i32),
    pub(super) stroke: usize,
}

/// A growing contour.
struct Growth {
    pivot: (i32, i32),
    heading: usize,
    /// The newest dash, not yet part of the occupancy.
    pending: Dash,
}

/// What all images of one parameter set and margin share.
pub(super) struct Ground {
    pub(super) strokes: Strokes,
    pub(super) turns: Turns,
    pub(super) seeds: Vec<Seed>,
    pub(super) bare: Field,
    side: usize,
    seed_distance: f64,
    contour_length: usize,
    distractor_length: usize,
}

/// Buffers that one thread reuses from image to image.
pub(super) struct Workspace {
    field: Field,
    trial: Field,
    pub(super) targets: [Vec<Dash>; 2],
    pub(super) distractors: Vec<Vec<Dash>>,
    /// Target pairs begun until one was complete.
    pub(super) attempts: u64,
}

impl Ground {
    pub(super) fn new(parameters: &Parameters, margin: usize) -> Ground {
        let mut strokes = Strokes::new(parameters, margin);
        let bare = Field::new(parameters, &strokes, margin);
        let turns = Turns::new(parameters, margin, &mut strokes, &bare);
        let seeds = seeds(parameters, margin, &mut strokes, &bare);
        Ground {
            strokes,
            turns,
            seeds,
            bare,
            side: parameters.side,
            seed_distance: parameters.seed_distance as f64,
            contour_length: parameters.contour_length,
            distractor_length: parameters.distractor_length,
        }
    }

    pub(super) fn workspace(&self) -> Workspace {
        Workspace {
            field: self.bare.clone(),
            trial: self.bare.clone(),
            targets: [Vec::new(), Vec::new()],
            distractors: Vec::new(),
            attempts: 0,
        }
    }

    /// Grows the two contours of an image, starting over until both are complete.
    pub(super) fn grow_targets(&self, work: &mut Workspace, draws: &mut ChaCha8Rng) {
        work.attempts = 0;
        loop {
            work.attempts += 1;
            if self.try_targets(work, draws).is_some() {
                return;
            }
        }
    }

    fn try_targets(&self, work: &mut Workspace, draws: &mut ChaCha8Rng) -> Option<()> {
        let first = self.first_seed(draws)?;
        let second = self.second_seed(first.pending.start, draws)?;
        work.field.copy_from(&self.bare);
        let mut growing = [first, second];
        for (dashes, contour) in work.targets.iter_mut().zip(&growing) {
            dashes.clear();
            dashes.push(contour.pending);
        }
        for _ in 1..self.contour_length {
            for (dashes, contour) in work.targets.iter_mut().zip(&mut growing) {
                self.extend(&mut work.field, contour, draws)?;
                dashes.push(contour.pending);
            }
        }
        let last = growing[1].pending;
        work.field.stamp(self.strokes.get(last.stroke), last.start);
        Some(())
    }

    /// Adds up to `count` distractors to the contours that [`Ground::grow_targets`] left in `work`.
    pub(super) fn grow_distractors(
        &self,
        work: &mut Workspace,
        count: usize,
        draws: &mut ChaCha8Rng,
    ) {
        work.distractors.clear();
        let mut room = self.has_room(&work.field);
        for _ in 0..count {
            for _ in 0..DISTRACTOR_ATTEMPTS {
                if let Some(dashes) = self.try_distractor(work, room, draws) {
                    work.distractors.push(dashes);
                    std::mem::swap(&mut work.field, &mut work.trial);
                    room = self.has_room(&work.field);
                    break;
                }
            }
        }
    }

    fn has_room(&self, field: &Field) -> bool {
        field.free_pixels() * 100 >= self.side * self.side
    }

    fn try_distractor(
        &self,
        work: &mut Workspace,
        room: bool,
        draws: &mut ChaCha8Rng,
    ) -> Option<Vec<Dash>> {
        let mut contour = self.distractor_seed(&work.field, room, draws)?;
        work.trial.copy_from(&work.field);
        let mut dashes = vec![contour.pending];
        for _ in 1..self.distractor_length {
            self.extend(&mut work.trial, &mut contour, draws)?;
            dashes.push(contour.pending);
        }
        let last = contour.pending;
        work.trial.stamp(self.strokes.get(last.stroke), last.start);
        Some(dashes)
    }

    fn first_seed(&self, draws: &mut ChaCha8Rng) -> Option<Growth> {
        self.seed(draws, |seed, draws| seed.first_place(draws))
    }

    fn second_seed(&self, first: (i32, i32), draws: &mut ChaCha8Rng) -> Option<Growth> {
        self.seed(draws, |_, draws| {
            let around = radians(below(draws, 360) as i32);
            let beside = |from: i32, by: f64| {
                (f64::from(from) + self.seed_distance * by).round_ties_even() as i32
            };
            Some((beside(first.0, around.sin()), beside(first.1, around.cos())))
        })
    }

    fn distractor_seed(&self, field: &Field, room: bool, draws: &mut ChaCha8Rng) -> Option<Growth> {
        self.seed(draws, |seed, draws| {
            // The original also occupies the outermost frame of pixels here; the border covers it.
            if room && seed.usable {
                seed.free_place(field, self.side, draws)
            } else {
                None
            }
        })
    }

    /// Places a first dash. Only a dash that would leave the window is tried again; no place at all ends
    /// the attempt.
    fn seed(
        &self,
        draws: &mut ChaCha8Rng,
        place: impl Fn(&Seed, &mut ChaCha8Rng) -> Option<(i32, i32)>,
    ) -> Option<Growth> {
        for _ in 0..TRIES {
            let degree = below(draws, 360) as usize;
            let seed = &self.seeds[degree];
            let tail = place(seed, draws)?;
            let head = step(tail, seed.to_head);
            let pivot = step(head, seed.to_pivot);
            if self.bare.contains(head) && self.bare.contains(pivot) {
                return Some(Growth {
                    pivot,
                    heading: self.turns.of_seed(degree),
                    pending: Dash {
                        start: tail,
                        stroke: seed.stroke,
                    },
                });
            }
        }
        None
    }

    /// Adds one dash, which becomes pending; the dash that was pending becomes occupancy.
    fn extend(
        &self,
        field: &mut Field,
        contour: &mut Growth,
        draws: &mut ChaCha8Rng,
    ) -> Option<()> {
        let heading = self.turns.heading(contour.heading);
        let pivot = step(contour.pivot, heading.advance);
        let middle = field.index(pivot);
        let mut cumulative = [0.0f64; 64];
        let mut sum = 0.0;
        for (slot, turn) in cumulative.iter_mut().zip(&heading.turns) {
            let near = field.near_at(middle.wrapping_add_signed(turn.distance));
            sum += turn.weight * f64::from(u8::MAX - near);
            *slot = sum;
        }
        if sum < NOWHERE * f64::from(u8::MAX) {
            return None;
        }
        let cumulative = &cumulative[..heading.turns.len()];
        for _ in 0..TRIES {
            let drawn = unit(draws) * sum;
            let chosen = cumulative.partition_point(|upto| *upto <= drawn);
            let cell = heading.turns.get(chosen)?.cell;
            let to = &self.turns.ring[cell];
            let dash = Dash {
                start: (pivot.0 + to.offset.0, pivot.1 + to.offset.1),
                stroke: to.stroke,
            };
            if !field.collides(self.strokes.get(dash.stroke), dash.start) {
                let before = std::mem::replace(&mut contour.pending, dash);
                field.stamp(self.strokes.get(before.stroke), before.start);
                contour.pivot = pivot;
                contour.heading = self.turns.of_cell(cell);
                return Some(());
            }
        }
        None
    }
}

/// A number in `0.0..1.0`, a multiple of 2^-53.
fn unit(draws: &mut ChaCha8Rng) -> f64 {
    (draws.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// A step from a pixel: both coordinates are rounded up, always. The sum is taken before rounding, as a
/// multiple of pi can leave a rest that only some starting points swallow.
pub(super) fn step(from: (i32, i32), by: (f64, f64)) -> (i32, i32) {
    (
        round_up(f64::from(from.0) + by.0),
        round_up(f64::from(from.1) + by.1),
    )
}

fn round_up(value: f64) -> i32 {
    // `f64::ceil` is a library call where the processor's rounding instruction is not enabled.
    let whole = value as i32;
    whole + i32::from(f64::from(whole) < value)
}
