//! The values of a run by step, with the times at which they were known.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use results::Record;
use results::metrics::{self, Line};

use crate::timing::Timings;

/// The values of one step.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Point {
    /// Number of updates made.
    pub(super) step: usize,
    /// Time in seconds since 1970.
    pub(super) time: f64,
    /// The values by name.
    pub(super) values: Vec<(String, f64)>,
}

/// Returns the values of the run in `folder` by step, in order of the steps, and the times at which
/// it began and ended. The times of steps follow from the seconds in the log of times, as if all
/// its processes had worked without a pause before the record was written.
///
/// # Errors
/// A log is damaged or cannot be read.
pub(super) fn read(folder: &Path, record: &Record) -> anyhow::Result<(Vec<Point>, f64, f64)> {
    let log = folder.join(metrics::FILE);
    let lines = match log.exists() {
        true => metrics::read(folder)?,
        // A run may have ended before training began.
        false => Vec::new(),
    };
    let walls = Timings::walls(folder)?;
    let total: f64 = walls.iter().map(|(_, wall)| wall).sum();
    let created = humantime::parse_rfc3339(&record.provenance.created).unwrap_or(UNIX_EPOCH);
    let ended = created.duration_since(UNIX_EPOCH);
    let ended = ended.unwrap_or(Duration::ZERO).as_secs_f64();
    let began = (ended - total).max(0.0);
    let time_of = |step: usize| {
        let mut time = began;
        for (reached, wall) in &walls {
            time += wall;
            if *reached >= step {
                break;
            }
        }
        time
    };
    let mut points: Vec<Point> = Vec::new();
    for line in &lines {
        let (step, values) = scalars(line);
        if values.is_empty() {
            continue;
        }
        match points.last_mut().filter(|point| point.step == step) {
            Some(point) => point.values.extend(values),
            None => points.push(Point {
                step,
                time: time_of(step),
                values,
            }),
        }
    }
    Ok((points, began, ended))
}

/// Returns the scores of the record, with the step at which it ended at the time `ended`; `None` if
/// it has none.
pub(super) fn last(record: &Record, ended: f64) -> Option<Point> {
    let scores = record.scores.as_ref()?;
    let named = [
        ("test/accuracy", scores.test_accuracy),
        ("test/loss", scores.test_loss),
        ("selected/validation/accuracy", scores.val_accuracy),
        ("selected/validation/loss", scores.val_loss),
    ];
    let values = named.into_iter();
    let values: Vec<_> = values
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect();
    match values.is_empty() {
        true => None,
        false => Some(Point {
            step: scores.steps as usize,
            time: ended,
            values,
        }),
    }
}

/// Returns the values of a line by tag. Tags with the same first part are shown in one group.
pub(super) fn scalars(line: &Line) -> (usize, Vec<(String, f64)>) {
    let named = |(tag, value): (&str, f64)| (tag.to_owned(), value);
    match line {
        Line::Train {
            step,
            loss,
            aux,
            weighted_loss,
            gradient_norm,
            learning_rate,
            ..
        } => {
            let values = [
                ("train/loss", *loss),
                ("train/gradient_norm", *gradient_norm),
                ("train/rate", *learning_rate),
            ];
            let aux = aux
                .iter()
                .map(|(name, mean)| (format!("train/aux/{name}"), *mean));
            let weighted = weighted_loss.map(|loss| ("train/weighted_loss", loss));
            let values = values.into_iter().chain(weighted);
            (*step, values.map(named).chain(aux).collect())
        }
        Line::Validation {
            step,
            loss,
            accuracy,
            dense,
            ..
        } => {
            let values = [
                ("validation/loss", *loss),
                ("validation/accuracy", *accuracy),
            ];
            let dense = dense.iter().flat_map(|dense| {
                let all = [
                    ("dense/loss".to_owned(), dense.loss),
                    ("dense/accuracy".to_owned(), dense.accuracy),
                    ("weighted_loss".to_owned(), dense.weighted_loss),
                    ("weighted_accuracy".to_owned(), dense.weighted_accuracy),
                ];
                let groups = dense.groups.iter();
                let groups = groups.map(|it| (format!("dense/accuracy, {}", it.name), it.accuracy));
                all.into_iter().chain(groups)
            });
            let dense = dense.map(|(tag, value)| (format!("validation/{tag}"), value));
            (*step, values.map(named).into_iter().chain(dense).collect())
        }
        Line::Unknown => (0, vec![]),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    /// A value has the time at which the timings reached its step.
    #[test]
    fn a_point_has_the_time_of_the_line_that_reached_its_step() {
        let place = tempfile::tempdir().unwrap();
        let line = |step: usize| {
            let line = Line::Validation {
                step,
                loss: 1.0,
                accuracy: 0.5,
                examples: 4,
                dense: None,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        };
        let wall = |step: usize, wall: f64| {
            let timings = Timings {
                step,
                wall,
                ..Timings::default()
            };
            serde_json::to_string(&timings).unwrap() + "\n"
        };
        fs::write(place.path().join(metrics::FILE), line(2) + &line(4)).unwrap();
        let walls = wall(2, 1.0) + &wall(4, 10.0) + &wall(4, 100.0);
        fs::write(place.path().join(crate::timing::FILE), walls).unwrap();
        let record = json!({
            "schema": 1,
            "id": "toy-bag-smoke-s0-0a1b2c3d",
            "outcome": { "status": "scored" },
            "task": { "name": "toy", "label": "toy" },
            "model": { "name": "bag" },
            "created": "1970-01-01T00:10:00Z",
        });
        let record: Record = serde_json::from_value(record).unwrap();
        let (points, began, ended) = read(place.path(), &record).unwrap();
        assert_eq!((began, ended), (489.0, 600.0));
        let times: Vec<_> = points.iter().map(|it| (it.step, it.time)).collect();
        assert_eq!(times, [(2, 490.0), (4, 500.0)]);
    }
}
