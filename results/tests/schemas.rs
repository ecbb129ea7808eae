//! Tests that every table has the same columns for machines whatever it holds, that what is not
//! known is null, and that numbers are numbers.

#![allow(clippy::unwrap_used)]

use crate::common::{anchors, baseline, dozen, ended, on, run, small};
use lra_results::agreement::Agreement;
use lra_results::bench::{self, Base, Bench, Round};
use lra_results::check::{Baseline, Thresholds, judge, table};
use lra_results::record::{Dense, DenseGroup, Outcome};
use lra_results::table::Table;
use lra_results::tables::TABLES;
use lra_results::{Format, Record, published, store};
use serde_json::Value;

/// The columns of each table.
const COLUMNS: &[(&str, &str)] = &[
    (
        "accuracy",
        "model,from,variant,recipe,set,precision,device,task,source,protocol,data,\
         mean_percent,deviation_percent,seeds,low_percent,high_percent,status",
    ),
    (
        "speed",
        "model,from,variant,recipe,set,precision,device,computing,processor,instructions,cores,accelerator,threads,jobs,\
         task,source,protocol,data,mean_steps_per_second,deviation_steps_per_second,seeds,low_steps_per_second,high_steps_per_second,status",
    ),
    (
        "memory",
        "model,from,variant,recipe,set,precision,device,computing,threads,method,task,source,protocol,data,\
         mean_bytes,deviation_bytes,seeds,low_bytes,high_bytes,status",
    ),
    (
        "averages",
        "model,from,variant,recipe,set,precision,device,protocol,average,mean_percent,status",
    ),
    (
        "comparison",
        "task,model,against,variant,recipe,set,precision,device,source,protocol,data,\
         ours_mean_percent,seeds,status,low_percent,high_percent,published_percent,missing,difference_percent,verdict,margin_percent",
    ),
    (
        "reproduced",
        "task,model,against,variant,recipe,set,precision,device,source,protocol,data,\
         ours_mean_percent,seeds,status,low_percent,high_percent,published_percent,missing,difference_percent,verdict,margin_percent,\
         hours,machine,differences",
    ),
    (
        "bits",
        "model,from,variant,recipe,set,precision,device,task,source,protocol,data,\
         mean_percent,deviation_percent,seeds,trained,trained_mean_percent,status",
    ),
    (
        "ranks",
        "model,rank,of,rank_low,rank_high,task,source,protocol,data,\
         mean_percent,deviation_percent,seeds,accuracy_percent,status",
    ),
    (
        "dense",
        "model,from,variant,recipe,set,precision,device,labels,task,source,protocol,data,\
         mean_percent,deviation_percent,seeds,majority_percent,status",
    ),
    (
        "probes",
        "model,from,variant,recipe,set,precision,device,task,source,protocol,data,\
         mean_percent,deviation_percent,seeds,difference_percent,status",
    ),
    (
        "check",
        "task,model,source,protocol,variant,recipe,set,precision,device,\
         accuracy_finding,accuracy_words,accuracy_baseline_percent,accuracy_now_percent,\
         loss_finding,loss_words,loss_baseline_nats,loss_now_nats,\
         gradient_finding,gradient_words,gradient_baseline_norm,gradient_now_norm,\
         memory_finding,memory_words,memory_baseline_bytes,memory_now_bytes,\
         speed_finding,speed_words,speed_baseline_steps_per_second,speed_now_steps_per_second,\
         verdict,remark",
    ),
    (
        "agreement",
        "tasks,rho,low,high,same_task,auc,told,pairs,reliability",
    ),
    (
        "bench-speed",
        "model,from,length,recipe,set,batch,precision,device,processor,accelerator,threads,session,\
         value_steps_per_second,ratio,status",
    ),
    (
        "bench-memory",
        "model,from,length,recipe,set,batch,precision,device,processor,accelerator,threads,session,\
         value_bytes,ratio,status",
    ),
    (
        "bench-break-even",
        "model,cost,opponent,recipe,set,batch,precision,device,processor,accelerator,threads,session,\
         tokens,verdict",
    ),
    (
        "bench-rates",
        "model,length,recipe,set,batch,precision,device,processor,accelerator,threads,session,\
         steps_per_second,status,p10_steps_per_second,p90_steps_per_second,times,examples_per_second,\
         tokens_per_second",
    ),
    (
        "bench-costs",
        "model,length,recipe,set,batch,precision,device,processor,accelerator,threads,session,\
         peak_bytes,status,parameters,gflop_per_step,gflop_per_second,share_of_matmul",
    ),
    (
        "bench-change",
        "model,length,recipe,set,batch,precision,device,processor,accelerator,threads,session,\
         base_steps_per_second,steps_per_second,times,low,high,memory,verdict",
    ),
];

