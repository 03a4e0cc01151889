"""Kernels come in groups, one per folder: what a run needs is imported and loaded by group."""

from __future__ import annotations

import importlib
import pkgutil

import tamis.kernels

_NO_KERNELS = ("compile", "groups", "cache", "native", "_entries")


def import_all(group: str = "") -> list[str]:
    """Import every module of a group."""
    package = importlib.import_module(f"tamis.kernels.{group}") if group else tamis.kernels
    found = [module.name for module in pkgutil.iter_modules(package.__path__) if not module.ispkg]
    names = [f"{package.__name__}.{name}" for name in found if name not in _NO_KERNELS]
    for name in names:
        importlib.import_module(name)
    return names


def load_all(group: str = "") -> None:
    """Import and load every kernel of a group, so that processes forked later share them."""
    import_all(group)
    from tamis.kernels.native import load

    load(group)


def all_groups() -> list[str]:
    return ["", *(module.name for module in pkgutil.iter_modules(tamis.kernels.__path__) if module.ispkg)]
