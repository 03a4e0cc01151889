"""Kernels come in groups, one per folder (records/, text/, sketch/, pixels/, tokens/): what a run needs is imported and loaded by group."""

from __future__ import annotations

import importlib
import pkgutil

import tamis.kernels
from tamis.kernels.loading.library import HERE, RECORDS

_NO_KERNELS = ("building", "language", "loading")


def module_names(group: str) -> list[str]:
    """Return the module names of a group."""
    return [f"tamis.kernels.{group}.{m.name}" for m in pkgutil.iter_modules([str(HERE / group)]) if not m.ispkg]


def import_all(group: str) -> list[str]:
    """Import every module of a group."""
    names = module_names(group)
    for name in names:
        importlib.import_module(name)
    return names


def all_groups() -> list[str]:
    """Return every folder that has kernels, the one that all jobs need first."""
    folders = [module.name for module in pkgutil.iter_modules(tamis.kernels.__path__) if module.ispkg]
    return [RECORDS, *(name for name in folders if name not in (RECORDS, *_NO_KERNELS))]
