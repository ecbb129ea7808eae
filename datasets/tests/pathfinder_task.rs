//! Pathfinder and Path-X as tasks: options, threads, interruption, and the truth of labels.
#![allow(missing_docs, clippy::unwrap_used, clippy::print_stdout)]

use std::collections::VecDeque;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};

use lra_datasets::tasks::pathfinder::{
    Difficulty, Generator, PATHFINDER, PATHX, Parameters, Pixels, Size, find_discs,
};
use lra_datasets::{Digest, Error, Key, Progress, Store, Summary, Task};
use serde_json::json;

fn key(options: &[(&str, serde_json::Value)]) -> Key {
    let mut key = Key::default_of(&PATHFINDER);
    for (name, value) in options {
        key.options[*name] = value.clone();
    }
    key
}

fn small(train: u32) -> Key {
    key(&[
        ("train", json!(train)),
        ("val", json!(50)),
        ("test", json!(50)),
    ])
}

/// Drawn data must never change without a new version of the task.
#[test]
fn images_are_what_they_were() {
    for (size, expected) in [
        (Size::S32, "70626bbb628b6f18"),
        (Size::S64, "9cf07dcd2b09bee2"),
        (Size::S128, "32485f793b8b957a"),
        (Size::S256, "e15dbff064ac3a1b"),
    ] {
        let parameters = Parameters::published(size, Difficulty::Easy);
        let generator = Generator::new(parameters, Pixels::Release);
        let mut workspaces = generator.workspaces();
        let mut digest = Digest::default();
        for number in 0..8 {
            let (scene, pixels) = generator.image(&mut workspaces, 0, number);
            digest.update(&[scene.label]);
            digest.update(&pixels);
        }
        assert_eq!(&digest.hex()[..16], expected, "{} px", size.side());
    }
}

#[test]
fn options_decide_shape_and_label() {
    let shape = |options: &[(&str, serde_json::Value)]| {
        let shape = PATHFINDER.shape(&key(options).options).unwrap();
        (shape.max_length, shape.label)
    };
    assert_eq!(shape(&[]), (1024, "pathfinder".to_owned()));
    assert_eq!(
        shape(&[("size", json!(64))]),
        (4096, "pathfinder@64-hard".to_owned())
    );
    let easy = [
        ("difficulty", json!("easy")),
        ("train", json!(500)),
        ("pixels", json!("upstream")),
    ];
    assert_eq!(
        shape(&easy),
        (1024, "pathfinder@32-easy-n500-upstream".to_owned())
    );
    for split in ["val", "test"] {
        let (_, label) = shape(&[(split, json!(500))]);
        assert_eq!(label, "pathfinder@n160000");
    }
    for side in [32, 64, 128, 256] {
        let key = key(&[("size", json!(side))]);
        let shape = PATHFINDER.shape(&key.options).unwrap();
        assert_eq!(
            (shape.max_length, shape.grid),
            (side * side, Some([side; 2]))
        );
    }
    let pathx = PATHX.shape(&PATHX.defaults()).unwrap();
    assert_eq!((pathx.max_length, pathx.label.as_str()), (16_384, "pathx"));
    for (name, value) in [
        ("size", json!(48)),
        ("size", json!(-1)),
        ("difficulty", json!("harder")),
        ("pixels", json!("blue")),
        ("train", json!(0)),
        ("seed", json!("x")),
    ] {
        let error = PATHFINDER
            .shape(&key(&[(name, value)]).options)
            .unwrap_err();
        assert!(
            matches!(&error, Error::Option { key, .. } | Error::Word { key, .. } if key == name),
            "{error}"
        );
    }
    let mut sized = PATHX.defaults();
    sized["size"] = json!(128);
    assert!(matches!(
        PATHX.shape(&sized),
        Err(Error::UnknownOption { .. })
    ));
}

#[test]
fn data_does_not_depend_on_threads_or_on_the_size_of_other_splits() {
    let built = |threads: usize, train: u32| {
        let root = tempfile::tempdir().unwrap();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads)
            .build()
            .unwrap();
        let store = Store::new(root.path());
        pool.install(|| {
            store
                .open_or_build(&PATHFINDER, &small(train), None, &())
                .unwrap()
        })
        .manifest
    };
    let one = built(1, 2500);
    assert_eq!(one.digest, built(3, 2500).digest);
    let other = built(2, 30);
    assert_eq!(one.splits.test.sha256, other.splits.test.sha256);
    assert_eq!(one.splits.val.sha256, other.splits.val.sha256);
}

