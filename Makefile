# `make run` does the main job, `make test` proves it works. Both need nothing but a Rust toolchain.

.PHONY: run test lint bench bench-peers sanitize table regression baseline compare-speed cuda test-cuda test-python wheel book clean

## Train a Performer on ListOps by the small protocol, and say what its score means
run:
	cargo run --release --locked -p lra -- run --task listops --model performer --resume

## Format check, lints as errors, documentation, whether the crates can be packaged, all tests: what a change must pass
test:
	@$(MAKE) --no-print-directory --jobs=2 test-cuda test-build
	@$(MAKE) --no-print-directory --jobs=3 test-counts test-most test-rest
	@python3 -c 'import numpy' 2>/dev/null || echo "test-python was not run: it needs Python 3.9 with NumPy"

# The tests are built while `test-cuda` still runs. Cargo would take the number of jobs from MAKEFLAGS.
TEST := MAKEFLAGS= cargo test --locked --workspace
.PHONY: test-build test-counts test-most test-rest
test-build: lint
	$(TEST) --no-run

# Programs that count allocations or operations on one thread, or run themselves again. Others run beside them. A test compares both
# lists with the manifests (lra/tests/workflows.rs).
COUNTS := growth peaks planted_bugs threads
MOST := all bfloat16 every_model fetch fuzz

test-counts:
	$(TEST) $(COUNTS:%=--test %)

test-most:
	$(TEST) --lib --bins $(MOST:%=--test %)

test-rest:
	$(TEST) --doc
	@if python3 -c 'import numpy' 2>/dev/null; then $(MAKE) test-python; fi

# Variables by which the code for NVIDIA GPUs is built without any CUDA, so that it is linted with everything else.
STUBS := NVCC=$(CURDIR)/lra/cuda/nvcc-none CUDARC_CUDA_VERSION=13000 CUDA_COMPUTE_CAP=90

lint:
	cargo fmt --all --check
	$(STUBS) cargo clippy --locked --workspace --all-targets --features lra/cuda -- -D warnings
	$(STUBS) RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps --lib --quiet --features lra/cuda
	cargo package --locked --workspace --no-verify --allow-dirty --quiet

## Benchmarks of generators and operations (criterion)
bench:
	cargo bench --locked --workspace

## Training steps beside PyTorch's, as Markdown (needs Python 3.11 or newer, a C++ compiler and a network, for packages in target/peers;
## PEERS passes options on, such as PEERS="--size paper --lengths 1024 --rounds 5", or PEERS=--cpu on a machine that is shared;
## DEVICE=cuda:0 compares on a GPU, with the program that `make cuda` has built)
DEVICE ?= cpu
bench-peers:
	$(if $(filter cpu,$(DEVICE)),cargo build --release --locked -p lra,lra/cuda/build.sh)
	python3 -m venv target/peers
	target/peers/bin/pip install --quiet -r lra/benches/peers/requirements.txt
	target/peers/bin/pip install --quiet --upgrade --target target/peers-older -r lra/benches/peers/requirements-older.txt
	-target/peers/bin/pip install --quiet --no-build-isolation --no-deps -r lra/benches/peers/requirements-built.txt
	target/peers/bin/python lra/benches/peers/compare.py --out target/peers.md --device $(DEVICE) \
		--lra target/$(if $(filter cpu,$(DEVICE)),,cuda/)release/lra $(PEERS)

## The tests of all operations under valgrind, which sees any access beyond the heap's blocks. It has no AVX-512, so the AVX2 and
## portable paths run
sanitize:
	CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="valgrind --quiet --error-exitcode=1 --leak-check=no --fair-sched=yes" \
		sh -c 'cargo test --locked -p lra-cpu --lib && cargo test --locked -p lra-models --lib -- ops:: autograd::'

## Prints functions of the release build in which vector instructions are calls: parts of kernels
## that were compiled for the least instruction set (needs objdump; some minutes)
.PHONY: outlined
outlined:
	cargo build --release --locked -p lra
	objdump -d -C --no-show-raw-insn target/release/lra | awk -f cpu/outlined.awk

# Number of inputs per reader, and the reader (a folder of `lra/fuzz/corpus`); all of them by default.
FUZZ_RUNS ?= 1000000
READER ?= *

# Flags of `cargo fuzz` without a sanitizer; a stable compiler takes them.
COVERAGE := --cfg fuzzing -Cpasses=sancov-module $(foreach flag,level=4 inline-8bit-counters pc-table trace-compares,\
	-Cllvm-args=-sanitizer-coverage-$(flag))

