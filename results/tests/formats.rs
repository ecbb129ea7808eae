//! Tests that the formats for machines match their page: every name that a format uses is
//! documented, under its table.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common;
use lra_results::agreement::Agreement;
use lra_results::bench::{self, Base, Bench};
use lra_results::check::{Baseline, Thresholds, judge, table};
use lra_results::record::{OwnCode, Revision};
use lra_results::table::Table;
use lra_results::tables::TABLES;
use lra_results::{Format, published, store};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/formats.md");

/// Returns the section of the page under a heading.
fn section(heading: &str) -> String {
    let page = std::fs::read_to_string(PAGE).unwrap();
    let (_, rest) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    rest.split("\n## ").next().unwrap().to_owned()
}

/// Returns the words in backticks of the first column of a section's table.
fn first_column(section: &str) -> BTreeSet<String> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.flat_map(|row| {
        let cell = row.split(" | ").next().unwrap();
        cell.split("`, `")
            .map(|name| name.trim_end_matches(", ...").trim_matches('`').to_owned())
    });
    names.collect()
}

/// Returns all tables that records make.
fn tables() -> Vec<Table> {
    let folder = tempfile::tempdir().unwrap();
    for record in common::dozen() {
        let run = folder.path().join(&record.id);
        std::fs::create_dir_all(&run).unwrap();
        store::write(&run.join(store::FILE), &record).unwrap();
    }
    let cells = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
    let tay = published::source("tay2021").unwrap();
    let made = TABLES
        .iter()
        .map(|kind| kind.make(&common::dozen(), Some(tay)));
    let check = table(&judge(&cells, &cells, &Thresholds::default()));
    let session = [Bench {
        base: Some(Base::default()),
        ..Bench::default()
    }];
    let change = bench::against_base(&session, 0.1).unwrap().table;
    let benchmark = bench::tables(&session, Some(tay));
    made.chain([check, change]).chain(benchmark).collect()
}

#[test]
fn every_column_of_csv_is_documented_and_every_documented_one_of_these_tables_is_there() {
    let text = Format::Csv.render(&tables());
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap();
    let used: BTreeSet<String> = header.iter().map(str::to_owned).collect();
    let documented = first_column(&section("CSV of tables"));
    let missing: Vec<_> = used.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/formats.md: {missing:?}");
    let unused: Vec<_> = documented.difference(&used).collect();
    assert!(unused.is_empty(), "in docs/formats.md alone: {unused:?}");
}

#[test]
fn every_field_of_json_is_documented() {
    let text = Format::Json.render(&tables());
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    // The tables of benchmarks have the names of CSV.
    let documented = section("JSON of tables") + &section("CSV of tables");
    let is_documented = |name: &str| documented.contains(&format!("`{name}`"));
    for table in read.as_array().unwrap() {
        for name in table.as_object().unwrap().keys() {
            assert!(is_documented(name), "{name}");
        }
        for column in table["columns"].as_object().unwrap().values() {
            for name in column.as_object().unwrap().keys() {
                assert!(is_documented(name), "{name}");
            }
        }
        for row in table["rows"].as_array().unwrap() {
            let cells = row.as_object().unwrap().iter();
            for (_, cell) in cells.filter(|(name, cell)| *name != "about" && cell.is_object()) {
                for name in cell.as_object().unwrap().keys() {
                    let known = is_documented(name) || name == "remark";
                    assert!(known, "{name} in {}", table["table"]);
                }
            }
        }
    }
}

#[test]
fn every_column_of_a_baseline_is_documented() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.csv");
    Baseline::default().write(&path).unwrap();
    let mut reader = csv::Reader::from_path(&path).unwrap();
    let documented = section("The baseline of `lra check`");
    for name in reader.headers().unwrap() {
        assert!(documented.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn every_field_of_a_model_of_ones_own_is_documented() {
    let own = OwnCode {
        crate_name: "my_mixer".to_owned(),
        crate_version: "0.1.0".to_owned(),
        revision: Some(Revision::default()),
        process: "Python 3.11.7 with PyTorch 2.9.1".to_owned(),
        ..OwnCode::default()
    };
    let written = serde_json::to_value(own).unwrap();
    let documented = first_column(&section("Your own model in a record"));
    let names = written.as_object().unwrap().keys().cloned();
    assert_eq!(names.collect::<BTreeSet<String>>(), documented);
    let older: OwnCode = serde_json::from_str(r#"{"source": "1f", "program": "p"}"#).unwrap();
    assert_eq!(older.origin(), "p");
}

/// The table of `lra agree`, which stands by itself.
#[test]
fn every_column_and_value_of_an_agreement_is_documented_and_there() {
    let records = common::anchors::records();
    let table = Agreement::of(&records.iter().collect::<Vec<_>>(), None, None).table();
    let text = Format::Csv.render(std::slice::from_ref(&table));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().iter().map(str::to_owned);
    let documented = first_column(&section("The table of `lra agree`"));
    assert_eq!(header.collect::<BTreeSet<String>>(), documented);

    let read: serde_json::Value = serde_json::from_str(&Format::Json.render(&[table])).unwrap();
    for row in read[0]["rows"].as_array().unwrap() {
        let cells = row.as_object().unwrap().iter();
        for (name, cell) in cells.filter(|(name, cell)| *name != "about" && cell.is_object()) {
            for value in cell.as_object().unwrap().keys() {
                assert!(documented.contains(value), "{value} in {name}");
            }
        }
    }
}
