#!/usr/bin/env bash
# Counts the copies between host and GPU that a training step makes: `host_copies.sh [MODEL...]`, by
# default all models, with recipe `smoke` on ListOps. Needs a GPU, a C compiler (or the library named
# by LIBRARY) and the program of `make cuda` (LRA names another). JOBS runs at once.
# A step copies its batch to the GPU; the loss and the norm of the gradients come back.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
lra=${LRA:-$root/target/cuda/release/lra}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
library=${LIBRARY:-$folder/host_copies.so}
[ -n "${LIBRARY:-}" ] || "${CC:-cc}" -shared -fPIC -O1 "$root/lra/cuda/host_copies.c" -o "$library" -ldl

few=4 many=12

# Trains model $1 for $2 steps, and prints the copies of the whole run.
run() {
  local counts=$folder/$1-$2.txt
  HOST_COPIES=$counts LD_PRELOAD=$library "$lra" run --quiet --task listops --model "$1" --recipe smoke \
    --device cuda:0 --steps "$2" --set train.eval_every=100 --set train.warmup=1 --data "$folder/data" \
    --out "$folder/$1-$2" >"$folder/$1-$2.log" 2>&1 || return 1
  awk '{ for (i = 1; i <= 4; i++) sum[i] += $i } END { print sum[1], sum[2], sum[3], sum[4] }' "$counts"
}

# Prints the copies of a step of model $1.
step() {
  local short long
  if short=$(run "$1" $few) && long=$(run "$1" $many); then
    echo "$1 $short $long" | awk -v n=$((many - few)) '{
      printf "%-20s %10.1f %12.0f %10.1f %12.0f\n", $1, ($6 - $2) / n, ($7 - $3) / n, ($8 - $4) / n, ($9 - $5) / n }'
  else
    printf '%-20s failed: %s\n' "$1" "$(grep -m 1 error "$folder/$1-"*.log)"
  fi
}

if [ $# -eq 0 ]; then
  # shellcheck disable=SC2046
  set -- $("$lra" list models --json | python3 -c 'import json, sys
print(*(model["name"] for model in json.load(sys.stdin)))')
fi
export -f run step
export lra folder library few many
# The data of all runs are built once.
"$lra" data make listops --recipe smoke --data "$folder/data" >"$folder/data.log" 2>&1 || cat "$folder/data.log" >&2
printf '%-20s %10s %12s %10s %12s\n' model 'to GPU' bytes 'from GPU' bytes
printf '%s\n' "$@" | xargs -P "${JOBS:-4}" -I {} bash -c 'step {}'
