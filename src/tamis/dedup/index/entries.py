"""Changing an index: adding what a run keeps, taking a source out.

Entries are written whole under a new name, then named in index.json.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.dedup.index.index import Entry, Index, check_parameters, locked, read_index, run_name
from tamis.dedup.index.joint_records import TYPES, entry_records, sketch_version
from tamis.dedup.index.texts import collected_texts, entry_texts, write_texts
from tamis.dedup.keys import NO_ROW
from tamis.dedup.kinds import SUBSTRINGS
from tamis.dedup.position_table import listed_rows
from tamis.dedup.records import Array, Records
from tamis.errors import UsageError
from tamis.files import write_json
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import absolute

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import AppendToIndex

Counts = NDArray[np.int64]  # documents, by input file


def append(step: AppendToIndex, run: SolverRun) -> None:
    """Add the documents that stay to an index, in place of what the same run added before."""
    path, run_id = step.path, run_name(step.output)
    paths, removal = run.paths(), resolve(run.path("removal"))
    with locked(path):
        exists = os.path.exists(os.path.join(path, "index.json"))
        version = sketch_version(int(step.parameters.get("bands", 0)))
        index = read_index(path) if exists else Index(path, step.kind, step.parameters, [], version)
        check_parameters(index, step.kind, step.parameters)
        if index.entries and index.sketch_version != version:
            raise UsageError(f"{path} was made by another version of the sketches; make the index anew")
        index.tidy()

        def write(file: str) -> Counts:
            if step.kind == SUBSTRINGS.name:
                return write_texts(file, collected_texts(run.task.records), len(paths))
            return _write_records(file, _survivors(Records(run.task.records), removal), len(paths))

        entry = _new_entry(index, index.next_name(run_id), step.input, step.output, paths, write)
        index.entries = [*(e for e in index.entries if not e.is_of(step.output)), entry]
        index.save()
        index.tidy()


def remove_source(path: str, source: str) -> int:
    """Take the documents of a file, or of all files under a folder, out of an index. Returns how many there were."""
    source = absolute(source)
    with locked(path):
        index = read_index(path)
        index.tidy()
        n_removed, entries = 0, []
        for entry in index.entries:
            paths = index.paths(entry)
            gone = np.array([p == source or p.startswith(source.rstrip("/") + "/") for p in paths], bool)
            n = int(np.array(entry.by_file, np.int64)[gone].sum())
            n_removed += n
            if not n:
                entries.append(entry)
            elif n < entry.n_documents:
                entries.append(_without(index, entry, paths, gone))
        if n_removed:
            index.entries = entries
            index.save()
            index.tidy()
    return n_removed


def _without(index: Index, entry: Entry, paths: list[str], gone: NDArray[np.bool_]) -> Entry:
    """Write an entry anew without the documents of some of its files."""

    def write(file: str) -> Counts:
        if index.kind == SUBSTRINGS.name:
            tables = entry_texts(index.data(entry))
            return write_texts(file, (table.filter(pa.array(~gone[table["file"]])) for table in tables), len(paths))
        records = entry_records(index.data(entry), index.bands)
        return _write_records(file, ((columns, ~gone[columns["file"]]) for columns in _batches(records)), len(paths))

    return _new_entry(index, index.next_name(entry.run), entry.input, entry.output, paths, write)


def _new_entry(
    index: Index, name: str, source: Any, output: str, paths: list[str], write: Callable[[str], Counts]
) -> Entry:
    """Write the folder of an entry. `write`: writes its data, and counts the documents of each input file."""
    folder = os.path.join(index.path, name)
    os.makedirs(folder, exist_ok=True)
    data = os.path.join(folder, index.data_name)
    by_file = write(data)
    write_json(os.path.join(folder, "paths.json"), paths)
    return Entry(name, source, output, int(by_file.sum()), os.path.getsize(data), by_file.tolist())


def _batches(records: Records) -> Iterator[dict[str, Array]]:
    """Record batches with the columns of an index."""
    names = [n for n in records.types if n in TYPES or n.startswith(("key_", "row_", "sig_"))]
    for columns in zip(*(records.iter_column(n) for n in names), strict=True):
        yield {name: values for name, (_, values) in zip(names, columns, strict=True)}


def _survivors(records: Records, removal: str) -> Iterator[tuple[dict[str, Array], NDArray[np.bool_]]]:
    """Record batches, each with what stays of it: documents that are not removed and have a text."""
    for columns, (_, length) in zip(_batches(records), records.iter_column("length"), strict=True):
        keep = length >= 0
        keep[listed_rows(removal, columns["file"], columns["offset"])[0]] = False
        yield columns, keep


def _write_records(path: str, batches: Iterator[tuple[dict[str, Array], NDArray[np.bool_]]], n_files: int) -> Counts:
    """Write records; return the number of documents of each input file."""
    by_file = np.zeros(n_files, np.int64)
    writer: Any = None
    with open(path, "wb") as sink:
        for columns, keep in batches:
            batch = pa.record_batch({n: pa.array(v) for n, v in _filtered(columns, keep).items()})
            writer = writer or pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
            by_file += np.bincount(columns["file"][keep], minlength=n_files)
        (writer or pa.ipc.new_file(sink, pa.schema([("file", pa.int32())]))).close()
        sink.flush()
        os.fsync(sink.fileno())
    return by_file


def _filtered(columns: dict[str, Array], keep: NDArray[np.bool_]) -> dict[str, Array]:
    """Return the rows that stay; keys keep their order and get the numbers of the new rows."""
    moved = np.cumsum(keep) - 1
    out: dict[str, Array] = {}
    for name, values in columns.items():
        if name.startswith("key_"):
            row = columns["row_" + name[4:]]
            has = row != NO_ROW
            stays = np.flatnonzero(has)[keep[row[has]]]
            key, new_row = np.full(int(keep.sum()), 2**64 - 1, np.uint64), np.full(int(keep.sum()), NO_ROW, np.uint32)
            key[: len(stays)], new_row[: len(stays)] = values[stays], moved[row[stays]]
            out[name], out["row_" + name[4:]] = key, new_row
        elif not name.startswith("row_"):
            out[name] = values[keep]
    return out
