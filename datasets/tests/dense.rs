//! Labels at positions: their values, compared with independent references, and their storage.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;

use lra_datasets::tasks::ListOps;
use lra_datasets::tasks::listops::TOKENS;
use lra_datasets::tasks::pathfinder::{
    Difficulty, Generator, PATHFINDER, PATHX, Paddle, Parameters, Pixels, Scene, Size,
};
use lra_datasets::{
    Dense, DenseRow, Error, Key, Request, Result, Shape, Source, Split, SplitName, SplitWriter,
    Splits, Store, Summary, Task, TaskInfo, prior_loss,
};
use serde_json::{Value, json};

fn key(task: &dyn Task, options: &[(&str, Value)]) -> Key {
    let mut key = Key::default_of(task);
    for (name, value) in options {
        key.options[*name] = value.clone();
    }
    key
}

fn listops(dense: bool) -> Key {
    let mut options = vec![("dense", json!(dense)), ("max_depth", json!(6))];
    let sizes = [("train", 200), ("val", 30), ("test", 30)];
    options.extend(sizes.map(|(name, size)| (name, json!(size))));
    options.extend([("min_length", json!(8)), ("max_length", json!(80))]);
    key(&ListOps, &options)
}

fn pathfinder(dense: bool) -> Key {
    let sizes = [("train", 20), ("val", 5), ("test", 5)].map(|(name, size)| (name, json!(size)));
    let mut options = sizes.to_vec();
    options.extend([("difficulty", json!("easy")), ("dense", json!(dense))]);
    key(&PATHFINDER, &options)
}

fn built(task: &dyn Task, key: &Key) -> (tempfile::TempDir, Splits) {
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path()).open_or_build(task, key, None, &());
    (root, splits.unwrap())
}

/// Evaluates one expression from `words`; records (position of the bracket, value, depth) of each
/// list.
fn reference(
    words: &[&str],
    at: &mut usize,
    depth: usize,
    actual: &mut Vec<(usize, u8, usize)>,
) -> i64 {
    let word = words[*at];
    *at += 1;
    if let Ok(digit) = word.parse() {
        return digit;
    }
    let mut values = Vec::new();
    while words[*at] != "]" {
        values.push(reference(words, at, depth + 1, actual));
    }
    values.sort_unstable();
    let (last, middle) = (values.len() - 1, values.len() / 2);
    let value = match word {
        "[MIN" => values[0],
        "[MAX" => values[last],
        "[SM" => values.iter().sum::<i64>() % 10,
        "[MED" if values.len() % 2 == 1 => values[middle],
        "[MED" => (values[middle - 1] + values[middle]) / 2,
        other => panic!("{other}"),
    };
    actual.push((*at, value as u8, depth));
    *at += 1;
    value
}

#[test]
fn every_bracket_of_listops_has_the_value_of_its_list() {
    let (_root, splits) = built(&ListOps, &listops(true));
    let mut depths = [0; 4];
    for split in SplitName::ALL.map(|name| splits.get(name)) {
        for row in 0..split.len() {
            let words = split.tokens(0, row).iter();
            let words: Vec<&str> = words.map(|token| TOKENS[usize::from(*token)]).collect();
            let (mut at, mut expected) = (0, Vec::new());
            let value = reference(&words, &mut at, 1, &mut expected);
            assert_eq!(value, i64::from(split.label(row)));
            let actual: Vec<_> = split.dense(row).unwrap().iter().collect();
            let group = |depth: usize| depth.min(4) - 1;
            let expected: Vec<_> = expected
                .iter()
                .map(|(position, value, depth)| (*position, *value, group(*depth) as u8))
                .collect();
            assert_eq!(actual, expected, "{}", words.join(" "));
            actual.iter().for_each(|it| depths[usize::from(it.2)] += 1);
        }
    }
    assert!(depths.iter().all(|count| *count > 50), "{depths:?}");
    let groups = &splits.manifest.dense.as_ref().unwrap().groups;
    assert_eq!(groups, &["depth 1", "depth 2", "depth 3", "depth 4+"]);
}

/// Returns the distance of a pixel from a dash as a line between its ends; ends are on a grid of
/// half pixels.
fn distance((y, x): (f64, f64), dash: &Paddle) -> f64 {
    let start = (f64::from(dash.start.0), f64::from(dash.start.1));
    let along = (f64::from(dash.end.0) / 2.0, f64::from(dash.end.1) / 2.0);
    let from = (y - start.0, x - start.1);
    let length = along.0 * along.0 + along.1 * along.1;
    let share = ((from.0 * along.0 + from.1 * along.1) / length).clamp(0.0, 1.0);
    (from.0 - share * along.0).hypot(from.1 - share * along.1)
}

