//! Growth of contours and distractors, dash by dash, by the rules of the original generator.
//!
//! Three of those rules look like mistakes of the original. They affect the images, so they are
//! kept: the newest dash of a contour does not count as occupied until the next one is placed, so
//! contours can cross; the start point of the second contour is not tested for occupancy; and the
//! last dash of the first contour is never occupied.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::curvature::Curvature;
use super::geometry::{radians, step};
use super::occupancy::Occupancy;
use super::parameters::Parameters;
use super::start_points::{StartPoint, start_points};
use super::tiles::Tiles;
use crate::rng::below;

/// Number of tries to place a dash before a contour is given up.
const TRIES: usize = 3;
/// Number of attempts per distractor.
const DISTRACTOR_ATTEMPTS: usize = 5;
/// Sum of candidate weights below which a contour cannot continue.
const NOWHERE: f64 = 1e-4;

/// A placed dash: its first pixel, (y, x), and the index of its tile in [`Tiles`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dash {
    pub(super) start: (i32, i32),
    pub(super) tile: usize,
}

/// A contour while it grows.
struct GrowingContour {
    /// Point around which the newest dash was placed, (y, x): one margin before its inner end.
    pivot: (i32, i32),
    /// Index of the direction in which it grows, see [`Curvature::heading`].
    heading: usize,
    /// Newest dash, not yet part of the occupancy.
    pending: Dash,
}

/// Grower of contours with one parameter set and margin: everything that does not depend on the
/// image, computed once.
pub(super) struct ContourGrower {
    pub(super) tiles: Tiles,
    pub(super) curvature: Curvature,
    pub(super) start_points: Vec<StartPoint>,
    /// Occupancy of an empty window.
    pub(super) empty: Occupancy,
    side: usize,
    seed_distance: f64,
    distractor_length: usize,
}

/// Buffers that one thread reuses from image to image.
pub(super) struct Workspace {
    occupancy: Occupancy,
    trial: Occupancy,
    pub(super) targets: [Vec<Dash>; 2],
    pub(super) distractors: Vec<Vec<Dash>>,
    /// Number of attempts at both target contours until both were complete.
    pub(super) attempts: u64,
}

impl ContourGrower {
    pub(super) fn new(parameters: &Parameters, margin: usize) -> ContourGrower {
        let mut tiles = Tiles::new(parameters, margin);
        let empty = Occupancy::new(parameters, &tiles, margin);
        let curvature = Curvature::new(parameters, margin, &mut tiles, &empty);
        let start_points = start_points(parameters, margin, &mut tiles, &empty);
        ContourGrower {
            tiles,
            curvature,
            start_points,
            empty,
            side: parameters.side,
            seed_distance: parameters.seed_distance as f64,
            distractor_length: parameters.distractor_length,
        }
    }

    pub(super) fn workspace(&self) -> Workspace {
        Workspace {
            occupancy: self.empty.clone(),
            trial: self.empty.clone(),
            targets: [Vec::new(), Vec::new()],
            distractors: Vec::new(),
            attempts: 0,
        }
    }

    /// Grows the two contours of an image, of `length` dashes each, starting over until both are
    /// complete.
    pub(super) fn grow_targets(&self, work: &mut Workspace, length: usize, rng: &mut ChaCha8Rng) {
        work.attempts = 0;
        loop {
            work.attempts += 1;
            if self.try_targets(work, length, rng).is_some() {
                return;
            }
        }
    }

    fn try_targets(&self, work: &mut Workspace, length: usize, rng: &mut ChaCha8Rng) -> Option<()> {
        let first = self.first_start(rng)?;
        let second = self.second_start(first.pending.start, rng)?;
        work.occupancy.copy_from(&self.empty);
        let mut growing = [first, second];
        for (dashes, contour) in work.targets.iter_mut().zip(&growing) {
            dashes.clear();
            dashes.push(contour.pending);
        }
        for _ in 1..length {
            for (dashes, contour) in work.targets.iter_mut().zip(&mut growing) {
                self.extend(&mut work.occupancy, contour, rng)?;
                dashes.push(contour.pending);
            }
        }
        let last = growing[1].pending;
        work.occupancy.stamp(self.tiles.get(last.tile), last.start);
        Some(())
    }

    /// Adds up to `count` distractors to the contours that [`ContourGrower::grow_targets`] left in
    /// `work`.
    pub(super) fn grow_distractors(
        &self,
        work: &mut Workspace,
        count: usize,
        rng: &mut ChaCha8Rng,
    ) {
        work.distractors.clear();
        let mut room = self.has_room(&work.occupancy);
        for _ in 0..count {
            for _ in 0..DISTRACTOR_ATTEMPTS {
                if let Some(dashes) = self.try_distractor(work, room, rng) {
                    work.distractors.push(dashes);
                    std::mem::swap(&mut work.occupancy, &mut work.trial);
                    room = self.has_room(&work.occupancy);
                    break;
                }
            }
        }
    }

