//! Labels at positions: for every pixel of a dash, whether it is on the path of the marked disc,
//! the first of the two discs in reading order. Label 1 is on its contour, 0 on the other contour
//! or a distractor; other pixels have no label.
//!
//! A pixel belongs to a dash where the dash is at least half as dark as at its darkest. Where two
//! contours cross, the pixel belongs to the darker one; between equals, to the path. Groups are
//! straight distances from the centre of the marked disc, in thirds of the length of its contour:
//! near, middle, and far beyond two thirds.

use super::render::Renderer;
use super::scene::{Paddle, Scene};
use super::tiles::Tiles;
use crate::{Dense, DenseRow};

const GROUPS: [&str; 3] = ["near", "middle", "far"];

/// Minimum darkness of a labelled pixel, as a fraction of its dash's maximum.
const INKED: f64 = 0.5;

/// Returns the kind of labels.
pub(super) fn kind() -> Dense {
    Dense::new(2, &GROUPS)
}

impl Renderer {
    /// Returns the labels of the pixels of a scene, row by row. Dashes that are not among `tiles`
    /// are left out.
    pub(super) fn dense(&self, scene: &Scene, tiles: &Tiles) -> DenseRow {
        // If both discs are in one place, either may be the marked one, since they are at the ends
        // of the same contour.
        let marked = usize::from(scene.discs[1] < scene.discs[0]);
        let (centre, contour) = (scene.discs[marked], scene.contours_of_discs()[marked]);
        let path = &scene.targets[contour];
        let others = scene.targets[1 - contour].iter();
        let others = others.chain(scene.distractors.iter().flatten());
        let on_path = self.darkness(path.iter(), tiles);
        let off_path = self.darkness(others, tiles);
        // The distance that the contour would span if it were straight.
        let reach = length(path);
        let mut row = DenseRow::unlabelled(on_path.len());
        for (pixel, (on, off)) in on_path.iter().zip(&off_path).enumerate() {
            if on.max(*off) < INKED {
                continue;
            }
            let (y, x) = ((pixel / self.side) as f64, (pixel % self.side) as f64);
            let away = (y - f64::from(centre.0)).hypot(x - f64::from(centre.1));
            let third = (3.0 * away / reach) as usize;
            let group = third.min(GROUPS.len() - 1) as u8;
            row.label(pixel, u8::from(on >= off), group);
        }
        row
    }

    /// Returns the darkness of the darkest of some dashes at each pixel, as a fraction of the
    /// dash's maximum.
    fn darkness<'a>(&self, dashes: impl Iterator<Item = &'a Paddle>, tiles: &Tiles) -> Vec<f64> {
        let mut picture = vec![0.0; self.side * self.side];
        for dash in dashes {
            let Some(tile) = tiles.ending_at(dash.end) else {
                continue;
            };
            let line = &tiles.get(tile).line;
            let darkest = line.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
            let ink = |cell: usize| f64::from(line[cell] / darkest);
            self.stamp(&mut picture, tiles.reach, dash.start, ink);
        }
        picture
    }
}

/// Returns the distance in pixels from the first dash to the last, along the contour; at least one.
fn length(path: &[Paddle]) -> f64 {
    let steps = path.windows(2).map(|pair| {
        let ((y0, x0), (y1, x1)) = (pair[0].start, pair[1].start);
        f64::from(y1 - y0).hypot(f64::from(x1 - x0))
    });
    steps.sum::<f64>().max(1.0)
}
