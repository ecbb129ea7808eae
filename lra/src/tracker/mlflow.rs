//! MLflow's file store: `mlruns/EXPERIMENT/RUN/` with `meta.yaml`, and a file for each parameter,
//! metric and tag.
//!
//! A file of a metric has a line `timestamp value step` for each value, with the timestamp in
//! milliseconds since 1970. All runs belong to the experiment `lra`, whose id is the same
//! everywhere, so that the stores of several runs can be copied into one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context;
use results::Outcome;
use serde_json::Value;

use super::{Export, Tracker, write};

/// The file store of MLflow.
pub(super) struct Mlflow;

/// Id and name of the experiment.
const EXPERIMENT: (&str, &str) = ("7107169", "lra");
/// Length of a run's id in hexadecimal digits.
const ID_DIGITS: usize = 32;

impl Tracker for Mlflow {
    fn folder(&self) -> &'static str {
        "mlruns"
    }

    fn write(&self, folder: &Path, run: &Export<'_>) -> anyhow::Result<()> {
        let record = run.record;
        let digest = &record.provenance.spec_digest;
        let id = digest.get(..ID_DIGITS).unwrap_or(digest);
        let (number, name) = EXPERIMENT;
        let experiment = folder.join(number);
        let place = experiment.join(id);
        let uri = |path: &Path| -> anyhow::Result<String> {
            let path = std::path::absolute(path).context("finding the current folder")?;
            Ok(format!(
                "file://{}",
                percent_encoded(&path.to_string_lossy())
            ))
        };
        let [began, ended] = [run.began, run.ended].map(milliseconds);
        let meta = yaml(&[
            ("artifact_location", quoted(&uri(&experiment)?)),
            ("creation_time", began.to_string()),
            ("experiment_id", quoted(number)),
            ("last_update_time", ended.to_string()),
            ("lifecycle_stage", "active".to_owned()),
            ("name", quoted(name)),
        ]);
        write(&experiment.join("meta.yaml"), meta.as_bytes())?;
        let meta = yaml(&[
            ("artifact_uri", quoted(&uri(&place.join("artifacts"))?)),
            ("end_time", ended.to_string()),
            ("entry_point_name", quoted("")),
            ("experiment_id", quoted(number)),
            ("lifecycle_stage", "active".to_owned()),
            ("run_id", quoted(id)),
            ("run_name", quoted(&record.id)),
            ("source_name", quoted("")),
            ("source_type", LOCAL.to_owned()),
            ("source_version", quoted("")),
            ("start_time", began.to_string()),
            ("status", status(&record.outcome).to_owned()),
            ("tags", "[]".to_owned()),
            ("user_id", quoted("lra")),
        ]);
        write(&place.join("meta.yaml"), meta.as_bytes())?;
        // MLflow takes no folder without it for a run.
        let artifacts = place.join("artifacts");
        fs::create_dir_all(&artifacts)
            .with_context(|| format!("making {}", artifacts.display()))?;
        for (key, value) in run.settings {
            let text = match value {
                Value::String(text) => text.clone(),
                value => value.to_string(),
            };
            write(&place.join("params").join(plain(key)), text.as_bytes())?;
        }
        let mut metrics: BTreeMap<&str, String> = BTreeMap::new();
        for (point, name, value) in run.values() {
            let lines = metrics.entry(name).or_default();
            let time = milliseconds(point.time);
            writeln!(lines, "{time} {value} {}", point.step)?;
        }
        // Names may differ in nothing but what MLflow does not accept.
        let mut taken = BTreeSet::new();
        for (name, lines) in &metrics {
            let file = unused(plain(name), &mut taken);
            write(&place.join("metrics").join(file), lines.as_bytes())?;
        }
        let task = &record.task;
        let mut tags = vec![
            ("mlflow.runName", record.id.clone()),
            ("mlflow.source.type", "LOCAL".to_owned()),
            ("mlflow.source.name", record.provenance.command.clone()),
            ("lra.task", task.label.clone()),
            ("lra.model", record.model.name.clone()),
            ("lra.recipe", record.recipe.name.clone()),
            ("lra.seed", record.seed.to_string()),
            ("lra.data", task.data_digest.clone()),
            ("lra.outcome", record.outcome.to_string()),
        ];
        if let Some(revision) = &record.provenance.revision {
            tags.push(("mlflow.source.git.commit", revision.commit.clone()));
        }
        for (name, value) in tags {
            write(&place.join("tags").join(name), value.as_bytes())?;
        }
        Ok(())
    }
}

