//! Pictures on file, and whether a page still looks like them.
//!
//! They are compared coarsely: a browser's next version draws letters otherwise.

use std::fs;
use std::path::Path;

use tiny_skia::{Pixmap, PremultipliedColorU8};

/// Dots of a page, along each side, that are compared as one.
const COARSE: u32 = 6;

/// Compares a picture with the one on file, which keeps a dot for each `shrink` dots of the page
/// along each side; with `RENEW` set, writes that file instead.
pub fn compare(name: &str, picture: &Pixmap, width: u32, shrink: u32) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screenshots");
    let file = folder.join(format!("{name}.png"));
    let mine = shrunk(picture, width, shrink);
    if std::env::var_os("RENEW").is_some_and(|value| !value.is_empty()) {
        fs::create_dir_all(&folder).unwrap();
        fs::write(&file, mine.encode_png().unwrap()).unwrap();
        return;
    }
    let kept = Pixmap::decode_png(&fs::read(&file).unwrap()).unwrap();
    let size = |picture: &Pixmap| (picture.width(), picture.height());
    assert_eq!(size(&mine), size(&kept), "{name}");
    let coarse = |picture: &Pixmap| shrunk(picture, picture.width(), COARSE / shrink);
    let share = different(&coarse(&mine), &coarse(&kept));
    if share > 0.01 {
        let seen = std::env::temp_dir().join(format!("lra-page-{name}.png"));
        fs::write(&seen, mine.encode_png().unwrap()).unwrap();
        panic!(
            "{:.1} % of {name} is not as it was: see {}",
            100.0 * share,
            seen.display()
        );
    }
}

/// Returns the picture made small, each dot the mean of `by` dots along each side; what is right of
/// `width` is left out.
fn shrunk(picture: &Pixmap, width: u32, by: u32) -> Pixmap {
    let mut small = Pixmap::new(width / by, picture.height() / by).unwrap();
    let columns = small.width();
    for (index, dot) in small.pixels_mut().iter_mut().enumerate() {
        let (x, y) = (by * (index as u32 % columns), by * (index as u32 / columns));
        let mean = |of: fn(PremultipliedColorU8) -> u8| {
            let dots = (0..by * by).map(|at| picture.pixel(x + at % by, y + at / by));
            let sum: u32 = dots.map(|dot| u32::from(of(dot.unwrap()))).sum();
            (sum / (by * by)) as u8
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
    let small = shrunk(&filled(0, 20), 40, 6);
    assert_eq!((small.width(), small.height()), (6, 6));
    let red = |y| small.pixel(2, y).unwrap().red();
    assert_eq!((red(2), red(3), red(5)), (255, 85, 0));
}
