//! The static site: whole, linked, offline, safe, the same each time. `site_browser.rs` looks at
//! it.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use crate::common::repository;
use crate::common::site::{HOSTILE, files, site};
use lra_results::published;
use lra_results::site::File;
use serde_json::Value;

fn text<'a>(files: &'a [File], name: &str) -> &'a str {
    let found = files.iter().find(|file| file.name == name);
    &found.unwrap_or_else(|| panic!("{name} is missing")).text
}

/// Returns the values of an attribute.
fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    let after = page.split(&start as &str).skip(1);
    after.map(|rest| rest.split('"').next().unwrap()).collect()
}

/// Returns the part of a page with this id.
fn part<'a>(page: &'a str, id: &str) -> &'a str {
    let start = format!("<section id=\"{id}\">");
    let (_, rest) = page
        .split_once(&start)
        .unwrap_or_else(|| panic!("no part {id}"));
    rest.split_once("</section>").unwrap().0
}

/// Returns the cells of the rows of a part, without tags.
fn rows(part: &str) -> Vec<Vec<String>> {
    let rows = part.split("<tr").skip(2);
    let plain = |cell: &str| {
        let cell = cell
            .split_once('>')
            .unwrap()
            .1
            .split("</td>")
            .next()
            .unwrap();
        let mut words = String::new();
        for piece in cell.split('<') {
            words += piece.split_once('>').map_or(piece, |(_, text)| text);
        }
        words.trim().to_owned()
    };
    rows.map(|row| row.split("<td").skip(1).map(plain).collect())
        .collect()
}

/// Checks that every link leads to a file of the site and a part of it, and returns how many there
/// are.
fn follow_links(files: &[File]) -> usize {
    let ids: BTreeMap<&str, BTreeSet<&str>> = files
        .iter()
        .map(|file| {
            (
                file.name.as_str(),
                values(&file.text, "id").into_iter().collect(),
            )
        })
        .collect();
    let mut seen = 0;
    for file in files.iter().filter(|file| file.name.ends_with(".html")) {
        let hrefs = values(&file.text, "href").into_iter();
        for to in hrefs.filter(|to| !to.starts_with("https://")) {
            let (name, id) = to.split_once('#').unwrap_or((to, ""));
            let name = if name.is_empty() { &file.name } else { name };
            let there = ids
                .get(name)
                .unwrap_or_else(|| panic!("{}: {to}", file.name));
            assert!(id.is_empty() || there.contains(id), "{}: {to}", file.name);
            seen += 1;
        }
    }
    seen
}

#[test]
fn every_link_leads_to_a_file_and_a_part_of_it() {
    let seen = follow_links(&files());
    assert!(seen > 2_000, "{seen}");
}

/// The site of this repository's records: every page is there and whole, and every run is on the
/// page of its model.
#[test]
fn the_records_of_this_repository_become_a_site() {
    let site = repository::site();
    let mut unread = Vec::new();
    let files = site.files(&mut unread);
    assert!(unread.is_empty(), "{unread:?}");
    let seen = follow_links(&files);
    assert!(seen > 2_000, "{seen}");
    for file in files.iter().filter(|file| file.name.ends_with(".html")) {
        let page = &file.text;
        assert!(
            page.ends_with("</script>\n</body>\n</html>\n"),
            "{}",
            file.name
        );
        assert!(!page.contains("<h1></h1>"), "{}", file.name);
        let sections = page.matches("<section ").count();
        assert!(sections > 0 && page.matches("</section>").count() == sections);
        for part in page.split("<section ").skip(1) {
            let (_, content) = part.split_once("</h2>").unwrap();
            let (content, _) = content.split_once("</section>").unwrap();
            assert!(content.len() > 20, "{}: {part}", file.name);
            let rows = content.split("<tbody>").skip(1);
            for rows in rows {
                assert!(
                    rows.trim_start().starts_with("<tr"),
                    "{}: {part}",
                    file.name
                );
            }
        }
        for word in ["NaN", "inf %", "null"] {
            assert!(
                !page.contains(&format!(">{word}<")),
                "{}: {word}",
                file.name
            );
        }
    }
    assert!(site.runs.records.len() > 90);
    let index = text(&files, "index.html");
    let ranks = part(index, "ranks");
    assert!(ranks.contains("model-s4d.html") && ranks.contains("(best trivial predictor)"));
    let probes = part(index, "probes");
    assert!(probes.contains("model-s4d.html") && probes.contains("(most frequent answer)"));
    for run in &site.runs.records {
        let name = format!("model-{}.html", run.model.name.replace('_', "-"));
        let page = text(&files, &name);
        assert!(
            part(page, "runs").contains(&format!("<code>{}</code>", run.id)),
            "{}",
            run.id
        );
        assert!(index.contains(&format!("href=\"{name}\"")), "{name}");
    }
    // Only runs in folders have a log.
    for model in ["linear", "performer", "s4d", "s5", "transformer"] {
        let page = text(&files, &format!("model-{model}.html"));
        assert!(page.contains("<figure"), "{model}");
    }
    assert!(text(&files, "task-listops.html").contains("<section id=\"locality\">"));
}

