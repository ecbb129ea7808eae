//! `data.permute`: a fixed permutation of the positions of every row, drawn from a seed.
//!
//! Models that expect neighbours to belong together lose by it; models without an order lose
//! nothing. The permutation is applied when batches are assembled, so that stored data stays as it
//! is. A row of n tokens is put in the order in which its n positions occur in the permutation of
//! all positions up to the maximum length: padding stays at the end, and rows of one length are all
//! permuted alike. Both sequences of a pair are permuted alike, and labels move with their
//! positions.

use datasets::Shape;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// Name of the setting in the section `data`.
pub const KEY: &str = "permute";

/// Adds the setting with its default to the settings of a task's data: 0, no permutation.
pub fn add_default(data: &mut Value) {
    data[KEY] = json!(0);
}

/// Removes the setting from the settings of data; returns its seed, 0 for none.
///
/// # Errors
/// The value is no seed.
pub fn take(data: &mut Value) -> Result<u64> {
    let Some(value) = data.as_object_mut().and_then(|data| data.remove(KEY)) else {
        return Ok(0);
    };
    let seed = value.as_i64().and_then(|seed| u64::try_from(seed).ok());
    seed.ok_or_else(|| {
        Error::usage(format!(
            "data.{KEY} = {value}: a seed is a whole number from 1 to {}; 0 permutes nothing",
            i64::MAX
        ))
    })
}

/// Returns the settings of data without this one, and its seed.
pub fn without(data: &Value) -> (Value, u64) {
    let mut data = data.clone();
    // A specification holds a seed that was checked when it was resolved.
    let seed = take(&mut data).unwrap_or_default();
    (data, seed)
}

/// Returns the shape of data that is permuted by `seed`: its label says so.
pub fn shape(shape: Shape, seed: u64) -> Shape {
    if seed == 0 {
        return shape;
    }
    let mark = if shape.label.contains('@') { '-' } else { '@' };
    let label = format!("{}{mark}{KEY}{seed}", shape.label);
    Shape { label, ..shape }
}

/// Returns the seed in a part of a label, such as `permute7`.
pub fn of_label(part: &str) -> Option<u64> {
    let seed = part.strip_prefix(KEY)?.parse().ok()?;
    (seed > 0).then_some(seed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_read_and_wrong_ones_refused() {
        for (value, wanted) in [(json!(0), Some(0)), (json!(7), Some(7)), (json!(-1), None)] {
            let mut data = json!({ "seed": 3, "permute": value });
            assert_eq!(take(&mut data).ok(), wanted);
            assert_eq!(data, json!({ "seed": 3 }));
        }
        assert_eq!(without(&json!({ "seed": 3 })), (json!({ "seed": 3 }), 0));
        let seeds = ["permute7", "permute0", "permute", "7"].map(of_label);
        assert_eq!(seeds, [Some(7), None, None, None]);
    }
}
