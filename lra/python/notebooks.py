"""Executes the notebooks of docs/notebooks, or those named, and stores their outputs: `make notebooks`.

It needs nbclient, ipykernel, matplotlib, pandas and PyTorch. LRA_PROGRAM names the program.
"""

import os
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
NOTEBOOKS = HERE.parents[1] / "docs" / "notebooks"


def execute(path: Path) -> None:
    """Runs a notebook in an empty folder, with empty data, and writes it back without times and versions."""
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["LRA_DATA"] = str(Path(folder, "data"))
        place = Path(folder, "work")
        place.mkdir()
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(place)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    nbformat.write(notebook, path)


if __name__ == "__main__":
    if not os.environ.get("LRA_PROGRAM"):
        sys.exit("LRA_PROGRAM is not set: name the program")
    os.environ["PYTHONPATH"] = str(HERE)
    for each in map(Path, sys.argv[1:] or sorted(NOTEBOOKS.glob("*.ipynb"))):
        execute(each)
