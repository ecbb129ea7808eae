//! Images of this generator against statistics of the original generator's, size by size.
//!
//! Expected values were measured on images of the original Python code (with its own grey values
//! for the release); every mean must lie within three standard errors, those of both samples taken
//! together.
#![allow(missing_docs, clippy::unwrap_used)]

use lra_datasets::tasks::pathfinder::{Difficulty, Generator, Parameters, Pixels, Size};
use rayon::prelude::*;

/// Number of images per size and difficulty.
const IMAGES: u64 = 2000;

/// Mean and standard deviation over images.
type Moments = (f64, f64);

/// Statistics of one set of the original's images.
struct Expected {
    size: Size,
    difficulty: Difficulty,
    images: f64,
    /// Mean number of target pairs begun per image.
    attempts: f64,
    distractors: Moments,
    /// Share of pixels of at least 1, 16, 64 and 128.
    lit: [Moments; 4],
    /// Mean grey value, as a share of the maximum.
    grey: Moments,
    /// Connected components (8 neighbours) of pixels of at least 64 and 128.
    components: [Moments; 2],
    /// Distance between the discs, pixels.
    apart: Moments,
}

#[rustfmt::skip]
const EXPECTED: [Expected; 12] = {
    use Difficulty::{Easy, Hard, Intermediate};
    use Size::{S32, S64, S128, S256};
    // One disc distance was not measured: its deviation is 0 here, and it is not compared.
    [
        Expected { size: S32, difficulty: Hard, images: 2000., attempts: 326., distractors: (1.15, 0.90),
            lit: [(0.3486, 0.0394), (0.1573, 0.0170), (0.1215, 0.0122), (0.0668, 0.0135)],
            grey: (0.0726, 0.0062), components: [(14.6, 3.4), (21.7, 4.2)], apart: (12.97, 5.28) },
        Expected { size: S32, difficulty: Intermediate, images: 500., attempts: 68., distractors: (1.79, 1.10),
            lit: [(0.2688, 0.0388), (0.1187, 0.0152), (0.0908, 0.0113), (0.0507, 0.0092)],
            grey: (0.0552, 0.0062), components: [(9.6, 2.9), (15.6, 3.4)], apart: (13.83, 4.75) },
        Expected { size: S32, difficulty: Easy, images: 500., attempts: 22., distractors: (3.25, 1.50),
            lit: [(0.2300, 0.0347), (0.0982, 0.0132), (0.0739, 0.0101), (0.0427, 0.0072)],
            grey: (0.0462, 0.0059), components: [(7.7, 2.4), (12.3, 2.5)], apart: (14.86, 3.72) },
        Expected { size: S64, difficulty: Hard, images: 400., attempts: 3782., distractors: (5.26, 1.48),
            lit: [(0.2737, 0.0290), (0.1440, 0.0156), (0.1100, 0.0123), (0.0569, 0.0074)],
            grey: (0.0629, 0.0067), components: [(21.2, 5.3), (36.1, 5.2)], apart: (31.27, 9.94) },
        Expected { size: S64, difficulty: Intermediate, images: 400., attempts: 174., distractors: (7.01, 1.41),
            lit: [(0.2233, 0.0225), (0.1164, 0.0116), (0.0895, 0.0091), (0.0477, 0.0055)],
            grey: (0.0517, 0.0050), components: [(15.0, 4.3), (28.0, 4.6)], apart: (39.75, 8.34) },
        Expected { size: S64, difficulty: Easy, images: 400., attempts: 11., distractors: (7.93, 1.50),
            lit: [(0.1678, 0.0165), (0.0863, 0.0082), (0.0661, 0.0063), (0.0364, 0.0041)],
            grey: (0.0391, 0.0035), components: [(13.6, 3.2), (20.5, 3.3)], apart: (33.56, 5.61) },
        Expected { size: S128, difficulty: Hard, images: 450., attempts: 351., distractors: (14.86, 1.76),
            lit: [(0.1603, 0.0116), (0.0829, 0.0069), (0.0526, 0.0043), (0.0396, 0.0031)],
            grey: (0.0372, 0.0030), components: [(85.9, 6.5), (86.9, 7.1)], apart: (75.83, 18.64) },
        Expected { size: S128, difficulty: Intermediate, images: 400., attempts: 11., distractors: (16.72, 0.53),
            lit: [(0.1263, 0.0030), (0.0651, 0.0018), (0.0418, 0.0016), (0.0316, 0.0012)],
            grey: (0.0296, 0.0009), components: [(67.0, 1.9), (67.8, 1.7)], apart: (73.39, 13.03) },
        Expected { size: S128, difficulty: Easy, images: 400., attempts: 1.8, distractors: (17.00, 0.05),
            lit: [(0.0868, 0.0013), (0.0449, 0.0007), (0.0291, 0.0010), (0.0222, 0.0007)],
            grey: (0.0208, 0.0005), components: [(45.3, 1.0), (45.8, 0.5)], apart: (52.82, 11.03) },
        Expected { size: S256, difficulty: Hard, images: 400., attempts: 8., distractors: (6.99, 0.11),
            lit: [(0.0314, 0.0005), (0.0172, 0.0003), (0.0129, 0.0003), (0.0096, 0.0002)],
            grey: (0.0092, 0.0002), components: [(55.8, 0.7), (55.8, 0.6)], apart: (125.8, 24.6) },
        Expected { size: S256, difficulty: Intermediate, images: 300., attempts: 2.4, distractors: (7.00, 0.06),
            lit: [(0.0228, 0.0003), (0.0127, 0.0002), (0.0097, 0.0002), (0.0073, 0.0002)],
            grey: (0.0070, 0.0001), components: [(38.8, 0.5), (38.9, 0.3)], apart: (0., 0.) },
        Expected { size: S256, difficulty: Easy, images: 300., attempts: 1.6, distractors: (15.0, 0.0),
            lit: [(0.0243, 0.0003), (0.0135, 0.0002), (0.0102, 0.0002), (0.0077, 0.0002)],
            grey: (0.0074, 0.0001), components: [(41.8, 0.4), (41.9, 0.4)], apart: (60.6, 12.6) },
    ]
};

