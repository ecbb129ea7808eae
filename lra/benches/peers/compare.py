"""Training steps of lra beside those of its peers, in turn, as a Markdown table.

    python compare.py --lra ../../../target/release/lra --lengths 1024,2048 --out peers.md
    python compare.py --listops data --seconds 20

In every round lra runs its steps in a process of its own (`lra bench`), then the peer's process, which has been waiting,
runs its own. A ratio is lra's median step over the peer's in the same round; the table has the median of the rounds and,
in brackets, the least and the largest. Times are of forward pass, loss, backward pass and AdamW. Memory is the most that
was in use at once: of lra all live heap bytes, of a peer what its process took beyond Python, PyTorch and its packages.

Rows are the models of `lra list models` that have a peer (`@peer` in eager.py, packages.py, hugging_face.py, state_spaces.py).
A model whose numbers are held against a package has one, or a reason in WITHOUT.

With `--cpu` times are the processor's, for a machine that is shared; one thread, since those of PyTorch spin while they wait.

With `--precision bf16` lra rounds the factors of its products, and the peer runs under PyTorch's autocast.

With `--listops` both sides train on the real task by the `nystromformer` recipe, with padding, masks and dropout: lra by
`lra run`, which is stopped when it has made its steps, the peer on batches of the same training split. PyTorch leaves its fused
attention where weights are dropped; `--attention-dropout 0` drops none, on both sides. `--bucket 50` has both sort fifty batches by
length and pad to the longest of each.
"""

import argparse
import json
import os
import pathlib
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from peer import load

HERE = pathlib.Path(__file__).parent
# What both sides build: layers, width, heads, feed-forward width, examples per step.
SIZES = {
    "small": {"layers": 2, "dim": 64, "heads": 2, "mlp": 128, "batch": 8},
    "wide": {"layers": 2, "dim": 128, "heads": 4, "mlp": 256, "batch": 8},
    "paper": {"layers": 6, "dim": 512, "heads": 8, "mlp": 2048, "batch": 1},
}
# The same of the recipe, which trains on sequences of up to 2,000 tokens.
RECIPE = {"layers": 2, "dim": 64, "heads": 2, "mlp": 128, "batch": 32, "dropout": 0.1, "vocabulary": 16, "classes": 10}
RECIPE_LENGTH = 2000
HEAD = 128
# Models that are held against a package that no training step can be set beside, and why.
WITHOUT = {}


def settings_of(arguments, model, sizes):
    """The model's name and the settings of both sides' sizes, dropout being left out."""
    name, *options = model.split(":")
    settings = {
        "train.precision": arguments.precision,
        "embed.dropout": 0,
        "block.dropout": 0,
        "block.attention_dropout": 0,
        "block.layers": sizes["layers"],
        "block.dim": sizes["dim"],
        "block.qkv_dim": sizes["dim"],
        "block.heads": sizes["heads"],
        "block.mlp_dim": sizes["mlp"],
        "head.hidden": HEAD,
    }
    assignments = [f"{key}={value}" for key, value in settings.items()]
    return name, assignments + [f"model.{option}" for option in options]


def ours(arguments, model, length, sizes):
    """One cell of `lra bench`."""
    name, assignments = settings_of(arguments, model, sizes)
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.lra, "bench", "--models", name, "--lengths", str(length), "--json"]
        command += ["--batch", str(sizes["batch"]), "--rounds", "1", "--quiet", "--out", folder]
        command += ["--per-round", f"{round(1000 * arguments.seconds)}ms", "--threads", str(arguments.threads)]
        for assignment in assignments:
            command += ["--set", assignment]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    (cell,) = json.loads(answer.stdout)
    if not cell["rounds"]:
        raise RuntimeError(json.dumps(cell["outcome"]))
    (measured,) = cell["rounds"]
    return measured | {"peak_bytes": all_live(measured)}


def ours_by_processor(arguments, model, length, sizes):
    """Steps of `lra measure`, in seconds of the processor."""
    name, assignments = settings_of(arguments, model, sizes)
    assignments += [f"train.batch={sizes['batch']}", f"data.max_length={length}"]
    steps = {"kind": "steps", "task": "text", "source": "synthetic", "model": name, "recipe": "nystromformer"}
    steps |= {"assignments": assignments, "warmup": 2, "least": 2, "seconds": arguments.seconds, "most": 1 << 20}
    request = {"device": "cpu", "threads": arguments.threads, "memory_limit": 1 << 40, "work": steps}
    command = [arguments.lra, "measure"]
    answer = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    measured = json.loads(answer.stdout)
    if measured["status"] != "steps":
        raise RuntimeError(answer.stdout.strip())
    return {"seconds": measured["processor_seconds"], "peak_bytes": all_live(measured)}


