"""Tests of lra/cuda/stand_ins.py, whose libraries let a program for CUDA start without it. They need a C compiler, and no CUDA."""

import contextlib
import io
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "cuda"))

import stand_ins  # noqa: E402

# No library of CUDA has these functions.
DECLARED = {
    "driver": ["cuUnknown", "cuUnknownToo"],
    "nvrtc": ["nvrtcUnknown", "nvrtcGetErrorString"],
    "curand": ["curandUnknown", "curandAdd", "curandSubtract"],
    "cublas": ["cublasUnknown"],
    "cublaslt": ["cublasLtUnknown"],
}
PROGRAM = """
#include <stdio.h>
long cuUnknown(int), cuUnknownToo(int), nvrtcUnknown(void), curandUnknown(int);
long cublasUnknown(void), cublasLtUnknown(void);
double curandAdd(long, double, long), curandSubtract(long, double, long);
int main(void) {
    printf("%ld %ld %ld ", cuUnknown(1), cuUnknownToo(1), nvrtcUnknown());
    printf("%ld %ld %ld\\n", curandUnknown(1), cublasUnknown(), cublasLtUnknown());
#ifdef INSTALLED
    printf("%g %g\\n", curandAdd(1, 0.5, 2), curandSubtract(1, 0.5, 2));
#else
    extern const char *nvrtcGetErrorString(int);
    puts(nvrtcGetErrorString(1));
#endif
}
"""
INSTALLED = """
double curandAdd(long a, double b, long c) { return a + b + c; }
double curandSubtract(long a, double b, long c) { return a - b - c; }
"""
FITS = sys.platform == "linux" and platform.machine() == "x86_64" and shutil.which("cc") and shutil.which("ar")


@unittest.skipUnless(FITS, "needs Linux on x86-64 and a C compiler")
class StandIns(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = Path(place.name)
        for folder, names in DECLARED.items():
            lines = [f"        pub fn {name}(\n            a: ::core::ffi::c_int,\n        ) -> CUresult;" for name in names]
            self.declare(folder, [*lines, "    pub unsafe fn culib() -> &'static Lib {", "// fn of_others("])

    def declare(self, folder, lines):
        path = self.place / "cudarc" / "src" / folder / "sys" / "mod.rs"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def make(self):
        """Writes the libraries, and returns what is printed meanwhile."""
        words = ["stand_ins.py", str(self.place / "cudarc"), str(self.place / "lib")]
        with unittest.mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()) as printed:
            stand_ins.main()
        return printed.getvalue().splitlines()

    def run_program(self, *options):
        """Returns what the program prints that is linked with the libraries."""
        source, program = self.place / "program.c", self.place / "program"
        source.write_text(PROGRAM, encoding="ascii")
        libraries = [f"-l{name}" for name in stand_ins.LIBRARIES]
        command = ["cc", "-w", *options, "-o", program, source, f"-L{self.place / 'lib'}", *libraries, "-ldl"]
        subprocess.run(command, check=True)
        variables = {**os.environ, "LD_LIBRARY_PATH": str(self.place)}
        return subprocess.run([program], env=variables, capture_output=True, text=True, check=True).stdout.splitlines()

    def test_functions_that_are_not_there_return_the_status_of_their_library(self):
        counts = {"cuda": 2, "nvrtc": 2, "curand": 3, "cublas": 1, "cublasLt": 1}
        self.assertEqual(self.make(), [f"{name}: {count} functions" for name, count in counts.items()])
        numbers, text = self.run_program()
        self.assertEqual(numbers, "100 100 11 203 1 1")
        # A library that is installed has words of its own.
        self.assertRegex(text, "^libnvrtc is not installed, or lacks this function$|^NVRTC_ERROR_")

    def test_functions_that_are_there_get_all_their_arguments(self):
        self.make()
        source = self.place / "installed.c"
        source.write_text(INSTALLED, encoding="ascii")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.place / "libcurand.so.10", source], check=True)
        numbers, sums = self.run_program("-DINSTALLED")
        self.assertEqual((numbers, sums), ("100 100 11 203 1 1", "3.5 -1.5"))

    def test_another_layout_of_cudarc_is_told(self):
        self.declare("cublas", ["mod other;"])
        with self.assertRaisesRegex(SystemExit, "no function of cublas: has its layout changed"):
            self.make()


if __name__ == "__main__":
    unittest.main()
