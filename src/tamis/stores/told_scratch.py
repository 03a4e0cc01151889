"""Scratch that lies outside of the output (`--scratch`): files of run directories say where, in a folder or in a bucket. Here it is removed.

Whoever removes a run directory removes what its files name first; nobody would know of it otherwise, and it would stay.
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
from tamis.stores.scratch_files import remove_tree
from tamis.stores.urls import is_bucket

_FILES = ("scratch.json", "work.json")  # of a run; of a deduplication, between its passes
_NAME = re.compile(r"tamis-(dedup-)?[0-9a-f]{16}")


def remove_below(folder: str) -> bool:
    """Remove what the run directories in a folder name. False where a store did not let us: the files that name that stay."""
    pointers = [os.path.join(where, n) for where, _, names in os.walk(folder) for n in _FILES if n in names]
    removed = [remove_told(pointer) for pointer in pointers]
    return all(removed)


def remove_told(pointer: str, is_nested: bool = False) -> bool:
    """Remove what one such file names, and the file; whatever it says, only what has the name of scratch and is this user's."""
    about = _read(pointer)
    path, far = str(about.get("path", "")), str(about.get("far", ""))
    with contextlib.suppress(RunConflict):  # of others: it stays
        if _NAME.fullmatch(os.path.basename(path)) and files.check_own_folder(path, ""):
            # Runs whose directories lie in scratch themselves.
            for where, _, names in os.walk(path) if not is_nested else ():
                for name in _FILES:
                    if name in names and not remove_told(os.path.join(where, name), is_nested=True):
                        return False
            shutil.rmtree(path, ignore_errors=True)
    if is_bucket(far) and _NAME.fullmatch(os.path.basename(far)):
        try:
            remove_tree(far)
        except (OSError, TamisError):
            return False
    files.remove(pointer)
    return True


def _read(pointer: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError), open(pointer, encoding="utf-8") as file:
        about = json.load(file)
        return about if isinstance(about, dict) else {}
    return {}
