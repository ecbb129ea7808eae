"""Case files in a form in which equal cases are equal bytes."""

import json
import pathlib

FOLDER = pathlib.Path(__file__).parent


def write(name, serialize, tensors, metadata):
    """`serialize` is safetensors' function for the kind of `tensors`, a dict by name; what is not a string of `metadata` becomes one."""
    path = FOLDER / f"{name}.safetensors"
    path.write_bytes(ordered(serialize(tensors, {key: str(value) for key, value in metadata.items()})))
    print(f"{path.name}: {path.stat().st_size} bytes")


def ordered(case):
    """The same file with its header's keys in order."""
    end = 8 + int.from_bytes(case[:8], "little")
    header = json.dumps(json.loads(case[8:end]), sort_keys=True, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + case[end:]
