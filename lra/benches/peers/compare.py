"""Training steps of lra beside those of its peers, in turn, as a Markdown table.

    python compare.py --lra ../../../target/release/lra --lengths 1024,2048 --out peers.md
    python compare.py --tuned --cpu
    python compare.py --listops data --seconds 20

In every round lra runs its steps in a process of its own (`lra measure`), then each peer's process, which has been waiting,
runs its own. Both make two steps first that are not timed, and time three at the least. A ratio is lra's median step over the
peer's in the same round; the table has the median of the rounds and, in brackets, the least and the largest. Times are of
forward pass, loss, backward pass and AdamW.

Every peer runs twice, eager and under `torch.compile`, and the faster of the two is the row. The row of a peer that does not
compile gives the reason, and the exit code is 1 if that is the lack of a compiler. With `--tuned` both run once more with what
an expert would set: glibc keeps freed memory, as lra has it do, and on processors of AMD the slow path that MKL takes there is
switched off. Both columns stand in the table. Settings of GLIBC_TUNABLES and LD_PRELOAD that are there already stay.

Memory is the growth of resident memory on both sides, from before the model is built to the peak; of a peer libraries and a
small step come before the base. It is that of the faster form: the slower one may take less. The growth of lra's live heap
stands beside it.

Rows are the models of `lra list models` that have a peer (`@peer` in eager.py, packages.py, hugging_face.py, state_spaces.py).
A model whose numbers are held against a package has one, or a reason in WITHOUT.

With `--device cuda:0` both sides run on that GPU (lra built by `make cuda`), and memory is that of their allocators.

With `--cpu` times are the processor's, for a machine that is shared; one thread, since those of PyTorch spin while they wait.

With `--precision bf16` lra rounds the factors of its products, and the peer runs under PyTorch's autocast.

With `--listops` both sides train on the real task by the `nystromformer` recipe, with padding, masks and dropout: lra by
`lra run`, which is stopped when it has made its steps, the peer on batches of the same training split; memory is not compared
there. PyTorch leaves its fused attention where weights are dropped; `--attention-dropout 0` drops none, on both sides.
`--bucket 50` has both sort fifty batches by length and pad to the longest of each.
"""

import argparse
import json
import os
import pathlib
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from peer import LEAST, WARM_UP, load

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
WITHOUT = {
    "hrrformer": "the package hrr has its operations and no model",
    "slstm": "the package xlstm has a loop of Python over the positions where there is no GPU",
}


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
    """Steps of `lra measure`, in seconds by the clock or of the processor."""
    name, assignments = settings_of(arguments, model, sizes)
    assignments += [f"train.batch={sizes['batch']}", f"data.max_length={length}"]
    steps = {"kind": "steps", "task": "text", "source": "synthetic", "model": name, "recipe": "nystromformer"}
    steps |= {"assignments": assignments, "seconds": arguments.seconds}
    steps |= {"warmup": WARM_UP, "least": LEAST, "most": 1 << 20}
    request = {"device": arguments.device, "threads": arguments.threads, "memory_limit": 1 << 40, "work": steps}
    command = [arguments.lra, "measure"]
    answer = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RuntimeError(answer.stderr.strip())
    measured = json.loads(answer.stdout)
    if measured["status"] != "steps":
        raise RuntimeError(answer.stdout.strip())
    seconds = measured["processor_seconds" if arguments.cpu else "seconds"]
    heap = measured["peak_bytes"]
    resident = measured["resident_peak_bytes"] - measured["resident_base_bytes"]
    if arguments.device != "cpu":
        resident = heap
    return {"seconds": seconds, "heap_bytes": heap, "resident_bytes": resident}


def ours_on_listops(arguments, model):
    """Steps of `lra run`, once those have taken their seconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [arguments.lra, "run", "--task", "listops", "--recipe", "nystromformer", "--model", model]
        command += ["--data", arguments.listops, "--out", folder, "--threads", str(arguments.threads)]
        command += ["--precision", arguments.precision, "--device", arguments.device]
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
                if len(seconds) >= LEAST and sum(seconds) >= arguments.seconds:
                    process.send_signal(signal.SIGINT)
                    process.wait()
                    heap = rounds[-1]["peak_bytes"]
                    return {"seconds": seconds, "heap_bytes": heap, "resident_bytes": None}
            errors.seek(0)
            raise RuntimeError(errors.read().strip())


# A function by which MKL asks whether the processor is Intel's; with this answer it takes its fast paths on others too.
VENDOR_CHECK = "int mkl_serv_intel_cpu_true(void) { return 1; }"
# glibc keeps what is freed in place of giving it back to the system and fetching it again, as lra has it do by mallopt. These are
# the block sizes up to which it does: some versions ignore any above 32 MiB, and would then keep less than without a setting.
THRESHOLDS = (2147483647, 33554432)
# Exits with 0 if malloc keeps a block of so many bytes once it is freed. The first field of mallinfo is the size of its heap.
KEEPS = """
import ctypes, sys
libc, size = ctypes.CDLL(None), int(sys.argv[1])
class Info(ctypes.Structure):
    _fields_ = [(f"field{index}", ctypes.c_int) for index in range(10)]
