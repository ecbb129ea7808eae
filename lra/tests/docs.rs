//! Pages of the documentation: every link has a target, the book contains every page, and what the
//! program says of itself is on its pages.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::common::Place;

/// Environment variable with which the pages that the program writes are renewed.
const RENEW: &str = "LRA_RENEW_DOCS";

const CONTENTS: &str = "docs/SUMMARY.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(page: &str) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// Returns all pages for readers, as paths from the root.
fn pages() -> BTreeSet<String> {
    let within = |folder: &str| {
        let files = fs::read_dir(root().join(folder)).unwrap();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let pages = names.filter(|name| name.ends_with(".md"));
        pages
            .map(|name| format!("{folder}{name}"))
            .collect::<Vec<_>>()
    };
    within("").into_iter().chain(within("docs/")).collect()
}

/// Returns the lines that are not within a block of code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut code = false;
    text.lines().filter(move |line| {
        let fence = line.starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Returns the targets of the links of a page, except for other sites.
fn links(text: &str) -> Vec<String> {
    let plain = |line: &str| line.split('`').step_by(2).collect::<Vec<_>>().join("");
    let targets = |line: String| {
        let after = line.split("](").skip(1);
        let targets = after.filter_map(|rest| rest.split_once(')'));
        targets.map(|(to, _)| to.to_owned()).collect::<Vec<_>>()
    };
    let all = prose(text).map(plain).flat_map(targets);
    all.filter(|to| !to.contains("://")).collect()
}

/// Returns the anchor that GitHub and mdBook give to a heading.
fn anchor(heading: &str) -> String {
    let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
    let title = heading.trim_start_matches('#').trim().to_lowercase();
    title
        .chars()
        .filter(kept)
        .collect::<String>()
        .replace(' ', "-")
}

/// Returns whether a page's link leads to a file, and to a heading of it if it names one.
fn leads_somewhere(page: &str, to: &str) -> bool {
    let (file, heading) = to.split_once('#').unwrap_or((to, ""));
    let path = match file {
        "" => root().join(page),
        file => root().join(page).parent().unwrap().join(file),
    };
    let headings = |text: &str| {
        prose(text)
            .filter(|line| line.starts_with('#'))
            .any(|line| anchor(line) == heading)
    };
    path.exists()
        && (heading.is_empty() || fs::read_to_string(path).is_ok_and(|text| headings(&text)))
}

#[test]
fn every_link_leads_somewhere() {
    let mut seen = 0;
    for page in pages() {
        for link in links(&read(&page)) {
            assert!(leads_somewhere(&page, &link), "{page}: {link}");
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

#[test]
fn the_book_has_every_page() {
    let listed = links(&read(CONTENTS)).into_iter();
    let listed = listed.map(|to| match to.strip_prefix("../") {
        Some(above) => above.to_owned(),
        None => format!("docs/{to}"),
    });
    let mut pages = pages();
    pages.remove(CONTENTS);
    assert_eq!(listed.collect::<BTreeSet<_>>(), pages);
}

#[test]
fn links_that_lead_nowhere_are_seen() {
    let text = "[a](b.md) `[code](c.md)` ![d](e.svg)\n```sh\n[f](g.md)\n```\n[h](https://i)\n";
    assert_eq!(links(text), ["b.md", "e.svg"]);
    assert_eq!(
        anchor("## Speed, and `--memory` over_length"),
        "speed-and---memory-over_length"
    );
    assert!(leads_somewhere("docs/settings.md", "../README.md#use"));
    assert!(leads_somewhere("docs/settings.md", "#recipes"));
    for nowhere in ["README.md", "#use", "../README.md#no-such-heading"] {
        assert!(!leads_somewhere("docs/settings.md", nowhere), "{nowhere}");
    }
}

/// Compares a page with the text that the program gives for it, or renews the page.
fn is_on_page(page: &str, text: &str) {
    if std::env::var_os(RENEW).is_some() {
        fs::write(root().join(page), text).unwrap();
    }
    assert!(
        read(page) == text,
        "{page} is not what the program says: {RENEW}=1 renews it"
    );
}

#[test]
fn the_page_of_all_settings_is_that_of_the_program() {
    let place = Place::new();
    let settings: Vec<Value> = serde_json::from_str(&place.ok("list settings --json")).unwrap();
    let mut text = "# All settings\n\n\
        This page is made from the program, by the test of the documentation. [Settings](settings.md) explains the sections.\n\
        The options of tasks (`data.*`) and of models (`model.*`) are listed by `lra list tasks NAME` and `lra list models NAME`.\n"
        .to_owned();
    let mut section = String::new();
    let cell = |value: &Value| {
        let words = match value {
            Value::Null => "-".to_owned(),
            Value::String(words) => words.clone(),
            other => other.to_string(),
        };
        words.replace('|', "\\|")
    };
    for it in &settings {
        let name = it["setting"].as_str().unwrap();
        let of = name.split('.').next().unwrap();
        if of != section {
            section = of.to_owned();
            text += &format!(
                "\n## `{of}`\n\n| setting | default | values | meaning |\n|---|---|---|---|\n"
            );
        }
        let [default, values, meaning] = ["default", "values", "meaning"].map(|key| cell(&it[key]));
        text += &format!("| `{name}` | `{default}` | {values} | {meaning} |\n");
    }
    assert!(settings.len() > 60 && !section.is_empty());
    is_on_page("docs/all-settings.md", &text);
}

#[test]
fn the_page_of_all_commands_is_that_of_the_program() {
    let place = Place::new();
    place.ok("man pages");
    let pages = fs::read_dir(place.path().join("pages")).unwrap();
    let names = pages.map(|file| file.unwrap().file_name().into_string().unwrap());
    let verbs = names.filter_map(|name| {
        let name = name.strip_prefix("lra-")?.strip_suffix(".1")?.to_owned();
        // `lra-data-make` is `lra data make`, `lra-check-model` is `lra check-model`.
        match name.split_once('-') {
            Some((group @ ("data" | "new"), verb)) => Some(format!("{group} {verb}")),
            _ => Some(name),
        }
    });
    let verbs: BTreeSet<String> = verbs.collect();
    assert!(verbs.len() > 25, "{verbs:?}");
    let mut text = "# All commands and options\n\n\
        This page is made from the program, by the test of the documentation. [Commands](verbs.md) says what each command is for.\n"
        .to_owned();
    for verb in verbs {
        let help = place.ok(&format!("{verb} -h"));
        text += &format!("\n## `lra {verb}`\n\n```text\n{}\n```\n", help.trim_end());
    }
    is_on_page("docs/all-commands.md", &text);
}

#[test]
fn the_schemas_are_those_of_the_program() {
    let place = Place::new();
    let schemas: Vec<Value> = serde_json::from_str(&place.ok("list schemas --json")).unwrap();
    let mut names = BTreeSet::new();
    for it in &schemas {
        let name = it["name"].as_str().unwrap();
        let schema = place.ok(&format!("list schemas {name}"));
        let parsed: Value = serde_json::from_str(&schema).unwrap();
        assert_eq!(parsed["title"], it["describes"], "{name}");
        is_on_page(&format!("docs/schemas/{name}.schema.json"), &schema);
        names.insert(format!("{name}.schema.json"));
    }
    let files = fs::read_dir(root().join("docs/schemas")).unwrap();
    let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(files.collect::<BTreeSet<_>>(), names);
}

/// The tables of the small protocol in README, and of the probes in the documentation, are those of
/// their records.
#[test]
fn tables_on_pages_are_those_of_the_records() {
    let place = Place::new();
    for (file, kind, page) in [
        ("results/mini/records.csv", "ranks", "README.md"),
        ("results/probes/records.csv", "probes", "docs/probes.md"),
    ] {
        let records = root().join(file);
        let words = ["report", records.to_str().unwrap(), "--table", kind];
        let output = place
            .command("")
            .args(words)
            .args(["--format", "markdown"])
            .output();
        let table = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(table.contains("| s4d "), "{table}");
        assert!(
            read(page).contains(table.trim()),
            "renew it by `lra report {file} --table {kind} --splice {page}`"
        );
    }
}

/// The tables of speed and memory are those of the session of `lra bench` on file.
#[test]
fn tables_of_speed_are_those_of_the_session() {
    let place = Place::new();
    let page = "docs/speed.md";
    fs::write(place.path().join("speed.md"), read(page)).unwrap();
    let session = root().join("results/bench/cpu.jsonl");
    let words = ["report", "--splice", "speed.md", "--bench"];
    let output = place.command("").args(words).arg(&session).output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(
        fs::read_to_string(place.path().join("speed.md")).unwrap() == read(page),
        "renew it by `lra report --bench results/bench/cpu.jsonl --splice {page}`"
    );
}

/// Returns the text of a page between a heading and the next one of its level or above.
fn section(page: &str, heading: &str) -> String {
    let text = read(page);
    let level = heading.split(' ').next().unwrap().len();
    let (_, rest) = text.split_once(&format!("\n{heading}\n")).unwrap();
    let ends = |line: &&str| {
        let depth = line.chars().take_while(|c| *c == '#').count();
        depth > 0 && depth <= level
    };
    let lines: Vec<&str> = rest.lines().take_while(|line| !ends(line)).collect();
    lines.join("\n")
}

/// README names the models at the top of its table without comparable published figures, and those
/// with strong ones further down.
#[test]
fn the_top_of_the_table_is_as_readme_says() {
    let text = section("README.md", "## The table");
    let order: Vec<String> = text
        .lines()
        .filter(|line| line.starts_with('|') && line.contains(" to "))
        .map(|line| line.split('|').nth(2).unwrap().trim().replace('\\', ""))
        .collect();
    let order: Vec<&str> = order.iter().map(String::as_str).collect();
    let anchors = read("results/anchors.csv");
    let strong: Vec<&str> = anchors
        .lines()
        .filter_map(|line| line.split_once(",strong,"))
        .map(|(model, _)| model)
        .collect();
    let prose = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let between = |start: &str, end: &str| {
        let (_, rest) = prose.split_once(start).unwrap_or_else(|| panic!("{start}"));
        rest.split_once(end).unwrap().0.to_owned()
    };
    let names = |text: String| -> BTreeSet<String> {
        text.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    let others = names(between("no comparable one: ", "Models with such"));
    let lower = names(between("that rank lower: ", ". "));
    let at_the_top = strong.len() - lower.len();
    let (top, rest) = order.split_at(at_the_top + others.len());
    let is_strong = |model: &&&str| strong.contains(*model);
    let owned = |models: Vec<&&str>| models.into_iter().map(ToString::to_string).collect();
    let found: BTreeSet<String> = owned(top.iter().filter(|it| !is_strong(it)).collect());
    assert_eq!(found, others, "at the top without strong figures");
    let found: BTreeSet<String> = owned(rest.iter().filter(is_strong).collect());
    assert_eq!(found, lower, "with strong figures, below the top");
    let words = [
        "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen",
    ];
    let said = format!(
        "Of the {} models at the top, {} have",
        words[top.len() - 8],
        words[at_the_top - 8]
    );
    assert!(prose.contains(&said), "{said}: {prose}");
}

/// Speed is shown beside PyTorch as installed and as tuned, with how both are set, and what is
/// said of all rows holds beside the tuned one.
#[test]
fn speed_is_claimed_beside_tuned_pytorch() {
    let text = section("README.md", "## Compared with PyTorch");
    let rows = text.lines().filter(|line| line.starts_with('|'));
    let rows = rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect());
    let rows: Vec<Vec<&str>> = rows.collect();
    let column = |name: &str| rows[0].iter().position(|it| *it == name).unwrap();
    let figures = |name: &str| -> Vec<f64> {
        let cells = rows[2..].iter().map(|row| row[column(name)]);
        cells.map(|cell| cell.parse().unwrap()).collect()
    };
    let (installed, tuned) = (figures("as installed"), figures("tuned"));
    assert!(tuned.len() > 10 && installed.len() == tuned.len());
    let prose = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let least = tuned.iter().copied().fold(f64::INFINITY, f64::min);
    let most = tuned.iter().copied().fold(0.0, f64::max);
    for bound in [least, most] {
        assert!(prose.contains(&format!("{bound:.2} (")), "{bound}: {prose}");
    }
    let slower = tuned.iter().filter(|ratio| **ratio > 1.0).count();
    let said = format!("slower in {slower} of {}", tuned.len());
    assert!(prose.contains(&said), "{said}: {prose}");

    let recipe = section("docs/measured.md", "### As installed and tuned");
    for words in [
        "GLIBC_TUNABLES=",
        "mkl_serv_intel_cpu_true",
        "compare.py --tuned",
    ] {
        assert!(recipe.contains(words), "{words}");
    }
}
