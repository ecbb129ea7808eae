"""Tests of the notebooks in docs/notebooks against the program named by LRA_PROGRAM: their code runs, and their outputs are stored."""

import contextlib
import importlib.util
import io
import json
import os
import re
import sys
import tempfile
import types
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import lra  # noqa: E402, F401  pylint: disable=unused-import

NOTEBOOKS = sorted((Path(__file__).parents[3] / "docs" / "notebooks").glob("*.ipynb"))
STEPS = "steps = 600\n"


def code(path):
    """Returns the cells with code of a notebook, each with its lines as one text."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return [{**cell, "source": "".join(cell["source"])} for cell in cells if cell["cell_type"] == "code"]


def runs_here(cell):
    """Returns whether the packages are installed that the tags of a cell name."""
    return all(importlib.util.find_spec(package) for package in cell["metadata"].get("tags", []))


def run(source, names, place):
    """Runs a cell in the namespace `names`, as Jupyter does; `%%writefile NAME` writes a file."""
    magic = re.match(r"%%writefile (\S+)\n", source)
    if magic:
        (place / magic.group(1)).write_text(source[magic.end() :], encoding="utf-8")
    else:
        exec(compile(source, "cell", "exec"), names)  # pylint: disable=exec-used


class Notebooks(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        variables = {"LRA_DATA": str(self.place / "data"), "MPLBACKEND": "Agg"}
        patch = unittest.mock.patch.dict(os.environ, variables)
        patch.start()
        self.addCleanup(patch.stop)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.place)
        sys.path.insert(0, str(self.place))
        self.addCleanup(sys.path.remove, str(self.place))
        self.addCleanup(sys.modules.pop, "my_mixer", None)

    def run_small(self, name):
        """Runs the cells of a notebook in order with 4 steps of training, and returns what they print."""
        [path] = [path for path in NOTEBOOKS if path.stem == name]
        cells = code(path)
        self.assertEqual(sum(STEPS in cell["source"] for cell in cells), 1)
        names, printed = {"__name__": "__main__"}, io.StringIO()
        with contextlib.redirect_stdout(printed):
            for cell in filter(runs_here, cells):
                try:
                    run(cell["source"].replace(STEPS, "steps = 4\n"), names, self.place)
                except Exception as error:
                    raise AssertionError(f"{path.name}: {error!r} in the cell\n{cell['source']}") from error
        return printed.getvalue()

    def test_the_first_look_runs(self):
        self.assertIn("majority", self.run_small("first-look"))

    def test_the_mixer_runs(self):
        printed = self.run_small("torch-mixer")
        self.assertIn("imported (my-cluster)", printed)
        self.assertEqual("through_a_pipe" in printed, importlib.util.find_spec("torch") is not None)

    def test_all_cells_were_run_and_have_their_outputs(self):
        self.assertEqual([path.stem for path in NOTEBOOKS], ["first-look", "torch-mixer"])
        for path in NOTEBOOKS:
            with self.subTest(path.name):
                text = path.read_text(encoding="utf-8")
                self.assertLess(len(text), 200_000)
                self.assertNotRegex(text, r"/(home|root|tmp|work|Users)/", "a path of the machine")
                cells = code(path)
                self.assertEqual([cell["execution_count"] for cell in cells], list(range(1, len(cells) + 1)))
                for cell in cells:
                    kinds = {output["output_type"] for output in cell["outputs"]}
                    self.assertNotIn("error", kinds)
                    if "print(" in cell["source"] and "def " not in cell["source"]:
                        self.assertIn("stream", kinds, cell["source"])
                    if "plt.subplots" in cell["source"]:
                        self.assertIn("display_data", kinds, cell["source"])
                    if cell["source"].startswith("table"):
                        self.assertIn("execute_result", kinds, cell["source"])

    def test_links_lead_to_files(self):
        for path in NOTEBOOKS:
            targets = re.findall(r"\]\(([^)#:]+\.(?:md|ipynb))", path.read_text(encoding="utf-8"))
            self.assertGreater(len(targets), 3)
            for target in targets:
                self.assertTrue((path.parent / target).exists(), f"{path.name}: {target}")


class Execution(unittest.TestCase):
    """notebooks.py, which stores the outputs: stubs stand for Jupyter."""

    def test_a_notebook_runs_in_an_empty_folder_and_is_stored_without_times(self):
        seen = types.SimpleNamespace(path=None, data=None, written=None)
        cell = types.SimpleNamespace(metadata={"tags": ["torch"]})
        notebook = types.SimpleNamespace(cells=[cell], metadata=types.SimpleNamespace(language_info={"version": "3"}))

        class Client:
            def __init__(self, of, timeout, resources):
                self.of, self.path = of, Path(resources["metadata"]["path"])

            def execute(self):
                seen.path, seen.data = list(self.path.iterdir()), Path(os.environ["LRA_DATA"])
                self.of.cells[0].metadata["execution"] = {"iopub.execute_input": "now"}
                self.of.cells[0].ran = True

        def written(of, path):
            seen.written = (of.cells[0].ran, of.cells[0].metadata, of.metadata.language_info, path)

        nbformat = types.SimpleNamespace(read=lambda path, as_version: notebook, write=written)
        stubs = {"nbformat": nbformat, "nbclient": types.SimpleNamespace(NotebookClient=Client)}
        with unittest.mock.patch.dict(sys.modules, stubs), unittest.mock.patch.dict(os.environ, {"LRA_DATA": "mine"}):
            import notebooks

            notebooks.execute(Path("a folder", "one.ipynb"))
        self.assertEqual(seen.path, [])
        self.assertNotEqual(seen.data, Path("mine"))
        self.assertFalse(seen.data.exists())
        expected = (True, {"tags": ["torch"]}, {"name": "python"}, Path("a folder", "one.ipynb"))
        self.assertEqual(seen.written, expected)


if __name__ == "__main__":
    if not os.environ.get("LRA_PROGRAM"):
        sys.exit("LRA_PROGRAM is not set: name the program to test with")
    unittest.main()
