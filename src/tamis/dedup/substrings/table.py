"""The table of passages to remove: one row per changed document, with the first copy of each passage.

A PositionTable (position_table.py). `file`, `offset`: the place of the document; `first`, `end`: its passages are rows
[first, end) of `start`, `stop` (bytes of its text), `kept_file`, `kept_offset` (the document with the first copy),
`kept_start` (byte in that document's text) and `count` (how often such a passage occurs). Read by range.
"""

from __future__ import annotations

import heapq
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.dedup.decisions import position_ids, write_table
from tamis.dedup.position_table import PositionTable, rows_of_table
from tamis.dedup.sorting import cuts_between
from tamis.dedup.substrings.grouping import StepFolders, document_facts
from tamis.dedup.substrings.indexed import IndexedDocuments
from tamis.dedup.substrings.spans import Removed, SpanFiles, removed
from tamis.files import write_json
from tamis.formats.scratch.stored_arrays import open_npy
from tamis.stores.run_locations import run_dir_of
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import path_text

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import CompareWindows
    from tamis.dedup.state import PassageGroups, Summary

Array = np.ndarray[Any, Any]
_PASSAGES = {
    "start": "<u4",
    "stop": "<u4",
    "kept_file": "<i4",
    "kept_offset": "<i8",
    "kept_start": "<u4",
    "count": "<u4",
}
COLUMNS = {"file": "<i4", "offset": "<i8", "first": "<i8", "end": "<i8", **_PASSAGES}
N_MOST, N_SHOWN = 1000, 20  # of the passages that occur most often are listed, and shown in the report
_CHUNK = 1 << 18  # passages of one file of the table for people
_STEP = 1 << 20  # documents whose lengths are counted at once


@dataclass(frozen=True)
class Passages:
    """Passages of one document, ascending; see the columns of the table."""

    start: Array
    stop: Array
    kept_file: Array
    kept_offset: Array
    kept_start: Array
    count: Array

    @property
    def n_bytes(self) -> int:
        return int((self.stop.astype(np.int64) - self.start).sum())


def passages_of(folder: str, files: Array, offsets: Array) -> tuple[Array, list[Passages]]:
    """Return (rows, passages): the documents with passages that go, in the order of the input, and those of each."""
    rows: list[Array] = [np.empty(0, np.int64)]
    passages: list[Passages] = []
    for file in np.unique(files).tolist():
        mine = np.flatnonzero(files == file)
        listed, (first, end) = rows_of_table(folder, file, offsets[mine], ("first", "end"))
        if len(listed):
            columns = [open_npy(os.path.join(folder, f"{n}.npy")).read(first[0], end[-1]) for n in _PASSAGES]
            rows.append(mine[listed])
            for a, b in zip((first - first[0]).tolist(), (end - first[0]).tolist(), strict=True):
                passages.append(Passages(*(values[a:b] for values in columns)))
    return np.concatenate(rows), passages


