"""The streams of a command where they are not what one expects: closed, or on a disk that is full.

Used by whatever prints.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO

from tamis.errors import TamisError

LAYOUT = "\n\t"  # control characters of texts that have several lines


class Lost(TamisError):
    """The output of a command cannot be written: the disk is full."""

    def __init__(self, why: OSError) -> None:
        super().__init__(f"what this command prints cannot be written: {why.strerror}")


def reopen_closed() -> None:
    """Redirect standard streams that the caller has closed (`>&-`) to /dev/null.

    Otherwise the next file or socket would take the stream's number, and be written to.
    """
    ours = set()
    for fd in (0, 1, 2):
        try:
            os.fstat(fd)
        except OSError:
            ours.add(os.open(os.devnull, os.O_RDWR))  # it takes the lowest number that is free
            os.set_inheritable(fd, True)
    if sys.stdout is None:
        sys.stdout = _stream(1 if 1 in ours else None)
    if sys.stderr is None:
        sys.stderr = _stream(2 if 2 in ours else None)


def _stream(fd: int | None) -> TextIO:
    """Open a stream on this file descriptor; None: the number is in use by something else.

    Processes that are forked from this one replace it with a log or a pipe.
    """
    return open(os.devnull if fd is None else fd, "w", encoding="utf-8", closefd=fd is None)


def put(text: str, flush: bool = False) -> None:
    """Print a text as it is.

    Lost where that fails, and then the rest goes nowhere; a reader who has gone away is a BrokenPipeError.
    """
    try:
        sys.stdout.write(text)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as exc:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise Lost(exc) from None
