"""Makes the Python files of pytorch-fast-transformers importable without its extension modules, which do not build on current PyTorch: import this first."""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType


class Compiled(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for fast_transformers' extension modules: anything can be imported from them, nothing called."""

    def find_spec(self, name, path, target=None):
        if name.startswith("fast_transformers.") and name.endswith(("_cpu", "_cuda")):
            return importlib.machinery.ModuleSpec(name, self)

    def create_module(self, spec):
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: None
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Compiled())
