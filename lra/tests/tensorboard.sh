#!/usr/bin/env bash
# Reads the event files of a real run with the real TensorBoard, installed into a throw-away folder.
# Not part of the test suite: it needs Python and a package registry.
set -euo pipefail
cd "$(dirname "$0")/../.."
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" --quiet install 'tensorboard==2.17.1' 'setuptools<80'
cargo run --quiet --release --locked -p lra -- run --task toy --model bag --recipe smoke --quiet \
  --tensorboard --data "$place/data" --out "$place/runs" >/dev/null
"$place/venv/bin/python" - "$place"/runs/* <<'PYTHON'
import json
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

run = sys.argv[1]
events = EventAccumulator(run + "/tensorboard")
events.Reload()
lines = [json.loads(line) for line in open(run + "/metrics.jsonl")]
for kind, names in (("train", ("loss", "gradient_norm", "rate")), ("validation", ("loss", "accuracy"))):
    for name in names:
        read = [(scalar.step, scalar.value) for scalar in events.Scalars(f"{kind}/{name}")]
        logged = [(line["step"], line[name]) for line in lines if line["event"] == kind]
        assert [step for step, _ in read] == [step for step, _ in logged], (kind, name)
        assert all(abs(a - b) <= 1e-6 * max(1, abs(b)) for (_, a), (_, b) in zip(read, logged)), (kind, name)
        print(f"{kind}/{name}: {len(read)} values as logged")
PYTHON
