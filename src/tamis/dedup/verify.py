"""Which documents of a component really resemble one that stays.

Sharing a band is a hint, and being linked through others is none at all. So the documents of a component are visited in the order in which
they are kept rather; each is compared, by the Jaccard similarity of the two sets of shingles, with those that stay so far, and goes
only if one of them is similar enough. A document is compared with at most MAX_LEADERS that stay, the first ones: in
a giant component some that could go stay, but none goes that resembles nothing.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.texts import StoredTexts
from tamis.kernels.buffers import string_buffers
from tamis.kernels.sketch.similarity import similarities

MAX_LEADERS = 64


class Verifier:
    def __init__(self, texts: StoredTexts, threshold: float, n: int, unit: str, seed: int, room_bytes: int) -> None:
        self.texts, self.threshold, self.room_bytes = texts, threshold, room_bytes
        self.how: dict[str, Any] = {"n": n, "unit": unit, "seed": seed}
        self.n_compared = self.n_capped = 0

    def verify(self, member: NDArray[np.uint32], length: NDArray[np.int64]) -> Iterator[tuple[int, int, float]]:
        """(document, the one it resembles, similarity) for those that go. `member`: one component, best first."""
        leaders: list[int] = []
        for first, last in _chunks(length, self.room_bytes):
            yield from self._chunk(leaders, member[first:last].tolist())

    def _chunk(self, leaders: list[int], members: list[int]) -> Iterator[tuple[int, int, float]]:
        """Compare members with the leaders so far, and with those among them that become one."""
        array = self.texts.array([*leaders, *members])
        parts = string_buffers(array)
        left = np.arange(len(leaders), len(array))
        at = 0
        while len(left):
            if at < len(leaders):
                leader, others = at, left
            elif len(leaders) < MAX_LEADERS:
                leader, others = int(left[0]), left[1:]
                leaders.append(members[leader - (len(array) - len(members))])
            else:
                self.n_capped += len(left)
                return
            at += 1
            left = others
            if not len(others):
                continue
            found = similarities(parts, leader, np.ascontiguousarray(others, np.int64), **self.how)
            self.n_compared += len(others)
            goes = found >= self.threshold
            first_member = len(array) - len(members)
            for row, similarity in zip(others[goes].tolist(), found[goes].tolist(), strict=True):
                yield members[row - first_member], leaders[at - 1], similarity
            left = others[~goes]


def _chunks(length: NDArray[np.int64], room_bytes: int) -> Iterator[tuple[int, int]]:
    """Ranges of a component whose texts fit together, at least one document each."""
    first, total = 0, 0
    for i, size in enumerate(length.tolist()):
        if i > first and total + size > room_bytes:
            yield first, i
            first, total = i, 0
        total += size
    if len(length):
        yield first, len(length)


def verify_components(
    verifier: Verifier,
    member: NDArray[np.uint32],
    root: NDArray[np.uint32],
    length: NDArray[np.int64],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """(number, kept, similarity) over all components. `member` comes by root, and within one best first."""
    cuts = (
        np.concatenate([[0], np.flatnonzero(root[1:] != root[:-1]) + 1, [len(root)]]) if len(root) else np.zeros(1, int)
    )
    gone, kept, similarity = array("I"), array("I"), array("f")  # 12 bytes per duplicate
    for a, b in itertools.pairwise(cuts.tolist()):
        for number, stays, alike in verifier.verify(member[a:b], length[a:b]):
            gone.append(number)
            kept.append(stays)
            similarity.append(alike)
    return np.array(gone, np.uint32), np.array(kept, np.uint32), np.array(similarity, np.float32)