/// Returns the dashes of the marked contour by the record of its growth: a dash of it begins at the
/// first disc in reading order, and each of its dashes begins where the one before ends, a gap
/// away.
fn path(scene: &Scene) -> Vec<Paddle> {
    let marked = *scene.discs.iter().min().unwrap();
    let mut contours = scene.targets.iter();
    let ends_there = |dash: Option<&Paddle>| dash.map(|dash| dash.start) == Some(marked);
    let path = contours.find(|it| ends_there(it.first()) || ends_there(it.last()));
    let path = path.unwrap().clone();
    for pair in path.windows(2) {
        let next = (f64::from(pair[1].start.0), f64::from(pair[1].start.1));
        let last = (f64::from(pair[0].start.0), f64::from(pair[0].start.1));
        let gap = distance(next, &pair[0]).min(distance(last, &pair[1]));
        assert!(gap < 7.0, "{gap}");
    }
    path
}

#[test]
fn dash_pixels_of_pathfinder_tell_the_path_of_the_marked_disc() {
    let parameters = Parameters::published(Size::S32, Difficulty::Easy).with_contour_lengths(5, 9);
    let generator = Generator::new(parameters, Pixels::default());
    let mut workspaces = generator.workspaces();
    let (mut told, mut lengths) = ([0; 2], [0; 10]);
    for number in 0..60 {
        let (scene, pixels) = generator.image(&mut workspaces, 3, number);
        let count = scene.targets[0].len();
        assert_eq!(count, scene.targets[1].len());
        lengths[count] += 1;
        let row = generator.dense(&scene);
        for (pixel, target, group) in row.labels().iter() {
            assert!(pixels[pixel] > 0 && target < 2 && group < 3);
        }
        let path = path(&scene);
        // Thirds of the length of the path, unless rounding decides.
        let at = |(y, x): (i32, i32)| (f64::from(y), f64::from(x));
        let apart = |one: (f64, f64), other: (f64, f64)| (one.0 - other.0).hypot(one.1 - other.1);
        let steps = path.windows(2);
        let reach: f64 = steps
            .map(|pair| apart(at(pair[0].start), at(pair[1].start)))
            .sum();
        let centre = at(*scene.discs.iter().min().unwrap());
        for (pixel, _, group) in row.labels().iter() {
            let place = ((pixel / 32) as f64, (pixel % 32) as f64);
            let thirds = 3.0 * apart(place, centre) / reach;
            if (thirds - thirds.round()).abs() > 1e-9 {
                assert_eq!(f64::from(group), thirds.floor().min(2.0));
            }
        }
        let on_path = |dash: &Paddle| path.contains(dash);
        for (pixel, target, _) in row.labels().iter() {
            let place = ((pixel / 32) as f64, (pixel % 32) as f64);
            let nearest = |expected: bool| {
                let dashes = scene.paddles().filter(|dash| on_path(dash) == expected);
                dashes
                    .map(|dash| distance(place, dash))
                    .fold(f64::MAX, f64::min)
            };
            let (on, off) = (nearest(true), nearest(false));
            assert!(on.min(off) < 1.2, "image {number}, pixel {pixel}");
            if (on - off).abs() > 0.8 {
                assert_eq!(target == 1, on < off, "image {number}, pixel {pixel}");
                told[usize::from(target)] += 1;
            }
        }
        // Nearly all of the path is labelled.
        let marked = row.labels().iter().filter(|it| it.1 == 1).count();
        assert!(marked >= 2 * count, "{marked} pixels of {count} dashes");
    }
    assert!(told.iter().all(|count| *count > 500), "{told:?}");
    assert!(lengths[5..].iter().all(|count| *count > 0), "{lengths:?}");
    assert_eq!(lengths[..5].iter().sum::<i32>(), 0);
}

/// The bytes of the labels: other ones would take a new version of the task.
#[test]
fn labels_stay_what_they_were() {
    let digest = |task: &dyn Task, key: &Key| {
        let (_root, splits) = built(task, key);
        splits.manifest.digest[..16].to_owned()
    };
    let digests = [
        digest(&ListOps, &listops(true)),
        digest(&PATHFINDER, &pathfinder(true)),
    ];
    insta::assert_snapshot!(digests.join(" "), @"20b597d947e53cc8 2f0024c78fe03321");
}

