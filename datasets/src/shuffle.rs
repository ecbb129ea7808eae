//! Order in which an epoch visits its rows.

use crate::rng::{below, stream};

/// Returns a random permutation of `0..rows` for one epoch (Fisher-Yates on ChaCha8 numbers): a
/// pure function of its arguments, equal on every machine.
pub fn permutation(rows: usize, seed: u64, epoch: u64) -> Vec<u32> {
    // Row numbers are u32 here and in batches; no task comes near that many rows.
    let rows = u32::try_from(rows).unwrap_or(u32::MAX);
    let mut order: Vec<u32> = (0..rows).collect();
    let mut rng = stream("order", seed, epoch);
    for last in (1..rows).rev() {
        order.swap(last as usize, below(&mut rng, last + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::permutation;

    #[test]
    fn golden() {
        // Our own first values: they must not change, or resumed runs would see other batches.
        insta::assert_compact_debug_snapshot!(permutation(10, 0, 0), @"[1, 5, 9, 3, 4, 2, 8, 7, 0, 6]");
        insta::assert_compact_debug_snapshot!(permutation(10, 0, 1), @"[4, 6, 2, 5, 1, 0, 8, 7, 9, 3]");
    }

    #[test]
    fn permutation_of_every_row() {
        for rows in [0, 1, 2, 1000] {
            let mut order = permutation(rows, 7, 3);
            order.sort_unstable();
            assert!(
                order
                    .iter()
                    .enumerate()
                    .all(|(index, &row)| index as u32 == row)
            );
            assert_eq!(order.len(), rows);
        }
    }
}