/// The type of a source on this machine.
const LOCAL: &str = "4";

/// Returns the number of a run's status: 3 finished, 4 failed, 5 killed.
fn status(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Scored => "3",
        Outcome::Interrupted { .. } => "5",
        _ => "4",
    }
}

/// Returns a time in milliseconds.
fn milliseconds(seconds: f64) -> u64 {
    (seconds * 1e3) as u64
}

/// Returns a flat mapping in YAML.
fn yaml(entries: &[(&str, String)]) -> String {
    let lines = entries
        .iter()
        .map(|(key, value)| format!("{key}: {value}\n"));
    lines.collect()
}

/// Returns a text as a YAML scalar.
fn quoted(text: &str) -> String {
    let text = text.replace(char::is_control, " ");
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns a name with `_` for every character that MLflow does not accept in names; a slash
/// separates folders.
fn plain(name: &str) -> String {
    let accepted = |c: char| c.is_ascii_alphanumeric() || "_-. /".contains(c);
    name.replace(|c| !accepted(c), "_")
}

/// Returns a path as a part of a URI.
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::new();
    for byte in path.bytes() {
        match byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            true => encoded.push(byte.into()),
            false => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns `name`, or with `_2` at its end as often as it is `taken`, and adds it there.
fn unused(mut name: String, taken: &mut BTreeSet<String>) -> String {
    while !taken.insert(name.clone()) {
        name.push_str("_2");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::super::testing::with_run;
    use super::*;

    #[test]
    fn the_store_has_the_files_that_mlflow_reads() {
        let place = tempfile::tempdir().unwrap();
        with_run(|run| Mlflow.write(place.path(), run).unwrap());
        let experiment = place.path().join(EXPERIMENT.0);
        let run = experiment.join("0a1b2c3d4e5f60718293a4b5c6d7e8f9");
        let read = |path: &str| fs::read_to_string(run.join(path)).unwrap();
        assert_eq!(read("params/train.steps"), "2");
        assert_eq!(read("params/block.norm"), "it's");
        assert_eq!(
            read("metrics/train/loss"),
            "1000000000250 1.5 1\n1000000001500 1.25 2\n"
        );
        assert_eq!(
            read("metrics/validation/accuracy_ all"),
            "1000000001500 0.5 2\n"
        );
        assert_eq!(read("metrics/test/accuracy"), "1000000002000 0.75 2\n");
        assert_eq!(read("tags/lra.model"), "bag");
        assert!(run.join("artifacts").is_dir());
        let meta = read("meta.yaml");
        for line in [
            "status: 3",
            "run_id: '0a1b2c3d4e5f60718293a4b5c6d7e8f9'",
            "start_time: 1000000000125",
            "end_time: 1000000002000",
        ] {
            assert!(meta.lines().any(|it| it == line), "{line}: {meta}");
        }
        let meta = fs::read_to_string(experiment.join("meta.yaml")).unwrap();
        assert!(meta.contains("name: 'lra'\n"), "{meta}");
    }

    #[test]
    fn names_that_become_equal_stay_apart() {
        let mut taken = BTreeSet::new();
        let names = ["a:b", "a;b", "a,b"].map(|name| unused(plain(name), &mut taken));
        assert!(
            names[1].ends_with("_2") && names[2].ends_with("_2_2"),
            "{names:?}"
        );
        assert_eq!(taken.len(), 3);
    }

    #[test]
    fn texts_are_escaped() {
        assert_eq!(quoted("it's\nso"), "'it''s so'");
        assert_eq!(percent_encoded("/a b/ü"), "/a%20b/%C3%BC");
    }

    /// MLflow's numbers of states: 3 finished, 4 failed, 5 killed.
    #[test]
    fn a_run_has_the_state_of_its_outcome() {
        let reason = || "for a reason".to_owned();
        for (outcome, number) in [
            (Outcome::Scored, "3"),
            (Outcome::Failed { reason: reason() }, "4"),
            (
                Outcome::Diverged {
                    step: 1,
                    reason: reason(),
                },
                "4",
            ),
            (Outcome::OutOfMemory { reason: reason() }, "4"),
            (Outcome::Interrupted { step: 1 }, "5"),
        ] {
            assert_eq!(status(&outcome), number, "{outcome:?}");
        }
    }
}
