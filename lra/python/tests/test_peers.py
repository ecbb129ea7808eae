"""Tests of the scripts in lra/benches/peers, which set lra beside PyTorch. They need neither: stubs stand for both."""

import argparse
import contextlib
import ctypes
import gc
import io
import itertools
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import unittest.mock
import weakref

SCRIPTS = pathlib.Path(__file__).parents[2] / "benches" / "peers"
TORCH = unittest.mock.MagicMock()
TORCH.__version__ = "0.0"
TORCH.nn.Module = object
STUB = {"torch": TORCH, "torch.nn": TORCH.nn}

sys.path.insert(0, str(SCRIPTS))
with unittest.mock.patch.dict(sys.modules, STUB):
    import compare  # noqa: E402
    import peer  # noqa: E402
    import worker  # noqa: E402
sys.path.remove(str(SCRIPTS))

GLIBC = platform.libc_ver()[0] == "glibc"
MB = 1_000_000


def measured(*seconds, heap=10, resident=30):
    """Returns what one side measured in one round, memory being in MB."""
    return {"seconds": list(seconds), "heap_bytes": heap * MB, "resident_bytes": resident and resident * MB}


def cells(line):
    """Returns the cells of a line of a table in Markdown."""
    return line.removeprefix("| ").removesuffix(" |").split(" | ")


class Case(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def patch(self, target, name, *value, **options):
        """Puts a value in place of `target.name` until the test ends, and returns it."""
        patch = unittest.mock.patch.object(target, name, *value, **options)
        self.addCleanup(patch.stop)
        return patch.start()

    def environment(self, **variables):
        """Sets variables until the test ends, and clears those that `--tuned` sets."""
        patch = unittest.mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)
        for name in ("GLIBC_TUNABLES", "LD_PRELOAD"):
            os.environ.pop(name, None)
        os.environ.update(variables)


