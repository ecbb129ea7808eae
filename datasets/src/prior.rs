//! Loss of a predictor that knows only the label frequencies.

use crate::{Split, Splits};

/// Returns the mean cross-entropy, in nats, on the validation split of always predicting the label
/// shares of the training split. Returns `None` if it is undefined: a split is empty, or validation
/// has a label that training lacks. If positions have labels, an example's loss is the weighted
/// mean over these labels, predicted by their own shares, and its own label, which counts as
/// `sequence_weight` of them.
pub fn prior_loss(splits: &Splits, sequence_weight: f64) -> Option<f64> {
    let whole = surprises(splits.train.labels().iter().copied());
    let dense = splits.train.all_dense();
    let dense = dense.map(|labels| surprises(labels.iter().map(|(_, target, _)| target)));
    let loss = |row: usize| {
        let own = whole[usize::from(splits.val.label(row))];
        match &dense {
            Some(dense) => weighted(&splits.val, row, own, dense, sequence_weight),
            None => own,
        }
    };
    let rows = splits.val.len();
    let mean = (0..rows).map(loss).sum::<f64>() / rows as f64;
    (mean.is_finite()).then_some(mean)
}

/// Returns the loss of one example whose own label costs `own`; `dense` holds the costs of the
/// labels at positions.
fn weighted(split: &Split, row: usize, own: f64, dense: &[f64; 256], weight: f64) -> f64 {
    let labels = split
        .dense(row)
        .into_iter()
        .flat_map(|labels| labels.iter());
    let (count, sum) = labels.fold((0.0, 0.0), |(count, sum), (_, target, _)| {
        (count + 1.0, sum + dense[usize::from(target)])
    });
    (sum + weight * own) / (count + weight)
}

/// Returns the cross-entropy of each label, predicted by its share among `labels`.
fn surprises(labels: impl Iterator<Item = u8>) -> [f64; 256] {
    let mut counts = [0_usize; 256];
    labels.for_each(|label| counts[usize::from(label)] += 1);
    let total: usize = counts.iter().sum();
    counts.map(|count| -(count as f64 / total as f64).ln())
}
