//! Where a contour may go next: the ring of candidate cells and how much each turn is worth.

use std::f64::consts::{FRAC_PI_2, PI, TAU};

use super::field::Field;
use super::parameters::Parameters;
use super::strokes::Strokes;

/// A candidate cell for the outer end of the next dash, relative to the pivot.
pub(super) struct RingCell {
    /// (y, x) relative to the pivot.
    pub(super) offset: (i32, i32),
    /// Direction of the cell as seen from the pivot, radians.
    pub(super) angle: f64,
    /// The dash that runs from this cell back toward the pivot.
    pub(super) stroke: usize,
}

/// A candidate with a weight above zero, for a contour that arrives from a given direction.
pub(super) struct Turn {
    /// Distance of the cell from the pivot in the maps of a [`Field`].
    pub(super) distance: isize,
    /// Weight of the turn alone, before occupancy.
    pub(super) weight: f64,
    /// Index of the cell in [`Turns::ring`].
    pub(super) cell: usize,
}

/// A direction that a contour can have.
pub(super) struct Heading {
    /// Step to the next pivot, before rounding, (y, x).
    pub(super) advance: (f64, f64),
    /// What may come next, in ring order.
    pub(super) turns: Vec<Turn>,
}

/// All directions of one parameter set and margin: those of the ring's cells in order, then the whole
/// degrees -180..180 that seeds can have.
pub(super) struct Turns {
    pub(super) ring: Vec<RingCell>,
    headings: Vec<Heading>,
}

impl Turns {
    pub(super) fn new(
        parameters: &Parameters,
        margin: usize,
        strokes: &mut Strokes,
        field: &Field,
    ) -> Turns {
        let fine_length = (parameters.dash_length * parameters.oversampling) as f64;
        let ring: Vec<RingCell> = ring_offsets(parameters.dash_length + margin)
            .into_iter()
            .map(|offset| {
                let angle = f64::from(offset.0).atan2(f64::from(offset.1));
                RingCell {
                    offset,
                    angle,
                    stroke: strokes.toward(reversed(angle), fine_length),
                }
            })
            .collect();
        let stride = (parameters.dash_length + 2 * margin) as f64;
        let heading = |angle: f64| Heading {
            advance: (stride * angle.sin(), stride * angle.cos()),
            turns: ring
                .iter()
                .enumerate()
                .map(|(cell, to)| Turn {
                    distance: field.offset(to.offset),
                    weight: turn_weight(to.angle, angle, parameters.continuity),
                    cell,
                })
                .filter(|turn| turn.weight > 0.0)
                .collect(),
        };
        let headings = ring
            .iter()
            .map(|cell| cell.angle)
            .chain((-180..180).map(radians))
            .map(heading)
            .collect();
        Turns { ring, headings }
    }

    /// Heading after a dash whose outer end is this ring cell.
    pub(super) fn of_cell(&self, cell: usize) -> usize {
        cell
    }

    /// Heading of a seed; `degree` counts from 0 for -180 degrees.
    pub(super) fn of_seed(&self, degree: usize) -> usize {
        self.ring.len() + degree
    }

    pub(super) fn heading(&self, heading: usize) -> &Heading {
        &self.headings[heading]
    }
}

/// A whole degree in radians.
pub(super) fn radians(degree: i32) -> f64 {
    f64::from(degree) * PI / 180.0
}

/// The opposite direction, within -pi..=pi.
pub(super) fn reversed(angle: f64) -> f64 {
    if angle < 0.0 { angle + PI } else { angle - PI }
}

/// Cells at `radius` around a pivot, sorted by row, then column. Positions on the circle are a `1/radius`
/// radian apart and lose their fraction, which makes the ring lopsided toward the upper left.
fn ring_offsets(radius: usize) -> Vec<(i32, i32)> {
    let radius = radius as f64;
    let mut offsets: Vec<(i32, i32)> = (0..)
        .map(|k| f64::from(k) / radius)
        .take_while(|angle| *angle < TAU)
        .map(|angle| {
            (
                (radius * angle.sin()).floor() as i32,
                (radius * angle.cos()).floor() as i32,
            )
        })
        .collect();
    offsets.sort_unstable();
    offsets.dedup();
    offsets
}

fn turn_weight(to: f64, from: f64, continuity: f64) -> f64 {
    let apart = (to - from).abs();
    let turn = apart.min(TAU - apart);
    (continuity * turn).min(FRAC_PI_2).cos().max(0.0).powi(2)
}