class Rows(Case):
    # Three rounds whose mean, first and last are other numbers than their median.
    OUR = [measured(1, heap=40, resident=90), measured(1, heap=10, resident=30), measured(1, heap=9, resident=29)]
    THEIR = [measured(1, resident=61), measured(1, resident=60), measured(1, resident=20)]

    def test_both_memories_of_lra_stand_beside_the_resident_memory_of_the_peer(self):
        line = compare.row("linear", 1024, self.OUR, [("PyTorch", self.THEIR)])
        self.assertTrue(line.endswith("| 10 | 30 | 60 | 0.50 |"), line)
        head = cells(compare.heading([{}])[0])
        expected = [("lra heap MB", "10"), ("lra resident MB", "30"), ("peer resident MB", "60"), ("ratio", "0.50")]
        self.assertEqual(list(zip(head, cells(line)))[-4:], expected)

    def test_of_two_columns_the_leanest_peer_gives_the_memory(self):
        lean = [measured(1, resident=40)] * 3
        for columns in [self.THEIR, lean], [lean, self.THEIR]:
            line = compare.row("linear", 1024, self.OUR, [("PyTorch", their) for their in columns])
            self.assertTrue(line.endswith("| 10 | 30 | 40 | 0.75 |"), line)

    def test_memory_is_in_millions_of_bytes(self):
        our, their = measured(1, heap=1000, resident=2000), measured(1, resident=4000)
        line = compare.row("linear", 1024, [our], [("PyTorch", [their])])
        self.assertTrue(line.endswith("| 1000 | 2000 | 4000 | 0.50 |"), line)
        # Steps that fit into what was there before take nothing.
        line = compare.row("linear", 1024, [our], [("PyTorch", [measured(1, resident=0) | {"resident_bytes": 0}])])
        self.assertTrue(line.endswith("| 1000 | 2000 | 0 |  |"), line)

    def test_a_ratio_is_of_medians_within_a_round_and_then_the_median_of_the_rounds(self):
        # Ratios of medians: 2, 0.5, 0.8. The first would be 0.95 of means; that of the medians of all rounds is 0.6.
        our = [measured(0.005, 0.010, 0.090), measured(0.030, 0.030, 0.030), measured(0.041, 0.040, 0.039)]
        their = [measured(0.005, 0.005, 0.100), measured(0.060, 0.060, 0.060), measured(0.050, 0.051, 0.049)]
        line = compare.row("linear", 1024, our, [("PyTorch", their)])
        self.assertEqual(cells(line)[:6], ["linear", "1024", "30", "PyTorch", "50", "0.80 (0.50-2.00)"])
        line = compare.row("linear", 1024, our, [("PyTorch", our), ("tuned", their)])
        self.assertEqual(cells(line)[3:9], ["PyTorch", "30", "1.00 (1.00-1.00)", "tuned", "50", "0.80 (0.50-2.00)"])

    def test_the_heading_names_each_column(self):
        self.assertEqual(cells(compare.heading([{}])[0])[3:6], ["beside, as installed", "ms", "ratio"])
        names = ["beside, as installed", "ms", "ratio", "beside, tuned", "ms", "ratio"]
        self.assertEqual(cells(compare.heading([{}, {}])[0])[3:9], names)

    def test_heading_and_rows_have_the_same_number_of_cells(self):
        for count in (1, 2):
            for resident in (30, None):
                with self.subTest(columns=count, resident=resident):
                    our = [measured(1, resident=resident)]
                    line = compare.row("linear", 1024, our, [("PyTorch", our)] * count)
                    counts = {one.count("|") for one in [*compare.heading([{}] * count), line]}
                    self.assertEqual(len(counts), 1, line)

    def test_the_faster_form_is_that_of_the_lower_median(self):
        # The first form has the lower mean and the lowest single round, the second the lower median.
        first, second = [measured(1), measured(5), measured(5)], [measured(4), measured(4), measured(4)]
        self.assertEqual(compare.faster(list(zip(first, second))), 1)
        self.assertEqual(compare.faster(list(zip(second, first))), 0)
        # Within a round it is the median that counts as well: a mean would be 10 and 3.
        slow_once, even = measured(1, 1, 28), measured(3, 3, 3)
        self.assertEqual(compare.faster([(even, slow_once)]), 1)
        self.assertEqual(compare.faster([(slow_once, even)]), 0)
        self.assertEqual(compare.faster([(even,)] * 3), 0)

    def test_memory_of_lra_is_the_growth_of_its_resident_size_beside_its_heap(self):
        answer = {
            "status": "steps",
            "seconds": [1.0, 2.0],
            "processor_seconds": [0.5, 0.75],
            "peak_bytes": 10 * MB,
            "base_bytes": 3 * MB,
            "resident_bytes": 31 * MB,
            "resident_base_bytes": 5 * MB,
            "resident_peak_bytes": 35 * MB,
        }
        (self.place / "answer").write_text(json.dumps(answer), encoding="utf-8")
        program = self.place / "lra"
        program.write_text('#!/bin/sh\ncd "${0%/*}" && cat > request && cat answer\n', encoding="utf-8")
        program.chmod(0o755)
        arguments = argparse.Namespace(lra=str(program), precision="f32", seconds=1.5, threads=1, device="cpu", cpu=False)
        sizes = compare.SIZES["small"]
        expected = {"seconds": [1.0, 2.0], "heap_bytes": 10 * MB, "resident_bytes": 30 * MB}
        self.assertEqual(compare.ours(arguments, "local:window=64", 512, sizes), expected)
        request = json.loads((self.place / "request").read_text(encoding="utf-8"))
        work = request["work"]
        self.assertEqual((work["model"], work["seconds"], work["warmup"], work["least"]), ("local", 1.5, peer.WARM_UP, peer.LEAST))
        assignments = "train.precision=f32 embed.dropout=0 block.dropout=0 block.attention_dropout=0 block.layers=2 block.dim=64"
        assignments += " block.qkv_dim=64 block.heads=2 block.mlp_dim=128 head.hidden=128 model.window=64 train.batch=8"
        self.assertEqual(work["assignments"], [*assignments.split(), "data.max_length=512"])
        arguments.cpu = True
        self.assertEqual(compare.ours(arguments, "local", 512, sizes)["seconds"], [0.5, 0.75])
        arguments.cpu, arguments.device = False, "cuda:0"
        self.assertEqual(compare.ours(arguments, "local", 512, sizes)["resident_bytes"], 10 * MB)
        (self.place / "answer").write_text('{"status": "over the limit"}', encoding="utf-8")
        with self.assertRaisesRegex(RuntimeError, "over the limit"):
            compare.ours(arguments, "local", 512, sizes)
        program.write_text("#!/bin/sh\necho no such model >&2\nexit 2\n", encoding="utf-8")
        with self.assertRaisesRegex(RuntimeError, "^no such model$"):
            compare.ours(arguments, "local", 512, sizes)


# Stands for `lra run`: three steps in two lines, of which the second is cut for a while.
RUN = """#!/bin/sh
place=${0%/*}
echo "$*" > "$place/words"
while [ "$1" != --out ]; do shift; done
mkdir "$2/a run" && cd "$2/a run"
trap 'touch "$place/interrupted"; exit 130' INT
echo '{"steps": [1.0, 2.0], "peak_bytes": 5}' > timings.jsonl
printf '{"steps": [7' >> timings.jsonl
sleep 0.3
echo '.0], "peak_bytes": 6}' >> timings.jsonl
while [ -e "$0" ]; do sleep 0.05; done
"""


