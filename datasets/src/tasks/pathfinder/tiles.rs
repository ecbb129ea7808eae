//! Tiles: every distinct dash, drawn once on a fine grid and shrunk.
//!
//! A dash is identified by its end on the fine grid, relative to its start: angles with the same
//! end share a tile. A tile is centred on the start pixel and reaches [`Tiles::reach`] pixels each
//! way.

use std::collections::BTreeMap;

use super::geometry::{step, vector};
use super::lanczos::Lanczos;
use super::parameters::Parameters;
use super::raster::{Bitmap, disc, line};

/// Number of pixels per tile row: no dilated tile is wider.
pub(super) const LANES: usize = 32;
/// One row of a tile, padded on the right to a fixed width for vector instructions.
pub(super) type Row = [u8; LANES];

/// One distinct dash, rasterized.
pub(super) struct Tile {
    /// End relative to start on the fine grid, (y, x).
    pub(super) end: (i32, i32),
    /// Dash in floating point on the 0..=255 scale; may undershoot and overshoot.
    pub(super) line: Vec<f32>,
    /// Dash in 8 bits.
    pub(super) line_u8: Vec<u8>,
    /// Dash dilated by the margin, in 8 bits: the occupancy that it adds.
    pub(super) mask: Vec<u8>,
    /// `mask` in fixed-width rows.
    pub(super) mask_rows: Vec<Row>,
    /// Maximum occupancy at which this dash is still accepted, for each pixel, in the rows
    /// `limit_top..` of the tile that have any limit at all.
    pub(super) limit_rows: Vec<Row>,
    pub(super) limit_top: usize,
    /// `mask` dilated once more by the margin, one tile larger by the margin on each side: the
    /// dash's contribution to the occupancy that a candidate cell sees.
    pub(super) dilated_rows: Vec<Row>,
}

/// Tiles of one parameter set and margin.
pub(super) struct Tiles {
    /// Pixels from the start to the edge of the tile.
    pub(super) reach: usize,
    list: Vec<Tile>,
    by_end: BTreeMap<(i32, i32), usize>,
    fine_reach: usize,
    /// Line width on the fine grid, cells.
    width: usize,
    /// Radius of the clearance on the fine grid, cells.
    clearance: usize,
    margin: usize,
    shrink: Lanczos,
}

impl Tiles {
    pub(super) fn new(parameters: &Parameters, margin: usize) -> Tiles {
        let thickness = parameters.dash_thickness;
        let reach = parameters.dash_length + thickness.ceil() as usize + margin;
        let fine_reach = reach * parameters.oversampling;
        Tiles {
            reach,
            list: Vec::new(),
            by_end: BTreeMap::new(),
            fine_reach,
            width: (thickness * parameters.oversampling as f64).round() as usize,
            clearance: margin * parameters.oversampling,
            margin,
            shrink: Lanczos::new(2 * fine_reach + 1, 2 * reach + 1),
        }
    }

    /// Returns the side of a tile, pixels.
    pub(super) fn side(&self) -> usize {
        2 * self.reach + 1
    }

    /// Returns the index of the dash drawn from a pixel in direction `angle` over `length` fine
    /// cells; its tiles are made on the first request.
    pub(super) fn toward(&mut self, angle: f64, length: f64) -> usize {
        let middle = self.fine_reach as i32;
        let (y, x) = step((middle, middle), vector(angle, length));
        let end = (y - middle, x - middle);
        if let Some(&index) = self.by_end.get(&end) {
            return index;
        }
        let tile = self.draw(end);
        self.list.push(tile);
        self.by_end.insert(end, self.list.len() - 1);
        self.list.len() - 1
    }

    pub(super) fn get(&self, index: usize) -> &Tile {
        &self.list[index]
    }

    pub(super) fn ending_at(&self, end: (i32, i32)) -> Option<usize> {
        self.by_end.get(&end).copied()
    }

    /// Returns the ends of all dashes, sorted.
    #[cfg(test)]
    pub(super) fn ends(&self) -> Vec<(i32, i32)> {
        self.by_end.keys().copied().collect()
    }

    /// Draws the fine picture of a dash, before any shrinking.
    pub(super) fn fine(&self, end: (i32, i32)) -> Bitmap {
        line(2 * self.fine_reach + 1, end, self.width)
    }

    fn draw(&self, end: (i32, i32)) -> Tile {
        let fine = self.fine(end);
        let mask = self
            .shrink
            .shrink_u8(&fine.dilated(self.clearance).painted(255));
        let (limit_top, limit_rows) = self.limits(&mask);
        Tile {
            end,
            line: self.shrink.shrink_f32(&fine.painted(255.0)),
            line_u8: self.shrink.shrink_u8(&fine.painted(255)),
            mask_rows: rows(&mask, self.side()),
            limit_rows,
            limit_top,
            dilated_rows: self.dilate(&mask),
            mask,
        }
    }

    fn limits(&self, mask: &[u8]) -> (usize, Vec<Row>) {
        let all: Vec<u8> = mask.iter().map(|&own| most_accepted(own)).collect();
        let limited = |row: &[u8]| row.iter().any(|limit| *limit < u8::MAX);
        let side = self.side();
        let top = all.chunks_exact(side).position(limited).unwrap_or(0);
        let end = all
            .chunks_exact(side)
            .rposition(limited)
            .map_or(top, |y| y + 1);
        let rows = all[top * side..end * side]
            .chunks_exact(side)
            .map(|row| {
                let mut wide = [u8::MAX; LANES];
                wide[..side].copy_from_slice(row);
                wide
            })
            .collect();
        (top, rows)
    }

    fn dilate(&self, mask: &[u8]) -> Vec<Row> {
        let (side, margin) = (self.side(), self.margin as i32);
        let wide = side + 2 * self.margin;
        let mut dilated = vec![0u8; wide * wide];
        for (index, &value) in mask.iter().enumerate().filter(|(_, value)| **value > 0) {
            let (y, x) = ((index / side) as i32, (index % side) as i32);
            for (dy, dx) in disc(self.margin) {
                let (y, x) = ((y + dy + margin) as usize, (x + dx + margin) as usize);
                let cell = &mut dilated[y * wide + x];
                *cell = value.max(*cell);
            }
        }
        rows(&dilated, wide)
    }
}

fn rows(tile: &[u8], side: usize) -> Vec<Row> {
    tile.chunks_exact(side)
        .map(|row| {
            let mut wide = [0; LANES];
            wide[..side].copy_from_slice(row);
            wide
        })
        .collect()
}

/// Returns the largest 8-bit occupancy that passes `occupied + own < 1.8` in the floating point of
/// the original, which for pairs that add up to exactly 1.8 depends on rounding.
fn most_accepted(own: u8) -> u8 {
    let share = |value: u8| f64::from(value) / 255.0;
    (0..=u8::MAX)
        .rev()
        .find(|&occupied| share(occupied) + share(own) < 1.8)
        .unwrap_or(0)
}
