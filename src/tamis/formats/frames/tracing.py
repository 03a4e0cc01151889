"""Which record a row of a returned frame came from, when its index says nothing any more. Pure: arrays in, positions out.

`reset_index`, `sort_values(ignore_index=True)`, `concat`, `merge` and `explode` throw the index away, but they move references to
the objects in the cells. An object that the frame was given and that is still in the row therefore names the row it came
from. Objects that Python keeps only once (None, true, small integers, texts of one character) name nobody. Where the
objects of a row contradict each other, most of those that stand in one row only decide; without a majority the row is not
traced. A row without any such object is traced if it has the values of one row, and of no other, in all columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tamis.formats.columns.canonical import canonical_text

Array = np.ndarray[Any, Any]
_SHARED_INTS = 1 << 16  # CPython keeps small integers once: up to 256 today, which may grow


class Handed:
    """Objects that were given out, with the position of the row each was given in."""

    def __init__(self, columns: Sequence[tuple[Array, Array]]) -> None:
        """`columns`: the objects of a column, and the position of the row of each."""
        ids, rows = [], []
        for objects, positions in columns:
            own = np.fromiter(map(own_id, objects), np.int64, len(objects))
            at = np.flatnonzero(own)
            ids.append(own[at])
            rows.append(positions[at])
        known = np.concatenate([np.empty(0, np.int64), *ids])
        row = np.concatenate([np.empty(0, np.int64), *rows])
        order = np.argsort(known, kind="stable")
        known, row = known[order], row[order]
        # One object in two rows (what a stage put there itself) names neither.
        twice = np.zeros(len(known), bool)
        twice[1:] = (known[1:] == known[:-1]) & (row[1:] != row[:-1])
        twice[:-1] |= twice[1:]
        self._ids, self._rows = known[~twice], row[~twice]

    def rows_of(self, objects: Array) -> Array:
        """Return the position in which each object was handed out, or -1 if it was not."""
        found = np.full(len(objects), -1, np.int64)
        if len(self._ids):
            mine = np.fromiter(map(id, objects), np.int64, len(objects))
            at = np.minimum(np.searchsorted(self._ids, mine), len(self._ids) - 1)
            hit = self._ids[at] == mine
            found[hit] = self._rows[at[hit]]
        return found


def own_id(value: Any) -> int:
    """Return the id of an object that cannot be shared by chance, or 0 for objects of which Python keeps one copy."""
    kind = type(value)
    if kind is str:
        return id(value) if len(value) > 1 else 0
    if kind is int:
        return id(value) if abs(value) > _SHARED_INTS else 0
    return id(value) if kind in (float, dict, list, np.ndarray) else 0


def by_objects(handed: Handed, columns: Sequence[Array]) -> Array:
    """Return the position that the objects of each row agree on, or -1 for none or several.

    All columns have the same length.
    """
    votes = np.stack([handed.rows_of(objects) for objects in columns], axis=1)
    found: Array = votes.max(axis=1)
    split = np.flatnonzero(((votes >= 0) & (votes != found[:, None])).any(axis=1))
    if len(split):
        single = np.zeros(votes.shape, bool)
        for k, objects in enumerate(columns):
            _, where, times = np.unique([id(v) for v in objects], return_inverse=True, return_counts=True)
            single[:, k] = times[where] == 1
        for i in split.tolist():
            found[i] = _majority(votes[i][single[i] & (votes[i] >= 0)])
    return found


def _majority(votes: Array) -> int:
    """Return the value that more than half of the votes name, or -1 if there is none."""
    values, times = np.unique(votes, return_counts=True)
    return int(values[times.argmax()]) if len(votes) and times.max() * 2 > len(votes) else -1


def by_values(parents: Sequence[Sequence[Any]], children: Sequence[Sequence[Any]], alike: Sequence[Any]) -> Array:
    """Return, for each child row, the position of the one parent with the same values in all columns.

    The position is -1 if there is none, or if there are several that differ otherwise. `parents`, `children`: columns
    in
    the same order. `alike`: for each parent, a value (a hash) that is equal where records are equal; of several equal
    parents each is named once, then the last again.
    """
    positions: dict[tuple[Any, ...], list[int]] = {}
    for i, row in enumerate(zip(*parents, strict=True)):
        positions.setdefault(tuple(map(_key, row)), []).append(i)
    found = []
    for row in zip(*children, strict=True):
        same = positions.get(tuple(map(_key, row)), [])
        if len({alike[i] for i in same}) == 1:
            found.append(same.pop(0) if len(same) > 1 else same[0])
        else:
            found.append(-1)
    return np.array(found, np.int64)


def _key(value: Any) -> Any:
    """Equal for values that are the same in JSON: 1 and 1.0, but neither true nor "1"."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "bool", value
    return ("number", value) if isinstance(value, (int, float)) else ("other", canonical_text(value))
