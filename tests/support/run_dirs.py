"""Tell the run directory of an output from its data, wherever the run keeps it."""

import os
from pathlib import Path

from tamis.stores.run_locations import run_dir_of


def run_dir_path(output: str | Path) -> Path:
    """Return the run directory of an output."""
    return Path(run_dir_of(output))


def data_names(output: str | Path) -> list[str]:
    """Return the sorted names in an output that are not its run directory."""
    return sorted(name for name in os.listdir(output) if Path(output, name) != run_dir_path(output))
