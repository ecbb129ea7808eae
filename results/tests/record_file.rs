//! Files of records: nothing is lost on the way, copies merge, contradictions do not.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;

use crate::common::{on, run};
use lra_results::record::{Outcome, OwnCode, Record};
use lra_results::store::{self, record_file};

/// Records in which every kind of field appears: absent sections, text that looks like something
/// else, lists, odd numbers.
fn various() -> Vec<Record> {
    let mut odd = run("linear", 1, 0.1 + 0.2);
    odd.id = "123".to_owned();
    odd.provenance.spec_digest = "12e5".to_owned();
    odd.provenance.command = "lra run, \"quoted\"\nsecond line".to_owned();
    odd.recipe.overrides = vec!["train.steps=2".to_owned(), "a,b=\"c\"".to_owned()];
    odd.task.altered = vec!["null".to_owned()];
    odd.model.rule_violation = Some("true".to_owned());
    let mut failed = run("performer", 2, 0.5);
    failed.outcome = Outcome::Failed {
        reason: "[]".to_owned(),
    };
    (failed.scores, failed.speed, failed.memory) = (None, None, None);
    failed.baselines.clear();
    let mut bits = run("transformer", 0, 0.25);
    let scores = bits.scores.as_mut().unwrap();
    (scores.bits_gained, scores.prior_loss) = (Some(1.0 / 3.0), Some(2.0));
    bits.model.family = Some("xformer".to_owned());
    vec![bits, odd, failed]
}

fn by_id(mut records: Vec<Record>) -> Vec<Record> {
    records.sort_by(|a, b| a.id.cmp(&b.id));
    records
}

#[test]
fn records_come_back_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.csv");
    record_file::write(&file, &various()).unwrap();
    let loaded = store::load(&file).unwrap();
    assert_eq!(by_id(loaded.records), by_id(various()));
    // In the order of the tables regardless of the order before, so that two files of the same
    // records are equal.
    let text = fs::read_to_string(&file).unwrap();
    let mut turned = various();
    turned.reverse();
    record_file::write(&file, &turned).unwrap();
    assert_eq!(fs::read_to_string(&file).unwrap(), text);
    assert!(
        text.starts_with("schema,id,outcome.status,outcome.reason,task.name,"),
        "{text}"
    );
}

/// A spreadsheet opens a file of records, and a terminal prints it: what a stranger wrote into a
/// record is neither a formula nor obeyed, and comes back as it was.
#[test]
fn formulas_and_control_characters_are_text_and_come_back() {
    let evil = [
        "=cmd|' /C calc'!A0",
        "+1+1",
        "-1+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        " =1",
        "'",
        "'=1",
        "'s",
        "\"quoted\"",
        "\u{1b}[2J",
        "=\u{1b}[2J",
        "a\u{9b}31m\u{202e}\r",
        "two\nlines",
        "＝1",
    ];
    let records: Vec<Record> = evil
        .iter()
        .zip(0..)
        .map(|(text, seed)| {
            let mut record = run("linear", seed, 0.5);
            record.provenance.command = (*text).to_owned();
            record.provenance.host.cpu = (*text).to_owned();
            record.recipe.overrides = vec![(*text).to_owned()];
            record.task.altered = vec![(*text).to_owned()];
            record
        })
        .collect();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.csv");
    record_file::write(&file, &records).unwrap();
    let loaded = store::load(&file).unwrap();
    assert_eq!(by_id(loaded.records), by_id(records));
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
    assert!(!text.contains('\u{202e}'));
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    for row in reader.records().map(Result::unwrap) {
        for cell in row.iter().filter(|cell| cell.parse::<f64>().is_err()) {
            let first = cell.trim_start().chars().next();
            assert!(!first.is_some_and(|c| "=+-@＝".contains(c)), "{cell:?}");
        }
    }
}

