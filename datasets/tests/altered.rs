//! Data that contradicts the known facts of the published files is marked, and other files never
//! replace an entry silently.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::raw::{self, Files, build};
use crate::shared;
use lra_datasets::tasks::{Image, ListOps, Text};
use lra_datasets::{Class, Key, Source, Store, Task};
use serde_json::json;

/// Returns as many reviews as were published, none of them a published one.
fn reviews(per_class: usize) -> Files {
    let mut files = Files::new();
    for split in ["train", "test"] {
        for (class, rating) in [("neg", 1), ("pos", 10)] {
            for number in 0..per_class {
                let name = format!("aclImdb/{split}/{class}/{number}_{rating}.txt");
                files.push((name, format!("{split} {class} {number}").into_bytes()));
            }
        }
    }
    files
}

fn image(allow_partial: bool) -> Key {
    let mut key = Key::default_of(&Image);
    key.options["allow_partial"] = json!(allow_partial);
    key
}

#[test]
fn complete_reviews_that_are_not_the_published_ones_are_altered() {
    let root = tempfile::tempdir().unwrap();
    let archive = raw::file(root.path(), "reviews.tar", &raw::tar(&reviews(12_500)));
    let built = build(&Text, &Key::default_of(&Text), &archive).unwrap();
    let altered = built.manifest().altered.join("\n");
    assert!(!built.manifest().partial);
    assert!(
        altered.contains("test: digest by content: ") && altered.contains(" instead of 859c6d61"),
        "{altered}"
    );
    assert!(
        !built.passed && built.text.contains("FAIL"),
        "{}",
        built.text
    );
}

#[test]
fn more_than_was_published_is_altered_and_a_part_is_not() {
    let root = tempfile::tempdir().unwrap();
    let key = Key::default_of(&Text);
    let part = raw::file(root.path(), "part.tar", &raw::tar(&reviews(40)));
    let built = build(&Text, &key, &part).unwrap();
    assert!(built.manifest().partial && built.manifest().altered.is_empty());
    assert!(built.text.contains(": unproved"), "{}", built.text);

    let mut more = reviews(40);
    more.extend((40..12_501).map(|number| {
        let name = format!("aclImdb/train/pos/{number}_10.txt");
        (name, format!("more {number}").into_bytes())
    }));
    let more = raw::file(root.path(), "more.tar", &raw::tar(&more));
    let built = build(&Text, &key, &more).unwrap();
    let altered = &built.manifest().altered;
    assert_eq!(altered.len(), 1, "{altered:?}");
    assert!(
        altered[0].contains("12501 positive reviews of train"),
        "{altered:?}"
    );
    assert!(!built.passed, "{}", built.text);
}

#[test]
fn one_edited_review_of_the_published_ones_is_found() {
    let Some(archive) = shared::find("imdb/aclImdb_labelled.tar.gz") else {
        return;
    };
    let plain = flate2::read::GzDecoder::new(fs::File::open(archive).unwrap());
    let mut files = Files::new();
    for entry in tar::Archive::new(plain).entries().unwrap() {
        let mut entry = entry.unwrap();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        files.push((entry.path().unwrap().display().to_string(), bytes));
    }
    let edited = files
        .iter_mut()
        .find(|(name, _)| name.ends_with("train/pos/0_9.txt"));
    // Behind the bytes that are kept, so that not one row differs.
    edited.unwrap().1.push(b'.');
    let root = tempfile::tempdir().unwrap();
    let archive = raw::file(root.path(), "edited.tar", &raw::tar(&files));
    let built = build(&Text, &Key::default_of(&Text), &archive).unwrap();
    let altered = built.manifest().altered.join("\n");
    assert!(altered.contains("train: digest by content"), "{altered}");
    assert!(!altered.contains("test:"), "{altered}");
}

/// Returns a binary file of different pictures that were never published.
fn records(count: usize) -> Vec<u8> {
    (0..count * 3073)
        .map(|i| match (i % 3073, i / 3073) {
            (0, row) => (row % 10) as u8,
            (at, row) if at % 1024 < 4 => (row >> (4 * (at % 1024))) as u8,
            _ => (i * 7 / 5) as u8,
        })
        .collect()
}