/// Options reach the generator, and the rows behind the first part of a build are further images.
#[test]
fn rows_are_the_numbered_images_of_the_options() {
    let options = [
        ("train", json!(300)),
        ("val", json!(3)),
        ("test", json!(3)),
        ("seed", json!(5)),
        ("size", json!(64)),
        ("difficulty", json!("easy")),
        ("pixels", json!("upstream")),
        ("dense", json!(true)),
    ];
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path()).open_or_build(&PATHFINDER, &key(&options), None, &());
    let splits = splits.unwrap();
    let parameters = Parameters::published(Size::S64, Difficulty::Easy);
    let generator = Generator::new(parameters, Pixels::Upstream);
    let mut workspaces = generator.workspaces();
    // A part has 256 images of this size.
    for (split, row) in [(0_u64, 0), (0, 255), (0, 256), (0, 299), (1, 2), (2, 2)] {
        let rows = [&splits.train, &splits.val, &splits.test][split as usize];
        let (scene, pixels) = generator.image(&mut workspaces, 5, split << 48 | row);
        let row = row as usize;
        assert_eq!(rows.tokens(0, row), pixels, "{split} {row}");
        assert_eq!(rows.label(row), scene.label);
        assert_eq!(rows.dense(row), Some(generator.dense(&scene).labels()));
    }
}

#[test]
fn contours_have_the_numbers_of_dashes_of_the_options() {
    let options = [
        ("train", json!(30)),
        ("val", json!(1)),
        ("test", json!(1)),
        ("difficulty", json!("easy")),
        ("min_dashes", json!(3)),
        ("max_dashes", json!(7)),
    ];
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path()).open_or_build(&PATHFINDER, &key(&options), None, &());
    let train = splits.unwrap().train;
    let parameters = Parameters::published(Size::S32, Difficulty::Easy).with_contour_lengths(3, 7);
    let generator = Generator::new(parameters, Pixels::Release);
    let mut workspaces = generator.workspaces();
    let mut seen = [0; 15];
    for row in 0..30 {
        let (scene, pixels) = generator.image(&mut workspaces, 0, row);
        assert_eq!(train.tokens(0, row as usize), pixels);
        seen[scene.targets[0].len()] += 1;
    }
    assert!(seen[3..8].iter().all(|count| *count > 0), "{seen:?}");
    assert_eq!(seen[3..8].iter().sum::<i32>(), 30);
}

/// Images of 64 and 128 pixels with long contours were decoded, no others.
#[test]
fn numbers_of_distractors_that_no_image_proves_are_told() {
    let told = |side: u64, difficulty: &str| {
        let one = ["train", "val", "test"].map(|split| (split, json!(1)));
        let set = [("size", json!(side)), ("difficulty", json!(difficulty))];
        let root = tempfile::tempdir().unwrap();
        let key = key(&[&one[..], &set].concat());
        let splits = Store::new(root.path()).open_or_build(&PATHFINDER, &key, None, &());
        let notes = splits.unwrap().manifest.notes;
        let told = notes.iter().find(|note| note.contains("not proved"))?;
        told.split(' ').next().map(str::to_owned)
    };
    for (side, difficulty, number) in [
        (32, "hard", Some("5")),
        (64, "hard", None),
        (64, "easy", Some("11")),
        (128, "hard", None),
        (256, "hard", Some("7")),
        (256, "easy", Some("15")),
    ] {
        assert_eq!(
            told(side, difficulty).as_deref(),
            number,
            "{side} {difficulty}"
        );
    }
}

#[test]
fn the_distance_of_the_discs_is_told() {
    let parameters = Parameters::published(Size::S128, Difficulty::Easy);
    let generator = Generator::new(parameters, Pixels::Release);
    let mut workspaces = generator.workspaces();
    for number in 0..10 {
        let (scene, pixels) = generator.image(&mut workspaces, 0, number);
        let [(y, x), (v, u)] = scene.discs;
        let expected = f64::from(y - v).hypot(f64::from(x - u));
        let traits = PATHFINDER.traits(&[&pixels]);
        assert_eq!((traits.len(), traits[0].0), (1, "distance of the discs"));
        // Each disc is found within a pixel.
        assert!(
            (traits[0].1 as f64 - expected).abs() < 4.0,
            "{traits:?} {expected}"
        );
    }
}

/// Progress that counts drawn images and panics, like a process that is killed, after `limit`
/// reports.
struct Drawn {
    count: AtomicU64,
    calls: AtomicU64,
    limit: u64,
}

