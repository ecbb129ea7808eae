"""XCiT: XCA of timm, whose output map has a bias that is set to zero; local patch interaction from its equations, along one dimension.

timm wants packages for images, which are not used here. XCA knows no mask: each sequence is run on its real part.
"""

import importlib.abc
import importlib.machinery
import importlib.metadata
import sys
from types import ModuleType

import torch
from torch.nn.functional import conv1d, gelu, layer_norm

from case import lengths_mask, normal, projections, write


class Vision(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Stands in for torchvision and for timm's readers of images: anything can be imported from them, nothing called."""

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] == "torchvision" or name.startswith("timm.data"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = ModuleType(spec.name)
        module.__getattr__ = lambda name: None
        return module

    def exec_module(self, module):
        pass


sys.meta_path.insert(0, Vision())

from timm.models.xcit import XCA  # noqa: E402

SOURCE = f"timm {importlib.metadata.version('timm')}, XCA"


def interaction(params, x):
    def norm(name, x):
        return layer_norm(x, x.shape[-1:], params[f"local.{name}.scale"], params[f"local.{name}.shift"], eps=1e-6)

    def conv(name, x):
        weight = params[f"local.{name}.weight"]
        return conv1d(x.mT, weight[:, None], params[f"local.{name}.bias"], padding=weight.shape[1] // 2, groups=x.shape[2]).mT

    return conv("second", norm("between_norm", gelu(conv("first", norm("before_norm", x)))))


def xcit(dim, heads, local, lengths):
    def run(params, x):
        weights = {
            "qkv.weight": torch.cat([params[f"{name}.weight"] for name in ("query", "key", "value")]),
            "temperature": params["temperature"][:, None, None],
            "proj.weight": params["output.weight"],
            "proj.bias": torch.zeros(dim),
        }
        y = torch.func.functional_call(XCA(dim, heads), weights, (x,))
        return y + interaction(params, x + y) if local else y

    def forward(params, x):
        rows = [run(params, x[row : row + 1, :length]) for row, length in enumerate(lengths)]
        return torch.cat([torch.nn.functional.pad(y, (0, 0, 0, x.shape[1] - y.shape[1])) for y in rows])

    return forward


def parameters(seed, dim, heads, local):
    params = projections(seed, dim, dim) | {"temperature": 1 + normal(seed + 3, heads, scale=0.5)}
    if local:
        for place, name in enumerate(("first", "second")):
            params[f"local.{name}.weight"] = normal(seed + 4 + place, dim, local, scale=local**-0.5)
            params[f"local.{name}.bias"] = normal(seed + 10 + place, dim, scale=0.3)
        for place, name in enumerate(("before_norm", "between_norm")):
            params[f"local.{name}.scale"] = 1 + normal(seed + 12 + place, dim, scale=0.3)
            params[f"local.{name}.shift"] = normal(seed + 14 + place, dim, scale=0.3)
    # Shifted numbers are rounded again.
    return {path: value.float().double() for path, value in params.items()}


for index, (length, dim, heads, local, lengths) in enumerate(
        [(16, 12, 3, 0, [16, 16]), (37, 8, 2, 0, [37]), (11, 12, 4, 0, [11, 6, 2]), (19, 8, 2, 3, [19, 19]), (17, 6, 3, 5, [17, 8, 2])], 1):
    mask = None if min(lengths) == length else lengths_mask(lengths, length)
    source = f"{SOURCE}, and equations of the local interaction" if local else SOURCE
    write(f"xcit-{index}", mixer="xcit", heads=heads, source=source, options={"local": local}, params=parameters(20 * index, dim, heads, local),
          x=normal(index, len(lengths), length, dim), mask=mask, forward=xcit(dim, heads, local, lengths))