/// Share of pixels per grey range (0, 1-7, 8-15, ..., 255) of the original's hard images.
#[rustfmt::skip]
const GREY: [(Size, f64, [f64; 12]); 4] = [
    (Size::S32, 2000., [0.6514, 0.1867, 0.0047, 0.0211, 0.0147, 0.0205, 0.0341, 0.0291, 0.0241, 0.0047, 0.0072, 0.0017]),
    (Size::S64, 400., [0.7263, 0.1249, 0.0047, 0.0073, 0.0267, 0.0357, 0.0174, 0.0224, 0.0223, 0.0098, 0.0020, 0.0005]),
    (Size::S128, 450., [0.8397, 0.0738, 0.0037, 0.0092, 0.0211, 0.0082, 0.0047, 0.0165, 0.0090, 0.0118, 0.0023, 0.0001]),
    (Size::S256, 400., [0.9686, 0.0132, 0.0010, 0.0014, 0.0029, 0.0017, 0.0016, 0.0027, 0.0019, 0.0033, 0.0017, 0.0001]),
];
const GREY_STARTS: [u8; 12] = [0, 1, 8, 16, 32, 64, 96, 128, 160, 192, 224, 255];

/// Number of images of the original per number of placed distractors, from the first number on.
const PLACED: [(Size, usize, &[f64]); 3] = [
    (Size::S32, 0, &[505., 850., 500., 132., 12., 1.]),
    (
        Size::S64,
        0,
        &[0., 1., 11., 32., 76., 108., 93., 62., 8., 6., 3.],
    ),
    (Size::S128, 10, &[6., 9., 32., 59., 82., 69., 89., 104.]),
];

