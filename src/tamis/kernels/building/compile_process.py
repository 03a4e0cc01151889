"""How a process that compiles kernels is started. Imports nothing that compiles."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from tamis.kernels.loading import library
from tamis.kernels.loading.levels import CpuLevel

_MAIN = "import sys; sys.path.insert(0, sys.argv.pop(1)); from tamis.kernels.compile import main; sys.exit(main())"
SOURCE = str(library.HERE.parents[1])
KERNEL_S = 0.6  # of a CPU, for one kernel with its helpers: a first guess


def command(*arguments: str) -> list[str]:
    """Return the command line of a compiler process.

    The import path is passed as an argument: an isolated build does not preserve other paths.
    """
    return [sys.executable, "-P", "-c", _MAIN, SOURCE, *arguments]


def environment(level: CpuLevel, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a compiler process.

    numba reads the CPU from it, string hashes must not vary, and numpy's OpenBLAS must not allocate memory for every
    core
    (16 of them took all that such a process may have).
    """
    inherited = {name: value for name, value in environ.items() if not name.startswith("NUMBA_")}
    own = {
        "PYTHONHASHSEED": "0",
        "OPENBLAS_NUM_THREADS": "1",
        "NUMBA_CPU_NAME": level.cpu,
        "NUMBA_CPU_FEATURES": level.features,
    }
    return {**inherited, **own}


def n_kernels(module: str) -> int:
    """Count the kernels of a module without importing it."""
    path = library.HERE.joinpath(*module.split(".")[2:]).with_suffix(".py")
    return len(re.findall(r"^@kernel\(", path.read_text(encoding="utf-8"), re.MULTILINE))
