"""The solver of line deduplication: which lines or paragraphs are cut, and the table to cut by.

Units that have a key are numbered 0 to n-1 in the order of the input. Keys that do not fit in memory together are
written to one file per part of the key space; a part is sorted alone. A part that one repeated unit makes larger than
the others is gone through in chunks twice: to count, and to mark. What goes is written by ranges of unit numbers, so
that the table can be made in the order of the input. Scratch: 16 bytes per unit where there is more than one part, and
4 per unit cut.
"""

from __future__ import annotations

import heapq
import itertools
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.dedup.decisions import position_ids, write_table
from tamis.dedup.lines.records import UnitRecords
from tamis.dedup.lines.table import COLUMNS
from tamis.dedup.position_table import PositionTable
from tamis.dedup.sorting import positions_in, runs, sort_pairs
from tamis.formats.scratch.spilled import Spilled
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import path_text

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import CutLines
    from tamis.dedup.state import Summary

Array = NDArray[Any]
Chunk = tuple[Array, Array]  # keys, and numbers of their units
BYTES_PER_KEY = 80  # key, number and place (20), the room to sort (12), what is chosen of them, slack
N_MOST = 1000  # of the units that occur most often are listed
_MAX_PART_BITS = 14


@dataclass
class CutTotals:
    """Counts of the decisions."""

    n_groups: int = 0
    largest: int = 0
    sizes: dict[str, int] = field(default_factory=dict)
    most: list[tuple[int, int]] = field(default_factory=list)  # (occurrences, minus the first unit's number)


def decide_lines(step: CutLines, run: SolverRun) -> None:
    """Decide which units are cut, and write it down."""
    run.state.summary.write(cut_lines(step, run))