#[test]
fn every_model_task_and_published_row_has_its_place() {
    let files = files();
    let index = text(&files, "index.html");
    let models = rows(part(index, "models"));
    for model in published::models().iter().chain(&["bag", "conv"]) {
        assert!(models.iter().any(|row| row[0] == *model), "{model}");
        text(&files, &format!("model-{}.html", model.replace('_', "-")));
    }
    for task in published::TASKS.iter().chain(&["mqar"]) {
        text(&files, &format!("task-{task}.html"));
    }
    let all = rows(part(text(&files, "evidence.html"), "evidence"));
    let re_run = |name: &str| name.contains("re-run") || name.contains("reproduction");
    let printed = all.iter().filter(|row| row[5] == "printed").count();
    let figures = published::figures().iter();
    let expected = figures.filter(|figure| !re_run(&figure.model)).count();
    assert!(expected < published::figures().len());
    assert_eq!(printed, expected);
    for source in published::sources() {
        let page = text(&files, &format!("source-{}.html", source.alias));
        let rows = rows(part(page, "figures"));
        assert_eq!(rows.len(), source.figures.len(), "{}", source.alias);
        for (row, figure) in rows.iter().zip(&source.figures) {
            assert_eq!((&row[2], &row[1]), (&figure.metric, &figure.text()));
            assert_eq!(
                !figure.defect.is_empty(),
                row[6].contains("defect: "),
                "{row:?}"
            );
        }
    }
    // Every figure of a model of ours is in the part of its cell, too.
    for figure in published::figures()
        .iter()
        .filter(|it| !it.entry.is_empty())
    {
        let page = text(
            &files,
            &format!("model-{}.html", figure.entry.replace('_', "-")),
        );
        let id = format!("cell-{}", figure.task.replace('_', ""));
        let known = rows(part(page, &id));
        let is_here = |row: &Vec<String>| row.get(1) == Some(&figure.text());
        assert!(known.iter().any(is_here), "{figure:?}");
    }
}

#[test]
fn tiers_ways_costs_and_searches_stand_in_the_part_of_a_cell() {
    let files = files();
    let performer = part(text(&files, "model-performer.html"), "cell-listops");
    let tiers: BTreeSet<String> = rows(performer)
        .into_iter()
        .filter_map(|row| row.get(3).cloned())
        .collect();
    for tier in ["printed", "imported", "re-run here"] {
        assert!(tiers.contains(tier), "{tier}: {tiers:?}");
    }
    // What is imported may be a copy or a claim: it is no re-run.
    assert!(!tiers.contains("re-run by others"), "{tiers:?}");
    assert!(performer.contains("38.25 ±0.50 (3)") && performer.contains("listops@512"));
    assert!(performer.contains("37.95 ±0.50 (3)") && performer.contains("tay2021: "));
    let transformer = part(text(&files, "model-transformer.html"), "cell-listops");
    for words in [
        "lra repro nystromformer listops transformer",
        "&gt; 12.2",
        "1 known difference: another &lt;tokenizer&gt;",
        "1 diverged",
    ] {
        assert!(transformer.contains(words), "{words}: {transformer}");
    }
    let image = part(text(&files, "model-performer.html"), "cell-image");
    assert!(image.contains("no recipe follows this source"));
    // Three rates: 30.5, 35.5 and 40.5 % on the validation split.
    let conv = part(text(&files, "model-conv.html"), "cell-listops");
    assert!(
        conv.contains("30.5 to 40.5") && conv.contains("35.5 of 1, 37.7 of 2"),
        "{conv}"
    );
    let page = text(&files, "model-performer.html");
    assert!(part(page, "card").contains("<pre>y_i = φ(q_i) S</pre>"));
    assert!(part(page, "mini").contains("listops@256"));
    assert!(part(page, "probes").contains("Probes"));
    assert!(page.contains("<figure") && page.contains("<section id=\"runs\">"));
}

