//! The log of a run: losses and scores by step, one JSON object per line, stored with its record.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::format::counted;
use crate::record::{Dense, Outcome, Record, number, numbers};
use crate::{Error, Result};

/// Name of the log within a run's folder.
pub const FILE: &str = "metrics.jsonl";

/// One line of the log. Losses are mean cross-entropies in nats, accuracies fractions from 0 to 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Line {
    /// Means over the training steps since the previous line.
    Train {
        /// Steps taken so far.
        step: usize,
        /// Mean loss.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// Means of the losses that the model adds, before their weights, by name.
        #[serde(
            default,
            deserialize_with = "numbers",
            skip_serializing_if = "BTreeMap::is_empty"
        )]
        aux: BTreeMap<String, f64>,
        /// Mean loss of all labels, if positions have labels too. Training minimises it, together
        /// with `aux`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        weighted_loss: Option<f64>,
        /// Mean norm of the gradient before clipping.
        #[serde(deserialize_with = "number")]
        gradient_norm: f64,
        /// Learning rate of the last of them; `rate` on disk.
        #[serde(rename = "rate")]
        learning_rate: f64,
        /// Examples seen so far.
        examples: u64,
    },
    /// The validation split, scored with the weights as they were.
    Validation {
        /// Steps taken so far.
        step: usize,
        /// Mean loss. In logs of older versions it may be non-finite; then the accuracy is not a
        /// score.
        #[serde(deserialize_with = "number")]
        loss: f64,
        /// Fraction of correct predictions.
        #[serde(deserialize_with = "number")]
        accuracy: f64,
        /// Examples scored.
        examples: usize,
        /// Labels at positions, where there are any.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dense: Option<Dense>,
    },
    /// A line of a newer version.
    #[serde(other)]
    Unknown,
}

/// Reads the log in a run's folder.
///
/// # Errors
/// The log cannot be read, or one of its lines is damaged. The message names the line.
pub fn read(folder: &Path) -> Result<Vec<Line>> {
    let path = folder.join(FILE);
    let text = disk::read_to_string(&path).map_err(Error::io("read", &path))?;
    let lines = text.lines().enumerate();
    let lines = lines.map(|(index, line)| {
        serde_json::from_str(line).map_err(|error| Error::NotALog {
            path: path.clone(),
            line: index + 1,
            reason: error.to_string(),
        })
    });
    lines.collect()
}

/// Returns a digest over the bits of every loss of a log: equal only if training was identical.
pub fn trace(lines: &[Line]) -> String {
    digest(lines.iter().flat_map(|line| {
        let losses = match line {
            Line::Train {
                loss,
                weighted_loss,
                ..
            } => [Some(*loss), *weighted_loss],
            Line::Validation { loss, dense, .. } => {
                [Some(*loss), dense.as_ref().map(|it| it.weighted_loss)]
            }
            Line::Unknown => [None, None],
        };
        losses.into_iter().flatten()
    }))
}

/// Returns the norms of the gradients in a log. Adam divides out the scale of gradients, so losses
/// hardly show a wrong factor.
pub fn gradient_norms(lines: &[Line]) -> Vec<f64> {
    let norms = lines.iter().filter_map(|line| match line {
        Line::Train { gradient_norm, .. } => Some(*gradient_norm),
        Line::Validation { .. } | Line::Unknown => None,
    });
    norms.collect()
}

/// Returns the reason why a log is not the complete log of a scored run, if it is not: steps
/// missing at the end or repeated, or an impossible loss or accuracy.
pub(crate) fn incomplete(lines: &[Line], record: &Record) -> Option<String> {
    let scores = record.scores.as_ref()?;
    if record.outcome != Outcome::Scored {
        return None;
    }
    let mut last = 0;
    for line in lines {
        let (step, loss) = match line {
            Line::Train { step, loss, .. } => (step, loss),
            Line::Validation {
                step,
                loss,
                accuracy,
                ..
            } if loss.is_finite() && !(0.0..=1.0).contains(accuracy) => {
                return Some(format!(
                    "the accuracy at step {step} is no share from 0 to 1: {accuracy}"
                ));
            }
            Line::Validation { .. } | Line::Unknown => continue,
        };
        if *step <= last {
            return Some(format!("step {step} stands after step {last}"));
        }
        if !loss.is_finite() || *loss < 0.0 {
            return Some(format!("the loss at step {step} is no loss: {loss}"));
        }
        last = *step;
    }
    let steps = scores.steps as usize;
    (last > 0 && last < steps).then(|| {
        let steps = counted(scores.steps, "step");
        format!("the log ends at step {last}, although the record has {steps}")
    })
}

/// Returns a digest over the bits of numbers.
pub(crate) fn digest(numbers: impl Iterator<Item = f64>) -> String {
    let mut digest = Sha256::new();
    numbers.for_each(|number| digest.update(number.to_le_bytes()));
    let digest = digest.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn train(step: usize, loss: f64) -> Line {
        Line::Train {
            step,
            loss,
            aux: BTreeMap::new(),
            weighted_loss: None,
            gradient_norm: 1.0,
            learning_rate: 1e-3,
            examples: 8,
        }
    }

    #[test]
    fn lines_survive_the_disk_and_a_damaged_one_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let lines = [train(1, 2.5), train(2, 0.1 + 0.2)];
        let text: Vec<_> = lines
            .iter()
            .map(|line| serde_json::to_string(line).unwrap())
            .collect();
        fs::write(folder.path().join(FILE), text.join("\n")).unwrap();
        assert_eq!(read(folder.path()).unwrap(), lines);
        fs::write(folder.path().join(FILE), "{\"event\":\"tea\"}\n{").unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("metrics.jsonl, line 2"), "{error}");
    }

    #[test]
    fn the_trace_sees_the_last_bit_of_a_loss() {
        let trace_of = |loss: f64| trace(&[train(1, 2.5), train(2, loss)]);
        assert_eq!(trace_of(0.3), trace_of(0.3));
        assert_ne!(trace_of(0.3), trace_of(0.1 + 0.2));
    }
}