def cut_lines(step: CutLines, run: SolverRun) -> Summary:
    """Write the removal table and the list of the most frequent units; return the summary."""
    folder, room_bytes, say = run.folder, run.room_bytes, run.progress
    records = UnitRecords(run.task.records)
    scratch = os.path.join(folder, "lines")
    shutil.rmtree(scratch, ignore_errors=True)  # of an earlier attempt
    os.makedirs(scratch)
    chunk = max(1, room_bytes // BYTES_PER_KEY)
    rule = step
    marks = _Marks(os.path.join(scratch, "cut"), records, room_bytes)
    totals = CutTotals()
    parts = _parts(records, scratch, chunk, say("sorting lines"))
    progress = say("repeated lines")
    for i, part in enumerate(parts):
        _decide(part, chunk, rule, marks, totals)
        progress((i + 1) / len(parts))
    paths = run.paths()
    counts = _write_table(records, marks, os.path.join(folder, "removal"), len(paths))
    _write_most(records, totals, run.task.duplicates, paths)
    shutil.rmtree(scratch, ignore_errors=True)
    return {
        "n_documents": records.n_documents,
        "n_duplicates": marks.n,
        "n_groups": totals.n_groups,
        "largest_group": totals.largest,
        "group_sizes": totals.sizes,
        "n_long_enough": records.n_keys,
        **counts,
    }


class _KeyPart:
    """Units of one part of the key space, in the order of the input; read as often as needed."""

    def __init__(self, n_keys: int, read: Callable[[int], Iterator[Chunk]]) -> None:
        self.n_keys, self.read = n_keys, read


def _parts(records: UnitRecords, scratch: str, chunk: int, progress: Any) -> list[_KeyPart]:
    if records.n_keys <= chunk:
        return [_KeyPart(records.n_keys, records.iter_keys)]
    n_bits = 1
    while records.n_keys >> n_bits > chunk * 4 // 5 and n_bits < _MAX_PART_BITS:
        n_bits += 1
    sizes = np.zeros(1 << n_bits, np.int64)
    spilled = Spilled(os.path.join(scratch, "keys"))
    waiting: list[list[Chunk]] = [[] for _ in sizes]
    n_waiting = done = 0
    for keys, numbers in records.iter_keys(max(1, chunk // 4)):
        part = (keys >> np.uint64(64 - n_bits)).astype(np.uint16)
        order = np.argsort(part, kind="stable")
        n_each = np.bincount(part, minlength=len(sizes))
        ends = np.cumsum(n_each)
        keys, numbers = keys[order], numbers[order]
        for p in np.flatnonzero(n_each).tolist():
            at = slice(int(ends[p] - n_each[p]), int(ends[p]))
            waiting[p].append((keys[at], numbers[at]))
        sizes += n_each
        n_waiting += len(keys)
        done += len(keys)
        if n_waiting * 2 > chunk:
            _flush(spilled, waiting)
            n_waiting = 0
            progress(done / records.n_keys)
    _flush(spilled, waiting)
    return [_KeyPart(int(n), _reader(spilled, p, int(n))) for p, n in enumerate(sizes) if n]


def _flush(spilled: Spilled, waiting: list[list[Chunk]]) -> None:
    """Write the keys of part p to bucket 2p, and the numbers of their units to bucket 2p + 1."""
    for p, chunks in enumerate(waiting):
        for k in (0, 1):
            if chunks:
                spilled.add(2 * p + k, np.concatenate([c[k] for c in chunks]))
        chunks.clear()


def _reader(spilled: Spilled, p: int, n_keys: int) -> Callable[[int], Iterator[Chunk]]:
    def read(most: int) -> Iterator[Chunk]:
        for first in range(0, n_keys, most):
            yield spilled.read(2 * p, np.uint64, first, most), spilled.read(2 * p + 1, np.uint64, first, most)

    return read


def _decide(part: _KeyPart, chunk: int, rule: CutLines, marks: _Marks, totals: CutTotals) -> None:
    """Mark what goes of one part."""
    if part.n_keys <= chunk:
        keys, numbers = _joined(part.read(chunk))
        place = np.arange(len(keys), dtype=np.uint32)
        sort_pairs(keys, place)
        starts, ends = runs(keys)
        often = ends - starts >= rule.min_count
        starts, ends = starts[often], ends[often]
        _count(totals, ends - starts, numbers[place[starts]])
        indices = positions_in(starts + rule.keep_first, ends)
        marks.add(np.sort(numbers[place[indices]]))
        return
    # One unit that is everywhere: no part of the key space that holds it is small. Keys are counted chunk by chunk.
    most = max(1, chunk // 4)
    keys, counts, firsts = np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.uint64)
    for some, numbers in part.read(most):
        new, indices, n = np.unique(some, return_index=True, return_counts=True)
        keys, counts, firsts = _merged([keys, new], [counts, n], [firsts, numbers[indices]])
    often = counts >= max(2, rule.min_count)
    keys, firsts = keys[often], firsts[often]
    _count(totals, counts[often], firsts)
    for some, numbers in part.read(most):
        indices = np.minimum(np.searchsorted(keys, some), max(len(keys) - 1, 0))
        gone = keys[indices] == some if len(keys) else np.zeros(len(some), bool)
        if rule.keep_first and len(keys):
            gone &= firsts[indices] != numbers
        marks.add(numbers[gone])


def _joined(chunks: Iterator[Chunk]) -> Chunk:
    read = [(np.empty(0, np.uint64), np.empty(0, np.uint64)), *chunks]
    return np.concatenate([k for k, _ in read]), np.concatenate([n for _, n in read])


def _merged(keys: list[Array], counts: list[Array], firsts: list[Array]) -> tuple[Array, Array, Array]:
    """Merge two sorted lists of keys; of equal keys the first number is that of the first list."""
    key, count, first = np.concatenate(keys), np.concatenate(counts), np.concatenate(firsts)
    order = np.argsort(key, kind="stable")
    key, count, first = key[order], count[order], first[order]
    new = np.ones(len(key), bool)
    new[1:] = key[1:] != key[:-1]
    indices = np.flatnonzero(new)
    return key[indices], np.add.reduceat(count, indices) if len(indices) else count, first[indices]


def _count(totals: CutTotals, sizes: Array, firsts: Array) -> None:
    if not len(sizes):
        return
    totals.n_groups += len(sizes)
    totals.largest = max(totals.largest, int(sizes.max()))
    # 2, 3-4, 5-8, ...: class k holds up to 2**k.
    for k, n in enumerate(np.bincount(np.ceil(np.log2(sizes)).astype(np.int64))[1:].tolist(), 1):
        label = "2" if k == 1 else f"{2 ** (k - 1) + 1}-{2**k}"
        totals.sizes[label] = totals.sizes.get(label, 0) + n
    if len(sizes) > N_MOST:
        indices = np.lexsort((firsts, -sizes))[:N_MOST]
        sizes, firsts = sizes[indices], firsts[indices]
    totals.most = heapq.nlargest(
        N_MOST, [*totals.most, *zip(sizes.tolist(), (-firsts.astype(np.int64)).tolist(), strict=True)]
    )


class _Marks:
    """Numbers of the units that go, by ranges of whole record batches that fit in memory as one byte per unit."""

    def __init__(self, folder: str, records: UnitRecords, room_bytes: int) -> None:
        self._cut_numbers, self.n = Spilled(folder), 0
        most = max(1, room_bytes // 2)
        cuts = [0]
        for i in range(1, records.n_runs):
            if records.bases[i + 1] - records.bases[cuts[-1]] > most:
                cuts.append(i)
        self.runs = [*cuts, records.n_runs]
        self._bounds = records.bases[self.runs]

    def add(self, numbers: Array) -> None:
        """Append numbers, which must ascend."""
        self.n += len(numbers)
        positions = np.searchsorted(numbers, self._bounds)
        for r in np.flatnonzero(np.diff(positions)).tolist():
            mine = (numbers[positions[r] : positions[r + 1]].astype(np.int64) - self._bounds[r]).astype(np.uint32)
            self._cut_numbers.add(r, mine)

    def flags(self, r: int) -> Array:
        """Return one bool per unit of a range: True if it is removed."""
        gone = np.zeros(int(self._bounds[r + 1] - self._bounds[r]), bool)
        for first in range(0, self._cut_numbers.n_bytes(r) // 4, 1 << 20):
            gone[self._cut_numbers.read(r, np.uint32, first, 1 << 20)] = True
        return gone


def _write_table(records: UnitRecords, marks: _Marks, folder: str, n_files: int) -> Summary:
    """Write the removal table, and return the counts that take a walk through all documents."""
    if resolve(folder) == folder:
        shutil.rmtree(folder, ignore_errors=True)
    table, n_cuts = PositionTable(folder, COLUMNS), 0
    units_of, cut_of = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
    n_edited = n_units = n_without_text = 0
    for r, (first, last) in enumerate(itertools.pairwise(marks.runs)):
        gone = marks.flags(r)
        position = 0
        for i in range(first, last):
            facts = records.documents(i)
            bounds = facts["bounds"]
            local = np.flatnonzero(gone[position : position + int(bounds[-1])])
            position += int(bounds[-1])
            n_cut = np.diff(np.searchsorted(local, bounds))
            rows = np.flatnonzero(n_cut)
            if len(rows):
                ends = n_cuts + np.cumsum(n_cut[rows])
                table.add(
                    file=facts["file"][rows],
                    offset=facts["offset"][rows],
                    first=ends - n_cut[rows],
                    end=ends,
                    cuts=records.unit_numbers(i)[local],
                )
                n_cuts += len(local)
            units_of += np.bincount(facts["file"], np.diff(bounds), n_files).astype(np.int64)
            cut_of += np.bincount(facts["file"], n_cut, n_files).astype(np.int64)
            n_edited += len(rows)
            n_units += int(facts["n_units"].sum(dtype=np.int64))
            n_without_text += int(np.count_nonzero(facts["length"] < 0))
    table.close()
    return {
        "n_edited": n_edited,
        "n_units": n_units,
        "n_without_text": n_without_text,
        "documents_by_file": units_of.tolist(),
        "duplicates_by_file": cut_of.tolist(),
    }


def _write_most(records: UnitRecords, totals: CutTotals, folder: str, paths: Sequence[str]) -> None:
    """Write the units that occur most often, with their counts and the position of the first occurrence."""
    by_place = {first: records.place(-first) for first in sorted((f for _, f in totals.most), reverse=True)}
    places = [by_place[first] for _, first in totals.most]
    numbers = np.array([p[0] for p in places], np.int32)
    table = pa.table(
        {
            "id": position_ids(numbers, np.array([p[1] for p in places], np.int64)),
            "unit": pa.array([p[2] for p in places], pa.uint32()),
            "n_occurrences": pa.array([n for n, _ in totals.most], pa.int64()),
            "path": pa.array([path_text(paths[f]) for f in numbers], pa.large_string()),
        }
    )
    os.makedirs(folder, exist_ok=True)
    write_table(os.path.join(folder, "part-00000.parquet"), table)