    fn has_room(&self, occupancy: &Occupancy) -> bool {
        occupancy.free_pixels() * 100 >= self.side * self.side
    }

    fn try_distractor(
        &self,
        work: &mut Workspace,
        room: bool,
        rng: &mut ChaCha8Rng,
    ) -> Option<Vec<Dash>> {
        let mut contour = self.distractor_start(&work.occupancy, room, rng)?;
        work.trial.copy_from(&work.occupancy);
        let mut dashes = vec![contour.pending];
        for _ in 1..self.distractor_length {
            self.extend(&mut work.trial, &mut contour, rng)?;
            dashes.push(contour.pending);
        }
        let last = contour.pending;
        work.trial.stamp(self.tiles.get(last.tile), last.start);
        Some(dashes)
    }

    fn first_start(&self, rng: &mut ChaCha8Rng) -> Option<GrowingContour> {
        self.start(rng, |point, rng| point.first_place(rng))
    }

    fn second_start(&self, first: (i32, i32), rng: &mut ChaCha8Rng) -> Option<GrowingContour> {
        self.start(rng, |_, rng| {
            let around = radians(below(rng, 360) as i32);
            let beside = |from: i32, by: f64| {
                (f64::from(from) + self.seed_distance * by).round_ties_even() as i32
            };
            Some((beside(first.0, around.sin()), beside(first.1, around.cos())))
        })
    }

    fn distractor_start(
        &self,
        occupancy: &Occupancy,
        room: bool,
        rng: &mut ChaCha8Rng,
    ) -> Option<GrowingContour> {
        self.start(rng, |point, rng| {
            // The original also occupies the outermost frame of pixels here; the border covers it.
            if room && point.usable {
                point.free_place(occupancy, self.side, rng)
            } else {
                None
            }
        })
    }

    /// Places a first dash. Only a dash that would leave the window is tried again; if no place is
    /// free, the attempt ends.
    fn start(
        &self,
        rng: &mut ChaCha8Rng,
        place: impl Fn(&StartPoint, &mut ChaCha8Rng) -> Option<(i32, i32)>,
    ) -> Option<GrowingContour> {
        for _ in 0..TRIES {
            let degree = below(rng, 360) as usize;
            let point = &self.start_points[degree];
            let tail = place(point, rng)?;
            let head = step(tail, point.to_head);
            let pivot = step(head, point.to_pivot);
            if self.empty.contains(head) && self.empty.contains(pivot) {
                return Some(GrowingContour {
                    pivot,
                    heading: self.curvature.heading_of_start(degree),
                    pending: Dash {
                        start: tail,
                        tile: point.tile,
                    },
                });
            }
        }
        None
    }

    /// Adds one dash, which becomes pending; the previously pending dash becomes occupancy.
    fn extend(
        &self,
        occupancy: &mut Occupancy,
        contour: &mut GrowingContour,
        rng: &mut ChaCha8Rng,
    ) -> Option<()> {
        let heading = self.curvature.heading(contour.heading);
        let pivot = step(contour.pivot, heading.advance);
        let middle = occupancy.index(pivot);
        let mut cumulative = [0.0f64; 64];
        let mut sum = 0.0;
        for (slot, turn) in cumulative.iter_mut().zip(&heading.turns) {
            let occupied = occupancy.dilated_at(middle.wrapping_add_signed(turn.distance));
            sum += turn.weight * f64::from(u8::MAX - occupied);
            *slot = sum;
        }
        if sum < NOWHERE * f64::from(u8::MAX) {
            return None;
        }
        let cumulative = &cumulative[..heading.turns.len()];
        for _ in 0..TRIES {
            let drawn = unit(rng) * sum;
            let chosen = cumulative.partition_point(|upto| *upto <= drawn);
            let cell = heading.turns.get(chosen)?.cell;
            let to = &self.curvature.ring[cell];
            let dash = Dash {
                start: (pivot.0 + to.offset.0, pivot.1 + to.offset.1),
                tile: to.tile,
            };
            if !occupancy.collides(self.tiles.get(dash.tile), dash.start) {
                let before = std::mem::replace(&mut contour.pending, dash);
                occupancy.stamp(self.tiles.get(before.tile), before.start);
                contour.pivot = pivot;
                contour.heading = self.curvature.heading_of_cell(cell);
                return Some(());
            }
        }
        None
    }
}

/// Returns a number in `0.0..1.0`, a multiple of 2^-53.
fn unit(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}
