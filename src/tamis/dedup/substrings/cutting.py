"""Turn passages, as they were compared, into cuts in a text at boundaries of characters, words or lines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tamis.dedup.substrings.normalization import origins
from tamis.dedup.substrings.table import Passages
from tamis.kernels.buffers import string_array, string_buffers
from tamis.kernels.records.json_text import copy_spans

Array = np.ndarray[Any, Any]
Cut = tuple[Array, Array]  # starts and ends, ascending
_LINE_FEED = 10


def cuts_in(texts: pa.Array, passages: list[Passages], mode: str, edges: str) -> list[Cut]:
    """Return the cuts of each text (none null); a passage that holds no whole character, word or line gives none."""
    parts = string_buffers(texts)
    cuts = []
    for a, b, passage in zip(parts.offsets[:-1].tolist(), parts.offsets[1:].tolist(), passages, strict=True):
        text = parts.data[a:b]
        starts, ends = passage.start.astype(np.int64), passage.stop.astype(np.int64)
        places = origins(text, mode)
        if places is not None:
            # After its last byte, so that the rest of a run of whitespace stays.
            starts, ends = places[starts], places[ends - 1] + 1
        cuts.append(_whole(text, starts, ends, edges))
    return cuts


def _whole(text: Array, starts: Array, ends: Array, edges: str) -> Cut:
    """Move starts forward and ends back to the nearest edge."""
    allowed = _edges(text, edges)
    first = allowed[np.minimum(np.searchsorted(allowed, starts), len(allowed) - 1)]
    last = allowed[np.maximum(np.searchsorted(allowed, ends, side="right") - 1, 0)]
    inside = (first >= starts) & (last <= ends) & (first < last)
    return first[inside], last[inside]


def _edges(text: Array, edges: str) -> Array:
    """Return the places in a text where cuts may begin and end."""
    n = len(text)
    is_edge = np.ones(n + 1, bool)
    if edges == "lines":
        is_edge[1:n] = text[:-1] == _LINE_FEED
    elif edges == "words":
        spaces = ((text >= 9) & (text <= 13)) | (text == 32)
        is_edge[1:n] = spaces[:-1] & ~spaces[1:]  # where words begin: what is before and after stays apart
    else:
        is_edge[:n] = (text & 0xC0) != 0x80
    return np.flatnonzero(is_edge)


def cut_out(texts: pa.Array, cuts: list[Cut]) -> pa.Array:
    """Return the texts without their cuts."""
    parts = string_buffers(texts)
    rows, starts, sizes = [], [], []
    for number, (a, b, (first, last)) in enumerate(
        zip(parts.offsets[:-1].tolist(), parts.offsets[1:].tolist(), cuts, strict=True)
    ):
        begins, ends = np.concatenate([[0], last]), np.concatenate([first, [b - a]])
        rows.append(np.full(len(begins), number))
        starts.append(begins + a)
        sizes.append(ends - begins)
    row, start, size = (np.concatenate(v).astype(np.int64) for v in (rows, starts, sizes))
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, size, len(cuts)).astype(np.int64))])
    out = np.empty(int(offsets[-1]), np.uint8)
    copy_spans(parts.data, start, size, out, np.cumsum(size) - size)
    return string_array(offsets, out)
