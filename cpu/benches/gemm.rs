//! Speed of matrix products, in f32 and in bfloat16, with and without packing:
//! `cargo bench -p lra-cpu`.
//!
//! Throughput counts 2 m n k floating-point operations as elements. The whole benchmark runs on one
//! thread.

#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use lra_cpu::gemm::{Matrix, PackedMatrix, multiply, multiply_packed};
use lra_cpu::isa::Isa;
use lra_cpu::testing::Sampler;

/// (m, n, k): a projection of the small protocol, one of the published size, its feed-forward
/// network.
const SIZES: [(usize, usize, usize); 3] = [(1024, 64, 64), (1024, 512, 512), (1024, 2048, 512)];

fn products(c: &mut Criterion) {
    let mut sampler = Sampler::new(1);
    for (m, n, k) in SIZES {
        let [a, b] = [m * k, k * n].map(|len| sampler.normal(len, 1.0));
        let (a, b) = (Matrix::rows(&a, k), Matrix::rows(&b, n));
        let mut y = vec![0.0; m * n];
        let mut group = c.benchmark_group(format!("{m}x{n}x{k}"));
        group.throughput(Throughput::Elements(2 * (m * n * k) as u64));
        for isa in [Isa::all(), Isa::all_rounded()].concat() {
            group.bench_function(BenchmarkId::new("plain", format!("{isa:?}")), |bencher| {
                bencher.iter(|| multiply(isa, (m, n, k), a, b, &mut y, false));
            });
            let packed = PackedMatrix::new(isa, b, (k, n));
            group.bench_function(BenchmarkId::new("packed", format!("{isa:?}")), |bencher| {
                bencher.iter(|| multiply_packed(isa, m, a, &packed, &mut y, false));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, products);
criterion_main!(benches);