/// Values that are words, whatever they look like.
const WORDS: &[&str] = &["data", "title", "notes"];

fn labelled(mut record: Record) -> Record {
    let scores = record.scores.as_mut().unwrap();
    (scores.bits_gained, scores.prior_loss) = (Some(0.25), Some(2.0));
    scores.test_dense = Some(Dense {
        labels: 200,
        accuracy: 0.5,
        groups: vec![DenseGroup {
            name: "near".to_owned(),
            labels: 100,
            accuracy: 0.5,
            loss: 0.6,
            majority: None,
        }],
        ..Dense::default()
    });
    record
}

/// Returns records of every kind: none, one, failures alone, several settings and tasks, fields
/// that are not known.
fn contents() -> Vec<Vec<Record>> {
    let failure = Outcome::Failed {
        reason: String::new(),
    };
    let mut several = dozen();
    for (index, record) in several.iter_mut().enumerate() {
        record.provenance.threads = 1 + index % 3;
        record.provenance.precision = ["f32", "bf16"][index % 2].to_owned();
        record.recipe.overrides = vec![format!("train.steps={index}")];
    }
    several.extend([
        labelled(run("linear", 0, 0.36)),
        labelled(on(run("linear", 0, 0.36), "image", "synthetic", 10)),
        labelled(small(run("performer", 1, 0.4))),
        ended(run("linear", 1, 0.0), failure.clone()),
    ]);
    let mut unknown = labelled(run("linear", 0, 0.36));
    unknown.task.source.clear();
    unknown.task.protocol.clear();
    unknown.task.data_digest.clear();
    unknown.recipe.name.clear();
    unknown.provenance = Default::default();
    unknown.memory.as_mut().unwrap().method.clear();
    unknown.baselines = vec![baseline("majority", 1.0 / 3.0)];
    let tasks = ["listops", "text", "retrieval", "image", "pathfinder"];
    let all = tasks.map(|task| labelled(on(run("performer", 0, 0.4), task, "official", 2)));
    vec![
        vec![],
        dozen(),
        vec![labelled(run("performer", 0, 0.38))],
        vec![ended(run("performer", 0, 0.0), failure)],
        several,
        vec![unknown],
        all.into(),
    ]
}

/// Returns the cells of a check of records against themselves.
fn checked(records: &[Record]) -> Table {
    let folder = tempfile::tempdir().unwrap();
    for (index, record) in records.iter().enumerate() {
        let run = folder.path().join(index.to_string());
        std::fs::create_dir_all(&run).unwrap();
        store::write(&run.join(store::FILE), record).unwrap();
    }
    let cells = Baseline::of(&store::load(folder.path()).unwrap()).unwrap();
    table(&judge(&cells, &cells, &Thresholds::default()))
}

fn bench_cell(model: &str, length: usize, outcome: bench::Outcome, base: bool) -> Bench {
    let rounds: Vec<Round> = (0..8)
        .map(|round| Round {
            round,
            seconds: vec![0.1 + length as f64 / 1e4; 2],
            peak_bytes: 1 << 20,
            ..Round::default()
        })
        .collect();
    Bench {
        schema: bench::SCHEMA,
        model: model.to_owned(),
        length,
        batch: 1,
        base: base.then(|| Base {
            program: "base".to_owned(),
            rounds: rounds.clone(),
            ..Base::default()
        }),
        rounds,
        outcome,
        ..Bench::default()
    }
}