#[test]
fn a_damaged_row_is_named_by_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.csv");
    for (text, words) in [
        ("schema,id\n1,a\n", "line 2"),
        (
            "schema,id,outcome.status,task.name,model.name,seed\n1,a,scored,toy,bag,-1\n",
            "line 2",
        ),
        ("schema,schema\n1,1\n", "same name"),
        ("id\na\n", "`schema`"),
        ("schema,id\n1\n", "line 2"),
        ("schema,task,task.name\n1,a,b\n", "value and parts"),
        ("schema,id\n99,a\n", "newer lra"),
        ("", "`schema`"),
    ] {
        fs::write(&file, text).unwrap();
        let message = record_file::read(&file).unwrap_err().to_string();
        assert!(
            message.contains(words) && message.contains("records.csv"),
            "{message}"
        );
    }
    fs::write(&file, [0xff, 0xfe]).unwrap();
    assert!(record_file::read(&file).is_err());
}

#[test]
fn a_damaged_cell_is_named_by_its_column() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.csv");
    record_file::write(&file, &[run("linear", 0, 0.5)]).unwrap();
    let whole = fs::read_to_string(&file).unwrap();
    let columns: Vec<&str> = whole.lines().next().unwrap().split(',').collect();
    let row = whole.lines().nth(1).unwrap();
    for (column, value) in [
        ("scores.test_accuracy", "abc"),
        ("scores.test_accuracy", "1.5"),
        ("scores.test_loss", "-1"),
        ("scores.steps", "-3"),
        ("seed", "x"),
        ("id", "[]"),
        ("outcome.status", "7"),
        ("threads", "many"),
        ("host.cores", "2.5"),
        ("schema", "first"),
    ] {
        let at = columns.iter().position(|it| *it == column).unwrap();
        let cells = csv::Reader::from_reader(whole.as_bytes()).into_records();
        let cells = cells.map(Result::unwrap).next().unwrap();
        let mut writer = csv::Writer::from_writer(Vec::new());
        writer.write_record(&columns).unwrap();
        let changed = cells.iter().enumerate();
        let changed = changed.map(|(place, cell)| if place == at { value } else { cell });
        writer.write_record(changed).unwrap();
        fs::write(&file, writer.into_inner().unwrap()).unwrap();
        let message = record_file::read(&file).unwrap_err().to_string();
        assert!(
            message.contains("records.csv, line 2") && message.contains(column),
            "{column}: {message}"
        );
        // No type of this program, and no word of its readers.
        let (_, message) = message.split_once("line 2").unwrap();
        for foreign in ["invalid", "expected", "u32", "u64", "usize", "f64"] {
            assert!(!message.contains(foreign), "{column}: {message}");
        }
    }
    let mut cut = whole.lines().next().unwrap().as_bytes().to_vec();
    cut.extend(b"\n1,\xff");
    cut.extend(
        row.split_once(',')
            .unwrap()
            .1
            .split_once(',')
            .map(|(_, it)| format!(",{it}"))
            .unwrap()
            .bytes(),
    );
    fs::write(&file, cut).unwrap();
    let message = record_file::read(&file).unwrap_err().to_string();
    assert!(message.contains("column id: "), "{message}");
}

/// Returns a file for each of several sets of records.
fn files(folder: &std::path::Path, sets: &[Vec<Record>]) -> Vec<PathBuf> {
    let names = sets.iter().enumerate().map(|(index, records)| {
        let file = folder.join(format!("{index}.csv"));
        record_file::write(&file, records).unwrap();
        file
    });
    names.collect()
}

fn cell(model: &str, digest: &str, accuracy: f64) -> Record {
    let mut record = run(model, 0, accuracy);
    record.provenance.spec_digest = digest.to_owned();
    record
}

