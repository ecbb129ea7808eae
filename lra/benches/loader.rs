//! Speed of loading examples: opening a store, and batches per second from the thread that prepares
//! them, of every task at its published length. `cargo bench -p lra --bench loader`.
//!
//! Training waits for data only if its steps are shorter than a batch here.
// The tests of the file are no tests here.
#![allow(missing_docs, clippy::unwrap_used, dead_code, unused_imports)]

#[path = "../src/batch.rs"]
mod batch;

use std::hint::black_box;
use std::sync::Arc;

use batch::{Layout, Prefetcher};
use candle_core::Device;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use datasets::{Key, Source, Store};
use serde_json::json;

/// Examples per batch.
const BATCH: usize = 32;

/// Examples of train: few, because drawing the largest takes a thirtieth of a second each.
const ROWS: usize = 4 * BATCH;

fn loader(criterion: &mut Criterion) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    for &task in datasets::TASKS {
        let info = task.info();
        let mut key = Key::default_of(task);
        let drawn = |source: &&Source| **source != Source::Official;
        key.source = *info.sources.iter().find(drawn).unwrap();
        for (split, rows) in [("train", ROWS), ("val", 2), ("test", 2)] {
            key.options[split] = json!(rows);
        }
        let splits = store.open_or_build(task, &key, None, &()).unwrap();

        let mut group = criterion.benchmark_group(info.name);
        group.bench_function("open", |bencher| {
            bencher.iter(|| store.open(task, &key).unwrap());
        });
        let layout = Layout::new(info, task.shape(&key.options).unwrap().train_length);
        let feed = Prefetcher::start(Arc::new(splits), layout, 0, BATCH, 0).unwrap();
        group.throughput(Throughput::Elements(BATCH as u64));
        group.bench_function(format!("batches of {BATCH}"), |bencher| {
            bencher.iter(|| {
                let batch = feed.next().unwrap();
                black_box(batch.to_device(0..batch.len(), &Device::Cpu).unwrap())
            });
        });
        group.finish();
    }
}

criterion_group!(benches, loader);
criterion_main!(benches);
