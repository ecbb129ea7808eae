//! Score modifications by tensor operations: the steps from products to the scores of a softmax, in
//! the order in which [`of_options`] lists them.

use candle_core::Tensor;

use super::{AttentionOptions, relative::BlockPairs, score_functions::ScoreFunctions};
use crate::Result;

/// One step from products to scores.
pub(super) trait ScoreMod {
    /// Returns `scores` after this step.
    fn apply(&self, scores: &Tensor, pairs: Pairs<'_>) -> Result<Tensor>;
}

/// The pairs of query and key that scores belong to.
#[derive(Clone, Copy)]
pub(super) enum Pairs<'a> {
    /// All: (B, H, Lq, Lk).
    All,
    /// Those of a group of blocks of a block mask.
    Blocks(&'a BlockPairs),
}

/// Steps of one call.
pub(super) type Steps<'a> = Vec<Box<dyn ScoreMod + 'a>>;

/// Returns the steps that options ask for: additions, then functions.
pub(super) fn of_options(options: &AttentionOptions) -> Steps<'_> {
    let mut steps: Steps = Vec::new();
    if let Some(relative) = &options.relative {
        steps.push(Box::new(relative));
    }
    if !options.functions.is_identity() {
        steps.push(Box::new(options.functions));
    }
    steps
}

/// Returns `scores` after all steps.
pub(super) fn apply(
    steps: &[Box<dyn ScoreMod + '_>],
    scores: Tensor,
    pairs: Pairs<'_>,
) -> Result<Tensor> {
    steps
        .iter()
        .try_fold(scores, |scores, step| step.apply(&scores, pairs))
}

impl ScoreMod for ScoreFunctions {
    fn apply(&self, scores: &Tensor, _: Pairs<'_>) -> Result<Tensor> {
        Ok(ScoreFunctions::apply(*self, scores)?)
    }
}

/// A term for each pair of positions, (1, H, L, L).
pub(super) struct PairTerm(pub(super) Tensor);

impl ScoreMod for PairTerm {
    fn apply(&self, scores: &Tensor, _: Pairs<'_>) -> Result<Tensor> {
        Ok(scores.broadcast_add(&self.0)?)
    }
}
