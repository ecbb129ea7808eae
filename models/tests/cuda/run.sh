#!/usr/bin/env bash
# Proves the CUDA kernels (models/src/**/*.cu) on the host; no GPU and no CUDA needed. Parts:
#   tests      every test (*.cpp here) with the address and undefined-behaviour sanitizers, and with
#              the thread sanitizer
#   faults     every fault of faults.tsv, planted in a copy of the kernels: its test must fail
#   resources  registers, shared memory, spills and occupancy of every kernel, compared with
#              resources.csv (needs nvcc; RENEW=1 writes the file)
#   device     the same tests built by nvcc, and run where there is a GPU
#   speed      times and bytes per second of most kernels (needs nvcc and a GPU)
# `run.sh [PART...]` runs the parts named; by default tests, faults and resources. JOBS builds run at
# once (default: all cores).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$root/target/test-cuda
compiler=${CXX:-g++}

# Prints the flags of a build. Sanitizers name the lines of what they find; -g1 writes no more.
flags() {
  case $1 in
    address) echo "-g1 -fsanitize=address,undefined -fno-sanitize-recover=all" ;;
    thread) echo "-g1 -fsanitize=thread" ;;
    plain) ;;
  esac
}

# Builds test $1 in build $2 as program $3. Kernels are looked up in the folders $4, ... first. A
# program with a planted fault ends at its first error, so compiling it takes longer than running it:
# OPTIMISE=-O0 makes both shorter.
build() {
  local test=$1 kind=$2 program=$3
  shift 3
  # shellcheck disable=SC2046
  "$compiler" -std=c++20 "${OPTIMISE:--O1}" -fno-omit-frame-pointer -ffp-contract=off -Wall -Wextra \
    -Wno-unused-function $(flags "$kind") "${@/#/-I}" -I"$root/models/src" -I"$here" \
    "$here/$test.cpp" -o "$program"
}

# Runs program $1. The first race or bad access ends it. Random addresses are off where they can be:
# older thread sanitizers refuse those of newer kernels.
execute() {
  local fixed=()
  if setarch -R true 2>/dev/null; then fixed=(setarch -R); fi
  TSAN_OPTIONS=halt_on_error=1:exitcode=66 UBSAN_OPTIONS=print_stacktrace=1 "${fixed[@]}" "$1" 2>&1 |
    sed '/ASan doesn.t fully support makecontext/d'
}

run_test() {
  build "$1" "$2" "$out/$1-$2"
  local report
  if report=$(execute "$out/$1-$2"); then
    echo "ok      $2: $report"
  else
    echo "FAILED  $2: $1"
    echo "$report" | head -60
    return 1
  fi
}

# Plants the fault in line $1 of faults.tsv, and requires that its test finds it.
run_fault() {
  local line test kind file text replacement meaning folder=$out/fault-$1
  line=$(sed -n "$1p" "$here/faults.tsv")
  field() { cut -f"$1" <<<"$line"; }
  test=$(field 1) kind=$(field 2) file=$(field 3)
  text=$(field 4) replacement=$(field 5) meaning=$(field 6)
  rm -rf "$folder"
  mkdir -p "$folder/$(dirname "$file")"
  if ! text=$text replacement=$replacement awk '
      BEGIN { text = ENVIRON["text"]; replacement = ENVIRON["replacement"] }
      (at = index($0, text)) && !found++ {
        $0 = substr($0, 1, at - 1) replacement substr($0, at + length(text))
      }
      { print }
      END { exit !found }' "$root/models/src/$file" >"$folder/$file"; then
    echo "FAILED  faults.tsv:$1: $file has no such text: $text"
    return 1
  fi
  if ! OPTIMISE=-O0 build "$test" "$kind" "$folder/$test" "$folder" 2>"$folder/errors"; then
    echo "FAILED  faults.tsv:$1: $meaning: does not compile"
    head -20 "$folder/errors"
    return 1
  fi
  if FIRST_ERROR=1 execute "$folder/$test" >"$folder/report"; then
    echo "FAILED  faults.tsv:$1: $test did not find in build '$kind': $meaning"
    return 1
  fi
  echo "found   $test: $meaning: $(grep -m1 -E 'WARNING: Thread|ERROR: Address|runtime error|error|shim:|depend' "$folder/report" | cut -c1-110)"
}

# Returns whether the compiler is one that the tests were written for.
has_compiler() {
  for kind in address thread; do
    # shellcheck disable=SC2046
    "$compiler" $(flags "$kind") -std=c++20 -x c++ -o "$out/probe" - 2>/dev/null <<'PROBE' || return 1
#if !defined(__linux__) || defined(__clang__) || __GNUC__ < 12
#error "another compiler"
#endif
int main() {}
PROBE
  done
}

# Builds source $1 for GPUs of compute capability 8.0 and newer as program $2.
build_for_device() {
  local nvcc
  nvcc=$("$here/nvcc.sh")
  "$nvcc" -x cu -std=c++20 -O3 -arch=compute_80 -code=compute_80 -I"$root/models/src" -I"$here" \
    -L"$(dirname "$nvcc")/../lib" "$1" -o "$2"
}

run_device() {
  local report
  build_for_device "$here/$1.cpp" "$out/$1-device"
  if ! nvidia-smi -L >/dev/null 2>&1; then
    echo "built   device: $1, not run: no GPU"
  elif report=$("$out/$1-device" 2>&1); then
    echo "ok      device: $report"
  else
    echo "FAILED  device: $1"
    echo "$report" | head -60
    return 1
  fi
}

device() {
  for test in "$here"/*.cpp; do echo "device $(basename "$test" .cpp)"; done
}

tests() {
  for test in "$here"/*.cpp; do
    for kind in address thread; do echo "test $(basename "$test" .cpp) $kind"; done
  done
}

faults() {
  awk '/^[^#]/ { print "fault " NR }' "$here/faults.tsv"
}

# Runs the lines "test NAME BUILD" and "fault LINE" of the input, several at once.
run_all() {
  xargs -P "${JOBS:-$(nproc)}" -L 1 "$here/run.sh"
}

mkdir -p "$out"
case ${1:-} in
  test) run_test "$2" "$3"; exit ;;
  fault) run_fault "$2"; exit ;;
  device)
    if [ $# -gt 1 ]; then run_device "$2"; exit; fi
    ;;
esac
[ $# -gt 0 ] || set -- tests faults resources
for part; do
  case $part in
    tests | faults)
      if ! has_compiler; then
        echo "skipped $part: '$compiler' is no g++ 12 or newer with sanitizers on Linux (CXX names one)"
      else
        $part | run_all
      fi
      ;;
    resources) "$here/resources.sh" ;;
    device | speed)
      if [ -z "$("$here/nvcc.sh")" ]; then
        echo "skipped $part: no nvcc (lra/cuda/toolkit.sh fetches one into target/cuda-kit; NVCC names another)"
      elif [ "$part" = device ]; then
        device | run_all
      else
        build_for_device "$here/speed.cu" "$out/speed"
        "$out/speed"
      fi
      ;;
    *) echo "run.sh: no part '$part': tests, faults, resources, device or speed" >&2; exit 2 ;;
  esac
done