/// Returns the sessions of a benchmark: none, failures alone, measured cells.
fn sessions() -> Vec<Vec<Bench>> {
    let lost = || bench::Outcome::Failed {
        reason: String::new(),
    };
    let done = || bench::Outcome::Measured;
    vec![
        vec![],
        vec![bench_cell("linear", 1024, lost(), true)],
        vec![
            bench_cell("transformer", 1024, done(), true),
            bench_cell("transformer", 2048, done(), true),
            bench_cell("linear", 1024, done(), true),
            bench_cell("linear", 2048, lost(), true),
        ],
    ]
}

/// Returns every table of every content.
fn tables() -> Vec<Table> {
    let mut tables = Vec::new();
    for records in contents() {
        for against in [None, Some("tay2021"), Some("orvieto2023lru")] {
            let source = against.map(|key| published::source(key).unwrap());
            tables.extend(TABLES.iter().map(|kind| kind.make(&records, source)));
        }
        tables.push(checked(&records));
        let all: Vec<&Record> = records.iter().collect();
        tables.push(Agreement::of(&all, None, None).table());
    }
    let records = anchors::records();
    let all: Vec<&Record> = records.iter().collect();
    tables.push(Agreement::of(&all, None, None).table());
    for cells in sessions() {
        for against in [None, Some(published::source("tay2021").unwrap())] {
            tables.extend(bench::tables(&cells, against));
        }
        tables.extend(bench::against_base(&cells, 0.1).map(|found| found.table));
    }
    tables
}

#[test]
fn a_table_has_the_same_columns_whatever_it_holds() {
    for table in tables() {
        let (_, columns) = COLUMNS
            .iter()
            .find(|(name, _)| *name == table.name)
            .unwrap_or_else(|| panic!("COLUMNS has no columns of table {}", table.name));
        let text = Format::Csv.render(std::slice::from_ref(&table));
        let header = text.lines().next().unwrap();
        assert_eq!(header, format!("table,{columns}"), "{}", table.title);
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let place = |name: &str| header.split(',').position(|column| column == name);
        for line in reader.records().map(Result::unwrap) {
            for name in ["model", "task", "length", "labels", "average"] {
                if let Some(at) = place(name) {
                    assert!(!line[at].is_empty(), "{name} in {}: {text}", table.name);
                }
            }
        }
    }
}

#[test]
fn every_table_of_the_list_was_walked() {
    let mut seen: Vec<String> = tables().into_iter().map(|table| table.name).collect();
    seen.sort();
    seen.dedup();
    let mut known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
    known.sort_unstable();
    assert_eq!(seen, known);
}

/// Checks that no text is empty or a number.
fn walk(path: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                if !WORDS.contains(&name.as_str()) {
                    walk(&format!("{path}.{name}"), field);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|one| walk(path, one)),
        Value::String(text) => {
            assert!(!text.is_empty(), "{path} is an empty text");
            let is_words = path.ends_with("_words") || path.ends_with(".words");
            assert!(
                is_words || text.parse::<f64>().is_err(),
                "{path} is a number in quotation marks: {text}"
            );
        }
        _ => {}
    }
}

#[test]
fn what_is_not_known_is_null_and_numbers_are_numbers() {
    for table in tables() {
        let text = Format::Json.render(std::slice::from_ref(&table));
        walk(&table.name, &serde_json::from_str(&text).unwrap());
        walk(&table.name, &serde_json::to_value(table.objects()).unwrap());
    }
}

/// A number for machines is the one that records hold.
#[test]
fn no_figure_is_rounded() {
    let third = 1.0 / 3.0;
    let records = [
        labelled(run("performer", 0, third)),
        labelled(run("performer", 1, third)),
    ];
    let tay = published::source("tay2021").unwrap();
    for (name, field) in [
        ("accuracy", "mean_percent"),
        ("comparison", "ours_mean_percent"),
        ("dense", "mean_percent"),
    ] {
        let kind = lra_results::tables::find(name).unwrap();
        let row = &kind.make(&records, Some(tay)).objects()[0];
        assert_eq!(row[field], 100.0 * third, "{name}");
    }
    let speed = lra_results::tables::find("speed").unwrap();
    let row = &speed.make(&records, None).objects()[0];
    assert_eq!(row["deviation_steps_per_second"], 0.5f64.sqrt());
    assert_eq!(row["threads"], 2);
}
