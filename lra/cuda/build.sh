#!/usr/bin/env bash
# Builds lra for CUDA on a machine that needs neither a GPU nor a driver nor an installed toolkit: the compiler comes
# as pinned Python wheels into target/cuda-kit (about 300 MB). Further arguments go to cargo.
# The binary, target/cuda/release/lra, also runs where there is no CUDA at all.
set -euo pipefail
cd "$(dirname "$0")/../.."
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "this build is for Linux on x86-64; elsewhere, with a CUDA toolkit: cargo build --release -p lra --features cuda" >&2
  exit 2
fi

lra/cuda/toolkit.sh
toolkit=$PWD/target/cuda-kit/site/nvidia/cu13
export CUDA_HOME=$toolkit
export PATH=$toolkit/bin:$PATH
export NVCC=$PWD/lra/cuda/nvcc-lean
export CUDARC_CUDA_VERSION=13000
export CUDA_COMPUTE_CAP=${CUDA_COMPUTE_CAP:-90}
export CUDAFORGE_THREADS=${CUDAFORGE_THREADS:-$(nproc)}

cargo fetch --locked --quiet
cudarc=$(cargo metadata --format-version 1 --locked --features lra/cuda |
  python3 -c 'import json, os, sys
packages = json.load(sys.stdin)["packages"]
print(next(os.path.dirname(p["manifest_path"]) for p in packages if p["name"] == "cudarc"))')
python3 lra/cuda/stand_ins.py "$cudarc" "$toolkit/lib"
ln -sf libcudart_static.a "$toolkit/lib/libcudart.a"
cargo build --release --locked -p lra --features cuda --target-dir target/cuda "$@"
echo "built target/cuda/release/lra"
