"""The specification of substring deduplication, in plain Python: a dictionary of all windows, and a suffix array.

A window is `length` bytes inside one document. It is repeated if equal bytes begin anywhere else, the same document and
overlaps included.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Spans = list[list[tuple[int, int]]]
Words = npt.NDArray[np.int64]


def spans_of(covered: Sequence[bool]) -> list[tuple[int, int]]:
    """Return the runs of True as (start, end)."""
    spans: list[tuple[int, int]] = []
    for i, is_covered in enumerate(covered):
        if is_covered and spans and spans[-1][1] == i:
            spans[-1] = spans[-1][0], i + 1
        elif is_covered:
            spans.append((i, i + 1))
    return spans


def removed_spans(documents: Sequence[bytes], length: int, keep: str = "first") -> Spans:
    """Return the bytes of each document that go: those of repeated windows.

    `keep="first"`: but for those that a window covers which is the first of its class, in the order of the documents.
    """
    places: dict[bytes, list[tuple[int, int]]] = {}
    for d, document in enumerate(documents):
        for start in range(len(document) - length + 1):
            places.setdefault(document[start : start + length], []).append((d, start))
    gone = [[False] * len(document) for document in documents]
    for equal in places.values():
        for d, start in equal if len(equal) > 1 else []:
            gone[d][start : start + length] = [True] * length
    if keep == "first":
        for equal in places.values():
            if len(equal) > 1:
                d, start = equal[0]
                gone[d][start : start + length] = [False] * length
    return [spans_of(covered) for covered in gone]


def removed_by_suffix_array(documents: Sequence[bytes], length: int, keep: str) -> Spans:
    """`removed_spans`, from a suffix array over all documents: for texts of some size."""
    text = np.frombuffer(b"".join(documents), np.uint8)
    sizes = np.array([len(document) for document in documents], np.int64)
    order = _doubled(text)
    return spans_of_suffix_array(order, _common(text, order) >= length, sizes, length, keep)


def spans_of_suffix_array(order: Words, is_equal: np.ndarray, sizes: Words, length: int, keep: str) -> Spans:
    """Return the spans of documents of these sizes, of which `order` is the suffix array of all, one after the other.

    `is_equal`: whether a suffix shares `length` bytes with the one before it. Classes are runs of such suffixes, those
    that begin too near the end of their document left out.
    """
    ends = np.cumsum(sizes)
    n = int(ends[-1]) if len(ends) else 0
    left = np.repeat(ends, sizes) - np.arange(n)  # bytes up to the end of the document
    run = np.cumsum(~is_equal)
    inside = left[order] >= length
    order, run = order[inside], run[inside]
    first = np.full(int(run.max()) + 1 if len(run) else 1, n, np.int64)
    np.minimum.at(first, run, order)
    repeated = np.bincount(run, minlength=len(first)) > 1
    covered = _covered(order[repeated[run]], length, n)
    if keep == "first":
        covered &= ~_covered(first[repeated], length, n)
    found = []
    for a, b in zip((ends - sizes).tolist(), ends.tolist(), strict=True):
        edges = np.flatnonzero(np.diff(np.concatenate([[False], covered[a:b], [False]]).astype(np.int8)))
        found.append(list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)))
    return found


def _covered(starts: np.ndarray, length: int, n: int) -> np.ndarray:
    edges = np.zeros(n + 1, np.int64)
    np.add.at(edges, starts, 1)
    np.add.at(edges, np.minimum(starts + length, n), -1)
    return np.cumsum(edges)[:-1] > 0


def _doubled(text: np.ndarray) -> np.ndarray:
    rank, step = text.astype(np.int64), 1
    while True:
        second = np.full(len(text), -1, np.int64)
        second[:-step] = rank[step:]
        order = np.lexsort((second, rank))
        new = np.concatenate([[0], np.cumsum((np.diff(rank[order]) != 0) | (np.diff(second[order]) != 0))])
        rank = np.empty(len(text), np.int64)
        rank[order] = new
        step *= 2
        if step >= len(text) or int(new[-1]) == len(text) - 1:
            return order


def _common(text: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return, for each suffix in order, how many bytes it shares with the one before it (Kasai)."""
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    data, common, h = text.tobytes(), np.zeros(len(order), np.int64), 0
    n, ranks, ordered = len(order), rank.tolist(), order.tolist()
    for i in range(n):
        if ranks[i] == 0:
            h = 0
            continue
        j = ordered[ranks[i] - 1]
        while i + h < n and j + h < n and data[i + h] == data[j + h]:
            h += 1
        common[ranks[i]] = h
        h = max(0, h - 1)
    return common
