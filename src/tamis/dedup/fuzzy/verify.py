"""Verify the candidates of a component: a document is removed only if it really resembles one that stays.

Sharing a band is a hint, and being linked through others is none at all. So the documents of a component are visited in
order of preference; each is compared, by the Jaccard similarity of the two sets of shingles, with the leaders, those
that stay so far, and is removed only if one of them is similar enough. A document is compared with at most MAX_LEADERS
leaders: in a giant component some duplicates stay, but no document is removed that resembles none that stays.
"""

from __future__ import annotations

import copy
from array import array
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.fuzzy.candidate_texts import StoredTexts
from tamis.dedup.sorting import cuts_between
from tamis.kernels.buffers import StringBuffers, string_buffers
from tamis.kernels.sketch.similarity import lead
from tamis.memory.release import thread_stack

MAX_LEADERS = 64
_LOT_DOCUMENTS = 1 << 16  # of small components, compared together
_LOT_BYTES = 8 << 20
Array = NDArray[Any]


class Verifier:
    """Compares the documents of components, in one thread, within its share of the memory."""

    def __init__(self, texts: StoredTexts, threshold: float, n: int, unit: str, seed: int, room_bytes: int) -> None:
        self.texts, self.threshold, self.room_bytes = texts, threshold, room_bytes
        self.shingling: dict[str, Any] = {"n": n, "unit": unit, "seed": seed}
        self.n_compared = self.n_capped = 0

    @property
    def lot_bytes(self) -> int:
        return min(self.room_bytes, _LOT_BYTES)

    def several(self, n: int) -> list[Verifier]:
        """Return this verifier and copies of it, one for each of `n` threads, sharing the memory of this one."""
        self.room_bytes //= n
        others = [copy.copy(self) for _ in range(1, n)]
        for verifier in others:
            verifier.texts = self.texts.another()
        return [self, *others]

    def verify(
        self, member: NDArray[np.uint32], length: NDArray[np.int64], room_bytes: int
    ) -> Iterator[tuple[int, int, float]]:
        """Yield (document, the one it resembles, similarity) for duplicates. `member`: one component, best first.

        Holds texts of at most twice `room_bytes`, and at least two documents: a chunk of members, and some of the
        leaders before it at a time.
        """
        leaders: list[int] = []  # positions in `member`
        for first, last in _chunks(length, room_bytes):
            remaining = np.arange(first, last)
            for a, b in _chunks(length[leaders], room_bytes):
                remaining = yield from self._compared(member, leaders[a:b], remaining)
            remaining = yield from self._among(member, leaders, remaining)
            self.n_capped += len(remaining)

    def _compared(
        self, member: Array, leaders: list[int], remaining: Array
    ) -> Generator[tuple[int, int, float], None, Array]:
        """Compare the remaining documents of a chunk with some leaders; return those that remain after that."""
        parts = self._texts(member, [*leaders, *remaining.tolist()])
        rows = np.arange(len(leaders), parts.n_rows)
        for k, leader in enumerate(leaders):
            is_similar = yield from self._compare_with(member, leader, remaining, parts, k, rows)
            remaining, rows = remaining[~is_similar], rows[~is_similar]
        return remaining

    def _among(
        self, member: Array, leaders: list[int], remaining: Array
    ) -> Generator[tuple[int, int, float], None, Array]:
        """Compare the rest of a chunk with each other: the first becomes a leader, until there are too many."""
        parts = self._texts(member, remaining.tolist())
        rows = np.arange(parts.n_rows)
        while len(remaining) and len(leaders) < MAX_LEADERS:
            leader, row = int(remaining[0]), int(rows[0])
            leaders.append(leader)
            remaining, rows = remaining[1:], rows[1:]
            is_similar = yield from self._compare_with(member, leader, remaining, parts, row, rows)
            remaining, rows = remaining[~is_similar], rows[~is_similar]
        return remaining

    def _compare_with(
        self, member: Array, leader: int, remaining: Array, parts: StringBuffers, row: int, rows: Array
    ) -> Generator[tuple[int, int, float], None, NDArray[np.bool_]]:
        if not len(remaining):
            return np.zeros(0, bool)
        is_similar, similarities = self._follow(parts, row, rows)
        self.n_compared += len(remaining)
        for position, similarity in zip(remaining[is_similar].tolist(), similarities[is_similar].tolist(), strict=True):
            yield int(member[position]), int(member[leader]), similarity
        return is_similar

    def _follow(self, parts: StringBuffers, row: int, rows: Array) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
        """Return which of these documents resemble that of `row`, and how much.

        Uses the kernel that compares lots of components: where the sets of shingles are so large that they are
        thinned, it gives up documents that cannot reach the threshold before `similarities` would estimate it, and
        the decision must not depend on the memory available.
        """
        order = np.concatenate([np.array([row], np.int64), np.asarray(rows, np.int64)])
        cuts = np.array([0, len(order)], np.int64)
        leader, similarity, _, _ = lead(parts, cuts, self.threshold, 1, order=order, **self.shingling)
        return leader[1:] == 0, similarity[1:]

    def verify_lot(self, member: Array, cuts: Array) -> tuple[Array, Array, Array]:
        """Return (number, kept, similarity) for components member[cuts[i]:cuts[i + 1]] whose texts fit together."""
        texts, places = self.texts.lot(member)
        leader, similarity, n_compared, n_capped = lead(
            string_buffers(texts), cuts, self.threshold, MAX_LEADERS, order=places, **self.shingling
        )
        self.n_compared += n_compared
        self.n_capped += n_capped
        removed = np.flatnonzero(leader != np.arange(len(member)))
        return member[removed], member[leader[removed]], similarity[removed].astype(np.float32)

    def _texts(self, member: Array, places: list[int]) -> StringBuffers:
        return string_buffers(self.texts.array(member[np.array(places, np.int64)]))


