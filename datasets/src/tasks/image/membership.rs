//! Membership of the training pictures in train and validation.
//!
//! The published split takes the first 90 % of train in the order in which the data set library of
//! 2020 stores it: by the MD5, as a 128-bit number, of the word `train` followed by the picture's
//! place in the published files, in decimal.

use std::sync::LazyLock;

use md5::{Digest as _, Md5};

/// Number of pictures of train, as published.
pub(super) const TRAIN: usize = 50_000;

/// Number of pictures of train that stay in the training split.
const KEPT: usize = 45_000;

/// For every place in the published order, whether the picture there belongs to validation.
pub(super) static VALIDATES: LazyLock<Vec<bool>> = LazyLock::new(|| {
    let hash = |place: usize| <[u8; 16]>::from(Md5::digest(format!("train{place}")));
    let mut order: Vec<([u8; 16], usize)> = (0..TRAIN).map(|place| (hash(place), place)).collect();
    order.sort_unstable();
    let mut validates = vec![false; TRAIN];
    for (_, place) in &order[KEPT..] {
        validates[*place] = true;
    }
    validates
});

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with Python's hashlib.
    #[test]
    fn the_published_five_thousand() {
        let places: Vec<usize> = (0..TRAIN).filter(|&place| VALIDATES[place]).collect();
        assert_eq!(places.len(), 5_000);
        assert_eq!(places[..8], [2, 37, 46, 57, 80, 92, 140, 148]);
        assert_eq!(places.iter().sum::<usize>(), 125_669_452);
    }
}
