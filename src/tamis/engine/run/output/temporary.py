"""Temporary results of runs without a writer: folders that are removed when the program ends.

Each is held by a lock on a file in it for as long as its program lives. What a killed program left is removed by the
next one of the same user that makes such a folder.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import time

from tamis import files
from tamis.errors import UsageError

_NAME = re.compile(r"tamis-results-[0-9a-f]{16}")
_LOCK = "held"
_YOUNG_S = 60.0  # another process may be about to lock it


def temporary_output() -> str:
    """Create a folder for the output of one run, in the folder for temporary files.

    Raise OSError if the disk is full.
    """
    import tempfile

    try:
        parent = tempfile.gettempdir()
    except FileNotFoundError:
        raise UsageError(
            "a pipeline without a writer keeps its results in the folder for temporary files, and none can be written "
            "to; set TMPDIR to one that can, or add a writer"
        ) from None
    remove_abandoned(parent)
    path = files.unguessable(parent, "tamis-results-")
    os.mkdir(path, 0o700)
    os.mkdir(os.path.join(path, "output"), 0o700)
    files.take_lock(os.path.join(path, _LOCK))  # until this process ends
    atexit.register(_remove, path, os.getpid())
    return os.path.join(path, "output")


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:  # not in a fork that ends
        shutil.rmtree(path, ignore_errors=True)


def remove_abandoned(parent: str) -> None:
    """Remove such folders of this user's whose programs are gone."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            if _NAME.fullmatch(entry.name):
                with contextlib.suppress(OSError):
                    _remove_if_abandoned(entry.path)


def _remove_if_abandoned(path: str) -> None:
    info = os.lstat(path)
    if files.not_ours(info, os.geteuid()) or time.time() - info.st_mtime < _YOUNG_S:
        return
    lock = files.take_lock(os.path.join(path, _LOCK))  # BlockingIOError: its program lives
    try:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
