//! Options that all probes have, and lengths.

use serde::{Deserialize, Serialize};

use crate::TaskInfo;
use crate::error::Result;
use crate::options::refused;
use crate::synthetic::DrawOptions;

/// Limit on the length of a row, in tokens.
pub(super) const LONGEST: u32 = 65_536;

/// Options of every probe, in addition to its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Common {
    #[serde(flatten)]
    pub(super) drawn: DrawOptions,
    /// Maximum length of a row of the test split, in tokens.
    pub(super) max_length: u32,
    /// Maximum length of a row of the training and validation splits, in tokens.
    pub(super) train_length: u32,
    /// True if every position with an answer is labelled; otherwise only whole rows are.
    pub(super) dense: bool,
}

impl Common {
    /// Returns options with seed 0 and labels at positions.
    pub(super) fn new([train, val, test]: [u32; 3], train_length: u32, max_length: u32) -> Common {
        Common {
            drawn: DrawOptions {
                seed: 0,
                train,
                val,
                test,
            },
            max_length,
            train_length,
            dense: true,
        }
    }

    /// Checks the sizes of the splits, and that no length is below `shortest`, which follows from
    /// the option `from`; the option is empty for a constant.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) naming the option.
    pub(super) fn check(&self, info: &TaskInfo, shortest: u32, from: &str) -> Result<()> {
        self.drawn.check(info)?;
        let (least, longest) = ((shortest, from), self.max_length);
        bounded(info, "max_length", longest, least, (LONGEST, ""))?;
        let most = (longest, "max_length");
        bounded(info, "train_length", self.train_length, least, most)
    }
}

/// Checks that an option lies between two bounds, each with the option that it follows from; the
/// option is empty for a constant.
///
/// # Errors
/// [`Error::Option`](crate::Error::Option) naming the option and those of the bounds.
pub(super) fn bounded(
    info: &TaskInfo,
    key: &str,
    value: u32,
    least: (u32, &str),
    most: (u32, &str),
) -> Result<()> {
    if (least.0..=most.0).contains(&value) {
        return Ok(());
    }
    let [least, most] = [least, most].map(|(bound, from)| match from {
        "" => bound.to_string(),
        from => format!("{bound} (by {from})"),
    });
    Err(refused(info, key, value, format!("{least} to {most}")))
}

/// Returns the lengths `first`, `first * factor`, and so on up to `last`.
pub(super) fn lengths(first: u32, factor: u32, last: u32) -> Vec<u32> {
    let next = |length: &u32| length.checked_mul(factor);
    let all = std::iter::successors(Some(first), next);
    all.take_while(|length| *length <= last).collect()
}

/// Returns the length of row number `row`: the lengths take turns.
pub(super) fn turn(lengths: &[u32], row: u64) -> u32 {
    lengths[(row % lengths.len().max(1) as u64) as usize]
}
