"""Lines and paragraphs of texts, found a window at a time; both passes split with this, so that numbers mean the same.

A line is what text.split("\\n") gives. A paragraph is a run of lines that are not blank (nothing but whitespace); blank lines
belong to the paragraph before them, and those at the beginning of a text to a unit of their own, number -1, which is always
kept. Memory: some 80 bytes per line of a window. A window is half a megabyte of whole texts, or of whole units of one
text; only a paragraph that is larger than that makes it larger.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from tamis.kernels.buffers import StringBuffers

    Array = np.ndarray[Any, Any]

UNITS = ("line", "paragraph")
WINDOW_BYTES = 1 << 19
# Where a large text may be cut: after a line; before a line that is surely not blank, after a blank one.
_CUT = {
    "line": re.compile(rb"\n"),
    "paragraph": re.compile(rb"\n[ \t\r]*\n(?=[!-~\xd0-\xdf\xe4-\xf4])"),
}


@dataclass
class Units:
    """Units of some texts, in order. Unit k is data[start[k]:end[k]); up to stop[k] follows what separates it from the next."""

    row: Array  # of the text
    number: Array  # within the text
    start: Array
    end: Array
    stop: Array
    last: Array  # whether it is the last one of its text


def check_unit(where: str, unit: Any) -> str:
    if unit not in UNITS:
        raise UsageError(f"{where}: unit must be one of {', '.join(UNITS)}, got {unit!r}")
    return str(unit)


def split_units(parts: StringBuffers, unit: str) -> Iterator[Units]:
    """All units of all texts, window after window. There must be no nulls (an empty text has one empty unit)."""
    import numpy as np

    offsets = np.asarray(parts.offsets, np.int64)
    row, n = 0, parts.n_rows
    while row < n:
        after = int(np.searchsorted(offsets, offsets[row] + WINDOW_BYTES, side="right")) - 1
        if after > row:
            yield _split(parts.data, offsets[row : after + 1], row, unit, 0, True)
            row = after
            continue
        at, end, number = int(offsets[row]), int(offsets[row + 1]), 0
        while at < end:  # a text larger than a window
            found = _CUT[unit].search(memoryview(parts.data), min(at + WINDOW_BYTES, end), end)  # type: ignore[arg-type]
            cut = end if found is None else found.end()
            units = _split(parts.data, np.array([at, cut]), row, unit, number, found is None)
            yield units
            number, at = int(units.number[-1]) + 1, cut
            if at == end and found is not None:  # the text ends in a line feed: an empty line comes last
                yield _split(parts.data, np.array([end, end]), row, unit, number, True)
        row += 1


def _split(data: Array, offsets: Array, row: int, unit: str, number: int, whole: bool) -> Units:
    """Units of the texts data[offsets[i]:offsets[i + 1]); not `whole`: of a part of one text that ends where a unit does."""
    import numpy as np

    a, b = int(offsets[0]), int(offsets[-1])
    feeds = np.flatnonzero(data[a:b] == 10) + a
    if whole:
        at = np.searchsorted(feeds, offsets[1:])
        ends = np.insert(feeds, at, offsets[1:])
        last = np.zeros(len(ends), bool)
        last[at + np.arange(len(at))] = True
    else:
        ends, last = feeds, np.zeros(len(feeds), bool)
    stops = ends + ~last
    starts = np.concatenate([offsets[:1], stops[:-1]])
    first = np.ones(len(ends), bool)
    first[1:] = last[:-1]
    rows = np.cumsum(first) - 1 + row
    if unit == "paragraph":
        return _join_lines(data, Units(rows, rows, starts, ends, stops, last), first, number)
    return Units(rows, _count(first, rows) + number, starts, ends, stops, last)


def _count(first: Array, rows: Array) -> Array:
    """0, 1, 2 ... from each first one of a text on."""
    import numpy as np

    return np.arange(len(first)) - np.flatnonzero(first)[rows - rows[0]] if len(first) else rows


def _join_lines(data: Array, lines: Units, first: Array, number: int) -> Units:
    """Paragraphs of lines."""
    import numpy as np

    blank = _blank(data, lines.start, lines.end)
    opens = first.copy()
    opens[1:] |= ~blank[1:] & blank[:-1]
    at = np.flatnonzero(opens)
    n_filled = np.add.reduceat(~blank, at, dtype=np.int64)  # lines that are not blank come first
    closing = np.append(at[1:], len(blank)) - 1
    start = lines.start[at]
    end = np.where(n_filled > 0, lines.end[at + np.maximum(n_filled, 1) - 1], start)
    rows = lines.row[at]
    head = first[at]
    numbers = _count(head, rows) - (n_filled == 0)[np.flatnonzero(head)][rows - rows[0]]
    return Units(rows, numbers + number, start, end, lines.stop[closing], lines.last[closing])


def _blank(data: Array, start: Array, end: Array) -> Array:
    """Which lines hold nothing but whitespace, as str.isspace() means it."""
    import numpy as np

    blank: Array = start == end
    left = np.flatnonzero(~blank)
    at = start[left]
    for _ in range(64):  # one step per ASCII whitespace character, over the lines that have one more
        byte = data[at]
        space = (byte <= 32) & ((byte == 32) | ((byte >= 9) & (byte <= 13)) | (byte >= 28))
        # What cannot be the first byte of whitespace decides most lines.
        open_ = space | (byte == 0xC2) | ((byte >= 0xE1) & (byte <= 0xE3))
        left, at = left[open_], at[open_] + space[open_]
        done = at == end[left]
        blank[left[done]] = True
        left, at = left[~done], at[~done]
        if not space.any():
            break
    for k in left.tolist():
        blank[k] = data[int(start[k]) : int(end[k])].tobytes().decode("utf-8", "replace").isspace()
    return blank