def _chunks(length: NDArray[np.int64], room_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of documents whose texts fit together, at least one document each."""
    first, total = 0, 0
    for i, size in enumerate(length.tolist()):
        if i > first and total + size > room_bytes:
            yield first, i
            first, total = i, 0
        total += size
    if len(length):
        yield first, len(length)


def verify_components(
    verifiers: Sequence[Verifier], member: NDArray[np.uint32], root: NDArray[np.uint32], length: NDArray[np.int64]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return (number, kept, similarity) over all components. `member` is sorted by root, then best first.

    Lots of components are compared by as many threads as there are verifiers (the kernels hold no lock); the result
    does not depend on how many. A component that is too large for one of them follows alone, with the memory of all: at
    least two of its documents are held.
    """
    if not len(root):
        return np.empty(0, np.uint32), np.empty(0, np.uint32), np.empty(0, np.float32)
    cuts = cuts_between(root)
    free: SimpleQueue[Verifier] = SimpleQueue()
    for verifier in verifiers:
        free.put(verifier)

    def verify(lot: tuple[int, int]) -> tuple[Array, Array, Array] | None:
        first, last = lot
        a, b = int(cuts[first]), int(cuts[last])
        verifier = free.get()
        try:
            if last == first + 1 and int(np.maximum(length[a:b], 0).sum()) > verifier.room_bytes:
                return None
            return verifier.verify_lot(member[a:b], cuts[first : last + 1] - a)
        finally:
            free.put(verifier)

    lots = list(_lots(cuts, length, verifiers[0].lot_bytes))
    if len(verifiers) == 1:
        results = [verify(lot) for lot in lots]
    else:
        thread_stack()
        with ThreadPoolExecutor(len(verifiers), "verify") as pool:
            results = list(pool.map(verify, lots))
    room_bytes = verifiers[0].room_bytes * len(verifiers)
    parts = [
        part
        if part is not None
        else _large(verifiers[0], member[cuts[i] : cuts[j]], length[cuts[i] : cuts[j]], room_bytes)
        for part, (i, j) in zip(results, lots, strict=True)
    ]
    number, partners, similarity = (np.concatenate([p[k] for p in parts]) for k in range(3))
    return number, partners, similarity


def _large(verifier: Verifier, member: Array, length: Array, room_bytes: int) -> tuple[Array, Array, Array]:
    """Verify one component that may not fit into memory, a chunk at a time."""
    numbers, partners, similarities = array("I"), array("I"), array("f")  # 12 bytes per duplicate
    for number, leader, similarity in verifier.verify(member, length, room_bytes):
        numbers.append(number)
        partners.append(leader)
        similarities.append(similarity)
    return np.array(numbers, np.uint32), np.array(partners, np.uint32), np.array(similarities, np.float32)


def _lots(cuts: Array, length: NDArray[np.int64], room_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield ranges of components whose texts fit together; one that fits with no other comes alone."""
    ends = np.concatenate([[0], np.cumsum(np.maximum(length, 0))])[cuts]  # bytes before each component
    first, n = 0, len(cuts) - 1
    while first < n:
        by_bytes = int(np.searchsorted(ends, ends[first] + room_bytes, side="right")) - 1
        by_number = int(np.searchsorted(cuts, cuts[first] + _LOT_DOCUMENTS, side="right")) - 1
        last = max(first + 1, min(by_bytes, by_number))
        yield first, last
        first = last