/// Measurements on one image.
struct Measured {
    label: u8,
    attempts: f64,
    distractors: usize,
    lit: [f64; 4],
    grey: f64,
    components: [f64; 2],
    apart: f64,
    histogram: [f64; 12],
    first_start: (i32, i32),
}

fn measure(size: Size, difficulty: Difficulty) -> Vec<Measured> {
    let generator = Generator::new(Parameters::published(size, difficulty), Pixels::Release);
    (0..IMAGES)
        .into_par_iter()
        .map_init(
            || generator.workspaces(),
            |workspaces, number| {
                let scene = generator.scene(workspaces, 0, number);
                let pixels = generator.render(&scene).unwrap();
                let share = |from: u8| {
                    let lit = pixels.iter().filter(|grey| **grey >= from).count();
                    lit as f64 / pixels.len() as f64
                };
                let sum: f64 = pixels.iter().map(|grey| f64::from(*grey)).sum();
                let [(y0, x0), (y1, x1)] = scene.discs;
                let mut histogram = [0.0; 12];
                for grey in &pixels {
                    let bin = GREY_STARTS.partition_point(|start| start <= grey) - 1;
                    histogram[bin] += 1.0 / pixels.len() as f64;
                }
                Measured {
                    label: scene.label,
                    attempts: scene.attempts as f64,
                    distractors: scene.distractors.len(),
                    lit: [1, 16, 64, 128].map(share),
                    grey: sum / pixels.len() as f64 / 255.0,
                    components: [64, 128].map(|from| components(&pixels, size.side(), from)),
                    apart: f64::from((y0 - y1).pow(2) + (x0 - x1).pow(2)).sqrt(),
                    histogram,
                    first_start: scene.targets[0][0].start,
                }
            },
        )
        .collect()
}

fn components(pixels: &[u8], side: usize, from: u8) -> f64 {
    let mut left: Vec<bool> = pixels.iter().map(|grey| *grey >= from).collect();
    let mut count = 0.0;
    for start in 0..left.len() {
        if !std::mem::take(&mut left[start]) {
            continue;
        }
        count += 1.0;
        let mut open = vec![start];
        while let Some(cell) = open.pop() {
            let (y, x) = (cell / side, cell % side);
            for y in y.saturating_sub(1)..(y + 2).min(side) {
                for x in x.saturating_sub(1)..(x + 2).min(side) {
                    if std::mem::take(&mut left[y * side + x]) {
                        open.push(y * side + x);
                    }
                }
            }
        }
    }
    count
}

fn moments(values: impl Iterator<Item = f64> + Clone) -> Moments {
    let count = values.clone().count() as f64;
    let mean = values.clone().sum::<f64>() / count;
    let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
    (mean, variance.sqrt())
}

/// Collector of differences, so that one run shows all of them.
struct Verdict(Vec<String>);

impl Verdict {
    fn compare(&mut self, what: &str, own: Moments, expected: Moments, images: f64, rounding: f64) {
        let deviation = own.1.max(expected.1);
        let error = deviation * (1.0 / images + 1.0 / IMAGES as f64).sqrt();
        // Expected means are rounded to this many digits.
        if (own.0 - expected.0).abs() > 3.0 * error + rounding {
            let (own, expected) = (own.0, expected.0);
            self.0.push(format!(
                "{what}: {own:.5} instead of {expected}, standard error {error:.5}"
            ));
        }
    }

    /// Checks that two histograms can come from one distribution, at the 0.1 % level.
    fn same_histogram(&mut self, what: &str, own: &[f64], expected: &[f64]) {
        let (own_sum, expected_sum): (f64, f64) = (own.iter().sum(), expected.iter().sum());
        let ratio = (expected_sum / own_sum).sqrt();
        let bins = own
            .iter()
            .zip(expected)
            .filter(|(own, expected)| **own + **expected > 0.0);
        let statistic: f64 = bins
            .clone()
            .map(|(own, expected)| (own * ratio - expected / ratio).powi(2) / (own + expected))
            .sum();
        let freedom = bins.count() as f64 - 1.0;
        // Wilson and Hilferty's approximation of the chi-square quantile; 3.09 is the normal one.
        let part = 2.0 / (9.0 * freedom);
        let critical = freedom * (1.0 - part + 3.09 * part.sqrt()).powi(3);
        if statistic > critical {
            self.0.push(format!(
                "{what}: chi-square {statistic:.1} over {critical:.1}: {own:?}"
            ));
        }
    }
}

