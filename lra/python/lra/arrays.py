"""Arrays of a safetensors file, as views of the file."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

DTYPES = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


def arrays(path: str | os.PathLike[str]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the arrays of a file by name, without reading or copying their values.

    The file is mapped read-only. Values in bfloat16, which NumPy does not have, are copied as float32.

    Raises ValueError if it is not a safetensors file.
    """
    file = np.memmap(path, dtype=np.uint8, mode="r")
    size = int.from_bytes(bytes(file[:8]), "little")
    if file.size < 8 + size:
        raise ValueError(f"{os.fspath(path)} is not a safetensors file")
    header = json.loads(bytes(file[8 : 8 + size]))
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        values = file[8 + size + first : 8 + size + last]
        if entry["dtype"] == "BF16":
            values = (values.view("<u2").astype("<u4") << 16).view("<f4")
        elif entry["dtype"] in DTYPES:
            values = values.view(DTYPES[entry["dtype"]])
        else:
            raise ValueError(f"{name} has numbers of the unknown type {entry['dtype']}")
        found[name] = values.reshape(entry["shape"])
    return found
