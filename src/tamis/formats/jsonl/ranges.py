"""Read the records of one byte range of a JSONL file.

A record belongs to the range that holds its first byte, so any set of ranges that covers a file yields every record
exactly once, wherever the cuts are. The end of a record that crosses the end of its range by more than 1 MiB is
searched before it is read, in steps: one that is longer than `max_record_bytes` is never held, and its position is
reported.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import field
from typing import Any, BinaryIO

import numpy as np

from tamis._dataclasses import dataclass
from tamis.kernels import spare

_STEP = 1 << 20
_FIRST_STEP = 1 << 16  # most records end in it; further ones are looked for in larger steps
_BOM = b"\xef\xbb\xbf"


@dataclass
class Oversize:
    """The position and length of a record that is too large to be held."""

    offset: int
    length: int


@dataclass
class RangeBytes:
    """Whole records of a range. `offset` is the place of `data[0]` in the file."""

    data: np.ndarray[Any, Any]
    offset: int
    oversize: list[Oversize] = field(default_factory=list)


def read_range(
    file: BinaryIO,
    start: int,
    end: int,
    max_record_bytes: int,
    at_file_start: bool = True,
    on_large: Callable[[int, int, bool], None] | None = None,
) -> RangeBytes:
    """Read the records whose first byte is in [start, end); `end` may be beyond the end of the file.

    `at_file_start` is false for blocks from the middle of a stream, where a byte order mark would be data. `on_large`
    is called with the offset and length of a large record, and whether it is the only one of the range, before it is
    read, which may fail.
    """
    size = file.seek(0, os.SEEK_END)
    end = min(end, size)
    if start >= end:
        return RangeBytes(np.empty(0, np.uint8), start)
    first = start
    if start > 0:
        first = _first_record(file, start, end)
    elif at_file_start and _has_bom(file):
        first, end = 3, min(max(end, 4), size)  # the mark is the beginning of the first line
    if first >= end:
        return RangeBytes(np.empty(0, np.uint8), end)
    # Room for the end of the record that crosses the end of the range: without it, one short tail would copy the whole
    # range.
    room = spare.take("block", min(end - first + _STEP, size - first))
    file.seek(first)
    n = _read_into(file, room[: end - first])
    data = room[:n]
    oversize: list[Oversize] = []
    if n and data[-1] != 10 and first + n < size:
        last = _last_newline(data) + 1  # the record that crosses the end of the range starts here
        tail, is_complete = _read_tail(file, min(_STEP, max_record_bytes - (n - last)))
        if is_complete and n + len(tail) <= len(room):
            data = room[: n + len(tail)]
            data[n:] = np.frombuffer(tail, np.uint8)
        elif is_complete:
            data = np.concatenate([data, np.frombuffer(tail, np.uint8)])
        else:
            stop = first + n + len(tail)
            if not tail.endswith(b"\n"):
                stop = _after_newline(file, stop, size)
            length = stop - _end_of_line_at(file, stop) - (first + last)
            if length > max_record_bytes:
                oversize.append(Oversize(first + last, length))
                data = data[:last]
            else:
                if on_large is not None:
                    on_large(first + last, length, last == 0)
                del tail
                data = np.empty(stop - first, np.uint8)
                file.seek(first)
                data = data[: _read_into(file, data)]
    return RangeBytes(data, first, oversize)


def _first_record(file: BinaryIO, start: int, end: int) -> int:
    """Return the position of the first record that begins in [start, end); `end` if there is none."""
    file.seek(start - 1)
    return start if file.read(1) == b"\n" else _after_newline(file, start, end)


def _has_bom(file: BinaryIO) -> bool:
    file.seek(0)
    return file.read(3) == _BOM


def _read_into(file: BinaryIO, out: np.ndarray[Any, Any]) -> int:
    view: memoryview = memoryview(out)  # type: ignore[arg-type]
    done = 0
    while done < len(out):
        n = file.readinto(view[done : done + (64 << 20)])  # type: ignore[attr-defined]
        if not n:
            break
        done += n
    return done


def _read_tail(file: BinaryIO, room: int) -> tuple[bytes, bool]:
    """Read up to and including the next newline (or the end of the file), at most `room` bytes."""
    parts, total, step = [], 0, _FIRST_STEP
    while True:
        piece = file.read(step)
        newline = piece.find(b"\n")
        if newline >= 0:
            parts.append(piece[: newline + 1])
            return b"".join(parts), total + newline <= room
        parts.append(piece)
        total += len(piece)
        if total > room:
            return b"".join(parts), False
        if not piece:
            return b"".join(parts), True
        step = min(step * 2, _STEP)


def _after_newline(file: BinaryIO, start: int, stop: int) -> int:
    """Return the position after the first newline at or after `start`; `stop` if there is none before it."""
    file.seek(start)
    offset, step = start, _FIRST_STEP
    while offset < stop:
        piece = file.read(min(step, stop - offset))
        if not piece:
            break
        newline = piece.find(b"\n")
        if newline >= 0:
            return offset + newline + 1
        offset, step = offset + len(piece), min(step * 2, _STEP)
    return stop


def _end_of_line_at(file: BinaryIO, stop: int) -> int:
    """Return `end_of_line` of the record that ends at `stop`."""
    file.seek(max(0, stop - 2))
    return end_of_line(file.read(min(2, stop)))


def end_of_line(last: bytes) -> int:
    r"""Return how many bytes end a record without being part of it: a line feed, and a carriage return before it.

    `last`: the last two bytes of the record with its line feed (the last one of a file may have none).

    >>> [end_of_line(last) for last in (b"}\n", b"\r\n", b"}\r", b"\r\r", b"}}")]
    [1, 2, 1, 1, 0]
    """
    text = last.removesuffix(b"\n")
    return len(last) - len(text.removesuffix(b"\r"))


def _last_newline(data: np.ndarray[Any, Any]) -> int:
    """Return the index of the last newline, -1 if there is none; searches backwards in steps."""
    end = len(data)
    while end > 0:
        start = max(0, end - _STEP)
        newlines = np.flatnonzero(data[start:end] == 10)
        if len(newlines):
            return start + int(newlines[-1])
        end = start
    return -1
