//! Tables: fixed records in, the rendered table out.

#![allow(clippy::unwrap_used)]

use crate::common::{baseline, dozen, ended, on, run, small};
use lra_results::equivalence;
use lra_results::published::{self, Source};
use lra_results::record::{Dense, DenseGroup, OwnCode, Revision};
use lra_results::table::{Cell, Column, Row, Table};
use lra_results::tables::{self, TABLES};
use lra_results::verdict::Verdict;
use lra_results::{Format, Outcome, Record};

fn tay() -> &'static Source {
    published::source("tay2021").unwrap()
}

fn table(name: &str, records: &[Record], against: Option<&Source>) -> Table {
    tables::find(name).unwrap().make(records, against)
}

fn accuracy(records: &[Record]) -> Table {
    table("accuracy", records, Some(tay()))
}

fn text(table: Table) -> String {
    Format::Text.render(&[table])
}

#[test]
fn accuracies_stand_between_published_figures_and_trivial_baselines() {
    insta::assert_snapshot!(text(accuracy(&dozen())), @r#"
    Test accuracy, %

    model          from                         listops            image
    --------------------------------------------------------------------
    transformer    measured  36.50 ±0.71 (2) 1 diverged    out of memory
    transformer    tay2021                        36.37            42.44
    performer      measured             37.95 ±0.50 (3)  42.00 ±0.14 (2)
    performer      tay2021                        18.01            42.77
    bag            measured        17.05 ±0.07 (2) FAIL        31.00 (1)
    --------------------------------------------------------------------
    majority       trivial                        17.05            10.00
    first token    trivial                        36.25                -
    bag of tokens  trivial                        26.40            31.00

      Mean ± sample standard deviation; in brackets the number of seeds.
      FAIL: no better than the majority class; the mean test accuracy is at most that of the majority
        class plus one standard error, sqrt(p (1 - p) / test rows).
      Every row: recipe tay2021, precision f32, device cpu.
      listops: generated, protocol tay2021, data 9b1de5ee2f5b.
      image: official, protocol tay2021, data image-offici.
      transformer on listops, seed 2: diverged at step 812: the loss is NaN
      transformer on image, seed 0: out of memory: 9.5 GiB asked for, 7.8 GiB there
    "#);
}

#[test]
fn comparisons_say_what_may_be_said() {
    let mut records = dozen();
    records.push(small(run("linear", 0, 0.35)));
    insta::assert_snapshot!(text(table("comparison", &records, Some(tay()))));
}

/// The table of reproduced cells has those of every source, but only for the source's own recipe,
/// with what the runs took.
#[test]
fn reproduced_cells_say_what_they_took_and_how_they_differ() {
    let mut records = dozen();
    records.push(small(run("linear", 0, 0.35)));
    let mut other = on(run("performer", 3, 0.36), "listops", "generated", 2);
    other.recipe.name = "nystromformer".to_owned();
    other.provenance.host.cpu = "AMD EPYC 7763".to_owned();
    records.push(other);
    let mut own = run("performer", 4, 0.36);
    own.recipe.name = "mini".to_owned();
    own.recipe.published = false;
    records.push(own);
    insta::assert_snapshot!(text(table("reproduced", &records, Some(tay()))));
    let none = table("reproduced", &records[records.len() - 1..], Some(tay()));
    assert!(text(none).contains("No run follows a published recipe"));
}

/// A published figure beside runs by two protocols has one line for machines.
#[test]
fn no_line_of_csv_is_there_twice() {
    let tasks = ["listops", "text", "retrieval", "image", "pathfinder"];
    let by = |protocol: &str| {
        tasks.map(|task| {
            let mut record = on(run("performer", 0, 0.4), task, "official", 2);
            record.task.protocol = protocol.to_owned();
            record
        })
    };
    let records = [by("tay2021"), by("clean")].concat();
    for kind in TABLES {
        let csv = Format::Csv.render(&[kind.make(&records, Some(tay()))]);
        let mut lines: Vec<&str> = csv.lines().collect();
        lines.sort_unstable();
        let all = lines.len();
        lines.dedup();
        assert_eq!(lines.len(), all, "{csv}");
    }
    let csv = Format::Csv.render(&[accuracy(&records)]);
    assert_eq!(csv.matches("performer,tay2021,").count(), tasks.len());
}

/// Hours are those of all seeds: where those of one are not known, there is no sum.
#[test]
fn hours_of_a_reproduced_cell_are_summed_over_its_seeds() {
    let mut records = [run("performer", 0, 0.18), run("performer", 1, 0.181)];
    let hours =
        |records: &[Record]| table("reproduced", records, None).objects()[0]["hours"].clone();
    assert_eq!(hours(&records), 2.0 * 640.0 / 3600.0);
    records[1].speed = None;
    assert!(hours(&records).is_null());
}

/// Returns the verdict on Performer, published at 18.01 %.
fn verdict(accuracies: &[f64], alter: fn(&mut Record)) -> String {
    let seeds = accuracies.iter().zip(0..);
    let records: Vec<_> = seeds
        .map(|(accuracy, seed)| {
            let mut record = run("performer", seed, *accuracy);
            alter(&mut record);
            record
        })
        .collect();
    let table = table("comparison", &records, Some(tay()));
    table.rows[0].cells.last().unwrap().text.clone()
}

/// Performer is published at 18.01 %: within two points of it lies what reproduces it. The test
/// splits are so large that counting right answers leaves no doubt.
#[test]
fn a_verdict_takes_an_interval_on_one_side_of_the_margin() {
    let other: fn(&mut Record) = |record| record.recipe.name = "nystromformer".into();
    let changed: fn(&mut Record) = |record| record.recipe.overrides = vec!["train.steps=9".into()];
    let same: fn(&mut Record) = |record| record.task.rows.test = 200_000;
    for (accuracies, alter, expected) in [
        (&[0.18, 0.181][..], same, "reproduced"),
        (&[0.185, 0.186, 0.187], same, "reproduced"),
        (&[0.38, 0.381], same, "differs"),
        (&[0.10, 0.101], same, "differs"),
        // Noise is no success, however well it holds the figure.
        (
            &[0.16, 0.36],
            same,
            "cannot tell (interval 100 points wide)",
        ),
        (
            &[0.17, 0.18, 0.19],
            same,
            "cannot tell (interval 5.0 points wide)",
        ),
        // The mean is the figure, and yet the interval leaves the margin.
        (
            &[0.178, 0.1822],
            same,
            "cannot tell (interval 5.3 points wide)",
        ),
        (&[0.1801], same, "cannot tell (one seed)"),
        (&[0.38], same, "cannot tell (one seed)"),
        (&[0.38, 0.381], other, "other recipe"),
        (&[0.18, 0.181], other, "other recipe"),
        (&[0.38], other, "other recipe"),
        (&[0.38, 0.381], changed, "not comparable"),
    ] {
        assert_eq!(verdict(accuracies, alter), expected, "{accuracies:?}");
    }
}

/// Equal scores say nothing of the spread: counting right answers on the test rows bounds it from
/// below, and where the number of rows is unknown there is no verdict.
#[test]
fn equal_scores_are_no_certainty() {
    let same: fn(&mut Record) = |_| ();
    let unknown: fn(&mut Record) = |record| record.task.rows.test = 0;
    let many: fn(&mut Record) = |record| record.task.rows.test = 1_000_000;
    for (accuracies, alter, expected) in [
        (
            &[0.16, 0.16][..],
            same,
            "cannot tell (interval 15 points wide)",
        ),
        (&[0.16, 0.16], unknown, "cannot tell (equal scores)"),
        (&[0.16], unknown, "cannot tell (one seed)"),
        (&[0.18; 5], same, "reproduced"),
        (&[0.18; 2], many, "reproduced"),
        (&[0.12; 2], many, "differs"),
        (&[0.38; 3], same, "differs"),
    ] {
        assert_eq!(verdict(accuracies, alter), expected, "{accuracies:?}");
    }
    // Every table has that interval.
    let records = [run("performer", 0, 0.16), run("performer", 1, 0.16)];
    let interval = |name: &str| {
        let table = table(name, &records, Some(tay()));
        let cells = || table.rows[0].cells.iter();
        let end = |field: &str| {
            cells()
                .find_map(|cell| cell.field(field)?.as_f64())
                .unwrap()
        };
        (end("low"), end("high"))
    };
    let (low, high) = interval("accuracy");
    assert!((8.0..9.0).contains(&low) && (23.0..24.0).contains(&high));
    assert_eq!(interval("comparison"), (low, high));
}

/// The spread that a source prints for its own figures widens the margin, and never narrows it.
#[test]
fn the_margin_is_two_points_or_the_sources_own_spread() {
    let lru = published::source("orvieto2023lru").unwrap();
    let printed = lru.cell("lru", "listops", published::ACCURACY).unwrap();
    assert_eq!(lru.spread(printed), Some(0.8));
    assert_eq!(equivalence::margin(lru, printed), 2.0);
    // Student's t times the counting error, over the root of n, within two points: 4.303 * 0.874 /
    // 1.732 = 2.17 for three seeds, 3.182 * 0.874 / 2 = 1.39 for four.
    assert_eq!(equivalence::least_seeds(18.8, 2.0, 2000), Some(4));
    assert_eq!(equivalence::least_seeds(60.5, 2.0, 2000), Some(4));
    assert_eq!(equivalence::least_seeds(60.5, 2.0, 0), None);
    assert_eq!(tay().spread(tay().figures[0]), None);

    let read = |value: &str| {
        let figure: published::Figure = serde_json::from_str(value).unwrap();
        &*Box::leak(Box::new(figure))
    };
    let accuracy = r#"{"source": "", "year": 2026, "key": "own", "model": "M", "entry": "performer", "task": "listops",
        "metric": "accuracy", "value": 40, "missing": null, "trust": "primary", "defect": "", "notes": ""}"#;
    let spread = accuracy
        .replace("\"accuracy\"", "\"accuracy_spread\"")
        .replace("40", "5");
    let own = Source {
        title: "",
        author: "",
        url: "",
        key: "own",
        alias: "own",
        recipes: vec!["tay2021"],
        year: 2026,
        figures: vec![read(accuracy), read(&spread)],
    };
    let mut records = [run("performer", 0, 0.36), run("performer", 1, 0.361)];
    for record in &mut records {
        record.task.rows.test = 200_000;
    }
    let table = table("comparison", &records, Some(&own));
    let verdict = table.rows[0].cells.last().unwrap();
    assert_eq!(verdict.text, "reproduced");
    assert_eq!(verdict.field("margin").unwrap().as_f64(), Some(5.0));
    assert!(text(table).contains("the margin is 5 points"));
}

