#!/usr/bin/env bash
# Prints the path of the CUDA compiler: $NVCC, or that of lra/cuda/toolkit.sh, or that on the PATH. Prints nothing if
# there is none.
kit=$(cd "$(dirname "$0")/../../.." && pwd)/target/cuda-kit/site/nvidia/cu13/bin/nvcc
if [ -n "${NVCC:-}" ]; then
  echo "$NVCC"
elif [ -x "$kit" ]; then
  echo "$kit"
else
  command -v nvcc || true
fi
