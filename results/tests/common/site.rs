//! A site of the dozen runs, with cards, ways, imported accuracies and strings that attack.

use std::path::Path;

use lra_results::imported::Imported;
use lra_results::published;
use lra_results::record::{Outcome, Pretraining, Record};
use lra_results::site::{File, ModelCard, Offer, Predictions, Site, TaskCard, Way};
use lra_results::table::{Cell, Column, Row, Table};

/// A name that a page, a terminal or a file system might obey.
pub const HOSTILE: &str = "../<script>alert(1)</script>\" onload=\"x\u{1b}[2J\u{202e}";

/// Returns the site. `folder` holds the runs.
pub fn site(folder: &Path) -> Site {
    let mut runs = super::page::loaded(folder);
    let extra = extra();
    let folders = vec![folder.join("none"); extra.len()];
    runs.records.extend(extra);
    runs.folders.extend(folders);
    let offered = published::cell(
        "nystromformer",
        "transformer",
        "listops",
        published::ACCURACY,
    );
    let refused = published::cell("tay2021", "performer", "image", published::ACCURACY);
    Site {
        made_by: "lra <test>".to_owned(),
        models: ["transformer", "performer", "bag", "conv"]
            .map(card)
            .to_vec(),
        tasks: [("listops", 10), ("image", 10), ("mqar", 128)]
            .map(task)
            .to_vec(),
        ways: vec![
            Way {
                figure: offered.unwrap(),
                offer: Ok(Offer {
                    command: "lra repro nystromformer listops transformer".to_owned(),
                    flops: 12.25e15,
                    complete: false,
                    differences: vec!["another <tokenizer>".to_owned()],
                }),
            },
            Way {
                figure: refused.unwrap(),
                offer: Err("no recipe follows this source".to_owned()),
            },
        ],
        predictions: vec![Predictions {
            run: runs.records[0].id.clone(),
            examples: "2,000 examples".to_owned(),
            tables: vec![Table {
                name: "properties".to_owned(),
                title: HOSTILE.to_owned(),
                columns: vec![Column::key("property")],
                rows: vec![Row::new(vec![Cell::text(HOSTILE)])],
                ..Table::default()
            }],
            pictures: Vec::new(),
        }],
        runs,
        imported: vec![Imported {
            source: format!("=1+{HOSTILE}"),
            task: "listops@512".to_owned(),
            model: "performer".to_owned(),
            percent: 38.25,
            deviation: Some(0.5),
            seeds: 3,
            settings: "=cmd()".to_owned(),
        }],
    }
}

/// Returns the files of the site.
pub fn files() -> Vec<File> {
    let folder = tempfile::tempdir().unwrap();
    site(folder.path()).files(&mut Vec::new())
}

/// Runs beside the dozen: a search, the small protocol, a probe, permuted positions, strings that
/// attack.
fn extra() -> Vec<Record> {
    let set = |mut record: Record, set: &str, id: &str| {
        record.recipe.overrides = vec![set.to_owned()];
        record.id += id;
        record
    };
    let rate =
        |record: Record, rate: &str| set(record, &format!("train.learning_rate={rate}"), rate);
    let mut permuted = set(super::run("conv", 0, 0.25), "data.permute=1", "permuted");
    permuted.task.label += "-permute1";
    permuted.task.data_digest += "permuted";
    let mut small = super::small(super::run("performer", 0, 0.35));
    let scores = small.scores.as_mut().unwrap();
    (scores.prior_loss, scores.bits_gained) = (Some(2.3), Some(0.2));
    let mut probe = super::on(super::run("performer", 0, 0.9), "mqar", "generated", 128);
    probe.task.probe = true;
    let mut hostile = super::run(HOSTILE, 0, 0.2);
    hostile.id = HOSTILE.to_owned();
    hostile.task.name = format!("task {HOSTILE}");
    hostile.task.label = hostile.task.name.clone();
    hostile.provenance.command = HOSTILE.to_owned();
    hostile.recipe.departures = vec![HOSTILE.to_owned()];
    let crash = Outcome::Failed {
        reason: HOSTILE.to_owned(),
    };
    let failed = super::ended(super::run("bag", 7, 0.0), crash);
    let seen = |mut record: Record, before: Option<u64>, examples: u64| {
        record.pretraining = before.map(|examples_seen| Pretraining {
            examples_seen,
            ..Pretraining::default()
        });
        record.scores.as_mut().unwrap().examples_seen = examples;
        record
    };
    let luna = |accuracy: f64| super::run("luna", 0, accuracy);
    let pretrained = set(luna(0.42), "pretrain.kind=masked", "pretrained");
    let longer = set(luna(0.39), "train.steps=3000", "longer");
    vec![
        seen(pretrained, Some(1000), 500),
        seen(longer, None, 1480),
        seen(luna(0.4), None, 500),
        rate(super::run("conv", 0, 0.3), "1e-3"),
        rate(super::run("conv", 0, 0.4), "3e-3"),
        super::run("conv", 0, 0.35),
        permuted,
        small,
        probe,
        hostile,
        failed,
    ]
}

fn card(name: &str) -> ModelCard {
    ModelCard {
        name: name.to_owned(),
        title: format!("The {name}"),
        paper: "A paper <of> models".to_owned(),
        year: 2020,
        arxiv: "2009.14794".to_owned(),
        costs: ["O(L·M·E)", "O(L)"].map(str::to_owned),
        family: "xformer".to_owned(),
        reference: "package".to_owned(),
        texts: vec![(
            "Variant paper".to_owned(),
            "What it computes.\n    y_i = φ(q_i) S\nWith `features` M.\n\n# Padding\n\nLeft out."
                .to_owned(),
        )],
        options: "model.features = 0".to_owned(),
    }
}

fn task((name, classes): (&str, usize)) -> TaskCard {
    TaskCard {
        name: name.to_owned(),
        title: format!("The {name}"),
        summary: format!("What {name} asks."),
        paper: "Somewhere".to_owned(),
        facts: vec![("length".to_owned(), "2000".to_owned())],
        classes,
        probe: name == "mqar",
    }
}
