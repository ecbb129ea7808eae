"""Tests of mixers in PyTorch against the program named by LRA_PROGRAM; they need PyTorch."""

import argparse
import hashlib
import importlib
import importlib.util
import itertools
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parent))

import lra  # noqa: E402

ROOT = Path(__file__).resolve().parents[3]
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

    def test_the_mixer_of_the_documentation_is_the_mean_of_its_neighbours(self):
        import torch

        mixer = load(ROOT / "docs" / "torch_mixer.py").neighbours(3, 9, 1, 0.0, 0)
        x, mask = torch.randn(2, 9, 3), torch.ones(2, 9, dtype=torch.bool)
        mask[1, 4:] = False
        y = mixer(x, mask)
        for row, length in (0, 9), (1, 4):
            for i in range(length):
                mean = x[row, max(0, i - 2) : min(length, i + 3)].sum(0) / 5
                torch.testing.assert_close(y[row, i], mixer.output(mean))

    def test_a_factory_that_cannot_be_imported_is_refused(self):
        with self.assertRaises(ValueError):
            lra.train("toy", lambda dim: None)


PROCESS = """
import os

import torch

import beside

assert os.environ["LRA_MIXER_PROCESS"] == "1"


class Mix(torch.nn.Module):
    def __init__(self, dropout, dtype=torch.float32):
        super().__init__()
        self.used = torch.nn.Parameter(torch.tensor([2.0, 3.0], dtype=dtype))
        self.frozen = torch.nn.Parameter(torch.tensor(5.0), requires_grad=False)
        self.unused = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("turn", -torch.eye(2))
        self.dropout = torch.nn.Dropout(dropout)

    def forward(self, x, mask):
        return self.dropout(x @ self.turn * self.used * self.frozen * mask.unsqueeze(2))


def mix(**given):
    assert given == {"dim": 2, "length": 3, "heads": 1, "dropout": 0.5, "layer": 4}
    return Mix(given["dropout"])


class Constant(torch.nn.Module):
    def forward(self, x, mask):
        return torch.full_like(x, 7.0)


def constant():
    return Constant()


def half():
    return Mix(0.0, torch.float16)
"""


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class Process(unittest.TestCase):
    """lra/src/torch/worker.py, asked by the messages that protocol.rs describes."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.file = Path(place.name) / "mixer.py"
        self.file.write_text(PROCESS, encoding="utf-8")
        self.file.with_name("beside.py").touch()
        program = (ROOT / "lra" / "src" / "torch" / "worker.py").read_text(encoding="utf-8")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([sys.executable, "-c", program], **pipes)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.stdin.close)

    def ask(self, do, *parts, **keys):
        """Sends a message, and returns the answer with the bytes of its payload."""
        header, payload = json.dumps({"do": do, **keys}).encode(), b"".join(part.tobytes() for part in parts)
        self.process.stdin.write(struct.pack("<IQ", len(header), len(payload)) + header + payload)
        self.process.stdin.flush()
        if do == "forget":
            return None
        header, payload = struct.unpack("<IQ", self.process.stdout.read(12))
        return json.loads(self.process.stdout.read(header)), self.process.stdout.read(payload)

    def build(self, factory):
        answer, _ = self.ask("hello", protocol=1, file=str(self.file), factory=factory)
        self.assertEqual(answer.get("protocol"), 1, answer)
        return self.ask("build", dim=2, length=3, heads=1, dropout=0.5, layer=4, seed=1)

    def forward(self, kind, *parts, layer=0, mask=True, **keys):
        usual = {"call": 1, "train": False, "seed": 1, "keep": False, "changed": True}
        of = {"id": layer, "type": f"f{8 * parts[0].itemsize}", "shape": parts[0].shape, "mask": mask}
        answer, payload = self.ask("forward", *parts, **{**usual, **of, **keys})
        self.assertEqual(answer, {})
        return importlib.import_module("numpy").frombuffer(payload, kind).reshape(parts[0].shape)

    def test_the_process_answers_for_layers_of_every_kind(self):
        numpy = importlib.import_module("numpy")
        built, values = self.build("mix")
        # What needs no gradient stays as the factory made it.
        trained = [{"name": "used", "shape": [2]}, {"name": "unused", "shape": [3]}]
        self.assertEqual(built, {"id": 0, "parameters": trained})
        self.assertEqual(numpy.frombuffer(values, "<f4").tolist(), [2, 3, 1, 1, 1])
        mask = numpy.array([[1, 1, 0], [1, 0, 0]], "u1")
        for kind in "<f4", "<f8", "<f4":
            x = numpy.arange(1, 13, dtype=kind).reshape(2, 3, 2)
            given = numpy.array([4, 6, 0, 0, 0], kind)
            factors = -5 * given[:2] * mask[..., None]
            y = self.forward(kind, x, mask, given, keep=True)
            self.assertEqual(y.tolist(), (x * factors).tolist())
            dy = numpy.array([[[1, 2]] * 3, [[3, 4]] * 3], kind)
            answer, gradients = self.ask("backward", dy, call=1)
            self.assertEqual(answer, {})
            gradients = numpy.frombuffer(gradients, kind)
            self.assertEqual(gradients[:12].tolist(), (dy * factors).ravel().tolist())
            of_used = (-5 * dy * x * mask[..., None]).sum((0, 1)).tolist()
            self.assertEqual(gradients[12:].tolist(), [*of_used, 0, 0, 0])
            # Without a mask all positions are real, and parameters that are not sent are the last ones.
            y = self.forward(kind, x, mask=False, changed=False)
            self.assertEqual(y.tolist(), (-5 * x * given[:2]).tolist())

        # Dropout is drawn in training alone, by the seed of the call.
        x, mask = numpy.ones((1, 300, 2), "<f4"), numpy.ones((1, 300), "u1")
        one, same, other = (self.forward("<f4", x, mask, given, train=True, seed=seed) for seed in (1, 1, 2))
        self.assertEqual(one.tolist(), same.tolist())
        self.assertNotEqual(one.tolist(), other.tolist())
        self.assertEqual(set(one[..., 0].ravel().tolist()), {0, -40})

        # What was forgotten has no gradient, and the process goes on after an error.
        self.forward("<f4", x, mask, given, keep=True, call=5)
        self.ask("forget", call=5)
        answer, _ = self.ask("backward", x, call=5)
        self.assertIn("KeyError", answer["error"])

        self.assertEqual(self.build("constant")[0], {"id": 1, "parameters": []})
        y = self.forward("<f4", x, mask, layer=1, keep=True)
        self.assertEqual((y == 7).sum(), 600)
        answer, gradients = self.ask("backward", x, call=1)
        self.assertEqual((answer, gradients), ({}, bytes(4 * 600)))
        self.assertIn("used is torch.float16, not torch.float32", self.build("half")[0]["error"])


def load(path):
    """Imports a file as the module of its name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@unittest.skipUnless(HAS_TORCH, "needs PyTorch")