def passages_in(output: str) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return all passages of a finished run as (start, end), by file and offset of the document."""
    passages: dict[tuple[int, int], list[tuple[int, int]]] = {}
    folder = os.path.join(run_dir_of(output), "duplicates")
    for name in sorted(os.listdir(folder)):
        if name.startswith("part-"):
            rows = pq.read_table(os.path.join(folder, name), columns=["id", "start_byte", "end_byte"])
            for place, start, end in zip(*(rows[column].to_pylist() for column in rows.column_names), strict=True):
                file, _, offset = place.partition("_")
                passages.setdefault((int(file), int(offset)), []).append((start, end))
    return passages


@dataclass(frozen=True, order=True)
class _Frequent:
    """The occurrences of a passage, its greatest length and one of its copies.

    The place of the copy is stored negated, so that the greatest of several is the one whose copy comes first.
    """

    count: int = 0
    n_bytes: int = 0
    minus_doc: int = 0
    minus_start: int = 0


class _Most:
    """The passages that occur most often, by the place of their first copy."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], _Frequent] = {}  # by document and start

    def add(self, gone: Removed) -> None:
        """Count passages. Which are listed depends on nothing but the passages."""
        size = gone.end - gone.start
        order = np.lexsort((gone.start, gone.doc, gone.kept_start, gone.kept, -size, -gone.count))
        place = gone.kept[order].astype(np.uint64) << np.uint64(32) | gone.kept_start[order].astype(np.uint64)
        order = order[np.sort(np.unique(place, return_index=True)[1])][:N_MOST]
        for kept, start, *figures in zip(
            *(v[order].tolist() for v in (gone.kept, gone.kept_start, gone.count, size, -gone.doc, -gone.start)),
            strict=True,
        ):
            self._found[kept, start] = max(self._found.get((kept, start), _Frequent()), _Frequent(*figures))
        self._found = dict(self._largest())

    def _largest(self) -> list[tuple[tuple[int, int], _Frequent]]:
        return heapq.nsmallest(
            N_MOST, self._found.items(), key=lambda item: (-item[1].count, -item[1].n_bytes, item[0])
        )

    def write(self, folders: StepFolders, folder: str, names: _Names) -> None:
        """Write a table for people: count, bytes, and the place of the first copy."""
        rows = self._largest()
        file, offset = _places(folders, [place[0] for place, _ in rows])
        table = pa.table(
            {
                "id": names.indexed.ids(file, offset),
                "start_byte": pa.array([place[1] for place, _ in rows], pa.int64()),
                "n_bytes": pa.array([most.n_bytes for _, most in rows], pa.int64()),
                "n_occurrences": pa.array([most.count for _, most in rows], pa.int64()),
                "path": names.of(file).cast(pa.large_string()),
                **names.entries("entry", file),
            }
        )
        os.makedirs(folder, exist_ok=True)
        write_table(os.path.join(folder, "most-frequent.parquet"), table)
        # The same for the report, which is written without Arrow, and reads the beginning of the other copy: the first
        # may be in an index, and its file gone.
        copy_file, copy_offset = _places(folders, [-most.minus_doc for _, most in rows[:N_SHOWN]])
        columns = table.slice(0, N_SHOWN).drop_columns(["id", "start_byte"])
        columns = columns.append_column("offset", pa.array(offset[:N_SHOWN]))
        columns = columns.append_column("start", table["start_byte"].slice(0, N_SHOWN))
        columns = columns.append_column("copy_path", names.of(copy_file))
        columns = columns.append_column("copy_offset", pa.array(copy_offset))
        columns = columns.append_column("copy_start", pa.array([-most.minus_start for _, most in rows[:N_SHOWN]]))
        write_json(os.path.join(folder, "most-frequent.json"), columns.to_pylist())


def _places(folders: StepFolders, docs: list[int]) -> tuple[Array, Array]:
    """Return file and offset of documents in any order."""
    unique, back = np.unique(np.array(docs, np.int64), return_inverse=True)
    facts = document_facts(folders, unique, ("file", "offset"))
    return facts["file"][back], facts["offset"][back]


class _Names:
    """The names of files by number: those of the input, then those of the index."""

    def __init__(self, paths: list[str], indexed: IndexedDocuments) -> None:
        self.indexed = indexed
        self._names = pa.array([path_text(name) for name in [*paths, *indexed.paths]], pa.large_string())

    def of(self, files: Array) -> pa.Array:
        return self._names.take(pa.array(files)).dictionary_encode()

    def entries(self, name: str, files: Array) -> dict[str, pa.Array]:
        """Return the column with the entry of the index of each file, if there is an index."""
        return {name: self.indexed.folders(files)} if len(self.indexed) else {}


class _PassageTable:
    """A table for people: every passage, and where its first copy is."""

    def __init__(self, folder: str, names: _Names) -> None:
        self._folder, self._n_written, self._names = folder, 0, names
        os.makedirs(folder, exist_ok=True)

    def add(self, gone: Removed, facts: dict[str, Array], kept: dict[str, Array], bounds: Array, back: Array) -> None:
        document = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        for begin in range(0, len(gone.doc), _CHUNK):
            some = slice(begin, begin + _CHUNK)
            mine, first = document[some], back[some]
            file, offset = facts["file"][mine], facts["offset"][mine]
            kept_file, kept_offset = kept["file"][first], kept["offset"][first]
            table = pa.table(
                {
                    "id": position_ids(file, offset),
                    "start_byte": pa.array(gone.start[some]),
                    "end_byte": pa.array(gone.end[some]),
                    "kept_id": self._names.indexed.ids(kept_file, kept_offset),
                    "kept_start_byte": pa.array(gone.kept_start[some]),
                    "n_occurrences": pa.array(gone.count[some]),
                    "path": self._names.of(file),
                    "kept_path": self._names.of(kept_file),
                    **self._names.entries("kept_entry", kept_file),
                }
            )
            write_table(os.path.join(self._folder, f"part-{self._n_written:05d}.parquet"), table)
            self._n_written += 1


