//! Tests that nothing is cut off and that no texts overlap.

use super::*;
use crate::chart::scene::{Outline, Rect};
use crate::chart::{Axis, Baseline, Scale};

/// Returns a chart of `count` series with names of all lengths, and with values close together and
/// far apart.
fn chart(count: usize, form: fn(usize) -> Form, scale: Scale) -> Chart {
    let series = (0..count).map(|index| {
        let height = |step: usize| 20.0 + ((7 * index + 3 * step) % 11) as f64;
        Series {
            name: format!("model_{index} {}", "with=options ".repeat(index % 4)),
            rank: index,
            points: match form(index) {
                Form::Line => (1..40)
                    .map(|step| (250.0 * step as f64, height(step)))
                    .collect(),
                Form::Bubble(_) => vec![(1.5f64.powi(index as i32 % 9), height(0))],
            },
            band: (1..40)
                .filter(|_| form(index) == Form::Line)
                .map(|step| (250.0 * step as f64, height(step) - 2.0, height(step) + 2.0))
                .collect(),
            form: form(index),
        }
    });
    let baseline = |name: &str, y| Baseline {
        name: name.to_owned(),
        y,
    };
    Chart {
        name: "chart".to_owned(),
        title: "listops@256 (synthetic), recipe nystromformer: learning curves ".repeat(2),
        x: Axis::new("training speed, steps/s", scale),
        y: Axis::new("test accuracy, %", Scale::Linear),
        series: series.collect(),
        baselines: vec![
            baseline("majority", 20.1),
            baseline("bag of tokens", 20.2),
            baseline("first token only", 36.3),
            baseline("what another program calls a baseline, at length", 41.0),
        ],
        notes: vec![],
    }
}

fn bubble(index: usize) -> Form {
    Form::Bubble(1.0 / (1 + index) as f64)
}

/// The area of a disc is its share; the smallest can still be seen.
#[test]
fn discs_have_the_area_of_their_share() {
    let mut chart = chart(3, |_| Form::Line, Scale::Linear);
    for (series, share) in chart.series.iter_mut().zip([1.0, 0.25, 1e-6]) {
        series.form = Form::Bubble(share);
        series.points.truncate(1);
        series.band.clear();
    }
    chart.series[1].points = vec![(2_000.0, 30.0)];
    let drawn = scene(&chart, &Sheet::WIDE);
    let discs: Vec<(f64, String)> = drawn
        .elements
        .iter()
        .filter_map(|element| match element {
            Element::Series {
                title, elements, ..
            } => elements.iter().find_map(|part| match part {
                Element::Shape(shape) => match shape.outline {
                    Outline::Disc(_, radius) => Some((radius, title.clone())),
                    _ => None,
                },
                _ => None,
            }),
            _ => None,
        })
        .collect();
    let radii: Vec<f64> = discs.iter().map(|(radius, _)| *radius).collect();
    let largest = Sheet::WIDE.bubble;
    // The large ones are below the small ones.
    let expected = [1.0, 0.5, 0.02f64.sqrt()].map(|share| largest * share);
    assert_eq!(radii, expected);
    assert!(discs[1].1.ends_with(": 30 at 2,000"), "{discs:?}");
}

/// A line has a marker at its last point, where runs are compared, and a band from the lowest to
/// the highest.
#[test]
fn lines_end_in_a_marker_and_bands_reach_their_ends() {
    let chart = chart(1, |_| Form::Line, Scale::Linear);
    let drawn = scene(&chart, &Sheet::WIDE);
    let shapes: Vec<&Shape> = drawn
        .elements
        .iter()
        .filter_map(|element| match element {
            Element::Series { elements, .. } => Some(elements),
            _ => None,
        })
        .flatten()
        .filter_map(|part| match part {
            Element::Shape(shape) => Some(shape),
            _ => None,
        })
        .collect();
    let (x, y) = chart.series[0].points[chart.series[0].points.len() - 1];
    let told = format!(": {y} at 9,750");
    assert_eq!(x, 9_750.0);
    assert!(
        shapes.iter().any(|shape| shape.title.ends_with(&told)),
        "{told}"
    );
    let is_line = |shape: &&&Shape| matches!(shape.outline, Outline::Open(_));
    let line = shapes.iter().find(is_line).unwrap().bounds();
    let is_band = |shape: &&&Shape| shape.fill.is_some_and(|(_, opacity)| opacity < 1.0);
    let band = shapes.iter().find(is_band).unwrap().bounds();
    // As far above the line as below it.
    let (above, below) = (line.top - band.top, band.bottom - line.bottom);
    assert!(
        above > 1.0 && (above - below).abs() < 1e-6,
        "{above} {below}"
    );
}

