//! Map of the occupied pixels, in a layout that allows the growing rules to test a whole row of
//! pixels at a time.
//!
//! Occupancy is an 8-bit map, as in the release. A second map holds its dilation by the margin (the
//! maximum over a disc), because candidate cells are weighted by their whole neighbourhood. It is
//! updated with tiles that were dilated in advance. Strictly, a tile would have to be clipped at
//! the window's edge before it is dilated. The two results differ only in cells within the margin
//! of the edge, where the dilation of the border is 255 already.

use super::parameters::Parameters;
use super::raster::disc;
use super::tiles::{LANES, Tile, Tiles};

/// Width of the frame around the window above, below and to the left, in pixels: no tile reaches
/// further.
const FRAME: usize = 16;

/// Maximum occupancy that still counts as free (0.3 of 255).
pub(super) const FREE: u8 = 76;

/// Occupancy of the window and its surroundings.
#[derive(Clone)]
pub(super) struct Occupancy {
    side: usize,
    stride: usize,
    /// Pixels from a tile's start to its edge, for the tile and for the dilated tile.
    reach: usize,
    dilated_reach: usize,
    /// Occupancy 0..=255; always 0 outside the window.
    mask: Vec<u8>,
    /// Occupancy dilated by the margin; 255 outside the window.
    dilated: Vec<u8>,
    /// 255 for columns inside the window, else 0.
    columns: Vec<u8>,
}

impl Occupancy {
    /// Returns an occupancy in which only the border is occupied.
    pub(super) fn new(parameters: &Parameters, tiles: &Tiles, margin: usize) -> Occupancy {
        let side = parameters.side;
        let stride = FRAME + side + LANES;
        let mut occupancy = Occupancy {
            side,
            stride,
            reach: tiles.reach,
            dilated_reach: tiles.reach + margin,
            mask: vec![0; stride * (side + 2 * FRAME)],
            dilated: vec![u8::MAX; stride * (side + 2 * FRAME)],
            columns: (0..stride)
                .map(|x| {
                    if (FRAME..FRAME + side).contains(&x) {
                        u8::MAX
                    } else {
                        0
                    }
                })
                .collect(),
        };
        let border = |v: i32| {
            let inside = parameters.padding as i32..(side - parameters.padding) as i32;
            !inside.contains(&v)
        };
        let window = 0..side as i32;
        let shape = disc(margin);
        for (y, x) in window
            .clone()
            .flat_map(|y| window.clone().map(move |x| (y, x)))
        {
            let index = occupancy.index((y, x));
            if border(y) || border(x) {
                occupancy.mask[index] = u8::MAX;
            }
            let seen = shape.iter().any(|(dy, dx)| {
                let (y, x) = (y + dy, x + dx);
                window.contains(&y) && window.contains(&x) && (border(y) || border(x))
            });
            occupancy.dilated[index] = if seen { u8::MAX } else { 0 };
        }
        occupancy
    }

    /// Copies `other`, which has the same shape.
    pub(super) fn copy_from(&mut self, other: &Occupancy) {
        self.mask.copy_from_slice(&other.mask);
        self.dilated.copy_from_slice(&other.dilated);
    }

    pub(super) fn contains(&self, (y, x): (i32, i32)) -> bool {
        let window = 0..self.side as i32;
        window.contains(&y) && window.contains(&x)
    }

    /// Returns the index of a pixel in the maps; the pixel may be up to a frame outside the window.
    pub(super) fn index(&self, (y, x): (i32, i32)) -> usize {
        ((y + FRAME as i32) as usize) * self.stride + (x + FRAME as i32) as usize
    }

    /// Returns the distance in the maps between a pixel and the one `(dy, dx)` away.
    pub(super) fn offset(&self, (dy, dx): (i32, i32)) -> isize {
        dy as isize * self.stride as isize + dx as isize
    }

    /// Returns the occupancy in the neighbourhood of the cell at `index`; 255 outside the window.
    pub(super) fn dilated_at(&self, index: usize) -> u8 {
        self.dilated[index]
    }

    /// Returns whether the pixel at `index` is free; pixels outside the window are.
    pub(super) fn is_free(&self, index: usize) -> bool {
        self.mask[index] <= FREE
    }

    /// Returns the number of free pixels of the window.
    pub(super) fn free_pixels(&self) -> usize {
        let rows = self
            .mask
            .chunks_exact(self.stride)
            .skip(FRAME)
            .take(self.side);
        rows.map(|row| {
            row[FRAME..FRAME + self.side]
                .iter()
                .filter(|value| **value <= FREE)
                .count()
        })
        .sum()
    }

    /// Returns whether a dash that starts at this pixel of the window overlaps the occupied pixels
    /// by too much.
    pub(super) fn collides(&self, tile: &Tile, start: (i32, i32)) -> bool {
        // Occupancy outside the window is 0, below every limit, so rows and columns there never
        // exceed it.
        let mut index =
            self.index(start) - self.reach * (self.stride + 1) + tile.limit_top * self.stride;
        let mut excess = [0u8; LANES];
        for limits in &tile.limit_rows {
            let row = &self.mask[index..index + LANES];
            for ((excess, value), limit) in excess.iter_mut().zip(row).zip(limits) {
                *excess |= value.saturating_sub(*limit);
            }
            index += self.stride;
        }
        excess != [0; LANES]
    }

    /// Marks the pixels that a dash starting at this pixel of the window occupies.
    pub(super) fn stamp(&mut self, tile: &Tile, start: (i32, i32)) {
        let start_index = self.index(start);
        let left = start.1 as usize + FRAME - self.reach;
        let mut columns = [0; LANES];
        columns.copy_from_slice(&self.columns[left..left + LANES]);
        let above = self.reach.saturating_sub(start.0 as usize);
        let below = (self.side + self.reach - start.0 as usize).min(tile.mask_rows.len());
        let mut index = start_index - self.reach * (self.stride + 1) + above * self.stride;
        for mask in &tile.mask_rows[above..below] {
            let row = &mut self.mask[index..index + LANES];
            for ((value, own), inside) in row.iter_mut().zip(mask).zip(&columns) {
                *value = (*value).max(own & inside);
            }
            index += self.stride;
        }
        let mut index = start_index - self.dilated_reach * (self.stride + 1);
        for added in &tile.dilated_rows {
            let row = &mut self.dilated[index..index + LANES];
            for (value, own) in row.iter_mut().zip(added) {
                *value = (*value).max(*own);
            }
            index += self.stride;
        }
    }
}