#[test]
fn pictures_that_are_not_the_published_ones_are_altered() {
    let root = tempfile::tempdir().unwrap();
    for (count, findings) in [(999, 0), (1000, 1), (10_000, 3)] {
        let files = vec![
            ("data_batch_2.bin".to_owned(), records(count)),
            ("test_batch.bin".to_owned(), records(10)),
        ];
        let folder = raw::folder(&root.path().join(count.to_string()), &files);
        let built = build(&Image, &image(true), &folder).unwrap();
        let altered = &built.manifest().altered;
        assert_eq!(altered.len(), findings, "{count}: {altered:?}");
        assert!(
            altered.iter().all(|how| how.starts_with("data_batch_2: ")),
            "{altered:?}"
        );
        assert_eq!(built.passed, findings == 0, "{}", built.text);
    }
}

#[test]
fn black_pictures_without_an_order_are_altered() {
    let root = tempfile::tempdir().unwrap();
    let png = |grey: u8| {
        let mut bytes = Vec::new();
        let encoder = image::codecs::png::PngEncoder::new(&mut bytes);
        let pixels = [grey; 3072];
        image::ImageEncoder::write_image(encoder, &pixels, 32, 32, image::ExtendedColorType::Rgb8)
            .unwrap();
        bytes
    };
    let files: Files = (0..40_u8)
        .flat_map(|n| {
            let train = (format!("train/{}/a{n}.png", n % 10), png(n));
            [train, (format!("test/{}/a{n}.png", n % 10), png(0))]
        })
        .collect();
    let folder = raw::folder(root.path(), &files);
    let built = build(&Image, &image(true), &folder).unwrap();
    let altered = built.manifest().altered.join("\n");
    assert_eq!(
        altered,
        "only 1 of 40 pictures of test differ, and the published ones hardly repeat"
    );
}

#[test]
fn equal_pictures_with_an_order_are_altered() {
    let root = tempfile::tempdir().unwrap();
    let one = records(1).repeat(20);
    let names = (1..=5).map(|n| format!("data_batch_{n}.bin"));
    let mut files: Files = names.map(|name| (name, one.clone())).collect();
    files.push(("test_batch.bin".to_owned(), one));
    let folder = raw::folder(root.path(), &files);
    let built = build(&Image, &image(true), &folder).unwrap();
    let altered = built.manifest().altered.join("\n");
    for words in [
        "only 1 of 100 pictures of train differ",
        "only 1 of 20 pictures of test differ",
    ] {
        assert!(altered.contains(words), "{altered}");
    }
    assert!(!built.passed, "{}", built.text);
}

#[test]
fn reviews_that_are_alike_are_altered_or_refused_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, text: fn(&str) -> Vec<u8>| {
        let mut files = reviews(15);
        for (file, content) in &mut files {
            *content = text(file.rsplit('/').next().unwrap());
        }
        raw::file(root.path(), name, &raw::tar(&files))
    };
    let same_in_test = write("same.tar", |file| file.as_bytes().to_vec());
    let all_alike = write("alike.tar", |_| b"a review".to_vec());
    let clean = Key::default_of(&Text);
    for archive in [&same_in_test, &all_alike] {
        let error = build(&Text, &clean, archive).unwrap_err();
        assert_eq!(error.class(), Class::Data);
        let words = "30 reviews of train, all left out because test has the same texts: none remain for train";
        assert!(error.to_string().contains(words), "{error}");
    }
    let tay = Key {
        protocol: lra_datasets::Protocol::Tay2021,
        ..clean
    };
    let built = build(&Text, &tay, &same_in_test).unwrap();
    let altered = built.manifest().altered.join("\n");
    assert_eq!(
        altered,
        "30 of 30 different reviews of test also occur in train, and few of the published ones do"
    );
    let altered = build(&Text, &tay, &all_alike).unwrap();
    let altered = altered.manifest().altered.join("\n");
    assert!(
        altered.contains("only 1 of 30 reviews of train differ"),
        "{altered}"
    );
}

#[test]
fn too_few_examples_to_hold_some_out_say_so() {
    let root = tempfile::tempdir().unwrap();
    let few = raw::file(root.path(), "few.tar", &raw::tar(&reviews(1)));
    let error = build(&Text, &Key::default_of(&Text), &few).unwrap_err();
    let words = "2 reviews of train, 0 held out for validation by hash: none remain for val";
    assert!(error.to_string().contains(words), "{error}");
    let mut files = raw::published::class_folders();
    files.retain(|(name, _)| name.contains("test") || name.ends_with("train0.png"));
    let few = raw::folder(&root.path().join("few"), &files);
    let error = build(&Image, &image(true), &few).unwrap_err();
    let words = "2 pictures of train, 0 held out for validation by hash: none remain for val";
    assert!(error.to_string().contains(words), "{error}");
}

