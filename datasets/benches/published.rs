//! Speed of building stores from published files, in bytes of raw files a second. `cargo bench -p
//! lra-datasets --bench published`.
//!
//! The files are made up, in the published form and with its sizes; the real reviews are read too
//! where they are available.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/raw/mod.rs"]
mod raw;
#[path = "../tests/shared/mod.rs"]
mod shared;

use std::fs;
use std::path::{Path, PathBuf};

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lra_datasets::{Key, Source, Store, Task, tasks};
use raw::Files;
use serde_json::json;

/// Returns text that packs about as well as English does.
fn prose(bytes: usize, seed: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    let mut state = seed as u32;
    while text.len() < bytes {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let word = state >> 20;
        text.push_str(&format!(
            "{:x}{} ",
            word % 61,
            ["ing", "the", "of", "er"][word as usize % 4]
        ));
    }
    text
}

fn reviews() -> Files {
    let mut files = Files::new();
    for split in ["train", "test"] {
        for (class, rating) in [("neg", 2), ("pos", 9)] {
            for number in 0..2_500 {
                let name = format!("aclImdb/{split}/{class}/{number}_{rating}.txt");
                files.push((name, prose(600 + number % 1_400, files.len()).into_bytes()));
            }
        }
    }
    files
}

fn pictures() -> Files {
    let records = |file: usize| {
        let byte = |i: usize| {
            if i.is_multiple_of(3073) {
                (i / 3073 % 10) as u8
            } else {
                (i * (file + 7) / 11) as u8
            }
        };
        (0..4_000 * 3073).map(byte).collect()
    };
    let name = |file| match file {
        5 => "cifar-10-batches-bin/test_batch.bin".to_owned(),
        train => format!("cifar-10-batches-bin/data_batch_{}.bin", train + 1),
    };
    (0..6).map(|file| (name(file), records(file))).collect()
}

fn pairs() -> Files {
    let paper = prose(26_000, 5);
    let file = |name: &str| {
        let line = |i: usize| format!("{}.0\tA{i}\tB{i}\tb'{i} {paper}'\tb'{paper}'\n", i % 2);
        (
            format!("new_aan_pairs.{name}.tsv"),
            (0..300).map(line).collect::<String>().into_bytes(),
        )
    };
    ["train", "eval", "test"].map(file).to_vec()
}

fn build(criterion: &mut Criterion, name: &str, task: &dyn Task, key: &Key, raw: &Path) {
    let mut group = criterion.benchmark_group(task.info().name);
    group.sample_size(10);
    match fs::metadata(raw) {
        Ok(file) => group.throughput(Throughput::Bytes(file.len())),
        Err(_) => &mut group,
    };
    group.bench_function(name, |bencher| {
        bencher.iter_batched_ref(
            || tempfile::tempdir().unwrap(),
            |root| {
                Store::new(root.path())
                    .open_or_build(task, key, Some(raw), &())
                    .unwrap()
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

fn published(criterion: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| -> PathBuf { raw::file(root.path(), name, bytes) };
    let archives = [
        (
            "text",
            "10,000 reviews, .tar.gz",
            file("text", &raw::gzip(&raw::tar(&reviews()))),
        ),
        (
            "image",
            "24,000 pictures, .tar",
            file("image", &raw::tar(&pictures())),
        ),
        (
            "retrieval",
            "900 pairs, .tar",
            file("retrieval", &raw::tar(&pairs())),
        ),
    ];
    for (task, name, archive) in &archives {
        let task = tasks::find(task).unwrap();
        let mut key = Key::default_of(task);
        if key.options.get("allow_partial").is_some() {
            key.options["allow_partial"] = json!(true);
        }
        build(criterion, name, task, &key, archive);
        key.source = Source::Synthetic;
        build(criterion, "stand-in", task, &key, Path::new("none"));
    }
    if let Some(archive) = shared::find("imdb/aclImdb_labelled.tar.gz") {
        let text = tasks::find("text").unwrap();
        build(
            criterion,
            "the published reviews",
            text,
            &Key::default_of(text),
            &archive,
        );
    }
}

criterion_group!(benches, published);
criterion_main!(benches);