/// Seeds that ended without a score are told of: the verdict is on those that were left.
#[test]
fn a_verdict_on_some_of_the_seeds_says_so() {
    let lost = ended(
        run("performer", 2, 0.0),
        Outcome::Diverged {
            step: 9,
            reason: String::new(),
        },
    );
    let records = [run("performer", 0, 0.18), run("performer", 1, 0.181), lost];
    let found = text(table("comparison", &records, Some(tay())));
    let words = "mean and interval are over 2 of 3 seeds; 1 diverged.";
    assert!(found.contains(words), "{found}");
}

fn diverged(record: Record) -> Record {
    let divergence = Outcome::Diverged {
        step: 9,
        reason: String::new(),
    };
    ended(record, divergence)
}

/// A model that fails with half of its seeds does not reproduce what a paper prints.
/// One seed that may not be compared forbids the comparison of its cell.
#[test]
fn a_cell_is_comparable_if_all_its_seeds_are() {
    let verdict = |alter: fn(&mut Record)| {
        let mut records: Vec<Record> = (0..5).map(|seed| run("transformer", seed, 0.37)).collect();
        records.iter_mut().skip(1).for_each(alter);
        let rows = table("comparison", &records, Some(tay())).objects();
        rows[0]["verdict"].as_str().unwrap().to_owned()
    };
    assert_eq!(verdict(|_| ()), "reproduced");
    assert_eq!(verdict(|it| it.recipe.published = false), "not comparable");
    let forbidden = |it: &mut Record| it.model.rule_violation = Some("it reads ahead".to_owned());
    assert_eq!(verdict(forbidden), "not comparable");
}

/// The newest run says what trivial predictors reach, in every table, which say so if others
/// differ. What is unknown is not the best.
#[test]
fn floors_are_those_of_the_newest_run() {
    let mut records: Vec<Record> = ["transformer", "linear"]
        .map(|model| run(model, 0, 0.4))
        .into();
    for record in &mut records {
        record.recipe.name = "mini".to_owned();
        record.scores.as_mut().unwrap().bits_gained = Some(0.2);
    }
    records[1].provenance.created = "2030-01-01T00:00:00Z".to_owned();
    records[1].baselines = vec![baseline("majority", 0.17), baseline("first token", 0.2)];
    records[1]
        .baselines
        .push(baseline("bag of tokens", f64::NAN));
    for _ in 0..2 {
        let text = text(accuracy(&records));
        assert!(text.contains("20.00") && !text.contains("36.25"), "{text}");
        let ranks = table("ranks", &records, None);
        for (table, place) in [(&accuracy(&records), " on listops"), (&ranks, "")] {
            let told = format!("first token{place} (the newest of 2 values)");
            let notes = table.notes.join("\n");
            assert!(notes.contains(&told), "{notes}");
        }
        let floor = ranks.objects().pop().unwrap();
        assert_eq!(floor["accuracy_percent"], 20.0, "{floor:?}");
        assert!(floor["of"].is_null(), "{floor:?}");
        records.reverse();
    }
    let same = [run("linear", 0, 0.4), run("linear", 1, 0.4)];
    assert!(!text(accuracy(&same)).contains("the newest of"));
}

/// One record without bits leaves the others theirs.
#[test]
fn bits_are_undefined_only_where_no_run_has_them() {
    let with = |model: &str, bits: Option<f64>| {
        let mut record = run(model, 0, 0.4);
        record.scores.as_mut().unwrap().bits_gained = bits;
        record
    };
    let records = [with("linear", Some(0.2)), with("bag", None)];
    let bits = table("bits", &records, None);
    let rows = bits.objects();
    assert_eq!(rows.len(), 1);
    assert_eq!(
        (&rows[0]["model"], &rows[0]["mean_percent"]),
        (&"linear".into(), &20.0.into())
    );
    let notes = bits.notes.join("\n");
    assert!(
        notes.contains("1 run left out: records without bits"),
        "{notes}"
    );
    assert!(!notes.contains("undefined"), "{notes}");
}

#[test]
fn nothing_is_reproduced_where_seeds_diverged() {
    let of = |accuracy: f64, failures: u64| {
        let scored = (0..6).map(|seed| {
            let mut record = run("performer", seed, accuracy);
            record.task.rows.test = 200_000;
            record
        });
        let lost = (6..6 + failures).map(|seed| diverged(run("performer", seed, 0.0)));
        let records: Vec<Record> = scored.chain(lost).collect();
        let table = table("comparison", &records, Some(tay()));
        let object = table.objects().remove(0);
        let words = table.rows[0].cells.last().unwrap().text.clone();
        (words, object["verdict"].clone(), object["status"].clone())
    };
    let found = |words: &str, verdict: &str, status: serde_json::Value| {
        (words.to_owned(), verdict.into(), status)
    };
    assert_eq!(
        of(0.188, 0),
        found("reproduced", "reproduced", serde_json::Value::Null)
    );
    assert_eq!(
        of(0.188, 6),
        found(
            "cannot tell (6 of 12 seeds diverged)",
            "cannot tell",
            "6 diverged".into()
        )
    );
    assert_eq!(
        of(0.38, 1),
        found("differs", "differs", "1 diverged".into())
    );
}

#[test]
fn every_table_of_seeds_says_that_some_diverged() {
    let tasks = ["listops", "text", "retrieval", "image", "pathfinder"];
    let scored = tasks.map(|task| {
        let mut record = on(run("performer", 0, 0.4), task, "official", 2);
        let scores = record.scores.as_mut().unwrap();
        (scores.bits_gained, scores.prior_loss) = (Some(0.25), Some(2.0));
        scores.test_dense = Some(Dense {
            labels: 200,
            accuracy: 0.5,
            ..Dense::default()
        });
        record
    });
    let lost = tasks.map(|task| diverged(on(run("performer", 1, 0.0), task, "official", 2)));
    let mut records: Vec<Record> = scored.into_iter().chain(lost).collect();
    for kind in TABLES {
        let on_probes = kind.name == "probes";
        records
            .iter_mut()
            .for_each(|run| run.task.probe = on_probes);
        let made = kind.make(&records, Some(tay()));
        let objects = made.objects();
        let status = objects[0]["status"].as_str().unwrap_or_default();
        assert!(status.contains("1 diverged"), "{}: {objects:?}", kind.name);
        let told = text(made);
        assert!(told.contains("diverged"), "{told}");
    }
}

/// The order of the seeds does not matter: the fewest test rows count.
#[test]
fn a_verdict_knows_the_test_rows_of_every_seed() {
    for first in [0, 1] {
        let mut records = [run("performer", 0, 0.18), run("performer", 1, 0.1801)];
        records[first].task.rows.test = 2;
        records[1 - first].task.rows.test = 2_000_000;
        let table = table("comparison", &records, Some(tay()));
        let verdict = &table.objects()[0]["verdict"];
        assert_eq!(verdict, "cannot tell", "{first}");
        let accuracy = accuracy(&records);
        assert!(accuracy.rows[0].cells[2].text.ends_with("FAIL"), "{first}");
    }
}

#[test]
fn a_printed_failure_stays_a_word_for_machines() {
    let records = [run("performer", 0, 0.5), run("performer", 1, 0.5)];
    let records = records.map(|record| on(record, "pathx", "official", 2));
    let table = table("comparison", &records, Some(tay()));
    let object = &table.objects()[0];
    assert_eq!(object["missing"], "FAIL");
    assert!(object["published_percent"].is_null());
    let json: serde_json::Value = serde_json::from_str(&Format::Json.render(&[table])).unwrap();
    assert_eq!(json[0]["rows"][0]["published"]["missing"], "FAIL");
}

/// Two versions of the program word a finding differently: the same rows are one data set. Where
/// nothing tells which rows they are, they are two, and neither hides the other.
#[test]
fn findings_in_other_words_part_no_data_and_hide_none() {
    let with = |seed: u64, accuracy: f64, finding: &str, digest: &str| {
        let mut record = run("performer", seed, accuracy);
        record.task.altered = vec![finding.to_owned()];
        record.task.data_digest = digest.to_owned();
        record
    };
    let means = |digest: &str| {
        let records = [
            with(0, 0.5, "x changed", digest),
            with(1, 0.9, "x was changed", digest),
        ];
        let made = accuracy(&records);
        let objects = made.objects();
        let own = objects.iter().filter(|row| row["from"] == "measured");
        let keys: Vec<_> = own
            .map(|row| (row["task"].clone(), row["mean_percent"].clone()))
            .collect();
        let json = Format::Json.render(std::slice::from_ref(&made));
        let json: serde_json::Value = serde_json::from_str(&json).unwrap();
        let row = json[0]["rows"][0].as_object().unwrap();
        let cells = row.values().filter(|cell| cell["mean"].is_number());
        (keys, cells.count(), text(made))
    };
    let (keys, _, told) = means("0123456789abcdef");
    assert_eq!(keys, [("listops (generated, altered)".into(), 70.0.into())]);
    assert!(told.contains("ALTERED (x changed; x was"), "{told}");
    let (keys, cells, _) = means("");
    assert_eq!(
        keys,
        [
            ("listops (generated, altered)".into(), 50.0.into()),
            ("listops (generated, altered) #2".into(), 90.0.into()),
        ]
    );
    assert_eq!(cells, 2);
}

