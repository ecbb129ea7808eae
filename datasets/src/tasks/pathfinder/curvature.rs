//! Curvature of contours: the ring of cells where the next dash may end, and the weight of each
//! turn.
//!
//! A turn by `t` radians has the weight `cos(min(continuity * t, pi / 2))^2`.

use std::f64::consts::{FRAC_PI_2, TAU};

use super::geometry::{radians, reversed, vector};
use super::occupancy::Occupancy;
use super::parameters::Parameters;
use super::tiles::Tiles;

/// A candidate cell for the outer end of the next dash, relative to the pivot.
pub(super) struct RingCell {
    /// Offset from the pivot, (y, x).
    pub(super) offset: (i32, i32),
    /// Direction of the cell as seen from the pivot, radians.
    pub(super) angle: f64,
    /// Index of the tile of the dash that runs from this cell back toward the pivot.
    pub(super) tile: usize,
}

/// A candidate with a weight above zero, for a contour that arrives from a given direction.
pub(super) struct Turn {
    /// Distance of the cell from the pivot in the maps of a [`Occupancy`].
    pub(super) distance: isize,
    /// Weight of the turn alone, before occupancy.
    pub(super) weight: f64,
    /// Index of the cell in [`Curvature::ring`].
    pub(super) cell: usize,
}

/// A direction that a contour can have.
pub(super) struct Heading {
    /// Step to the next pivot, before rounding, (y, x).
    pub(super) advance: (f64, f64),
    /// Possible next turns, in ring order.
    pub(super) turns: Vec<Turn>,
}

/// Directions of one parameter set and margin: those of the ring's cells in order, then the whole
/// degrees -180..180 that start points can have.
pub(super) struct Curvature {
    pub(super) ring: Vec<RingCell>,
    headings: Vec<Heading>,
}

impl Curvature {
    pub(super) fn new(
        parameters: &Parameters,
        margin: usize,
        tiles: &mut Tiles,
        occupancy: &Occupancy,
    ) -> Curvature {
        let fine_length = (parameters.dash_length * parameters.oversampling) as f64;
        let ring: Vec<RingCell> = ring_offsets(parameters.dash_length + margin)
            .into_iter()
            .map(|offset| {
                let angle = f64::from(offset.0).atan2(f64::from(offset.1));
                RingCell {
                    offset,
                    angle,
                    tile: tiles.toward(reversed(angle), fine_length),
                }
            })
            .collect();
        let stride = (parameters.dash_length + 2 * margin) as f64;
        let heading = |angle: f64| Heading {
            advance: vector(angle, stride),
            turns: ring
                .iter()
                .enumerate()
                .map(|(cell, to)| Turn {
                    distance: occupancy.offset(to.offset),
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
        Curvature { ring, headings }
    }

    /// Returns the index of the heading after a dash whose outer end is this ring cell.
    pub(super) fn heading_of_cell(&self, cell: usize) -> usize {
        cell
    }

    /// Returns the index of the heading of a start point; `degree` counts from 0 for -180 degrees.
    pub(super) fn heading_of_start(&self, degree: usize) -> usize {
        self.ring.len() + degree
    }

    /// Returns the heading of this index.
    pub(super) fn heading(&self, heading: usize) -> &Heading {
        &self.headings[heading]
    }
}

/// Returns the cells at `radius` around a pivot, sorted by row, then column. Positions on the
/// circle are a `1/radius` radian apart and rounded down, which shifts the ring toward the upper
/// left.
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

/// Returns the weight of turning from direction `from` to direction `to`, radians within -pi..=pi.
fn turn_weight(to: f64, from: f64, continuity: f64) -> f64 {
    let apart = (to - from).abs();
    let turn = apart.min(TAU - apart);
    (continuity * turn).min(FRAC_PI_2).cos().max(0.0).powi(2)
}