class Peers(unittest.TestCase):
    """What the scripts of lra/benches/peers compute in PyTorch alone."""

    @classmethod
    def setUpClass(cls):
        import torch

        folder = ROOT / "lra" / "benches" / "peers"
        names = ["peer", "eager", "state_spaces", "worker"]
        with unittest.mock.patch.dict(sys.modules):
            cls.peer, cls.eager, cls.spaces, cls.worker = (load(folder / f"{name}.py") for name in names)
        cls.torch = torch

    def close(self, one, other):
        self.torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    def sizes(self, **more):
        return self.peer.Sizes(**{"dim": 8, "heads": 2, "length": 21, **more})

    def test_peers_beside_padded_sequences_do_not_see_the_padding(self):
        torch = self.torch
        x, mask = torch.randn(2, 21, 8), torch.ones(2, 21, dtype=torch.bool)
        mask[1, 9:] = False
        other = torch.where(mask[..., None], x, 7.0)
        for (model, _), entry in self.peer.PEERS.items():
            if not entry.masked:
                continue
            with self.subTest(model):
                mixer = entry.build(self.sizes())
                y = mixer(x, mask=mask)
                self.close(mixer(other, mask=mask)[mask], y[mask])
                self.close(mixer(x[:1]), y[:1])
                self.close(mixer(x[1:, :9]), y[1:, :9])

    def attention(self, mixer, x, weights):
        """Returns what a mixer gives by these weights of queries and keys, of scores that are not scaled."""
        q, k, v = (part.view(2, 21, 2, 4).transpose(1, 2) for part in mixer.qkv(x).chunk(3, -1))
        y = weights(q, k) @ v
        return mixer.output(y.transpose(1, 2).reshape(2, 21, 8))

    def test_eager_attention_is_that_of_its_formula(self):
        torch, x = self.torch, self.torch.randn(2, 21, 8)
        softmax = lambda q, k: (q @ k.mT / 2).softmax(-1)
        for mixer in self.eager.Transformer(self.sizes()), self.eager.Materialised(self.sizes()):
            self.close(mixer(x), self.attention(mixer, x, softmax))
        mixer = self.eager.Linear(self.sizes())

        def linear(q, k):
            products = (torch.nn.functional.elu(q) + 1) @ (torch.nn.functional.elu(k) + 1).mT
            return products / products.sum(-1, keepdim=True)

        self.close(mixer(x), self.attention(mixer, x, linear))
        # Blocks of 8: three, of which the last has 5 positions and no summary. A block sees itself and all summaries.
        mixer = self.eager.Sparse(self.sizes())
        mixer.SUMMARY = 3
        places = torch.arange(21)
        seen = (places[:, None] // 8 == places // 8) | (places % 8 >= 5)
        sparse = lambda q, k: (q @ k.mT / 2).masked_fill(~seen, -torch.inf).softmax(-1)
        self.close(mixer(x), self.attention(mixer, x, sparse))

    def test_state_spaces_look_behind_and_ahead(self):
        torch, x = self.torch, self.torch.randn(2, 21, 8)
        for name, mixer in ("s4d", self.spaces.S4D(self.sizes())), ("s4d, 64", self.spaces.LargeS4D(self.sizes())):
            with self.subTest(name):
                behind, ahead = mixer.kernels(21)
                y = x * mixer.d
                for lag in range(21):
                    y[:, lag:] += behind[:, lag] * x[:, : 21 - lag]
                for lag in range(20):
                    y[:, : 20 - lag] += ahead[:, lag] * x[:, lag + 1 :]
                expected = torch.nn.functional.glu(mixer.output(torch.nn.functional.gelu(y)), -1)
                self.close(mixer(x), expected)

    def test_the_model_around_a_peer_has_what_the_peer_says(self):
        torch, arguments = self.torch, argparse.Namespace(vocabulary=7, head=5, classes=3)
        ids, mask = torch.randint(7, (2, 21)), torch.ones(2, 21, dtype=torch.bool)
        mask[1, 9:] = False
        model = self.worker.Classifier(self.eager.Transformer, self.sizes(), arguments)
        logits = model(ids, mask=mask)
        self.assertEqual(tuple(logits.shape), (2, 3))
        self.close(model(torch.where(mask, ids, 6), mask=mask), logits)
        self.assertGreater((model(ids.flip(1)) - model(ids)).abs().max(), 1e-4, "positions are learned")
        self.assertEqual(len(model.blocks), 2)
        self.assertEqual(model.loss(), 0)
        model.blocks[1].mixer.loss = torch.tensor(2.0)
        self.assertEqual(model.loss(), 2)
        model = self.worker.Classifier(self.eager.Gru, self.sizes(), arguments)
        self.assertEqual((model.positions, hasattr(model.blocks[0], "feed")), (None, False))

    def test_batches_are_whole_and_begin_again(self):
        lengths = [3, 1, 9, 2, 5, 1]
        numpy = importlib.import_module("numpy")
        offsets = numpy.cumsum([0, *lengths]).astype("<u8")
        tokens = numpy.arange(offsets[-1], dtype="u1") + 230
        rows = {"tokens": tokens, "offsets": offsets, "labels": numpy.arange(6, dtype="u1")}
        text = [[int(token) + 1 for token in tokens[offsets[i] : offsets[i + 1]]] for i in range(6)]
        arguments = argparse.Namespace(batch=2, bucket=0, length=4)
        batches = list(itertools.islice(self.worker.batches_of(rows, arguments), 4))
        self.assertEqual([one[2].tolist() for one in batches[:3]], [[0, 1], [2, 3], [4, 5]])
        self.assertEqual(batches[3][2].tolist(), [0, 1])
        for ids, mask, labels in batches:
            for row, seen, label in zip(ids.tolist(), mask["mask"].tolist(), labels.tolist()):
                cut = text[label][:4]
                self.assertEqual(row, cut + [0] * (4 - len(cut)))
                self.assertEqual(seen, [True] * len(cut) + [False] * (4 - len(cut)))
        arguments = argparse.Namespace(batch=4, bucket=0, length=4)
        batches = list(itertools.islice(self.worker.batches_of(rows, arguments), 2))
        self.assertEqual([one[2].tolist() for one in batches], [[0, 1, 2, 3]] * 2)
        arguments = argparse.Namespace(batch=2, bucket=3, length=20)
        batches = list(itertools.islice(self.worker.batches_of(rows, arguments), 3))
        widths = {tuple(labels.tolist()): ids.shape[1] for ids, _, labels in batches}
        self.assertEqual(widths, {(1, 5): 1, (3, 0): 3, (4, 2): 9})


if __name__ == "__main__":
    if not os.environ.get("LRA_PROGRAM"):
        sys.exit("LRA_PROGRAM is not set: name the program to test with")
    # A shell starts what runs in the background with this signal ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
