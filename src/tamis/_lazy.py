"""Lazy imports: numpy, Arrow, pandas and torch (`from tamis._lazy import np, pa, pc`), and names of packages.

Processes that only plan import the modules of stages, too, and must stay small (tests/test_layout.py). Type checkers
see the libraries themselves; at run time each name is a proxy that loads its library on first attribute access.
Annotate fields of a dataclass with names imported for type checkers alone (`from torch import Tensor`): from Python
3.15 on `dataclass` looks up `torch.Tensor`, which would load the library.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

__all__ = ["F", "lazy_attributes", "np", "pa", "pc", "pd", "pq", "torch"]

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import torch
    import torch.nn.functional as F  # noqa: N812 - the name that torch users know
else:

    class _LazyModule:
        __slots__ = ("__dict__", "_module")

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):  # keep introspection (doctest, pytest) from triggering imports
                raise AttributeError(name)
            module = importlib.import_module(self._module)
            self.__dict__ = vars(module)  # later lookups go straight to the library
            return getattr(module, name)

    np, pd, torch, F = map(_LazyModule, ("numpy", "pandas", "torch", "torch.nn.functional"))
    pa, pc, pq = map(_LazyModule, ("pyarrow", "pyarrow.compute", "pyarrow.parquet"))


def lazy_attributes(package: str, names: Mapping[str, Iterable[str]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names, listed by module, are imported when they are first used."""
    module_of = {name: module for module, listed in names.items() for name in listed}

    def attribute(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(module_of[name]), name)

    return attribute
