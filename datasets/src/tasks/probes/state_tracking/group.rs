//! Finite groups, as tables of products.
//!
//! The elements of Z60 and of parity (Z2) are the numbers that they add. Those of S5 are the
//! permutations of five things in lexicographic order, those of A5 the even ones among them, in the
//! same order. A product p q is: first p, then q; i goes to q[p[i]].

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// Number of elements of the largest group.
pub(super) const LARGEST: usize = 120;

/// A group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Z2: whether the number of ones is odd.
    Parity,
    /// Addition modulo 60, solvable and commutative.
    Z60,
    /// Even permutations of five things: 60 elements, the smallest group that is not solvable.
    A5,
    /// Permutations of five things.
    S5,
}

impl Group {
    /// Returns the name in settings and labels.
    pub(super) fn name(self) -> &'static str {
        match self {
            Group::Parity => "parity",
            Group::Z60 => "z60",
            Group::A5 => "a5",
            Group::S5 => "s5",
        }
    }

    /// Returns the table of products.
    pub(super) fn table(self) -> &'static Table {
        static PARITY: LazyLock<Table> = LazyLock::new(|| Table::cyclic(2));
        static Z60: LazyLock<Table> = LazyLock::new(|| Table::cyclic(60));
        static A5: LazyLock<Table> = LazyLock::new(|| Table::permutations(is_even));
        static S5: LazyLock<Table> = LazyLock::new(|| Table::permutations(|_| true));
        match self {
            Group::Parity => &PARITY,
            Group::Z60 => &Z60,
            Group::A5 => &A5,
            Group::S5 => &S5,
        }
    }
}

/// Products of all pairs of elements.
pub(super) struct Table {
    size: usize,
    products: Vec<u8>,
}

type Permutation = [u8; 5];

impl Table {
    fn new(size: usize, product: impl Fn(usize, usize) -> usize) -> Table {
        let pairs = (0..size * size).map(|pair| product(pair / size, pair % size) as u8);
        Table {
            size,
            products: pairs.collect(),
        }
    }

    fn cyclic(size: usize) -> Table {
        Table::new(size, |one, other| (one + other) % size)
    }

    /// Returns the table of the permutations that satisfy `is_element`, which are closed under
    /// products.
    fn permutations(is_element: fn(&Permutation) -> bool) -> Table {
        let mut elements = permutations();
        elements.retain(is_element);
        let product = |one: usize, other: usize| {
            let both = elements[one].map(|middle| elements[other][usize::from(middle)]);
            // The order is lexicographic.
            elements.partition_point(|element| *element < both)
        };
        Table::new(elements.len(), product)
    }

    /// Returns the number of elements.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Returns the product of two elements, in this order.
    pub(super) fn product(&self, one: u8, other: u8) -> u8 {
        self.products[usize::from(one) * self.size + usize::from(other)]
    }
}

/// Returns all permutations of five things in lexicographic order.
fn permutations() -> Vec<Permutation> {
    let mut all = vec![[0, 1, 2, 3, 4]];
    while let Some(next) = all.last().copied().and_then(successor) {
        all.push(next);
    }
    all
}

/// Returns the next permutation in lexicographic order.
fn successor(mut permutation: Permutation) -> Option<Permutation> {
    let rise = (0..4)
        .rev()
        .find(|&at| permutation[at] < permutation[at + 1])?;
    let other = (0..5)
        .rev()
        .find(|&at| permutation[at] > permutation[rise])?;
    permutation.swap(rise, other);
    permutation[rise + 1..].reverse();
    Some(permutation)
}

/// Returns whether a permutation has an even number of inversions.
fn is_even(permutation: &Permutation) -> bool {
    let inversions = (0..5).flat_map(|later| (0..later).map(move |earlier| (earlier, later)));
    let inverted = inversions.filter(|&(one, other)| permutation[one] > permutation[other]);
    inverted.count() % 2 == 0
}

#[cfg(test)]
mod tests {
    use super::Group;

    #[test]
    fn tables_are_those_of_groups() {
        let sizes = [Group::Parity, Group::Z60, Group::A5, Group::S5].map(|it| it.table().size());
        assert_eq!(sizes, [2, 60, 60, super::LARGEST]);
        for (group, commutes) in [(Group::Z60, true), (Group::A5, false), (Group::S5, false)] {
            let table = group.table();
            let all = || 0..table.size() as u8;
            let mut commuting = true;
            for one in all() {
                assert_eq!((table.product(0, one), table.product(one, 0)), (one, one));
                let mut row: Vec<u8> = all().map(|other| table.product(one, other)).collect();
                row.sort_unstable();
                assert!(row.into_iter().eq(all()), "{group:?}: each product once");
                for other in all() {
                    let both = table.product(one, other);
                    commuting &= both == table.product(other, one);
                    let third = (one + 7 * (other % 16)) % table.size() as u8;
                    let right = table.product(one, table.product(other, third));
                    assert_eq!(table.product(both, third), right, "{group:?}");
                }
            }
            assert_eq!(commuting, commutes, "{group:?}");
        }
    }
}
