"""Verdicts of a finished pass as tables of places, one per stage, which a later pass reads by range.

Made in the deciding process from the run directory of the pass: `verdicts/*.parquet` (one row per dropped document) and
`quarantine/*.jsonl`. Documents that stayed take no room. Files of verdicts cover ranges of the input and rarely
overlap; they are merged in the order of the input, so that no more is held than what a few of them hold. A table is a
PositionTable (position_table.py) with, for each document, the number of its reason in reasons.json and where its
measured value and its id are in values.bin.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.dedup.position_table import PositionTable
from tamis.dedup.state import QUARANTINED, REPLAY_FOLDER, ReplayCounts
from tamis.errors import FormatError
from tamis.formats.jsonl.record_index import RECORD_HASH, DroppedWriter
from tamis.formats.parquet import format as parquet
from tamis.stores.run_locations import run_dir_of
from tamis.stores.scratch_files import open_to_write, resolve
from tamis.stores.urls import path_text

if TYPE_CHECKING:
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import WriteReplayTables

_COLUMNS = {
    "file": "<i4",
    "offset": "<i8",
    "reason": "<u4",
    "value_at": "<i8",
    "value_bytes": "<i4",
    "id_bytes": "<i4",
}
_WANTED = ["file", "offset", "id", "stage", "rule", "value", "threshold", "bytes"]
Array = np.ndarray[Any, Any]


def write_tables_of_steps(step: WriteReplayTables, run: SolverRun) -> None:
    """Write the tables of what the steps of the first pass dropped."""
    run_dir, folder = run_dir_of(run.path("keys-0")), run.path(REPLAY_FOLDER)
    counts = write_remembered(run_dir, step.labels, folder, run.paths(), step.judges, run.path("known"))
    run.state.replay_counts.write(counts)


def write_remembered(
    run_dir: str,
    labels: Sequence[str],
    folder: str,
    paths: Sequence[str],
    judges: Sequence[str] = (),
    index_path: str | None = None,
) -> ReplayCounts:
    """Write tables of what each stage dropped (folder/0, folder/1, ... in the order of `labels`) and quarantined.

    `paths`: the input files by number. `judges`: stages that make keys, and whose quarantine holds for all passes.
    `index_path`: the folder that gets the offsets of the records of all dropped documents
    (formats/jsonl/record_index.py), as far as verdicts have it. Returns how many documents each table has.
    """
    dropped = None if index_path is None else DroppedWriter(index_path)
    tables = [_ReplayTable(os.path.join(folder, str(k))) for k in range(len(labels))]
    number = {label: k for k, label in enumerate(labels)}
    for rows in in_input_order(os.path.join(run_dir, "verdicts"), [*_WANTED, *RECORD_HASH]):
        if dropped is not None:
            dropped.add(_records_of(rows))
        for label in pc.unique(rows["stage"]).to_pylist():
            if label in number:
                tables[number[label]].add(rows.filter(pc.equal(rows["stage"], label)))
    if dropped is not None:
        dropped.close()
    counts = {label: tables[k].close() for label, k in number.items()}
    quarantine = os.path.join(run_dir, "quarantine")
    return ReplayCounts(
        counts, _write_quarantined(quarantine, [*labels, *judges], os.path.join(folder, QUARANTINED), paths)
    )


def _records_of(rows: pa.Table) -> dict[str, Array]:
    """Return the positions of the records of those documents whose hashes were reported."""
    with_hash = rows.filter(pc.is_valid(rows["record_hi"]))
    columns = {"file": "file", "offset": "offset", "record_bytes": "bytes"} | {name: name for name in RECORD_HASH}
    return {name: with_hash[column].to_numpy() for name, column in columns.items()}


class _ReplayTable:
    """One stage's. Rows come in the order of the input."""

    def __init__(self, folder: str) -> None:
        self._places = PositionTable(folder, _COLUMNS)
        self._folder, self._n, self._at = folder, 0, 0
        self._values = open_to_write(resolve(os.path.join(folder, "values.bin")))
        self._reasons: dict[tuple[str, str], int] = {}

    def add(self, rows: pa.Table) -> None:
        values = pc.fill_null(rows["value"].combine_chunks(), "")
        sizes = pc.binary_length(values).to_numpy(zero_copy_only=False).astype(np.int64)
        ids = pc.fill_null(rows["id"].combine_chunks(), "")
        id_sizes = pc.binary_length(ids).to_numpy(zero_copy_only=False).astype(np.int64)
        ends = self._at + np.cumsum(sizes + id_sizes)
        value_sizes = np.where(rows["value"].is_null().to_numpy(), -1, sizes)
        rules, limits = rows["rule"].to_pylist(), rows["threshold"].to_pylist()
        reasons = [self._reasons.setdefault(r, len(self._reasons)) for r in zip(rules, limits, strict=True)]
        self._places.add(
            file=rows["file"].to_numpy(),
            offset=rows["offset"].to_numpy(),
            reason=np.array(reasons, np.uint32),
            value_at=ends - sizes - id_sizes,
            value_bytes=value_sizes,
            id_bytes=np.where(rows["id"].is_null().to_numpy(), -1, id_sizes),
        )
        both = pc.binary_join_element_wise(values, ids, pa.scalar("", values.type))
        self._values.write("".join(both.to_pylist()).encode("utf-8", "surrogatepass"))
        self._at += int((sizes + id_sizes).sum())
        self._n += len(rows)

    def close(self) -> int:
        self._values.close()
        _write_reasons(self._folder, [list(r) for r in self._reasons])
        self._places.close()  # last: a table without `starts` is not whole
        return self._n


