#!/usr/bin/env bash
# Fetches the CUDA compiler as pinned Python wheels into target/cuda-kit (about 300 MB), unless it is there.
set -euo pipefail
cd "$(dirname "$0")/../.."
kit=$PWD/target/cuda-kit
if [ ! -x "$kit/site/nvidia/cu13/bin/nvcc" ]; then
  rm -rf "$kit"
  python3 -m venv "$kit/venv"
  # In one call: a second one would skip the wheels that share the folder. 13.0 is the newest that drivers of
  # series 580 take code from.
  "$kit/venv/bin/pip" install --quiet --no-deps --target "$kit/site" \
    nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88 \
    nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
fi
