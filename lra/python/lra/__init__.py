"""Data, runs and weights of the Long Range Arena benchmark `lra`, from Python.

The program does the work: it makes data, trains, scores and writes tables. This package reads what it
leaves behind, and starts it. Arrays of data and weights are views of the files on disk.

>>> import lra
>>> record = lra.train("toy", "linear", recipe="smoke", steps=6)
>>> lra.runs("runs")[["task", "model", "test_accuracy"]]
>>> split = lra.dataset("listops", "train", recipe="mini")
>>> ids, mask, labels = split.padded(0, 32)
"""

from .data import Split, dataset
from .program import LraError, command, program, torch_mixer, train
from .results import curves, records, runs, weights

__all__ = [
    "LraError",
    "Split",
    "command",
    "curves",
    "dataset",
    "program",
    "records",
    "runs",
    "torch_mixer",
    "train",
    "weights",
]
