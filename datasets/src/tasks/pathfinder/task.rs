//! The two tasks of the arena.

use serde_json::Value;

use super::build::build;
use super::options::Set;
use super::parameters::{Difficulty, Size};
use super::release;
use super::{disc_baseline, picture};
use crate::baseline::{Baseline, bag_of_tokens, majority};
use crate::error::Result;
use crate::options::refused;
use crate::{Remote, Request, Shape, Source, SplitWriter, Splits, Task, TaskInfo, remote};

/// A task whose images this module draws and reads.
pub struct Contours {
    info: &'static TaskInfo,
    set: Set,
}

/// Pathfinder: 32 x 32 pixels, hard; other sizes and difficulties by option.
pub static PATHFINDER: Contours = Contours {
    info: &TaskInfo {
        name: "pathfinder",
        title: "Pathfinder",
        ..COMMON
    },
    set: Set {
        size: Size::S32,
        difficulty: Difficulty::Hard,
        fixed: false,
    },
};

/// Path-X: 128 x 128 pixels, hard.
pub static PATHX: Contours = Contours {
    info: &TaskInfo {
        name: "pathx",
        title: "Path-X",
        ..COMMON
    },
    set: Set {
        size: Size::S128,
        difficulty: Difficulty::Hard,
        fixed: true,
    },
};

const COMMON: TaskInfo = TaskInfo {
    name: "",
    title: "",
    summary: "Do two discs lie on the same dashed contour? A grey image, pixel by pixel.",
    paper: "Linsley et al., 2018, arXiv:1805.08315; images as in Tay et al., 2021, arXiv:2011.04006",
    version: 1,
    vocabulary: 256,
    first_id: 0,
    classes: 2,
    towers: 1,
    mask_ratio: 0.5,
    sources: &[Source::Generated, Source::Official],
    probe: false,
};

impl Task for Contours {
    fn info(&self) -> &'static TaskInfo {
        self.info
    }

    fn defaults(&self) -> Value {
        self.set.defaults()
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let read = self.set.read(self.info, options)?;
        Ok(self.set.shape(self.info, &read))
    }

    fn unused_options(&self, source: Source) -> &'static [&'static str] {
        match source {
            Source::Official => &[
                "seed",
                "train",
                "val",
                "test",
                "pixels",
                "min_dashes",
                "max_dashes",
            ],
            _ => &[],
        }
    }

    fn reads(&self, name: &str) -> bool {
        release::reads(name)
    }

    fn remote(&self) -> &'static [Remote] {
        &remote::RELEASE
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = self.set.read(self.info, request.options)?;
        match request.source {
            // The release does not assign dashes to contours.
            Source::Official if options.dense => Err(refused(
                self.info,
                "dense",
                true,
                "false, or source generated: the published images have one label each",
            )),
            Source::Official => {
                release::read(self.info, options.size, options.difficulty, request, writer)
            }
            _ => build(&options, request, writer),
        }
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        picture::picture(towers.first().copied().unwrap_or_default(), label)
    }

    /// Returns the distance between the centres of the discs, in pixels rounded down; 0 if they are
    /// not found.
    fn traits(&self, towers: &[&[u8]]) -> Vec<(&'static str, u64)> {
        let discs = disc_baseline::find_discs(towers.first().copied().unwrap_or_default());
        let distance = discs.map_or(0, |[(y, x), (v, u)]| {
            ((y - v).pow(2) + (x - u).pow(2)).isqrt()
        });
        vec![("distance of the discs", distance as u64)]
    }

    fn baselines(&self, splits: &Splits) -> Vec<Baseline> {
        vec![
            majority(splits, self.info),
            bag_of_tokens(splits, self.info),
            disc_baseline::baseline(splits),
        ]
    }
}
