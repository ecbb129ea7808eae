//! Inputs and outputs of a model: the shape of a task, batches of token ids, and logits.

use candle_core::Tensor;

/// Shape of a task: the sizes that a model depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of token ids, the padding id included.
    pub vocabulary: usize,
    /// Number of classes, at least 2.
    pub classes: usize,
    /// Number of sequences in an example: 1, or 2 for tasks that compare two sequences.
    pub towers: usize,
    /// Longest sequence, not counting a CLS slot.
    pub max_length: usize,
    /// True if sequences come padded, with masks.
    pub padding: bool,
    /// Height and width of the image whose pixels a sequence is, row by row, if it is one.
    pub grid: Option<[usize; 2]>,
}

/// Batch of examples for a model.
pub struct Inputs {
    /// Tokens of each tower, all of the same batch size.
    pub towers: Vec<Tokens>,
}

/// Labels at single positions of a batch of sequences, in host memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenseLabels {
    /// The row of each label's sequence in the batch, in ascending order.
    pub rows: Vec<u32>,
    /// Position of each label in its sequence, a CLS slot not counted.
    pub positions: Vec<u32>,
    /// The correct class of each label.
    pub labels: Vec<u32>,
}

impl DenseLabels {
    /// Returns the number of labels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Returns whether there are no labels.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// Sequences of one tower.
pub struct Tokens {
    /// Token ids (B, L) of type u32. L may be any length from 1 to the task's longest.
    pub ids: Tensor,
    /// Mask (B, L) of any float type: 1 for valid tokens and 0 for padding. `None` if all are
    /// valid.
    pub mask: Option<Tensor>,
}

/// Output of a model for a batch of B examples.
pub struct Logits {
    /// Logits (B, C) of the whole sequences, for C classes.
    pub sequence: Tensor,
    /// Logits (N, C') of the N labelled positions in their order, for C' classes. `None` if there
    /// are no labels.
    pub positions: Option<Tensor>,
}
