"""Advice on modules and names of NeMo Curator that Tamis lacks, for failed imports and `doctor --check-script`."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path


def module_exists(module: str) -> bool:
    """Return True if such a module exists.

    Tools that look for a module ask every finder, even if another one has already located it.
    """
    path = Path(__file__).parent.joinpath(*module.split(".")[1:])
    return path.is_dir() or path.with_name(f"{path.name}.py").is_file()


def suggest_replacement(path: str) -> str:
    """Return what to use instead of a missing name: the advice on it, or on the nearest package around it."""
    missing = load_advice()["missing"]
    parts = path.split(".")
    for_package = next((missing[p] for i in range(len(parts), 0, -1) if (p := ".".join(parts[:i])) in missing), "")
    return missing.get(parts[-1]) or for_package


@cache
def load_advice() -> dict[str, dict[str, str]]:
    """Load the sections of _nemo_hints.toml."""
    text = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
    return {section: {str(k): str(v) for k, v in entries.items()} for section, entries in tomllib.loads(text).items()}
