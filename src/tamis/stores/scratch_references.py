"""Scratch outside of the output (`--scratch`): referenced by files of run directories, and removed with them.

Remove what the files of a run directory name before the directory itself: without these names it would stay forever.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from typing import Any

from tamis import files
from tamis.errors import RunConflict, TamisError
from tamis.stores.run_locations import RUN_SUFFIX, is_run_dir
from tamis.stores.scratch_files import remove_tree
from tamis.stores.urls import is_bucket

_FILES = ("scratch.json", "work.json")  # of a run; of a deduplication, between its passes
_NAME = re.compile(r"tamis-(dedup-)?[0-9a-f]{16}")


def register(pointer: str, path: str) -> None:
    """Note in `pointer` that a scratch folder is about to be made; folders that could not be removed yet stay noted.

    Called before the folder is made: one that no file names would stay forever.
    """
    leftover = _paths(_read(pointer))
    files.write_json(pointer, {"path": path, **({"left": leftover} if leftover else {})}, indent=1)


def remove_referenced_below(folder: str, _above: frozenset[str] = frozenset()) -> bool:
    """Remove what the run directories in a folder name, but for those of outputs in others, which may be at work.

    False where something could not be removed: the files that name that stay.
    """
    pointers = []
    for folder_path, below, names in os.walk(folder):
        if is_run_dir(folder_path):
            below[:] = [name for name in below if not name.endswith(RUN_SUFFIX)]
        pointers += [os.path.join(folder_path, name) for name in _FILES if name in names]
    removed = [remove_referenced_scratch(pointer, _above) for pointer in pointers]
    return all(removed)


def remove_referenced_scratch(pointer: str, _above: frozenset[str] = frozenset()) -> bool:
    """Remove what one such file names, and the file.

    Whatever it says, only what has the name of scratch and is this user's.

    False where something stays: a store refused, or a worker of a run that was killed a moment ago still writes there.
    The file then names what is left, for the next call.
    """
    reference = _read(pointer)
    leftover = [path for path in _paths(reference) if not _remove_folder(path, _above)]
    far = str(reference.get("far", ""))
    if is_bucket(far) and _NAME.fullmatch(os.path.basename(far)):
        try:
            remove_tree(far)
        except (OSError, TamisError):
            return False
    if leftover:
        with contextlib.suppress(FileNotFoundError):  # it was in one of these folders itself
            files.write_json(pointer, {"left": leftover}, indent=1)
        return False
    files.remove(pointer)
    return True


def _remove_folder(path: str, above: frozenset[str]) -> bool:
    """Remove a scratch folder with everything that run directories in it name. False where some of it is still there.

    `above`: folders that are being removed, which lead here.
    """
    try:
        if path in above or not _NAME.fullmatch(os.path.basename(path)) or not files.check_own_folder(path, ""):
            return True
    except RunConflict:  # of others: it stays
        return True
    if not remove_referenced_below(path, above | {path}):  # runs whose directories are in scratch themselves
        return False
    shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def _paths(reference: dict[str, Any]) -> list[str]:
    """Return the folders that a file references: of its last run, and earlier ones that could not be removed yet."""
    leftover = reference.get("left", [])
    named = [reference.get("path", ""), *(leftover if isinstance(leftover, list) else [])]
    return list(dict.fromkeys(path for path in named if isinstance(path, str) and path))


def _read(pointer: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), open(pointer, encoding="utf-8") as file:
        reference = json.load(file)
        return reference if isinstance(reference, dict) else {}
    return {}
