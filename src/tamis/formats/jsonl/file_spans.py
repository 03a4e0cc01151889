"""Spans of files as one contiguous buffer, of which only the requested parts are read.

For records whose positions are known: those that no stage reads are copied from file to file through a small window,
which stays in the cache of the processor. Reading a whole block and writing it takes twice as long.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from tamis.errors import FormatError, InputChanged, StoreError
from tamis.failures import is_memory_failure
from tamis.stores.opening import forget, open_input, read_at, state_of_open
from tamis.stores.reading import Changed
from tamis.stores.urls import is_remote

WINDOW_BYTES = 1 << 18
_FAR_WINDOW = 8 << 20  # of files in a store: bytes per request
_GAP, _FAR_GAP = 1 << 12, 1 << 20  # unneeded bytes that are read rather than making another request
_LINE_FEED = 10
Array = np.ndarray[Any, Any]
Run = tuple[int, int]


class FileSpan(NamedTuple):
    """Bytes of a file. `planned`: its size and the time of its last change, as they must be."""

    path: str
    start: int
    end: int
    planned: tuple[int, int]


class FileSpans:
    """Consecutive spans of files; positions count from the first byte. A changed file raises FormatError."""

    def __init__(self, parts: Sequence[FileSpan]) -> None:
        self._parts = list(parts)
        self.n_bytes = sum(part.end - part.start for part in parts)

    def path_at(self, position: int) -> str:
        """Return the path of the file that holds the byte at `position`."""
        ends = itertools.accumulate(part.end - part.start for part in self._parts)
        return next(part.path for part, end in zip(self._parts, ends, strict=True) if position < end)

    def gather(self, runs: Sequence[Run]) -> Array:
        """Read the bytes of some runs (ascending) into one contiguous buffer."""
        out = np.empty(sum(b - a for a, b in runs), np.uint8)
        view: memoryview = memoryview(out)  # type: ignore[arg-type]
        position = 0
        for part, mine in self._by_part(runs):
            with _Opened(part) as file:
                for some in _near(mine, _gap_of(part)):
                    first, last = some[0][0], some[-1][1]
                    if len(some) == 1:
                        file.read_into(view[position : position + last - first], first)
                        position += last - first
                        continue
                    buffer = memoryview(bytearray(last - first))
                    file.read_into(buffer, first)
                    for a, b in some:
                        view[position : position + b - a] = buffer[a - first : b - first]
                        position += b - a
        return out

    def spread(self, runs: Sequence[Run]) -> Array:
        """Return everything as one buffer in which only these runs (ascending) were read, each at its offset.

        The bytes between them are arbitrary; pages that were never written take no memory.
        """
        out = np.empty(self.n_bytes, np.uint8)
        view: memoryview = memoryview(out)  # type: ignore[arg-type]
        for part, shift, mine in self._with_shifts(runs):
            with _Opened(part) as file:
                for some in _near(mine, _gap_of(part)):
                    first, last = some[0][0], some[-1][1]
                    file.read_into(view[first - shift : last - shift], first)
        return out

    def windows(self, runs: Sequence[Run]) -> Iterator[memoryview]:
        """Yield the bytes of runs of whole lines (ascending), one window at a time.

        Each view is overwritten by the next.
        """
        room = memoryview(bytearray(0))
        for part, mine in self._by_part(runs):
            if len(room) < (n_bytes := _FAR_WINDOW if is_remote(part.path) else WINDOW_BYTES):
                room = memoryview(bytearray(n_bytes))
            with _Opened(part) as file:
                yield from _windows(file, mine, room)

    def _by_part(self, runs: Sequence[Run]) -> Iterator[tuple[FileSpan, list[Run]]]:
        """Yield the runs in each file, by their offsets there."""
        return ((part, mine) for part, _, mine in self._with_shifts(runs))

    def _with_shifts(self, runs: Sequence[Run]) -> Iterator[tuple[FileSpan, int, list[Run]]]:
        """Yield the runs in each file like `_by_part`, with the difference of file offset and offset here."""
        i, position = 0, 0
        for part in self._parts:
            end, mine = position + part.end - part.start, []
            shift = part.start - position
            while i < len(runs) and runs[i][0] < end:
                a, b = runs[i]
                mine.append((max(a, position) + shift, min(b, end) + shift))
                if b > end:  # it continues in the next file
                    break
                i += 1
            if mine:
                yield part, shift, mine
            position = end


def _gap_of(part: FileSpan) -> int:
    return _FAR_GAP if is_remote(part.path) else _GAP


def _near(runs: Sequence[Run], gap: int) -> Iterator[list[Run]]:
    """Group runs that are read together: at most `gap` bytes between two of them, at most a large read in all."""
    some: list[Run] = []
    for run in runs:
        if some and (run[0] - some[-1][1] > gap or run[1] - some[0][0] > _FAR_WINDOW):
            yield some
            some = []
        some.append(run)
    if some:
        yield some


def _windows(file: _Opened, runs: list[Run], room: memoryview) -> Iterator[memoryview]:
    i, position = 0, 0  # the next run, and up to where the file was read
    while i < len(runs):
        first = max(position, runs[i][0])
        position = min(first + len(room), runs[-1][1])
        file.read_into(room[: position - first], first)
        n = 0
        while i < len(runs) and runs[i][0] < position:
            a, b = max(runs[i][0], first) - first, min(runs[i][1], position) - first
            is_whole = runs[i][1] <= position
            if is_whole and room[b - 1] != _LINE_FEED:
                raise InputChanged(str(file.changed()))
            if a != n:
                room[n : n + b - a] = room[a:b]
            n += b - a
            if not is_whole:
                break
            i += 1
        yield room[:n]


class _Opened:
    """A file that must be as planned, when it is opened and when everything was read."""

    def __init__(self, part: FileSpan) -> None:
        self._part = part
        with self._faults():
            self._file = open_input(part.path)

    def __enter__(self) -> _Opened:
        try:
            self._check()
        except BaseException:
            self._file.close()
            raise
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                self._check()
        finally:
            self._file.close()

    def read_into(self, view: memoryview, offset: int) -> None:
        done = 0
        while done < len(view):
            with self._faults():
                n = read_at(self._file, view[done:], offset + done)
            if not n:
                raise self.changed()
            done += n

    def changed(self) -> FormatError:
        return FormatError(f"{self._part.path} changed during the run: its records are not where they were found")

    @contextlib.contextmanager
    def _faults(self) -> Iterator[None]:
        """Convert read errors to FormatError, as where records are searched for.

        Data that cannot be read is bad input: it is retried, then quarantined, and the run continues. An OSError would
        be a fault of this machine, which ends the run.
        """
        try:
            yield
        except Changed:
            forget(self._part.path)  # a retry sees the present file
            raise self.changed() from None
        except OSError as exc:
            if isinstance(exc, StoreError) or is_memory_failure(exc):
                raise
            raise FormatError(f"{self._part.path} cannot be read: {exc.strerror or exc}") from exc

    def _check(self) -> None:
        if state_of_open(self._file) != self._part.planned:
            raise self.changed()
