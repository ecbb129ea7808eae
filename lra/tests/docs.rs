//! Pages of the documentation: every link has a target, and the book contains every page.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

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
    assert!(leads_somewhere("docs/using.md", "../README.md#use"));
    assert!(leads_somewhere("docs/using.md", "#recipes"));
    for nowhere in ["README.md", "#use", "../README.md#no-such-heading"] {
        assert!(!leads_somewhere("docs/using.md", nowhere), "{nowhere}");
    }
}
