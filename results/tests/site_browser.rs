//! The static site in a real browser, at four widths, light, dark and on paper, and its search; and
//! pictures of the site of this repository's records. `make screenshots` runs these tests with
//! those of the page.

#![allow(clippy::unwrap_used)]

use crate::chromium::{Browser, Look, pictures};
use crate::common::{repository, site};
use lra_results::site::File;

/// Pages of each kind.
const PAGES: [&str; 5] = [
    "index.html",
    "evidence.html",
    "model-performer.html",
    "task-listops.html",
    "source-tay2021.html",
];
/// Widths of windows in pixels: a telephone, two sizes of tablets, a desk.
const WIDTHS: [u32; 4] = [400, 600, 1000, 1400];

fn look(width: u32, dark: bool, print: bool) -> Look {
    Look {
        name: "site",
        part: "",
        width,
        height: 4000,
        dark,
        print,
    }
}

fn page(name: &str) -> String {
    text(&site::files(), name).to_owned()
}

fn text<'a>(files: &'a [File], name: &str) -> &'a str {
    &files.iter().find(|file| file.name == name).unwrap().text
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn nothing_of_a_site_is_cut_off_or_too_faint() {
    let browser = Browser::find();
    let screens = WIDTHS
        .iter()
        .flat_map(|width| [look(*width, false, false), look(*width, true, false)]);
    let looks: Vec<Look> = screens.chain([look(720, true, true)]).collect();
    let mut faults = String::new();
    for name in PAGES {
        let page = page(name);
        for look in &looks {
            let found = browser.ask(&page, *look, include_str!("chromium/faults.js"));
            faults.extend(
                found
                    .lines()
                    .map(|fault| format!("{name}: {look:?}: {fault}\n")),
            );
        }
    }
    assert!(faults.is_empty(), "{faults}");
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn the_search_finds_models_and_cells() {
    let browser = Browser::find();
    let script = "const filter = document.getElementById('filter');\
        const shown = (part) => Array.from(document.querySelectorAll(`#${part} tbody tr`)).filter(row => row.checkVisibility()).length;\
        const said = [];\
        for (const words of ['performer listops', 'nothing such', '']) {\
          filter.value = words; filter.dispatchEvent(new Event('input'));\
          said.push(shown('cells'), shown('sources'));\
        }\
        return said.join(' ');";
    let said = browser.ask(&page("index.html"), look(1000, false, false), script);
    let counts: Vec<usize> = said
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    assert_eq!(counts[..4], [1, 0, 0, 0], "{said}");
    assert!(counts[4] > 100 && counts[5] > 30, "{said}");
}

/// A page of each kind: the name of its pictures, its file, and the part to go to. A cell is a part
/// of its model's page.
const PICTURES: [(&str, &str, &str); 4] = [
    ("index", "index.html", ""),
    ("model", "model-performer.html", ""),
    ("task", "task-listops.html", ""),
    ("cell", "model-performer.html", "#cell-listops"),
];

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn the_site_of_this_repository_looks_as_it_did() {
    let browser = Browser::find();
    let files = repository::files();
    let mut faults = String::new();
    for (name, file, part) in PICTURES {
        let page = text(&files, file);
        for width in WIDTHS {
            let look = Look {
                part,
                height: 1200,
                ..look(width, false, false)
            };
            let found = browser.ask(page, look, include_str!("chromium/faults.js"));
            faults.extend(
                found
                    .lines()
                    .map(|fault| format!("{name}, {width}: {fault}\n")),
            );
            let picture = browser.picture(page, look);
            pictures::compare(&format!("site-{name}-{width}"), &picture, width, 2);
        }
    }
    assert!(faults.is_empty(), "{faults}");
}
