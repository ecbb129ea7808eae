"""Makes the pictures of README.md: the output of two commands in a terminal, and the badges.

    python3 docs/pictures.py target/release/lra

Needs Linux or macOS and Python 3.9. The commands run in a folder of their own, or in that of `--place`, where a run that is
finished is not trained again. The output is the program's, in the colours that it has in a terminal. `[...]` stands for
lines that are left out. The badges say what Cargo.toml says.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import struct
import subprocess
import tempfile
import termios
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
COLUMNS = 92
# Each command, and the lines of its output that are left out: those that begin with one of these words.
COMMANDS = [
    (
        "lra run --task listops --model performer",
        ("speed", "memory", "published", "recipe", "data", "model", "run", "code", "folder", "tables"),
    ),
    ("lra report runs --table accuracy", ()),
]
TITLE = "Output of lra run and lra report in a terminal"
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
# Colours in light and in dark pages, by class. The numbers are those of terminals.
COLOURS = {
    "paper": ("#ffffff", "#16191d"),
    "frame": ("#dadde1", "#343a41"),
    "ink": ("#1d2126", "#e6e8eb"),
    "faint": ("#5b636d", "#9aa3ad"),
    "prompt": ("#0b62b0", "#6db8f7"),
    "c31": ("#b3261e", "#ff8d85"),
    "c32": ("#00805c", "#2ccb9b"),
    "c33": ("#8f6900", "#e2b93b"),
    "c36": ("#0b62b0", "#6db8f7"),
}
WIDTH, HEIGHT, MARGIN = 7.8, 18, 16


def output(program: Path, words: list[str], place: Path) -> str:
    """Returns what a command prints, to a terminal of COLUMNS columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    variables = {**os.environ, "TERM": "xterm-256color", "LRA_DATA": str(place / "data")}
    for name in ("COLUMNS", "NO_COLOR"):
        variables.pop(name, None)
    # Progress and remarks go to the standard error, which is shown while this script runs.
    with subprocess.Popen([program, *words], stdout=theirs, cwd=place, env=variables) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 1 << 16):
                text += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
    if process.returncode:
        raise SystemExit(f"lra {' '.join(words)} ended with exit code {process.returncode}")
    return text.decode().replace("\r\n", "\n")


def shortened(text: str, left_out: tuple[str, ...]) -> list[str]:
    """Returns the lines of an output, with `[...]` for entries whose first word is in `left_out`."""
    lines: list[str] = []
    leaving = False
    for line in text.rstrip("\n").split("\n"):
        entry = re.match(r"  (\w+)", line)
        if entry or not line.startswith("   "):  # otherwise the line goes on with the entry above
            leaving = bool(entry) and entry[1] in left_out
        if not leaving:
            lines.append(line)
        elif lines[-1] != "  [...]":
            lines.append("  [...]")
    return lines


def painted(line: str) -> tuple[str, int]:
    """Returns a line as SVG, and its length in characters. Escape sequences of colours become classes."""
    parts, length, classes = [], 0, []
    for text, codes in re.findall(r"([^\x1b]*)(?:\x1b\[([\d;]*)m)?", line):
        if text:
            length += len(text)
            known = " ".join(classes)
            parts.append(f'<tspan class="{known}">{escape(text)}</tspan>' if known else escape(text))
        for code in codes.split(";") if codes else []:
            names = {"1": "bold", "2": "faint"}
            name = names.get(code, f"c{code}")
            if code == "0":
                classes = []
            elif name in COLOURS or name == "bold":
                classes.append(name)
            else:
                raise SystemExit(f"the picture has no colour for the escape sequence {code}")
    return "".join(parts), length


def terminal(program: Path, place: Path) -> str:
    """Returns the picture of a terminal."""
    rows = []
    for command, left_out in COMMANDS:
        rows += [""] if rows else []
        rows += ["$ " + command, *shortened(output(program, command.split()[1:], place), left_out)]
    width, height = round(COLUMNS * WIDTH + 2 * MARGIN), len(rows) * HEIGHT + 2 * MARGIN
    light, dark = (
        " ".join(f".{name} {{ fill: {colours[of]} }}" for name, colours in COLOURS.items()) for of in (0, 1)
    )
    svg = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">',
        f"<title>{TITLE}</title>",
        "<style>",
        f"text {{ font-family: {FONT}; font-size: 13px; white-space: pre }}",
        f".bold {{ font-weight: bold }} {light}",
        f"@media screen and (prefers-color-scheme: dark) {{ {dark} }}",
        "</style>",
        f'<rect class="frame" width="{width}" height="{height}" rx="8"/>',
        f'<rect class="paper" x="1" y="1" width="{width - 2}" height="{height - 2}" rx="7"/>',
    ]
    for number, row in enumerate(rows):
        indent = len(row) - len(row.lstrip(" "))
        text, length = painted(row[indent:])
        if row.startswith("$ "):
            text = f'<tspan class="prompt">$</tspan> <tspan class="bold">{escape(row[2:])}</tspan>'
        if length:
            x, y = MARGIN + indent * WIDTH, MARGIN + number * HEIGHT + 13
            # With a length, columns stay below each other in whatever font there is.
            where = f'x="{x:.1f}" y="{y}" textLength="{length * WIDTH:.1f}"'
            svg.append(f'<text class="ink" xml:space="preserve" {where}>{text}</text>')
    return "\n".join([*svg, "</svg>", ""])


def badge(label: str, value: str) -> str:
    """Returns a badge."""
    widths = [round(6.6 * len(text) + 12) for text in (label, value)]
    width = sum(widths)
    texts = [
        f'<text x="{middle}" y="14" textLength="{room - 12}">{escape(text)}</text>'
        for text, middle, room in (
            (label, widths[0] / 2, widths[0]),
            (value, widths[0] + widths[1] / 2, widths[1]),
        )
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" viewBox="0 0 {width} 20" role="img">',
            f"<title>{escape(label)}: {escape(value)}</title>",
            f'<rect width="{width}" height="20" rx="3" fill="#0b62b0"/>',
            f'<path d="M3 0H{widths[0]}V20H3A3 3 0 0 1 0 17V3A3 3 0 0 1 3 0Z" fill="#3f464e"/>',
            '<g fill="#ffffff" font-family="Verdana, \'DejaVu Sans\', sans-serif" font-size="11" text-anchor="middle">',
            *texts,
            "</g>",
            "</svg>",
            "",
        ]
    )


def main() -> None:
    """Writes the pictures beside this file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("--place", type=Path, help="folder in which the commands run")
    arguments = parser.parse_args()
    manifest = (DOCS.parent / "Cargo.toml").read_text(encoding="utf-8")

    def said(key: str) -> str:
        return re.search(rf'^{key} = "(.*)"$', manifest, re.MULTILINE)[1]

    with tempfile.TemporaryDirectory() as folder:
        picture = terminal(arguments.program.resolve(), arguments.place or Path(folder))
    for name, text in [
        ("terminal", picture),
        ("badge-licence", badge("licence", said("license"))),
        ("badge-rust", badge("Rust", f"{said('rust-version')} or newer")),
    ]:
        (DOCS / f"{name}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
