//! Inputs and outputs of a model: the shape of a task, batches of token ids, and logits.

use candle_core::Tensor;

/// Shape of a task, as a model needs to know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of token ids, the padding id included.
    pub vocabulary: usize,
    /// Number of classes, at least 2.
    pub classes: usize,
    /// 1, or 2 for tasks that compare two sequences.
    pub towers: usize,
    /// Longest sequence, not counting a CLS slot.
    pub max_length: usize,
    /// Whether sequences come padded, with masks.
    pub padding: bool,
    /// Height and width of the image whose pixels a sequence is, row by row.
    pub grid: Option<[usize; 2]>,
}

/// One batch, ready for the model.
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

    /// Returns whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }
}

/// The sequences of one tower.
pub struct Tokens {
    /// (B, L) of type u32; L may be any length from 1 to the task's longest.
    pub ids: Tensor,
    /// (B, L), 1 for valid tokens and 0 for padding; none where all are valid. Float of any type.
    pub mask: Option<Tensor>,
}

/// Output of a model for a batch.
pub struct Logits {
    /// (B, C), of the whole sequences.
    pub sequence: Tensor,
    /// (N, C'), of the labelled positions in their order; none where there are no labels.
    pub positions: Option<Tensor>,
}
