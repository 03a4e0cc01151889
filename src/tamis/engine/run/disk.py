"""Errors of disks as errors of a run: what is full, how much room there is, and that the same command goes on."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence

from tamis.errors import BudgetError, TamisError
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


def no_room(why: str, places: Sequence[str]) -> BudgetError:
    """Return the error to raise for a full disk.

    `places`: folders that the run writes to; the message names the one with the least free space.
    """
    free = {place: _free(place) for place in places if os.path.isdir(place)}
    place = min(free, key=lambda p: free[p], default="")
    room = f"{format_size(free[place])} are free in {place}. " if place else ""
    return BudgetError(f"{why}. {room}{_KEPT}: make room and run the same command again")


def explained(exc: OSError, places: Sequence[str]) -> TamisError:
    """Convert an error of the operating system to the error that it means for a run."""
    if isinstance(exc, TamisError):
        return exc  # a store's, which says what to do
    what = f"{exc.strerror or exc}" + (f": {exc.filename}" if exc.filename else "")
    if is_full(exc):
        return no_room(what, places)
    return TamisError(f"{what}. {_KEPT}: fix that and run the same command again")


def _free(place: str) -> int:
    try:
        return shutil.disk_usage(place).free
    except OSError:
        return 0
