//! The page in a real browser: how it looks at three widths, light, dark and on paper, and what its
//! script does.
//!
//! `make screenshots` runs these tests, and `make screenshots RENEW=1` renews the pictures in
//! `tests/screenshots/`. They are kept small, and compared coarsely: a browser's next version draws
//! letters otherwise.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::chromium::{Browser, Look};
use crate::common::page;
use tiny_skia::{Pixmap, PremultipliedColorU8};

const fn screen(name: &'static str, width: u32, height: u32, dark: bool) -> Look {
    Look {
        name,
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
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screenshots");
    let renew = std::env::var_os("RENEW").is_some_and(|value| !value.is_empty());
    for look in LOOKS {
        let file = folder.join(format!("{}.png", look.name));
        let mine = shrunk(&browser.picture(&page, look), look.width);
        if renew {
            fs::create_dir_all(&folder).unwrap();
            fs::write(&file, mine.encode_png().unwrap()).unwrap();
            continue;
        }
        let kept = Pixmap::decode_png(&fs::read(&file).unwrap()).unwrap();
        assert_eq!(
            (mine.width(), mine.height()),
            (kept.width(), kept.height()),
            "{}",
            look.name
        );
        let share = different(&mine, &kept);
        if share > 0.01 {
            let seen = std::env::temp_dir().join(format!("lra-page-{}.png", look.name));
            fs::write(&seen, mine.encode_png().unwrap()).unwrap();
            panic!(
                "{:.1} % of {} is not as it was: see {}",
                100.0 * share,
                look.name,
                seen.display()
            );
        }
    }
}

/// Dots of a picture, along each side, that become one of the picture that is kept.
const SHRINK: u32 = 6;

/// Returns the picture made small, each dot the mean of those that it stands for; what is right of
/// `width` is left out.
fn shrunk(picture: &Pixmap, width: u32) -> Pixmap {
    let mut small = Pixmap::new(width / SHRINK, picture.height() / SHRINK).unwrap();
    let columns = small.width();
    for (index, dot) in small.pixels_mut().iter_mut().enumerate() {
        let (x, y) = (
            SHRINK * (index as u32 % columns),
            SHRINK * (index as u32 / columns),
        );
        let mean = |of: fn(PremultipliedColorU8) -> u8| {
            let dots =
                (0..SHRINK * SHRINK).map(|at| picture.pixel(x + at % SHRINK, y + at / SHRINK));
            let sum: u32 = dots.map(|dot| u32::from(of(dot.unwrap()))).sum();
            (sum / (SHRINK * SHRINK)) as u8
        };
        let (red, green, blue) = (
            mean(|dot| dot.red()),
            mean(|dot| dot.green()),
            mean(|dot| dot.blue()),
        );
        *dot = PremultipliedColorU8::from_rgba(red, green, blue, 255).unwrap();
    }
    small
}

/// Share of the dots that differ by more than a fifth of all brightness, each the mean of its
/// neighbourhood.
fn different(a: &Pixmap, b: &Pixmap) -> f64 {
    let brightness = |picture: &Pixmap, x: u32, y: u32| -> [f64; 3] {
        let mut sum = [0.0; 3];
        for at in 0..9 {
            let (x, y) = (
                (x + at % 3).min(picture.width() - 1),
                (y + at / 3).min(picture.height() - 1),
            );
            let dot = picture.pixel(x, y).unwrap();
            for (sum, part) in sum.iter_mut().zip([dot.red(), dot.green(), dot.blue()]) {
                *sum += f64::from(part) / 9.0 / 255.0;
            }
        }
        sum
    };
    let places = (0..a.height()).flat_map(|y| (0..a.width()).map(move |x| (x, y)));
    let differ = places.filter(|(x, y)| {
        let (mine, theirs) = (brightness(a, *x, *y), brightness(b, *x, *y));
        mine.iter()
            .zip(theirs)
            .any(|(mine, theirs)| (mine - theirs).abs() > 0.2)
    });
    differ.count() as f64 / f64::from(a.width() * a.height())
}

#[test]
fn pictures_are_compared_by_what_can_be_seen() {
    let filled = |red: u8, from: u32| {
        let mut picture = Pixmap::new(40, 40).unwrap();
        for (index, dot) in picture.pixels_mut().iter_mut().enumerate() {
            let part = if index as u32 / 40 >= from { red } else { 255 };
            *dot = PremultipliedColorU8::from_rgba(part, 255, 255, 255).unwrap();
        }
        picture
    };
    assert_eq!(different(&filled(200, 0), &filled(210, 0)), 0.0);
    assert_eq!(different(&filled(0, 0), &filled(255, 0)), 1.0);
    let half = different(&filled(0, 20), &filled(255, 20));
    assert!((0.45..0.6).contains(&half), "{half}");
    let small = shrunk(&filled(0, 20), 40);
    assert_eq!((small.width(), small.height()), (6, 6));
    let red = |y| small.pixel(2, y).unwrap().red();
    assert_eq!((red(2), red(3), red(5)), (255, 85, 0));
}
