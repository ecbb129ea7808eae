//! Start points: the possible places of the first dash of a contour or distractor, for each of the
//! 360 whole degrees. The original calls them seeds.

use std::ops::Range;

use rand_chacha::ChaCha8Rng;

use super::geometry::{radians, reversed, vector};
use super::occupancy::Occupancy;
use super::parameters::Parameters;
use super::tiles::Tiles;
use crate::rng::below;

/// Start points for first dashes in one direction.
pub(super) struct StartPoint {
    /// Index of the tile of the first dash.
    pub(super) tile: usize,
    /// Vectors from tail to head, and from head back to the pivot behind the tail, before rounding,
    /// (y, x).
    pub(super) to_head: (f64, f64),
    pub(super) to_pivot: (f64, f64),
    /// Cells around a tail that must be free, as distances in the maps of a [`Occupancy`].
    pub(super) kernel: Vec<isize>,
    /// True if the free-space search works at all. If the kernel is to one side of the tail, some
    /// pixel at the window's edge has no kernel cell inside, and the original then gives up.
    pub(super) usable: bool,
    /// Rows and columns in which the first contour may start.
    first: (Range<i32>, Range<i32>),
}

impl StartPoint {
    /// Returns the number of places where the first contour may start.
    pub(super) fn first_places(&self) -> usize {
        self.first.0.len() * self.first.1.len()
    }

    /// Returns a place for the first contour, drawn uniformly; `None` if there is none.
    pub(super) fn first_place(&self, rng: &mut ChaCha8Rng) -> Option<(i32, i32)> {
        let count = u32::try_from(self.first_places())
            .ok()
            .filter(|count| *count > 0)?;
        let (nth, columns) = (below(rng, count), self.first.1.len() as u32);
        Some((
            self.first.0.start + (nth / columns) as i32,
            self.first.1.start + (nth % columns) as i32,
        ))
    }

    /// Returns a pixel drawn uniformly from those around which the kernel is free; `None` if there
    /// is none.
    pub(super) fn free_place(
        &self,
        occupancy: &Occupancy,
        side: usize,
        rng: &mut ChaCha8Rng,
    ) -> Option<(i32, i32)> {
        // Drawing until a pixel fits is uniform over the pixels that fit. A full list is made only
        // if there are few.
        for _ in 0..16 {
            let place = (
                below(rng, side as u32) as i32,
                below(rng, side as u32) as i32,
            );
            if self.fits(occupancy, place) {
                return Some(place);
            }
        }
        let rows = 0..side as i32;
        let fitting: Vec<(i32, i32)> = rows
            .clone()
            .flat_map(|y| rows.clone().map(move |x| (y, x)))
            .filter(|place| self.fits(occupancy, *place))
            .collect();
        let count = u32::try_from(fitting.len())
            .ok()
            .filter(|count| *count > 0)?;
        Some(fitting[below(rng, count) as usize])
    }

    fn fits(&self, occupancy: &Occupancy, place: (i32, i32)) -> bool {
        let index = occupancy.index(place);
        self.kernel
            .iter()
            .all(|distance| occupancy.is_free(index.wrapping_add_signed(*distance)))
    }
}

/// Returns the start points of one parameter set and margin, for -180 degrees to 179.
pub(super) fn start_points(
    parameters: &Parameters,
    margin: usize,
    tiles: &mut Tiles,
    occupancy: &Occupancy,
) -> Vec<StartPoint> {
    let length = parameters.dash_length as f64;
    let back = (parameters.dash_length + margin) as f64;
    (-180..180)
        .map(radians)
        .map(|angle| {
            let fine_length = (parameters.dash_length * parameters.oversampling) as f64;
            let tile = tiles.toward(angle, fine_length);
            let kernel = kernel(tiles, tile, parameters.dash_length + margin);
            let usable = reaches_everywhere(&kernel, parameters.side as i32);
            StartPoint {
                tile,
                to_head: vector(angle, length),
                to_pivot: vector(reversed(angle), back),
                first: if usable {
                    first_rectangle(&kernel, parameters)
                } else {
                    (0..0, 0..0)
                },
                kernel: kernel.iter().map(|cell| occupancy.offset(*cell)).collect(),
                usable,
            }
        })
        .collect()
}

/// Returns the fully covered cells of the dash, drawn into a square of this reach with its start
/// one cell below and to the right of the middle, as offsets from the middle.
fn kernel(tiles: &Tiles, tile: usize, reach: usize) -> Vec<(i32, i32)> {
    let (side, tile_reach, reach) = (tiles.side(), tiles.reach as i32, reach as i32);
    tiles
        .get(tile)
        .mask
        .iter()
        .enumerate()
        .filter(|(_, value)| **value == u8::MAX)
        .map(|(cell, _)| {
            let (y, x) = ((cell / side) as i32, (cell % side) as i32);
            (y - tile_reach + 1, x - tile_reach + 1)
        })
        .filter(|(y, x)| y.abs() <= reach && x.abs() <= reach)
        .collect()
}

/// Returns whether every pixel of the window has a kernel cell inside the window. Pixels further
/// from an edge than the reach of the kernel all behave in the same way, so one of them represents
/// the rest.
fn reaches_everywhere(kernel: &[(i32, i32)], side: i32) -> bool {
    let reach = kernel
        .iter()
        .map(|(y, x)| y.abs().max(x.abs()))
        .max()
        .unwrap_or(0);
    let telling = || (0..=reach).chain(side - 1 - reach..side);
    let inside = |v: i32| (0..side).contains(&v);
    telling().all(|y| {
        telling().all(|x| {
            kernel
                .iter()
                .any(|(dy, dx)| inside(y + dy) && inside(x + dx))
        })
    })
}

/// Returns the starts of the first contour: the kernel keeps clear of the border and of everything
/// within twice the seed distance of the window's edge, so that the second start fits inside.
///
/// Kernel cells outside the window are ignored, but a pixel that close to the edge also has one
/// inside, which is then in the forbidden zone. So the possible starts are those where the kernel's
/// bounding box fits.
fn first_rectangle(kernel: &[(i32, i32)], parameters: &Parameters) -> (Range<i32>, Range<i32>) {
    let clear = (2 * parameters.seed_distance).max(parameters.padding) as i32;
    let allowed = |offset: fn(&(i32, i32)) -> i32| {
        let lowest = kernel.iter().map(offset).min().unwrap_or(0);
        let highest = kernel.iter().map(offset).max().unwrap_or(0);
        clear - lowest..parameters.side as i32 - clear - highest
    };
    (allowed(|cell| cell.0), allowed(|cell| cell.1))
}
