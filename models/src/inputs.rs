//! What a model is given: the shape of a task, and batches of token ids.

use candle_core::Tensor;

/// What a task asks of a model.
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
    /// One per tower, all of the same batch size.
    pub towers: Vec<Tokens>,
}

/// The sequences of one tower.
pub struct Tokens {
    /// (B, L) of type u32; L may be any length from 1 to the task's longest.
    pub ids: Tensor,
    /// (B, L), 1 for real tokens and 0 for padding; none where all are real. Float of any type.
    pub mask: Option<Tensor>,
}
