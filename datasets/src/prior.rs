//! The loss of knowing nothing but how frequent the labels are.

use crate::Splits;

/// Returns the mean cross-entropy, in nats, on the validation split of always predicting the label shares of the training split;
/// nothing where that is not defined: a split is empty, or validation has a label that training lacks.
pub fn prior_loss(splits: &Splits) -> Option<f64> {
    let mut counts = [0_usize; 256];
    let labels = splits.train.labels();
    labels
        .iter()
        .for_each(|label| counts[usize::from(*label)] += 1);
    let shares = counts.map(|count| count as f64 / labels.len() as f64);
    let losses = splits
        .val
        .labels()
        .iter()
        .map(|label| -shares[usize::from(*label)].ln());
    let mean = losses.sum::<f64>() / splits.val.len() as f64;
    (mean.is_finite()).then_some(mean)
}