#[test]
fn a_task_shows_floors_and_only_the_locality_that_is_known() {
    let files = files();
    let listops = text(&files, "task-listops.html");
    let floors = rows(part(listops, "floors"));
    for (name, accuracy) in [
        ("one of 10 classes at random", "10.00"),
        ("first token", "36.25"),
    ] {
        assert!(
            floors
                .iter()
                .any(|row| row[1] == name && row[2] == accuracy),
            "{floors:?}"
        );
    }
    let locality = part(listops, "locality");
    for words in [
        "bounded conv net, kernel 61",
        "in order 35.00: 10.00 points",
    ] {
        assert!(locality.contains(words), "{words}: {locality}");
    }
    assert!(!text(&files, "task-mqar.html").contains("id=\"locality\""));
    assert!(text(&files, "task-mqar.html").contains("a probe"));
}

/// The site says of this repository's runs what the table of probes says: shares of labelled
/// positions, and losses by permutation over the seeds of both orders.
#[test]
fn a_probe_shows_its_labelled_positions_and_a_permuted_task_the_loss_of_the_same_seeds() {
    let mut unread = Vec::new();
    let files = repository::site().files(&mut unread);
    assert!(unread.is_empty(), "{unread:?}");
    let mqar = text(&files, "task-mqar.html");
    assert!(
        mqar.contains(">99.95"),
        "the Transformer's, of whole rows 14 %"
    );
    assert!(mqar.contains("share of labelled positions, not of whole sequences"));
    let locality = part(text(&files, "task-listops.html"), "locality");
    for lost in ["6.80 points", "18.80 points", "14.90 points"] {
        assert!(locality.contains(lost), "{lost}: {locality}");
    }
}

#[test]
fn strings_of_records_are_text_everywhere() {
    let files = files();
    let index = text(&files, "index.html");
    assert!(index.contains(
        "../&lt;script&gt;alert(1)&lt;/script&gt;&quot; onload=&quot;x\u{fffd}[2J\u{fffd}"
    ));
    for file in &files {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        assert!(
            file.name.chars().all(allowed) && file.name.len() < 80,
            "{}",
            file.name
        );
        assert!(!file.text.contains(HOSTILE), "{}", file.name);
        let obeyed = |c: char| c != '\n' && (c.is_control() || c == '\u{202e}');
        assert!(!file.text.contains(obeyed), "{}", file.name);
        if file.name.ends_with(".html") {
            assert!(!file.text.contains("<script>alert"), "{}", file.name);
            assert_eq!(file.text.matches("<script").count(), 1, "{}", file.name);
            assert!(!file.text.contains("onload=\""), "{}", file.name);
        }
    }
    let feed: Value = serde_json::from_str(text(&files, "evidence.json")).unwrap();
    let mut all = feed["evidence"].as_array().unwrap().iter();
    let is_whole = |one: &Value| one["model"] == HOSTILE;
    assert!(all.any(is_whole), "JSON keeps strings as they are");
    // A spreadsheet would compute it.
    assert!(text(&files, "evidence.csv").contains("'=1+../<script>"));
}

#[test]
fn no_page_asks_anything_of_a_network() {
    for file in files().iter().filter(|file| file.name.ends_with(".html")) {
        assert!(values(&file.text, "src").is_empty(), "{}", file.name);
        // Readers may follow a link to a paper; a browser does not by itself.
        let text = file.text.replace("<a href=\"https://", "");
        for reference in [
            "@import",
            "url(",
            "href=\"http",
            "href=\"//",
            "<link",
            "<iframe",
            "<form",
        ] {
            assert!(!text.contains(reference), "{}: {reference}", file.name);
        }
    }
}