#[test]
fn near_labels_are_nearer_than_far_ones() {
    let (_root, splits) = built(&PATHFINDER, &pathfinder(true));
    let mut seen = [0; 3];
    for row in 0..splits.train.len() {
        splits.train.dense(row).unwrap().iter().for_each(|it| {
            seen[usize::from(it.2)] += 1;
        });
    }
    assert!(seen.iter().all(|count| *count > 20), "{seen:?}");
    let baselines = splits.dense_baselines().unwrap();
    let text = Summary::of(&PATHFINDER, &splits).text();
    for baseline in &baselines {
        let share = format!(
            "{:>6.2} % of {} labels\n",
            100.0 * baseline.majority,
            baseline.labels
        );
        assert!(text.contains(&share), "{text}");
    }
    let names: Vec<&str> = baselines.iter().map(|it| it.group.as_str()).collect();
    assert_eq!(names, ["near", "middle", "far"]);
    for baseline in baselines {
        assert!((0.3..=1.0).contains(&baseline.majority), "{baseline:?}");
    }
}

#[test]
fn labels_at_positions_change_no_sequence_and_no_other_entry() {
    let cases = [
        (&ListOps as &dyn Task, listops as fn(bool) -> Key),
        (&PATHFINDER, pathfinder),
    ];
    for (task, key) in cases {
        let (plain_root, plain) = built(task, &key(false));
        let (root, dense) = built(task, &key(true));
        let rows = |split: &Split| -> Vec<(Vec<u8>, u8)> {
            let row = |row| (split.tokens(0, row).to_vec(), split.label(row));
            (0..split.len()).map(row).collect()
        };
        assert_eq!(rows(&plain.train), rows(&dense.train));
        assert_eq!(plain.manifest.dense, None);
        assert!(plain.train.dense(0).is_none() && plain.dense_baselines().is_none());
        assert!(dense.manifest.label.ends_with("-dense"));
        assert_eq!(
            format!("{}-dense", plain.manifest.label),
            dense.manifest.label
        );
        for (root, key) in [(&plain_root, key(false)), (&root, key(true))] {
            let verified = Store::new(root.path()).verify(task, &key, &()).unwrap();
            assert!(verified.passed(), "{verified}");
        }
        let manifest = fs::read_to_string(
            Store::new(plain_root.path())
                .folder(task, &key(false))
                .join("manifest.json"),
        );
        assert!(!manifest.unwrap().contains("dense_labels"));
        let counted = dense.manifest.splits.train.dense_labels.iter().sum::<u64>();
        assert_eq!(
            counted,
            dense.train.all_dense().unwrap().iter().count() as u64
        );
    }
}

/// A task whose rows do not have the labels at positions that it announces.
struct Mislabelled;

static MISLABELLED: TaskInfo = TaskInfo {
    name: "mislabelled",
    title: "Mislabelled",
    summary: "A builder with a fault.",
    paper: "none",
    version: 1,
    vocabulary: 10,
    first_id: 1,
    classes: 2,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Synthetic],
    probe: false,
};

impl Task for Mislabelled {
    fn info(&self) -> &'static TaskInfo {
        &MISLABELLED
    }
    fn defaults(&self) -> Value {
        json!({ "announced": true, "targets": [0, 1, 255], "groups": [1, 0, 255] })
    }
    fn shape(&self, options: &Value) -> Result<Shape> {
        let dense = Dense::new(2, &["a", "b"]);
        let announced = options["announced"] == json!(true);
        Ok(Shape::new(&MISLABELLED, 8, []).with_dense(announced.then_some(dense)))
    }
    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let bytes = |name: &str| -> Option<Vec<u8>> {
            let items = request.options[name].as_array()?.iter();
            Some(items.map(|it| it.as_u64().unwrap() as u8).collect())
        };
        for split in SplitName::ALL {
            match (bytes("targets"), bytes("groups")) {
                (Some(targets), Some(groups)) => {
                    let row = DenseRow { targets, groups };
                    writer.dense_row(split, &[1, 2, 3], 0, &row)?;
                }
                _ => writer.row(split, &[&[1, 2, 3]], 0)?,
            }
        }
        Ok(())
    }
    fn to_text(&self, _towers: &[&[u8]], _label: u8) -> String {
        String::new()
    }
}

