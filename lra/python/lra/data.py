"""Data of the tasks as NumPy arrays, and as a data set for PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Mapping

import numpy as np

from .arrays import arrays
from .program import call, settings

if TYPE_CHECKING:  # needed by `Split.torch` alone
    from torch.utils.data import Dataset

Array = np.ndarray[Any, Any]


class Split:
    """One split of a task: sequences of bytes with a label each.

    `len(split)` is the number of examples. `split[i]` is a pair of the sequence and its label; of a
    task of pairs, such as retrieval, it is the two sequences and the label. All are views of the file.
    """

    def __init__(self, path: str | os.PathLike[str], manifest: Mapping[str, Any]) -> None:
        columns = arrays(path)
        self._path = os.path.abspath(path)
        #: What the program knows of the data: task, source, options, counts, checksums.
        self.manifest = dict(manifest)
        #: Largest length of a sequence.
        self.max_length: int = manifest["max_length"]
        #: The label of each example, from 0.
        self.labels: Array = columns["labels"]
        #: Labels of single positions where the task has them, 255 where a position has none.
        self.targets: Array | None = columns.get("targets")
        names = [("tokens", "offsets")] + [(f"tokens.{n}", f"offsets.{n}") for n in (2,) if f"tokens.{n}" in columns]
        self._towers = [(columns[tokens], columns[offsets]) for tokens, offsets in names]

    def __len__(self) -> int:
        return len(self.labels)

    def __reduce__(self) -> tuple[Any, ...]:
        # Another process maps the file; its bytes are not sent.
        return Split, (self._path, self.manifest)

    def sequence(self, index: int, tower: int = 0) -> Array:
        """Returns the bytes of a sequence; `tower` is 1 for the second one of a pair."""
        if not 0 <= index < len(self):
            raise IndexError(f"{index} is not below {len(self)}")
        tokens, offsets = self._towers[tower]
        return tokens[int(offsets[index]) : int(offsets[index + 1])]

    def __repr__(self) -> str:
        task, source = self.manifest.get("task"), self.manifest.get("source")
        return f"<Split of {task} ({source}): {len(self)} examples of up to {self.max_length} tokens>"

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        if isinstance(index, slice):
            raise TypeError("a split has no slices: split.padded(first, last) returns several examples as arrays")
        index = range(len(self))[index]
        sequences = (self.sequence(index, tower) for tower in range(len(self._towers)))
        return (*sequences, int(self.labels[index]))

    def padded(
        self, first: int = 0, last: int | None = None, length: int | None = None, tower: int = 0
    ) -> tuple[Array, Array, Array]:
        """Returns ids (n x L, int64), mask (n x L, bool) and labels (n, int64) of the examples first to last.

        An id is a byte plus 1; 0 is padding. L is `length`, which cuts longer sequences, or that of the
        longest sequence among these.
        """
        rows = range(len(self))[first:last]
        sequences = [self.sequence(row, tower) for row in rows]
        width = max(map(len, sequences), default=0) if length is None else length
        ids = np.zeros((len(sequences), width), np.int64)
        for row, sequence in zip(ids, sequences):
            cut = sequence[:width]
            row[: len(cut)] = cut.astype(np.int64) + 1
        return ids, ids > 0, self.labels[rows.start : rows.stop].astype(np.int64)

    def torch(self, length: int | None = None) -> Dataset[tuple[Any, ...]]:
        """Returns a `torch.utils.data.Dataset` of (ids, label), ids padded with 0 to `length`.

        Without a length, that of the task. An id is a byte plus 1. Of a task of pairs: (ids, ids, label).
        """
        import torch  # pylint: disable=import-outside-toplevel

        split, width = self, self.max_length if length is None else length

        class Examples(torch.utils.data.Dataset):
            """The examples of the split."""

            def __len__(self) -> int:
                return len(split)

            def __reduce__(self) -> tuple[Any, ...]:
                # Workers of a DataLoader are sent the data set; no other process knows this class.
                return Split.torch, (split, width)

            def __getitem__(self, index: int) -> tuple[Any, ...]:
                index = range(len(split))[index]
                towers = range(len(split._towers))
                ids = (split.padded(index, index + 1, width, tower)[0][0] for tower in towers)
                return (*map(torch.from_numpy, ids), int(split.labels[index]))

        return Examples()


def dataset(
    task: str,
    split: str = "train",
    *,
    recipe: str | None = None,
    set: Mapping[str, Any] | None = None,  # pylint: disable=redefined-builtin
    data: str | os.PathLike[str] | None = None,
    options: tuple[str, ...] = (),
) -> Split:
    """Returns a split (train, val or test) of a task, which the program makes if it is not there.

    `task` may name its source, as in "image:synthetic". `recipe` and `set` choose the data's settings, as
    for `lra data make`, whose further options are `options`. Without a recipe, it is the published task.

    Raises LraError if the data cannot be made, for example because published files are missing.
    """
    words = ["data", "make", task, "--json"]
    words += ["--recipe", recipe] if recipe else []
    words += ["--data", os.fspath(data)] if data else []
    made = call([*words, *settings(set or {}), *options])
    if split not in made["manifest"]["splits"]:
        raise ValueError(f"no split is called {split}; there are {', '.join(made['manifest']['splits'])}")
    return Split(Path(made["folder"]) / f"{split}.safetensors", made["manifest"])