def all_live(measured):
    """Heap bytes with those of the start: what a peer fetches at its first step counts as well."""
    return measured["peak_bytes"] + measured["base_bytes"]


def ours_on_listops(arguments, model):
    """Steps of `lra run`, once those have taken their seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.lra, "run", "--task", "listops", "--recipe", "nystromformer", "--model", model]
        command += ["--data", arguments.listops, "--out", folder, "--threads", str(arguments.threads)]
        command += ["--precision", arguments.precision]
        command += ["--set", f"block.attention_dropout={arguments.attention_dropout}"]
        command += ["--set", f"train.bucket={arguments.bucket}"]
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            while process.poll() is None:
                time.sleep(1)
                rounds = [
                    json.loads(line)
                    for path in pathlib.Path(folder).glob("*/timings.jsonl")
                    for line in path.read_text(encoding="utf-8").splitlines(True)
                    if line.endswith("\n")
                ]
                seconds = [second for one in rounds for second in one["steps"]]
                if sum(seconds) >= arguments.seconds:
                    process.send_signal(signal.SIGINT)
                    process.wait()
                    return {"seconds": seconds, "peak_bytes": all_live(rounds[-1])}
            errors.seek(0)
            raise RuntimeError(errors.read().strip())


class Peer:
    """A peer's process, ready to run its steps."""

    def __init__(self, arguments, entry, model, peer, length, sizes):
        command = [sys.executable, str(HERE / "worker.py"), "--model", model, "--peer", peer]
        command += ["--length", str(length), "--head", str(HEAD)]
        command += ["--seconds", str(arguments.seconds), "--threads", str(arguments.threads)]
        command += ["--precision", arguments.precision]
        if arguments.cpu:
            command += ["--cpu"]
        if arguments.listops:
            command += ["--split", str(training_split(arguments.listops))]
            command += ["--attention_dropout", str(arguments.attention_dropout), "--bucket", str(arguments.bucket)]
        for key, value in sizes.items():
            command += [f"--{key}", str(value)]
        self.errors = tempfile.TemporaryFile("w+")
        older = {"PYTHONPATH": arguments.older} if entry.older else {}
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=os.environ | older,
        )
        self.line()

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self.errors.seek(0)
            lines = self.errors.read().strip().splitlines() or [f"exit {self.process.returncode}"]
            raise RuntimeError(lines[-1])
        return line

    def round(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return json.loads(self.line())

    def close(self):
        self.process.stdin.close()
        self.process.stdout.read()
        self.process.wait()


def training_split(data):
    """The file that `lra data make listops` has written under this data directory."""
    for path in pathlib.Path(data).glob("store/listops-generated-*/manifest.json"):
        options = json.loads(path.read_text(encoding="utf-8"))["options"]
        if (options["train"], options["max_length"]) == (96000, RECIPE_LENGTH):
            return path.with_name("train.safetensors")
    raise SystemExit(f"no ListOps of the published size under {data}: build it by `lra data make listops`")


def cell(arguments, entry, model, peer, length, sizes):
    """Rounds of both sides: ((step in seconds, bytes) of lra, the same of the peer) each."""
    process = Peer(arguments, entry, model, peer, length, sizes)
    try:
        rounds = []
        for _ in range(arguments.rounds):
            if arguments.listops:
                our = ours_on_listops(arguments, model)
            elif arguments.cpu:
                our = ours_by_processor(arguments, model, length, sizes)
            else:
                our = ours(arguments, model, length, sizes)
            pair = our, process.round()
            rounds.append([(statistics.median(one["seconds"]), one["peak_bytes"]) for one in pair])
        return rounds
    finally:
        process.close()


def row(model, peer, length, rounds):
    times = [our[0] / their[0] for our, their in rounds]
    middle = lambda side, what: statistics.median(pair[side][what] for pair in rounds)
    memory = middle(0, 1) / middle(1, 1)
    spread = f"{min(times):.2f}-{max(times):.2f}"
    cells = [model, peer, str(length)]
    cells += [f"{1000 * middle(side, 0):.0f}" for side in (0, 1)]
    cells += [f"{statistics.median(times):.2f} ({spread})"]
    cells += [f"{middle(side, 1) / 1e6:.0f}" for side in (0, 1)] + [f"{memory:.2f}"]
    return "| " + " | ".join(cells) + " |"


def registered(arguments):
    """Models of lra in its order, and those of them that are held against a package."""
    answer = subprocess.run([arguments.lra, "list", "models", "--json"], capture_output=True, text=True, check=True)
    models = json.loads(answer.stdout)
    return [model["name"] for model in models], [model["name"] for model in models if model["reference"] == "package"]


def processor():
    """Its name, what it has for products of bfloat16, and its caches."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        facts = dict(line.split(":", 1) for line in file if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    units = [name for name in ("avx512f", "avx512_bf16", "amx_bf16") if name in facts.get("flags", "").split()]
    caches = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            caches.append(f"L{level} {size}iB")
    return ", ".join([facts.get("model name", platform.processor()), *units, *caches])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lra", default=str(HERE / "../../../target/release/lra"))
    parser.add_argument("--older", default=str(HERE / "../../../target/peers-older"), help="where requirements-older.txt is")
    parser.add_argument("--lengths", default="1024,2048,4096")
    parser.add_argument("--size", choices=SIZES, default="small")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--listops", metavar="DATA", help="lra's data directory: train on real ListOps by the nystromformer recipe instead"
    )
    parser.add_argument(
        "--attention-dropout", type=float, default=RECIPE["dropout"], help="with --listops: the rate on attention weights"
    )
    parser.add_argument(
        "--bucket", type=int, default=0, help="with --listops: batches that are sorted by length together [default: no sorting]"
    )
    parser.add_argument(
        "--precision", choices=["f32", "bf16"], default="f32", help="bf16: lra's, beside PyTorch's autocast"
    )
    parser.add_argument("--models", default="", help="only these, by lra's names")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="per round and side")
    where.add_argument("--cpu", action="store_true", help="times of the processor, by one thread")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", help="file for the table [default: standard output only]")
    arguments = parser.parse_args()
    if not arguments.listops and (arguments.bucket or arguments.attention_dropout != RECIPE["dropout"]):
        parser.error("--attention-dropout and --bucket apply to --listops")
    sizes, lengths = SIZES[arguments.size], map(int, arguments.lengths.split(","))
    wanted = [name for name in arguments.models.split(",") if name]
    peers, (names, held) = load(), registered(arguments)
    having = {model.split(":")[0] for model, _ in peers}
    lacking = sorted(set(held) - having - set(WITHOUT))
    if lacking:
        raise SystemExit(f"no peer and no reason for it in WITHOUT: {', '.join(lacking)}")
    if arguments.listops:
        sizes, lengths = RECIPE, [RECIPE_LENGTH]
        wanted = wanted or [model for (model, _), entry in peers.items() if entry.masked]
    if arguments.cpu:
        arguments.threads = 1

    import torch

    shape = ", ".join(f"{key} {value}" for key, value in sizes.items())
    data = ""
    if arguments.listops:
        data = f" on real ListOps (attention dropout {arguments.attention_dropout}, bucket {arguments.bucket})"
    times = "the processor's time, 1 thread" if arguments.cpu else f"{arguments.threads} threads"
    lines = [
        f"lra / peer{data}: {shape}, {arguments.precision}, {times}, {processor()}, torch {torch.__version__},"
        f" {arguments.rounds} rounds. Below 1 lra takes less.",
        "",
        "| model | peer | length | lra ms | peer ms | time ratio | lra MB | peer MB | memory ratio |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for length in lengths:
        for model, peer in sorted(peers, key=lambda key: names.index(key[0].split(":")[0])):
            if wanted and model not in wanted:
                continue
            try:
                line = row(model, peer, length, cell(arguments, peers[model, peer], model, peer, length, sizes))
            except RuntimeError as error:
                line = f"| {model} | {peer} | {length} | failed: {error} |||||"
            lines.append(line)
            print(line, flush=True)
            if arguments.out:
                pathlib.Path(arguments.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if WITHOUT and not wanted:
        reasons = [f"- {model} stands beside nothing: {reason}." for model, reason in WITHOUT.items()]
        print("\n".join(["", *reasons]))


if __name__ == "__main__":
    main()
