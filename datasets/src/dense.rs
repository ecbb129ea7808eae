//! Dense labels: labels at positions of a sequence, in addition to the label of the whole sequence.
//!
//! A task whose [`Shape`](crate::Shape) has a [`Dense`] stores two bytes for each token of its one
//! sequence: the correct class at that position, and the group under which scores are reported.
//! Both are [`UNLABELLED`] at positions without a label.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Byte of a position without a label.
pub const UNLABELLED: u8 = u8::MAX;

/// Kind of labels at positions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Dense {
    /// Number of classes, counted from 0; fewer than [`UNLABELLED`].
    pub classes: usize,
    /// Names of the groups under which scores are reported.
    pub groups: Vec<String>,
}

impl Dense {
    /// Returns the kind with `classes` classes in groups of these names.
    pub fn new(classes: usize, groups: &[&str]) -> Dense {
        Dense {
            classes,
            groups: groups.iter().map(|&name| name.to_owned()).collect(),
        }
    }

    /// Returns whether the stored bytes can hold the classes and groups.
    pub(crate) fn fits_bytes(&self) -> bool {
        let bytes = 1..usize::from(UNLABELLED);
        bytes.contains(&self.classes) && bytes.contains(&self.groups.len())
    }

    /// Returns a description of the first position of a sequence whose bytes are not a label of
    /// this kind, if there is one.
    pub(crate) fn problem(&self, labels: DenseLabels<'_>) -> Option<String> {
        let pairs = labels.targets.iter().zip(labels.groups).enumerate();
        let wrong = |(target, group): (u8, u8)| match (target, group) {
            (UNLABELLED, UNLABELLED) => false,
            (target, group) => {
                usize::from(target) >= self.classes || usize::from(group) >= self.groups.len()
            }
        };
        let (position, (target, group)) = pairs
            .map(|(position, (target, group))| (position, (*target, *group)))
            .find(|(_, pair)| wrong(*pair))?;
        Some(format!(
            "position {position} has class {target} of {} in group {group} of {}",
            self.classes,
            self.groups.len()
        ))
    }
}

/// Labels at the positions of one sequence, to be stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DenseRow {
    /// Class at each position.
    pub targets: Vec<u8>,
    /// Group of each position.
    pub groups: Vec<u8>,
}

impl DenseRow {
    /// Returns labels for a sequence of `length` tokens, all positions unlabelled.
    pub fn unlabelled(length: usize) -> DenseRow {
        DenseRow {
            targets: vec![UNLABELLED; length],
            groups: vec![UNLABELLED; length],
        }
    }

    /// Sets the label of a position.
    ///
    /// # Panics
    /// When `position` does not exist, like indexing a slice.
    pub fn label(&mut self, position: usize, target: u8, group: u8) {
        (self.targets[position], self.groups[position]) = (target, group);
    }

    /// Returns a borrowed view of the labels.
    pub fn labels(&self) -> DenseLabels<'_> {
        DenseLabels {
            targets: &self.targets,
            groups: &self.groups,
        }
    }
}

/// Labels at the positions of one or more stored sequences, a byte of each kind for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseLabels<'a> {
    /// Class at each position.
    pub targets: &'a [u8],
    /// Group of each position.
    pub groups: &'a [u8],
}

impl<'a> DenseLabels<'a> {
    /// Iterates over position, class and group of every label, in the order of positions.
    pub fn iter(self) -> impl Iterator<Item = (usize, u8, u8)> + 'a {
        let pairs = self.targets.iter().zip(self.groups).enumerate();
        pairs
            .filter(|(_, (target, _))| **target != UNLABELLED)
            .map(|(position, (target, group))| (position, *target, *group))
    }

    /// Returns the number of labels with each class, by group.
    pub fn counts(self, dense: &Dense) -> Vec<Vec<u64>> {
        let mut counts = vec![vec![0; dense.classes]; dense.groups.len()];
        for (_, target, group) in self.iter() {
            counts[usize::from(group)][usize::from(target)] += 1;
        }
        counts
    }
}
