"""Tests of the package against the program named by LRA_PROGRAM: `python -m unittest discover lra/python/tests`."""

import importlib.util
import json
import os
import pickle
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np  # noqa: E402

import lra  # noqa: E402
from lra.arrays import arrays  # noqa: E402
from lra.program import settings  # noqa: E402


def has(module):
    return importlib.util.find_spec(module) is not None


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.place = tempfile.TemporaryDirectory()
        cls.data, cls.out = Path(cls.place.name) / "data", Path(cls.place.name) / "runs"
        cls.record = lra.train("toy", "linear", recipe="smoke", steps=6, data=cls.data, out=cls.out)
        cls.folder = cls.out / cls.record["id"]

    @classmethod
    def tearDownClass(cls):
        cls.place.cleanup()

    def test_a_run_is_trained_and_found_again(self):
        self.assertEqual(self.record["outcome"]["status"], "scored")
        self.assertEqual(self.record["scores"]["steps"], 6)
        [found] = lra.records(self.out)
        self.assertEqual(found.pop("folder"), str(self.folder))
        self.assertEqual(found, self.record)
        again = lra.train("toy", "linear", recipe="smoke", steps=6, data=self.data, out=self.out)
        self.assertEqual(again, self.record)

    def test_settings_of_every_kind_reach_the_program(self):
        values = {"block.layers": 1, "train.learning_rate": 1e-3, "block.norm": "rms", "train.groups": []}
        record = lra.train("toy", "linear", recipe="smoke", steps=2, set=values, seed=3, data=self.data, out=self.out / "set")
        self.assertEqual(record["seed"], 3)
        self.assertIn("block.norm=rms", record["recipe"]["overrides"])

    def test_settings_can_be_nested_and_none_is_refused(self):
        words = settings({"block": {"layers": 1, "norm": "rms"}, "train.steps": 2})
        self.assertEqual(words[1::2], ["block.layers=1", "block.norm=rms", "train.steps=2"])
        with self.assertRaises(TypeError):
            settings({"block": {"layers": None}})

    def test_records_behind_links_are_found_once_and_damaged_ones_told(self):
        place = Path(self.place.name) / "links"
        place.mkdir()
        (place / "run").symlink_to(self.folder.resolve(), target_is_directory=True)
        (place / "loop").symlink_to(place, target_is_directory=True)
        (place / "damaged").mkdir()
        (place / "damaged" / "record.json").write_text("{", encoding="utf-8")
        with self.assertWarnsRegex(UserWarning, "damaged.*left out"):
            [found] = lra.records(place)
        (place / "damaged" / "record.json").write_bytes(b'{"id": "\xff"}')
        with self.assertWarnsRegex(UserWarning, "damaged.*left out"):
            lra.records(place)
        self.assertEqual(found["id"], self.record["id"])

    def test_copies_and_what_is_no_record_are_left_out_and_defaults_filled_in(self):
        place = Path(self.place.name) / "copies"
        names = {"run": self.record, "backup": self.record, ".hidden": self.record, "empty": {}, "list": []}
        short = {key: self.record[key] for key in ("schema", "outcome", "model")}
        own = {**self.record["model"], "own": {"source": "a digest"}}
        names["short"] = {**short, "id": "short", "task": {"name": "toy"}, "model": own}
        for name, record in names.items():
            (place / name).mkdir(parents=True)
            kept = {key: value for key, value in record.items() if key != "folder"} if record else record
            (place / name / "record.json").write_text(json.dumps(kept), encoding="utf-8")
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = lra.records(place)
        self.assertEqual(sorted(one["id"] for one in found), sorted([self.record["id"], "short"]))
        self.assertEqual(len([one for one in told if "left out" in str(one.message)]), 3)
        if has("pandas"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                frame = lra.runs(place)
            self.assertEqual(sorted(frame["seed"]), sorted([0, self.record["seed"]]))
            self.assertEqual(list(frame["model_source"].dropna()), ["a digest"])

    def test_records_are_in_the_order_of_their_folders_and_none_is_below_a_run(self):
        place = Path(self.place.name) / "order"
        kept = {key: value for key, value in self.record.items() if key != "folder"}
        for name in "gacfbhed":
            for folder in place / name, place / name / "below":
                folder.mkdir(parents=True)
                (folder / "record.json").write_text(json.dumps({**kept, "id": folder.name}))
            (place / name / "record.json").write_text(json.dumps({**kept, "id": name}))
        self.assertEqual([one["id"] for one in lra.records(place)], list("abcdefgh"))

    @unittest.skipUnless(os.name == "posix", "needs signals")
    def test_an_interrupt_lets_the_program_save_its_run(self):
        out = Path(self.place.name) / "interrupted"
        code = (
            "import sys, lra\n"
            "lra.train('toy', 'linear', recipe='smoke', steps=2000000, data=sys.argv[1], out=sys.argv[2],"
            " set={'train.checkpoint_every': 50, 'train.eval_every': 0})\n"
        )
        path = os.pathsep.join([str(Path(lra.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        words = [sys.executable, "-c", code, str(self.data), str(out)]
        child = subprocess.Popen(words, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.PIPE, text=True)
        for _ in range(1200):
            if list(out.glob("*/checkpoint.safetensors")) or child.poll() is not None:
                break
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=60)
        self.assertIn("KeyboardInterrupt", told)
        [record] = out.glob("*/record.json")
        self.assertEqual(json.loads(record.read_text())["outcome"]["status"], "interrupted", told)

    def test_a_failed_check_has_its_table(self):
        base = Path(self.place.name) / "base.csv"
        lra.command("check", "--baseline", str(base), "--update", str(self.out))
        other = Path(self.place.name) / "other"
        lra.train("toy", "linear", recipe="smoke", steps=5, data=self.data, out=other)
        with self.assertRaises(lra.LraError) as caught:
            lra.command("check", "--baseline", str(base), str(other))
        self.assertEqual(caught.exception.code, 1)
        self.assertIn("MISSING", caught.exception.output)

    def test_errors_have_the_message_and_the_code_of_the_program(self):
        with self.assertRaises(lra.LraError) as caught:
            lra.train("imdb", "linear", data=self.data, out=self.out)
        self.assertEqual(caught.exception.code, 2)
        self.assertIn("did you mean 'text'", str(caught.exception))
        with self.assertRaises(lra.LraError) as caught:
            lra.dataset("text", recipe="smoke", data=self.data)
        self.assertEqual(caught.exception.code, 3)
        with self.assertRaises(ValueError):
            lra.dataset("toy", "valid", recipe="smoke", data=self.data)

    @unittest.skipUnless(has("jsonschema"), "needs jsonschema")
    def test_files_are_as_their_schemas_say(self):
        from jsonschema import Draft202012Validator

        def schema(name):
            of = json.loads(lra.command("list", "schemas", name))
            Draft202012Validator.check_schema(of)
            return Draft202012Validator(of)

        def lines(file):
            return [json.loads(line) for line in file.read_text().splitlines()]

        place = Path(self.place.name)
        dense = lra.train("listops", "linear", recipe="smoke", steps=4, set={"data.dense": True}, data=self.data, out=place / "dense")
        for record in (self.record, dense):
            schema("record").validate(record)
        self.assertIn("test_dense", dense["scores"])
        logs = [lines(self.folder / "metrics.jsonl"), lines(place / "dense" / dense["id"] / "metrics.jsonl")]
        self.assertTrue(all(logs))
        for line in logs[0] + logs[1]:
            schema("metrics").validate(line)
        made = list(self.data.rglob("manifest.json"))
        self.assertGreater(len(made), 1)
        for file in made:
            schema("manifest").validate(json.loads(file.read_text()))
        bench = ["bench", "--models", "linear,bigbird", "--lengths", "16", "--batch", "1", "--quick", "--out", str(place / "bench")]
        lra.command(*bench)
        [session] = (place / "bench").rglob("*.jsonl")
        self.assertEqual(len(lines(session)), 2)
        for line in lines(session):
            schema("bench").validate(line)
        # A schema that takes anything would say nothing.
        for name in ("record", "bench", "manifest"):
            self.assertFalse(schema(name).is_valid({}), name)
        wrong = dict(self.record, seed="one")
        self.assertFalse(schema("record").is_valid(wrong))
        self.assertFalse(schema("metrics").is_valid({"event": "train", "step": 1}))

    def test_a_command_returns_what_it_prints(self):
        table = lra.command("report", str(self.out), "--table", "accuracy")
        self.assertIn("majority", table)
        with self.assertRaises(lra.LraError) as caught:
            lra.command("report", str(self.out / "nothing"))
        self.assertIn("nothing", str(caught.exception))

    def test_sequences_are_those_that_the_program_shows(self):
        split = lra.dataset("listops", "val", recipe="smoke", data=self.data)
        self.assertEqual(len(split), split.manifest["splits"]["val"]["rows"])
        counts = [int((split.labels == label).sum()) for label in range(10)]
        self.assertEqual(counts, split.manifest["splits"]["val"]["labels"])
        sequence, label = split[-1]
        self.assertEqual(label, split.labels[len(split) - 1])
        command = [lra.program(), "data", "show", "listops", "--recipe", "smoke", "--data", str(self.data), "--split", "val"]
        shown = subprocess.run([*command, "--json"], check=True, capture_output=True)
        lengths = [len(split.sequence(row)) for row in range(len(split))]
        self.assertIn(str(max(lengths)), shown.stdout.decode())
        with self.assertRaises(ValueError):
            sequence[0] = 1  # a view of a file that is read-only
        with self.assertRaises(IndexError):
            split[len(split)]

    def test_batches_are_padded_with_zeros(self):
        split = lra.dataset("listops", "train", recipe="smoke", data=self.data)
        ids, mask, labels = split.padded(3, 8)
        self.assertEqual(ids.shape, mask.shape)
        self.assertEqual(list(mask.sum(axis=1)), [len(split.sequence(row)) for row in range(3, 8)])
        self.assertTrue((ids[mask] > 0).all() and (ids[~mask] == 0).all())
        self.assertEqual(list(ids[0][mask[0]] - 1), list(split.sequence(3)))
        self.assertEqual(list(labels), list(split.labels[3:8]))
        self.assertEqual(split.padded(3, 8, length=4)[0].shape, (5, 4))

    def test_pairs_have_two_sequences(self):
        split = lra.dataset("retrieval:synthetic", "val", recipe="smoke", data=self.data)
        first, second, label = split[0]
        self.assertGreater(len(first), 0)
        self.assertNotEqual(bytes(first), bytes(second))
        self.assertIn(label, (0, 1))

    def test_curves_and_weights_are_those_of_the_run(self):
        curves = lra.curves(self.folder)
        self.assertEqual(list(curves["train"]["step"]), [1, 2, 3, 4, 5, 6])
        self.assertEqual((curves["train"]["step"].dtype.kind, curves["train"]["loss"].dtype.kind), ("i", "f"))
        self.assertEqual(curves["train"]["loss"][-1], self.record["scores"]["train_loss"])
        weights = lra.weights(self.folder)
        self.assertEqual(sum(array.size for array in weights.values()), self.record["model"]["parameters"])

    def test_numbers_of_groups_are_curves(self):
        place = Path(self.place.name) / "groups"
        place.mkdir()
        first = {"event": "validation", "step": 1, "dense": {"accuracy": 0.5, "of": {"halves": 2}}}
        text = "".join(json.dumps(line) + "\n" for line in [first, {"event": "validation", "step": 2}])
        # The last line of a run at work may be cut.
        (place / "metrics.jsonl").write_text(text + '{"event": "valid', encoding="utf-8")
        curves = lra.curves(place)["validation"]
        self.assertEqual(sorted(curves), ["dense/accuracy", "dense/of/halves", "step"])
        self.assertEqual(curves["dense/accuracy"][0], 0.5)
        self.assertNotEqual(curves["dense/accuracy"][1], curves["dense/accuracy"][1])

    @unittest.skipUnless(has("pandas"), "needs pandas")
    def test_runs_are_rows(self):
        table = lra.runs(self.out)
        self.assertIn("model_source", table.columns)
        nothing = Path(self.place.name) / "nothing"
        nothing.mkdir()
        self.assertEqual(list(lra.runs(nothing).columns), list(table.columns))
        with self.assertRaises(FileNotFoundError):
            lra.runs(self.out / "nowhere")
        with self.assertRaises(NotADirectoryError):
            lra.runs(self.folder / "record.json")
        [row] = table[table["id"] == self.record["id"]].to_dict("records")
        of = self.record
        alike = {"scores": ["test_accuracy", "test_loss", "val_accuracy", "bits_gained", "steps"]}
        alike |= {"task": ["source", "protocol"], "model": ["variant", "parameters"]}
        expected = {name: of[group][name] for group, names in alike.items() for name in names}
        names = ["id", "seed", "precision", "device", "threads", "created"]
        expected |= {name: of[name] for name in names}
        expected |= {"status": "scored", "task": "toy", "model": "linear", "recipe": "smoke"}
        expected |= {"steps_per_second": of["speed"]["steps_per_second"]["median"]}
        expected |= {"wall_seconds": of["speed"]["wall_seconds"]}
        expected |= {"peak_bytes": of["memory"]["peak_bytes"], "processor": of["host"]["cpu"]}
        expected |= {"set": "train.steps=6", "folder": str(self.folder)}
        del row["model_source"]
        self.assertEqual(row, expected)

    @unittest.skipUnless(has("torch"), "needs PyTorch")
    def test_examples_for_pytorch(self):
        import torch

        split = lra.dataset("listops", "val", recipe="smoke", data=self.data)
        loader = torch.utils.data.DataLoader(split.torch(), batch_size=4)
        ids, labels = next(iter(loader))
        self.assertEqual(tuple(ids.shape), (4, split.max_length))
        self.assertEqual(labels.tolist(), [int(label) for label in split.labels[:4]])
        self.assertEqual(sum(len(batch[1]) for batch in loader), len(split))
        # Workers of a DataLoader get the data set this way where processes are not forked.
        sent = pickle.dumps(split.torch(length=7))
        self.assertLess(len(sent), 10_000)
        self.assertEqual(pickle.loads(sent)[3][0].tolist(), split.padded(3, 4, 7)[0][0].tolist())


def write(path, **values):
    """Writes a safetensors file of arrays, each given with the name of its type there."""
    header, data = {"__metadata__": {"of": "a test"}}, b""
    for name, (kind, array) in values.items():
        span = [len(data), len(data) + array.nbytes]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": span}
        data += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


class Files(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)

    def test_a_file_of_another_kind_is_refused(self):
        path = self.place / "other.safetensors"
        path.write_bytes(b"\xff" * 20)
        with self.assertRaises(ValueError):
            arrays(path)
        with self.assertRaisesRegex(ValueError, "x.*F8_E4M3"):
            arrays(write(path, x=("F8_E4M3", np.zeros(3, "u1"))))

    def test_numbers_of_all_types_are_read(self):
        kinds = {"BOOL": "?", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
        for bits in (8, 16, 32, 64):
            kinds |= {f"U{bits}": f"<u{bits // 8}", f"I{bits}": f"<i{bits // 8}"}
        # -2 has ones in all bits but the last: with another sign or width it is another number.
        written = {kind: np.array([[-2], [1]]).astype(kinds[kind]) for kind in kinds}
        one = {kind: (kind, array) for kind, array in written.items()}
        found = arrays(write(self.place / "all.safetensors", **one))
        self.assertEqual(found.keys(), kinds.keys())
        for kind, array in written.items():
            self.assertEqual((found[kind].dtype, found[kind].shape), (array.dtype, (2, 1)), kind)
            self.assertEqual(found[kind].tolist(), array.tolist(), kind)

    def test_numbers_in_bfloat16_become_float32(self):
        bits = np.array([0x3F80, 0xC000], "<u2")
        found = arrays(write(self.place / "bf16.safetensors", x=("BF16", bits)))["x"]
        self.assertEqual((found.tolist(), found.dtype), ([1.0, -2.0], np.float32))

    def split(self):
        """Returns three pairs, of sequences of 2, 0 and 3 bytes and of 1 byte each."""
        columns = {
            "tokens": ("U8", np.array([0, 255, 7, 8, 9], "u1")),
            "offsets": ("U64", np.array([0, 2, 2, 5], "<u8")),
            "tokens.2": ("U8", np.array([254, 255, 4], "u1")),
            "offsets.2": ("U64", np.array([0, 1, 2, 3], "<u8")),
            "labels": ("U8", np.array([1, 0, 2], "u1")),
            "targets": ("U8", np.array([255, 3, 255, 255, 0], "u1")),
        }
        path = write(self.place / "train.safetensors", **columns)
        return lra.Split(path, {"max_length": 3, "task": "pairs", "source": "a test"})

    def test_batches_have_ids_from_1_of_all_bytes_and_of_both_sequences(self):
        split = self.split()
        ids, mask, labels = split.padded()
        self.assertEqual(ids.tolist(), [[1, 256, 0], [0, 0, 0], [8, 9, 10]])
        self.assertEqual(mask.tolist(), [[True, True, False], [False] * 3, [True] * 3])
        self.assertEqual(labels.tolist(), [1, 0, 2])
        self.assertEqual((ids.dtype, mask.dtype, labels.dtype), (np.int64, np.bool_, np.int64))
        self.assertEqual(split.padded(1, tower=1)[0].tolist(), [[256], [5]])
        self.assertEqual(split.padded(-1, length=2)[0].tolist(), [[8, 9]])
        ids, mask, labels = split.padded(0, 0)
        self.assertEqual((ids.shape, mask.shape, labels.shape), ((0, 0), (0, 0), (0,)))

    def test_a_split_is_a_sequence_without_slices(self):
        split = self.split()
        whole = [([0, 255], [254], 1), ([], [255], 0), ([7, 8, 9], [4], 2)]
        plain = [(first.tolist(), second.tolist(), label) for first, second, label in split]
        self.assertEqual(plain, whole)
        self.assertEqual(split.targets.tolist(), [255, 3, 255, 255, 0])
        self.assertIn("pairs (a test): 3 examples of up to 3", repr(split))
        with self.assertRaisesRegex(TypeError, "padded"):
            split[0:2]
        # A place before the first would have the bytes of several examples.
        for index in (-1, 3):
            with self.assertRaises(IndexError):
                split.sequence(index)

    def test_a_split_that_is_sent_to_another_process_maps_the_file_there(self):
        sent = pickle.loads(pickle.dumps(self.split()))
        self.assertIsInstance(sent.sequence(2).base, np.memmap)
        self.assertEqual((sent.sequence(2).tolist(), sent.max_length), ([7, 8, 9], 3))

    @unittest.skipUnless(has("torch"), "needs PyTorch")
    def test_examples_for_pytorch_have_both_sequences_of_a_pair(self):
        examples = self.split().torch()
        first, second, label = examples[-1]
        self.assertEqual((first.tolist(), second.tolist(), label), ([8, 9, 10], [5, 0, 0], 2))
        with self.assertRaises(IndexError):
            examples[3]


@unittest.skipUnless(os.name == "posix", "needs a shell")
class Started(unittest.TestCase):
    """How the program is started: a script stands for it."""

    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        patch = unittest.mock.patch.dict(os.environ)
        patch.start()
        self.addCleanup(patch.stop)

    def stand_in(self, script):
        program = self.place / "program"
        program.write_text("#!/bin/sh\n" + script, encoding="utf-8")
        program.chmod(0o755)
        os.environ["LRA_PROGRAM"] = str(program)

    def words(self):
        """Lets the program print its words, as JSON."""
        code = "import json, sys; print(json.dumps(sys.argv[1:]))"
        self.stand_in(f'exec {shlex.quote(sys.executable)} -c {shlex.quote(code)} "$@"\n')

    def child(self, code):
        """Starts a Python process that has imported the package."""
        path = os.pathsep.join([str(Path(lra.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-c", f"import lra\n{code}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        child = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, cwd=self.place, **pipes)
        self.addCleanup(child.communicate)
        self.addCleanup(child.kill)
        return child

    def until(self, name):
        """Waits for a file."""
        for _ in range(1200):
            if (self.place / name).exists():
                return
            time.sleep(0.05)
        self.fail(f"{name} has not been written")

    def interruptible(self, script):
        """Starts a process that waits for the program, which runs a script at each interrupt."""
        # In the first second the process gets to where it waits.
        lines = [f"trap {shlex.quote(script)} INT", "sleep 1", "touch begun"]
        self.stand_in("\n".join([*lines, "while [ ! -e stop ]; do echo >> beats; sleep 0.05; done", ""]))
        child = self.child("lra.command('run')")
        # A program that a fault leaves behind ends by itself.
        self.addCleanup(time.sleep, 0.2)
        self.addCleanup((self.place / "stop").touch)
        self.until("begun")
        return child

    def test_all_arguments_of_train_reach_the_program(self):
        self.words()
        told = lra.train("toy", "linear")
        self.assertEqual(told, "run --task toy --model linear --seed 0 --out runs --json --quiet".split())
        told = lra.train(
            "toy",
            "linear",
            recipe="smoke",
            seed=3,
            steps=0,
            set={"train.batch": 2, "data.dense": True},
            out=Path("my runs"),
            data=Path("my data"),
            options=["--force"],
            quiet=False,
        )
        expected = "run --task toy --model linear --seed 3 --out".split() + ["my runs", "--json"]
        expected += "--recipe smoke --steps 0 --data".split() + ["my data", "--set", "train.batch=2"]
        self.assertEqual(told, [*expected, "--set", "data.dense=true", "--force"])

    def test_all_arguments_of_dataset_reach_the_program(self):
        expected = "data make toy --json --recipe smoke --data".split() + ["my data", "--set"]
        with unittest.mock.patch("lra.data.call", return_value={"manifest": {"splits": {"val": {}}}}) as call:
            with self.assertRaisesRegex(ValueError, "train; there are val"):
                lra.dataset("toy", recipe="smoke", set={"data.train": 9}, data="my data", options=("--offline",))
        self.assertEqual(call.call_args.args[0], [*expected, "data.train=9", "--offline"])

    def test_variables_are_added_to_those_of_this_process(self):
        self.stand_in('echo "$ONE, $OTHER"\n')
        os.environ.update(ONE="here", OTHER="here")
        self.assertEqual(lra.command(environment={"OTHER": "given"}), "here, given\n")

    def test_a_failure_has_what_the_program_told(self):
        for script, message, output in [
            ("echo table; echo wrong >&2; exit 3", "wrong", "table\n"),
            ("echo table; exit 3", "table", "table\n"),
            ("exit 3", "exit code 3", ""),
            (r"printf '\377 wrong' >&2; exit 3", "\ufffd wrong", ""),
        ]:
            self.stand_in(script)
            with self.assertRaises(lra.LraError) as caught:
                lra.command("run")
            error = caught.exception
            self.assertEqual((error.code, str(error), error.output), (3, message, output))

    def test_progress_is_shown_where_it_is_asked_for(self):
        self.stand_in("echo progress >&2; echo table; exit $1\n")
        code = "print(lra.command('0', quiet={0}))\ntry: lra.command('4', quiet={0})\n"
        code += "except lra.LraError as error: print(error.code, error, error.output)"
        printed, told = self.child(code.format(False)).communicate(timeout=60)
        self.assertEqual(printed, "table\n\n4 see the messages above table\n\n")
        self.assertEqual(told, "progress\nprogress\n")
        printed, told = self.child(code.format(True)).communicate(timeout=60)
        self.assertEqual((printed, told), ("table\n\n4 progress table\n\n", ""))

    def test_an_interrupt_waits_until_the_program_has_ended(self):
        child = self.interruptible("sleep 1; touch saved; exit 130")
        child.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", child.communicate(timeout=60)[1])
        self.assertTrue((self.place / "saved").exists())

    def test_a_second_interrupt_ends_the_program_at_once(self):
        child = self.interruptible("touch told")
        child.send_signal(signal.SIGINT)
        self.until("told")
        child.send_signal(signal.SIGINT)
        self.assertIn("KeyboardInterrupt", child.communicate(timeout=60)[1])
        beats = (self.place / "beats").stat().st_size
        time.sleep(0.5)
        self.assertEqual((self.place / "beats").stat().st_size, beats)

    def test_the_program_is_named_or_beside_python_or_on_the_path(self):
        self.stand_in("")
        named = os.environ["LRA_PROGRAM"]
        self.assertEqual(lra.program(), named)
        del os.environ["LRA_PROGRAM"]
        beside, path = self.place / "beside", self.place / "path"
        os.environ["PATH"] = str(path)
        with unittest.mock.patch("lra.program.sysconfig.get_path", lambda _: str(beside)):
            with self.assertRaises(FileNotFoundError):
                lra.program()
            for folder in path, beside:
                folder.mkdir()
                (folder / "lra").write_text("")
                (folder / "lra").chmod(0o755)
                self.assertEqual(lra.program(), str(folder / "lra"))

    def test_a_mixer_that_trains_itself_while_it_is_imported_is_refused(self):
        self.words()
        os.environ["LRA_MIXER_PROCESS"] = "1"
        with self.assertRaisesRegex(RuntimeError, "__main__"):
            lra.train("toy", "linear")


if __name__ == "__main__":
    if not os.environ.get("LRA_PROGRAM"):
        sys.exit("LRA_PROGRAM is not set: name the program to test with")
    # A shell starts what runs in the background with this signal ignored, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
