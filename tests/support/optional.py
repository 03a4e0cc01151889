"""Packages that tests need and environments may lack: torch, transformers, ... Importing these takes seconds."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any

import pytest


class Package:
    """A package that is imported when a name of it is first used, not by every process that collects the tests."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest_")):  # pytest and doctest ask all names of a module for these
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def optional(name: str, reason: str = "") -> Any:
    """Return a package, or skip the module of the caller where it is not installed.

    Unlike `pytest.importorskip` it does not import the package.
    """
    if find_spec(name) is None:
        pytest.skip(reason or f"{name} is not installed", allow_module_level=True)
    return Package(name)
