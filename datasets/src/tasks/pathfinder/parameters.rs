//! Parameters of the published image sets, per resolution and difficulty.
//!
//! The numbers are those of the Long Range Arena's dataset documentation, corrected where images of
//! the release contradict it: decoded images hold about 11 attempted distractors at 64 x 64 and 17
//! at 128 x 128, not the documented 5 and 8.

use std::fmt;
use std::str::FromStr;

/// Side of the square image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// 32 x 32, sequences of 1,024 pixels.
    S32,
    /// 64 x 64, sequences of 4,096 pixels.
    S64,
    /// 128 x 128, sequences of 16,384 pixels.
    S128,
    /// 256 x 256, sequences of 65,536 pixels.
    S256,
}

impl Size {
    /// All sizes, smallest first.
    pub const ALL: [Size; 4] = [Size::S32, Size::S64, Size::S128, Size::S256];

    /// Returns the side in pixels.
    pub const fn side(self) -> usize {
        match self {
            Size::S32 => 32,
            Size::S64 => 64,
            Size::S128 => 128,
            Size::S256 => 256,
        }
    }

    /// Returns the size with this side, if it is one of the four published ones.
    pub fn of_side(side: u64) -> Option<Size> {
        Size::ALL
            .into_iter()
            .find(|size| size.side() as u64 == side)
    }
}

/// Difficulty of a set: the length of the two contours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Difficulty {
    /// 6 dashes per contour (`curv_baseline` in the release).
    Easy,
    /// 9 dashes per contour (`curv_contour_length_9`).
    Intermediate,
    /// 14 dashes per contour (`curv_contour_length_14`), as in published scores.
    Hard,
}

impl Difficulty {
    /// All difficulties, easiest first.
    pub const ALL: [Difficulty; 3] = [Difficulty::Easy, Difficulty::Intermediate, Difficulty::Hard];

    /// Returns the lower-case name, as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Difficulty::Easy => "easy",
            Difficulty::Intermediate => "intermediate",
            Difficulty::Hard => "hard",
        }
    }

    /// Returns the folder of the release that holds this difficulty.
    pub const fn folder(self) -> &'static str {
        match self {
            Difficulty::Easy => "curv_baseline",
            Difficulty::Intermediate => "curv_contour_length_9",
            Difficulty::Hard => "curv_contour_length_14",
        }
    }
}

impl fmt::Display for Difficulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Difficulty {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        Difficulty::ALL
            .into_iter()
            .find(|difficulty| difficulty.name() == name)
            .ok_or(())
    }
}

/// Conversion of strokes and discs to grey values; the geometry is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Pixels {
    /// Pixels as in the images of the release: floating-point strokes, scaled to their own maximum,
    /// grey values truncated. Verified on decoded images of 64 and 128 pixels.
    #[default]
    Release,
    /// Pixels as the 2019 generator writes them: 8-bit strokes, the whole image stretched to
    /// 0..=255.
    Upstream,
}

impl Pixels {
    /// Returns the lower-case name, as options spell it.
    pub const fn name(self) -> &'static str {
        match self {
            Pixels::Release => "release",
            Pixels::Upstream => "upstream",
        }
    }
}

impl FromStr for Pixels {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, ()> {
        [Pixels::Release, Pixels::Upstream]
            .into_iter()
            .find(|pixels| pixels.name() == name)
            .ok_or(())
    }
}

/// Parameters of the generator: all its inputs except for the seed.
///
/// Only published combinations are possible (and other numbers of distractors and of dashes per
/// contour), so that the tiles of any value are known to fit the fixed-width rows that the
/// generator works with.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameters {
    /// Side of the window, pixels.
    pub(super) side: usize,
    /// Width of the border that counts as occupied from the start, pixels (at least 1).
    pub(super) padding: usize,
    /// Oversampling factor of the drawing grid.
    pub(super) oversampling: usize,
    /// Length of one dash, pixels.
    pub(super) dash_length: usize,
    /// Thickness of one dash, pixels.
    pub(super) dash_thickness: f64,
    /// Clearances around dashes, pixels; each image draws one of them.
    pub(super) margins: Vec<usize>,
    /// Distance between the seeds of the two contours, pixels.
    pub(super) seed_distance: usize,
    /// Radius of the two discs, pixels.
    pub(super) disc_radius: f64,
    /// Sharpness of the penalty on turns: a turn of `pi / (2 * continuity)` has weight zero.
    pub(super) continuity: f64,
    /// Brightness of the dashes of the two contours.
    pub(super) target_contrast: f32,
    /// Brightness of the dashes of distractors.
    pub(super) distractor_contrast: f32,
    /// Number of dashes per contour.
    pub(super) contour_length: usize,
    /// Minimum and maximum number of dashes per contour, between which each image draws a number;
    /// `contour_length` if `None`.
    pub(super) contour_lengths: Option<[usize; 2]>,
    /// Number of dashes per distractor.
    pub(super) distractor_length: usize,
    /// Number of distractors attempted per image; those that find no room are left out.
    pub(super) distractors: usize,
}