#[test]
fn no_speed_and_no_memory_is_below_zero() {
    let mut records = [run("performer", 0, 0.4), run("performer", 1, 0.4)];
    records[0].speed.as_mut().unwrap().steps_per_second.median = 1685.0;
    records[1].speed.as_mut().unwrap().steps_per_second.median = 1141.0;
    records[1].memory.as_mut().unwrap().peak_bytes = 1 << 40;
    for (name, field) in [("speed", "low_steps_per_second"), ("memory", "low_bytes")] {
        let low = &table(name, &records, None).objects()[0][field];
        assert_eq!(*low, 0.0, "{name}");
    }
}

#[test]
fn the_default_variant_is_one_row_however_records_write_it() {
    let mut named = run("performer", 1, 0.38);
    named.model.variant = "paper".into();
    let table = accuracy(&[run("performer", 0, 0.38), named]);
    let rows = table.rows.iter();
    let measured = rows.filter(|row| row.cells[1].text == "measured");
    assert_eq!(measured.count(), 1);
}

/// Data that contradicts its published facts is another column, said to be so, and beside it
/// nothing published stands: no figure, no difference, no average.
#[test]
fn altered_data_stands_beside_nothing_published() {
    let altered = |seed, accuracy| {
        let mut record = run("performer", seed, accuracy);
        record.task.altered = vec!["42 of the test images are black".into()];
        record
    };
    let records = [altered(0, 0.38), altered(1, 0.381)];
    let found = accuracy(&records);
    assert_eq!(found.columns[2].name, "listops (altered)");
    assert!(!text(found).contains("18.01"));
    let found = text(table("comparison", &records, Some(tay())));
    assert!(
        found.contains("not comparable") && !found.contains("18.01"),
        "{found}"
    );
    assert!(found.contains("42 of the test images are black"), "{found}");

    let both = accuracy(&[altered(0, 0.38), run("performer", 1, 0.40)]);
    let headers: Vec<_> = both.columns[2..].iter().map(|it| &it.name).collect();
    assert_eq!(headers, ["listops", "listops (altered)"]);

    let tasks = ["listops", "text", "retrieval", "image", "pathfinder"];
    let mut all = tasks.map(|task| on(run("performer", 0, 0.4), task, "official", 2));
    assert!(!table("averages", &all, Some(tay())).rows.is_empty());
    all[1].task.altered = vec!["one review is another".into()];
    assert!(table("averages", &all, Some(tay())).rows.is_empty());
}

/// A run that went on with other data or another program than it began with has a score of neither.
#[test]
fn a_run_resumed_after_changes_is_marked_and_reproduces_nothing() {
    let mut records: Vec<Record> = (0..5).map(|seed| run("performer", seed, 0.18)).collect();
    assert_eq!(verdict(&[0.18; 5], |_| ()), "reproduced");
    let changes = |record: &mut Record| {
        record.provenance.accepted_changes = vec!["it was run on other data".into()];
    };
    assert_eq!(verdict(&[0.18; 5], changes), "not comparable");
    for record in &mut records[..2] {
        changes(record);
    }
    let shown = text(accuracy(&records));
    let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(shown.contains("listops (resumed after changes)"), "{shown}");
    assert!(
        shown.contains("RESUMED AFTER CHANGES (it was run on other data)"),
        "{shown}"
    );
    assert!(shown.contains("18.00 ±0.00 (3) 18.00 ±0.00 (2)"), "{shown}");
    let csv = Format::Csv.render(&[accuracy(&records)]);
    assert!(
        csv.contains("listops (generated, resumed after changes)"),
        "{csv}"
    );
    let seen = lra_results::summary::summary(&records[0], Some(tay()), &[]);
    let seen: String = seen.into_iter().map(|(_, text)| text).collect();
    let seen = seen.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        seen.contains("not comparable: resumed after changes"),
        "{seen}"
    );
    assert!(seen.contains("changes RESUMED AFTER CHANGES"), "{seen}");
}

#[test]
fn seeds_of_several_builds_or_instruction_sets_are_told() {
    let mut records: Vec<Record> = (0..3).map(|seed| run("performer", seed, 0.18)).collect();
    assert!(!text(accuracy(&records)).contains("seeds of"));
    records[0].provenance.versions.sources = "aaaa".into();
    records[1].provenance.host.instructions = "AVX2".into();
    let told = "performer on listops: seeds of 2 builds of the program and 2 instruction sets.";
    for name in ["accuracy", "comparison"] {
        let shown = text(table(name, &records, Some(tay())));
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(told), "{shown}");
    }
}

#[test]
fn averages_by_every_convention() {
    let tasks = [
        ("text", 0.65),
        ("retrieval", 0.6),
        ("image", 0.42),
        ("pathfinder", 0.7),
    ];
    let mut records = vec![run("transformer", 0, 0.37), run("performer", 0, 0.38)];
    for (task, accuracy) in tasks {
        records.push(on(run("transformer", 0, accuracy), task, "official", 2));
    }
    // Path-X at chance is a failure; a stand-in for a task is no score on it.
    records.push(on(run("transformer", 0, 0.5), "pathx", "generated", 2));
    for (task, accuracy) in tasks {
        records.push(on(run("performer", 0, accuracy), task, "synthetic", 2));
    }
    insta::assert_snapshot!(text(table("averages", &records, Some(tay()))));
}

/// Returns a model's runs on the first five tasks, each altered by the place of its task.
fn on_five(model: &str, alter: impl Fn(usize, &mut Record)) -> Vec<Record> {
    let tasks = ["listops", "text", "retrieval", "image", "pathfinder"];
    let runs = tasks.iter().enumerate().map(|(index, task)| {
        let mut run = on(run(model, 0, 0.5), task, "official", 2);
        alter(index, &mut run);
        run
    });
    runs.collect()
}

/// Returns the measured rows of the table of averages, each with its model and its first average,
/// and the whole table as text in one line.
fn averages(records: &[Record]) -> (Vec<String>, String) {
    let table = table("averages", records, Some(tay()));
    let first = table
        .columns
        .iter()
        .position(|it| it.name == "average of 5");
    let rows = table.rows.iter().map(|row| {
        let cells = &row.cells;
        [&cells[0], &cells[1], &cells[first.unwrap()]]
            .map(|cell| cell.text.as_str())
            .join(" ")
    });
    let rows = rows.collect();
    let text = text(table);
    let words: Vec<&str> = text.split_whitespace().collect();
    (rows, words.join(" "))
}

#[test]
fn averages_are_of_whole_data_by_one_protocol() {
    let (rows, text) = averages(&on_five("linear", |_, _| ()));
    assert_eq!(rows, ["linear measured 50.00", "linear tay2021 50.55"]);
    for words in [
        "Every row: recipe tay2021, precision f32, device cpu, protocol tay2021.",
        "text: official, protocol tay2021, data text-officia.",
    ] {
        assert!(text.contains(words), "{text}");
    }

    let unlike: [fn(usize, &mut Record); 3] = [
        |index, run| run.task.partial = index == 1,
        |index, run| run.task.protocol = ["clean", "tay2021"][index % 2].into(),
        |index, run| run.recipe.overrides = vec![format!("block.layers={}", index % 2)],
    ];
    for (index, alter) in unlike.into_iter().enumerate() {
        let (rows, text) = averages(&on_five("linear", alter));
        assert!(rows.is_empty(), "{index}: {rows:?}");
        assert!(
            text.contains("in one setting and by one protocol, each from one data set"),
            "{text}"
        );
    }
}

/// Another model's data sets take nothing from a row.
#[test]
fn averages_of_models_on_data_of_their_own() {
    let mut records = on_five("linear", |_, _| ());
    records.extend(on_five("performer", |_, run| {
        run.task.data_digest += "-other";
        run.task.protocol = "clean".into();
    }));
    let (rows, text) = averages(&records);
    let measured = rows.iter().filter(|row| row.contains("measured 50.00"));
    assert_eq!(measured.count(), 2, "{rows:?}");
    assert!(!text.contains("No model"), "{text}");
    // A row with two data sets of a task has no average.
    let mut other = on_five("linear", |_, run| run.task.data_digest += "-other");
    other.truncate(1);
    records.extend(other);
    let (rows, _) = averages(&records);
    assert!(
        rows.iter().all(|row| row.starts_with("performer")),
        "{rows:?}"
    );
}

