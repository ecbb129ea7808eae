//! Labels at positions: each closing bracket is labelled with the value of its list, grouped by the
//! depth of the list. The whole expression has depth 1. The tokens contain no value of a list.

use rayon::prelude::*;

use super::Options;
use super::evaluate::{Closed, Malformed, walk};
use super::vocabulary::Token;
use crate::error::Result;
use crate::{Check, Dense, DenseRow, Split, SplitName, SplitWriter};

/// Names of the depths under which scores are reported.
const GROUPS: [&str; 4] = ["depth 1", "depth 2", "depth 3", "depth 4+"];

/// Returns the kind of labels.
pub(super) fn kind() -> Dense {
    Dense::new(10, &GROUPS)
}

/// Labels the brackets of an expression.
///
/// # Errors
/// The tokens are not an expression.
pub(super) fn labels(tokens: &[u8]) -> Result<DenseRow, Malformed> {
    let mut row = DenseRow::unlabelled(tokens.len());
    walk(
        tokens.iter().map(|&stored| Token::new(stored)),
        |list: Closed| row.label(list.position, list.value, group(list.depth)),
    )?;
    Ok(row)
}

fn group(depth: usize) -> u8 {
    (depth.min(GROUPS.len()) - 1) as u8
}

/// Writes a row, with labels at its brackets if the options request them.
pub(super) fn write(
    options: &Options,
    writer: &mut SplitWriter,
    split: SplitName,
    tokens: &[u8],
    label: u8,
) -> Result<()> {
    if !options.dense {
        return writer.row(split, &[tokens], label);
    }
    // The writer refuses an expression whose brackets could not be labelled.
    let row = labels(tokens).unwrap_or_default();
    writer.dense_row(split, tokens, label, &row)
}

/// Evaluates every list of a split again; returns `None` where its brackets have no labels.
pub(super) fn check(split: &Split, name: String) -> Option<Check> {
    split.all_dense()?;
    let wrong = (0..split.len()).into_par_iter().find_map_first(|row| {
        let wanted = match labels(split.tokens(0, row)) {
            Ok(wanted) => wanted,
            Err(problem) => return Some(format!("row {row}: {problem}")),
        };
        let same = split.dense(row) == Some(wanted.labels());
        (!same).then(|| format!("row {row} has other values at its brackets than its lists"))
    });
    Some(match wrong {
        Some(problem) => Check::new(name, false, problem),
        None => Check::new(
            name,
            true,
            "every list evaluates to the label of its bracket",
        ),
    })
}
