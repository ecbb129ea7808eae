//! The page in a real browser: how it looks at three widths, light, dark and on paper, and what its
//! script does.
//!
//! `make screenshots` runs these tests, and `make screenshots RENEW=1` renews the pictures in
//! `tests/screenshots/`.

#![allow(clippy::unwrap_used)]

use crate::chromium::{Browser, Look, pictures};
use crate::common::page;

const fn screen(name: &'static str, width: u32, height: u32, dark: bool) -> Look {
    Look {
        name,
        part: "",
        width,
        height,
        dark,
        print: false,
    }
}

const LOOKS: [Look; 7] = [
    screen("1400-light", 1400, 4000, false),
    screen("1400-dark", 1400, 4000, true),
    screen("800-light", 800, 4000, false),
    screen("800-dark", 800, 4000, true),
    screen("400-light", 400, 4800, false),
    screen("400-dark", 400, 4800, true),
    Look {
        name: "print",
        part: "",
        width: 720,
        height: 4000,
        // Paper is white, regardless of the screen is.
        dark: true,
        print: true,
    },
];

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn nothing_is_cut_off_covered_or_too_faint() {
    let browser = Browser::find();
    let page = page::page();
    for look in LOOKS {
        let faults = browser.ask(&page, look, include_str!("chromium/faults.js"));
        assert_eq!(faults, "", "{}", look.name);
    }
}

/// The faults are found where there are some.
#[test]
#[ignore = "needs Chromium: make screenshots"]
fn faults_are_seen() {
    let browser = Browser::find();
    let bad = "<style>h1 { color: #999; width: 2000px; } svg text { transform: translateX(500px); } .narrow { display: block !important; } .sorts td:first-child { min-width: 1500px; }</style></head>";
    let page = page::page().replace("</head>", bad);
    let faults = browser.ask(&page, LOOKS[0], include_str!("chromium/faults.js"));
    for expected in [
        "contrast 2.",
        "outside the window: H1",
        "cut off: text",
        "2 drawings",
        "the page is",
        "out of sight: TH",
    ] {
        assert!(faults.contains(expected), "{expected} is not in: {faults}");
    }
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn headers_sort() {
    let browser = Browser::find();
    let page = page::page();
    let order = |clicks: usize| -> Vec<f64> {
        let script = format!(
            "const header = document.querySelector('#accuracy th:nth-child(3)');\
             for (let i = 0; i < {clicks}; i++) header.querySelector('button').click();\
             const cells = document.querySelectorAll('#accuracy tbody td:nth-child(3)[data-value]');\
             return Array.from(cells, cell => cell.dataset.value).join(' ');"
        );
        let said = browser.ask(&page, LOOKS[0], &script);
        said.split(' ')
            .map(|value| value.parse().unwrap())
            .collect()
    };
    let mut ascending = order(0);
    ascending.sort_by(f64::total_cmp);
    let descending: Vec<f64> = ascending.iter().rev().copied().collect();
    assert_ne!(order(0), descending, "the test needs rows out of order");
    assert_eq!(order(1), descending);
    assert_eq!(order(2), ascending);
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn the_filter_and_the_legends_hide_what_is_not_wanted() {
    let browser = Browser::find();
    let script = "const said = [];\
        const rows = () => Array.from(document.querySelectorAll('#accuracy tbody tr')).filter(row => row.checkVisibility()).length;\
        const filter = document.getElementById('filter');\
        for (const words of ['Performer measured', 'nothing such', '']) {\
          filter.value = words; filter.dispatchEvent(new Event('input'));\
          said.push(rows());\
        }\
        const figure = document.querySelector('figure');\
        const series = () => Array.from(figure.querySelectorAll('.wide .series')).filter(one => getComputedStyle(one).display !== 'none').length;\
        said.push(series());\
        const box = figure.querySelector('.legend input'); box.click(); said.push(series()); box.click(); said.push(series());\
        return said.join(' ');";
    let said = browser.ask(&page::page(), LOOKS[0], script);
    let said: Vec<usize> = said
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    let [performer, none, all, before, hidden, after] = said[..] else {
        panic!("{said:?}");
    };
    assert_eq!((performer, none), (1, 0));
    assert!(all > 5);
    assert!(hidden < before && after == before, "{said:?}");
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn the_page_can_be_printed() {
    let pdf = Browser::find().pdf(&page::page(), LOOKS[1]);
    assert!(pdf.starts_with(b"%PDF"));
}

#[test]
#[ignore = "needs Chromium: make screenshots"]
fn the_page_looks_as_it_did() {
    let browser = Browser::find();
    let page = page::page();
    for look in LOOKS {
        let picture = browser.picture(&page, look);
        pictures::compare(look.name, &picture, look.width, 6);
    }
}
