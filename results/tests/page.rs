//! The page and its charts: whole, offline, safe, and alive in a real browser where one is installed.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use lra_results::chart::{Axis, Chart, Form, Scale, Series, bubbles, curves};
use lra_results::metrics::{self, Line};
use lra_results::page::Page;
use lra_results::published;
use lra_results::store::{self, Loaded};
use lra_results::tables::TABLES;

/// Runs in a folder of their own, with logs of three validations each.
fn loaded(folder: &Path) -> Loaded {
    for (index, record) in common::dozen().iter().enumerate() {
        let run = folder.join(index.to_string());
        fs::create_dir_all(&run).unwrap();
        store::write(&run.join(store::FILE), record).unwrap();
        let lines = (1..=3).map(|step| {
            let line = Line::Validation {
                step: step * 100,
                loss: 2.0 / step as f64,
                accuracy: 0.1 * step as f64,
                examples: 40,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        });
        fs::write(run.join(metrics::FILE), lines.collect::<String>()).unwrap();
    }
    store::load(folder).unwrap()
}

fn page(loaded: &Loaded) -> String {
    let source = published::source("tay2021").unwrap();
    let mut charts = bubbles(&loaded.records);
    charts.extend(curves(loaded));
    let page = Page {
        title: "Long <Range> Arena".to_owned(),
        made: "today".to_owned(),
        tables: TABLES
            .iter()
            .map(|kind| kind.make(&loaded.records, Some(source)))
            .collect(),
        charts,
        records: &loaded.records,
    };
    page.render().unwrap()
}

#[test]
fn a_page_is_whole_and_asks_nothing_of_a_network() {
    let folder = tempfile::tempdir().unwrap();
    let mut loaded = loaded(folder.path());
    loaded.records[0].id = "<script>alert(1)</script>".to_owned();
    let text = page(&loaded);
    for kind in TABLES {
        let name = kind.name;
        assert!(text.contains(&format!("<table id=\"{name}\">")), "{name}");
    }
    assert_eq!(
        text.matches("<svg").count(),
        text.matches("<figure").count()
    );
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
        notes: vec![],
    };
    for forms in [
        &[Form::Line; 14][..],
        &[Form::Bubble(0.5), Form::Bubble(1.0)],
        &[],
    ] {
        let chart = chart(forms);
        let svg = chart.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert_eq!(svg.contains("model &lt;x&gt;"), !forms.is_empty(), "{svg}");
        let picture = image::load_from_memory(&chart.png().unwrap())
            .unwrap()
            .to_rgb8();
        let inked = picture.pixels().filter(|pixel| pixel.0 != [255; 3]).count();
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
            form: Form::Line,
        }],
        notes: vec![],
    };
    assert!(empty.svg().unwrap().contains("none"));
}

/// Opens the page in a headless browser, clicks the header of a column twice, and reads the order of the rows.
#[test]
fn a_browser_draws_and_sorts_the_page() {
    let browsers = ["chromium", "chromium-browser", "google-chrome"];
    let Some(browser) = browsers
        .into_iter()
        .find(|name| Command::new(name).arg("--version").output().is_ok())
    else {
        println!(
            "skipped: no browser of {} is installed",
            browsers.join(", ")
        );
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let text = page(&loaded(folder.path()));
    let rows = |clicks: usize| -> Vec<String> {
        let script = format!(
            "<script>const header = document.querySelector('#accuracy th:nth-child(3) button');\
             for (let i = 0; i < {clicks}; i++) header.click();\
             const shown = document.querySelectorAll('svg text').length > 20 && document.querySelector('svg').getBoundingClientRect().width > 300;\
             const cells = Array.from(document.querySelectorAll('#accuracy tbody td:nth-child(3)'), cell => cell.textContent);\
             document.body.textContent = 'ROWS:' + (shown ? '' : 'NOT DRAWN|') + cells.join('|') + ':END';</script>"
        );
        let file = folder.path().join(format!("page{clicks}.html"));
        fs::write(&file, text.replace("</body>", &(script + "</body>"))).unwrap();
        let output = Command::new(browser)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--dump-dom",
                "--virtual-time-budget=2000",
            ])
            .arg(format!(
                "--user-data-dir={}",
                folder.path().join("profile").display()
            ))
            .arg(format!("file://{}", file.display()))
            .output()
            .unwrap();
        let dom = String::from_utf8_lossy(&output.stdout).into_owned();
        let part = dom
            .split("ROWS:")
            .nth(1)
            .and_then(|rest| rest.split(":END").next());
        let part =
            part.unwrap_or_else(|| panic!("{dom}\n{}", String::from_utf8_lossy(&output.stderr)));
        part.split('|').map(str::to_owned).collect()
    };
    let first = rows(0);
    let numbers = |rows: &[String]| -> Vec<f64> {
        rows.iter()
            .filter_map(|row| row.split(' ').next()?.parse().ok())
            .collect()
    };
    let mut ascending = numbers(&first);
    ascending.sort_by(f64::total_cmp);
    let descending: Vec<f64> = ascending.iter().rev().copied().collect();
    assert_ne!(
        numbers(&first),
        descending,
        "the test needs rows out of order"
    );
    assert_eq!(numbers(&rows(1)), descending);
    assert_eq!(numbers(&rows(2)), ascending);
}