#[test]
fn no_published_average_stands_beside_what_is_not_comparable() {
    let smaller = on_five("linear", |index, run| {
        if index == 1 {
            run.task.label = "text@64".into();
        }
    });
    let (rows, text) = averages(&smaller);
    assert_eq!(rows, ["linear measured 50.00"]);
    for words in [
        "Tasks were made smaller",
        "linear on text@64: not comparable with tay2021: text@64 is not text.",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(!text.contains("Published rows"), "{text}");

    let (rows, text) = averages(&on_five("linear", |_, run| run.recipe.published = false));
    assert_eq!(rows, ["linear measured 50.00"]);
    assert!(text.contains("recipe tay2021 is not published"), "{text}");
}

#[test]
fn speeds() {
    insta::assert_snapshot!(text(table("speed", &dozen(), None)), @r#"
    Training speed, steps/s

    model        from                       listops          image
    --------------------------------------------------------------
    transformer  measured  10.5 ±0.7 (2) 1 diverged  out of memory
    performer    measured             11.0 ±1.0 (3)  10.5 ±0.7 (2)
    bag          measured             10.5 ±0.7 (2)       10.0 (1)

      Mean ± sample standard deviation; in brackets the number of seeds.
      Every row: recipe tay2021, precision f32, device cpu, processor AMD EPYC 9V74, instructions
        AVX-512, cores 2, threads 2, jobs 1.
      listops: generated, protocol tay2021, data 9b1de5ee2f5b.
      image: official, protocol tay2021, data image-offici.
      transformer on listops, seed 2: diverged at step 812: the loss is NaN
      transformer on image, seed 0: out of memory: 9.5 GiB asked for, 7.8 GiB there
    "#);
}

#[test]
fn sizes_of_runs_that_got_nowhere_stay_in_their_row() {
    insta::assert_snapshot!(text(table("memory", &dozen(), None)), @r#"
    Peak memory, MiB

    model        from                        listops           image
    ----------------------------------------------------------------
    transformer  measured  174.5 ±0.7 (2) 1 diverged   out of memory
    performer    measured             175.0 ±1.0 (3)  174.5 ±0.7 (2)
    bag          measured             174.5 ±0.7 (2)       174.0 (1)

      Mean ± sample standard deviation; in brackets the number of seeds.
      Every row: recipe tay2021, precision f32, device cpu, threads 2, method live heap bytes since the
        start, counting allocator.
      listops: generated, protocol tay2021, data 9b1de5ee2f5b.
      image: official, protocol tay2021, data image-offici.
      transformer on listops, seed 2: diverged at step 812: the loss is NaN
      transformer on image, seed 0: out of memory: 9.5 GiB asked for, 7.8 GiB there
    "#);
}

/// The published figure must be beside the run of the full protocol only; every difference makes a
/// row or a column.
#[test]
fn what_differs_is_named_and_never_averaged() {
    let mut changed = run("performer", 0, 0.35);
    changed.recipe.overrides = vec!["train.steps=200".into(), "model.features=64".into()];
    let mut variant = run("performer", 1, 0.36);
    variant.model.variant = "relu".into();
    let mut clean = run("performer", 0, 0.37);
    clean.task.protocol = "clean".into();
    let records = [
        run("performer", 0, 0.38),
        small(run("performer", 0, 0.39)),
        changed,
        variant,
        clean,
        on(run("performer", 0, 0.40), "text", "synthetic", 2),
    ];
    insta::assert_snapshot!(text(accuracy(&records)), @r#"
    Test accuracy, %

    model          from      variant  recipe   set                listops (clean)  listops (tay2021)
    ------------------------------------------------------------------------------------------------
    performer      measured  -        tay2021  -                            37.00              38.00
    performer      tay2021   -        -        -                            18.01              18.01
    performer      measured  -        tay2021  model.features=64                -              35.00
                                               train.steps=200
    performer      measured  relu     tay2021  -                                -              36.00
    performer      tay2021   -        -        -                                -              18.01
    ------------------------------------------------------------------------------------------------
    majority       trivial   -        -        -                            17.05              17.05
    first token    trivial   -        -        -                            36.25              36.25
    bag of tokens  trivial   -        -        -                            26.40              26.40

    model          from      variant  recipe   set  listops@256  text (synthetic)
    -----------------------------------------------------------------------------
    performer      measured  -        mini     -          39.00                 -
    performer      measured  -        tay2021  -              -        40.00 FAIL
    -----------------------------------------------------------------------------
    majority       trivial   -        -        -          17.05             50.00
    first token    trivial   -        -        -          36.25                 -
    bag of tokens  trivial   -        -        -          26.40             31.00

      One seed per cell.
      FAIL: no better than the majority class; the mean test accuracy is at most that of the majority
        class plus one standard error, sqrt(p (1 - p) / test rows).
      Every row: precision f32, device cpu.
      listops (clean): generated, protocol clean, data 9b1de5ee2f5b.
      listops (tay2021): generated, protocol tay2021, data 9b1de5ee2f5b.
      listops@256: generated, protocol clean, data 9b1de5ee2f5b.
      text (synthetic): synthetic, protocol tay2021, data text-synthet.
      performer on listops@256: not comparable with tay2021: listops@256 is not listops, recipe mini is
        not published.
      performer on text (synthetic): not comparable with tay2021: synthetic data.
      performer on listops (tay2021): not comparable with tay2021: set train.steps=200
        model.features=64.
      performer on listops (clean) beside tay2021: protocol clean.
      performer on listops (tay2021) beside tay2021: variant relu.
    "#);
}

/// A mixer that another process computes is slower for that reason alone.
#[test]
fn speeds_through_a_pipe_are_marked() {
    let of = |seed, process: &str| {
        let mut record = run("linear", seed, 0.5);
        record.model.own = Some(OwnCode {
            process: process.to_owned(),
            ..OwnCode::default()
        });
        record
    };
    let records = [of(0, ""), of(1, "Python 3.11.7 with PyTorch 2.9.1")];
    let speed = table("speed", &records, None);
    assert_eq!(speed.rows.len(), 2);
    let text = Format::Csv.render(&[speed]);
    let marked = text.lines().filter(|line| line.contains("through_a_pipe"));
    assert_eq!(marked.count(), 1, "{text}");
    let accuracies = |records: &[Record]| table("accuracy", records, None).rows.len();
    assert_eq!(accuracies(&records), accuracies(&[of(0, ""), of(1, "")]));
}

#[test]
fn each_dimension_parts_the_rows() {
    let alter: [fn(&mut Record); 11] = [
        |record| {
            record.model.own = Some(OwnCode {
                source: "4f2a91c07d3e5b".to_owned(),
                ..OwnCode::default()
            });
        },
        |record| record.provenance.host.instructions = "AVX2".into(),
        |record| record.provenance.host.cores = 64,
        |record| record.provenance.host.device = "NVIDIA A100".into(),
        |record| record.provenance.jobs = Some(2),
        |record| record.provenance.device = "cuda:0 NVIDIA H100".into(),
        |record| record.provenance.precision = "bf16".into(),
        |record| record.recipe.name = "nystromformer".into(),
        |record| record.provenance.threads = 8,
        |record| record.provenance.host.cpu = "another".into(),
        |record| record.model.variant = "relu".into(),
    ];
    for (index, alter) in alter.into_iter().enumerate() {
        let mut other = run("linear", 1, 0.5);
        alter(&mut other);
        let speed = table("speed", &[run("linear", 0, 0.4), other], None);
        assert_eq!(speed.rows.len(), 2, "difference {index} was averaged over");
        assert_eq!(speed.columns.len(), 4, "difference {index} is not named");
    }
    let mut other = run("linear", 1, 0.5);
    other.provenance.threads = 8;
    let memory = table("memory", &[run("linear", 0, 0.4), other], None);
    assert_eq!(memory.rows.len(), 2, "memory of threads was averaged");
    let alter: [fn(&mut Record); 4] = [
        |record| record.task.source = "official".into(),
        |record| record.task.protocol = "clean".into(),
        |record| record.task.partial = true,
        |record| record.task.data_digest = "another".into(),
    ];
    for (index, alter) in alter.into_iter().enumerate() {
        let mut other = run("linear", 1, 0.5);
        alter(&mut other);
        let table = accuracy(&[run("linear", 0, 0.4), other]);
        let headers: Vec<_> = table.columns[2..]
            .iter()
            .map(|column| &column.name)
            .collect();
        assert!(
            headers.len() == 2 && headers[0] != headers[1],
            "data {index}: {headers:?}"
        );
    }
}

#[test]
fn a_seed_that_was_run_again_counts_once() {
    let mut later = run("linear", 0, 0.40);
    later.provenance.created = "2026-11-22T10:00:00Z".into();
    let mut failed = ended(
        run("linear", 0, 0.0),
        Outcome::Failed {
            reason: "disk full".into(),
        },
    );
    failed.provenance.created = "2026-11-23T10:00:00Z".into();
    let table = accuracy(&[
        later,
        failed,
        run("linear", 0, 0.10),
        run("linear", 1, 0.42),
    ]);
    assert_eq!(table.rows[0].cells[2].text, "41.00 ±1.41");
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.starts_with("2 runs left out")),
        "{:?}",
        table.notes
    );
}

#[test]
fn no_better_than_the_majority_class_is_a_failure() {
    let record = run("linear", 0, 0.0);
    // sqrt(0.1705 * 0.8295 / 2000) = 0.00841
    let judge = |accuracy| Verdict::of(accuracy, &record).unwrap();
    assert!(judge(0.1789).fail && judge(0.1789).plateau);
    assert!(!judge(0.1790).fail);
    assert!(judge(0.1000).fail && !judge(0.1000).plateau);
    let mut bare = record.clone();
    bare.baselines = vec![baseline("bag of tokens", 0.3)];
    assert_eq!(Verdict::of(0.5, &bare).unwrap().majority, 0.1);
    bare.task.classes = 0;
    assert_eq!(Verdict::of(0.5, &bare), None);
}

#[test]
fn markdown() {
    insta::assert_snapshot!(Format::Markdown.render(&[accuracy(&dozen())]), @r#"
    **Test accuracy, %**

    | model         | from     |                    listops |           image |
    |---------------|----------|---------------------------:|----------------:|
    | transformer   | measured | 36.50 ±0.71 (2) 1 diverged |   out of memory |
    | transformer   | tay2021  |                      36.37 |           42.44 |
    | performer     | measured |            37.95 ±0.50 (3) | 42.00 ±0.14 (2) |
    | performer     | tay2021  |                      18.01 |           42.77 |
    | bag           | measured |       17.05 ±0.07 (2) FAIL |       31.00 (1) |
    | majority      | trivial  |                      17.05 |           10.00 |
    | first token   | trivial  |                      36.25 |               - |
    | bag of tokens | trivial  |                      26.40 |           31.00 |

    - Mean ± sample standard deviation; in brackets the number of seeds.
    - FAIL: no better than the majority class; the mean test accuracy is at most that of the majority class plus one standard error, sqrt(p (1 - p) / test rows).
    - Every row: recipe tay2021, precision f32, device cpu.
    - listops: generated, protocol tay2021, data 9b1de5ee2f5b.
    - image: official, protocol tay2021, data image-offici.
    - transformer on listops, seed 2: diverged at step 812: the loss is NaN
    - transformer on image, seed 0: out of memory: 9.5 GiB asked for, 7.8 GiB there
    "#);
}

/// One header, a line per cell, whatever tables there are.
#[test]
fn csv() {
    let tables = [
        accuracy(&dozen()[3..6]),
        table("memory", &dozen()[3..6], None),
    ];
    let text = Format::Csv.render(&tables);
    insta::assert_snapshot!(text, @r#"
    table,model,from,variant,recipe,set,precision,device,task,source,protocol,data,computing,threads,method,mean_percent,deviation_percent,seeds,low_percent,high_percent,status,mean_bytes,deviation_bytes,low_bytes,high_bytes
    accuracy,transformer,measured,,tay2021,,f32,cpu,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,,,37.0,,1,,,,,,,
    accuracy,transformer,tay2021,,,,,,listops (generated),,,,,,,36.37,,,,,,,,,
    accuracy,bag,measured,,tay2021,,f32,cpu,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,,,17.05,0.07071067811865576,2,9.494621254822308,24.605378745177696,FAIL,,,,
    accuracy,majority,trivial,,,,,,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,,,17.05,,,,,,,,,
    accuracy,first token,trivial,,,,,,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,,,36.25,,,,,,,,,
    accuracy,bag of tokens,trivial,,,,,,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,,,26.400000000000002,,,,,,,,,
    memory,transformer,measured,,tay2021,,f32,cpu,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,2,"live heap bytes since the start, counting allocator",,,1,,,,182452224.0,,,
    memory,bag,measured,,tay2021,,f32,cpu,listops (generated),generated,tay2021,9b1de5ee2f5b4a2c0011,,2,"live heap bytes since the start, counting allocator",,,2,,,,182976512.0,741455.2001894653,176314801.33128044,189638222.66871956
    "#);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let records = reader.records().collect::<Result<Vec<_>, _>>().unwrap();
    assert!(records.iter().all(|record| record.iter().count() > 10));
}

/// Facts that people read once are in every line: the setting, the data with its source.
#[test]
fn csv_names_what_each_cell_is_of() {
    let mut bf16 = run("linear", 0, 0.4);
    bf16.provenance.precision = "bf16".into();
    let stand_in = on(run("linear", 0, 0.4), "image", "synthetic", 10);
    let records = [run("linear", 0, 0.4), bf16, stand_in];
    let text = Format::Csv.render(&[accuracy(&records), table("speed", &records, None)]);
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let header = reader.headers().unwrap().clone();
    let lines: Vec<_> = reader.records().map(Result::unwrap).collect();
    let of = |line: &csv::StringRecord, name: &str| {
        let place = header.iter().position(|column| column == name).unwrap();
        line[place].to_owned()
    };
    let measured = lines.iter().filter(|line| of(line, "from") == "measured");
    let seen: Vec<_> = measured
        .map(|line| {
            let names = ["table", "task", "precision", "processor", "mean_percent"];
            names.map(|name| of(line, name)).join(" | ")
        })
        .collect();
    assert_eq!(
        seen,
        [
            "accuracy | listops (generated) | bf16 |  | 40.0",
            "accuracy | listops (generated) | f32 |  | 40.0",
            "accuracy | image (synthetic) | f32 |  | 40.0",
            "speed | listops (generated) | bf16 | AMD EPYC 9V74 | ",
            "speed | listops (generated) | f32 | AMD EPYC 9V74 | ",
            "speed | image (synthetic) | f32 | AMD EPYC 9V74 | ",
        ]
    );
    assert!(header.iter().any(|name| name == "mean_steps_per_second"));
}

/// A record that a stranger made says what it wants: no form lets its strings do anything.
#[test]
fn hostile_strings_do_nothing() {
    let evil =
        "=HYPERLINK(\"http://x\")<script>alert(1)</script>\u{1b}[2J\u{9b}31m\u{202e}\r\n| `x`";
    let mut record = run("linear", 0, 0.4);
    record.model.name = evil.into();
    record.model.variant = evil.into();
    record.task.label = evil.into();
    record.task.source = evil.into();
    record.task.protocol = evil.into();
    record.task.altered = vec![evil.into()];
    record.recipe.name = evil.into();
    record.recipe.overrides = vec![evil.into()];
    record.baselines = vec![baseline(evil, 0.1)];
    record.provenance.host.cpu = evil.into();
    record.provenance.precision = evil.into();
    record.provenance.device = evil.into();
    record.memory.as_mut().unwrap().method = evil.into();
    let lost = Record {
        seed: 1,
        ..ended(
            record.clone(),
            Outcome::Failed {
                reason: evil.into(),
            },
        )
    };
    let records = [record, lost];
    for format in Format::ALL {
        let tables: Vec<Table> = TABLES
            .iter()
            .map(|kind| kind.make(&records, Some(tay())))
            .collect();
        let text = format.render(&tables);
        let obeyed = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(obeyed), "{format}: {text:?}");
        if matches!(format, Format::Markdown | Format::Html) {
            assert!(!text.contains("<script>alert"), "{format}: {text}");
        }
        match format {
            Format::Csv => {
                let mut reader = csv::ReaderBuilder::new()
                    .has_headers(false)
                    .from_reader(text.as_bytes());
                for line in reader.records().map(Result::unwrap) {
                    assert!(!line.iter().any(|field| field.starts_with('=')), "{text}");
                }
            }
            Format::Json => {
                let read: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert_eq!(read[0]["rows"][0]["model"], evil);
            }
            _ => {}
        }
    }
}

#[test]
fn json() {
    let tables = [
        table("speed", &dozen()[..3], None),
        accuracy(&dozen()[7..8]),
    ];
    insta::assert_snapshot!(Format::Json.render(&tables), @r#"
    [
      {
        "table": "speed",
        "title": "Training speed, steps/s",
        "unit": "steps/s",
        "columns": {
          "listops": {
            "task": "listops (generated)",
            "source": "generated",
            "protocol": "tay2021",
            "data": "9b1de5ee2f5b4a2c0011"
          }
        },
        "rows": [
          {
            "model": "performer",
            "from": "measured",
            "listops": {
              "mean": 11.0,
              "deviation": 1.0,
              "seeds": 3,
              "low": 8.515862288249672,
              "high": 13.484137711750328,
              "status": null
            },
            "about": {
              "variant": null,
              "recipe": "tay2021",
              "set": null,
              "precision": "f32",
              "device": "cpu",
              "computing": null,
              "processor": "AMD EPYC 9V74",
              "instructions": "AVX-512",
              "cores": 2,
              "accelerator": null,
              "threads": 2,
              "jobs": 1
            }
          }
        ],
        "notes": [
          "Mean ± sample standard deviation over 3 seeds.",
          "Every row: recipe tay2021, precision f32, device cpu, processor AMD EPYC 9V74, instructions AVX-512, cores 2, threads 2, jobs 1.",
          "listops: generated, protocol tay2021, data 9b1de5ee2f5b."
        ]
      },
      {
        "table": "accuracy",
        "title": "Test accuracy, %",
        "unit": "%",
        "columns": {
          "listops": {
            "task": "listops (generated)",
            "source": "generated",
            "protocol": "tay2021",
            "data": "9b1de5ee2f5b4a2c0011"
          }
        },
        "rows": [
          {
            "model": "transformer",
            "from": "measured",
            "listops": {
              "mean": null,
              "deviation": null,
              "seeds": 0,
              "low": null,
              "high": null,
              "status": "diverged"
            },
            "about": {
              "variant": null,
              "recipe": "tay2021",
              "set": null,
              "precision": "f32",
              "device": "cpu"
            }
          },
          {
            "model": "transformer",
            "from": "tay2021",
            "listops": {
              "mean": 36.37,
              "deviation": null,
              "seeds": null,
              "low": null,
              "high": null,
              "status": null
            },
            "about": {
              "variant": null,
              "recipe": null,
              "set": null,
              "precision": null,
              "device": null
            }
          },
          {
            "model": "majority",
            "from": "trivial",
            "listops": {
              "mean": 17.05,
              "deviation": null,
              "seeds": null,
              "low": null,
              "high": null,
              "status": null
            },
            "about": {
              "variant": null,
              "recipe": null,
              "set": null,
              "precision": null,
              "device": null
            }
          },
          {
            "model": "first token",
            "from": "trivial",
            "listops": {
              "mean": 36.25,
              "deviation": null,
              "seeds": null,
              "low": null,
              "high": null,
              "status": null
            },
            "about": {
              "variant": null,
              "recipe": null,
              "set": null,
              "precision": null,
              "device": null
            }
          },
          {
            "model": "bag of tokens",
            "from": "trivial",
            "listops": {
              "mean": 26.400000000000002,
              "deviation": null,
              "seeds": null,
              "low": null,
              "high": null,
              "status": null
            },
            "about": {
              "variant": null,
              "recipe": null,
              "set": null,
              "precision": null,
              "device": null
            }
          }
        ],
        "notes": [
          "Mean ± sample standard deviation; in brackets the number of seeds.",
          "Every row: recipe tay2021, precision f32, device cpu.",
          "listops: generated, protocol tay2021, data 9b1de5ee2f5b.",
          "transformer on listops, seed 2: diverged at step 812: the loss is NaN"
        ]
      }
    ]
    "#);
}

/// Behind `\\\\`, these two begin an argument.
#[test]
fn latex_rows_may_begin_with_any_character() {
    for name in ["[1cm]", "*x"] {
        let mut records = dozen();
        records[0].model.name = name.to_owned();
        let text = Format::Latex.render(&[accuracy(&records)]);
        let row = text.lines().find(|line| line.contains(name)).unwrap();
        assert!(row.starts_with(&format!("{{}}{name}")), "{text}");
    }
}

#[test]
fn latex() {
    insta::assert_snapshot!(Format::Latex.render(&[accuracy(&dozen())]), @r#"
    \begin{table}
    \centering
    \caption{Test accuracy, \%}
    \begin{adjustbox}{max width=\linewidth}
    \begin{tabular}{llrr}
    \toprule
    model & from & listops & image \\
    \midrule
    transformer & measured & 36.50 $\pm$0.71 (2) 1 diverged & out of memory \\
    transformer & tay2021 & 36.37 & 42.44 \\
    performer & measured & \textbf{37.95 $\pm$0.50 (3)} & \textbf{42.00 $\pm$0.14 (2)} \\
    performer & tay2021 & 18.01 & 42.77 \\
    bag & measured & 17.05 $\pm$0.07 (2) FAIL & 31.00 (1) \\
    \midrule
    majority & trivial & 17.05 & 10.00 \\
    first token & trivial & 36.25 & - \\
    bag of tokens & trivial & 26.40 & 31.00 \\
    \bottomrule
    \end{tabular}
    \end{adjustbox}
    \par\smallskip
    \parbox{\linewidth}{\footnotesize\raggedright
    Mean $\pm$ sample standard deviation; in brackets the number of seeds.\par
    FAIL: no better than the majority class; the mean test accuracy is at most that of the majority class plus one standard error, sqrt(p (1 - p) / test rows).\par
    Every row: recipe tay2021, precision f32, device cpu.\par
    listops: generated, protocol tay2021, data 9b1de5ee2f5b.\par
    image: official, protocol tay2021, data image-offici.\par
    transformer on listops, seed 2: diverged at step 812: the loss is NaN\par
    transformer on image, seed 0: out of memory: 9.5 GiB asked for, 7.8 GiB there\par
    }
    \end{table}
    "#);
}

#[test]
fn characters_that_mean_something_are_escaped() {
    let odd = Table {
        name: "odd".into(),
        title: "50 % of a_b & c".into(),
        unit: String::new(),
        columns: vec![Column::key("a|b"), Column::text("c")],
        rows: vec![Row::new(vec![
            Cell::text("x_1\ny"),
            Cell::text("\\~^{$#<,\"*"),
        ])],
        notes: vec![],
        ..Table::default()
    };
    let tables = [odd];
    insta::assert_snapshot!(Format::Latex.render(&tables), @r#"
    \begin{table}
    \centering
    \caption{50 \% of a\_b \& c}
    \begin{adjustbox}{max width=\linewidth}
    \begin{tabular}{ll}
    \toprule
    a|b & c \\
    \midrule
    x\_1 y & \textbackslash{}\textasciitilde{}\textasciicircum{}\{\$\#$<$,"* \\
    \bottomrule
    \end{tabular}
    \end{adjustbox}
    \end{table}
    "#);
    insta::assert_snapshot!(Format::Markdown.render(&tables), @r#"
    **50 % of a\_b & c**

    | a\|b   | c                 |
    |--------|-------------------|
    | x\_1 y | \\\~^{\$#&lt;,"\* |
    "#);
    insta::assert_snapshot!(Format::Csv.render(&tables), @r#"
    table,a_b,c
    odd,"x_1
    y","\~^{$#<,""*"
    "#);
}

/// All models with published figures, seven tasks, seeds, endings, long settings: the worst that a
/// terminal is given.
#[test]
fn text_fits_a_hundred_columns() {
    let mut records = Vec::new();
    for model in published::models() {
        for task in published::TASKS {
            for seed in 0..3 {
                let record = on(
                    run(model, seed, 0.3 + 0.1 * seed as f64),
                    task,
                    "synthetic",
                    10,
                );
                records.push(record);
            }
            let mut long = small(run(model, 4, 0.11));
            long.task.name = (*task).into();
            long.recipe.overrides = vec![format!("model.{}=1", "very_long_option_name".repeat(5))];
            let reason = "allocating 123456789 bytes for the attention matrix failed ".repeat(4);
            records.push(long.clone());
            records.push(Record {
                seed: 5,
                ..ended(long, Outcome::OutOfMemory { reason })
            });
        }
    }
    for kind in TABLES.iter().filter(|kind| kind.by_default) {
        let text = text(kind.make(&records, Some(tay())));
        for line in text.lines() {
            let width = line.chars().count();
            assert!(width <= lra_results::width(), "{width} columns: {line}");
            assert_eq!(line, line.trim_end());
        }
        let heads = text
            .lines()
            .filter(|line| line.starts_with("model "))
            .count();
        assert!(heads > 1, "the table was not broken");
        assert!(text.contains("more like these"), "footnotes without end");
    }
    let text = text(published::listing());
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= lra_results::width()),
        "{text}"
    );
}

#[test]
fn nothing_on_file_is_a_table_all_the_same() {
    for format in Format::ALL {
        for kind in TABLES {
            assert!(!format.render(&[kind.make(&[], Some(tay()))]).is_empty());
        }
    }
    assert_eq!(
        text(accuracy(&[])),
        "Test accuracy, %\n\nmodel  from\n-----------\n\n  No records.\n"
    );
}

#[test]
fn names_are_parsed_and_unknown_ones_answered() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse::<Format>().unwrap(), format);
    }
    for kind in TABLES {
        assert_eq!(tables::find(kind.name).unwrap().name, kind.name);
    }
    let error = "pdf".parse::<Format>().unwrap_err().to_string();
    assert_eq!(
        error,
        "no format is called `pdf`; there are: text, markdown, csv, json, latex, html"
    );
    let error = tables::find("size").unwrap_err().to_string();
    assert_eq!(
        error,
        "no table is called `size`; there are: accuracy, speed, memory, averages, comparison, reproduced, bits, ranks, dense, probes"
    );
}

/// Only our own runs compete: no published figures, no trivial predictors, no failed runs.
#[test]
fn the_best_of_a_column_is_marked() {
    let best = |table: &Table| -> Vec<(String, String)> {
        let rows = table.rows.iter();
        let marked = rows.flat_map(|row| {
            let cells = row.cells.iter().filter(|cell| cell.best);
            cells.map(|cell| (row.cells[0].text.clone(), cell.text.clone()))
        });
        marked.collect()
    };
    let pair = |model: &str, text: &str| (model.to_owned(), text.to_owned());
    let records = dozen();
    assert_eq!(
        best(&accuracy(&records)),
        [
            pair("performer", "37.95 ±0.50 (3)"),
            pair("performer", "42.00 ±0.14 (2)")
        ]
    );
    let memory = table("memory", &records, None);
    let least = best(&memory);
    assert!(least.iter().any(|(model, _)| model == "bag"), "{least:?}");
    assert!(
        best(&accuracy(&records[..3])).is_empty(),
        "one row has no rival"
    );
    let failed = [run("bag", 0, 0.17), run("linear", 0, 0.16)];
    assert!(best(&accuracy(&failed)).is_empty());

    // Where no seed learned anything, nothing is the best.
    let idle = |model: &str, bits: f64| {
        let mut record = run(model, 0, 0.36);
        let scores = record.scores.as_mut().unwrap();
        (scores.bits_gained, scores.prior_loss, scores.test_loss) =
            (Some(bits), Some(2.3), Some(2.3));
        record
    };
    let bits = table(
        "bits",
        &[idle("linear", 0.0), idle("performer", 0.01)],
        None,
    );
    assert!(bits.objects().iter().all(|row| row["trained"] == 0));
    assert!(best(&bits).is_empty(), "{bits:?}");

    // Each recipe has a best of its own, and so have precisions and protocols: they were asked
    // other questions.
    let alter: [fn(&mut Record); 3] = [
        |record| record.recipe.name = "nystromformer".into(),
        |record| record.provenance.precision = "bf16".into(),
        |record| record.task.protocol = "clean".into(),
    ];
    for alter in alter {
        let mut records = vec![run("linear", 0, 0.40), run("performer", 0, 0.38)];
        for (model, accuracy) in [("linear", 0.50), ("performer", 0.52)] {
            let mut record = run(model, 0, accuracy);
            alter(&mut record);
            records.push(record);
        }
        let mut found = best(&accuracy(&records));
        found.sort();
        assert_eq!(found, [pair("linear", "40.00"), pair("performer", "52.00")]);
    }
}

/// Settings that all rows have are said below the table; those that tell rows apart stand in them.
#[test]
fn what_all_rows_share_is_said_once() {
    let with = |seed, set: &[&str]| {
        let mut record = run("linear", seed, 0.36);
        record.recipe.overrides = set.iter().map(|one| (*one).to_owned()).collect();
        record
    };
    let records = [
        with(0, &["train.steps=200", "block.layers=2"]),
        with(0, &["block.layers=2", "train.steps=300"]),
    ];
    let table = accuracy(&records);
    let set = table
        .columns
        .iter()
        .position(|column| column.name == "set")
        .unwrap();
    let shown: Vec<&str> = table.rows[..2]
        .iter()
        .map(|row| row.cells[set].text.as_str())
        .collect();
    assert_eq!(shown, ["train.steps=200", "train.steps=300"]);
    let said = table
        .notes
        .iter()
        .filter(|note| note.starts_with("Every row"));
    let said: Vec<&String> = said.collect();
    assert_eq!(said.len(), 1);
    assert!(said[0].ends_with("set block.layers=2."), "{said:?}");
}

/// Returns a run with labels at positions in two groups, with these accuracies.
fn labelled(model: &str, seed: u64, near: f64, far: f64) -> Record {
    let mut record = run(model, seed, 0.5);
    let group = |name: &str, accuracy: f64| DenseGroup {
        name: name.to_owned(),
        labels: 100,
        accuracy,
        loss: 0.6,
        majority: Some(0.5),
    };
    let dense = Dense {
        labels: 200,
        accuracy: (near + far) / 2.0,
        groups: vec![group("near", near), group("far", far)],
        ..Dense::default()
    };
    record.scores.as_mut().unwrap().test_dense = Some(dense);
    record
}

/// A row for whole sequences, one for all positions, one for each group; runs without such labels
/// are left out.
#[test]
fn labels_at_positions_have_a_row_for_each_group() {
    let records = [
        labelled("s4d", 0, 0.9, 0.6),
        labelled("s4d", 1, 0.8, 0.6),
        run("bag", 0, 0.5),
    ];
    let table = table("dense", &records, None);
    let rows = table.rows.iter();
    let rows: Vec<[&str; 3]> = rows
        .map(|row| [0, 2, 3].map(|index| row.cells[index].text.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            ["s4d", "whole sequences", "50.00 ±0.00 (17.05)"],
            ["s4d", "all positions", "72.50 ±3.54"],
            ["s4d", "near", "85.00 ±7.07 (50.00)"],
            ["s4d", "far", "60.00 ±0.00 (50.00)"],
        ]
    );
}

/// A permuted run stands beside a run on the same data in their order, never beside one of another
/// protocol.
#[test]
fn a_permuted_run_is_compared_with_the_same_data() {
    let of = |label: &str, protocol: &str, accuracy: f64| {
        let mut record = on(run("s4d", 0, accuracy), "image", "official", 10);
        record.task.label = label.to_owned();
        record.task.protocol = protocol.to_owned();
        if label.contains("permute") {
            record.recipe.overrides.push("data.permute=1".to_owned());
        }
        record
    };
    let text = |records: &[Record]| {
        let table = table("probes", records, None);
        let row = table.rows.iter().find(|row| row.cells[0].text == "s4d");
        row.unwrap().cells[1].text.clone()
    };
    for label in ["image@permute1", "image@64-permute1"] {
        let stored = label
            .trim_end_matches("permute1")
            .trim_end_matches(['@', '-']);
        let permuted = of(label, "clean", 0.4);
        let [same, other] = ["clean", "tay2021"].map(|protocol| of(stored, protocol, 0.7));
        assert_eq!(text(&[permuted.clone(), other.clone()]), "40.0", "{label}");
        assert_eq!(text(&[other, same, permuted]), "40.0 (-30.0)", "{label}");
    }
}

/// Probes have a row for each model, the best mean first, a model without all probes last, then the
/// most frequent answer. Tasks that are no probes are left out.
#[test]
fn probes_have_a_number_for_each_group_of_lengths() {
    let with_order = |model: &str, label: &str, accuracy: f64| {
        let mut record = on(run(model, 0, accuracy), "image", "official", 10);
        record.task.label = label.to_owned();
        if label.contains("permute") {
            record.recipe.overrides.push("data.permute=1".to_owned());
        }
        record
    };
    let mut other_seed = with_order("s4d", "image@64", 0.9);
    other_seed.seed = 1;
    let permuted = [
        // The difference is over the seeds of both.
        other_seed,
        with_order("s4d", "image@64", 0.7),
        with_order("s4d", "image@64-permute1", 0.4),
        with_order("bag", "image@64", 0.3),
    ];
    let shown = table("probes", &permuted, None);
    let texts: Vec<&str> = shown
        .rows
        .iter()
        .map(|row| row.cells[1].text.as_str())
        .collect();
    assert_eq!(texts, ["40.0 (-30.0)", "10.0"]);
    let difference = shown.objects()[0]["difference_percent"].as_f64().unwrap();
    assert!((difference + 30.0).abs() < 1e-9);
    let probed = tables::profile(&permuted, "s4d");
    assert_eq!((probed.len(), probed[0].set.as_str()), (1, ""));

    let probe = |model: &str, task: &str, seed: u64, near: f64, far: f64| {
        let mut record = on(labelled(model, seed, near, far), task, "generated", 2);
        record.task.probe = true;
        record
    };
    let records = [
        probe("transformer", "mqar", 0, 1.0, 0.5),
        probe("transformer", "needle", 0, 0.5, 0.5),
        probe("s4d", "mqar", 0, 0.25, 0.25),
        probe("s4d", "needle", 0, 0.5, 0.5),
        probe("lstm", "mqar", 0, 1.0, 0.9),
        probe("lstm", "mqar", 1, 1.0, 0.8),
        labelled("s4d", 0, 0.9, 0.6),
    ];
    let table = table("probes", &records, None);
    let rows = table.rows.iter();
    let rows: Vec<[&str; 3]> = rows
        .map(|row| [0, 1, 2].map(|index| row.cells[index].text.as_str()))
        .collect();
    assert_eq!(
        rows,
        [
            ["transformer", "100.0 / 50.0", "50.0 / 50.0"],
            ["s4d", "25.0 / 25.0", "50.0 / 50.0"],
            ["lstm", "100.0 ±0.0 / 85.0 ±7.1", ""],
            ["(most frequent answer)", "50.0 / 50.0", "50.0 / 50.0"],
        ]
    );
    assert!(
        table
            .notes
            .iter()
            .any(|note| note.ends_with(": near / far."))
    );
    assert_eq!(table.objects()[0]["mean_percent"], 75.0);
}

/// Everything that a score may depend on beside the settings is told where seeds do not share it.
#[test]
fn each_difference_of_builds_and_programs_is_a_mixture() {
    let own = |alter: fn(&mut OwnCode)| {
        let mut own = OwnCode {
            source: "1".to_owned(),
            program_digest: "2".to_owned(),
            ..OwnCode::default()
        };
        alter(&mut own);
        Some(own)
    };
    let of = |alter: &dyn Fn(&mut Record)| {
        let mut other = run("performer", 1, 0.4);
        alter(&mut other);
        lra_results::mixture(&[&run("performer", 0, 0.4), &other])
    };
    assert_eq!(of(&|_| ()), None);
    let builds: [fn(&mut Record); 4] = [
        |it| it.provenance.versions.lra = "0.2.0".to_owned(),
        |it| it.provenance.versions.sources = "other".to_owned(),
        |it| it.provenance.versions.candle = "other".to_owned(),
        |it| it.provenance.versions.rustc = "other".to_owned(),
    ];
    for alter in builds {
        assert_eq!(of(&alter).unwrap(), "2 builds of the program");
    }
    let sets = of(&|it| it.provenance.host.instructions = "AVX2".to_owned());
    assert_eq!(sets.unwrap(), "2 instruction sets");
    let programs: [fn(&mut OwnCode); 4] = [
        |it| it.program_digest = "3".to_owned(),
        |it| it.crate_name = "mixers".to_owned(),
        |it| it.crate_version = "0.2.0".to_owned(),
        |it| it.revision = Some(Revision::default()),
    ];
    for alter in programs {
        let mut first = run("performer", 0, 0.4);
        first.model.own = own(|_| ());
        let mut other = run("performer", 1, 0.4);
        other.model.own = own(alter);
        let found = lra_results::mixture(&[&first, &other]);
        assert_eq!(found.unwrap(), "2 versions of the model's program");
    }
}

/// Runs that differ in what speeds depend on are rows of their own and no rivals; what is not
/// known is an empty word.
#[test]
fn speeds_of_other_machines_have_no_common_best() {
    let of = |alter: fn(&mut Record)| {
        let mut other = run("transformer", 1, 0.4);
        alter(&mut other);
        let table = table("speed", &[run("performer", 0, 0.4), other], None);
        let best = table.rows.iter().flat_map(|row| &row.cells);
        (best.filter(|cell| cell.best).count(), text(table.clone()))
    };
    assert_eq!(of(|_| ()).0, 1);
    type Alter = fn(&mut Record);
    let changes: [(Alter, &str); 7] = [
        (|it| it.provenance.threads = 0, "threads"),
        (|it| it.provenance.threads = 4, "threads"),
        (|it| it.provenance.host.cores = 0, "cores"),
        (
            |it| it.provenance.host.cpu = "another".to_owned(),
            "processor",
        ),
        (|it| it.provenance.jobs = Some(3), "jobs"),
        (|it| it.provenance.jobs = Some(0), "jobs"),
        (
            |it| it.provenance.precision = "bf16".to_owned(),
            "precision",
        ),
    ];
    for (alter, column) in changes {
        let (best, text) = of(alter);
        assert_eq!(best, 0, "{text}");
        let header = text.lines().nth(2).unwrap();
        assert!(header.contains(column), "{text}");
        let row = text.lines().find(|line| line.starts_with("transformer"));
        let words: Vec<&str> = row.unwrap().split_whitespace().collect();
        assert!(!words.contains(&"0"), "{text}");
    }
    let (_, several) = of(|it| it.provenance.jobs = Some(0));
    assert!(several.contains("several"), "{several}");
    // Settings that change no score are words in one order.
    let set = |first: &str, second: &str, seed: u64| {
        let mut record = run("performer", seed, 0.4);
        record.recipe.overrides = vec![first.to_owned(), second.to_owned()];
        record
    };
    let (a, b) = ("train.log_every=2", "model.compute=fft");
    let table = table("speed", &[set(a, b, 0), set(b, a, 1)], None);
    assert_eq!(table.rows.len(), 1);
}

/// A run that measured nothing joins a row of its own settings, not of others.
#[test]
fn a_run_without_a_measurement_stays_among_its_settings() {
    let mut other = run("performer", 1, 0.4);
    other.recipe.name = "tay2021-paper".to_owned();
    let failed = Outcome::Failed {
        reason: "the disk is full".to_owned(),
    };
    let records = [run("performer", 0, 0.4), ended(other, failed)];
    assert_eq!(table("memory", &records, None).rows.len(), 2);
}

/// A resumed run with other data is a score of neither, so no average has it.
#[test]
fn averages_have_no_run_that_was_resumed_after_changes() {
    let plain = on_five("performer", |_, _| ());
    assert!(!averages(&plain).0.is_empty());
    let resumed = on_five("performer", |index, record| {
        if index == 2 {
            record.provenance.accepted_changes = vec!["other data".to_owned()];
        }
    });
    assert!(averages(&resumed).0.is_empty());
}

/// Path-X fails where it was run to an end without a score; a run that may go on is none.
#[test]
fn a_path_x_that_ended_counts_and_one_that_was_interrupted_does_not() {
    let with = |outcome: Outcome| {
        let mut records = on_five("performer", |_, _| ());
        let path_x = on(run("performer", 0, 0.5), "pathx", "official", 2);
        records.push(ended(path_x, outcome));
        let table = table("averages", &records, None);
        let filled = table.rows[0]
            .cells
            .iter()
            .filter(|cell| cell.field("mean").is_some());
        filled.count()
    };
    let reason = String::new;
    for outcome in [
        Outcome::OutOfMemory { reason: reason() },
        Outcome::Failed { reason: reason() },
        Outcome::Diverged {
            step: 1,
            reason: reason(),
        },
    ] {
        assert_eq!(with(outcome), 3, "of 5, failed = 50, failed = 0");
    }
    for outcome in [Outcome::Interrupted { step: 1 }, Outcome::Unknown] {
        assert_eq!(with(outcome), 1, "of 5");
    }
}

/// Endings are counted unless they are all that a cell has, and long lists are cut.
#[test]
fn endings_and_lists_are_as_long_as_they_must_be() {
    let reason = String::new;
    let failed = |seed: u64| {
        let outcome = Outcome::Failed { reason: reason() };
        ended(run("performer", seed, 0.0), outcome)
    };
    let diverged = |seed: u64| {
        let outcome = Outcome::Diverged {
            step: 1,
            reason: reason(),
        };
        ended(run("performer", seed, 0.0), outcome)
    };
    let cell = |records: &[Record]| accuracy(records).rows[0].cells[2].text.clone();
    assert_eq!(cell(&[failed(0), failed(1)]), "failed");
    assert_eq!(
        cell(&[failed(0), diverged(1), failed(2)]),
        "1 diverged, 2 failed"
    );
    let mixed = cell(&[run("performer", 3, 0.4), failed(0), failed(1)]);
    assert!(mixed.ends_with("2 failed"), "{mixed}");
    let notes = |count: u64| {
        let records: Vec<Record> = (0..count).map(diverged).collect();
        let notes = accuracy(&records).notes;
        let told = notes.iter().filter(|note| note.contains("seed ")).count();
        let more = notes.iter().find(|note| note.starts_with("... and "));
        (told, more.cloned())
    };
    assert_eq!(notes(8), (8, None));
    let more = |count: u64| Some(format!("... and {count} more like these."));
    assert_eq!([notes(9), notes(11)], [(8, more(1)), (8, more(3))]);
    // Two revisions are several, and of the models of one the first four stand for many.
    let names = ["bag", "fnet", "linear", "luna", "performer", "sparse"];
    let revised = |count: usize| {
        let mut records: Vec<Record> = names[..count]
            .iter()
            .map(|model| run(model, 0, 0.4))
            .collect();
        let mut last = run("transformer", 0, 0.4);
        last.provenance.revision = Some(Revision {
            commit: "0123456789abcdef".to_owned(),
            dirty: false,
        });
        records.push(last);
        let notes = accuracy(&records).notes;
        let note = notes
            .iter()
            .find(|note| note.starts_with("Runs of several"));
        note.cloned().unwrap()
    };
    let five = revised(5);
    assert!(
        five.contains("ded051b0c4f1+ (bag, fnet, linear, luna, performer)"),
        "{five}"
    );
    assert!(five.contains("0123456789ab (transformer)"), "{five}");
    let six = revised(6);
    assert!(
        six.contains("(bag, fnet, linear, luna and 2 more)"),
        "{six}"
    );
}

/// A predictor of a column is one of its data, wherever it was recorded, and each finding on the
/// data is told once.
#[test]
fn facts_about_data_are_those_of_any_of_its_runs() {
    let mut bare = run("performer", 0, 0.4);
    bare.baselines.clear();
    let shown = accuracy(&[bare, run("performer", 1, 0.4)]);
    let trivial = shown
        .rows
        .iter()
        .filter(|row| row.cells[1].text == "trivial");
    assert_eq!(trivial.count(), 3);
    let altered = |seed: u64, finding: &str| {
        let mut record = run("performer", seed, 0.4);
        record.task.altered = vec![finding.to_owned()];
        record
    };
    let records = [
        altered(0, "a row is another"),
        altered(1, "a row is another"),
        altered(2, "one is"),
    ];
    let notes = accuracy(&records).notes.join("\n");
    assert!(
        notes.contains("ALTERED (a row is another; one is)"),
        "{notes}"
    );
    // The unit of memory suits the largest, and what is not finite is no value.
    let mut small = run("bag", 0, 0.4);
    small.memory.as_mut().unwrap().peak_bytes = 3 << 10;
    let mut large = run("performer", 0, 0.4);
    large.memory.as_mut().unwrap().peak_bytes = 3 << 30;
    large.speed.as_mut().unwrap().steps_per_second.median = f64::NAN;
    let both = [small, large];
    assert_eq!(table("memory", &both, None).title, "Peak memory, GiB");
    let speeds = table("speed", &both, None);
    let of_large = speeds
        .rows
        .iter()
        .find(|row| row.cells[0].text == "performer");
    let cell = of_large.unwrap().cells.last().unwrap();
    assert!(
        cell.text.is_empty() && cell.field("mean").unwrap().is_null(),
        "{cell:?}"
    );
}

/// The rule for a score that shows no learning, at its ends.
#[test]
fn a_score_fails_up_to_one_error_above_the_majority() {
    let mut record = run("performer", 0, 0.0);
    record.baselines = vec![baseline("majority", 0.5)];
    record.task.rows.test = 16;
    let of = |accuracy: f64| {
        let found = Verdict::of(accuracy, &record).unwrap();
        (found.fail, found.plateau)
    };
    // One standard error is an eighth.
    assert_eq!(of(0.0), (true, false));
    assert_eq!(of(0.374), (true, false));
    assert_eq!(of(0.376), (true, true));
    assert_eq!(of(0.625), (true, true), "at most, with the error");
    assert_eq!(of(0.626), (false, false));
    // Ten classes: what is recorded counts before what is known of classes.
    record.baselines.clear();
    let chance = Verdict::of(0.3, &record).unwrap();
    assert_eq!((chance.majority, chance.fail), (0.1, false));
    record.task.classes = 0;
    assert_eq!(Verdict::of(0.3, &record), None);
    // A cell is judged by its scored run with the fewest rows that are known.
    let rows = |seed: u64, accuracy: f64, test: usize| {
        let mut record = run("performer", seed, accuracy);
        record.baselines = vec![baseline("majority", 0.5)];
        record.task.rows.test = test;
        record
    };
    let fails = |records: &[Record]| accuracy(records).rows[0].cells[2].text.contains("FAIL");
    assert!(
        fails(&[rows(0, 0.52, 0), rows(1, 0.52, 400)]),
        "0.5 + 0.025"
    );
    assert!(!fails(&[rows(0, 0.52, 10_000), rows(1, 0.52, 40_000)]));
    let reason = String::new();
    let few = ended(rows(2, 0.0, 4), Outcome::Failed { reason });
    assert!(!fails(&[rows(0, 0.52, 10_000), few]));
}

/// What a table of verdicts says of other recipes, it says where there is one.
#[test]
fn a_note_on_other_recipes_stands_where_there_are_some() {
    let source = published::source("tay2021").unwrap();
    let notes = |recipe: &str| {
        let mut record = run("performer", 0, 0.4);
        record.recipe.name = recipe.to_owned();
        table("comparison", &[record], Some(source))
            .notes
            .join("\n")
    };
    assert!(notes("nystromformer").contains("\nother recipe: the recipe does not follow"));
    assert!(!notes("tay2021").contains("other recipe:"));
}

/// Labels at positions of other data are of another table.
#[test]
fn runs_that_ended_stand_beside_labels_of_their_own_data() {
    let failed = |digest: &str| {
        let outcome = Outcome::Failed {
            reason: String::new(),
        };
        let mut record = ended(labelled("linear", 1, 0.0, 0.0), outcome);
        record.task.data_digest = digest.to_owned();
        record
    };
    let rows = |digest: &str| {
        let records = [labelled("performer", 0, 0.9, 0.5), failed(digest)];
        let table = table("dense", &records, None);
        table.rows.iter().any(|row| row.cells[0].text == "linear")
    };
    let own = labelled("performer", 0, 0.9, 0.5).task.data_digest;
    assert!(rows(&own) && !rows("other"));
}

/// A run that diverged has a speed and a peak on its record, and neither counts.
#[test]
fn costs_are_those_of_scored_runs_alone() {
    let mut stopped = run("linear", 1, 0.3);
    stopped.outcome = Outcome::Diverged {
        step: 9,
        reason: "the loss is NaN".to_owned(),
    };
    stopped.speed.as_mut().unwrap().steps_per_second.median = 90.0;
    stopped.memory.as_mut().unwrap().peak_bytes *= 4;
    let alone = [run("linear", 0, 0.4)];
    let both = [alone[0].clone(), stopped];
    for name in ["speed", "memory"] {
        let mean = |records: &[Record]| {
            let table = table(name, records, None);
            table.rows[0].cells[2].field("mean").cloned()
        };
        assert_eq!(mean(&both), mean(&alone), "{name}");
    }
}

/// Counts the newest of several runs of a seed, in whatever order they are found.
#[test]
fn the_newest_run_of_a_seed_counts_in_any_order() {
    let mut later = run("linear", 0, 0.40);
    later.provenance.created = "2026-11-22T10:00:00Z".into();
    let earlier = run("linear", 0, 0.10);
    for records in [[earlier.clone(), later.clone()], [later, earlier]] {
        assert_eq!(accuracy(&records).rows[0].cells[2].text, "40.00");
    }
}

/// The difference from the stored order is taken between runs of the same seed.
#[test]
fn a_permuted_run_is_compared_with_the_run_of_its_own_seed() {
    let of = |label: &str, seed: u64, accuracy: f64| {
        let mut record = on(run("s4d", seed, accuracy), "image", "official", 10);
        record.task.label = label.to_owned();
        if label.contains("permute") {
            record.recipe.overrides.push("data.permute=1".to_owned());
        }
        record
    };
    let records = [
        of("image", 0, 0.7),
        of("image", 1, 0.5),
        of("image@permute1", 1, 0.4),
    ];
    let table = table("probes", &records, None);
    assert_eq!(table.rows[0].cells[1].text, "40.0 (-10.0)");
}
