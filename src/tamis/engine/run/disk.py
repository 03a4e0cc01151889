"""Errors of disks as errors of a run: what is full, how much room there is, and that the same command resumes."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence

from tamis.errors import DiskFullError, TamisError
from tamis.sizes import format_size

_FULL = (errno.ENOSPC, errno.EDQUOT)
_KEPT = "Everything committed so far is kept"


def is_full(error: OSError | str) -> bool:
    """Return True if an error, or the text of one that a worker reported, means that the disk is full.

    >>> is_full("OSError: [Errno 28] No space left on device"), is_full("OSError: [Errno 5] Input/output error")
    (True, False)
    """
    if isinstance(error, OSError):
        return error.errno in _FULL
    return any(os.strerror(code) in error for code in _FULL)


def no_room(reason: str, folders: Sequence[str]) -> DiskFullError:
    """Return the error to raise for a full disk.

    `folders`: folders that the run writes to; the message names the one with the least free space.
    """
    free = {folder: _free_bytes(folder) for folder in folders if os.path.isdir(folder)}
    folder = min(free, key=lambda p: free[p], default="")
    free_text = f"{format_size(free[folder])} are free in {folder}. " if folder else ""
    return DiskFullError(f"{reason}. {free_text}{_KEPT}: make room and run the same command again")


def explained(exc: OSError, folders: Sequence[str]) -> TamisError:
    """Convert an error of the operating system to the error that it means for a run."""
    if isinstance(exc, TamisError):
        return exc  # a store's, which says what to do
    description = f"{exc.strerror or exc}" + (f": {exc.filename}" if exc.filename else "")
    if is_full(exc):
        return no_room(description, folders)
    return TamisError(f"{description}. {_KEPT}: fix that and run the same command again")


def _free_bytes(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0
