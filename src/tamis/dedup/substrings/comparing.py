"""The second step of the solver: candidates of a group are compared by their texts, and everything is written down.

Groups are taken as many at a time as fit. One that alone does not fit is divided: all windows that begin `low` to
`high` bytes before a k-gram contain the bytes between the first of their ends and the last of their beginnings, so
that candidates with other bytes there share none of them. The fewer offsets are looked at together, the more bytes
that is, and at one offset it is the window: candidates that still do not fit then have equal windows (by 128 bits of
hash).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.sorting import cuts_between
from tamis.dedup.substrings.grouping import OpenGroups, StepFolders, occurrence_spans, place_of
from tamis.dedup.substrings.records import ContextTexts
from tamis.dedup.substrings.spans import SpanFiles
from tamis.dedup.substrings.table import write_removal
from tamis.errors import FormatError
from tamis.formats.scratch.stored_arrays import StoredArray, open_npy
from tamis.kernels.records.hash128 import hash_spans
from tamis.kernels.substrings.classes import BYTES_PER_CANDIDATE, Repeats, find_repeats
from tamis.stores.scratch_files import resolve

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import CompareWindows

Array = NDArray[Any]
_BYTES_PER_OCCURRENCE = 200  # while its spans are made


def compare_windows(step: CompareWindows, run: SolverRun) -> None:
    """Decide the groups that need texts, and write the spans to remove."""
    folders = StepFolders(run.folder)
    groups = run.state.passage_groups.read()
    assert groups is not None, "the step before this one writes it"
    shutil.rmtree(folders.compared, ignore_errors=True)  # of an earlier attempt
    spans = SpanFiles(folders.compared, groups.ranges, first=groups.n_indexed)
    if step.files():
        comparer = _Comparer(step, run, folders, spans, groups.n_parts)
        progress = run.progress("comparing passages")
        for done in comparer.run():
            progress(done)
        comparer.close()
    summary = write_removal(step, run, folders, groups)
    run.state.summary.write({**(run.state.candidates.read() or {}), **summary})


class _Candidates:
    """Different selections of some groups: what is compared. `count`, `first`: of each how often, and where first."""

    def __init__(self, groups: OpenGroups) -> None:
        self.groups, self.rows = groups, groups.candidates
        self.bounds = np.concatenate([[0], np.cumsum(self.rows["n"], dtype=np.int64)])  # of the occurrences of each
        self.count = np.ascontiguousarray(self.rows["count"])
        self.first = place_of(self.rows)
        self.high = (self.rows["reach"] >> np.uint32(16)).astype(np.int64)
        self.low = (self.rows["reach"] & np.uint32(0xFFFF)).astype(np.int64)

    def __len__(self) -> int:
        return len(self.rows)


class _Comparer:
    def __init__(
        self, step: CompareWindows, run: SolverRun, folders: StepFolders, spans: SpanFiles, n_parts: int
    ) -> None:
        self._n_parts = n_parts
        self._length, self._room_bytes = step.min_bytes, run.room_bytes
        self._folders, self._spans = folders, spans
        self._texts = ContextTexts(step.texts, run.folder, step.indexed_texts)
        self._numbers: StoredArray = open_npy(resolve(folders.path("substrings-candidates.npy")))
        if len(self._texts) != len(self._numbers):
            raise FormatError(
                f"{len(self._numbers):,} texts of candidates expected, {len(self._texts):,} found; start over with "
                "fresh (--fresh)"
            )
        self._places: Array = np.empty(0, np.uint64)  # of the texts of the candidates that are compared now

    def close(self) -> None:
        self._texts.close()

    def run(self) -> Iterator[float]:
        """Compare all groups; yield the share that is done."""
        n_done = 0
        for p in range(self._n_parts):
            candidates = _Candidates(OpenGroups(self._folders, p))
            if not len(candidates):
                continue
            self._places = self._locate(candidates)
            firsts = cuts_between(candidates.rows["group"])
            total = np.concatenate([[0], np.cumsum(self._needed(candidates.high, candidates.low))])
            g = 0
            while g < len(firsts) - 1:
                # As many groups as fit, at least one.
                most = total[firsts[g]] + self._room_bytes // 2
                after = max(g + 1, int(np.searchsorted(total[firsts], most, side="right")) - 1)
                chosen = np.arange(firsts[g], firsts[after])
                if after == g + 1 and total[firsts[after]] > most:
                    self._divide(
                        candidates, chosen, int(candidates.low[chosen].min()), int(candidates.high[chosen].max())
                    )
                else:
                    self._compare(candidates, chosen, firsts[g : after + 1] - firsts[g], None)
                g = after
            n_done += len(candidates)
            yield n_done / max(1, len(self._numbers))

    def _needed(self, high: Array, low: Array) -> Array:
        return BYTES_PER_CANDIDATE + self._length + high - low

    def _locate(self, candidates: _Candidates) -> Array:
        """Return the place of the text of each candidate: its number is that of its place among all."""
        order = np.argsort(candidates.first, kind="stable")
        wanted, numbers = candidates.first[order], np.empty(len(order), np.int64)
        step = 1 << 20
        for begin in range(0, len(self._numbers), step):
            some = self._numbers.read(begin, begin + step)
            a, b = np.searchsorted(wanted, some[0]), np.searchsorted(wanted, some[-1], side="right")
            numbers[a:b] = begin + np.searchsorted(some, wanted[a:b])
        places = np.empty(len(order), np.uint64)
        places[order] = self._texts.locate(numbers)
        return places

    def _compare(self, candidates: _Candidates, chosen: Array, bounds: Array, offsets: tuple[int, int] | None) -> None:
        """Compare the windows of groups of candidates, all of them or those at some offsets."""
        low, high = candidates.low[chosen], candidates.high[chosen]
        if offsets is not None:
            low, high = np.maximum(low, offsets[0]), np.minimum(high, offsets[1])
        text, place = self._texts.read(self._places[chosen], high, self._length - low)
        first, count = candidates.first[chosen], candidates.count[chosen]
        repeats = find_repeats(text, place, low, high, first, count, np.asarray(bounds, np.int64), self._length)
        del text
        self._write(candidates, chosen, repeats)

    def _write(self, candidates: _Candidates, chosen: Array, repeats: Repeats) -> None:
        """Write the spans of all occurrences of candidates with repeated windows."""
        order = np.argsort(chosen[repeats.candidate], kind="stable")
        which = chosen[repeats.candidate][order]
        high, low, count, first = (v[order] for v in (repeats.high, repeats.low, repeats.count, repeats.first))
        sizes = candidates.bounds[which + 1] - candidates.bounds[which]
        step = max(1, self._room_bytes // 8 // _BYTES_PER_OCCURRENCE)
        ends = np.cumsum(sizes)
        begin = 0
        while begin < len(which):
            before = int(ends[begin - 1]) if begin else 0
            after = max(begin + 1, int(np.searchsorted(ends, before + step, side="right")))
            some = slice(begin, after)
            for at, n in self._pieces(candidates, which[some], sizes[some], step):
                rows = candidates.groups.occurrences(at)
                high_of, low_of, reach, count_of = (
                    np.repeat(values[some], n) for values in (high, low, candidates.rows["reach"][which], count)
                )
                firsts = np.repeat(candidates.rows[chosen[first[some]]], n)
                self._spans.add(occurrence_spans(rows, high_of, low_of, reach, firsts, count_of, self._length))
            begin = after

    def _pieces(self, candidates: _Candidates, which: Array, sizes: Array, step: int) -> Iterator[tuple[Array, Array]]:
        """Yield the occurrences of candidates and their number per candidate; a frequent candidate comes in pieces."""
        begins = candidates.bounds[which]
        if len(which) > 1:
            yield np.repeat(begins - np.cumsum(sizes) + sizes, sizes) + np.arange(int(sizes.sum())), sizes
            return
        for first in range(int(begins[0]), int(begins[0] + sizes[0]), step):
            indices = np.arange(first, min(first + step, int(begins[0] + sizes[0])))
            yield indices, np.array([len(indices)])

    # -- groups that do not fit ---------------------------------------------------------------------------------------
    def _divide(self, candidates: _Candidates, chosen: Array, low: int, high: int) -> None:
        """Compare one group of candidates at offsets `low` to `high`, which does not fit into the memory."""
        for a, b in [(low, high)] if low == high else _halves(low, high):
            mine = chosen[(candidates.low[chosen] <= b) & (candidates.high[chosen] >= a)]
            order, bounds = self._by_common_bytes(candidates, mine, a, b)
            mine = mine[order]
            need = np.minimum(candidates.high[mine], b) - np.maximum(candidates.low[mine], a)
            need += BYTES_PER_CANDIDATE + self._length
            total = np.concatenate([[0], np.cumsum(need)])
            g = 0
            while g < len(bounds) - 1:
                most = total[bounds[g]] + self._room_bytes // 2
                after = max(g + 1, int(np.searchsorted(total[bounds], most, side="right")) - 1)
                some = mine[bounds[g] : bounds[after]]
                if after > g + 1 or total[bounds[after]] <= most:
                    self._compare(candidates, some, bounds[g : after + 1] - bounds[g], (a, b))
                elif a < b:
                    self._divide(candidates, some, a, b)
                else:
                    self._all_equal(candidates, some, a)
                g = after

    def _by_common_bytes(self, candidates: _Candidates, mine: Array, low: int, high: int) -> tuple[Array, Array]:
        """Sort candidates by the bytes that all their windows at these offsets contain; return order and groups."""
        hi, lo = np.empty(len(mine), np.uint64), np.empty(len(mine), np.uint64)
        before, after = low, self._length - high
        step = max(1, self._room_bytes // 4 // (before + after + 64))
        for begin in range(0, len(mine), step):
            some = slice(begin, begin + step)
            n = len(mine[some])
            text, place = self._texts.read(self._places[mine[some]], np.full(n, before), np.full(n, after))
            hi[some], lo[some] = hash_spans(text, place - before, np.full(n, before + after))
        order = np.lexsort((lo, hi))
        new = np.ones(len(order), bool)
        new[1:] = (hi[order][1:] != hi[order][:-1]) | (lo[order][1:] != lo[order][:-1])
        return order, np.append(np.flatnonzero(new), len(order))

    def _all_equal(self, candidates: _Candidates, mine: Array, offset: int) -> None:
        """Write the spans of candidates whose windows at one offset are equal."""
        n = len(mine)
        leader = int(np.argmin(candidates.first[mine]))
        count = min(int(candidates.count[mine].sum()), (1 << 32) - 1)
        if count < 2:
            return
        at = np.full(n, offset, np.int32)
        repeats = Repeats(
            np.arange(n, dtype=np.int32), at, at, np.full(n, leader, np.int32), np.full(n, count, np.uint32)
        )
        self._write(candidates, mine, repeats)


def _halves(low: int, high: int) -> list[tuple[int, int]]:
    middle = (low + high) // 2
    return [(low, middle), (middle + 1, high)]
