"""Tests of mixers in PyTorch against the program named by LRA_PROGRAM; they need PyTorch."""

import hashlib
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import lra  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None


CASE = """
import torch


class Mix(torch.nn.Module):
    def __init__(self, dim, factor=2.0):
        super().__init__()
        self.factor = factor
        self.output = torch.nn.Linear(dim, dim)

    def forward(self, x, mask):
        return self.output(self.factor * x)


def mix(dim):
    return Mix(dim, 1.0)
"""


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class Mixers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import mixers

        cls.mixers = mixers
        cls.place = tempfile.TemporaryDirectory()
        cls.data, cls.out = Path(cls.place.name) / "data", Path(cls.place.name) / "runs"

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def train(self, factory, out="runs", **more):
        set = {"block.dropout": 0.1, **more.pop("set", {})}
        return lra.train("toy", factory, recipe="smoke", data=self.data, out=self.out / out, set=set, **more)

    def run_program(self, *words, factory):
        _, variables = lra.torch_mixer(factory)
        command = [lra.program(), *words]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)

    def test_a_mixer_is_trained_and_its_record_says_what_computed_it(self):
        record = self.train(self.mixers.mean, steps=300, set={"train.learning_rate": 0.01})
        self.assertEqual(record["model"]["name"], "torch_mean")
        own = record["model"]["own"]
        self.assertIn("PyTorch", own["process"])
        source = Path(self.mixers.__file__).read_bytes() + b"\n# The factory is mean.\n"
        self.assertEqual(own["source"], hashlib.sha256(source).hexdigest())
        curves = lra.curves(self.out / "runs" / record["id"])
        losses = curves["train"]["loss"]
        self.assertLess(losses[-20:].mean(), 0.9 * losses[:20].mean())
        weights = lra.weights(self.out / "runs" / record["id"])
        names = [name for name in weights if name.endswith("mean.weight")]
        self.assertTrue(names, list(weights))
        table = subprocess.run(
            [lra.program(), "report", str(self.out / "runs"), "--table", "speed"], capture_output=True, text=True, check=True
        )
        self.assertIn("through_a_pipe", table.stdout)

    def test_two_runs_have_equal_bits(self):
        traces = []
        for out in ("one", "two"):
            record = self.train(self.mixers.mean, out, steps=8)
            folder = self.out / out / record["id"]
            traces.append([(folder / name).read_bytes() for name in ("metrics.jsonl", "best.safetensors")])
        self.assertEqual(traces[0], traces[1])

    def test_a_mixer_without_draws_keeps_what_every_model_promises(self):
        done = self.run_program("check-model", "torch_plain", "--json", factory=self.mixers.plain)
        rows = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual([one["promise"] for one in rows if one["wrong"]], [], done.stdout)
        unchecked = [one["promise"] for one in rows if one["not_tried_because"]]
        self.assertEqual(len(unchecked), 5, done.stdout)

    def test_a_class_without_init_is_a_factory(self):
        record = self.train(self.mixers.Doubled, steps=2)
        self.assertEqual(record["model"]["name"], "torch_doubled")

    def test_a_mixer_without_parameters(self):
        record = self.train(self.mixers.identity, steps=4)
        bag = lra.train(
            "toy", "bag", recipe="smoke", steps=4, data=self.data, out=self.out / "bag", set={"block.dropout": 0.1}
        )
        self.assertEqual(record["scores"]["train_loss"], bag["scores"]["train_loss"])

    def test_faults_of_the_mixer_are_errors_with_its_traceback(self):
        for factory, code, words in [
            (self.mixers.raises, 4, "a fault of the mixer"),
            (self.mixers.shape, 4, "it must return the shape of x"),
            (self.mixers.exits, 4, "exit status: 7"),
            (self.mixers.buffers, 4, "the buffer count changes in training"),
            (self.mixers.nothing, 2, "not a torch.nn.Module"),
        ]:
            with self.subTest(factory.__name__):
                with self.assertRaises(lra.LraError) as caught:
                    self.train(factory, factory.__name__, steps=3)
                self.assertEqual(caught.exception.code, code, str(caught.exception))
                self.assertIn(words, str(caught.exception))

    def test_factories_that_differ_in_case_are_two_models(self):
        folder = Path(self.place.name)
        (folder / "case.py").write_text(CASE)
        words = ["run", "--task", "toy", "--model", "torch_mix", "--recipe", "smoke", "--steps", "2", "--quiet"]
        words += ["--data", str(self.data), "--out", str(self.out / "case")]
        codes = []
        for name in ["mix", "mix", "Mix"]:
            variables = {**os.environ, "LRA_TORCH": f"{folder / 'case.py'}:{name}", "LRA_PYTHON": sys.executable}
            ran = subprocess.run([lra.program(), *words], env=variables, capture_output=True, text=True, check=False)
            codes.append(ran.returncode)
        self.assertEqual(codes, [0, 0, 2], ran.stderr)
        self.assertIn("source has changed", ran.stderr)

    @unittest.skipUnless(hasattr(os, "killpg"), "needs process groups")
    def test_a_signal_to_the_whole_group_saves_the_run(self):
        _, variables = lra.torch_mixer(self.mixers.plain)
        # A file of the folder in which the command is typed is no module of Python.
        folder = Path(self.place.name) / "typed"
        folder.mkdir()
        (folder / "struct.py").write_text("raise RuntimeError('this file is not the module')\n")
        out = self.out / "signalled"
        words = [lra.program(), "run", "--task", "toy", "--model", "torch_plain", "--recipe", "smoke", "--steps", "100000"]
        words += ["--set", "train.checkpoint_every=10", "--set", "train.eval_every=0", "--quiet"]
        words += ["--data", str(self.data), "--out", str(out)]
        for name in ("SIGTERM", "SIGHUP", "SIGINT"):
            with self.subTest(name):
                run = subprocess.Popen(
                    [*words, "--resume"],
                    cwd=folder,
                    env={**os.environ, **variables},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    start_new_session=True,
                    preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
                )
                before = {path: path.stat().st_mtime_ns for path in out.glob("*/checkpoint.safetensors")}
                for _ in range(1200):
                    now = {path: path.stat().st_mtime_ns for path in out.glob("*/checkpoint.safetensors")}
                    if now != before or run.poll() is not None:
                        break
                    time.sleep(0.05)
                self.assertIsNone(run.poll(), run.stderr.read() if run.poll() is not None else "")
                os.killpg(run.pid, getattr(signal, name))
                _, told = run.communicate(timeout=60)
                self.assertEqual(run.returncode, 130, told)
                (record,) = out.glob("*/record.json")
                self.assertEqual(json.loads(record.read_text())["outcome"]["status"], "interrupted", told)

    def test_a_factory_that_cannot_be_imported_is_refused(self):
        with self.assertRaises(ValueError):
            lra.train("toy", lambda dim: None)


if __name__ == "__main__":
    if not os.environ.get("LRA_PROGRAM"):
        sys.exit("LRA_PROGRAM is not set: name the program to test with")
    unittest.main()
