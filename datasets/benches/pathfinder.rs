//! Images per second of one thread, per size and difficulty.
#![allow(missing_docs)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use lra_datasets::tasks::pathfinder::{Difficulty, Generator, Parameters, Pixels, Size};

/// Number of images per sample: the time for a hard one varies a hundredfold.
const IMAGES: u64 = 200;

fn images(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pathfinder");
    group.sample_size(10).warm_up_time(Duration::from_secs(1));
    group.throughput(Throughput::Elements(IMAGES));
    for size in Size::ALL {
        for difficulty in Difficulty::ALL {
            let parameters = Parameters::published(size, difficulty);
            let generator = Generator::new(parameters, Pixels::Release);
            let mut workspaces = generator.workspaces();
            group.bench_function(format!("{}/{difficulty}", size.side()), |bencher| {
                bencher.iter(|| {
                    for number in 0..IMAGES {
                        black_box(generator.image(&mut workspaces, 0, number));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, images);
criterion_main!(benches);
