//! Trackio: a CSV file with a row for each step, which `trackio.import_csv` reads.
//!
//! The columns are `step`, `timestamp` in RFC 3339, and the values by name. What a step does not
//! have is empty.

use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use super::{Export, Tracker, write};

/// The file for Trackio.
pub(super) struct Trackio;

impl Tracker for Trackio {
    fn folder(&self) -> &'static str {
        "trackio"
    }

    fn write(&self, folder: &Path, run: &Export<'_>) -> anyhow::Result<()> {
        let mut names: Vec<&str> = Vec::new();
        for (_, name, _) in run.values() {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let mut table = csv::Writer::from_writer(Vec::new());
        table.write_record(["step", "timestamp"].iter().chain(&names))?;
        for point in &run.points {
            let time = UNIX_EPOCH + Duration::from_secs_f64(point.time);
            let time = humantime::format_rfc3339_millis(time).to_string();
            let values = names.iter().map(|name| {
                let own = point.values.iter().find(|(known, _)| known == name);
                own.map_or_else(String::new, |(_, value)| value.to_string())
            });
            table.write_record([point.step.to_string(), time].into_iter().chain(values))?;
        }
        let bytes = table
            .into_inner()
            .map_err(csv::IntoInnerError::into_error)?;
        write(&folder.join(format!("{}.csv", run.record.id)), &bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::with_run;
    use super::*;

    #[test]
    fn a_row_is_a_step_and_a_column_a_value() {
        let place = tempfile::tempdir().unwrap();
        with_run(|run| Trackio.write(place.path(), run).unwrap());
        let file = place.path().join("toy-bag-smoke-s0-0a1b2c3d.csv");
        let text = fs::read_to_string(file).unwrap();
        assert_eq!(
            text,
            "step,timestamp,train/loss,\"validation/accuracy, all\",test/accuracy,test/loss\n\
             1,2001-09-09T01:46:40.250Z,1.5,,,\n\
             2,2001-09-09T01:46:41.500Z,1.25,0.5,,\n\
             2,2001-09-09T01:46:42.000Z,,,0.75,0.5\n"
        );
    }
}
