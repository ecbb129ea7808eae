//! The page and its charts: whole, offline and safe. `browser.rs` looks at them.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common;
use lra_results::chart::{self, Axis, Chart, Form, Scale, Series};
use lra_results::imported::Imported;
use lra_results::store::{self, Loaded};
use lra_results::tables::TABLES;
use lra_results::{Record, committed};

#[test]
fn a_page_is_whole_and_asks_nothing_of_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let mut loaded = common::page::loaded(folder.path());
    loaded.records[0].id = "<script>alert(1)</script>".to_owned();
    let text = common::page::of(&loaded);
    // These runs have no bits.
    for kind in TABLES.iter().filter(|kind| kind.name != "bits") {
        let name = kind.name;
        assert!(text.contains(&format!("<section id=\"{name}\">")), "{name}");
    }
    for class in ["wide", "narrow"] {
        assert_eq!(
            text.matches(&format!("<svg class=\"chart {class}\""))
                .count(),
            text.matches("<figure").count()
        );
    }
    assert!(
        text.matches("<figure").count() >= 3,
        "bubbles and two tasks' curves"
    );
    assert_eq!(text.matches("<details>").count(), loaded.records.len());
    assert!(text.contains("Long &lt;Range&gt; Arena") && !text.contains("<script>alert"));
    let outside = text.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!outside.contains(reference), "{reference}");
    }
}

