"""The program: where it is, and how it is started."""

from __future__ import annotations

import inspect
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence, Union


class LraError(Exception):
    """The program ended with an error.

    `code` is its exit code (1: a check failed, 2: usage, 3: data or files, 4: the run failed), `output` what it
    printed until then, such as the table of a failed check.
    """

    def __init__(self, code: int, message: str, output: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.output = output


def program() -> str:
    """Returns the path of the program: `$LRA_PROGRAM`, else the one beside this Python, else the one on `PATH`.

    Raises FileNotFoundError if there is none.
    """
    named = os.environ.get("LRA_PROGRAM")
    if named:
        return named
    beside = Path(sysconfig.get_path("scripts")) / ("lra.exe" if sys.platform == "win32" else "lra")
    found = str(beside) if beside.exists() else shutil.which("lra")
    if not found:
        raise FileNotFoundError("the program `lra` is not installed; put it on PATH or name it in LRA_PROGRAM")
    return found


def settings(values: Mapping[str, Any]) -> list[str]:
    """Returns `--set` options for settings such as {"block.layers": 4} or {"block": {"layers": 4}}.

    Raises TypeError for None, which no setting can be.
    """
    words = []
    for key, value in values.items():
        if value is None:
            raise TypeError(f"{key} is None; leave it out to keep its default")
        if isinstance(value, Mapping):
            words += settings({f"{key}.{inner}": one for inner, one in value.items()})
        else:
            words += ["--set", f"{key}={value if isinstance(value, str) else json.dumps(value)}"]
    return words


def command(*words: str, quiet: bool = True, environment: Mapping[str, str] | None = None) -> str:
    """Runs the program with the words of a command, such as "report", "runs", and returns what it prints.

    Its progress and remarks are shown unless `quiet`. `environment` has variables in addition to those of
    this process.

    Raises LraError with the program's message.
    """
    errors = subprocess.PIPE if quiet else None
    variables = {**os.environ, **(environment or {})}
    with subprocess.Popen([program(), *words], stdout=subprocess.PIPE, stderr=errors, env=variables) as process:
        printed, told = _ended(process)
    if process.returncode != 0:
        message = told.decode(errors="replace").strip() if quiet else "see the messages above"
        output = printed.decode(errors="replace")
        raise LraError(process.returncode, message or output.strip() or f"exit code {process.returncode}", output)
    return printed.decode()


def _ended(process: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """Returns what a process printed to its end.

    After an interrupt it first waits until the program has saved its state; a second one ends the program at once.
    """
    try:
        return process.communicate()
    except KeyboardInterrupt:
        try:
            # The interrupt of a notebook reaches this process alone. Two that come together are one.
            if os.name == "posix":
                process.send_signal(signal.SIGINT)
            process.communicate()
        except BaseException:
            process.kill()
            raise
        raise


def call(words: Sequence[str], quiet: bool = True, environment: Mapping[str, str] | None = None) -> Any:
    """Runs a command that prints JSON and returns its value. See `command`."""
    return json.loads(command(*words, quiet=quiet, environment=environment))


def torch_mixer(factory: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Returns the name under which the program knows a mixer written in PyTorch, and the variables that tell it.

    `factory` is a function or a class at the top level of a Python file, which the program imports: what the
    file does besides definitions belongs under `if __name__ == "__main__":`. docs/python.md describes it.

    Raises ValueError for a function that cannot be imported from a file.
    """
    name = getattr(factory, "__qualname__", "")
    try:
        file = inspect.getsourcefile(factory)
    except TypeError:
        file = None
    if not name.isidentifier() or not file or not os.path.exists(file):
        raise ValueError(f"{factory!r} is not a function or class at the top level of a Python file")
    python = os.environ.get("LRA_PYTHON") or sys.executable
    variables = {"LRA_TORCH": f"{os.path.abspath(file)}:{name}", "LRA_PYTHON": python}
    return f"torch_{name.lower()}", variables


def train(
    task: str,
    model: Union[str, Callable[..., Any]],
    *,
    recipe: str | None = None,
    seed: int = 0,
    steps: int | None = None,
    set: Mapping[str, Any] | None = None,  # pylint: disable=redefined-builtin
    out: str | os.PathLike[str] = "runs",
    data: str | os.PathLike[str] | None = None,
    options: Sequence[str] = (),
    quiet: bool = True,
) -> dict[str, Any]:
    """Trains a model on a task and returns the record of the run (docs/runs.md lists its fields).

    `model` is the name of a model, or the factory of a mixer written in PyTorch (see `torch_mixer`).
    A finished run with the same settings is not trained again: its record is returned. `set` changes
    settings, as in {"train.learning_rate": 1e-3}; `options` are further options of `lra run`.

    Raises LraError if the program refuses or the run fails.
    """
    if os.environ.get("LRA_MIXER_PROCESS"):
        raise RuntimeError(
            "lra.train is called while the file of a mixer is imported to compute it, which would never end: "
            'put the call below `if __name__ == "__main__":`'
        )
    model, environment = (model, None) if isinstance(model, str) else torch_mixer(model)
    words = ["run", "--task", task, "--model", model, "--seed", str(seed), "--out", os.fspath(out), "--json"]
    words += ["--recipe", recipe] if recipe else []
    words += ["--steps", str(steps)] if steps is not None else []
    words += ["--data", os.fspath(data)] if data else []
    words += ["--quiet"] if quiet else []
    return call([*words, *settings(set or {}), *options], quiet, environment)
