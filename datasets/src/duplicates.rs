//! Duplicate rows, found by a hash of their tokens.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::SplitName;
use crate::words::counted;

/// Half of a SHA-256: among 10^8 different rows two share it with a probability of 10^-23.
pub(crate) type RowHash = [u8; 16];

/// Returns the hash of the token sequences of one row.
pub(crate) fn row_hash<'a>(towers: impl IntoIterator<Item = &'a [u8]>) -> RowHash {
    let mut digest = Sha256::new();
    for tokens in towers {
        digest.update((tokens.len() as u64).to_le_bytes());
        digest.update(tokens);
    }
    let mut half = [0; 16];
    half.copy_from_slice(&digest.finalize()[..16]);
    half
}

/// Counter of the duplicate rows of an entry.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    first_seen: HashMap<RowHash, SplitName>,
    /// Number of rows that occurred before in the same split.
    pub within: u64,
    /// Number of rows that occurred first in another split.
    pub between: u64,
}

impl Duplicates {
    /// Adds the next row.
    pub(crate) fn add(&mut self, split: SplitName, hash: RowHash) {
        match self.first_seen.get(&hash) {
            Some(&first) if first == split => self.within += 1,
            Some(_) => self.between += 1,
            None => {
                self.first_seen.insert(hash, split);
            }
        }
    }

    /// Returns both counts in words.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} repeated within a split, {} in more than one split",
            counted(self.within, "row"),
            self.between
        )
    }
}
