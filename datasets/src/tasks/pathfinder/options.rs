//! Options of Pathfinder and Path-X.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::dense;
use super::parameters::{Difficulty, Parameters, Pixels, Size};
use crate::error::Result;
use crate::options::{none_of, parse, refused, within};
use crate::{Shape, SplitName, TaskInfo};

/// Published set of a task, and whether other sets can be chosen.
#[derive(Clone, Copy)]
pub(super) struct Set {
    pub(super) size: Size,
    pub(super) difficulty: Difficulty,
    pub(super) fixed: bool,
}

/// Checked options.
#[derive(Clone, PartialEq)]
pub(super) struct Options {
    pub(super) seed: u64,
    /// Number of rows of train, val and test.
    pub(super) rows: [u32; 3],
    pub(super) size: Size,
    pub(super) difficulty: Difficulty,
    pub(super) pixels: Pixels,
    /// Minimum and maximum number of dashes per contour; `None` for the number of the difficulty.
    pub(super) dashes: Option<[usize; 2]>,
    /// True if the pixels of dashes are labelled.
    pub(super) dense: bool,
}

/// Options in the form of their JSON. The size and the difficulty of Path-X are fixed: it has no
/// options for them.
#[derive(Serialize, Deserialize)]
struct Raw {
    seed: u64,
    train: u32,
    val: u32,
    test: u32,
    pixels: String,
    dense: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difficulty: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_dashes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_dashes: Option<u32>,
}

/// Maximum number of dashes per contour of a published set; with more, few images would ever be
/// complete.
const MOST_DASHES: u32 = 14;

/// Number of rows of the published train, val and test.
const PUBLISHED_ROWS: [u32; 3] = [160_000, 20_000, 20_000];

impl Set {
    fn raw_defaults(self) -> Raw {
        let [train, val, test] = PUBLISHED_ROWS;
        Raw {
            seed: 0,
            train,
            val,
            test,
            pixels: Pixels::default().name().to_owned(),
            dense: false,
            size: (!self.fixed).then_some(self.size.side() as u64),
            difficulty: (!self.fixed).then(|| self.difficulty.name().to_owned()),
            min_dashes: (!self.fixed).then_some(0),
            max_dashes: (!self.fixed).then_some(0),
        }
    }

    pub(super) fn defaults(self) -> Value {
        json!(self.raw_defaults())
    }

    pub(super) fn read(self, info: &TaskInfo, options: &Value) -> Result<Options> {
        let raw: Raw = parse(info, &self.raw_defaults(), options)?;
        for (key, rows) in [("train", raw.train), ("val", raw.val), ("test", raw.test)] {
            within(info, key, rows, 1..=10_000_000)?;
        }
        let side = raw.size.unwrap_or(self.size.side() as u64);
        let difficulty = raw.difficulty.as_deref().unwrap_or(self.difficulty.name());
        let dashes = [raw.min_dashes, raw.max_dashes].map(Option::unwrap_or_default);
        Ok(Options {
            seed: raw.seed,
            rows: [raw.train, raw.val, raw.test],
            size: Size::of_side(side)
                .ok_or_else(|| refused(info, "size", side, "32, 64, 128, 256"))?,
            difficulty: difficulty.parse().map_err(|()| {
                let known = ["easy", "intermediate", "hard"];
                none_of(info, "difficulty", difficulty, &known)
            })?,
            pixels: raw
                .pixels
                .parse()
                .map_err(|()| none_of(info, "pixels", &raw.pixels, &["release", "upstream"]))?,
            dashes: read_dashes(info, dashes)?,
            dense: raw.dense,
        })
    }

    /// Returns the shape of the images: labelled as published if everything but the seed is as
    /// published.
    pub(super) fn shape(self, info: &TaskInfo, options: &Options) -> Shape {
        let (size, difficulty) = (options.size, options.difficulty);
        let departures = [
            ((size, difficulty) != (self.size, self.difficulty))
                .then(|| format!("{}-{difficulty}", size.side())),
            (options.rows != PUBLISHED_ROWS).then(|| format!("n{}", options.rows[0])),
            options
                .dashes
                .map(|[least, most]| format!("{least}to{most}")),
            (options.pixels != Pixels::default()).then(|| options.pixels.name().to_owned()),
            options.dense.then(|| "dense".to_owned()),
        ];
        let side = size.side();
        Shape::new(info, options.length(), departures)
            .of_image(side, side)
            .with_dense(options.dense.then(dense::kind))
    }
}

/// Returns the minimum and maximum number of dashes per contour, if they are set: both or neither.
fn read_dashes(info: &TaskInfo, [least, most]: [u32; 2]) -> Result<Option<[usize; 2]>> {
    if [least, most] == [0, 0] {
        return Ok(None);
    }
    // With a single dash, its two ends, which the discs mark, are one place.
    let allowed = format!("2 to {MOST_DASHES}, or 0 with max_dashes = 0");
    if !(2..=MOST_DASHES).contains(&least) {
        return Err(refused(info, "min_dashes", least, allowed));
    }
    if !(least..=MOST_DASHES).contains(&most) {
        let allowed = format!("{least} (min_dashes) to {MOST_DASHES}");
        return Err(refused(info, "max_dashes", most, allowed));
    }
    Ok(Some([least as usize, most as usize]))
}

impl Options {
    pub(super) fn parameters(&self) -> Parameters {
        let published = Parameters::published(self.size, self.difficulty);
        match self.dashes {
            Some([least, most]) => published.with_contour_lengths(least, most),
            None => published,
        }
    }

    pub(super) fn rows_of(&self, split: SplitName) -> usize {
        self.rows[split as usize] as usize
    }

    pub(super) fn length(&self) -> usize {
        self.size.side() * self.size.side()
    }
}
