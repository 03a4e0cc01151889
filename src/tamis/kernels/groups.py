"""Kernels come in groups, one per folder: what a run needs is imported and loaded by group."""

from __future__ import annotations

import importlib
import pkgutil

import tamis.kernels
from tamis.kernels.library import HERE

_ONLY_FOR_COMPILING = ("compile", "compile_process", "_emit", "_link", "first_use", "tables")


def module_names(group: str = "") -> list[str]:
    """The modules of a group."""
    folder = HERE / group if group else HERE
    found = [module.name for module in pkgutil.iter_modules([str(folder)]) if not module.ispkg]
    prefix = f"tamis.kernels.{group}." if group else "tamis.kernels."
    return [prefix + name for name in found if name not in _ONLY_FOR_COMPILING]


def import_all(group: str = "") -> list[str]:
    """Import every module of a group."""
    names = module_names(group)
    for name in names:
        importlib.import_module(name)
    return names


def all_groups() -> list[str]:
    return ["", *(module.name for module in pkgutil.iter_modules(tamis.kernels.__path__) if module.ispkg)]
