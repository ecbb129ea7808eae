//! The static site in a real browser, at four widths, light, dark and on paper, and its search.
//! `make screenshots` runs these tests with those of the page.

#![allow(clippy::unwrap_used)]

use crate::chromium::{Browser, Look};
use crate::common::site;

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
        width,
        height: 4000,
        dark,
        print,
    }
}

fn page(name: &str) -> String {
    let files = site::files().into_iter();
    let mut found = files.filter(|file| file.name == name);
    found.next().unwrap().text
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn nothing_of_a_site_is_cut_off_or_too_faint() {
    let browser = Browser::find();
    let screens = WIDTHS
        .iter()
        .flat_map(|width| [look(*width, false, false), look(*width, true, false)]);
    let looks: Vec<Look> = screens.chain([look(720, true, true)]).collect();
    for name in PAGES {
        let page = page(name);
        for look in &looks {
            let faults = browser.ask(&page, *look, include_str!("chromium/faults.js"));
            assert_eq!(faults, "", "{name}: {look:?}");
        }
    }
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
