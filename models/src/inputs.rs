//! Inputs and outputs of a model: the shape of a task, batches of token ids, and logits.

use candle_core::Tensor;

/// Sizes of a task that a model depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of token ids, the padding id included.
    pub vocabulary: usize,
    /// Number of classes, at least 2.
    pub classes: usize,
    /// Number of sequences in an example: 1, or 2 for tasks that compare two sequences.
    pub towers: usize,
    /// Length of the longest sequence in tokens, without a CLS slot.
    pub max_length: usize,
    /// True if sequences are padded, and come with masks.
    pub padding: bool,
    /// Height and width of the image whose pixels a sequence is, row by row. `None` if sequences
    /// are no images.
    pub grid: Option<[usize; 2]>,
}

/// Batch of examples for a model, each of one or two sequences of tokens.
pub struct Inputs {
    /// Tokens of each tower: of the only sequences, or of the first and the second ones. All have
    /// the same batch size.
    pub towers: Vec<Tokens>,
}

/// Labels at single positions of a batch of sequences, in host memory. The vectors have one element
/// for each label.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DenseLabels {
    /// Row of each label's sequence in the batch, from 0, in ascending order.
    pub rows: Vec<u32>,
    /// Position of each label in its sequence, from 0, without a CLS slot.
    pub positions: Vec<u32>,
    /// Correct class of each label, from 0.
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

/// Batch of B token sequences of one tower.
pub struct Tokens {
    /// Token ids (B, L) of type u32. The length L may be any from 1 to the task's longest.
    pub ids: Tensor,
    /// Mask (B, L) of any float type: 1 for valid tokens and 0 for padding. `None` if all are
    /// valid.
    pub mask: Option<Tensor>,
}

/// Logits of a model for a batch of B examples.
pub struct Logits {
    /// Logits (B, C) of the whole sequences, for C classes.
    pub sequence: Tensor,
    /// Logits (N, C') of the N labelled positions in their order, for C' classes. `None` if there
    /// are no labels.
    pub positions: Option<Tensor>,
}
