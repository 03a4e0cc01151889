r"""Lines and paragraphs of texts, split a window at a time; both passes number them alike.

A line is what text.split("\n") gives. A paragraph is a run of lines that are not blank (nothing but whitespace); blank
lines belong to the paragraph before them, and those at the beginning of a text to a separate unit, number -1, which
is always kept. Memory: some 80 bytes per line of a window. A window is half a megabyte of whole texts, or of whole
lines of one text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tamis.kernels.buffers import StringBuffers

Array = np.ndarray[Any, Any]
WINDOW_BYTES = 1 << 19
_FEED = re.compile(rb"\n")


@dataclass
class Units:
    """Units of some texts, in order.

    Unit k is data[start[k]:end[k]); up to stop[k] follows what separates it from the next.
    """

    row: Array  # of the text
    number: Array  # within the text
    start: Array
    end: Array
    stop: Array
    last: Array  # whether it is the last one of its text


def split_units(parts: StringBuffers, unit: str) -> Iterator[Units]:
    """Yield all units of all texts, window after window.

    There must be no nulls (an empty text has one empty unit).
    """
    offsets = np.asarray(parts.offsets, np.int64)
    room = np.empty(WINDOW_BYTES, bool)
    row, n = 0, parts.n_rows
    while row < n:
        after = int(np.searchsorted(offsets, offsets[row] + WINDOW_BYTES, side="right")) - 1
        if after > row:
            lines = _lines(parts.data, offsets[row : after + 1], row, 0, True, room)
            yield lines if unit == "line" else _paragraphs(parts.data, lines)
            row = after
            continue
        windows = _lines_of_large(parts.data, int(offsets[row]), int(offsets[row + 1]), row, room)
        yield from windows if unit == "line" else _paragraphs_of_large(parts.data, windows)
        row += 1


def _lines_of_large(data: Array, position: int, end: int, row: int, room: Array) -> Iterator[Units]:
    """Yield the lines of one text that is larger than a window."""
    number = 0
    while position < end:
        feed = _FEED.search(memoryview(data), min(position + WINDOW_BYTES, end), end)  # type: ignore[arg-type]
        cut = end if feed is None else feed.end()
        lines = _lines(data, np.array([position, cut]), row, number, feed is None, room)
        yield lines
        number, position = int(lines.number[-1]) + 1, cut
        if position == end and feed is not None:  # the text ends in a line feed: an empty line comes last
            yield _lines(data, np.array([end, end]), row, number, True, room)


def _paragraphs_of_large(data: Array, windows: Iterator[Units]) -> Iterator[Units]:
    """Yield the paragraphs of one text from windows of its lines.

    The last one of a window is held back: the next may continue it.
    """
    pending: Units | None = None
    number, in_text = 0, False  # of the next paragraph; whether the line before was not blank
    for lines in windows:
        paragraphs = _paragraphs(data, lines)
        if pending is not None:
            goes_on = in_text or paragraphs.end[0] == paragraphs.start[0]  # blank lines go with what is before them
            if goes_on:
                pending.stop[:], pending.last[:] = paragraphs.stop[:1], paragraphs.last[:1]
                pending.end[:] = paragraphs.end[:1] if paragraphs.end[0] > paragraphs.start[0] else pending.end
                paragraphs = _some(paragraphs, slice(1, None))
                if not len(paragraphs.row):
                    in_text = in_text and not _ends_blank(data, lines)
                    continue
            yield pending
        numbers = number + paragraphs.number - max(int(paragraphs.number[0]), 0) if number else paragraphs.number
        number = int(numbers[-1]) + 1
        paragraphs.number = numbers
        if len(paragraphs.row) > 1:
            yield _some(paragraphs, slice(0, -1))
        pending, in_text = _some(paragraphs, slice(-1, None)), not _ends_blank(data, lines)
    if pending is not None:
        yield pending


def _some(units: Units, which: slice) -> Units:
    return Units(*(values[which].copy() for values in vars(units).values()))


def _ends_blank(data: Array, lines: Units) -> bool:
    return bool(_blank(data, lines.start[-1:], lines.end[-1:])[0])


def _lines(data: Array, offsets: Array, row: int, number: int, whole: bool, room: Array) -> Units:
    """Return the lines of the texts data[offsets[i]:offsets[i + 1]).

    Not `whole`: of a part of one text that ends in a line feed.
    """
    a, b = int(offsets[0]), int(offsets[-1])
    ends = positions(np.equal(data[a:b], 10, out=room[: b - a] if b - a <= len(room) else None)) + a
    last = np.zeros(len(ends), bool)
    if whole:
        at = np.searchsorted(ends, offsets[1:])
        ends = np.insert(ends, at, offsets[1:])
        last = np.zeros(len(ends), bool)
        last[at + np.arange(len(at))] = True
    stops = ends + ~last
    starts = np.concatenate([offsets[:1], stops[:-1]])
    first = np.ones(len(ends), bool)
    first[1:] = last[:-1]
    rows = np.cumsum(first) - 1 + row
    return Units(rows, _count(first, rows) + number, starts, ends, stops, last)


def positions(mask: Array) -> Array:
    """Return the positions where a contiguous mask is true.

    Intended for masks that seldom are: eight bytes are tested at a time first.
    """
    n = len(mask) // 8 * 8
    words = np.flatnonzero(mask[:n].view(np.uint64) != 0)
    inside = np.flatnonzero(mask[:n].reshape(-1, 8)[words].ravel())
    offsets = words[inside >> 3] * 8 + (inside & 7)
    tail = np.flatnonzero(mask[n:]) + n
    return np.concatenate([offsets, tail]) if len(tail) else offsets


def _count(first: Array, rows: Array) -> Array:
    """Return 0, 1, 2 ... from the first unit of each text on."""
    return np.arange(len(first)) - np.flatnonzero(first)[rows - rows[0]] if len(first) else rows


def _paragraphs(data: Array, lines: Units) -> Units:
    """Join lines to paragraphs."""
    blank = _blank(data, lines.start, lines.end)
    first = np.ones(len(blank), bool)
    first[1:] = lines.row[1:] != lines.row[:-1]
    opens = first.copy()
    opens[1:] |= ~blank[1:] & blank[:-1]
    indices = np.flatnonzero(opens)
    n_filled = np.add.reduceat(~blank, indices, dtype=np.int64)  # lines that are not blank come first
    closing = np.append(indices[1:], len(blank)) - 1
    start = lines.start[indices]
    end = np.where(n_filled > 0, lines.end[indices + np.maximum(n_filled, 1) - 1], start)
    rows, head = lines.row[indices], first[indices]
    numbers = _count(head, rows) - (n_filled == 0)[np.flatnonzero(head)][rows - rows[0]]
    return Units(rows, numbers, start, end, lines.stop[closing], lines.last[closing])


def _blank(data: Array, start: Array, end: Array) -> Array:
    """Return a mask of the lines that hold nothing but whitespace, as str.isspace() defines it."""
    blank: Array = start == end
    pending = np.flatnonzero(~blank)
    at = start[pending]
    for _ in range(64):  # one step per ASCII whitespace character, over the lines that have one more
        byte = data[at]
        space = (byte <= 32) & ((byte == 32) | ((byte >= 9) & (byte <= 13)) | (byte >= 28))
        # What cannot be the first byte of whitespace decides most lines.
        open_ = space | (byte == 0xC2) | ((byte >= 0xE1) & (byte <= 0xE3))
        pending, at = pending[open_], at[open_] + space[open_]
        done = at == end[pending]
        blank[pending[done]] = True
        pending, at = pending[~done], at[~done]
        if not space.any():
            break
    for k in pending.tolist():
        blank[k] = data[int(start[k]) : int(end[k])].tobytes().decode("utf-8", "replace").isspace()
    return blank
