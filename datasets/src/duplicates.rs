//! Duplicate rows, found by a hash of their tokens.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use crate::words::counted;
use crate::{PerSplit, SplitName};

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

/// Number of examples of a split below which nothing is concluded from what they have in common.
pub(crate) const FEW: u64 = 20;

/// Fraction of a split of published data that its different examples exceed. What is known of them
/// hardly repeats, so that a smaller fraction is not accidental.
pub(crate) const LEAST_DISTINCT: f64 = 0.5;

/// Maximum fraction of the different examples of a split that may occur in another split, too.
const MOST_SHARED: f64 = 0.5;

/// Counter of the duplicate rows of an entry. Its counts do not depend on the order of the rows.
#[derive(Debug, Default)]
pub(crate) struct Duplicates {
    /// The splits in which each row occurs, as bits.
    places: HashMap<RowHash, u8>,
    rows: PerSplit<u64>,
    distinct: PerSplit<u64>,
}

impl Duplicates {
    /// Adds the next row.
    pub(crate) fn add(&mut self, split: SplitName, hash: RowHash) {
        *self.rows.get_mut(split) += 1;
        let places = self.places.entry(hash).or_default();
        if *places & bit(split) == 0 {
            *places |= bit(split);
            *self.distinct.get_mut(split) += 1;
        }
    }

    /// Returns the number of rows that repeat another one of their own split.
    pub(crate) fn within(&self) -> u64 {
        let repeated = |split: SplitName| self.rows.get(split) - self.distinct.get(split);
        SplitName::ALL.into_iter().map(repeated).sum()
    }

    /// Returns the number of different rows that occur in more than one split.
    pub(crate) fn between(&self) -> u64 {
        let places = self.places.values();
        places.filter(|places| places.count_ones() > 1).count() as u64
    }

    /// Returns both counts in words.
    pub(crate) fn text(&self) -> String {
        format!(
            "{} repeated within a split, {} in more than one split",
            counted(self.within(), "row"),
            self.between()
        )
    }

    /// Returns a sentence for each likeness that no published data has: a split with less than
    /// `least_distinct` different examples, and splits that share most of theirs. `examples` is the
    /// noun for them.
    pub(crate) fn implausible(&self, examples: &str, least_distinct: f64) -> Vec<String> {
        let judged = |split: SplitName| *self.rows.get(split) >= FEW;
        let mut sentences = Vec::new();
        for split in SplitName::ALL.into_iter().filter(|split| judged(*split)) {
            let (rows, distinct) = (*self.rows.get(split), *self.distinct.get(split));
            if distinct as f64 <= least_distinct * rows as f64 {
                sentences.push(format!(
                    "only {distinct} of {rows} {examples} of {split} differ, and the published ones hardly repeat"
                ));
            }
        }
        for (split, other) in [
            (SplitName::Val, SplitName::Train),
            (SplitName::Test, SplitName::Train),
            (SplitName::Test, SplitName::Val),
        ] {
            let both = bit(split) | bit(other);
            let places = self.places.values();
            let shared = places.filter(|places| **places & both == both).count();
            let distinct = *self.distinct.get(split);
            if distinct >= FEW && shared as f64 > MOST_SHARED * distinct as f64 {
                sentences.push(format!(
                    "{shared} of {distinct} different {examples} of {split} also occur in {other}, and few of the published ones do"
                ));
            }
        }
        sentences
    }
}

fn bit(split: SplitName) -> u8 {
    1 << split as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counter of rows of these splits, each of a number.
    fn counter(rows: impl IntoIterator<Item = (SplitName, u8)>) -> Duplicates {
        let mut duplicates = Duplicates::default();
        for (split, number) in rows {
            duplicates.add(split, row_hash([&[number][..]]));
        }
        duplicates
    }

    #[test]
    fn counts_do_not_depend_on_the_order_of_the_splits() {
        let rows = [
            (0, 1),
            (0, 1),
            (0, 2),
            (1, 1),
            (2, 1),
            (2, 1),
            (2, 3),
            (1, 3),
        ];
        let mut rows = rows.map(|(split, number)| (SplitName::ALL[split], number));
        let words = "2 rows repeated within a split, 2 in more than one split";
        for _ in 0..rows.len() {
            assert_eq!(counter(rows).text(), words);
            rows.rotate_left(1);
        }
        rows.reverse();
        assert_eq!(counter(rows).text(), words);
    }

    #[test]
    fn splits_of_few_different_or_of_shared_rows_are_told() {
        let rows = |split: SplitName, count: u8, distinct: u8| {
            (0..count).map(move |row| (split, row % distinct))
        };
        let train = || rows(SplitName::Train, 40, 40);
        let told = |more: Vec<(SplitName, u8)>| {
            let sentences = counter(train().chain(more)).implausible("rows", LEAST_DISTINCT);
            sentences.join("; ")
        };
        assert_eq!(told(vec![]), "");
        // Nothing is concluded from a few rows.
        assert_eq!(told(rows(SplitName::Test, 19, 1).collect()), "");
        let others = rows(SplitName::Val, 30, 14).map(|(split, row)| (split, row + 100));
        assert_eq!(
            told(others.collect()),
            "only 14 of 30 rows of val differ, and the published ones hardly repeat"
        );
        assert_eq!(
            told(rows(SplitName::Test, 20, 20).collect()),
            "20 of 20 different rows of test also occur in train, and few of the published ones do"
        );
        let later = rows(SplitName::Val, 20, 20).chain(rows(SplitName::Test, 20, 20));
        let later: Vec<_> = later.map(|(split, row)| (split, row + 100)).collect();
        assert_eq!(
            told(later),
            "20 of 20 different rows of test also occur in val, and few of the published ones do"
        );
        let half = (0..40).map(|row| (SplitName::Test, row + 20));
        assert_eq!(told(half.collect()), "");
        let apart = (0..40).map(|row| (SplitName::Test, row + 30));
        assert_eq!(told(apart.collect()), "");
    }

    #[test]
    fn tokens_of_one_sequence_are_not_those_of_another() {
        let hash = |towers: &[&[u8]]| row_hash(towers.iter().copied());
        let all = [
            hash(&[b"ab", b"c"]),
            hash(&[b"a", b"bc"]),
            hash(&[b"abc", b""]),
            hash(&[b"abc"]),
        ];
        for (index, one) in all.iter().enumerate() {
            assert!(!all[..index].contains(one));
        }
    }

    #[test]
    fn rows_that_are_all_there_twice_are_implausible() {
        let mut found = Duplicates::default();
        for number in 0..40_u8 {
            found.add(SplitName::Train, row_hash([&[number / 2][..]]));
        }
        assert_eq!(found.implausible("rows", LEAST_DISTINCT).len(), 1);
    }
}
