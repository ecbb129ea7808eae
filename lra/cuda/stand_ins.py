#!/usr/bin/env python3
"""Makes a CUDA program start on machines without CUDA.

candle links the CUDA libraries at build time, so that a program would neither link without them nor start without a
driver. This writes a static library in place of each: every function jumps through a table that is filled when the program
starts, with the real function where the real library is found, else with one that returns an error.

usage: stand_ins.py SOURCE_OF_CUDARC FOLDER
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# Library: where cudarc declares it, how its functions begin, where the real one may be, and the status that means
# "not there" in its own terms (CUDA_ERROR_NO_DEVICE, ..._NOT_INITIALIZED and the like).
LIBRARIES = {
    "cuda": ("driver", "cu", ["libcuda.so.1", "libcuda.so"], 100),
    "nvrtc": ("nvrtc", "nvrtc", ["libnvrtc.so.13", "libnvrtc.so"], 11),
    "curand": ("curand", "curand", ["libcurand.so.10", "libcurand.so"], 203),
    "cublas": ("cublas", "cublas", ["libcublas.so.13", "libcublas.so"], 1),
    "cublasLt": ("cublaslt", "cublasLt", ["libcublasLt.so.13", "libcublasLt.so"], 1),
}

# These return text instead of a status.
TEXTS = {
    "nvrtcGetErrorString",
    "cublasGetStatusName",
    "cublasGetStatusString",
    "cublasLtGetStatusName",
    "cublasLtGetStatusString",
}


def functions(cudarc: pathlib.Path, folder: str, prefix: str) -> list[str]:
    """Names of the functions that cudarc declares for a library."""
    declared = (cudarc / "src" / folder / "sys" / "mod.rs").read_text()
    names = re.findall(r"\bfn (" + prefix + r"[A-Za-z0-9_]*)\s*\(", declared)
    return sorted(set(names) - {"culib"})


def source(library: str, names: list[str], places: list[str], status: int) -> str:
    """The stand-in as C. The jumps are assembly: they must pass on arguments that nobody here knows."""
    table = f"lra_table_{library}"
    jumps = "\n".join(
        rf'".globl {name}\n.type {name},@function\n{name}: jmp *{table}+{8 * index}(%rip)\n"'
        for index, name in enumerate(names)
    )
    entries = ",\n".join(f'{{"{name}", {int(name in TEXTS)}}}' for name in names)
    tried = ", ".join(f'"{place}"' for place in places)
    return f"""
#include <dlfcn.h>
#include <stddef.h>

__attribute__((visibility("hidden"))) void *{table}[{len(names)}];
__asm__(".text\\n"
{jumps});

static const struct {{ const char *name; int text; }} entries[] = {{
{entries}
}};
static long no_status(void) {{ return {status}; }}
static const char *no_text(void) {{ return "lib{library} is not installed, or lacks this function"; }}

__attribute__((constructor)) static void fill(void) {{
    static const char *const places[] = {{ {tried} }};
    void *library = NULL;
    for (size_t i = 0; i < sizeof places / sizeof *places && !library; i++)
        library = dlopen(places[i], RTLD_LAZY | RTLD_GLOBAL);
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {{
        void *found = library ? dlsym(library, entries[i].name) : NULL;
        {table}[i] = found ? found : entries[i].text ? (void *)no_text : (void *)no_status;
    }}
}}
"""


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    cudarc, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for library, (place, prefix, places, status) in LIBRARIES.items():
        names = functions(cudarc, place, prefix)
        if not names:
            sys.exit(f"{cudarc} declares no function of {library}: has its layout changed?")
        with tempfile.TemporaryDirectory() as scratch:
            code = pathlib.Path(scratch) / f"{library}.c"
            built = code.with_suffix(".o")
            code.write_text(source(library, names, places, status))
            subprocess.run(["cc", "-O1", "-fPIC", "-fcf-protection=none", "-c", "-o", built, code], check=True)
            archive = folder / f"lib{library}.a"
            archive.unlink(missing_ok=True)
            subprocess.run(["ar", "rcs", archive, built], check=True)
        print(f"{library}: {len(names)} functions")


if __name__ == "__main__":
    main()