libc.mallinfo.restype = Info
libc.malloc.restype, libc.malloc.argtypes, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_size_t], [ctypes.c_void_p]
libc.free(libc.malloc(size))
sys.exit(libc.mallinfo().field0 < size)
"""


def c_library():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (OSError, ValueError):
        return "a C library other than glibc"


def tunables():
    """Returns GLIBC_TUNABLES with which malloc keeps freed memory, which has been tried."""
    before = os.environ.get("GLIBC_TUNABLES")
    for threshold in THRESHOLDS:
        keep = [f"glibc.malloc.mmap_threshold={threshold}", f"glibc.malloc.trim_threshold={THRESHOLDS[0]}"]
        setting = ":".join([before, *keep] if before else keep)
        # A block below the threshold by more than its own header. Another allocator that is preloaded would answer for itself.
        size = min(threshold, 64 << 20) - (1 << 20)
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"} | {"GLIBC_TUNABLES": setting}
        probe = subprocess.run([sys.executable, "-c", KEEPS, str(size)], env=environment, capture_output=True, check=False)
        if probe.returncode == 0:
            return setting
    raise SystemExit(f"--tuned: with GLIBC_TUNABLES={setting} {c_library()} still gives freed memory back")


def tuned(folder):
    """Returns the environment in which an expert would run PyTorch on this processor."""
    environment = {"GLIBC_TUNABLES": tunables()}
    if "AuthenticAMD" in pathlib.Path("/proc/cpuinfo").read_text(encoding="ascii"):
        source, library = folder / "vendor.c", folder / "vendor.so"
        source.write_text(VENDOR_CHECK, encoding="ascii")
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
        try:
            subprocess.run(command, capture_output=True, text=True, check=True)
        except OSError as error:
            raise SystemExit(f"--tuned needs a C compiler for the library that MKL asks: cc: {error.strerror}") from None
        except subprocess.CalledProcessError as error:
            raise SystemExit(f"--tuned: cc does not build the library that MKL asks: {cause(error.stderr)}") from None
        before = os.environ.get("LD_PRELOAD")
        environment["LD_PRELOAD"] = ":".join([before, str(library)] if before else [str(library)])
    return environment


# The line of a traceback that names the exception, and that of a C++ compiler which names an error.
EXCEPTION = re.compile(r"(\w+\.)*(?=[A-Z])\w*(Error|Exception|Exit|Interrupt|Unsupported|Failed|Failure|Missing)\b")
COMPILE_ERROR = re.compile(r"\berror: ")
# PyTorch's words where no compiler works: that of C++, or Triton on a GPU.
NO_COMPILER = re.compile(r"InvalidCxxCompiler|CppCompileError|C\+\+ compiler|TritonMissing|working triton", re.IGNORECASE)


def cause(errors):
    """Returns the line of a process's standard error that tells why it ended, fit for a cell of the table."""
    lines = [line for line in errors.splitlines() if line.strip()]
    if not lines:
        return ""
    last = max((index for index, line in enumerate(lines) if EXCEPTION.match(line)), default=len(lines) - 1)
    detail = next((line for line in lines[last + 1 :] if COMPILE_ERROR.search(line)), "")
    words = f"{lines[last]} {detail}".replace("|", "/").split()
    return " ".join(words)[:300]


class Peer:
    """A peer's process, ready to run its steps."""

    def __init__(self, arguments, entry, model, peer, length, sizes, compiled, environment):
        command = [sys.executable, str(HERE / "worker.py"), "--model", model, "--peer", peer]
        command += ["--length", str(length), "--head", str(HEAD)]
        command += ["--seconds", str(arguments.seconds), "--threads", str(arguments.threads)]
        command += ["--precision", arguments.precision, "--device", arguments.device]
        if compiled:
            command += ["--compile"]
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
            env=os.environ | older | environment,
        )
        self.compiled = compiled
        while self.line() != "ready\n":
            # A package may print something first.
            pass

    def line(self):
        line = self.process.stdout.readline()
        if not line:
            raise self.ending()
        return line

    def ending(self):
        """Returns the error that ended the process."""
        self.process.wait()
        self.errors.seek(0)
        return RuntimeError(cause(self.errors.read()) or f"exit {self.process.returncode}")

    def round(self):
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise self.ending() from None
        line = self.line()
        while not line.startswith("{"):
            line = self.line()
        return json.loads(line)

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass  # It has ended before.
        self.process.stdout.read()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def training_split(data):
    """The file that `lra data make listops` has written under this data directory."""
    for path in pathlib.Path(data).glob("store/listops-generated-*/manifest.json"):
        options = json.loads(path.read_text(encoding="utf-8"))["options"]
        if (options["train"], options["max_length"]) == (96000, RECIPE_LENGTH):
            return path.with_name("train.safetensors")
    raise SystemExit(f"no ListOps of the published size under {data}: build it by `lra data make listops`")