#[test]
fn cells_of_two_files_become_one_set() {
    let folder = tempfile::tempdir().unwrap();
    let mut elsewhere = cell("linear", "a", 0.5);
    elsewhere.provenance.host.cpu = "another".to_owned();
    elsewhere.speed = None;
    let mut failed = cell("bag", "c", 0.5);
    failed.outcome = Outcome::Failed {
        reason: "the disk is full".to_owned(),
    };
    let mut unfinished = cell("fnet", "d", 0.5);
    unfinished.outcome = Outcome::Interrupted { step: 3 };
    let sets = [
        vec![cell("linear", "a", 0.5), failed, unfinished],
        vec![
            elsewhere,
            cell("performer", "b", 0.4),
            cell("bag", "c", 0.3),
        ],
    ];
    let merged = record_file::merge(&files(folder.path(), &sets)).unwrap();
    let accuracies: Vec<_> = merged.records.iter().map(Record::test_accuracy).collect();
    let expected = [(0, "linear", 0.5), (1, "bag", 0.3), (2, "performer", 0.4)];
    assert_eq!(merged.records.len(), 3);
    for (at, model, accuracy) in expected {
        let found = merged.records.iter().position(|it| it.model.name == model);
        assert_eq!(accuracies[found.unwrap()], Some(accuracy), "{at}");
    }
    assert_eq!((merged.repeats, merged.unfinished), (2, 1));
    let kept = merged.records.iter().find(|it| it.model.name == "linear");
    assert!(kept.unwrap().speed.is_some(), "the first of equals");
}

/// The digest of the settings says nothing of a user's own model.
#[test]
fn versions_of_an_own_model_are_cells_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let version = |source: &str, accuracy: f64| {
        let mut record = cell("mine", "a", accuracy);
        record.model.own = Some(OwnCode {
            source: source.to_owned(),
            ..OwnCode::default()
        });
        record
    };
    let sets = [
        vec![version("1", 0.5)],
        vec![version("2", 0.6), version("1", 0.5)],
    ];
    let merged = record_file::merge(&files(folder.path(), &sets)).unwrap();
    assert_eq!((merged.records.len(), merged.repeats), (2, 1));
}

#[test]
fn cells_that_contradict_each_other_are_an_error_that_names_both() {
    let folder = tempfile::tempdir().unwrap();
    let mut other_data = cell("linear", "a", 0.5);
    other_data.task.data_digest = "other".to_owned();
    let mut diverged = cell("linear", "a", 0.5);
    diverged.outcome = Outcome::Diverged {
        step: 3,
        reason: String::new(),
    };
    let [mut other_seed, mut other_model] = [(); 2].map(|()| cell("linear", "a", 0.5));
    other_seed.seed = 9;
    other_model.model.name = "bag".to_owned();
    for (other, field) in [
        (cell("linear", "a", 0.6), "scores"),
        (other_data, "task.data_digest"),
        (diverged, "outcome"),
        (other_seed, "seed"),
        (other_model, "model.name"),
    ] {
        let sets = [
            vec![cell("linear", "a", 0.5)],
            vec![cell("bag", "z", 0.1), other],
        ];
        let error = record_file::merge(&files(folder.path(), &sets)).unwrap_err();
        let message = error.to_string();
        for words in ["0.csv, line 2", "1.csv, line", field, "listops-linear-0"] {
            assert!(message.contains(words), "{message}");
        }
    }
}

/// The name of a variant does not say whether it is the default: that of `deberta` is `he2020`, and
/// its other one `paper`.
#[test]
fn a_default_variant_is_no_departure_whatever_its_name() {
    let mut model = run("deberta", 0, 0.5).model;
    for (variant, is_default, departure) in [
        ("he2020", Some(true), None),
        ("paper", Some(false), Some("paper")),
        ("paper", None, None),
        ("tay2021", None, Some("tay2021")),
    ] {
        model.variant = variant.to_owned();
        model.default_variant = is_default;
        assert_eq!(model.departure(), departure, "{variant}, {is_default:?}");
    }
}

