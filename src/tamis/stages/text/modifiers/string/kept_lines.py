"""Texts made of those of their lines that a rule keeps.

The lines of str.splitlines() and what rules ask of them come from a kernel, in a table of 40 bytes per line. It is made for
half a megabyte of text at a time: a text of line breaks alone would need a table of 40 times its size.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from tamis._lazy import np, pa

if TYPE_CHECKING:
    from tamis.kernels.buffers import StringBuffers
    from tamis.kernels.text.split_lines import LineTable

    Array = np.ndarray[Any, Any]
    Decide = Callable[[LineTable], tuple[Array, Array]]

_WINDOW_BYTES = 1 << 19
_BREAK = re.compile(rb"\r\n?|[\n\x0b\x0c\x1c-\x1e]|\xc2\x85|\xe2\x80[\xa8\xa9]")


def keep_lines(texts: pa.Array, decide: Decide, only_terminal: bool = False) -> pa.Array:
    """Kept lines without the whitespace around them, joined by line feeds. Null stays null.

    `decide` says of every line of a table whether it is kept, and whether it makes its whole text empty. With `only_terminal`
    the table has words and phrases of lines with an end mark only.
    """
    from tamis.kernels.buffers import StringBuffers, string_array, string_buffers
    from tamis.kernels.records.json_text import copy_spans
    from tamis.kernels.text.split_lines import line_table

    parts = string_buffers(texts)
    cuts, text_of = _pieces(parts)
    lengths, emptied = np.zeros(parts.n_rows, np.int64), np.zeros(parts.n_rows, bool)
    out = np.empty(int(cuts[-1] - cuts[0]), np.uint8)  # a kept line is never longer than it was with its line break
    size, last = 0, -1  # bytes written so far, and the text that the last line written belongs to
    for a, b in _windows(cuts):
        valid = None if parts.validity is None else parts.validity[text_of[a:b]]
        table = line_table(StringBuffers(cuts[a : b + 1], parts.data, valid), only_terminal)
        kept, empties = decide(table)
        owner = np.repeat(text_of[a:b], np.diff(table.doc_ptr))
        emptied[owner[empties]] = True
        first = int(text_of[a])
        if emptied[first]:  # its lines in earlier windows were the last that were written
            size -= int(lengths[first])
            lengths[first] = 0
        at = np.flatnonzero(kept & ~emptied[owner])
        if not len(at):
            continue
        owner, starts = owner[at], table.starts[at]
        n_bytes = table.ends[at] - starts
        seam = np.concatenate([[owner[0] == last], owner[1:] == owner[:-1]])
        to = size + np.cumsum(n_bytes + seam) - n_bytes
        copy_spans(parts.data, starts, n_bytes, out, to)
        out[to[seam] - 1] = 10
        np.add.at(lengths, owner, n_bytes + seam)
        size, last = int(to[-1] + n_bytes[-1]), int(owner[-1])
    offsets = np.zeros(parts.n_rows + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = out[:size] if size * 2 > len(out) else out[:size].copy()  # little left: do not hold the room for all
    return string_array(offsets, data, parts.validity).cast(texts.type)


def _pieces(parts: StringBuffers) -> tuple[Array, Array]:
    """(cuts, text_of): piece k is data[cuts[k]:cuts[k + 1]), whole lines of text text_of[k]; small texts are one piece each."""
    offsets = np.asarray(parts.offsets, np.int64)
    view: memoryview = memoryview(parts.data)  # type: ignore[arg-type]
    inside: list[int] = []
    for i in np.flatnonzero(np.diff(offsets) > _WINDOW_BYTES).tolist():
        at, end = int(offsets[i]), int(offsets[i + 1])
        while at + _WINDOW_BYTES < end:
            found = _BREAK.search(view, at + _WINDOW_BYTES, end)
            if found is None or found.end() >= end:
                break
            at = found.end()
            inside.append(at)
    text_of = np.arange(parts.n_rows)
    if not inside:
        return offsets, text_of
    n_inside = np.diff(np.searchsorted(inside, offsets))
    return np.sort(np.concatenate([offsets, inside])), np.repeat(text_of, n_inside + 1)


def _windows(cuts: Array) -> Iterator[tuple[int, int]]:
    """Ranges of pieces of about _WINDOW_BYTES together, at least one piece each."""
    a, n = 0, len(cuts) - 1
    while a < n:
        b = int(np.searchsorted(cuts, cuts[a] + _WINDOW_BYTES, side="right")) - 1
        b = min(max(b, a + 1), n)
        yield a, b
        a = b
