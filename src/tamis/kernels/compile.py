"""`python -m tamis.kernels.compile [GROUP ...]`: fill the kernel cache, in a process of its own, before any memory cap is set.

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


def import_all(group: str = "") -> list[str]:
    """Import every module of a group, which compiles (or loads) every kernel of it."""
    package = importlib.import_module(f"tamis.kernels.{group}") if group else tamis.kernels
    found = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    names = [f"{package.__name__}.{name}" for name in found if name != "compile"]
    for name in names:
        importlib.import_module(name)
    return names


def all_groups() -> list[str]:
    return ["", *(module.name for module in pkgutil.iter_modules(tamis.kernels.__path__) if module.ispkg)]


def main() -> int:
    began_s = time.perf_counter()
    groups = list(dict.fromkeys(["", *sys.argv[1:]])) if len(sys.argv) > 1 else all_groups()
    n_modules = sum(len(import_all(group)) for group in groups)
    from tamis.kernels._jit import uncached

    took_s = time.perf_counter() - began_s
    folders = [folder for group in groups if (folder := cache_dir(group)) is not None]
    if len(folders) < len(groups) or uncached:
        print(
            f"kernels: {n_modules} modules compiled in {took_s:.1f} s but not kept: no private, writable cache folder "
            "with space left; set TAMIS_CACHE_DIR to a folder of your own",
            file=sys.stderr,
        )
        return 1
    for folder in folders:
        mark_ready(folder)
    print(f"kernels: {n_modules} modules ready in {took_s:.1f} s in {folders[0].parent}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