/// Numbers keep to the right, the best of a column is bold, what went wrong is a badge, and a
/// column that says the same of every row is a sentence.
#[test]
fn a_table_says_what_matters() {
    let folder = tempfile::tempdir().unwrap();
    let text = common::page::of(&common::page::loaded(folder.path()));
    let part = |name: &str| {
        let (_, rest) = text
            .split_once(&format!("<section id=\"{name}\">"))
            .unwrap();
        rest.split_once("</section>").unwrap().0
    };
    let accuracy = part("accuracy");
    for cell in [
        "<td class=\"number best\" data-value=\"37.95\">37.95 ±0.50 (3)</td>",
        "<span class=\"badge\">FAIL</span> 17.05 ±0.07 (2)</td>",
        "<td class=\"number\"><span class=\"badge\">out of memory</span></td>",
        "<td>tay2021</td>",
    ] {
        assert!(accuracy.contains(cell), "{cell} is not in {accuracy}");
    }
    let speed = part("speed");
    assert!(
        !speed.contains("<td>measured</td>")
            && speed.contains("The same in every row: from measured.")
    );
    assert!(
        part("runs").contains("<span class=\"badge\">diverged</span> at step 812: the loss is NaN")
    );
    for id in text
        .split("<a href=\"#")
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
    {
        assert!(text.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
}

/// Two models with two seeds each, and all four runs again with one thing changed: no mean goes
/// over both, in no chart.
#[test]
fn what_tables_keep_apart_has_charts_of_its_own() {
    type Alter = fn(&mut Record);
    let of_tables: [Alter; 7] = [
        |record| record.task.protocol = "clean".into(),
        |record| record.task.source = "official".into(),
        |record| record.task.data_digest = "another".into(),
        |record| record.task.partial = true,
        |record| record.recipe.name = "nystromformer".into(),
        |record| record.provenance.precision = "bf16".into(),
        |record| record.provenance.device = "cuda:0 NVIDIA H100".into(),
    ];
    let of_machines: [Alter; 5] = [
        |record| record.provenance.threads = 8,
        |record| record.provenance.jobs = Some(2),
        |record| record.provenance.host.device = "NVIDIA H100".into(),
        |record| record.provenance.host.cpu = "another".into(),
        |record| record.memory.as_mut().unwrap().method = "another".into(),
    ];
    let place = tempfile::tempdir().unwrap();
    let both = of_tables.iter().map(|alter| (alter, 2));
    // Accuracies do not hang on the machine: one chart of curves, in which a seed counts once.
    let bubbles_alone = of_machines.iter().map(|alter| (alter, 1));
    for (index, (alter, curves)) in both.chain(bubbles_alone).enumerate() {
        let mut records = Vec::new();
        for (model, seed) in [("linear", 0), ("linear", 1), ("bag", 0), ("bag", 1)] {
            let record = common::run(model, seed, 0.3);
            let mut other = record.clone();
            other.id += "-other";
            other.scores.as_mut().unwrap().test_accuracy = Some(0.5);
            alter(&mut other);
            records.extend([record, other]);
        }
        let folder = place.path().join(index.to_string());
        common::page::write(&folder, &records);
        let loaded = store::load(&folder).unwrap();
        let bubbles = chart::bubbles(&loaded.records, &[]);
        assert_eq!(bubbles.len(), 2, "difference {index} was averaged over");
        let heights: BTreeSet<String> = bubbles
            .iter()
            .flat_map(|chart| &chart.series)
            .map(|series| format!("{:.0}", series.points[0].1))
            .collect();
        assert_eq!(Vec::from_iter(heights), ["30", "50"], "difference {index}");
        let drawn = chart::curves(&loaded, &[], &mut Vec::new());
        assert_eq!(drawn.len(), curves, "difference {index} was averaged over");
        for charts in [&bubbles, &drawn] {
            let names: BTreeSet<&String> = charts.iter().map(|chart| &chart.name).collect();
            let titles: BTreeSet<&String> = charts.iter().map(|chart| &chart.title).collect();
            assert_eq!((names.len(), titles.len()), (charts.len(), charts.len()));
        }
    }
}

/// Two models with two seeds each, and all four runs again with other settings of computing, at
/// another speed: bubbles of their own.
#[test]
fn settings_of_computing_have_bubbles_of_their_own() {
    let mut records = Vec::new();
    for (model, seed) in [("linear", 0), ("linear", 1), ("bag", 0), ("bag", 1)] {
        let mut record = common::run(model, seed, 0.3);
        record.speed.as_mut().unwrap().steps_per_second.median = 10.0;
        let mut other = record.clone();
        other.id += "-other";
        other.recipe.overrides = vec!["train.log_every=5".into()];
        other.speed.as_mut().unwrap().steps_per_second.median = 40.0;
        records.extend([record, other]);
    }
    let charts = chart::bubbles(&records, &[]);
    assert_eq!(charts.len(), 1);
    let series = charts[0].series.iter();
    let mut found: Vec<String> = series
        .map(|series| format!("{} {:.0}", series.name, series.points[0].0))
        .collect();
    found.sort_unstable();
    let names = [
        "bag 10",
        "bag train.log_every=5 40",
        "linear 10",
        "linear train.log_every=5 40",
    ];
    assert_eq!(found, names);
}

/// There are none for a stand-in, a part or altered data.
#[test]
fn imported_accuracies_are_lines_in_charts_of_the_same_data() {
    let one = |model: &str, task: &str| Imported {
        source: "lab".to_owned(),
        task: task.to_owned(),
        model: model.to_owned(),
        percent: 38.25,
        deviation: None,
        seeds: 1,
        settings: String::new(),
    };
    let imported = [
        one("linear", "listops"),
        one("linear", "text"),
        one("luna", "listops"),
    ];
    let names = |records: &[Record]| -> Vec<String> {
        let charts = chart::bubbles(records, &imported);
        let lines = charts[0].baselines.iter().map(|it| it.name.clone());
        lines.filter(|name| name.contains("imported")).collect()
    };
    let mut records = vec![common::run("linear", 0, 0.3), common::run("bag", 0, 0.3)];
    assert_eq!(names(&records), ["linear (imported: lab)"]);
    let charts = chart::bubbles(&records, &imported);
    assert!(
        charts[0]
            .notes
            .iter()
            .any(|note| note.starts_with("imported: measured by others"))
    );
    for record in &mut records {
        record.task.altered = vec!["data.permute=1".to_owned()];
    }
    assert!(names(&records).is_empty());
}

#[test]
fn charts_tell_of_seeds_of_several_instruction_sets() {
    let mut records = Vec::new();
    for (model, seed) in [("linear", 0), ("linear", 1), ("bag", 0), ("bag", 1)] {
        let mut record = common::run(model, seed, 0.3);
        if seed == 1 {
            record.provenance.host.instructions = "AVX2".into();
        }
        records.push(record);
    }
    let place = tempfile::tempdir().unwrap();
    common::page::write(place.path(), &records);
    let loaded = store::load(place.path()).unwrap();
    // Speeds on different instructions are in charts of their own.
    assert_eq!(chart::bubbles(&loaded.records, &[]).len(), 2);
    let charts = chart::curves(&loaded, &[], &mut Vec::new());
    assert_eq!(charts.len(), 1);
    for chart in charts {
        let told = chart.notes.iter().filter(|note| note.contains("seeds of"));
        let told: Vec<&String> = told.collect();
        assert_eq!(
            told,
            ["linear, bag: seeds of 2 instruction sets."],
            "{}",
            chart.name
        );
    }
}

#[test]
fn charts_become_pictures() {
    let series = |name: &str, rank, form| Series {
        name: name.to_owned(),
        rank,
        points: vec![
            (1024.0, 1.0),
            (2048.0, 4.0),
            (4096.0, 0.0),
            (8192.0, f64::NAN),
        ],
        band: vec![],
        form,
    };
    let chart = |forms: &[Form]| Chart {
        name: "memory".to_owned(),
        title: "Memory & length".to_owned(),
        x: Axis::new("length", Scale::Log),
        y: Axis::new("MiB", Scale::Log),
        series: forms
            .iter()
            .enumerate()
            .map(|(rank, form)| series("model <x>", rank, *form))
            .collect(),
        baselines: vec![],
        notes: vec![],
    };
    for forms in [
        &[Form::Line; 14][..],
        &[Form::Bubble(0.5), Form::Bubble(1.0)],
        &[],
    ] {
        let chart = chart(forms);
        let svg = chart.svg();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.contains("model &lt;x&gt;"), !forms.is_empty(), "{svg}");
        let picture = tiny_skia::Pixmap::decode_png(&chart.png().unwrap()).unwrap();
        let white = [255; 4];
        let inked = picture
            .data()
            .chunks_exact(4)
            .filter(|dot| *dot != white)
            .count();
        assert!(inked > 1000, "{inked}");
    }
}

/// A chart without a place for any point is still a chart.
#[test]
fn no_points_are_no_error() {
    let empty = Chart {
        name: "empty".to_owned(),
        title: String::new(),
        x: Axis::new("x", Scale::Log),
        y: Axis::new("y", Scale::Linear),
        series: vec![Series {
            name: "none".to_owned(),
            rank: 0,
            points: vec![(0.0, 1.0), (-3.0, f64::INFINITY)],
            band: vec![],
            form: Form::Line,
        }],
        baselines: vec![],
        notes: vec![],
    };
    assert!(empty.svg().contains("none"));
}

/// The page of ten thousand runs opens in any browser: what all share stands once, each has a line,
/// and the page says where the rest is.
#[test]
fn a_page_of_ten_thousand_runs_is_below_two_megabytes() {
    let table = committed::MINI.records().unwrap();
    let records: Vec<Record> = (0..10_000)
        .map(|index| {
            let mut record = table[index % table.len()].clone();
            record.seed = (index / table.len()) as u64;
            record.id = record.id.replace("-s0-", &format!("-s{}-", record.seed));
            record
        })
        .collect();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/mini/records.csv");
    let loaded = Loaded {
        folders: vec![file.into(); records.len()],
        records,
        ..Loaded::default()
    };
    let text = common::page::of(&loaded);
    assert!(text.len() < 2_000_000, "{} bytes", text.len());
    let (_, runs) = text.split_once("<section id=\"runs\">").unwrap();
    for record in &loaded.records {
        assert!(
            runs.contains(&format!("<code>{}</code>", record.id)),
            "{}",
            record.id
        );
    }
    let whole = text.matches("<details>").count();
    assert!(whole > 100, "{whole}");
    assert_eq!(runs.matches("<li>").count(), 10_000 - whole);
    assert!(runs.contains("Values that all 10,000 runs share"));
    assert_eq!(runs.matches("<td>recipe.name</td><td>mini</td>").count(), 1);
    let left = format!("Without their values: {} runs. ", counted(10_000 - whole));
    assert!(runs.contains(&left) && runs.contains("lra merge"), "{left}");
}

/// Returns a number below a million with a separator.
fn counted(number: usize) -> String {
    format!("{},{:03}", number / 1000, number % 1000)
}

/// A file of records has no logs, which is no fault; a folder without one is.
#[test]
fn only_folders_without_a_log_are_told() {
    let place = tempfile::tempdir().unwrap();
    let mut loaded = common::page::loaded(place.path());
    let file = place.path().join("runs.csv");
    std::fs::write(&file, "").unwrap();
    loaded.folders.fill(file);
    let mut unread = Vec::new();
    assert!(chart::curves(&loaded, &[], &mut unread).is_empty());
    assert!(unread.is_empty(), "{unread:?}");
    loaded.folders[0] = place.path().join("none");
    chart::curves(&loaded, &[], &mut unread);
    assert_eq!(unread.len(), 1, "{unread:?}");
}

/// A curve goes through the means of its seeds, in a band from the lowest to the highest, and a
/// validation without a finite loss is no score.
#[test]
fn curves_are_means_in_bands_and_bubbles_are_of_scored_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut records: Vec<Record> = (0..3)
        .map(|seed| common::run("linear", seed, 0.3))
        .collect();
    common::page::write(folder.path(), &records);
    let mut lowest = Vec::new();
    for seed in 0..3 {
        let lines: Vec<String> = (1..=2)
            .map(|step| {
                let loss = match (seed, step) {
                    (2, 2) => "null".to_owned(),
                    _ => "1.5".to_owned(),
                };
                let accuracy = 0.2 + 0.1 * f64::from(seed) + 0.05 * f64::from(step);
                format!(
                    "{{\"event\":\"validation\",\"step\":{step},\"loss\":{loss},\"accuracy\":{accuracy},\"examples\":4}}\n"
                )
            })
            .collect();
        let log = folder
            .path()
            .join(seed.to_string())
            .join(lra_results::metrics::FILE);
        std::fs::write(log, lines.concat()).unwrap();
    }
    let loaded = store::load(folder.path()).unwrap();
    let charts = chart::curves(&loaded, &[], &mut Vec::new());
    let near = |found: &[f64], expected: &[f64]| {
        let mut pairs = found.iter().zip(expected);
        found.len() == expected.len() && pairs.all(|(a, b)| (a - b).abs() < 1e-9)
    };
    let series = &charts[0].series[0];
    let points: Vec<f64> = series.points.iter().flat_map(|(x, y)| [*x, *y]).collect();
    assert!(near(&points, &[1.0, 35.0, 2.0, 35.0]), "{points:?}");
    for (_, low, high) in &series.band {
        lowest.extend([*low, *high]);
    }
    assert!(near(&lowest, &[25.0, 45.0, 30.0, 40.0]), "{lowest:?}");
    assert!(near(
        &charts[0]
            .baselines
            .iter()
            .map(|it| it.y)
            .collect::<Vec<f64>>(),
        &[17.05, 36.25, 26.4]
    ));
    // One seed has no band.
    let one = Loaded {
        records: loaded.records[..1].to_vec(),
        folders: loaded.folders[..1].to_vec(),
        ..Loaded::default()
    };
    assert!(
        chart::curves(&one, &[], &mut Vec::new())[0].series[0]
            .band
            .is_empty()
    );
    // The area of a disc is its share of the largest memory.
    records.truncate(1);
    records.push(common::run("bag", 0, 0.2));
    records.push(common::run("performer", 0, 0.4));
    for (record, mib) in records.iter_mut().zip([100u64, 25, 50]) {
        record.memory.as_mut().unwrap().peak_bytes = mib << 20;
    }
    records[2].outcome = lra_results::Outcome::Interrupted { step: 3 };
    let bubbles = chart::bubbles(&records, &[]);
    let found: Vec<(&str, Form, f64)> = bubbles[0]
        .series
        .iter()
        .map(|it| (it.name.as_str(), it.form, it.points[0].1))
        .collect();
    assert_eq!(
        found,
        [
            ("linear", Form::Bubble(1.0), 30.0),
            ("bag", Form::Bubble(0.25), 20.0)
        ]
    );
}