#[test]
fn a_builder_is_held_to_its_labels() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let building = |changes: &[(&str, Value)]| {
        let key = key(&Mislabelled, changes);
        store.open_or_build(&Mislabelled, &key, None, &())
    };
    let splits = building(&[]).unwrap();
    assert_eq!(splits.manifest.splits.test.dense_labels, [1, 1]);
    for (changes, told) in [
        (&[("announced", json!(false))][..], "were not announced"),
        (&[("targets", json!(null))], "no labels at positions"),
        (&[("targets", json!([0, 1]))], "for other than 3 tokens"),
        (&[("groups", json!([1, 0]))], "for other than 3 tokens"),
        (
            &[("groups", json!([1, 0, 255, 255]))],
            "for other than 3 tokens",
        ),
        (&[("targets", json!([0, 2, 255]))], "class 2 of 2"),
        (&[("groups", json!([2, 0, 255]))], "in group 2 of 2"),
        (&[("targets", json!([0, 255, 255]))], "class 255 of 2"),
    ] {
        let error = building(changes).unwrap_err();
        assert!(matches!(error, Error::Builder { .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
}

/// Changes one byte of a file near its end, and corrects the manifest's SHA-256.
#[test]
fn verification_evaluates_the_lists_again() {
    let (root, splits) = built(&ListOps, &listops(true));
    let store = Store::new(root.path());
    let folder = store.folder(&ListOps, &listops(true));
    let file = folder.join("test.safetensors");
    let position = splits.test.all_dense().unwrap().iter().next().unwrap().0;
    let tokens = splits.test.all_dense().unwrap().targets.len();
    drop(splits);
    let mut bytes = fs::read(&file).unwrap();
    let change = |bytes: &[u8], place: usize, value: u8| {
        let mut bytes = bytes.to_vec();
        let at = bytes.len() - place;
        bytes[at] = value;
        let before = lra_datasets::Digest::of(&fs::read(&file).unwrap());
        let manifest = fs::read_to_string(folder.join("manifest.json")).unwrap();
        let now = lra_datasets::Digest::of(&bytes);
        fs::write(&file, &bytes).unwrap();
        fs::write(
            folder.join("manifest.json"),
            manifest.replace(&before, &now),
        )
        .unwrap();
        bytes
    };
    // Targets come first, groups end the file.
    let target = 2 * tokens - position;
    let right = bytes[bytes.len() - target];
    bytes = change(&bytes, target, (right + 1) % 10);
    let verified = store.verify(&ListOps, &listops(true), &()).unwrap();
    assert!(!verified.passed());
    let text = verified.to_string();
    assert!(text.contains("other values at its brackets"), "{text}");
    change(&bytes, target, 10);
    let error = store
        .open(&ListOps, &listops(true))
        .unwrap_err()
        .to_string();
    assert!(error.contains("class 10 of 10"), "{error}");
}

#[test]
fn what_has_no_labels_at_positions_says_so() {
    let mut published = pathfinder(true);
    published.source = Source::Official;
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let error = store.open_or_build(&PATHFINDER, &published, Some(root.path()), &());
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Option { .. }), "{error}");
    assert!(error.to_string().contains("one label each"), "{error}");
    // One dash would have both discs at one place.
    let single = [("min_dashes", json!(1)), ("max_dashes", json!(9))];
    assert!(
        PATHFINDER
            .shape(&key(&PATHFINDER, &single).options)
            .is_err()
    );
    for (name, value) in [("min_dashes", 15), ("max_dashes", 5), ("min_dashes", 3)] {
        let key = key(&PATHFINDER, &[(name, json!(value))]);
        assert!(PATHFINDER.shape(&key.options).is_err(), "{name} = {value}");
    }
    let both = [("min_dashes", json!(5)), ("max_dashes", json!(9))];
    let shape = PATHFINDER.shape(&key(&PATHFINDER, &both).options).unwrap();
    assert_eq!(shape.label, "pathfinder@5to9");
    let shape = PATHX.shape(&key(&PATHX, &[("dense", json!(true))]).options);
    assert_eq!(shape.unwrap().label, "pathx@dense");
}

/// Labels of examples and labels at positions are each predicted by their own shares.
#[test]
fn the_prior_weighs_as_the_loss_does() {
    let (_root, splits) = built(&ListOps, &listops(true));
    let entropy = |labels: &[u8], of: &[u8]| -> f64 {
        let real = |labels: &[u8]| labels.iter().filter(|it| **it != 255).count() as f64;
        let share =
            |label: u8| labels.iter().filter(|it| **it == label).count() as f64 / real(labels);
        of.iter()
            .filter(|it| **it != 255)
            .map(|label| -share(*label).ln())
            .sum()
    };
    let train = splits.train.all_dense().unwrap().targets;
    let mut expected = 0.0;
    for row in 0..splits.val.len() {
        let positions = splits.val.dense(row).unwrap();
        let count = positions.iter().count() as f64;
        let own = entropy(splits.train.labels(), &[splits.val.label(row)]);
        expected += (entropy(train, positions.targets) + 4.0 * own) / (count + 4.0);
    }
    expected /= splits.val.len() as f64;
    let actual = prior_loss(&splits, 4.0).unwrap();
    assert!((actual - expected).abs() < 1e-9, "{actual} {expected}");
    assert!((prior_loss(&splits, 1.0).unwrap() - actual).abs() > 1e-6);
}
