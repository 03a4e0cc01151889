"""Why documents went: one row per dropped document, and the documents themselves if the user wants them kept.

Verdicts are always stored (place, id, stage, rule, value, threshold; some ten bytes per document once compressed), so
that `tamis why` can answer without reading texts. With keep_rejected the documents are written too, the verdict spliced
in as the field `_tamis_rejected`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tamis import files as own_files
from tamis.engine.messages import StagedFile
from tamis.engine.schema import ID_FIELD, FileKind
from tamis.engine.worker.dropped import record_bytes
from tamis.formats.jsonl.encode import encode_jsonl
from tamis.formats.jsonl.record_index import RECORD_HASH, record_columns
from tamis.formats.parquet import format as parquet
from tamis.tasks import SCORES, DocumentBatch
from tamis.tasks.columns.casting import is_bytes, widen
from tamis.tasks.columns.literals import plain_value

FIELD = "_tamis_rejected"
_COLUMNS = ("file", "offset", "id", "stage", "rule", "value", "threshold", "bytes")
_TEXT = pa.large_string()


_OFTEN_THE_SAME = ["file", "stage", "rule", "threshold"]  # a dictionary of the others would be as large as they are


class Rejections:
    """Collects the drops of one unit."""

    def __init__(self, keep_documents: bool, keep_hashes: bool = False) -> None:
        """Start without drops.

        `keep_hashes`: verdicts contain the hash of each record, so that a later pass need not read it
        (formats/jsonl/record_index.py).
        """
        self.keep_documents, self._keep_hashes = keep_documents, keep_hashes
        self._tables: list[pa.Table] = []
        self._documents: list[bytes] = []
        self._last_facts: tuple[DocumentBatch, Any, Any, Any] | None = None

    def add(
        self,
        parents: Sequence[DocumentBatch],
        dropped: np.ndarray[Any, Any],
        stage: str,
        rule: str,
        values: Any,
        threshold: Mapping[str, Any] | str,
        ids: Sequence[str | None] | None = None,
    ) -> None:
        """Record the documents that a rule of a stage dropped.

        `dropped`: their serials; `values`: the measured value of each, or None; `ids`: their ids, None: looked up.
        """
        order = np.argsort(dropped)
        dropped = np.asarray(dropped)[order]
        texts: list[str | None] = (
            [None] * len(dropped) if values is None else _texts([values[i] for i in order.tolist()])
        )
        names = None if ids is None else [ids[i] for i in order.tolist()]
        limit = threshold if isinstance(threshold, str) else json.dumps(dict(threshold), default=str)
        for batch in parents:
            inside = (
                (dropped >= batch.serial[0]) & (dropped <= batch.serial[-1])
                if batch.num_items
                else np.zeros(len(dropped), bool)
            )
            if inside.any():
                at = dropped[inside] - batch.serial[0]
                indices = None if inside.all() else np.flatnonzero(inside).tolist()
                batch_values, batch_ids = (
                    t if t is None or indices is None else [t[i] for i in indices] for t in (texts, names)
                )
                assert batch_values is not None
                self._add(batch, at, stage, rule, batch_values, limit, batch_ids)

    def _add(
        self,
        batch: DocumentBatch,
        at: np.ndarray[Any, Any],
        stage: str,
        rule: str,
        values: list[str | None],
        threshold: str,
        id_texts: list[str | None] | None,
    ) -> None:
        n = len(at)
        file, offset, sizes = self._facts(batch)
        # The documents' own, as text; null where there is none.
        ids = _as_text(batch.column_of(ID_FIELD, at)) if id_texts is None else pa.array(id_texts, _TEXT)
        same = [pa.repeat(pa.scalar(text, _TEXT), n) for text in (stage, rule, threshold)]
        columns = [
            pa.array(file[at]),
            pa.array(offset[at]),
            ids,
            same[0],
            same[1],
            pa.array(values, _TEXT),
            same[2],
            pa.array(sizes[at]),
        ]
        names = list(_COLUMNS)
        if self._keep_hashes:
            hashes = record_columns(batch, at)
            columns += [pa.array(hashes[name]) if hashes else pa.nulls(n, pa.uint64()) for name in RECORD_HASH]
            names += RECORD_HASH
        self._tables.append(pa.table(columns, names=names))
        if self.keep_documents:
            verdicts = [{"stage": stage, "rule": rule, "value": v, "threshold": threshold} for v in values]
            rejected = batch.take(at)
            for (kind, name), scores in batch.measured.items():
                if kind == SCORES:
                    rejected = rejected.with_column(name, scores[at])
            rejected = rejected.with_column(FIELD, pa.array(verdicts))
            self._documents.append(encode_jsonl(rejected).data.tobytes())

    def _facts(self, batch: DocumentBatch) -> tuple[Any, Any, Any]:
        """Return locations and sizes of a batch, computed once for all rules of a stage."""
        if self._last_facts is None or self._last_facts[0] is not batch:
            self._last_facts = (batch, *batch.places(), record_bytes(batch))
        return self._last_facts[1:]

    def spill(self, path: str) -> bool:
        """Move what was collected so far into a new file; False, and no file, if there is nothing."""
        self._last_facts = None
        if not self._tables and not self._documents:
            return False
        documents = pa.table({"document": pa.array(self._documents, pa.large_binary())})
        with own_files.create(path, 0o600) as file:
            for table in [documents, *self._tables]:
                with pa.ipc.new_stream(file, table.schema) as stream:
                    stream.write_table(table)
        self._tables, self._documents = [], []
        return True

    def restore(self, path: str) -> None:
        """Put what such a file holds before what was collected since, and remove it."""
        size, tables = os.path.getsize(path), []
        with pa.OSFile(os.fsencode(path), "rb") as source:
            while source.tell() < size:
                tables.append(pa.ipc.open_stream(source).read_all())
        self._tables = [*tables[1:], *self._tables]
        self._documents = [*tables[0]["document"].to_pylist(), *self._documents]
        os.unlink(path)

    def write(self, base: str) -> list[StagedFile]:
        """Write staged files: the verdicts as Parquet, the documents as JSONL."""
        files = []
        if self._tables:
            table = pa.concat_tables(self._tables)
            parquet.write_table(
                table, own_files.fresh(base + ".verdicts"), compression="zstd", use_dictionary=_OFTEN_THE_SAME
            )
            files.append(StagedFile(base + ".verdicts", FileKind.VERDICTS, len(table), extension="parquet"))
        if self._documents:
            with own_files.create(base + ".rejected") as file:
                for data in self._documents:
                    file.write(data)
            files.append(StagedFile(base + ".rejected", FileKind.REJECTED, sum(len(t) for t in self._tables)))
        return files


def _texts(values: list[Any]) -> list[str | None]:
    """Return `_text` of each value, without looking at each where all are texts or numbers."""
    kinds = set(map(type, values))
    if kinds == {str}:
        return values
    if kinds == {int} or (kinds == {float} and all(map(math.isfinite, values))):
        return list(map(repr, values))
    return list(map(_text, values))


def _as_text(ids: pa.Array) -> pa.Array:
    """Return ids as text; bytes, which need not be UTF-8, as JSON has them."""
    if is_bytes(ids.type):
        return pa.array([None if value is None else plain_value(value) for value in ids.to_pylist()], _TEXT)
    return widen(ids, _TEXT)


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    if type(value) is float and value - value == 0:
        return repr(value)
    if hasattr(value, "as_py"):
        value = value.as_py()
    elif isinstance(value, np.generic):
        value = value.item()
    if type(value) is float or type(value) is int:
        return repr(value) if value - value == 0 else json.dumps(value)  # as JSON writes numbers, ten times as fast
    return value if isinstance(value, str) else json.dumps(value, default=str)