impl Progress for Drawn {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, by: u64) {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst);
        self.count.fetch_add(by, Ordering::SeqCst);
        assert!(calls < self.limit, "killed");
    }
    fn finish(&self) {}
}

#[test]
fn an_interrupted_build_draws_only_what_is_left() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let build = |limit: u64| {
        let drawn = Drawn {
            count: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            limit,
        };
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(1)
            .build()
            .unwrap();
        let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
            pool.install(|| {
                store
                    .open_or_build(&PATHFINDER, &small(5000), None, &drawn)
                    .unwrap()
            })
        }));
        (
            result.ok(),
            drawn.count.into_inner(),
            drawn.calls.into_inner(),
        )
    };
    let (killed, ..) = build(3000);
    assert!(killed.is_none());
    let (splits, count, calls) = build(u64::MAX);
    // Two parts of 1,024 images were complete; each is reported in one piece.
    assert_eq!((count, calls), (5100, 5100 - 2 * 1024 + 2));
    let other = tempfile::tempdir().unwrap();
    let whole = Store::new(other.path())
        .open_or_build(&PATHFINDER, &small(5000), None, &())
        .unwrap();
    assert_eq!(splits.unwrap().manifest.digest, whole.manifest.digest);
    let left: Vec<_> = std::fs::read_dir(root.path().join("store"))
        .unwrap()
        .collect();
    let parts = |entry: &std::io::Result<std::fs::DirEntry>| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .starts_with(".parts")
    };
    assert!(
        !left.iter().any(parts),
        "parts of a complete entry are removed"
    );
}

#[test]
fn baselines_know_the_discs() {
    let root = tempfile::tempdir().unwrap();
    let easy = key(&[
        ("train", json!(3000)),
        ("val", json!(10)),
        ("test", json!(1500)),
        ("difficulty", json!("easy")),
        ("size", json!(64)),
    ]);
    let splits = Store::new(root.path())
        .open_or_build(&PATHFINDER, &easy, None, &())
        .unwrap();
    let baselines = PATHFINDER.baselines(&splits);
    let names: Vec<&str> = baselines
        .iter()
        .map(|baseline| baseline.name.as_str())
        .collect();
    assert_eq!(names, ["majority", "bag of tokens", "disc distance"]);
    // Measured on the original's images: 73 %.
    let distance = baselines[2].accuracy;
    assert!((0.68..0.78).contains(&distance), "{distance}");
    assert!(
        baselines[..2]
            .iter()
            .all(|baseline| baseline.accuracy < 0.56),
        "{baselines:?}"
    );
    assert!(
        Summary::of(&PATHFINDER, &splits)
            .text()
            .contains("disc distance")
    );
}

/// Returns whether a path of lit pixels, allowed to jump gaps, joins the discs.
fn joined(pixels: &[u8], side: i32, jump: i32) -> bool {
    let Some([start, end]) = find_discs(pixels) else {
        return false;
    };
    let lit = |(y, x): (i32, i32)| {
        (0..side).contains(&y) && (0..side).contains(&x) && pixels[(y * side + x) as usize] >= 40
    };
    let mut seen = vec![false; pixels.len()];
    let mut open = VecDeque::from([start]);
    while let Some(at) = open.pop_front() {
        if (at.0 - end.0).pow(2) + (at.1 - end.1).pow(2) <= 2 {
            return true;
        }
        for (dy, dx) in (-jump..=jump).flat_map(|dy| (-jump..=jump).map(move |dx| (dy, dx))) {
            let to = (at.0 + dy, at.1 + dx);
            if dy * dy + dx * dx <= jump * jump && lit(to) {
                let seen = &mut seen[(to.0 * side + to.1) as usize];
                if !std::mem::replace(seen, true) {
                    open.push_back(to);
                }
            }
        }
    }
    false
}

/// Labels and pixels agree: following strokes from one disc to the other answers most easy images.
#[test]
fn following_strokes_answers_easy_images() {
    for (size, jump, least) in [(Size::S32, 2, 0.6), (Size::S64, 2, 0.7)] {
        let generator = Generator::new(
            Parameters::published(size, Difficulty::Easy),
            Pixels::Release,
        );
        let mut workspaces = generator.workspaces();
        let images = 1000;
        let right = (0..images).filter(|number| {
            let (scene, pixels) = generator.image(&mut workspaces, 9, *number);
            joined(&pixels, size.side() as i32, jump) == (scene.label == 1)
        });
        let share = right.count() as f64 / images as f64;
        println!("{} px easy: following strokes answers {share}", size.side());
        assert!(share > least, "{} px: {share}", size.side());
    }
}
