"""The decision of a decontamination: which documents are contaminated, by what, and which n-grams are excepted.

An n-gram that more than `max_documents` documents hold is common text (a licence, a verse) and does not count. How
many hold it is counted exactly, by ranges of n-grams that fit into memory. Memory: 4 bytes for each n-gram of a range,
and the overlaps of one record batch.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tamis import files
from tamis.dedup.contamination.index import EvaluationIndex
from tamis.dedup.contamination.records import OverlapRecords
from tamis.dedup.contamination.rules import Overlap, Postings, merged, overlaps_of
from tamis.dedup.contamination.table import COLUMNS
from tamis.dedup.contamination.tasks import index_folder
from tamis.dedup.decisions import position_ids
from tamis.dedup.position_table import PositionTable
from tamis.formats.scratch.stored_arrays import NpyWriter
from tamis.stores.scratch_files import resolve
from tamis.stores.urls import path_text

if TYPE_CHECKING:
    from tamis.dedup.contamination.limits import Limits
    from tamis.dedup.solver import SolverRun
    from tamis.dedup.solver_task import DecideContamination
    from tamis.dedup.state import Summary

Array = NDArray[Any]
CERTIFICATE, EXCEPTED, UNCHECKED, OVERLAPS = (
    "decontamination.json",
    "excepted.jsonl",
    "unchecked.jsonl",
    "part-00000.parquet",
)
_SHOWN_BYTES = 400
_ROWS_AT_ONCE = 4096
_SCHEMA = pa.schema(
    [
        ("id", pa.large_string()),
        ("path", pa.large_string()),
        ("set", pa.large_string()),
        ("item", pa.large_string()),
        ("words", pa.uint32()),
        ("share", pa.float32()),
        ("start", pa.uint32()),
        ("end", pa.uint32()),
        ("item_text", pa.large_string()),
    ]
)


def decide_contamination(step: DecideContamination, run: SolverRun) -> None:
    """Decide what is removed, and write the tables, the certificate and the summary."""
    run.state.summary.write(_decide(step, run))


def _decide(step: DecideContamination, run: SolverRun) -> Summary:
    records = OverlapRecords(run.task.records)
    index = EvaluationIndex(index_folder(run.folder), with_filter=False)
    most = step.common.limit(records.n_documents)
    excepted, n_documents_of = _excepted(records, index, most, run)
    folder, paths = run.path("removal"), run.paths()
    if resolve(folder) == folder:
        shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(run.task.duplicates, exist_ok=True)
    counts = _DecisionCounts(index, len(paths))
    table = PositionTable(folder, COLUMNS)
    with NpyWriter(os.path.join(resolve(folder), "excepted.npy"), "<i8") as out:
        out.append(excepted)
    with _OverlapTable(os.path.join(run.task.duplicates, OVERLAPS), index, paths) as overlaps:
        _judge_all(records, index, step.limits, excepted, table, overlaps, counts, run)
    table.close()
    _write_lists(run, index, excepted, n_documents_of)
    summary = counts.summary(records)
    summary["n_excepted"], summary["action"] = len(excepted), step.action
    _write_certificate(step, run, index, summary, most)
    return summary


# -- common n-grams ---------------------------------------------------------------------------------------------------
def _excepted(records: OverlapRecords, index: EvaluationIndex, most: int, run: SolverRun) -> tuple[Array, Array]:
    """Return the n-grams that more than `most` documents hold, ascending, and in how many they are."""
    if records.n_hits <= most:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    n = index.facts.n_entries
    size = _range_size(n, run.room_bytes)
    ngrams, counts = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    say = run.progress("counting common n-grams")
    for first in range(0, n, size):
        in_documents = np.zeros(min(size, n - first), np.uint32)
        for ngram, document in records.iter_hits():
            mine = np.flatnonzero((ngram >= first) & (ngram < first + len(in_documents)))
            pairs = np.unique(document[mine].astype(np.uint64) << np.uint64(32) | (ngram[mine] - np.uint32(first)))
            np.add.at(in_documents, (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64), 1)
        common = np.flatnonzero(in_documents > most)
        ngrams.append(common + first)
        counts.append(in_documents[common].astype(np.int64))
        say(min(1.0, (first + size) / n))
    return np.concatenate(ngrams), np.concatenate(counts)


def _range_size(n_ngrams: int, room_bytes: int) -> int:
    return max(1, min(n_ngrams, room_bytes // 2 // 4))


# -- documents --------------------------------------------------------------------------------------------------------
class _DecisionCounts:
    """Counts for the summary of the decision."""

    def __init__(self, index: EvaluationIndex, n_files: int) -> None:
        self._index = index
        self._is_found = np.zeros(index.n_items, bool)
        self._documents = np.zeros(len(index.facts.sets), np.int64)
        self.total_of, self.removed_of = np.zeros(n_files, np.int64), np.zeros(n_files, np.int64)
        self.n = self.n_spans = self.n_overlaps = 0

    def add(self, bad: list[Overlap], n_spans: int) -> None:
        self.n += 1
        self.n_spans += n_spans
        self.n_overlaps += len(bad)
        items = [o.item for o in bad]
        self._is_found[items] = True
        self._documents[sorted({int(self._index.item(i)["set"]) for i in items})] += 1

    def summary(self, records: OverlapRecords) -> Summary:
        set_of = np.array([self._index.item(int(i))["set"] for i in np.flatnonzero(self._is_found)], np.int64)
        n_found = np.bincount(set_of, minlength=len(self._documents))
        return {
            "n_documents": records.n_documents,
            "n_duplicates": self.n,
            "n_spans": self.n_spans,
            "n_overlaps": self.n_overlaps,
            "documents_by_file": self.total_of.tolist(),
            "duplicates_by_file": self.removed_of.tolist(),
            "sets": [
                {
                    "name": one.name,
                    "n_items": one.n_items,
                    "n_short": one.n_short,
                    "n_unchecked": one.n_unchecked,
                    "n_found": int(n_found[i]),
                    "n_documents": int(self._documents[i]),
                }
                for i, one in enumerate(self._index.facts.sets)
            ],
        }


def _judge_all(
    records: OverlapRecords,
    index: EvaluationIndex,
    limits: Limits,
    excepted: Array,
    table: PositionTable,
    overlaps: _OverlapTable,
    counts: _DecisionCounts,
    run: SolverRun,
) -> None:
    postings, n_spans, done = Postings(index), 0, 0
    say = run.progress("contaminated documents")
    n_files = len(counts.total_of)
    for documents in records:
        counts.total_of += np.bincount(documents.file, minlength=n_files)
        rows: list[tuple[Any, ...]] = []
        spans = [np.empty((0, 2), np.int64)]
        for k in np.flatnonzero(np.diff(documents.bounds)).tolist():
            hits = documents.hits[documents.bounds[k] : documents.bounds[k + 1]]
            bad = [o for o in overlaps_of(postings, hits, excepted) if o.is_contamination(limits)]
            if not bad:
                continue
            bad.sort(key=lambda o: (-o.share, -o.words, o.item))
            windows = np.unique(np.concatenate([o.windows for o in bad]))
            mine = merged(hits["start"][windows].astype(np.int64), hits["end"][windows].astype(np.int64))
            file, offset, worst = int(documents.file[k]), int(documents.offset[k]), bad[0]
            facts = (worst.item, worst.share, worst.words, worst.start, worst.end, len(bad))
            rows.append((file, offset, *facts, n_spans, n_spans + len(mine)))
            spans.append(mine)
            n_spans += len(mine)
            counts.add(bad, len(mine))
            counts.removed_of[file] += 1
            overlaps.add(file, offset, bad)
        if rows:
            columns = dict(zip(COLUMNS, map(np.array, zip(*rows, strict=True)), strict=False))
            table.add(**columns, spans=np.concatenate(spans).reshape(-1))
        done += len(documents.file)
        say(done / max(1, records.n_documents))


class _OverlapTable:
    """The table for people: one row for each document and each item that contaminates it."""

    def __init__(self, path: str, index: EvaluationIndex, paths: list[str]) -> None:
        self._index, self._paths = index, paths
        self._rows: list[tuple[Any, ...]] = []
        self._writer = pq.ParquetWriter(files.fresh(path), _SCHEMA, compression="zstd")

    def __enter__(self) -> _OverlapTable:
        return self

    def __exit__(self, *_: object) -> None:
        self._write()
        self._writer.close()

    def add(self, file: int, offset: int, bad: list[Overlap]) -> None:
        for o in bad:
            name, item = self._index.name_of(o.item)
            text = self._index.text(o.item, o.place, min(o.end - o.start, _SHOWN_BYTES))
            self._rows.append((file, offset, name, item, o.words, o.share, o.start, o.end, text))
        if len(self._rows) >= _ROWS_AT_ONCE:
            self._write()

    def _write(self) -> None:
        if not self._rows:
            return
        columns = list(zip(*self._rows, strict=True))
        ids = position_ids(np.array(columns[0], np.int32), np.array(columns[1], np.int64))
        paths = pa.array([path_text(self._paths[f]) for f in columns[0]], pa.large_string())
        kinds = _SCHEMA.types[2:]
        others = [pa.array(values, kind) for values, kind in zip(columns[2:], kinds, strict=True)]
        self._writer.write_table(pa.Table.from_arrays([ids.cast(pa.large_string()), paths, *others], schema=_SCHEMA))
        self._rows = []


# -- lists and the certificate ----------------------------------------------------------------------------------------
def _write_lists(run: SolverRun, index: EvaluationIndex, excepted: Array, counts: Array) -> None:
    """Write the n-grams that are excepted, most frequent first, and copy the list of items that are not checked."""
    postings = Postings(index)
    with files.replacing(os.path.join(run.task.duplicates, EXCEPTED)) as out:
        for k in np.lexsort((excepted, -counts)).tolist():
            first = postings.of(int(excepted[k]))[0]
            name, row = index.name_of(first.item)
            words = index.words_at(first.item, first.place)
            about = {"n_documents": int(counts[k]), "words": words, "set": name, "item": row}
            out.write((json.dumps(about, ensure_ascii=False) + "\n").encode())
    with (
        files.replacing(os.path.join(run.task.duplicates, UNCHECKED)) as out,
        open(os.path.join(index.folder, "unchecked.jsonl"), "rb") as listed,
    ):
        shutil.copyfileobj(listed, out)


def _write_certificate(
    step: DecideContamination, run: SolverRun, index: EvaluationIndex, summary: Summary, most: int
) -> None:
    """Write what a script needs to check the output without this library (tools/check_decontamination.py)."""
    facts, by_name = index.facts, {s["name"]: s for s in summary["sets"]}
    with open(os.path.join(run.task.duplicates, EXCEPTED), "rb") as listed:
        digest = hashlib.file_digest(listed, "sha256").hexdigest()
    sets = [
        {
            "name": one.name,
            "path": one.path,
            "fields": one.fields,
            "files": one.files,
            "n_items": one.n_items,
            "n_checked": one.n_checked,
            "n_short": one.n_short,
            "n_unchecked": one.n_unchecked,
            "n_found": by_name[one.name]["n_found"],
            "n_documents": by_name[one.name]["n_documents"],
        }
        for one in facts.sets
    ]
    certificate = {
        "format": "tamis decontamination 1",
        "text_field": step.text_field,
        "action": step.action,
        "words": facts.words,
        "short_words": facts.short_words,
        "min_words": step.limits.min_words,
        "min_share": step.limits.min_share,
        "max_documents": most,
        "n_documents": summary["n_documents"],
        "n_contaminated": summary["n_duplicates"],
        "n_excepted": summary["n_excepted"],
        "excepted": {"file": EXCEPTED, "sha256": digest},
        "unchecked": {"file": UNCHECKED, "n": sum(one.n_unchecked for one in facts.sets)},
        "sets": sets,
    }
    files.write_json(os.path.join(run.task.duplicates, CERTIFICATE), certificate, indent=2, mode=0o666)
