#!/usr/bin/env bash
# Compiles every kernel for compute capability 8.0 (A100), 8.9 (4090) and 9.0 (H100), and compares
# registers, shared memory, spills and occupancy with resources.csv. With RENEW=1, writes that file.
# Needs nvcc (nvcc.sh). The figures are those of CUDA 13.0.88; other versions are not compared.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$root/target/test-cuda/resources
table=$here/resources.csv
release=13.0.88

nvcc=$("$here/nvcc.sh")
if [ -z "$nvcc" ]; then
  echo "skipped resources: no nvcc (lra/cuda/toolkit.sh fetches one into target/cuda-kit; NVCC names another)"
  exit 0
fi
if ! "$nvcc" --version | grep -qF "V$release"; then
  echo "skipped resources: $nvcc is not release $release, whose figures are in resources.csv"
  exit 0
fi
ptxas=$(dirname "$nvcc")/ptxas

# Prints a line for each kernel of the report $3 on target $2: its threads are in the PTX $1.
rows() {
  awk -v target="$2" '
    function ceil(x) { return x == int(x) ? x : int(x) + 1 }
    function min(a, b) { return a < b ? a : b }
    # Warps of a multiprocessor that are resident, in percent.
    function occupancy(registers, shared, warps,   most, blocks, by_registers) {
      most = target == "8.9" ? 48 : 64
      blocks = min(target == "8.9" ? 24 : 32, int(most / warps))
      # A warp takes registers by 256, and warps come in fours.
      by_registers = int(65536 / (256 * ceil(registers * 32 / 256)) / 4) * 4
      blocks = min(blocks, int(by_registers / warps))
      # A block takes shared memory by 128 bytes, and 1 KiB of the system.
      memory = (target == "8.0" ? 164 : target == "8.9" ? 100 : 228) * 1024
      blocks = min(blocks, int(memory / (128 * ceil(shared / 128) + 1024)))
      return int(100 * blocks * warps / most)
    }
    FNR == NR {
      if ($0 ~ /\.entry/) { name = $0; sub(/.*\.entry +/, "", name); sub(/[^A-Za-z0-9_].*/, "", name) }
      if ($1 == ".maxntid") threads[name] = $2 + 0
      next
    }
    /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
    /bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
    /Used [0-9]+ registers/ {
      registers = $0; sub(/.*Used /, "", registers); registers += 0
      shared = 0
      if ($0 ~ / bytes smem/) { shared = $0; sub(/ bytes smem.*/, "", shared); sub(/.*, /, "", shared); shared += 0 }
      # Dynamic shared memory at the largest size: 4,096 complex numbers, 8 columns or 2 rows of 256;
      # heads of 64 channels, with gradients of a table by distance; 128 keys of linear attention with decays of
      # their own; 32 modes of both directions of a spectrum.
      dynamic = name == "embedding_backward" ? 65536 : name == "dplr_spectrum_forward" ? 3584 : name == "dplr_spectrum_backward" ? 17920 : name ~ /^gated_linear_attention_starts/ ? 0 : name ~ /^gated_linear_attention_backward/ ? 92800 : name ~ /^gated_linear_attention/ ? 55488 : name ~ /^attention.*forward$/ ? 32768 : name == "attention_general_backward_queries" ? 57856 : name ~ /^attention.*backward/ ? 49152 : name ~ /^fft_conv/ ? 32768 : name ~ /^fft_long_(columns|tap|sequence)/ ? 16384 : name ~ /^fft_long/ ? 4096 : 0
      printf "%s,%s,%d,%d,%d,%d,%d,%d,%d,%d\n", name, target, threads[name], registers, shared, dynamic,
        stack, stores, loads, occupancy(registers, shared + dynamic, threads[name] / 32)
    }' "$1" "$3"
}

mkdir -p "$out"
new=$out/resources.csv
: >"$out/rows"
while read -r file; do
  name=$(tr / - <<<"${file#"$root"/models/src/}")
  ptx=$out/${name%.cu}.ptx
  "$nvcc" -std=c++20 -O3 --Werror all-warnings -arch=compute_80 -ptx -I"$root/models/src" "$file" -o "$ptx"
  for target in 8.0 8.9 9.0; do
    "$ptxas" -v "-arch=sm_${target/./}" "$ptx" -o /dev/null 2>"$out/report" || { cat "$out/report"; exit 1; }
    rows "$ptx" "$target" "$out/report" >>"$out/rows"
  done
done < <(find "$root/models/src" -name '*.cu' | sort)
{
  echo "kernel,target,threads,registers,shared,dynamic_shared,stack,spill_stores,spill_loads,occupancy"
  LC_ALL=C sort -t, -k1,1 -k2,2 "$out/rows"
} >"$new"

if spills=$(awk -F, 'NR > 1 && $8 + $9 > 0' "$new") && [ -n "$spills" ]; then
  echo "FAILED  resources: registers spill to memory:"
  echo "$spills"
  exit 1
fi
for kernel in $(awk -F, 'NR > 1 && $2 == "9.0" { print $1 }' "$new"); do
  if ! grep -qF "\`$kernel\`" "$root/models/src/cuda/kernels.md"; then
    echo "FAILED  resources: models/src/cuda/kernels.md has no row for $kernel"
    exit 1
  fi
done
if [ "${RENEW:-}" = 1 ]; then
  cp "$new" "$table"
elif ! diff -u "$table" "$new"; then
  echo "FAILED  resources: the figures differ from resources.csv; after an intended change, RENEW=1 $0"
  exit 1
fi
echo "ok      resources: $(grep -c ',9.0,' "$new") kernels on three targets, no spills"
