"""Locate the run directory of an output in tests."""

from pathlib import Path

from tamis.stores.run_locations import run_dir_of


def run_dir_path(output: str | Path) -> Path:
    """Return the run directory of an output, wherever the run keeps it."""
    return Path(run_dir_of(output))
