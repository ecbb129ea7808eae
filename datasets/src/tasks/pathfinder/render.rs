//! Rendering of a scene to grey values 0..=255, row by row.

use super::lanczos::{Lanczos, Patch};
use super::parameters::{Parameters, Pixels};
use super::scene::Scene;
use super::tiles::Tiles;

/// Renderer of the scenes of one parameter set.
pub(super) struct Renderer {
    pub(super) side: usize,
    oversampling: usize,
    disc_radius: f64,
    shrink: Lanczos,
    pixels: Pixels,
}

impl Renderer {
    pub(super) fn new(parameters: &Parameters, pixels: Pixels) -> Renderer {
        Renderer {
            side: parameters.side,
            oversampling: parameters.oversampling,
            disc_radius: parameters.disc_radius,
            shrink: Lanczos::new(parameters.side * parameters.oversampling, parameters.side),
            pixels,
        }
    }

    /// Returns the grey values row by row. Dashes that are not among `tiles` are left out.
    pub(super) fn draw(&self, scene: &Scene, tiles: &Tiles) -> Vec<u8> {
        let mut picture = vec![0.0f64; self.side * self.side];
        for paddle in scene.paddles() {
            let Some(tile) = tiles.ending_at(paddle.end) else {
                continue;
            };
            let tile = tiles.get(tile);
            match self.pixels {
                Pixels::Release => {
                    let ink = |cell: usize| f64::from(tile.line[cell] / 255.0 * paddle.contrast);
                    self.stamp(&mut picture, tiles.reach, paddle.start, ink);
                }
                Pixels::Upstream => {
                    let contrast = f64::from(paddle.contrast);
                    let ink = |cell: usize| f64::from(tile.line_u8[cell]) / 255.0 * contrast;
                    self.stamp(&mut picture, tiles.reach, paddle.start, ink);
                }
            }
        }
        match self.pixels {
            Pixels::Release => {
                divide_by_largest(&mut picture);
                for centre in scene.discs {
                    self.place(&mut picture, &self.disc(centre));
                }
                divide_by_largest(&mut picture);
                picture.iter().map(|grey| (grey * 255.0) as u8).collect()
            }
            Pixels::Upstream => {
                for centre in scene.discs {
                    for (cell, grey) in self.disc_u8(centre).into_iter().enumerate() {
                        picture[cell] = picture[cell].max(f64::from(grey) / 255.0);
                    }
                }
                let lowest = picture.iter().copied().fold(f64::INFINITY, f64::min);
                let highest = picture.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let stretch = 255.0 / (highest - lowest);
                let grey = |value: &f64| ((value - lowest) * stretch + 0.5) as u8;
                picture.iter().map(grey).collect()
            }
        }
    }

    /// Raises the pixels under a tile that is centred on `start` to its values.
    pub(super) fn stamp(
        &self,
        picture: &mut [f64],
        reach: usize,
        start: (i32, i32),
        ink: impl Fn(usize) -> f64,
    ) {
        let (side, reach) = (self.side as i32, reach as i32);
        let tile_side = 2 * reach + 1;
        let (top, left) = (start.0 - reach, start.1 - reach);
        for y in top.max(0)..(top + tile_side).min(side) {
            for x in left.max(0)..(left + tile_side).min(side) {
                let pixel = &mut picture[(y * side + x) as usize];
                *pixel = pixel.max(ink(((y - top) * tile_side + x - left) as usize));
            }
        }
    }

    fn place(&self, picture: &mut [f64], patch: &Patch) {
        for (row, line) in patch.values.chunks_exact(patch.width).enumerate() {
            let start = (patch.top + row) * self.side + patch.left;
            for (pixel, cell) in picture[start..].iter_mut().zip(line) {
                *pixel = pixel.max(f64::from(*cell));
            }
        }
    }

    /// Returns the fine cells that a disc covers, as a square range per axis and a test.
    fn disc_cells(
        &self,
        centre: (i32, i32),
    ) -> (
        std::ops::Range<usize>,
        std::ops::Range<usize>,
        impl Fn(usize, usize) -> bool,
    ) {
        let scale = self.oversampling as i32;
        let radius = self.disc_radius * self.oversampling as f64;
        let reach = radius.floor() as i32;
        let fine = (self.side * self.oversampling) as i32;
        let (y, x) = (centre.0 * scale, centre.1 * scale);
        let range =
            |c: i32| (c - reach).clamp(0, fine) as usize..(c + reach + 1).clamp(0, fine) as usize;
        let covered = move |row: usize, column: usize| {
            let (dy, dx) = (f64::from(row as i32 - y), f64::from(column as i32 - x));
            dx * dx + dy * dy <= radius * radius
        };
        (range(y), range(x), covered)
    }

    /// Draws a disc in floating point; the filter is that of the whole window, so a disc near its
    /// edge differs.
    pub(super) fn disc(&self, centre: (i32, i32)) -> Patch {
        let (rows, columns, covered) = self.disc_cells(centre);
        let value = |y, x| if covered(y, x) { 1.0 } else { 0.0 };
        self.shrink.shrink_patch(rows, columns, value)
    }

    /// Draws a disc in 8 bits over the whole window.
    pub(super) fn disc_u8(&self, centre: (i32, i32)) -> Vec<u8> {
        let fine = self.side * self.oversampling;
        let (rows, columns, covered) = self.disc_cells(centre);
        let mut picture = vec![0u8; fine * fine];
        for (y, x) in rows.flat_map(|y| columns.clone().map(move |x| (y, x))) {
            if covered(y, x) {
                picture[y * fine + x] = u8::MAX;
            }
        }
        self.shrink.shrink_u8(&picture)
    }
}

fn divide_by_largest(picture: &mut [f64]) {
    let largest = picture.iter().copied().fold(0.0, f64::max);
    if largest > 0.0 {
        for value in picture {
            *value /= largest;
        }
    }
}
