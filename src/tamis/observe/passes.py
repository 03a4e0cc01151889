"""Finds run directories: a run has one, a deduplication one for each of its passes, which come and go.

While a deduplication works, its passes lie in `<output>.tamis/dedup/<pass>/_tamis` (or under the scratch folder), and
the last one, the removal, in `<output>.tamis` itself. A curation has such a folder for each of its deduplications:
`<output>.tamis/curation/0/_tamis/dedup`.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

from tamis.errors import UsageError
from tamis.observe.snapshot import read_object
from tamis.stores.run_locations import fetch_run_dir, run_dir_of

MAX_PASSES = 200


@dataclass(frozen=True)
class ShownRun:
    """A run and its newest pass.

    `run_dir`: of the newest pass; `whole_dir`: of the output, which has the record of the whole run.
    """

    run_dir: Path
    whole_dir: Path


def find_run(output: str) -> Path:
    """Return the run directory of an output folder, or the folder itself if it is one.

    Raise UsageError if there is no run.
    """
    path = Path(fetch_run_dir(output))
    for folder in (Path(run_dir_of(path)), path):
        if any(
            (folder / name).exists()
            for name in ("plan.json", "run.sqlite", "manifest.json", "dedup", "dedup.json", "curation")
        ):
            return folder
    raise UsageError(f"{output} holds no run of Tamis; give the output folder of a run")


def looked_only(output: str) -> Path | None:
    """Return the path of the duplicates table if a deduplication looked for duplicates and removed nothing.

    Return None for any other run.
    """
    run_dir = Path(run_dir_of(fetch_run_dir(output)))
    is_done = (run_dir / "dedup.json").exists() and not (run_dir / "plan.json").exists()
    return run_dir / "duplicates" if is_done else None


def find_shown_run(run_dir: Path, scratch: str | None = None) -> ShownRun:
    shown = [folder for work in _works(run_dir, scratch) for folder in _passes_in(work)]
    if not shown:
        return ShownRun(run_dir, run_dir)
    newest = max(shown, key=_changed_at)
    return ShownRun(run_dir if _changed_at(run_dir) > _changed_at(newest) else newest, run_dir)


def _works(run_dir: Path, scratch: str | None) -> list[Path]:
    """Return the folders that may hold passes: of a deduplication, or of the deduplications of a curation."""
    steps: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(run_dir / "curation") as entries:
        steps = [Path(run_dir_of(e.path)) for e in entries if e.name.isdecimal()][:MAX_PASSES]
    return [_work_of(folder, scratch) for folder in (run_dir, *steps)]


def _work_of(run_dir: Path, scratch: str | None) -> Path:
    if scratch is not None:
        # dedup/workflow.py keeps its name there. Only a folder in the scratch folder that the user named is looked
        # into.
        path = read_object(run_dir / "work.json", []).get("path")
        if isinstance(path, str) and os.path.dirname(path) == os.path.abspath(scratch):
            return Path(path)
    return run_dir / "dedup"


def _passes_in(work: Path) -> list[Path]:
    """Return the run directories of the passes."""
    run_dirs: list[Path] = []
    with contextlib.suppress(OSError), os.scandir(work) as entries:  # no deduplication, or one that has ended
        for entry in entries:
            folder = Path(run_dir_of(entry.path))
            if len(run_dirs) < MAX_PASSES and folder.is_dir():
                run_dirs.append(folder)
    return run_dirs


def _changed_at(folder: Path) -> float:
    """Return the time of the last change; 0 without a database."""
    try:
        return (folder / "run.sqlite").stat().st_mtime
    except OSError:
        return 0.0
