//! The options of Pathfinder and Path-X.

use serde::Deserialize;
use serde_json::{Value, json};

use super::parameters::{Difficulty, Parameters, Pixels, Size};
use crate::error::{Error, Result};
use crate::options::{parse, within};
use crate::{About, SplitName};

/// Which of the published sets a task stands for, and whether others can be chosen.
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
    /// Rows of train, val and test.
    pub(super) rows: [u32; 3],
    pub(super) size: Size,
    pub(super) difficulty: Difficulty,
    pub(super) pixels: Pixels,
}

#[derive(Deserialize)]
struct Raw {
    seed: u64,
    train: u32,
    val: u32,
    test: u32,
    pixels: String,
    size: Option<u64>,
    difficulty: Option<String>,
}

impl Set {
    pub(super) fn defaults(self) -> Value {
        let mut defaults = json!({
            "seed": 0, "train": 160_000, "val": 20_000, "test": 20_000, "pixels": Pixels::Release.name(),
        });
        if !self.fixed {
            defaults["size"] = json!(self.size.side());
            defaults["difficulty"] = json!(self.difficulty.name());
        }
        defaults
    }

    pub(super) fn read(self, about: &About, options: &Value) -> Result<Options> {
        let raw: Raw = parse(about, &self.defaults(), options)?;
        for (key, rows) in [("train", raw.train), ("val", raw.val), ("test", raw.test)] {
            within(about, key, rows, 1..=10_000_000)?;
        }
        let refused = |key: &str, value: String, allowed: &str| Error::Option {
            task: about.name,
            key: key.to_owned(),
            value,
            allowed: allowed.to_owned(),
        };
        let side = raw.size.unwrap_or(self.size.side() as u64);
        let difficulty = raw.difficulty.as_deref().unwrap_or(self.difficulty.name());
        Ok(Options {
            seed: raw.seed,
            rows: [raw.train, raw.val, raw.test],
            size: Size::of_side(side)
                .ok_or_else(|| refused("size", side.to_string(), "32, 64, 128, 256"))?,
            difficulty: difficulty.parse().map_err(|()| {
                refused(
                    "difficulty",
                    format!("`{difficulty}`"),
                    "easy, intermediate, hard",
                )
            })?,
            pixels: raw.pixels.parse().map_err(|()| {
                refused("pixels", format!("`{}`", raw.pixels), "release, upstream")
            })?,
        })
    }

    /// The task's name where everything but the seed is as published, otherwise with what differs.
    pub(super) fn label(self, about: &About, options: &Options) -> String {
        let mut marks = Vec::new();
        if (options.size, options.difficulty) != (self.size, self.difficulty) {
            marks.push(format!("{}-{}", options.size.side(), options.difficulty));
        }
        if json!(options.rows) != json!([160_000, 20_000, 20_000]) {
            marks.push(format!("n{}", options.rows[0]));
        }
        if options.pixels != Pixels::Release {
            marks.push(options.pixels.name().to_owned());
        }
        if marks.is_empty() {
            return about.name.to_owned();
        }
        format!("{}@{}", about.name, marks.join("-"))
    }

    /// Options that do not apply to the published files, set to their defaults.
    pub(super) fn without_drawing(self, options: &Value) -> Value {
        let mut kept = self.defaults();
        for key in ["size", "difficulty"] {
            if let Some(value) = options.get(key) {
                kept[key] = value.clone();
            }
        }
        kept
    }
}

impl Options {
    pub(super) fn parameters(&self) -> Parameters {
        Parameters::published(self.size, self.difficulty)
    }

    pub(super) fn rows_of(&self, split: SplitName) -> usize {
        self.rows[split as usize] as usize
    }

    pub(super) fn length(&self) -> usize {
        self.size.side() * self.size.side()
    }
}