/// A part of the data is other data, and another model has other accuracies.
#[test]
fn imported_lines_are_of_the_whole_data_and_the_same_model() {
    let one = Imported {
        source: "lab".to_owned(),
        task: "listops".to_owned(),
        model: "linear".to_owned(),
        percent: 38.25,
        deviation: None,
        seeds: 1,
        settings: String::new(),
    };
    let lines = |model: &str, partial: bool| {
        let mut records = vec![common::run(model, 0, 0.3), common::run("bag", 0, 0.3)];
        for record in &mut records {
            record.task.partial = partial;
        }
        let charts = chart::bubbles(&records, std::slice::from_ref(&one));
        let lines = charts[0].baselines.iter();
        lines.filter(|line| line.name.contains("imported")).count()
    };
    assert_eq!(
        [
            lines("linear", false),
            lines("linear", true),
            lines("fnet", false)
        ],
        [1, 0, 0]
    );
}

/// A key that all rows share is a sentence, if there are rows to compare; numbers sort by what the
/// column declares.
#[test]
fn columns_have_the_room_and_the_order_of_their_cells() {
    use lra_results::table::{Cell, Column, Row, Table};
    let table = |rows: usize| {
        let row = |index: usize| {
            let value = Cell {
                text: "1.5".to_owned(),
                fields: vec![("mean", 1.5.into()), ("status", serde_json::Value::Null)],
                ..Cell::default()
            };
            let word = "x".repeat(61);
            Row::new(vec![
                Cell::text(format!("row {index}")),
                Cell::text("same"),
                value,
                Cell::text(word),
            ])
        };
        let table = Table {
            columns: vec![
                Column::key("name"),
                Column::key("kind"),
                Column::value("figure").holding(&["status", "mean"]),
                Column::text("words"),
            ],
            rows: (0..rows).map(row).collect(),
            ..Table::default()
        };
        lra_results::Format::Html.render(&[table])
    };
    let (one, two) = (table(1), table(2));
    assert!(!one.contains("The same in every row") && one.contains("<td>same</td>"));
    assert!(two.contains("The same in every row: kind same."));
    assert!(two.contains("<td class=\"number\" data-value=\"1.5\">1.5</td>"));
    assert!(two.contains("<td class=\"sentences\">xxx"));
}

/// Values that all runs share are stated once, and each run has its own.
#[test]
fn values_of_runs_are_shared_only_if_all_have_them() {
    let page = |records: &[Record]| {
        let page = lra_results::page::Page {
            records,
            ..Default::default()
        };
        page.render()
    };
    let one = page(&[common::run("linear", 0, 0.3)]);
    assert!(!one.contains("class=\"shared\""));
    let two = page(&[common::run("linear", 0, 0.3), common::run("bag", 1, 0.2)]);
    let (_, rest) = two.split_once("<details class=\"shared\">").unwrap();
    let (shared, own) = rest.split_once("</details>").unwrap();
    assert!(shared.contains("<td>recipe.name</td>") && !shared.contains("<td>model.name</td>"));
    assert!(own.contains("<td>model.name</td><td>bag</td>"));
    assert!(own.contains("<td>seed</td><td>1</td>") && !own.contains("<td>recipe.name</td>"));
}