## Attacks each reader of files from outside with a million inputs, guided by coverage (FUZZ_RUNS and READER change both; needs a
## C++ compiler). Failing inputs are written to target/fuzz: copy them to lra/fuzz/corpus, whose files the tests read
.PHONY: fuzz
fuzz:
	cd lra/fuzz && RUSTFLAGS="$(COVERAGE)" CARGO_TARGET_DIR=$(CURDIR)/target/fuzz \
		cargo build --release --locked --target $(shell rustc -vV | sed -n 's/host: //p')
	@set -e; for corpus in lra/fuzz/corpus/$(READER); do \
		reader=$$(basename $$corpus); echo "$$reader"; \
		mkdir -p target/fuzz/found/$$reader; \
		READER=$$reader RAYON_NUM_THREADS=1 target/fuzz/*/release/lra-fuzz -runs=$(FUZZ_RUNS) -timeout=20 -rss_limit_mb=1024 \
			-max_len=16384 -verbosity=0 -print_final_stats=1 -artifact_prefix=target/fuzz/$$reader- \
			target/fuzz/found/$$reader $$corpus; \
	done

# Whether the pictures are made anew rather than compared.
RENEW ?=

## The HTML page in a headless Chromium at three widths, light, dark and in print, and the site of this repository's records at four
## widths, beside the pictures on file (RENEW=1 renews them)
.PHONY: screenshots
screenshots:
	RENEW=$(RENEW) cargo test --locked -p lra-results --test all -- browser:: --ignored

## The job scripts of `lra sweep --emit slurm` tried with a real Slurm of this one machine, preemption included (root, and
## Debian's packages slurm-wlm and munge)
.PHONY: slurm
slurm:
	cargo build --release --locked -p lra
	lra/tests/slurm.sh target/release/lra

## Tables of all runs under runs/
table:
	cargo run --release --locked -p lra -- report

# What the regression check is held against, how much relative speed a cell may lose in runs of milliseconds, how the
# verdicts are shown, and the program.
BASELINE ?= results/baselines/smoke.csv
SPEED ?= 0.5
CHECK ?=
LRA ?= cargo run --quiet --release --locked -p lra --
MATRIX := target/regression

# Settings that make runs on pictures of 1,024 pixels a matter of a second.
SHORT := $(addprefix --set ,train.steps=4 train.warmup=1 train.eval_every=4 train.eval_examples=8 data.val=8 data.test=16)

# Settings that make runs of the small protocol, at their full width, a matter of seconds.
TINY := $(addprefix --set ,train.steps=4 train.batch=2 train.warmup=2 train.eval_every=2 train.eval_examples=16 \
	train.log_every=1 train.speed_warmup=1 data.train=64 data.val=16 data.test=16)

.PHONY: matrix
matrix:
	rm -rf $(MATRIX)/runs
	$(LRA) sweep --tasks listops --models all --recipe smoke --threads 1 --jobs 2 --data $(MATRIX)/data --out $(MATRIX)/runs
	$(LRA) sweep --tasks pathfinder,image:synthetic --models all --recipe smoke $(SHORT) --threads 1 --jobs 2 \
		--data $(MATRIX)/data --out $(MATRIX)/runs
	$(LRA) sweep --tasks listops --models transformer,performer,local --components --set block.layers=2 --recipe smoke --threads 1 --jobs 2 \
		--data $(MATRIX)/data --out $(MATRIX)/runs
	$(LRA) sweep --tasks listops,pathfinder,retrieval:synthetic --models transformer,s4d,mega,chordmixer --recipe mini $(TINY) \
		--threads 1 --jobs 2 --data $(MATRIX)/data --out $(MATRIX)/runs

## The smoke matrix, all models on three tasks and a model of each family on the small protocol, held against its baseline: minutes
regression: matrix
	$(LRA) check $(MATRIX)/runs --baseline $(BASELINE) --speed-threshold $(SPEED) $(CHECK)

# Another build of the program, and what else `lra bench` is told.
BASE ?=
BENCH ?=

## The speed of every model held against that of the build BASE=program, both in turn: some ten minutes on two cores
compare-speed:
	@test -n "$(BASE)" || { echo "BASE=PROGRAM is needed: another build of lra" >&2; exit 2; }
	$(LRA) bench --base "$(BASE)" --lengths 1024 --batch 4 --per-round 500ms --out $(MATRIX)/bench $(BENCH)

## The smoke matrix becomes the baseline
baseline: matrix
	mkdir -p $(dir $(BASELINE))
	$(LRA) check $(MATRIX)/runs --baseline $(BASELINE) --update

## The binary for NVIDIA GPUs, target/cuda/release/lra; needs no GPU, driver or toolkit to build
cuda:
	lra/cuda/build.sh

## The CUDA kernels of models/src, built for the host: results beside their formulas, sanitizers, planted faults (needs a C++20
## compiler, no GPU and no CUDA), and their registers and spills (needs nvcc: lra/cuda/toolkit.sh). JOBS=1 runs one at a time
test-cuda:
	models/tests/cuda/run.sh

## The Python package in lra/python, with the program that the tests were run with (needs Python 3.9 or newer with NumPy; what pandas or
## PyTorch are needed for is tested where they are)
test-python:
	LRA_PROGRAM=$(CURDIR)/target/debug/lra python3 lra/python/tests/test_lra.py
	LRA_PROGRAM=$(CURDIR)/target/debug/lra python3 lra/python/tests/test_torch.py
	LRA_PROGRAM=$(CURDIR)/target/debug/lra python3 lra/python/tests/test_notebooks.py
	python3 lra/python/tests/test_peers.py
	python3 lra/python/tests/test_stand_ins.py

## Execute the notebooks of docs/notebooks anew (needs the Python packages nbclient, ipykernel, matplotlib, pandas and torch)
.PHONY: notebooks
notebooks:
	cargo build --release --locked -p lra
	LRA_PROGRAM=$(CURDIR)/target/release/lra python3 lra/python/notebooks.py

## The program and the Python package as a wheel, target/wheels (needs maturin: pip install maturin)
wheel:
	maturin build --out target/wheels

PAGES := target/book/source

MDBOOK := target/tools/bin/mdbook

$(MDBOOK):
	cargo install --quiet --locked --debug --no-default-features --version 0.5.4 --root target/tools mdbook

## The documentation as a book, target/book/html. The table of contents is read from above docs/
book: $(MDBOOK)
	rm -rf target/book
	mkdir -p $(PAGES)
	tar -cf - *.md docs lra/examples results/records/*.svg | tar -xf - -C $(PAGES)
	sed -e 's|](|](docs/|' -e 's|](docs/\.\./|](|' docs/SUMMARY.md > $(PAGES)/SUMMARY.md
	rm $(PAGES)/docs/SUMMARY.md
	$(MDBOOK) build

## The published figures and the records of this repository as a static site, target/site
.PHONY: site
site:
	cargo run --release --locked -p lra -- publish target/site results/records

clean:
	cargo clean