/// Two files of the same records are equal, whatever the order in which the records came.
#[test]
fn rows_stand_in_the_order_of_the_tables() {
    let set = |rate: &str| {
        let mut record = run("linear", 3, 0.5);
        record.recipe.overrides = vec![format!("train.learning_rate={rate}")];
        record
    };
    let mut short = run("transformer", 0, 0.5);
    short.task.label = "listops@64".to_owned();
    let mut named = run("linear", 3, 0.5);
    named.id = "listops-linear-another".to_owned();
    named.recipe.overrides = set("3e-3").recipe.overrides;
    let mut other_recipe = run("linear", 0, 0.5);
    other_recipe.recipe.name = "z".to_owned();
    let text = on(run("transformer", 0, 0.5), "text", "official", 2);
    let image = on(run("transformer", 0, 0.5), "image", "official", 10);
    let mut sorted = vec![
        // The published models first, in their order; then seeds as numbers, not as words.
        run("transformer", 2, 0.5),
        run("transformer", 10, 0.5),
        run("linear", 3, 0.5),
        set("1e-3"),
        set("3e-3"),
        named,
        other_recipe,
        run("bag", 0, 0.5),
        short,
        text,
        image,
    ];
    sorted[4].id = "listops-linear-4".to_owned();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.csv");
    for step in [1, 3, 7] {
        let turned: Vec<Record> = (0..sorted.len())
            .map(|index| sorted[(step * index + 5) % sorted.len()].clone())
            .collect();
        record_file::write(&file, &turned).unwrap();
        let read = record_file::read(&file).unwrap();
        let key = |it: &Record| {
            let (task, recipe) = (&it.task.label, &it.recipe);
            format!(
                "{task} {} {} {:?} {} {}",
                it.model.name, recipe.name, recipe.overrides, it.seed, it.id
            )
        };
        let keys: Vec<String> = read.iter().map(|(_, it)| key(it)).collect();
        assert_eq!(keys, sorted.iter().map(key).collect::<Vec<String>>());
    }
}

/// A row is judged like a record: what is not finite is no score.
#[test]
fn a_score_of_a_row_that_is_not_finite_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("records.csv");
    record_file::write(&file, &[run("linear", 0, 0.4375)]).unwrap();
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("0.4375", "null", 1)).unwrap();
    let (_, record) = record_file::read(&file).unwrap().remove(0);
    assert_eq!(record.outcome.word(), "diverged");
    assert_eq!(record.test_accuracy(), None);
    // A folder is one, whatever its name.
    let named = folder.path().join("runs.csv");
    fs::create_dir(&named).unwrap();
    assert!(record_file::is_named_so(&file) && !record_file::is_named_so(&named));
}

#[test]
fn versions_of_an_own_task_are_cells_and_folders_say_what_is_unfinished() {
    let folder = tempfile::tempdir().unwrap();
    let version = |source: &str| {
        let mut record = cell("linear", "a", 0.5);
        record.task.own = Some(OwnCode {
            source: source.to_owned(),
            ..OwnCode::default()
        });
        record
    };
    let runs = folder.path().join("runs");
    fs::create_dir_all(runs.join("killed")).unwrap();
    fs::write(runs.join("killed/metrics.jsonl"), "").unwrap();
    let mut sources = files(folder.path(), &[vec![version("1"), version("2")]]);
    sources.push(runs);
    let merged = record_file::merge(&sources).unwrap();
    assert_eq!((merged.records.len(), merged.unfinished), (2, 1));
}

/// A run that replaced a failed one is the one that another contradicts.
#[test]
fn a_contradiction_names_the_run_that_counts() {
    let folder = tempfile::tempdir().unwrap();
    let mut failed = cell("linear", "a", 0.5);
    failed.outcome = Outcome::Failed {
        reason: String::new(),
    };
    let sets = [
        vec![failed],
        vec![cell("linear", "a", 0.5)],
        vec![cell("linear", "a", 0.6)],
    ];
    let error = record_file::merge(&files(folder.path(), &sets)).unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("1.csv") && message.contains("2.csv") && !message.contains("0.csv"),
        "{message}"
    );
}
