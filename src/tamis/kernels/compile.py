"""`python -m tamis.kernels.compile`: fill the kernel cache, in a process of its own, before any memory cap is set.

Compilation takes a few hundred MB and aborts the process when memory runs out, so it never happens in a worker. Several
processes may run this at once: numba writes each entry to a temporary file and renames it.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import time

import tamis.kernels
from tamis.kernels.cache import cache_dir, mark_ready


def import_all() -> list[str]:
    """Import every module of this package, which compiles (or loads) every kernel."""
    names = [f"tamis.kernels.{module.name}" for module in pkgutil.iter_modules(tamis.kernels.__path__)]
    names = [name for name in names if name != __name__ and not name.endswith(".compile")]
    for name in names:
        importlib.import_module(name)
    return names


def main() -> int:
    began_s = time.perf_counter()
    n_modules = len(import_all())
    from tamis.kernels._jit import uncached

    took_s = time.perf_counter() - began_s
    folder = cache_dir()
    if folder is None or uncached:
        print(
            f"kernels: {n_modules} modules compiled in {took_s:.1f} s but not kept: no private, writable cache folder "
            "with space left; set TAMIS_CACHE_DIR to a folder of your own",
            file=sys.stderr,
        )
        return 1
    mark_ready(folder)
    print(f"kernels: {n_modules} modules ready in {took_s:.1f} s in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
