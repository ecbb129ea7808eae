//! A few published files of every task, as they are named in its folder or archive.

use std::path::Path;

use image::ImageEncoder;
use lra_datasets::tasks::pathfinder::{PATHFINDER, PATHX};
use lra_datasets::tasks::{Image, ListOps, Retrieval, Text};
use lra_datasets::{Class, Key, Protocol, Source, Task};
use serde_json::json;

use super::{Built, Files, build};

/// Returns every task with published files, and a few of them as they are named in its folder.
pub fn published() -> Vec<(&'static dyn Task, Files)> {
    vec![
        (&ListOps, expressions()),
        (&Text, reviews()),
        (&Retrieval, pairs()),
        (&Image, batches()),
        (&PATHFINDER, pictures(32, 40)),
        (&PATHX, pictures(128, 20)),
    ]
}

pub fn expressions() -> Files {
    let file = |split: &str| {
        let rows = (0..9).map(|n| format!("[MAX {n} 0 ]\t{n}\n"));
        let text = format!("Source\tTarget\n{}", rows.collect::<String>());
        (format!("listops/basic_{split}.tsv"), text.into_bytes())
    };
    ["train", "val", "test"].map(file).to_vec()
}

pub fn reviews() -> Files {
    let mut files: Files = Vec::new();
    for split in ["train", "test"] {
        for (class, rating) in [("neg", 1), ("pos", 10)] {
            for number in 0..40 {
                let name = format!("aclImdb/{split}/{class}/{number}_{rating}.txt");
                files.push((name, format!("{split} {class} {number}").into_bytes()));
            }
        }
    }
    files
}

pub fn pairs() -> Files {
    let file = |split: &str| {
        let rows = (0..6).map(|n| format!("{}.0\tA{n}\tB{n}\tb'one {split}'\tb'two {n}'\n", n % 2));
        (
            format!("aan/new_aan_pairs.{split}.tsv"),
            rows.collect::<String>().into_bytes(),
        )
    };
    ["train", "eval", "test"].map(file).to_vec()
}

pub fn batches() -> Files {
    let names = (1..=5).map(|n| format!("data_batch_{n}.bin"));
    let file = |(file, name): (usize, String)| {
        let record = |n: usize| [vec![(n % 10) as u8], vec![(7 * n + file) as u8; 3072]].concat();
        let content = (0..60).flat_map(record).collect();
        (format!("cifar-10-batches-bin/{name}"), content)
    };
    let names = names.chain(["test_batch.bin".to_owned()]);
    names.enumerate().map(file).collect()
}

pub fn pictures(side: u32, count: usize) -> Files {
    let set = format!("pathfinder{side}/curv_contour_length_14");
    let mut list = String::new();
    let mut files: Files = Vec::new();
    for n in 0..count {
        let mut png = Vec::new();
        image::codecs::png::PngEncoder::new(&mut png)
            .write_image(
                &vec![n as u8; (side * side) as usize],
                side,
                side,
                image::ExtendedColorType::L8,
            )
            .unwrap();
        files.push((format!("{set}/imgs/0/sample_{n}.png"), png));
        list += &format!("imgs/0 sample_{n}.png {n} {} 1.0 14\n", n % 3 % 2);
    }
    files.push((format!("{set}/metadata/0.npy"), list.into_bytes()));
    files
}

pub fn key(task: &dyn Task) -> Key {
    let mut key = Key {
        source: Source::Official,
        protocol: Protocol::Clean,
        ..Key::default_of(task)
    };
    if let Some(partial) = key.options.get_mut("allow_partial") {
        *partial = json!(true);
    }
    key
}

pub fn read(task: &dyn Task, raw: &Path) -> Built {
    build(task, &key(task), raw).unwrap_or_else(|error| panic!("{}: {error}", task.info().name))
}

pub fn refused(task: &dyn Task, raw: &Path) -> String {
    let error = build(task, &key(task), raw).unwrap_err();
    assert_eq!(error.class(), Class::Data, "{error}");
    error.to_string()
}

/// Returns a few pictures in folders of their classes.
pub fn class_folders() -> Files {
    let mut files: Files = Vec::new();
    for split in ["train", "test"] {
        for (number, class) in ["cat", "dog"].into_iter().enumerate() {
            for shade in 0..30 {
                let mut png = Vec::new();
                image::codecs::png::PngEncoder::new(&mut png)
                    .write_image(
                        &vec![4 * shade + number as u8; 3 * 1024],
                        32,
                        32,
                        image::ExtendedColorType::Rgb8,
                    )
                    .unwrap();
                files.push((format!("cifar/{split}/{class}/{split}{shade}.png"), png));
            }
        }
    }
    files
}
