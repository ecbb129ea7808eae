//! Speed of drawing, evaluating and storing ListOps. `cargo bench -p lra-datasets`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use lra_datasets::tasks::ListOps;
use lra_datasets::tasks::listops::{Options, TOKENS, evaluate, generate};
use lra_datasets::{Key, Source, Store};

fn listops(criterion: &mut Criterion) {
    let options = Options {
        train: 8_000,
        val: 1_000,
        test: 1_000,
        ..Options::published()
    };
    let mut tokens = Vec::new();
    let mut ends = Vec::new();
    generate(&options, &(), |_, row, _| {
        tokens.extend_from_slice(row);
        ends.push(tokens.len());
        Ok(())
    })
    .unwrap();

    let mut group = criterion.benchmark_group("listops");
    group.sample_size(10);
    group.throughput(Throughput::Elements(options.rows() as u64));
    group.bench_function("generate 10,000 rows", |bencher| {
        bencher.iter(|| generate(&options, &(), |_, _, _| Ok(())).unwrap());
    });
    group.bench_function("evaluate 10,000 rows", |bencher| {
        bencher.iter(|| {
            let mut start = 0;
            let mut sum = 0;
            for &end in &ends {
                sum += u64::from(evaluate(&tokens[start..end]).unwrap());
                start = end;
            }
            sum
        });
    });
    let root = tempfile::tempdir().unwrap();
    write_published(root.path(), &tokens, &ends);
    let official = Key {
        source: Source::Official,
        ..Key::default_of(&ListOps)
    };
    group.bench_function("read 10,000 published rows three times", |bencher| {
        bencher.iter(|| {
            Store::new(root.path())
                .rebuild(&ListOps, &official, Some(root.path()), &())
                .unwrap()
        });
    });
    group.finish();

    // The whole build with its files, for which `lra data make listops` waits.
    let mut group = criterion.benchmark_group("listops, published size");
    group.sample_size(10);
    group.bench_function("store", |bencher| {
        bencher.iter_batched_ref(
            || tempfile::tempdir().unwrap(),
            |root| {
                Store::new(root.path())
                    .open_or_build(&ListOps, &Key::default_of(&ListOps), None, &())
                    .unwrap()
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

/// Writes the rows in the form of the published files, parentheses included, for each split.
fn write_published(folder: &Path, tokens: &[u8], ends: &[usize]) {
    let mut text = String::from("Source\tTarget\r\n");
    let mut start = 0;
    for &end in ends {
        let row = &tokens[start..end];
        // The reader skips parentheses wherever they are: three for each token, as many as
        // published.
        let words: Vec<_> = row
            .iter()
            .map(|&token| format!("( {} ) )", TOKENS[usize::from(token)]))
            .collect();
        text.push_str(&format!(
            "{}\t{}\r\n",
            words.join(" "),
            evaluate(row).unwrap()
        ));
        start = end;
    }
    for part in ["train", "val", "test"] {
        fs::write(folder.join(format!("basic_{part}.tsv")), &text).unwrap();
    }
}

criterion_group!(benches, listops);
criterion_main!(benches);