def start(arguments, entry, model, peer, length, sizes, environment):
    """Returns the peer's processes, eager and compiled, and why the latter could not be started, if so."""
    processes, failure = [], None
    for compiled in (False, True):
        try:
            process = Peer(arguments, entry, model, peer, length, sizes, compiled, environment)
        except RuntimeError as error:
            if not compiled:
                raise
            failure = str(error)
        else:
            processes.append(process)
    return processes, failure


def faster(rounds):
    """Returns the index of the process whose median step, over all rounds, is the least."""
    medians = [statistics.median(step(one) for one in alone) for alone in zip(*rounds)]
    return medians.index(min(medians))


def step(measured):
    return statistics.median(measured["seconds"])


def cell(arguments, entry, model, peer, length, sizes, environments):
    """Runs all rounds. Returns lra's own, for each environment those of the faster process of the peer with its name, and the
    reasons where it did not compile."""
    groups = []
    try:
        for environment in environments:
            groups.append(start(arguments, entry, model, peer, length, sizes, environment))
        our, their = [], [[] for _ in groups]
        for _ in range(arguments.rounds):
            if arguments.listops:
                our.append(ours_on_listops(arguments, model))
            else:
                our.append(ours(arguments, model, length, sizes))
            for rounds, (processes, _) in zip(their, groups):
                rounds.append([process.round() for process in processes])
        columns = []
        for rounds, (processes, failure) in zip(their, groups):
            index = faster(rounds)
            name = peer
            if processes[index].compiled:
                name = peer.removesuffix(" eager") + ", torch.compile"
            if failure:
                name += f"; does not compile: {failure}"
            columns.append((name, [one[index] for one in rounds]))
        return our, columns, [failure for _, failure in groups if failure]
    finally:
        for processes, _ in groups:
            for process in processes:
                process.close()


def row(model, length, our, columns):
    """Writes one row: times beside each environment's peer, then memory beside that of the leanest of them."""
    cells = [model, str(length), f"{1000 * statistics.median(map(step, our)):.0f}"]
    for name, their in columns:
        times = [step(one) / step(other) for one, other in zip(our, their)]
        ratio = f"{statistics.median(times):.2f} ({min(times):.2f}-{max(times):.2f})"
        cells += [name, f"{1000 * statistics.median(map(step, their)):.0f}", ratio]
    middle = lambda side, what: statistics.median(one[what] for one in side)
    cells.append(f"{middle(our, 'heap_bytes') / 1e6:.0f}")
    if our[0]["resident_bytes"] is None:
        return "| " + " | ".join([*cells, "", "", ""]) + " |"
    # The leanest peer: tuning may cost memory.
    resident, least = middle(our, "resident_bytes"), min(middle(their, "resident_bytes") for _, their in columns)
    cells += [f"{resident / 1e6:.0f}", f"{least / 1e6:.0f}", f"{resident / least:.2f}" if least else ""]
    return "| " + " | ".join(cells) + " |"


def heading(environments):
    names = ["as installed", "tuned"][: len(environments)]
    peers = [f"beside, {name} | ms | ratio" for name in names]
    columns = ["model", "length", "lra ms", *peers, "lra heap MB", "lra resident MB", "peer resident MB", "ratio"]
    line = "| " + " | ".join(columns) + " |"
    return [line, "|" + "---|" * (line.count("|") - 1)]


def registered(arguments):
    """Models of lra in its order, and those of them that are held against a package."""
    answer = subprocess.run([arguments.lra, "list", "models", "--json"], capture_output=True, text=True, check=True)
    models = json.loads(answer.stdout)
    return [model["name"] for model in models], [model["name"] for model in models if model["reference"] == "package"]


