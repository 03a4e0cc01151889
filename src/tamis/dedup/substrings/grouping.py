"""The first step of the solver: selections with equal k-grams are grouped, and most groups are decided at once.

Windows can only be equal where their selections have equal k-grams. A selection whose k-gram occurs once has no
repeated window. In a group whose selections agree in all bytes of all their windows (by 128 bits of hashes: 64 of the
k-gram, 64 of the bytes), all windows are repeated, and the first selection has the first ones. The others are written
down, once for all occurrences, and a second pass over the input collects their texts.

Scratch: 12 bytes for each occurrence in a group that is not decided, 44 for each different one in it, and 24 for each
range of bytes that is found to be repeated.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tamis.dedup.planning import BYTES_PER_SELECTION
from tamis.dedup.position_table import PositionTable
from tamis.dedup.sorting import cuts_between, positions_in, sort_pairs
from tamis.dedup.state import PassageGroups
from tamis.dedup.substrings.indexed import IndexedDocuments
from tamis.dedup.substrings.records import KeyParts, SelectionRecords, gather
from tamis.dedup.substrings.spans import BYTES_PER_SPAN, NO_DOCUMENT, SpanFiles, make_spans
from tamis.files import write_json
from tamis.formats.scratch.spilled import Spilled
from tamis.formats.scratch.stored_arrays import NpyWriter, open_npy
from tamis.stores.scratch_files import resolve

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import GroupSelections

Array = NDArray[Any]
CANDIDATE = np.dtype(
    [("group", "<u4"), ("doc", "<u4"), ("position", "<u4"), ("reach", "<u4"), ("count", "<u4"), ("n", "<u4")]
)
"""A selection that is compared, with its first occurrence; `n` occurrences, which may be runs; `count` counts these."""
OCCURRENCE = np.dtype([("doc", "<u4"), ("position", "<u4"), ("span", "<u4")])
_READ = 1 << 17  # occurrences that are read at once
_MOST = (1 << 32) - 1  # that a count can be
_WANTED = np.dtype([("doc", "<u4"), ("position", "<u4"), ("reach", "<u4")])
WANTED_COLUMNS = {"file": "<i4", "offset": "<i8", "first": "<i8", "end": "<i8", "position": "<u4", "reach": "<u4"}


@dataclass(frozen=True)
class StepFolders:
    """Folders in which the steps of the solver store their results, below the folder of files between passes."""

    folder: str

    def path(self, *names: str) -> str:
        return os.path.join(self.folder, *names)

    @property
    def documents(self) -> str:
        """File, offset and length of each document."""
        return self.path("substrings-documents")

    @property
    def decided(self) -> str:
        """Spans of groups that were decided without texts."""
        return self.path("substrings-decided")

    @property
    def compared(self) -> str:
        """Spans of groups that were decided by their texts."""
        return self.path("substrings-compared")

    @property
    def open(self) -> str:
        """Occurrences in groups that take texts to decide, by part of the key space."""
        return self.path("substrings-open")

    @property
    def wanted(self) -> str:
        """A table of places: the candidates in the input whose texts are needed."""
        return self.path("candidates")

    @property
    def wanted_of_index(self) -> str:
        """A table of places: the candidates in an index whose texts are needed."""
        return self.path("candidates-of-index")


def group_selections(step: GroupSelections, run: SolverRun) -> None:
    """Decide the groups that need no texts, and list the candidates of the others."""
    folders = StepFolders(run.folder)
    for path in (folders.documents, folders.decided, folders.compared, folders.open):
        shutil.rmtree(path, ignore_errors=True)  # of an earlier attempt
    indexed = IndexedDocuments(run.task.index_pins, len(run.paths()))
    records = SelectionRecords(run.task.records, step.indexed)
    records.write_documents(folders.documents, indexed)
    if len(indexed):
        write_json(run.state.all_paths_file, [*run.paths(), *indexed.paths])
    cuts = _document_ranges(records, run.room_bytes)
    grouper = _Grouper(step.min_bytes, folders, cuts, indexed)
    parts = records.parts(BYTES_PER_SELECTION, run.room_bytes)
    progress = run.progress("grouping passages")
    for p in range(len(parts)):
        grouper.add(p, parts)
        progress((p + 1) / len(parts))
    n_candidates, n_indexed = grouper.write_wanted()
    groups = PassageGroups(len(parts), cuts.tolist(), len(indexed), n_indexed)
    run.state.passage_groups.write(groups)
    run.state.candidates.write({"n_candidates": n_candidates, "n_selections": records.n_selections})


def _document_ranges(records: SelectionRecords, room_bytes: int) -> Array:
    """Cut the documents into ranges whose spans fit in memory, between record batches."""
    most = max(1, room_bytes // (2 * BYTES_PER_SPAN))
    cuts, n = [0], 0
    for i, size in enumerate(records.sizes.tolist()):
        if n and n + size > most:
            cuts.append(int(records.bases[i]))
            n = 0
        n += size
    return np.array([*cuts, max(records.n_documents, 1)], np.int64)


class _Grouper:
    def __init__(self, min_bytes: int, folders: StepFolders, cuts: Array, indexed: IndexedDocuments) -> None:
        self._length, self._folders, self._cuts = min_bytes, folders, cuts
        self._indexed, self._n_indexed = indexed, len(indexed)
        self._spans = SpanFiles(folders.decided, cuts, first=self._n_indexed)
        self._open = Spilled(folders.open)
        self._wanted = Spilled(folders.path("substrings-wanted"))

    def add(self, p: int, parts: KeyParts) -> None:
        """Group the selections of one part of the key space."""
        keys, contexts, rows, frequent = parts.read(p)
        number = np.arange(len(keys), dtype=np.uint32)
        sort_pairs(keys, number)
        cuts = cuts_between(keys)
        sizes = np.diff(cuts)
        # A group of one is a run in one text, or nothing.
        several = (sizes > 1) | (rows["span"][number[cuts[:-1]]] > 0) if len(sizes) else np.zeros(0, bool)
        if self._n_indexed and len(sizes):  # what is repeated within the index alone does not matter
            several &= np.maximum.reduceat(rows["doc"][number], cuts[:-1]) >= self._n_indexed
        indices = positions_in(cuts[:-1][several], cuts[1:][several])
        group = np.repeat(np.arange(int(several.sum()), dtype=np.uint32), sizes[several])
        number = number[indices]
        context = contexts[number]
        order = np.lexsort((context, group))  # stable: in the order of the input where both are equal
        group, context, rows = group[order], context[order], rows[number[order]]
        new = np.ones(len(group), bool)
        new[1:] = (group[1:] != group[:-1]) | (context[1:] != context[:-1])
        is_decided = np.bincount(group[new])[group] == 1 if len(group) else np.zeros(0, bool)
        heads = np.flatnonzero(new)
        which = np.cumsum(new) - 1  # the number of the context, through all groups
        self._decide(rows[is_decided], heads[which[is_decided]], rows)
        self._leave_open(p, group[~is_decided], rows[~is_decided], new[~is_decided])
        n_groups = int(several.sum())
        for k, key in enumerate(frequent):
            self._add_frequent(p, parts, key, n_groups + k)

    def _add_frequent(self, p: int, parts: KeyParts, key: np.uint64, group: int) -> None:
        """Add a group that does not fit, a piece at a time: it is compared, however many contexts it has."""
        last: Array = np.empty(0, CANDIDATE)  # the candidate whose occurrences may continue
        last_context = None
        for context, rows in parts.read_frequent(p, key):
            new = np.concatenate([[True], context[1:] != context[:-1]])
            candidates = _candidates(np.full(len(rows), group, np.uint32), rows, new)
            if last_context is not None and context[0] == last_context:
                candidates["count"][0] = min(int(candidates["count"][0]) + int(last["count"][0]), _MOST)
                candidates["n"][0] += last["n"][0]
                for name in ("doc", "position", "reach"):
                    candidates[name][0] = last[name][0]
            elif len(last):
                self._add_candidates(p, last)
            self._add_candidates(p, candidates[:-1])
            self._open.add(2 * p + 1, _occurrences(rows))
            last, last_context = candidates[-1:].copy(), context[-1]
        self._add_candidates(p, last)

    def _decide(self, mine: Array, head: Array, rows: Array) -> None:
        """Write the spans of selections whose windows are all repeated; `head`: the row of the first of each group."""
        first = rows[head]
        count = np.bincount(head, 1 + (mine["span"] > 0))[head] if len(head) else head
        high, low = mine["reach"] >> np.uint32(16), mine["reach"] & np.uint32(0xFFFF)
        self._spans.add(occurrence_spans(mine, high, low, mine["reach"], first, count, self._length))

    def _leave_open(self, p: int, group: Array, rows: Array, new: Array) -> None:
        """Write down occurrences that are compared later."""
        if len(rows):
            self._add_candidates(p, _candidates(group, rows, new))
            self._open.add(2 * p + 1, _occurrences(rows))

    def _add_candidates(self, p: int, candidates: Array) -> None:
        """Write down selections that are compared, whose texts are needed."""
        if not len(candidates):
            return
        self._open.add(2 * p, candidates)
        wanted = np.empty(len(candidates), _WANTED)
        for name in ("doc", "position", "reach"):
            wanted[name] = candidates[name]
        which = np.searchsorted(self._cuts, wanted["doc"], side="right") - 1
        for r in np.unique(which).tolist():
            self._wanted.add(r, wanted[which == r])

    def write_wanted(self) -> tuple[int, int]:
        """Write tables of candidates by position, for the passes that collect their texts.

        Return how many there are, and how many of these are in documents of the index.
        """
        table, n, n_indexed = PositionTable(self._folders.wanted, WANTED_COLUMNS), 0, 0
        of_index = PositionTable(self._folders.wanted_of_index, WANTED_COLUMNS) if self._n_indexed else None
        with NpyWriter(resolve(self._folders.path("substrings-candidates.npy")), "<u8") as numbers:
            for r in range(len(self._cuts) - 1):
                rows = self._wanted.read(r, _WANTED)
                rows = rows[np.lexsort((rows["position"], rows["doc"]))]
                numbers.append(place_of(rows))
                k = int(np.searchsorted(rows["doc"], self._n_indexed))
                if of_index is not None:
                    _add_wanted(of_index, rows[:k], n_indexed, self._pass_places)
                    n_indexed += k
                _add_wanted(table, rows[k:], n - n_indexed + k, self._input_places)
                n += len(rows)
        table.close()
        if of_index is not None:
            of_index.close()
        self._wanted.remove()
        return n, n_indexed

    def _pass_places(self, docs: Array) -> dict[str, Array]:
        entry, row = self._indexed.pass_places(docs)
        return {"file": entry, "offset": row}

    def _input_places(self, docs: Array) -> dict[str, Array]:
        return document_facts(self._folders, docs, ("file", "offset"))


def _add_wanted(table: PositionTable, rows: Array, first: int, places: Callable[[Array], dict[str, Array]]) -> None:
    """Add candidates by document and position to a table that has `first` so far."""
    bounds = cuts_between(rows["doc"])
    table.add(
        **places(rows["doc"][bounds[:-1]].astype(np.int64)),
        first=first + bounds[:-1],
        end=first + bounds[1:],
        position=rows["position"],
        reach=rows["reach"],
    )


def _candidates(group: Array, rows: Array, new: Array) -> Array:
    """Return the different selections among sorted occurrences; `new`: which of these are the first of their kind."""
    heads = np.flatnonzero(new)
    out = np.empty(len(heads), CANDIDATE)
    out["group"] = group[heads]
    for name in ("doc", "position", "reach"):
        out[name] = rows[name][heads]
    out["n"] = np.diff(np.append(heads, len(rows)))
    out["count"] = np.minimum(np.add.reduceat(1 + (rows["span"] > 0).astype(np.int64), heads), _MOST)
    return out


def _occurrences(rows: Array) -> Array:
    out = np.empty(len(rows), OCCURRENCE)
    for name in ("doc", "position", "span"):
        out[name] = rows[name]
    return out


def place_of(rows: Array) -> Array:
    """Return document and position as one number, in the order of the input."""
    place: Array = rows["doc"].astype(np.uint64) << np.uint64(32) | rows["position"]
    return place


def document_facts(folders: StepFolders, docs: Array, names: tuple[str, ...]) -> dict[str, Array]:
    """Return facts of documents by ascending numbers."""
    return {name: gather(open_npy(resolve(os.path.join(folders.documents, f"{name}.npy"))), docs) for name in names}


def occurrence_spans(
    rows: Array, high: Array, low: Array, reach: Array, first: Array, count: Array, length: int
) -> Array:
    """Return the spans of occurrences whose windows at offsets `high` to `low` are repeated.

    `reach`: of each, the offsets of all its windows; `first`: the occurrence with the first of these windows.
    """
    position, high, low = (values.astype(np.int64) for values in (rows["position"], high, low))
    start, end = position - high, position - low + length
    spans = [make_spans(rows["doc"], start, end, first["doc"], first["position"].astype(np.int64) - high, count)]
    heads = np.flatnonzero((rows["doc"] == first["doc"]) & (rows["position"] == first["position"]))
    spans.append(make_spans(rows["doc"][heads], start[heads], end[heads], NO_DOCUMENT, 0, 0))
    runs = np.flatnonzero(rows["span"])
    if len(runs):
        # Each repeats the one before it, which begins as many bytes earlier as a selection of the run has windows.
        stride = (reach[runs] >> np.uint32(16)).astype(np.int64) - (reach[runs] & np.uint32(0xFFFF)) + 1
        begin, stop = start[runs] + stride, end[runs] + rows["span"][runs]
        doc = rows["doc"][runs]
        spans.append(make_spans(doc, begin, stop, doc, start[runs], count[runs]))
    return np.concatenate(spans)


class OpenGroups:
    """The groups of one part of the key space that are compared by their texts."""

    def __init__(self, folders: StepFolders, p: int) -> None:
        self._spilled, self._p = Spilled(folders.open, fresh=False), p
        self.candidates = self._spilled.read(2 * p, CANDIDATE)

    def occurrences(self, numbers: Array) -> Array:
        """Return occurrences by number; they are stored in the order of the candidates."""
        out, order = np.empty(len(numbers), OCCURRENCE), np.argsort(numbers, kind="stable")
        ascending, first = numbers[order], 0
        while first < len(ascending):
            begin = int(ascending[first])
            last = int(np.searchsorted(ascending, begin + _READ))
            rows = self._spilled.read(2 * self._p + 1, OCCURRENCE, begin, int(ascending[last - 1]) + 1 - begin)
            out[order[first:last]] = rows[ascending[first:last] - begin]
            first = last
        return out
