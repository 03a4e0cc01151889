"""Lists of token ids, of some rows of a column each, put together into one column. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from tamis._lazy import np


class IdLists(NamedTuple):
    """The lists of some rows: `lengths` of each, `ids` (int32) of all, concatenated."""

    rows: np.ndarray[Any, Any]
    lengths: np.ndarray[Any, Any]
    ids: np.ndarray[Any, Any]

    @classmethod
    def of(cls, rows: np.ndarray[Any, Any], lists: Sequence[Sequence[int]]) -> IdLists:
        """Build from lists of Python numbers, one for each row."""
        lengths = np.fromiter(map(len, lists), np.int64, len(lists))
        return cls(rows, lengths, np.fromiter(chain.from_iterable(lists), np.int32, int(lengths.sum())))


def joined(parts: Sequence[IdLists], n_rows: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return (offsets, ids) of a column.

    A row may be in several parts, with a list that is not empty in one of them; in none: it is empty.
    """
    from tamis.kernels.records.json_text import copy_spans

    offsets = np.zeros(n_rows + 1, np.int64)
    for part in parts:
        offsets[1:][part.rows] += part.lengths
    np.cumsum(offsets, out=offsets)
    ids = np.empty(int(offsets[-1]), np.int32)
    for part in parts:
        size, n_bytes = ids.itemsize, part.lengths * ids.itemsize
        starts = np.cumsum(n_bytes) - n_bytes
        copy_spans(part.ids.view(np.uint8), starts, n_bytes, ids.view(np.uint8), size * offsets[:-1][part.rows])
    return offsets, ids


def as_lists(parts: Sequence[IdLists], n_rows: int) -> list[list[int]]:
    """Return the same column as `joined`, as lists of Python numbers."""
    offsets, ids = joined(parts, n_rows)
    return [ids[a:b].tolist() for a, b in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)]


def common_ends(lists: Sequence[list[int]]) -> tuple[list[int], list[int]]:
    """Return the common beginning and the common end of all lists.

    >>> common_ends([[1, 2, 3, 9], [1, 2, 9], [1, 2, 4, 4, 9]])
    ([1, 2], [9])
    """
    suffix = _common_beginning([one[::-1] for one in lists])
    return _common_beginning(lists), suffix[::-1]


def _common_beginning(lists: Sequence[list[int]]) -> list[int]:
    first, last = min(lists), max(lists)
    n = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:n]
