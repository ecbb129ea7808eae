//! A page of the dozen runs.

use std::fs;
use std::path::Path;

use lra_results::Record;
use lra_results::chart::{bubbles, curves};
use lra_results::metrics::{self, Line};
use lra_results::page::Page;
use lra_results::published;
use lra_results::store::{self, Loaded};
use lra_results::tables::TABLES;

/// Returns the page of the dozen.
pub fn page() -> String {
    let folder = tempfile::tempdir().unwrap();
    of(&loaded(folder.path()))
}

/// Returns the dozen runs in a folder of their own, with logs of twenty validations each.
pub fn loaded(folder: &Path) -> Loaded {
    write(folder, &super::dozen());
    store::load(folder).unwrap()
}

/// Writes runs into folders of their own, with logs of twenty validations each.
pub fn write(folder: &Path, records: &[Record]) {
    for (index, record) in records.iter().enumerate() {
        let run = folder.join(index.to_string());
        fs::create_dir_all(&run).unwrap();
        store::write(&run.join(store::FILE), record).unwrap();
        let learned = record.test_accuracy().unwrap_or(0.2) - 0.17;
        let lines = (1..=20).map(|step| {
            let line = Line::Validation {
                step: step * 250,
                loss: 2.0 / step as f64,
                // Up, with a trembling of its own in each run.
                accuracy: 0.17 + learned * step as f64 / 20.0 + 0.003 * (index * step % 5) as f64,
                examples: 40,
                dense: None,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        });
        fs::write(run.join(metrics::FILE), lines.collect::<String>()).unwrap();
    }
}

/// Returns the page of these runs.
pub fn of(loaded: &Loaded) -> String {
    let source = published::source("tay2021").unwrap();
    let mut charts = bubbles(&loaded.records, &[]);
    charts.extend(curves(loaded, &[], &mut Vec::new()));
    let page = Page {
        title: "Long <Range> Arena".to_owned(),
        made: "today".to_owned(),
        tables: TABLES
            .iter()
            .filter(|kind| kind.name != "bits")
            .map(|kind| kind.make(&loaded.records, Some(source)))
            .collect(),
        charts,
        records: &loaded.records,
        ..Page::default()
    };
    page.render()
}
