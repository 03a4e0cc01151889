"""numpy, Arrow, pandas and torch, loaded when they are first used: `from tamis.later import np, pa, pc`.

Modules of stages are imported by processes that only plan, and these stay small (tests/test_layout.py holds them to it). Whoever reads the code and
checks its types sees the libraries themselves; at run time a name stands for its library, which the first attribute asked of it loads.
Fields of a dataclass are annotated with names imported for type checkers alone (`from torch import Tensor`): from Python 3.15 on `dataclass` looks up `torch.Tensor`, and would load it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__all__ = ["F", "np", "pa", "pc", "pd", "pq", "torch"]

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq
    import torch
    import torch.nn.functional as F
else:

    class _Later:
        __slots__ = ("__dict__", "_module")

        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):  # who looks at all names of a module (doctest) does not load anything by that
                raise AttributeError(name)
            module = importlib.import_module(self._module)
            self.__dict__ = vars(module)  # from now on asking this is asking the library
            return getattr(module, name)

    np, pd, torch, F = map(_Later, ("numpy", "pandas", "torch", "torch.nn.functional"))
    pa, pc, pq = map(_Later, ("pyarrow", "pyarrow.compute", "pyarrow.parquet"))
