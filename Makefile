# `make run` does the main job, `make test` proves it works. Both need nothing but a Rust toolchain.

.PHONY: run test lint bench table regression baseline cuda check-cuda clean

## Train a Performer on ListOps (minutes on two cores) and show its cells of the tables
run:
	cargo run --release --locked -p lra -- run --task listops --model performer --resume

## Format check, lints as errors, all tests: what a change must pass
test: lint check-cuda
	cargo test --locked --workspace

lint:
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings

## Benchmarks of generators and kernels (criterion)
bench:
	cargo bench --locked --workspace

## Tables of all runs under runs/
table:
	cargo run --release --locked -p lra -- report

## The binary for NVIDIA GPUs, target/cuda/release/lra; needs no GPU, driver or toolkit to build
cuda:
	lra/cuda/build.sh

## Lints the code for NVIDIA GPUs without any CUDA
check-cuda:
	NVCC=$(CURDIR)/lra/cuda/nvcc-none CUDARC_CUDA_VERSION=13000 CUDA_COMPUTE_CAP=90 \
		cargo clippy --locked -p lra --features cuda -- -D warnings

clean:
	cargo clean