impl Parameters {
    /// Returns the parameters of the published set of this size and difficulty.
    ///
    /// Distractor counts for easy and intermediate, and all numbers specific to 32 x 32 and to
    /// 256 x 256, come only from the documentation of the release. The authors' script computes
    /// the number of distractors once, for the easy set (drewlinsley/pathfinder@ab9c130,
    /// snakes2_wrapper.py:73). By that rule, which images of 64 and 128 pixels follow, it would be
    /// 10 at 32 x 32 and 15 at 256 x 256 for every difficulty. No published image of these sizes
    /// was found to tell.
    pub fn published(size: Size, difficulty: Difficulty) -> Parameters {
        let contour_length = match difficulty {
            Difficulty::Easy => 6,
            Difficulty::Intermediate => 9,
            Difficulty::Hard => 14,
        };
        let distractor_length = contour_length / 3;
        let common = Parameters {
            side: size.side(),
            padding: 1,
            oversampling: 2,
            dash_length: 5,
            dash_thickness: 1.0,
            margins: vec![1],
            seed_distance: 12,
            disc_radius: 2.5,
            continuity: 1.8,
            target_contrast: 0.8,
            distractor_contrast: 0.8,
            contour_length,
            contour_lengths: None,
            distractor_length,
            distractors: 11,
        };
        match size {
            Size::S32 => Parameters {
                dash_length: 2,
                dash_thickness: 0.5,
                seed_distance: 7,
                disc_radius: 1.5,
                continuity: 1.0,
                // Contours are dimmed by a further 0.75; distractors are not.
                target_contrast: 2.0 * 0.75,
                distractor_contrast: 2.0,
                distractors: 20 / distractor_length,
                ..common
            },
            Size::S64 => common,
            Size::S128 => Parameters {
                dash_thickness: 1.5,
                margins: vec![2, 3],
                seed_distance: 20,
                disc_radius: 3.0,
                target_contrast: 0.9,
                distractor_contrast: 0.9,
                distractors: 17,
                ..common
            },
            Size::S256 => Parameters {
                padding: 22,
                dash_thickness: 2.0,
                margins: vec![3],
                seed_distance: 27,
                disc_radius: 5.0,
                target_contrast: 1.0,
                distractor_contrast: 1.0,
                distractors: if difficulty == Difficulty::Easy {
                    15
                } else {
                    7
                },
                ..common
            },
        }
    }

    /// Returns these parameters with another number of attempted distractors per image.
    pub fn with_distractors(self, distractors: usize) -> Parameters {
        Parameters {
            distractors,
            ..self
        }
    }

    /// Returns these parameters with `least` to `most` dashes per contour. Both contours of an
    /// image have the same number.
    pub fn with_contour_lengths(self, least: usize, most: usize) -> Parameters {
        Parameters {
            contour_lengths: Some([least, most.max(least)]),
            ..self
        }
    }

    /// Returns the side of the square image, pixels.
    pub fn side(&self) -> usize {
        self.side
    }

    /// Returns the clearances around dashes that images of this set use, pixels.
    pub fn margins(&self) -> &[usize] {
        &self.margins
    }
}

#[cfg(test)]
mod tests {
    use super::Difficulty::{Easy, Hard, Intermediate};
    use super::Size::{S32, S64, S128, S256};
    use super::*;

    #[test]
    fn every_published_set_has_its_numbers_of_dashes_and_distractors() {
        for (difficulty, dashes, of_distractor, distractors) in [
            (Easy, 6, 2, [10, 11, 17, 15]),
            (Intermediate, 9, 3, [6, 11, 17, 7]),
            (Hard, 14, 4, [5, 11, 17, 7]),
        ] {
            for (size, distractors) in Size::ALL.into_iter().zip(distractors) {
                let set = Parameters::published(size, difficulty);
                assert_eq!(
                    (set.contour_length, set.distractor_length),
                    (dashes, of_distractor),
                    "{size:?} {difficulty}"
                );
                assert_eq!(set.distractors, distractors, "{size:?} {difficulty}");
                assert_eq!(set.contour_lengths, None);
            }
        }
    }

    #[test]
    fn every_size_has_its_own_geometry() {
        for (size, lengths, margins, thickness_and_radius) in [
            (S32, [1, 2, 7], &[1][..], (0.5, 1.5)),
            (S64, [1, 5, 12], &[1], (1.0, 2.5)),
            (S128, [1, 5, 20], &[2, 3], (1.5, 3.0)),
            (S256, [22, 5, 27], &[3], (2.0, 5.0)),
        ] {
            for difficulty in Difficulty::ALL {
                let set = Parameters::published(size, difficulty);
                let found = [set.padding, set.dash_length, set.seed_distance];
                assert_eq!(found, lengths, "{size:?}");
                assert_eq!(set.margins(), margins, "{size:?}");
                let found = (set.dash_thickness, set.disc_radius);
                assert_eq!(found, thickness_and_radius, "{size:?}");
                assert_eq!(set.side(), size.side());
            }
        }
    }
}
