//! Fraction of the prior's loss that a run saved over its whole training.

use results::metrics::Line;

/// Returns the fraction of the `prior` loss that the model's predictions saved, from 0 to 1: the
/// mean over all evaluations in the log and the loss on the test split at the end. If positions
/// have labels, the losses are weighted. A prediction worse than the prior's saves nothing. Returns
/// `None` if the prior has no loss.
pub(super) fn gained(prior: f64, log: &[Line], test_loss: f64) -> Option<f64> {
    let on_the_way = log.iter().filter_map(|line| match line {
        Line::Validation { loss, dense, .. } => {
            Some(dense.as_ref().map_or(*loss, |it| it.weighted_loss))
        }
        Line::Train { .. } | Line::Unknown => None,
    });
    let saved: Vec<f64> = on_the_way
        .chain([test_loss])
        .map(|loss| (1.0 - loss / prior).clamp(0.0, 1.0))
        .collect();
    let mean = saved.iter().sum::<f64>() / saved.len() as f64;
    (prior > 0.0 && mean.is_finite()).then_some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn validation(loss: f64) -> Line {
        Line::Validation {
            step: 1,
            loss,
            accuracy: 0.5,
            examples: 1,
            dense: None,
        }
    }

    #[test]
    fn evaluations_and_the_end_count_alike() {
        let log = [validation(2.0), validation(1.0), Line::Unknown];
        assert_eq!(gained(2.0, &log, 0.5), Some((0.0 + 0.5 + 0.75) / 3.0));
        assert_eq!(gained(2.0, &[], 1.0), Some(0.5));
        let mut line = validation(9.0);
        if let Line::Validation { dense, .. } = &mut line {
            *dense = Some(results::record::Dense {
                weighted_loss: 1.0,
                ..Default::default()
            });
        }
        assert_eq!(gained(2.0, &[line], 1.0), Some(0.5), "of all labels");
        assert_eq!(gained(2.0, &[validation(9.0)], 0.0), Some(0.5));
        assert_eq!(gained(0.0, &[], 1.0), None);
        assert_eq!(gained(2.0, &[], f64::NAN), None);
    }
}
