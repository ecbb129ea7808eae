"""Records, learning curves and weights of runs."""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator

import numpy as np

from .arrays import arrays

if TYPE_CHECKING:  # needed by `runs` alone
    import pandas


def records(folder: str | os.PathLike[str] = "runs") -> list[dict[str, Any]]:
    """Returns the records of all runs below a folder, each with its own folder as `folder`.

    docs/runs.md and docs/formats.md list the fields. A damaged record is left out, with a warning. Raises
    FileNotFoundError if there is no such folder, NotADirectoryError if it is a file.
    """
    if Path(folder).is_file():
        raise NotADirectoryError(f"{os.fspath(folder)} is a file; name a folder of runs (pandas.read_csv reads a file of records)")
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"there is no folder {os.fspath(folder)}")
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    for path in sorted(_files(folder, "record.json")):
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            warnings.warn(f"{path} left out: {error}", stacklevel=2)
            continue
        if not isinstance(record, dict) or not _REQUIRED <= record.keys():
            warnings.warn(f"{path} left out: it is no record of a run", stacklevel=2)
            continue
        # A copy of a record, such as in a backup of its folder, is no further run.
        text = json.dumps(record, sort_keys=True)
        if text in seen:
            warnings.warn(f"{path} left out: a copy of another record", stacklevel=2)
            continue
        seen.add(text)
        record["folder"] = str(path.parent)
        found.append(record)
    return found


# The fields of a record that have no default.
_REQUIRED = {"schema", "id", "outcome", "task", "model"}


def _files(folder: str | os.PathLike[str], name: str) -> Iterator[Path]:
    """Yields the files of a name below a folder, also behind links to folders, each folder once.

    Hidden folders are left out, and so are folders below one that has such a file.
    """
    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        real = os.path.realpath(place)
        if real in seen:
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [inner for inner in folders if not inner.startswith(".")]
        if name in files:
            folders.clear()
            yield Path(place) / name


def runs(folder: str | os.PathLike[str] = "runs") -> pandas.DataFrame:
    """Returns a pandas DataFrame with a row for each run below a folder.

    Accuracies are fractions, times seconds, memory bytes. What a run does not have is missing. Raises
    FileNotFoundError if there is no such folder.
    """
    import pandas  # pylint: disable=import-outside-toplevel,redefined-outer-name

    def row(record: dict[str, Any]) -> dict[str, Any]:
        scores, speed = record.get("scores") or {}, record.get("speed") or {}
        task, recipe = record["task"], record.get("recipe") or {}
        return {
            "id": record["id"],
            "status": record["outcome"]["status"],
            "task": task.get("label", ""),
            "source": task.get("source", ""),
            "protocol": task.get("protocol", ""),
            "model": record["model"]["name"],
            "variant": record["model"].get("variant"),
            "model_source": (record["model"].get("own") or {}).get("source"),
            "parameters": record["model"].get("parameters"),
            "recipe": recipe.get("name", ""),
            "set": " ".join(sorted(recipe.get("overrides", []))),
            "seed": record.get("seed", 0),
            "test_accuracy": scores.get("test_accuracy"),
            "test_loss": scores.get("test_loss"),
            "val_accuracy": scores.get("val_accuracy"),
            "bits_gained": scores.get("bits_gained"),
            "steps": scores.get("steps"),
            "steps_per_second": (speed.get("steps_per_second") or {}).get("median"),
            "wall_seconds": speed.get("wall_seconds"),
            "peak_bytes": (record.get("memory") or {}).get("peak_bytes"),
            "precision": record.get("precision"),
            "device": record.get("device"),
            "threads": record.get("threads"),
            "processor": (record.get("host") or {}).get("cpu"),
            "created": record.get("created"),
            "folder": record["folder"],
        }

    # Folders without runs give a frame with the same columns.
    columns = list(row(_EMPTY))
    return pandas.DataFrame([row(record) for record in records(folder)], columns=columns)


_EMPTY: dict[str, Any] = {
    "id": "",
    "outcome": {"status": ""},
    "task": {"label": "", "source": "", "protocol": ""},
    "model": {"name": ""},
    "recipe": {"name": ""},
    "seed": 0,
    "folder": "",
}


def curves(run: str | os.PathLike[str]) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
    """Returns the curves of a run, by event (`train`, `validation`): an array for each number, such as `step` and `loss`.

    Numbers of a group have its name before a slash, such as `dense/accuracy` and `aux/balance`. `run` is a
    folder of a run. A number that some lines lack is NaN there.
    """
    lines: dict[str, list[dict[str, Any]]] = {}
    with open(Path(run) / "metrics.jsonl", encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):  # the last line of a run at work may be cut
                event = json.loads(line)
                lines.setdefault(event.pop("event"), []).append(_flat(event))
    found = {}
    for event, events in lines.items():
        names = {name for one in events for name, value in one.items() if isinstance(value, (int, float))}
        found[event] = {name: _column([one.get(name, np.nan) for one in events]) for name in sorted(names)}
    return found


def _flat(event: dict[str, Any]) -> dict[str, Any]:
    """Returns the entries of an event, those of inner objects by `outer/inner`."""
    flat: dict[str, Any] = {}
    for name, value in event.items():
        if isinstance(value, dict):
            flat.update({f"{name}/{inner}": one for inner, one in _flat(value).items()})
        else:
            flat[name] = value
    return flat


def _column(values: list[float]) -> np.ndarray[Any, Any]:
    """Returns an array of integers if all values are, else of floats."""
    whole = all(isinstance(value, int) for value in values)
    return np.array(values, np.int64 if whole else np.float64)


def weights(run: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the weights of a run with the best validation score, by their paths, as views of the file.

    A run with `train.select = "last"` is scored with its last weights instead, which its checkpoint has.

    Raises FileNotFoundError if the run has no weights yet.
    """
    return arrays(Path(run) / "best.safetensors")