/// Returns the published pictures that are available, one file's records after the other.
fn published() -> Option<Vec<Vec<u8>>> {
    let files = shared::unpack("cifar10/cifar10_exact_subset.tar.zst")?;
    let names = [
        "data_batch_1",
        "data_batch_2",
        "data_batch_3",
        "data_batch_4",
        "data_batch_5",
    ];
    let find = |name: &&str| {
        let file = format!("{name}.bin");
        let found = files
            .iter()
            .find(|(path, _)| Path::new(path).ends_with(&file));
        found.unwrap().1.clone()
    };
    Some(names.iter().chain(&["test_batch"]).map(find).collect())
}

#[test]
fn published_pictures_are_proved_as_far_as_they_go_and_swapped_ones_found() {
    let Some(mut files) = published() else {
        return;
    };
    let names = ["1", "2", "3", "4", "5"].map(|n| format!("data_batch_{n}.bin"));
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str, files: &[Vec<u8>]| {
        let named = names.iter().cloned().chain(["test_batch.bin".to_owned()]);
        raw::folder(
            &root.path().join(name),
            &named.zip(files.iter().cloned()).collect(),
        )
    };
    let built = build(&Image, &image(true), &write("right", &files)).unwrap();
    assert!(
        built.manifest().altered.is_empty(),
        "{:?}",
        built.manifest().altered
    );
    assert_eq!(
        built.text.matches("as published").count(),
        6,
        "{}",
        built.text
    );

    files[4][500 * 3073 + 9] ^= 1;
    let built = build(&Image, &image(true), &write("one pixel", &files)).unwrap();
    let altered = &built.manifest().altered;
    assert!(
        altered.len() == 1 && altered[0].starts_with("data_batch_5: first"),
        "{altered:?}"
    );
    files[4][500 * 3073 + 9] ^= 1;

    files.swap(1, 2);
    let built = build(&Image, &image(true), &write("swapped", &files)).unwrap();
    assert_eq!(
        built.manifest().altered.len(),
        2,
        "{:?}",
        built.manifest().altered
    );
}

#[test]
fn files_that_look_otherwise_are_compared_and_others_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(&root.path().join("data"));
    let key = Key::default_of(&Text);
    let files = reviews(40);
    let folder = raw::folder(&root.path().join("folder"), &files);
    let first = store
        .open_or_build(&Text, &key, Some(&folder), &())
        .unwrap();
    // The same content from an archive is the same data; so is the same folder again.
    let archive = raw::file(root.path(), "same.tar", &raw::tar(&files));
    for same in [&folder, &archive, &folder] {
        let again = store.open_or_build(&Text, &key, Some(same), &()).unwrap();
        assert_eq!(again.manifest.digest, first.manifest.digest);
    }

    let mut edited = files.clone();
    edited[7].1 = b"edited".to_vec();
    let other = raw::file(root.path(), "other.tar", &raw::tar(&edited));
    let error = store
        .open_or_build(&Text, &key, Some(&other), &())
        .unwrap_err();
    assert_eq!(error.class(), Class::Data);
    let text = error.to_string();
    for part in [
        "made from other files than",
        "other.tar",
        "--force",
        "--data",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // The same path with another content is no longer the same data.
    fs::write(folder.join(&files[3].0), "edited").unwrap();
    assert!(
        store
            .open_or_build(&Text, &key, Some(&folder), &())
            .is_err()
    );
    // A refused request changed nothing, and --force is the way out.
    let kept = store.open_or_build(&Text, &key, None, &()).unwrap();
    assert_eq!(kept.manifest.digest, first.manifest.digest);
    store.rebuild(&Text, &key, Some(&other), &()).unwrap();
    let replaced = store.open_or_build(&Text, &key, Some(&other), &()).unwrap();
    assert_ne!(replaced.manifest.digest, first.manifest.digest);
}

#[test]
fn files_whose_checksums_nobody_published_say_so() {
    let root = tempfile::tempdir().unwrap();
    let lines = b"Source\tTarget\n[MAX 2 3 ]\t3\n".to_vec();
    let files = ["train", "val", "test"].map(|part| (format!("basic_{part}.tsv"), lines.clone()));
    let folder = raw::folder(root.path(), &files.to_vec());
    let key = Key {
        source: Source::Official,
        ..Key::default_of(&ListOps)
    };
    let built = build(&ListOps, &key, &folder).unwrap();
    assert_eq!(built.manifest().altered, Vec::<String>::new());
    assert!(
        built
            .manifest()
            .notes
            .iter()
            .any(|note| note.starts_with("unproved: "))
    );
    assert!(ListOps.known().is_empty());
}
