//! Summary of a stored entry: sizes, labels, lengths, and scores of trivial classifiers.

use std::fmt::Write as _;

use serde::Serialize;

use crate::words::{counted, spread};
use crate::{Baseline, DenseBaseline, Lengths, Manifest, SplitName, Splits, Task};

/// Length of the longest bar of a histogram, in characters.
const BAR: usize = 40;

/// Summary of an entry, printed by `lra data show`.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Title of the task.
    pub title: &'static str,
    /// Manifest of the entry.
    pub manifest: Manifest,
    /// Summaries of train, val and test.
    pub splits: Vec<SplitSummary>,
    /// Baselines, fitted on train and measured on test.
    pub baselines: Vec<Baseline>,
    /// Baselines of the labels at positions by group, if the data has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dense: Option<Vec<DenseBaseline>>,
}

/// Summary of one split.
#[derive(Debug, Clone, Serialize)]
pub struct SplitSummary {
    /// `train`, `val` or `test`.
    pub name: &'static str,
    /// Number of examples.
    pub rows: usize,
    /// Number of examples with each label.
    pub labels: Vec<u64>,
    /// Lengths of its sequences, in tokens.
    pub lengths: Lengths,
}

impl Summary {
    /// Summarizes an entry, reading all of it.
    pub fn of(task: &dyn Task, splits: &Splits) -> Summary {
        let summary = |split_name: SplitName| {
            let split = splits.get(split_name);
            SplitSummary {
                name: split_name.name(),
                rows: split.len(),
                labels: splits.manifest.splits.get(split_name).labels.clone(),
                lengths: Lengths::of(split),
            }
        };
        Summary {
            title: task.info().title,
            manifest: splits.manifest.clone(),
            splits: SplitName::ALL.into_iter().map(summary).collect(),
            baselines: task.baselines(splits),
            dense: splits.dense_baselines(),
        }
    }

    /// Returns the summary as plain text for a terminal: no colour, at most 100 columns.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let manifest = &self.manifest;
        let partial = if manifest.partial {
            ", part of what is published"
        } else {
            ""
        };
        writeln!(
            text,
            "{} ({}), {}{partial}",
            self.title, manifest.label, manifest.source
        )?;
        for note in &manifest.notes {
            writeln!(text, "  {note}")?;
        }

        writeln!(
            text,
            "\n{:<6}{:>9}   {:>6}{:>6}{:>6}{:>7}{:>6}{:>6}{:>6}{:>9}",
            "", "rows", "length", "5%", "25%", "median", "75%", "95%", "max", "mean"
        )?;
        for split in &self.splits {
            let l = &split.lengths;
            writeln!(
                text,
                "{:<6}{:>9}   {:>6}{:>6}{:>6}{:>7}{:>6}{:>6}{:>6}{:>9.1}",
                split.name, split.rows, l.min, l.p5, l.p25, l.median, l.p75, l.p95, l.max, l.mean
            )?;
        }

        let Some(train) = self.splits.first() else {
            return Ok(());
        };
        writeln!(text, "\nlabels of train")?;
        let labels = train.labels.iter().enumerate();
        let labels = labels.map(|(label, &count)| (label.to_string(), count));
        match spread(&train.labels) {
            Some(counts) => writeln!(text, "  {counts}")?,
            None => write_bars(text, labels.collect())?,
        }
        writeln!(text, "\nlengths of train, in tokens")?;
        let bins = train.lengths.bins.iter().map(|bin| {
            let name = if bin.from == bin.to {
                bin.from.to_string()
            } else {
                format!("{}-{}", bin.from, bin.to)
            };
            (name, bin.count)
        });
        write_bars(text, bins.collect())?;

        let test = self.splits.last().map_or(1, |split| split.rows.max(1));
        writeln!(
            text,
            "\naccuracy without a model, fitted on train, measured on {} of test",
            counted(test, "row")
        )?;
        for Baseline { name, accuracy } in &self.baselines {
            // The standard error of a share: the sampling error of the test split.
            let error = (accuracy * (1.0 - accuracy) / test as f64).sqrt();
            writeln!(
                text,
                "  {name:<18}{:>6.2} % ± {:.2}",
                100.0 * accuracy,
                100.0 * error
            )?;
        }
        match &self.dense {
            Some(groups) => write_dense(text, groups),
            None => Ok(()),
        }
    }
}

/// Writes the number of labels of train by group, and the test accuracy of the most frequent class
/// of each.
fn write_dense(text: &mut String, groups: &[DenseBaseline]) -> std::fmt::Result {
    writeln!(text, "\nlabels at positions of train, by group")?;
    let count = |group: &DenseBaseline| (group.group.clone(), group.train.iter().sum());
    write_bars(text, groups.iter().map(count).collect())?;
    writeln!(text, "\nmost frequent class of each group, right on test")?;
    for group in groups {
        let (name, share) = (&group.group, 100.0 * group.majority);
        writeln!(
            text,
            "  {name:<18}{share:>6.2} % of {} labels",
            group.labels
        )?;
    }
    Ok(())
}

fn write_bars(text: &mut String, rows: Vec<(String, u64)>) -> std::fmt::Result {
    let largest = rows
        .iter()
        .map(|(_, count)| *count)
        .max()
        .unwrap_or_default()
        .max(1);
    let total = rows.iter().map(|(_, count)| *count).sum::<u64>().max(1);
    let width = rows
        .iter()
        .map(|(name, _)| name.len())
        .max()
        .unwrap_or_default();
    for (name, count) in &rows {
        let percent = 100.0 * *count as f64 / total as f64;
        let bar = "█".repeat((*count as usize * BAR).div_ceil(largest as usize));
        writeln!(text, "  {name:>width$} {count:>8} {percent:>5.1} % {bar}")?;
    }
    Ok(())
}
