//! Shared parts of drawn data: their options, and random rows and words.

use std::ops::RangeInclusive;

use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::options::within;
use crate::rng::{below, stream};
use crate::{Progress, SplitName, TaskInfo};

/// Keys of [`DrawOptions`].
pub(crate) static DRAW_OPTIONS: [&str; 4] = ["seed", "train", "val", "test"];

/// Number of rows that share one stream of random numbers.
const CHUNK: u64 = 64;

/// Allowed number of rows of a split.
const ROWS: RangeInclusive<u32> = 1..=1_000_000;

/// Options of drawn data, in addition to those of its task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DrawOptions {
    /// Seed of the data set.
    pub seed: u64,
    /// Number of rows of the training split.
    pub train: u32,
    /// Number of rows of the validation split.
    pub val: u32,
    /// Number of rows of the test split.
    pub test: u32,
}

impl DrawOptions {
    /// Checks that the splits have possible sizes.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) naming the split.
    pub fn check(&self, info: &TaskInfo) -> Result<()> {
        within(info, "train", self.train, ROWS)?;
        within(info, "val", self.val, ROWS)?;
        within(info, "test", self.test, ROWS)
    }

    /// Calls `draw` for every row of every split. The random generator passed to it depends only on
    /// purpose, seed, split and row. Labels are assigned in turn, so that every split is balanced.
    ///
    /// # Errors
    /// Errors of `draw`.
    pub fn draw(
        &self,
        info: &TaskInfo,
        progress: &dyn Progress,
        mut draw: impl FnMut(SplitName, &mut ChaCha8Rng, u8) -> Result<()>,
    ) -> Result<()> {
        let purpose = format!("synthetic {}", info.name);
        let sizes = [self.train, self.val, self.test];
        let total = sizes.iter().map(|&rows| u64::from(rows)).sum();
        progress.begin("drawing examples", Some(total));
        for (number, (split, rows)) in SplitName::ALL.into_iter().zip(sizes).enumerate() {
            let rows = u64::from(rows);
            for chunk in 0..rows.div_ceil(CHUNK) {
                // A million rows are 2^14 chunks: the streams of the splits are 2^32 apart.
                let mut rng = stream(&purpose, self.seed, ((number as u64) << 32) | chunk);
                let rows = chunk * CHUNK..rows.min((chunk + 1) * CHUNK);
                for row in rows.clone() {
                    draw(split, &mut rng, (row % info.classes as u64) as u8)?;
                }
                progress.advance(rows.end - rows.start);
            }
        }
        progress.finish();
        Ok(())
    }
}

/// Returns a whole number from `range`, each equally likely.
pub fn between(rng: &mut ChaCha8Rng, range: RangeInclusive<u32>) -> u32 {
    range.start() + below(rng, range.end() - range.start() + 1)
}

/// Appends a meaningless word of one to three syllables, in lower case.
pub(crate) fn word(rng: &mut ChaCha8Rng, text: &mut Vec<u8>) {
    for _ in 0..between(rng, 1..=3) {
        text.push(b"bcdfghjklmnprstvwz"[below(rng, 18) as usize]);
        text.push(b"aeiou"[below(rng, 5) as usize]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use rand_chacha::rand_core::Rng;

    use super::*;
    use crate::Task;
    use crate::tasks::Image;

    #[test]
    fn both_ends_of_a_range_are_drawn() {
        let mut rng = stream("test", 0, 0);
        let mut counts = [0_u32; 4];
        for _ in 0..4000 {
            counts[between(&mut rng, 5..=8) as usize - 5] += 1;
        }
        // Standard deviation 27: five of them either side.
        assert!(
            counts.iter().all(|count| count.abs_diff(1000) < 140),
            "{counts:?}"
        );
        assert_eq!(between(&mut rng, 7..=7), 7);
    }

    #[test]
    fn rows_are_drawn_apart_and_labels_take_turns() {
        let drawn = |seed: u64| {
            let options = DrawOptions {
                seed,
                train: 500,
                val: 200,
                test: 130,
            };
            let mut rows = Vec::new();
            let draw = |split: SplitName, rng: &mut ChaCha8Rng, label: u8| {
                rows.push((split, rng.next_u64(), label));
                Ok(())
            };
            options.draw(Image.info(), &(), draw).unwrap();
            rows
        };
        let (first, other) = (drawn(0), drawn(1));
        let words: HashSet<u64> = first.iter().chain(&other).map(|row| row.1).collect();
        assert_eq!(words.len(), 2 * 830);
        for (split, size) in SplitName::ALL.into_iter().zip([500, 200, 130]) {
            let labels: Vec<u8> = first
                .iter()
                .filter(|row| row.0 == split)
                .map(|row| row.2)
                .collect();
            assert!(labels.into_iter().eq((0..size).map(|row| (row % 10) as u8)));
        }
    }
}
