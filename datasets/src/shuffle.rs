//! Order in which an epoch visits its rows, and a fixed order of the positions of every row.

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

/// Returns `count` of `0..rows`, drawn at random but always the same, in ascending order. Every
/// n-th row, or the first ones, may all have one label: those of drawn data take turns, and files
/// of your own may be sorted.
pub fn sample(rows: usize, count: usize) -> Vec<usize> {
    let drawn = permutation(rows, 0, SAMPLE).into_iter().take(count);
    let mut drawn: Vec<usize> = drawn.map(|row| row as usize).collect();
    drawn.sort_unstable();
    drawn
}

/// Stream of samples, which no epoch of training reaches.
const SAMPLE: u64 = u64::MAX - 1;

/// Order of the positions of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    seed: u64,
    length: usize,
}

impl Order {
    /// Returns the order drawn from `seed` for rows of at most `length` tokens; `None` for the
    /// seed 0, which permutes nothing.
    pub fn new(seed: u64, length: usize) -> Option<Order> {
        (seed > 0).then_some(Order { seed, length })
    }

    /// Returns the permutation of the positions of the longest rows.
    pub fn draw(self) -> Permutation {
        Permutation(permutation(self.length, self.seed, POSITIONS))
    }
}

/// Stream of the permutation, which no epoch of training reaches.
const POSITIONS: u64 = u64::MAX;

/// A permutation of all positions.
pub struct Permutation(Vec<u32>);

impl Permutation {
    /// Returns the positions of a row of `length` tokens in their new order.
    pub fn of_row(&self, length: usize) -> impl Iterator<Item = usize> + '_ {
        let positions = self.0.iter().map(|&position| position as usize);
        positions.filter(move |&position| position < length)
    }
}

#[cfg(test)]
mod tests {
    use super::{Order, permutation, sample};

    #[test]
    fn golden() {
        // Our own first values: they must not change, or resumed runs would see other batches.
        insta::assert_compact_debug_snapshot!(permutation(10, 0, 0), @"[1, 5, 9, 3, 4, 2, 8, 7, 0, 6]");
        insta::assert_compact_debug_snapshot!(permutation(10, 0, 1), @"[4, 6, 2, 5, 1, 0, 8, 7, 9, 3]");
    }

    #[test]
    fn a_sample_has_every_label_of_rows_whose_labels_take_turns() {
        for classes in [2, 3, 10] {
            let chosen = sample(1000, 1000 / classes);
            assert_eq!(chosen.len(), 1000 / classes);
            assert!(chosen.is_sorted_by(|one, next| one < next));
            let mut labels: Vec<usize> = chosen.iter().map(|row| row % classes).collect();
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), classes);
        }
        assert_eq!(sample(5, 9), [0, 1, 2, 3, 4]);
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

    #[test]
    fn a_row_keeps_its_tokens_in_an_order_that_depends_on_its_length_alone() {
        let order = Order::new(7, 100).unwrap().draw();
        let of = |length| order.of_row(length).collect::<Vec<_>>();
        for length in [0, 1, 60, 100] {
            let mut sorted = of(length);
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..length));
        }
        assert_ne!(of(100), (0..100).collect::<Vec<_>>());
        let of_shorter: Vec<_> = of(100).into_iter().filter(|it| *it < 60).collect();
        assert_eq!(of(60), of_shorter);
        let other = Order::new(8, 100).unwrap().draw();
        assert_ne!(of(100), other.of_row(100).collect::<Vec<_>>());
        let epoch = permutation(100, 7, 0);
        assert_ne!(
            of(100),
            epoch.iter().map(|&it| it as usize).collect::<Vec<_>>()
        );
        assert!(Order::new(0, 100).is_none());
    }
}
