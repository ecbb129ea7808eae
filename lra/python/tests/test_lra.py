"""Tests of the package against the program named by LRA_PROGRAM: `python -m unittest discover lra/python/tests`."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import lra  # noqa: E402
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
        self.assertEqual(found["id"], self.record["id"])

    def test_copies_and_what_is_no_record_are_left_out_and_defaults_filled_in(self):
        place = Path(self.place.name) / "copies"
        names = {"run": self.record, "backup": self.record, ".hidden": self.record, "empty": {}, "list": []}
        short = {key: self.record[key] for key in ("schema", "outcome", "model")}
        names["short"] = {**short, "id": "short", "task": {"name": "toy"}}
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

    @unittest.skipUnless(has("pandas"), "needs pandas")
    def test_numbers_of_groups_are_curves(self):
        place = Path(self.place.name) / "groups"
        place.mkdir()
        lines = [{"event": "validation", "step": 1, "dense": {"accuracy": 0.5}}, {"event": "validation", "step": 2}]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (place / "metrics.jsonl").write_text(text, encoding="utf-8")
        curves = lra.curves(place)["validation"]
        self.assertEqual(sorted(curves), ["dense/accuracy", "step"])
        self.assertEqual(curves["dense/accuracy"][0], 0.5)
        self.assertNotEqual(curves["dense/accuracy"][1], curves["dense/accuracy"][1])

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
        self.assertEqual(row["test_accuracy"], self.record["scores"]["test_accuracy"])

    @unittest.skipUnless(has("torch"), "needs PyTorch")
    def test_examples_for_pytorch(self):
        import torch

        split = lra.dataset("listops", "val", recipe="smoke", data=self.data)
        loader = torch.utils.data.DataLoader(split.torch(), batch_size=4)
        ids, labels = next(iter(loader))
        self.assertEqual(tuple(ids.shape), (4, split.max_length))
        self.assertEqual(labels.tolist(), [int(label) for label in split.labels[:4]])
        self.assertEqual(sum(len(batch[1]) for batch in loader), len(split))

    def test_a_file_of_another_kind_is_refused(self):
        path = Path(self.place.name) / "other.safetensors"
        path.write_bytes(b"\xff" * 20)
        from lra.arrays import arrays

        with self.assertRaises(ValueError):
            arrays(path)

    def test_numbers_in_bfloat16_become_float32(self):
        from lra.arrays import arrays

        header = json.dumps({"x": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}).encode()
        path = Path(self.place.name) / "bf16.safetensors"
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes([0x80, 0x3F, 0x00, 0xC0]))
        self.assertEqual(arrays(path)["x"].tolist(), [1.0, -2.0])


if __name__ == "__main__":
    if not os.environ.get("LRA_PROGRAM"):
        sys.exit("LRA_PROGRAM is not set: name the program to test with")
    unittest.main()