class ListOps(Case):
    def setUp(self):
        super().setUp()
        sleep = compare.time.sleep
        self.patch(compare.time, "sleep", lambda _: sleep(0.02))
        self.program = self.place / "lra"
        options = {"precision": "bf16", "device": "cpu", "listops": "my data", "attention_dropout": 0.2, "bucket": 5}
        self.arguments = argparse.Namespace(lra=str(self.program), threads=3, seconds=2.5, **options)

    def stand_in(self, script):
        self.program.write_text(script, encoding="utf-8")
        self.program.chmod(0o755)

    def test_lra_is_stopped_when_it_has_made_its_seconds_and_three_steps(self):
        self.stand_in(RUN)
        measured = compare.ours_on_listops(self.arguments, "linear")
        self.assertEqual(measured, {"seconds": [1.0, 2.0, 7.0], "heap_bytes": 6, "resident_bytes": None})
        self.assertTrue((self.place / "interrupted").exists())
        words = (self.place / "words").read_text(encoding="utf-8")
        for option in (
            "run --task listops --recipe nystromformer --model linear --data my data",
            "--threads 3 --precision bf16 --device cpu",
            "--set block.attention_dropout=0.2 --set train.bucket=5",
        ):
            self.assertIn(option, words)

    def test_lra_that_fails_is_an_error(self):
        self.stand_in("#!/bin/sh\necho no data >&2\nexit 3\n")
        with self.assertRaisesRegex(RuntimeError, "^no data$"):
            compare.ours_on_listops(self.arguments, "linear")

    def test_the_training_split_is_that_of_the_published_size(self):
        with self.assertRaisesRegex(SystemExit, "no ListOps of the published size"):
            compare.training_split(self.place)
        for name, train, length in ("a", 96000, 512), ("b", 96000, 2000), ("c", 960, 2000):
            folder = self.place / "store" / f"listops-generated-{name}"
            folder.mkdir(parents=True)
            manifest = {"options": {"train": train, "max_length": length}}
            (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        expected = self.place / "store" / "listops-generated-b" / "train.safetensors"
        self.assertEqual(compare.training_split(self.place), expected)


class Facts(Case):
    def test_the_models_of_lra_are_in_its_order_with_those_that_a_package_is_held_against(self):
        models = [("b", "package"), ("a", "equations"), ("d", "package"), ("c", "none")]
        listed = json.dumps([{"name": name, "reference": reference} for name, reference in models])
        program = self.place / "lra"
        program.write_text(f"#!/bin/sh\necho '{listed}'\n", encoding="utf-8")
        program.chmod(0o755)
        found = compare.registered(argparse.Namespace(lra=str(program)))
        self.assertEqual(found, (["b", "a", "d", "c"], ["b", "d"]))

    def test_the_processor_has_its_units_and_caches(self):
        lines = ["model name\t: Fast", "cpu family\t: 6", "model\t: 85", "flags\t: sse avx512fp16 avx512_bf16"]
        (self.place / "cpuinfo").write_text("\n".join(lines) + "\n", encoding="ascii")
        self.patch(compare, "open", lambda *_, **__: open(self.place / "cpuinfo", encoding="ascii"), create=True)
        for index, facts in enumerate([("1", "Data", "32K"), ("1", "Instruction", "64K"), ("2", "Unified", "1024K")]):
            (self.place / f"index{index}").mkdir()
            for name, value in zip(("level", "type", "size"), facts):
                (self.place / f"index{index}" / name).write_text(value + "\n", encoding="ascii")
        self.patch(compare.pathlib, "Path", lambda _: self.place)
        self.assertEqual(compare.processor(), "Fast, family 6, model 85, avx512_bf16, L1 32KiB, L2 1024KiB")

    def test_a_cause_fits_into_a_cell(self):
        cause = compare.cause("Traceback:\nValueError: " + "word " * 200 + "\n")
        self.assertTrue(cause.startswith("ValueError: word word"))
        self.assertEqual(len(cause), 300)
        self.assertEqual(compare.cause("\n \n"), "")


# Stands for worker.py. PLAN has, for both forms, the steps of each round and the memory, or the last words on standard error.
WORKER = """
import ctypes, json, os, sys

plan = json.loads(os.environ["PLAN"])["compiled" if "--compile" in sys.argv else "eager"]
if isinstance(plan, str):
    sys.exit(plan)
print("ready", flush=True)
environment = {name: os.environ.get(name) for name in ("GLIBC_TUNABLES", "LD_PRELOAD", "PYTHONPATH")}
fast = getattr(ctypes.CDLL(None), "mkl_serv_intel_cpu_true", None)
facts = {"options": sys.argv[1:], "environment": environment, "fast": fast and fast()}
for line, seconds in zip(sys.stdin, plan["seconds"]):
    if seconds is None:
        sys.exit("RuntimeError: out of patience")
    print(json.dumps({"seconds": seconds, "resident_bytes": plan["resident_bytes"], **facts}), flush=True)
"""
# The end of what PyTorch writes where the compiler fails, with a line after the exception that names the compiler's error.
TRACEBACK = """Traceback (most recent call last):
  File "compiler.py", line 1, in compile
    raise ValueError("an earlier one")
torch._inductor.exc.InductorError: CppCompileError: C++ compile error | exit 1

Output:
/tmp/main.cpp:1:10: fatal error: Python.h: No such file or directory
compilation terminated.
"""
REASON = "torch._inductor.exc.InductorError: CppCompileError: C++ compile error / exit 1"
REASON += " /tmp/main.cpp:1:10: fatal error: Python.h: No such file or directory"


def steps(resident, *seconds):
    """Returns what the stub of worker.py answers in its rounds, each of one step."""
    return {"seconds": [one and [one] for one in seconds], "resident_bytes": resident * MB}


def plan(eager, compiled):
    return {"PLAN": json.dumps({"eager": eager, "compiled": compiled})}


class Peers(Case):
    def setUp(self):
        super().setUp()
        self.environment()
        (self.place / "worker.py").write_text(WORKER, encoding="utf-8")
        self.patch(compare, "HERE", self.place)
        self.entry = peer.Entry(object, masked=False, older=False)
        self.arguments = argparse.Namespace(
            lra="lra",
            rounds=3,
            seconds=1.0,
            threads=1,
            precision="f32",
            device="cpu",
            cpu=False,
            listops=None,
            older="older",
        )
        self.started, real = [], subprocess.Popen

        def popen(*arguments, **options):
            process = real(*arguments, **options)
            self.started.append(process)
            for file in process.stdin, process.stdout, options.get("stderr"):
                if hasattr(file, "close"):
                    self.addCleanup(file.close)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)
            return process

        self.patch(compare.subprocess, "Popen", popen)

    def start(self, environment):
        """Returns the peer's processes and the reason of `compare.start`, and ends the processes with the test."""
        sizes = compare.SIZES["small"]
        processes, failure = compare.start(self.arguments, self.entry, "linear", "PyTorch eager", 256, sizes, environment)
        for process in processes:
            self.addCleanup(process.close)
        return processes, failure

    def cell(self, *environments):
        """Runs `compare.cell` with one step of lra in each round, and returns what it does and the order of the rounds."""
        order, real = [], compare.Peer.round

        def ours(*_):
            order.append("lra")
            return measured(0.5)

        def theirs(process):
            order.append("compiled" if process.compiled else "eager")
            return real(process)

        self.patch(compare, "ours", ours)
        self.patch(compare.Peer, "round", theirs)
        sizes = compare.SIZES["small"]
        answer = compare.cell(self.arguments, self.entry, "linear", "PyTorch eager", 256, sizes, environments)
        return (*answer, order)

    def test_a_peer_is_started_eager_and_compiled(self):
        processes, failure = self.start(plan(steps(50, 1), steps(80, 2)))
        self.assertEqual([process.compiled for process in processes], [False, True])
        self.assertIsNone(failure)
        eager, compiled = (process.round() for process in processes)
        self.assertEqual((eager["seconds"], compiled["seconds"]), ([1], [2]))
        self.assertNotIn("--compile", eager["options"])
        self.assertEqual([option for option in compiled["options"] if option != "--compile"], eager["options"])
        options = dict(zip(eager["options"][::2], eager["options"][1::2]))
        expected = {"--model": "linear", "--peer": "PyTorch eager", "--length": "256", "--dim": "64", "--batch": "8"}
        self.assertEqual(options, {**options, **expected})

    def test_the_worker_takes_the_options_that_it_is_given(self):
        [eager, compiled], _ = self.start(plan(steps(50, 1), steps(80, 2)))
        for process in eager, compiled:
            options = process.round()["options"]
            with unittest.mock.patch.object(worker, "load", side_effect=KeyError("loaded")):
                with unittest.mock.patch.object(sys, "argv", ["worker.py", *options, "--compiled"]):
                    self.assertRaisesRegex(KeyError, "loaded", worker.main)

    def test_the_worker_is_given_the_split_of_listops_with_its_dropout(self):
        self.arguments.listops, self.arguments.attention_dropout, self.arguments.bucket = "my data", 0.25, 50
        self.patch(compare, "training_split", lambda data: f"{data}/train")
        [process, _], _ = self.start(plan(steps(50, 1), steps(80, 2)))
        words = " ".join(process.round()["options"])
        self.assertIn("--split my data/train --attention_dropout 0.25 --bucket 50", words)

    def test_times_of_the_processor_are_asked_for_by_cpu(self):
        [process, _], _ = self.start(plan(steps(50, 1), steps(80, 2)))
        self.assertNotIn("--cpu", process.round()["options"])
        self.arguments.cpu = True
        [process, _], _ = self.start(plan(steps(50, 1), steps(80, 2)))
        self.assertIn("--cpu", process.round()["options"])

    def test_where_the_peer_does_not_compile_its_eager_form_runs_and_the_reason_is_kept(self):
        processes, failure = self.start(plan(steps(50, 1), TRACEBACK))
        self.assertEqual([process.compiled for process in processes], [False])
        self.assertEqual(failure, REASON)
        self.assertRegex(failure, compare.NO_COMPILER)
        self.assertNotRegex("torch._dynamo.exc.Unsupported: a call of a generator", compare.NO_COMPILER)

    def test_a_peer_that_does_not_start_at_all_is_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "^ModuleNotFoundError: No module named 'x'$"):
            self.start(plan("ModuleNotFoundError: No module named 'x'", steps(80, 2)))

    def test_in_each_round_lra_runs_first_and_then_every_process(self):
        *_, order = self.cell(plan(steps(50, 1, 1, 1), steps(80, 2, 2, 2)), plan(steps(50, 1, 1, 1), steps(80, 2, 2, 2)))
        self.assertEqual(order, ["lra", "eager", "compiled", "eager", "compiled"] * 3)
        self.assertEqual([process.returncode for process in self.started], [0] * 4)

    def test_each_column_has_the_faster_form_with_its_memory(self):
        installed = plan(steps(50, 3, 9, 4), steps(80, 2, 2, 7))
        tuned = plan(steps(60, 1, 1, 8), steps(90, 3, 3, 3)) | {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=1"}
        our, columns, failures, _ = self.cell(installed, tuned)
        self.assertEqual((our, failures), ([measured(0.5)] * 3, []))
        [(first, compiled), (second, eager)] = columns
        self.assertEqual((first, second), ("PyTorch, torch.compile", "PyTorch eager"))
        self.assertEqual([one["seconds"] for one in compiled], [[2], [2], [7]])
        self.assertEqual([one["seconds"] for one in eager], [[1], [1], [8]])
        self.assertEqual([column[0]["resident_bytes"] for column in (compiled, eager)], [80 * MB, 60 * MB])
        self.assertIsNone(compiled[0]["environment"]["GLIBC_TUNABLES"])
        self.assertEqual(eager[0]["environment"]["GLIBC_TUNABLES"], "glibc.malloc.trim_threshold=1")

    def test_a_column_of_the_eager_form_alone_says_why(self):
        _, columns, failures, _ = self.cell(plan(steps(50, 1, 1, 1), TRACEBACK))
        self.assertEqual([name for name, _ in columns], [f"PyTorch eager; does not compile: {REASON}"])
        self.assertEqual(failures, [REASON])
        self.assertNotIn("|", columns[0][0])

    def test_a_peer_that_fails_in_a_round_ends_its_row_and_every_process(self):
        with self.assertRaisesRegex(RuntimeError, "^RuntimeError: out of patience$"):
            self.cell(plan(steps(50, 1, 1, 1), steps(80, 2, None)))
        self.assertEqual([process.returncode for process in self.started], [0, 1])

    def test_a_peer_that_was_killed_while_it_waited_ends_its_row(self):
        processes, _ = self.start(plan(steps(50, 1), steps(80, 2)))
        processes[0].process.kill()
        processes[0].process.wait()
        with self.assertRaisesRegex(RuntimeError, "exit -9"):
            processes[0].round()

    def test_lines_that_a_package_prints_are_no_answer(self):
        worker = WORKER.replace('print("ready"', 'print("a word of advice")\nprint("ready"')
        self.assertNotEqual(worker, WORKER)
        (self.place / "worker.py").write_text(worker, encoding="utf-8")
        processes, _ = self.start(plan(steps(50, 1), steps(80, 2)))
        self.assertEqual(processes[0].round()["seconds"], [1])

    def test_older_packages_are_found_by_the_peers_that_need_them(self):
        for older in (False, True):
            self.entry = peer.Entry(object, masked=False, older=older)
            [process, _], _ = self.start(plan(steps(50, 1), steps(80, 2)))
            self.assertEqual(process.round()["environment"]["PYTHONPATH"] == "older", older)

    @unittest.skipUnless(GLIBC and shutil.which("cc"), "needs glibc and a C compiler")
    def test_the_settings_of_tuned_reach_the_process_of_the_peer(self):
        with cpuinfo("AuthenticAMD"):
            environment = compare.tuned(self.place)
        self.started.clear()
        [eager, compiled], _ = self.start(environment | plan(steps(50, 1), steps(80, 2)))
        for process in eager, compiled:
            facts = process.round()
            self.assertEqual(facts["fast"], 1)
            self.assertEqual(facts["environment"], {**facts["environment"], **environment})
        [process, _], _ = self.start(plan(steps(50, 1), steps(80, 2)))
        self.assertIsNone(process.round()["fast"])


def cpuinfo(vendor):
    """Makes /proc/cpuinfo name a maker of processors."""
    real = pathlib.Path.read_text

    def read_text(path, *arguments, **options):
        if str(path) == "/proc/cpuinfo":
            return f"processor\t: 0\nvendor_id\t: {vendor}\nmodel name\t: one of them\n"
        return real(path, *arguments, **options)

    return unittest.mock.patch.object(pathlib.Path, "read_text", read_text)


class Tuned(Case):
    def setUp(self):
        super().setUp()
        self.environment()

    def probes(self, *codes):
        """Lets the tries of `compare.tunables` exit with these codes, and returns the list that they are added to."""
        tries, codes = [], iter(codes)

        def run(command, env, **_):
            tries.append((int(command[-1]), env))
            return types.SimpleNamespace(returncode=next(codes))

        self.patch(compare.subprocess, "run", run)
        return tries

    @unittest.skipUnless(GLIBC, "needs glibc")
    def test_malloc_keeps_freed_memory(self):
        setting = compare.tunables()

        def gives_back(**variables):
            command = [sys.executable, "-c", compare.KEEPS, str(31 << 20)]
            return subprocess.run(command, env={**os.environ, **variables}, check=False).returncode

        self.assertEqual((gives_back(), gives_back(GLIBC_TUNABLES=setting)), (1, 0))

    def test_the_threshold_is_the_highest_that_this_glibc_takes(self):
        trim = "glibc.malloc.trim_threshold=2147483647"
        self.probes(0)
        self.assertEqual(compare.tunables(), f"glibc.malloc.mmap_threshold=2147483647:{trim}")
        tries = self.probes(1, 0)
        self.assertEqual(compare.tunables(), f"glibc.malloc.mmap_threshold=33554432:{trim}")
        # A block above the threshold would be given back whatever the setting is.
        self.assertEqual([size for size, _ in tries], [63 << 20, 31 << 20])
        self.probes(1, 1)
        self.assertRaisesRegex(SystemExit, "mmap_threshold=33554432.*gives freed memory back", compare.tunables)

    def test_tunables_that_are_there_stay(self):
        self.environment(GLIBC_TUNABLES="glibc.malloc.perturb=1", LD_PRELOAD="/nowhere/other.so")
        tries = self.probes(0)
        setting = compare.tunables()
        self.assertTrue(setting.startswith("glibc.malloc.perturb=1:glibc.malloc.mmap_threshold="), setting)
        [(_, environment)] = tries
        self.assertEqual(environment["GLIBC_TUNABLES"], setting)
        # What is preloaded may be another allocator, which would answer for glibc's.
        self.assertNotIn("LD_PRELOAD", environment)

    def test_on_processors_of_intel_nothing_is_preloaded(self):
        self.patch(compare, "tunables", lambda: "setting")
        for variables in {}, {"LD_PRELOAD": "/nowhere/other.so"}:
            self.environment(**variables)
            with cpuinfo("GenuineIntel"):
                self.assertEqual(compare.tuned(self.place), {"GLIBC_TUNABLES": "setting"})

    @unittest.skipUnless(shutil.which("cc"), "needs a C compiler")
    def test_on_processors_of_amd_a_library_that_answers_for_intel_is_preloaded(self):
        self.patch(compare, "tunables", lambda: "setting")
        with cpuinfo("AuthenticAMD"):
            environment = compare.tuned(self.place)
            library = environment["LD_PRELOAD"]
            self.assertEqual(environment, {"GLIBC_TUNABLES": "setting", "LD_PRELOAD": library})
            self.assertEqual(ctypes.CDLL(library).mkl_serv_intel_cpu_true(), 1)
            self.environment(LD_PRELOAD="/nowhere/other.so")
            self.assertEqual(compare.tuned(self.place)["LD_PRELOAD"], f"/nowhere/other.so:{library}")

    def test_the_lack_of_a_c_compiler_is_said(self):
        self.patch(compare, "tunables", lambda: "setting")
        failed = subprocess.CalledProcessError(1, "cc", stderr="vendor.c:1: error: no space")
        for error, words in (FileNotFoundError(2, "No such file"), "needs a C compiler"), (failed, "cc does not build.*no space"):
            self.patch(compare.subprocess, "run", side_effect=error)
            with cpuinfo("AuthenticAMD"):
                self.assertRaisesRegex(SystemExit, words, compare.tuned, self.place)


class Table(Case):
    """`main` of compare.py, where `cell` is a stub."""

    def setUp(self):
        super().setUp()
        entry = peer.Entry(object, masked=False, older=False)
        self.patch(compare, "load", lambda: {("linear", "PyTorch eager"): entry})
        self.patch(compare, "registered", lambda _: (["linear"], ["linear"]))
        self.patch(compare, "processor", lambda: "a processor")
        self.patch(compare.tempfile, "TemporaryDirectory", lambda: types.SimpleNamespace(name=str(self.place)))
        self.tuned = {"GLIBC_TUNABLES": "setting", "LD_PRELOAD": "vendor.so"}
        self.patch(compare, "tuned", lambda _: self.tuned)
        self.environments, self.cells = None, []

    def peers(self, *models, masked=()):
        """Makes these the models that have a peer."""
        entries = {(one, "PyTorch eager"): peer.Entry(object, one in masked, older=False) for one in models}
        self.patch(compare, "load", lambda: entries)

    def table(self, *options, failures=(), error=None):
        """Returns the lines that compare.py prints, and the message it ends with, if that is an error."""

        def cell(*arguments):
            self.environments = arguments[-1]
            options, _, model, _, length, sizes, _ = arguments
            self.cells.append((model, length, sizes, options.threads))
            if error:
                raise RuntimeError(error)
            return [measured(1)], [("PyTorch", [measured(2)]) for _ in self.environments], list(failures)

        self.patch(compare, "cell", cell)
        self.cells.clear()
        self.patch(sys, "argv", ["compare.py", "--lengths", "256", *options])
        printed, told, message = io.StringIO(), io.StringIO(), None
        with contextlib.redirect_stdout(printed), unittest.mock.patch.dict(sys.modules, STUB):
            try:
                with contextlib.redirect_stderr(told):
                    compare.main()
            except SystemExit as end:
                message = told.getvalue() or end.code
        return printed.getvalue().splitlines(), message

    def test_rows_are_in_the_order_of_lra_and_may_be_chosen(self):
        self.patch(compare, "registered", lambda _: (["c", "a", "b"], []))
        self.peers("a", "b", "c:option=1", "c")
        self.table("--lengths", "16,8")
        small = compare.SIZES["small"]
        models = ["c:option=1", "c", "a", "b"]
        expected = [(model, length, small, os.cpu_count()) for length in (16, 8) for model in models]
        self.assertEqual(self.cells, expected)
        self.table("--models", "b,c", "--size", "paper", "--threads", "7")
        self.assertEqual(self.cells, [(model, 256, compare.SIZES["paper"], 7) for model in ("c", "b")])
        self.table("--cpu", "--threads", "7", "--models", "a")
        self.assertEqual(self.cells, [("a", 256, small, 1)])
        _, message = self.table("--models", "a,d")
        self.assertIn("no peer of d; there is one of a, b, c, c:option=1", message)

    def test_on_listops_rows_are_of_the_peers_that_take_masks(self):
        self.patch(compare, "registered", lambda _: (["a", "b"], []))
        self.peers("a", "b", masked=("b",))
        lines, _ = self.table("--listops", "my data", "--bucket", "50")
        self.assertEqual(self.cells, [("b", 2000, compare.RECIPE, os.cpu_count())])
        self.assertIn("on real ListOps (attention dropout 0.1, bucket 50)", lines[0])

    def test_options_that_would_measure_something_else_are_refused(self):
        for options, words in [
            ("--lengths 0", "must be above 0"),
            ("--rounds 0", "must be above 0"),
            ("--seconds 0", "must be above 0"),
            ("--lengths 16,x", "no list of whole numbers"),
            ("--bucket 5", "apply to --listops"),
            ("--attention-dropout 0", "apply to --listops"),
            ("--cpu --device cuda:0", "--device is a GPU"),
            ("--cpu --listops data", "not allowed with"),
        ]:
            _, message = self.table(*options.split())
            self.assertIn(words, message)
            self.assertEqual(self.cells, [])

    def test_a_model_of_a_package_has_a_peer_or_a_reason(self):
        held = ["linear", "lacking", *compare.WITHOUT]
        self.patch(compare, "registered", lambda _: (held, held))
        self.assertEqual(self.table()[1], "no peer and no reason for it in WITHOUT: lacking")

    def test_the_file_has_all_rows(self):
        out = self.place / "peers.md"
        lines, _ = self.table("--lengths", "16,8", "--out", str(out))
        written = out.read_text(encoding="utf-8").splitlines()
        self.assertEqual([line.split(" | ")[1] for line in written[-2:]], ["16", "8"])
        self.assertEqual(lines[: len(written)], written)

    def test_tuned_adds_a_column_and_says_what_was_set(self):
        lines, message = self.table("--tuned")
        self.assertEqual(self.environments, [{}, self.tuned])
        [words] = [line for line in lines if line.startswith("Tuned: ")]
        self.assertRegex(words, "^Tuned: GLIBC_TUNABLES=setting of .*, and MKL takes its fast paths")
        [heading] = compare.heading([{}, {}])[:1]
        row = "| linear | 256 | 1000 | PyTorch | 2000 | 0.50 (0.50-0.50) | PyTorch | 2000 | 0.50 (0.50-0.50) | 10 | 30 | 30 | 1.00 |"
        self.assertEqual([lines[lines.index(heading) + 2], message], [row, None])
        del self.tuned["LD_PRELOAD"]
        self.assertFalse([line for line in self.table("--tuned")[0] if "MKL" in line])

    def test_without_tuned_there_is_one_column(self):
        lines, _ = self.table()
        self.assertEqual(self.environments, [{}])
        self.assertIn(compare.heading([{}])[0], lines)
        self.assertFalse([line for line in lines if "tuned" in line.lower()])

    def test_the_lack_of_a_compiler_is_an_error_and_another_reason_is_not(self):
        lines, message = self.table(failures=[REASON, REASON])
        self.assertIn(f"- linear beside PyTorch eager: {REASON}", lines)
        self.assertEqual(message, "1 of the rows are of eager PyTorch only, for want of a compiler that works")
        lines, message = self.table(failures=["torch._dynamo.exc.Unsupported: a generator"])
        self.assertIn("- linear beside PyTorch eager: torch._dynamo.exc.Unsupported: a generator", lines)
        self.assertIsNone(message)

    def test_a_row_that_failed_is_an_error(self):
        lines, message = self.table(error="no\nmemory")
        self.assertIn("| linear | 256 | | PyTorch eager | failed: no memory |", lines)
        self.assertEqual(message, "1 of the rows failed")


def prepared(length, *compiled):
    """Returns what worker.py does with a model before it is ready for use."""
    return [f"build {length}", *compiled, f"step {length}", f"step {length}"]


class Worker(Case):
    """`main` of worker.py with a model that does nothing."""

    def setUp(self):
        super().setUp()
        self.events = events = []
        alive = weakref.WeakSet()

        class Model:
            def __init__(self, build, sizes, arguments):
                self.length = sizes.length
                alive.add(self)
                events.append(f"build {self.length}")

            def __call__(self, ids, **mask):
                events.append(f"step {self.length}")

            def parameters(self):
                return []

            def loss(self):
                return 0.0

        def memory(name, amount):
            """Returns a function that notes that memory is read beside so many models, and returns the amount."""

            def read(*_):
                events.append(f"{name} beside {len(alive)}")
                return amount

            return read

        def release():
            gc.collect()
            events.append("release")

        def compiled(model):
            events.append(f"compile {model.length}")
            return model

        def opened(path, *_, **__):
            return contextlib.nullcontext(types.SimpleNamespace(write=lambda text: events.append(f"{text} to {path}")))

        amounts = {"VmRSS": memory("base", 1000), "VmHWM": memory("peak", 61000)}
        self.patch(worker, "kilobytes", lambda name: amounts[name]())
        self.patch(worker, "Classifier", Model)
        self.patch(worker, "release", release)
        self.patch(worker, "load", lambda: {("linear", "a stub"): peer.Entry(object, masked=False, older=False)})
        self.patch(worker, "open", opened, create=True)
        self.patch(worker.time, "perf_counter", side_effect=itertools.count(0, 0.25).__next__)
        self.patch(worker.time, "process_time", side_effect=itertools.count(0, 0.5).__next__)
        self.patch(TORCH, "device", lambda name: types.SimpleNamespace(type=name.split(":")[0]))
        self.patch(TORCH, "compile", compiled)
        self.patch(TORCH.compiler, "reset", lambda: events.append("reset"))
        self.patch(TORCH.cuda, "memory_allocated", memory("base", 1000))
        self.patch(TORCH.cuda, "max_memory_allocated", memory("peak", 61000))
        self.patch(TORCH.cuda, "reset_peak_memory_stats", lambda _: events.append("forget"))

    def work(self, *options, rounds=1):
        """Runs `main` for some rounds and returns the answers. What it did is in `events`."""
        self.events.clear()
        command = ["worker.py", "--model", "linear", "--peer", "a stub", "--length", "4096", "--seconds", "0.1", *options]
        self.patch(sys, "argv", command)
        self.patch(sys, "stdin", io.StringIO("go\n" * rounds + "\ngo\n"))
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            worker.main()
        ready, *answers = printed.getvalue().splitlines()
        self.assertEqual((ready, len(answers)), ("ready", rounds))
        return [json.loads(answer) for answer in answers]

    ROUND = ["step 4096"] * 2 + ["5 to /proc/self/clear_refs"] + ["step 4096"] * 3 + ["peak beside 1"]

    def test_the_base_of_memory_is_read_after_a_small_step_and_before_the_model_is_built(self):
        answers = self.work(rounds=2)
        expected = [*prepared(128), "release", "base beside 0", *prepared(4096), "release"]
        self.assertEqual(self.events, expected + self.ROUND + self.ROUND)
        self.assertEqual([answer["resident_bytes"] for answer in answers], [60000 * 1024] * 2)

    def test_a_compiled_model_is_compiled_anew_after_the_base(self):
        self.work("--compile", "--compiled")
        expected = [*prepared(128, "compile 128"), "reset", "release", "base beside 0"]
        expected += [*prepared(4096, "compile 4096"), "release"]
        self.assertEqual(self.events, expected + self.ROUND)

    def test_another_process_compiles_first(self):
        run = self.patch(worker.subprocess, "run", return_value=types.SimpleNamespace(returncode=0))
        self.work("--compile")
        [command] = run.call_args.args
        self.assertEqual(command, [sys.executable, *sys.argv, "--compiled"])
        self.assertEqual(run.call_args.kwargs["stdin"], subprocess.DEVNULL)
        run.reset_mock()
        self.work()
        self.work("--compile", "--compiled")
        run.assert_not_called()
        for status, words in (3, "^3$"), (-9, "signal 9 "):
            run.return_value.returncode = status
            with self.assertRaisesRegex(SystemExit, words):
                self.work("--compile")
            self.assertEqual(self.events, [])

    def test_on_a_gpu_memory_is_that_of_the_allocator_in_the_same_order(self):
        [answer] = self.work("--device", "cuda:0")
        expected = [*prepared(128), "release", "base beside 0", *prepared(4096), "release", *self.ROUND]
        self.assertEqual(self.events, ["forget" if "clear_refs" in event else event for event in expected])
        self.assertEqual(answer["resident_bytes"], 60000)

    def test_a_step_has_the_loss_that_the_peer_adds(self):
        loss = self.patch(worker.F, "cross_entropy").return_value
        self.work()
        loss.__add__.assert_called_with(0.0)
        loss.__add__.return_value.backward.assert_called()
        loss.backward.assert_not_called()

    def test_steps_are_timed_for_as_many_seconds_as_asked_and_three_at_the_least(self):
        self.assertEqual(self.work()[0]["seconds"], [0.25] * 3)
        self.assertEqual(self.work("--seconds", "1.1")[0]["seconds"], [0.25] * 5)
        self.assertEqual(self.work("--seconds", "1.1", "--cpu")[0]["seconds"], [0.5] * 3)


@unittest.skipUnless(pathlib.Path("/proc/self/status").exists(), "needs Linux")
class Memory(Case):
    def test_the_system_says_how_much_is_resident_and_was_at_the_peak(self):
        resident, peak = worker.kilobytes("VmRSS"), worker.kilobytes("VmHWM")
        self.assertGreater(resident, 1000)
        self.assertGreaterEqual(peak, resident)


if __name__ == "__main__":
    # A shell starts what runs in the background with this signal ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