#[test]
fn sources_and_models_lead_to_their_papers() {
    let files = files();
    let link = "<a href=\"https://arxiv.org/abs/2011.04006\">arxiv.org/abs/2011.04006</a>";
    let tay = text(&files, "source-tay2021.html");
    assert!(tay.contains("Long Range Arena: A Benchmark for Efficient Transformers"));
    assert!(tay.contains(link));
}

#[test]
fn feeds_have_a_row_for_everything_and_agree() {
    let files = files();
    for (name, least) in [("evidence", published::figures().len()), ("cells", 140)] {
        let feed: Value = serde_json::from_str(text(&files, &format!("{name}.json"))).unwrap();
        let rows = feed[name].as_array().unwrap();
        assert!(rows.len() > least, "{name}: {}", rows.len());
        assert_eq!(feed["latest_run"], "2026-11-21");
        let mut csv = csv::Reader::from_reader(text(&files, &format!("{name}.csv")).as_bytes());
        let header = csv.headers().unwrap().clone();
        let keys: Vec<&str> = rows[0]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(header.iter().collect::<Vec<_>>(), keys);
        assert_eq!(csv.records().map(Result::unwrap).count(), rows.len());
    }
    let feed: Value = serde_json::from_str(text(&files, "cells.json")).unwrap();
    let cells = feed["cells"].as_array().unwrap();
    let is =
        |cell: &&Value, model: &str, task: &str| cell["model"] == model && cell["task"] == task;
    let conv = cells
        .iter()
        .find(|cell| is(cell, "conv", "listops"))
        .unwrap();
    assert_eq!(
        (&conv["settings_tried"], &conv["draws"]),
        (&3.into(), &2.into())
    );
    assert!((conv["here_mean"].as_f64().unwrap() - 40.0).abs() < 1e-9);
    // The run without pretraining that saw as many examples, not the one of as many steps.
    let luna = cells.iter().find(|cell| is(cell, "luna", "listops"));
    let luna = luna.unwrap();
    assert_eq!(luna["pretrained_mean"], 42.0);
    assert_eq!(luna["pretrained_examples"], 1500);
    assert_eq!(luna["alone_mean"], 39.0);
    let page = text(&files, "task-listops.html");
    assert!(page.contains("42.00, alone 39.00"), "{page}");
    let marker: Value = serde_json::from_str(text(&files, "lra-site.json")).unwrap();
    let listed: BTreeSet<&str> = marker["files"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(Value::as_str)
        .collect();
    assert_eq!(listed.len() + 1, files.len());
    assert!(
        files
            .iter()
            .all(|file| listed.contains(file.name.as_str()) || file.name == "lra-site.json")
    );
}

#[test]
fn equal_records_give_equal_bytes_wherever_they_lie() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = site(one.path()).files(&mut Vec::new());
    let second = site(other.path()).files(&mut Vec::new());
    for (a, b) in first.iter().zip(&second) {
        assert_eq!(a.name, b.name);
        assert!(a.text == b.text, "{}", a.name);
    }
    assert_eq!(first.len(), second.len());
}

/// A log that cannot be read is told, and the rest of the page stays.
#[test]
fn a_damaged_log_leaves_out_one_curve() {
    let folder = tempfile::tempdir().unwrap();
    let site = site(folder.path());
    std::fs::write(folder.path().join("0/metrics.jsonl"), "{\n").unwrap();
    let mut unread = Vec::new();
    let files = site.files(&mut unread);
    assert_eq!(unread.len(), 1, "{unread:?}");
    assert!(unread[0].contains("metrics.jsonl, line 1"), "{unread:?}");
    assert!(text(&files, "model-performer.html").contains("<figure"));
}

#[test]
fn every_name_of_the_feeds_is_documented() {
    let page = include_str!("../../docs/formats.md");
    let (_, after) = page.split_once("\n## Files of a site\n").unwrap();
    let docs = after.split("\n## ").next().unwrap();
    let files = files();
    for name in ["evidence", "cells"] {
        let feed: Value = serde_json::from_str(text(&files, &format!("{name}.json"))).unwrap();
        for key in feed[name][0].as_object().unwrap().keys() {
            assert!(docs.contains(&format!("`{key}`")), "{name}: {key}");
        }
    }
}