fn check(size: Size) {
    let mut verdict = Verdict(Vec::new());
    for expected in EXPECTED.iter().filter(|expected| expected.size == size) {
        let set = format!("{} px {}", size.side(), expected.difficulty);
        let own = measure(size, expected.difficulty);
        let images = expected.images;
        let of = |value: &dyn Fn(&Measured) -> f64| -> Moments {
            let values: Vec<f64> = own.iter().map(value).collect();
            moments(values.iter().copied())
        };
        let mut compare = |what: &str, value: &dyn Fn(&Measured) -> f64, expected, rounding| {
            verdict.compare(
                &format!("{set}, {what}"),
                of(value),
                expected,
                images,
                rounding,
            );
        };
        compare(
            "distractors",
            &|m| m.distractors as f64,
            expected.distractors,
            0.005,
        );
        for (k, from) in [1, 16, 64, 128].into_iter().enumerate() {
            compare(
                &format!("lit from {from}"),
                &|m| m.lit[k],
                expected.lit[k],
                5e-5,
            );
        }
        compare("mean grey", &|m| m.grey, expected.grey, 5e-5);
        for (k, from) in [64, 128].into_iter().enumerate() {
            let what = format!("components from {from}");
            compare(&what, &|m| m.components[k], expected.components[k], 0.05);
        }
        if expected.apart.1 > 0.0 {
            compare("disc distance", &|m| m.apart, expected.apart, 0.05);
        }
        let positives = of(&|m| f64::from(m.label));
        verdict.compare(
            &format!("{set}, positives"),
            positives,
            (0.5, 0.5),
            f64::INFINITY,
            0.0,
        );
        if expected.difficulty == Difficulty::Hard {
            let (_, images, greys) = GREY.iter().find(|(grey, ..)| *grey == size).unwrap();
            for (bin, share) in greys.iter().enumerate() {
                let what = format!("{set}, grey from {}", GREY_STARTS[bin]);
                verdict.compare(
                    &what,
                    of(&|m| m.histogram[bin]),
                    (*share, 0.0),
                    *images,
                    5e-5,
                );
            }
            if let Some((_, first, counts)) = PLACED.iter().find(|(placed, ..)| *placed == size) {
                let mut placed = vec![0.0; counts.len()];
                for image in &own {
                    let bin = image
                        .distractors
                        .saturating_sub(*first)
                        .min(counts.len() - 1);
                    placed[bin] += 1.0;
                }
                verdict.same_histogram(&format!("{set}, placed distractors"), &placed, counts);
            }
        }
        let attempts = of(&|m| m.attempts).0;
        if (attempts / expected.attempts - 1.0).abs() > 0.15 {
            verdict.0.push(format!(
                "{set}: {attempts} attempts, not {}",
                expected.attempts
            ));
        }
        if size == Size::S32 {
            let centre = |(y, x): (i32, i32)| (14..=16).contains(&y) && (14..=16).contains(&x);
            assert!(own.iter().all(|image| centre(image.first_start)), "{set}");
        }
    }
    assert!(verdict.0.is_empty(), "{}", verdict.0.join("\n"));
}

#[test]
fn images_of_32_pixels_are_distributed_as_the_originals() {
    check(Size::S32);
}

#[test]
fn images_of_64_pixels_are_distributed_as_the_originals() {
    check(Size::S64);
}

#[test]
fn images_of_128_pixels_are_distributed_as_the_originals() {
    check(Size::S128);
}

#[test]
fn images_of_256_pixels_are_distributed_as_the_originals() {
    check(Size::S256);
}