def _write_reasons(folder: str, reasons: list[Any]) -> None:
    with open_to_write(resolve(os.path.join(folder, "reasons.json"))) as file:
        file.write(json.dumps(reasons).encode())


def in_input_order(folder: str, columns: Sequence[str] = _WANTED) -> Iterator[pa.Table]:
    """Yield all verdicts (these columns of them), some at a time, ascending by position, each document once."""
    parts: list[tuple[tuple[int, int], str]] = []
    names = sorted(n for n in os.listdir(folder) if n.endswith(".parquet")) if os.path.isdir(folder) else []
    for name in names:
        path = os.path.join(folder, name)
        rows = _read(path, ["file", "offset"])
        if len(rows):
            first = rows.take(pc.sort_indices(rows, [("file", "ascending"), ("offset", "ascending")])[:1])
            parts.append(((first["file"][0].as_py(), first["offset"][0].as_py()), path))
    parts.sort()
    waiting: pa.Table | None = None
    for i, (_, path) in enumerate(parts):
        rows = _read(path, list(columns))
        rows = rows if waiting is None else pa.concat_tables([waiting, rows])
        rows = _sorted(rows)
        following = parts[i + 1][0] if i + 1 < len(parts) else None
        n = len(rows) if following is None else _n_before(rows, following)
        yield rows.slice(0, n)
        waiting = rows.slice(n) if n < len(rows) else None


def _read(path: str, columns: list[str]) -> pa.Table:
    try:
        rows = parquet.open_file(path).read(columns=columns, use_threads=False)
        for name in RECORD_HASH:  # of a pass that did not report it
            if name in columns and name not in rows.column_names:
                rows = rows.append_column(name, pa.nulls(len(rows), pa.uint64()))
        return rows.select(columns)
    except (pa.ArrowException, OSError) as exc:
        raise FormatError(f"{path} cannot be read ({exc}); start over with fresh (--fresh)") from None


def _sorted(rows: pa.Table) -> pa.Table:
    rows = rows.take(pc.sort_indices(rows, [("file", "ascending"), ("offset", "ascending")])).combine_chunks()
    file, offset = rows["file"].to_numpy(), rows["offset"].to_numpy()
    new = np.ones(len(rows), bool)
    new[1:] = (file[1:] != file[:-1]) | (offset[1:] != offset[:-1])  # a file left by a unit that was done twice
    return rows if new.all() else rows.filter(pa.array(new)).combine_chunks()


def _n_before(rows: pa.Table, place: tuple[int, int]) -> int:
    file, offset = rows["file"].to_numpy(), rows["offset"].to_numpy()
    return int(np.count_nonzero((file < place[0]) | ((file == place[0]) & (offset < place[1]))))


def _write_quarantined(quarantine: str, labels: Sequence[str], folder: str, paths: Sequence[str]) -> int:
    """Write the locations of the documents on which one of these stages failed. A limit ends a run with many."""
    number = {path_text(p): i for i, p in enumerate(paths)}
    tables: dict[tuple[int, int], str] = {}
    for name in sorted(os.listdir(quarantine)) if os.path.isdir(quarantine) else []:
        if name.endswith(".jsonl"):
            with open(os.path.join(quarantine, name), encoding="utf-8", errors="replace") as lines:
                for line in lines:
                    entry = json.loads(line)
                    file = number.get(path_text(entry["file"]))
                    if entry["n"] and entry["stage"] in labels and file is not None:
                        tables[file, int(entry.get("position", entry["offset"]))] = (
                            f"stage {entry['stage']!r}: {entry['reason']}"
                        )
    table = PositionTable(folder, {"file": "<i4", "offset": "<i8", "reason": "<u4"})
    places = sorted(tables)
    if places:
        indices = np.array(places, np.int64)
        table.add(file=indices[:, 0], offset=indices[:, 1], reason=np.arange(len(indices)))
    _write_reasons(folder, [tables[p] for p in places])
    table.close()
    return len(places)