/// Names go down the columns of a legend, in the order of the tables.
#[test]
fn a_legend_is_read_down_its_columns() {
    let mut chart = chart(5, |_| Form::Line, Scale::Linear);
    for (index, series) in chart.series.iter_mut().enumerate() {
        series.name = format!("a name that takes its room {index}");
    }
    let mut elements = Vec::new();
    legend(&chart, &Sheet::FILE, 0.0, &mut elements);
    let places: Vec<Point> = elements
        .iter()
        .filter_map(|element| match element {
            Element::Series { elements, .. } => elements.iter().find_map(|part| match part {
                Element::Text(text) => Some(text.at),
                _ => None,
            }),
            _ => None,
        })
        .collect();
    assert_eq!(places.len(), 5);
    assert!(
        places[1].0 == places[0].0 && places[1].1 > places[0].1,
        "{places:?}"
    );
    assert!(places[4].0 > places[0].0, "{places:?}");
}

const SHEETS: [Sheet; 3] = [Sheet::FILE, Sheet::WIDE, Sheet::NARROW];

fn all(sheets: &[Sheet]) -> Vec<(Chart, &Sheet, Scene)> {
    let mut all = Vec::new();
    for count in [0, 1, 3, 14, 61] {
        for (form, scale) in [
            ((|_| Form::Line) as fn(usize) -> Form, Scale::Linear),
            (|_| Form::Line, Scale::Doubling),
            (bubble, Scale::Log),
        ] {
            for sheet in sheets {
                let chart = chart(count, form, scale);
                let scene = scene(&chart, sheet);
                all.push((chart, sheet, scene));
            }
        }
    }
    all
}

/// Returns every shape and every text, with those of series.
fn parts(elements: &[Element]) -> Vec<&Element> {
    let each = elements.iter().flat_map(|element| match element {
        Element::Series { elements, .. } => parts(elements),
        other => vec![other],
    });
    each.collect()
}

fn texts(scene: &Scene) -> Vec<&Text> {
    let parts = parts(&scene.elements).into_iter();
    parts
        .filter_map(|part| match part {
            Element::Text(text) => Some(text),
            _ => None,
        })
        .collect()
}

#[test]
fn everything_lies_within_the_drawing() {
    for (chart, _, scene) in all(&SHEETS) {
        let sheet = Rect {
            left: 0.0,
            top: 0.0,
            right: scene.width,
            bottom: scene.height,
        };
        for part in parts(&scene.elements) {
            let (bounds, what) = match part {
                Element::Shape(shape) => (shape.bounds(), "a shape"),
                Element::Text(text) => (text.bounds(), text.words.as_str()),
                Element::Series { .. } => continue,
            };
            let series = chart.series.len();
            assert!(
                sheet.holds(&bounds),
                "{what} of {series} series: {bounds:?}"
            );
        }
    }
}

#[test]
fn no_text_lies_on_another() {
    for (chart, _, scene) in all(&SHEETS) {
        let texts = texts(&scene);
        for (index, one) in texts.iter().enumerate() {
            for other in &texts[..index] {
                let series = chart.series.len();
                assert!(
                    !one.bounds().overlaps(&other.bounds()),
                    "{:?} on {:?}, {series} series",
                    one.words,
                    other.words
                );
            }
        }
    }
}

/// Discs overlap neither axes nor title.
#[test]
fn discs_and_lines_stay_between_the_axes() {
    for (chart, sheet, scene) in all(&[Sheet::WIDE, Sheet::NARROW]) {
        let frame = Plot::new(&chart, sheet, GAP).frame;
        for element in &scene.elements {
            let Element::Series { elements, .. } = element else {
                continue;
            };
            for part in elements {
                let Element::Shape(shape) = part else {
                    continue;
                };
                assert!(
                    frame.holds(&shape.bounds()),
                    "{} series",
                    chart.series.len()
                );
            }
        }
    }
}

#[test]
fn a_chart_has_ticks_on_both_axes() {
    for (chart, _, scene) in all(&SHEETS) {
        let texts = texts(&scene);
        let numbers = |anchor| {
            let own = texts.iter().filter(|text| text.anchor == anchor);
            let digits = own.filter(|text| text.words.starts_with(|c: char| c.is_ascii_digit()));
            digits.count()
        };
        let series = chart.series.len();
        assert!((2..=20).contains(&numbers(Anchor::End)), "{series}");
        assert!((2..=20).contains(&numbers(Anchor::Middle)), "{series}");
    }
}

#[test]
fn a_series_without_a_place_is_in_the_legend_alone() {
    let mut chart = chart(2, |_| Form::Line, Scale::Log);
    chart.series[1].points = vec![(0.0, 1.0), (-3.0, f64::NAN)];
    chart.series[1].band.clear();
    let scene = scene(&chart, &Sheet::FILE);
    let words: Vec<&str> = texts(&scene)
        .iter()
        .map(|text| text.words.as_str())
        .collect();
    assert!(
        words.iter().any(|word| word.starts_with("model_1")),
        "{words:?}"
    );
}
