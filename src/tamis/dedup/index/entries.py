"""Changing an index: adding what a run keeps, taking a source out.

Entries are written whole under a new name, then named in index.json.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tamis.dedup.index.index import Entry, Index, check_parameters, locked, read_index, run_name
from tamis.dedup.index.joint_records import TYPES, entry_records, sketch_version
from tamis.dedup.keys import NO_ROW
from tamis.dedup.position_table import listed_rows
from tamis.dedup.records import Array, Records
from tamis.errors import UsageError
from tamis.files import write_json
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import absolute

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import AppendToIndex


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
        name = index.next_name(run_id)
        folder = os.path.join(path, name)
        by_file = _write_entry(folder, _survivors(Records(run.task.records), removal), paths)
        size = os.path.getsize(os.path.join(folder, "records.arrow"))
        entry = Entry(name, step.input, step.output, int(by_file.sum()), size, by_file.tolist())
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
    name = index.next_name(entry.run)
    folder = os.path.join(index.path, name)
    records = entry_records(index.records(entry), index.bands)
    survivors = ((columns, ~gone[columns["file"]]) for columns in _batches(records))
    by_file = _write_entry(folder, survivors, paths)
    size = os.path.getsize(os.path.join(folder, "records.arrow"))
    return Entry(name, entry.input, entry.output, int(by_file.sum()), size, by_file.tolist())


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


def _write_entry(folder: str, batches: Iterator[tuple[dict[str, Array], NDArray[np.bool_]]], paths: list[str]) -> Any:
    """Write an entry's folder; returns the number of documents of each input file."""
    os.makedirs(folder, exist_ok=True)
    by_file = np.zeros(len(paths), np.int64)
    writer: Any = None
    with open(os.path.join(folder, "records.arrow"), "wb") as sink:
        for columns, keep in batches:
            batch = pa.record_batch({n: pa.array(v) for n, v in _filtered(columns, keep).items()})
            writer = writer or pa.ipc.new_file(sink, batch.schema)
            writer.write_batch(batch)
            by_file += np.bincount(columns["file"][keep], minlength=len(paths))
        (writer or pa.ipc.new_file(sink, pa.schema([("file", pa.int32())]))).close()
        sink.flush()
        os.fsync(sink.fileno())
    write_json(os.path.join(folder, "paths.json"), paths)
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