def processor():
    """Its name, which of its maker's designs it is, what it has for products of bfloat16, and its caches."""
    with open("/proc/cpuinfo", encoding="ascii") as file:
        facts = dict(line.split(":", 1) for line in file if ":" in line)
    facts = {key.strip(): value.strip() for key, value in facts.items()}
    units = [name for name in ("avx512f", "avx512_bf16", "amx_bf16") if name in facts.get("flags", "").split()]
    caches = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            caches.append(f"L{level} {size}iB")
    design = [f"{what} {facts[key]}" for what, key in (("family", "cpu family"), ("model", "model")) if key in facts]
    return ", ".join([facts.get("model name", platform.processor()), *design, *units, *caches])


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
    parser.add_argument("--tuned", action="store_true", help="a second column: PyTorch with an expert's settings")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="per round and side")
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    where.add_argument("--cpu", action="store_true", help="times of the processor, by one thread")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", help="file for the table [default: standard output only]")
    arguments = parser.parse_args()
    if not arguments.listops and (arguments.bucket or arguments.attention_dropout != RECIPE["dropout"]):
        parser.error("--attention-dropout and --bucket apply to --listops")
    try:
        lengths = [int(length) for length in arguments.lengths.split(",")]
    except ValueError:
        parser.error(f"--lengths: {arguments.lengths} is no list of whole numbers")
    if min([*lengths, arguments.rounds]) < 1 or arguments.seconds <= 0:
        parser.error("--lengths, --rounds and --seconds must be above 0")
    sizes = SIZES[arguments.size]
    wanted = [name for name in arguments.models.split(",") if name]
    peers, (names, held) = load(), registered(arguments)
    unknown = sorted(set(wanted) - {model for model, _ in peers})
    if unknown:
        known = ", ".join(sorted({model for model, _ in peers}))
        parser.error(f"--models: no peer of {', '.join(unknown)}; there is one of {known}")
    having = {model.split(":")[0] for model, _ in peers}
    lacking = sorted(set(held) - having - set(WITHOUT))
    if lacking:
        raise SystemExit(f"no peer and no reason for it in WITHOUT: {', '.join(lacking)}")
    if arguments.listops:
        sizes, lengths = RECIPE, [RECIPE_LENGTH]
        wanted = wanted or [model for (model, _), entry in peers.items() if entry.masked]
    if arguments.cpu and arguments.device != "cpu":
        parser.error("--cpu is the time of the processor, and --device is a GPU")
    if arguments.cpu:
        arguments.threads = 1

    import torch

    shape = ", ".join(f"{key} {value}" for key, value in sizes.items())
    data = ""
    if arguments.listops:
        data = f" on real ListOps (attention dropout {arguments.attention_dropout}, bucket {arguments.bucket})"
    times = "the processor's time, 1 thread" if arguments.cpu else f"{arguments.threads} threads"
    place = processor() if arguments.device == "cpu" else torch.cuda.get_device_name(arguments.device)
    lines = [
        f"lra / peer{data}: {shape}, {arguments.precision}, {times}, {place}, torch {torch.__version__},"
        f" {arguments.rounds} rounds. Below 1 lra takes less.",
        "",
    ]
    folder = tempfile.TemporaryDirectory()
    environments = [{}] + ([tuned(pathlib.Path(folder.name))] if arguments.tuned else [])
    if arguments.tuned:
        vendor = ", and MKL takes its fast paths" if "LD_PRELOAD" in environments[1] else ""
        lines += [f"Tuned: GLIBC_TUNABLES={environments[1]['GLIBC_TUNABLES']} of {c_library()}{vendor}.", ""]
    lines += heading(environments)
    print("\n".join(lines), flush=True)
    failed, uncompiled, no_compiler = 0, {}, 0
    for length in lengths:
        for model, peer in sorted(peers, key=lambda key: names.index(key[0].split(":")[0])):
            if wanted and model not in wanted:
                continue
            try:
                entry = peers[model, peer]
                our, columns, failures = cell(arguments, entry, model, peer, length, sizes, environments)
                line = row(model, length, our, columns)
                uncompiled |= {f"{model} beside {peer}": failure for failure in failures}
                no_compiler += any(map(NO_COMPILER.search, failures))
            except RuntimeError as error:
                line = f"| {model} | {length} | | {peer} | failed: {' '.join(str(error).split())} |"
                failed += 1
            lines.append(line)
            print(line, flush=True)
            if arguments.out:
                pathlib.Path(arguments.out).write_text("\n".join(lines) + "\n", encoding="utf-8")
    if WITHOUT and not wanted:
        reasons = [f"- {model} stands beside nothing: {reason}." for model, reason in WITHOUT.items()]
        print("\n".join(["", *reasons]))
    if uncompiled:
        print("\nPyTorch did not compile these, so that a column has its eager mode alone:\n")
        print("\n".join(f"- {row}: {failure}" for row, failure in uncompiled.items()))
    messages = [f"{failed} of the rows failed"] * bool(failed)
    if no_compiler:
        messages.append(f"{no_compiler} of the rows are of eager PyTorch only, for want of a compiler that works")
    if messages:
        raise SystemExit("\n".join(messages))


if __name__ == "__main__":
    main()