def write_removal(step: CompareWindows, run: SolverRun, folders: StepFolders, groups: PassageGroups) -> Summary:
    """Write the table of what goes, and the passages that occur most often; return the summary."""
    folder, paths, ranges = run.path("removal"), run.paths(), groups.ranges
    names = _Names(paths, IndexedDocuments(run.task.index_pins, len(paths)))
    if resolve(folder) == folder:
        shutil.rmtree(folder, ignore_errors=True)
    sources = [SpanFiles(path, ranges, fresh=False) for path in (folders.decided, folders.compared)]
    table, most = PositionTable(folder, COLUMNS), _Most()
    passages = _PassageTable(run.task.duplicates, names)
    gone_of = np.zeros(len(paths), np.int64)
    n_passages = n_edited = n_bytes = largest = 0
    of_index = np.zeros(2, np.int64)  # passages with their first copy there, and their bytes
    progress = run.progress("repeated passages")
    for r in range(len(ranges) - 1):
        gone = removed((source.read(r) for source in sources), step.keep_first)
        if len(gone.doc):
            bounds = cuts_between(gone.doc)
            docs = gone.doc[bounds[:-1]]
            facts = document_facts(folders, docs, ("file", "offset"))
            kept, back = np.unique(gone.kept, return_inverse=True)
            kept_facts = document_facts(folders, kept, ("file", "offset"))
            table.add(
                **facts,
                first=n_passages + bounds[:-1],
                end=n_passages + bounds[1:],
                start=gone.start,
                stop=gone.end,
                kept_file=kept_facts["file"][back],
                kept_offset=kept_facts["offset"][back],
                kept_start=gone.kept_start,
                count=gone.count,
            )
            most.add(gone)
            passages.add(gone, facts, kept_facts, bounds, back)
            sizes = gone.end - gone.start
            by_document = np.add.reduceat(sizes, bounds[:-1])
            gone_of += np.bincount(facts["file"], by_document, len(paths)).astype(np.int64)
            n_passages += len(gone.doc)
            n_edited += len(docs)
            n_bytes += int(sizes.sum())
            is_indexed = gone.kept < groups.n_indexed
            of_index += int(is_indexed.sum()), int(sizes[is_indexed].sum())
            largest = max(largest, int(gone.count.max()))
        progress((r + 1) / (len(ranges) - 1))
    table.close()
    most.write(folders, run.task.duplicates, names)
    compared: Summary = {}
    if groups.n_indexed:
        n, n_of_indexed = of_index.tolist()
        compared = {"n_indexed": groups.n_indexed, "n_passages_of_indexed": n, "n_duplicates_of_indexed": n_of_indexed}
    return {
        **compared,
        **_input_counts(folders, len(paths), groups.n_indexed),
        "n_duplicates": n_bytes,
        "duplicate_text_bytes": n_bytes,
        "n_passages": n_passages,
        "n_repeated_documents": n_edited,
        "largest_group": largest,
        "duplicates_by_file": gone_of.tolist(),
    }


def _input_counts(folders: StepFolders, n_files: int, first: int) -> Summary:
    """Count documents and bytes of text; `first`: the number of the first document of the input."""
    length, file = (open_npy(resolve(os.path.join(folders.documents, f"{name}.npy"))) for name in ("length", "file"))
    bytes_of = np.zeros(n_files, np.int64)
    n_without_text = 0
    for begin in range(first, len(length), _STEP):
        sizes = length.read(begin, begin + _STEP)
        n_without_text += int(np.count_nonzero(sizes < 0))
        bytes_of += np.bincount(file.read(begin, begin + _STEP), np.maximum(sizes, 0), n_files).astype(np.int64)
    return {
        "n_documents": len(length) - first,
        "n_without_text": n_without_text,
        "n_text_bytes": int(bytes_of.sum()),
        "documents_by_file": bytes_of.tolist(),
    }
