//! The site of this repository's own records, as `make site` writes it, with two cards instead of
//! all: the crate knows neither models nor tasks.

use std::fs;
use std::path::Path;

use lra_results::committed::{MINI, PROBES};
use lra_results::site::{File, ModelCard, Site, TaskCard};
use lra_results::store;

/// Returns the site.
pub fn site() -> Site {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut runs = store::load(&crate_folder.join("records")).unwrap();
    assert!(runs.skipped.is_empty(), "{:?}", runs.skipped);
    for committed in [&MINI, &PROBES] {
        let mut table = committed.records().unwrap();
        // Both tables have the runs that permuted ones are held against.
        table.retain(|record| runs.records.iter().all(|known| known.id != record.id));
        // The recipe has these rates; `lra publish`, which knows recipes, leaves them out.
        for record in &mut table {
            let overrides = &mut record.recipe.overrides;
            overrides.retain(|it| !it.starts_with("train.learning_rate="));
        }
        runs.folders
            .extend(vec![committed.path.into(); table.len()]);
        runs.records.extend(table);
    }
    let source = crate_folder.join("../models/src/mixers/performer.rs");
    let source = fs::read_to_string(source).unwrap();
    let header = source.lines().map_while(|line| line.strip_prefix("//!"));
    let header = header.map(|line| line.strip_prefix(' ').unwrap_or(line));
    let performer = ModelCard {
        name: "performer".to_owned(),
        title: "Performer".to_owned(),
        paper: "Rethinking Attention with Performers".to_owned(),
        year: 2020,
        arxiv: "2009.14794".to_owned(),
        costs: ["O(L·M·E)", "O(L·M + M·E)"].map(str::to_owned),
        family: "xformer".to_owned(),
        reference: "package".to_owned(),
        texts: vec![(
            "Variant paper (padding masked)".to_owned(),
            header.collect::<Vec<_>>().join("\n"),
        )],
        options: "model.features = 0  (at least 0 and at most 65536)".to_owned(),
    };
    let facts = [("length", "2000"), ("classes", "10"), ("token ids", "17")];
    let listops = TaskCard {
        name: "listops".to_owned(),
        title: "ListOps".to_owned(),
        summary: "The value of a nested expression of MIN, MAX, MED and SM over digits.".to_owned(),
        paper: "Nangia and Bowman, 2018, arXiv:1804.06028".to_owned(),
        facts: facts
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec(),
        classes: 10,
        probe: false,
    };
    Site {
        made_by: "lra <test>".to_owned(),
        models: vec![performer],
        tasks: vec![listops],
        runs,
        ..Site::default()
    }
}

/// Returns the files of the site.
pub fn files() -> Vec<File> {
    let mut unread = Vec::new();
    let files = site().files(&mut unread);
    assert!(unread.is_empty(), "{unread:?}");
    files
}
