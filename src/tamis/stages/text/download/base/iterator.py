"""From files to documents: an iterator reads records one by one, an extractor turns each into a document."""

from __future__ import annotations

import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tamis._lazy import pa
from tamis.errors import TamisError, UsageError
from tamis.sizes import check_optional_integer
from tamis.stages.base import ProcessingStage
from tamis.stages.text.download.base.extract import DocumentExtractor
from tamis.stages.text.download.base.room import release
from tamis.stages.text.download.base.skips import Skips
from tamis.stores.opening import size_of
from tamis.tasks import DocumentBatch, FileGroupTask

log = logging.getLogger("tamis.download")

_BATCH_BYTES = 8 << 20


def resolve_filename_column(add_filename_column: bool | str) -> str | None:
    """Return the column that names the file of a document.

    The default name for True, the given name for a string, or None for False.

    >>> resolve_filename_column(True), resolve_filename_column("source"), resolve_filename_column(False)
    ('file_name', 'source', None)
    """
    if isinstance(add_filename_column, str) and add_filename_column:
        return add_filename_column
    if not isinstance(add_filename_column, bool):
        raise UsageError(
            f"add_filename_column: expected True, False or the name of a column, got {add_filename_column!r}"
        )
    return "file_name" if add_filename_column else None


class DocumentIterator(Skips, ABC):
    """Reads the records of one file, one at a time."""

    @abstractmethod
    def iterate(self, file_path: str) -> Iterator[dict[str, Any]]:
        """Yield the records. Raw contents may have any field name; the extractor knows it."""

    @abstractmethod
    def output_columns(self) -> list[str]:
        """Return the fields of a record."""


@dataclass(repr=False)
class DocumentIterateExtractStage(ProcessingStage[FileGroupTask, DocumentBatch]):
    """Takes tasks with files, gives documents in batches of some 8 MB; only one more record is held.

    `remove_files`: a file is removed when its documents were read; one whose documents are not committed is fetched
    again. `record_limit` is per file. `add_filename_column`: True adds `file_name`, a string names the column, False
    adds none. Records that gave no document are counted by reason; what could not be read, or was refused, goes to
    quarantine with file and offset.
    """

    iterator: DocumentIterator
    extractor: DocumentExtractor | None = None
    record_limit: int | None = None
    add_filename_column: bool | str = True
    max_calls_per_worker: int | None = None
    remove_files: bool = False
    columns_in = ()

    def __post_init__(self) -> None:
        parts = [p for p in (self.iterator, self.extractor) if p is not None]
        self.name = "iterate_extract_" + "_".join(type(p).__name__.lower() for p in parts)
        self.filename_col = resolve_filename_column(self.add_filename_column)
        self.kernel_groups = tuple(dict.fromkeys(g for p in parts for g in getattr(p, "kernel_groups", ())))  # type: ignore[misc]
        for what in ("record_limit", "max_calls_per_worker"):
            check_optional_integer(getattr(self, what), f"{self.name}: {what}")

    def outputs(self) -> tuple[list[str], list[str]]:
        columns = (self.extractor or self.iterator).output_columns()
        return ["data"], [*columns, *([self.filename_col] if self.filename_col else [])]

    def ray_stage_spec(self) -> dict[str, Any]:
        return {} if self.max_calls_per_worker is None else {"max_calls_per_worker": self.max_calls_per_worker}

    def process(self, task: FileGroupTask) -> DocumentBatch | list[DocumentBatch]:
        """Return all documents of the files: one batch, or several if there are many documents."""
        batches = list(self.iter_batches(task))
        return batches[0] if len(batches) == 1 else batches

    def iter_batches(self, task: FileGroupTask) -> Iterator[DocumentBatch]:
        """Yield the documents of the files batch by batch, in bounded memory.

        At least one batch, which may be empty.
        """
        rows: list[dict[str, Any]] = []
        n_bytes = n_batches = 0
        for path in task.data:
            for row in self._documents(path):
                rows.append(row)
                n_bytes += _weight(row)
                if n_bytes >= _BATCH_BYTES:
                    yield self._batch(rows, task)
                    rows, n_bytes, n_batches = [], 0, n_batches + 1
            if self.remove_files:
                release(path)
        if rows or not n_batches:
            yield self._batch(rows, task)

    def _documents(self, path: str) -> Iterator[dict[str, Any]]:
        n_records = n_documents = n_refused = 0
        doing = "reading"
        try:
            for record in self.iterator.iterate(path):
                if self.record_limit is not None and n_records >= self.record_limit:
                    break
                n_records += 1
                doing = "extracting"
                row = record if self.extractor is None else self.extractor.extract(record)
                doing = "reading"
                for fault in self.extractor.take_faults() if self.extractor is not None else ():
                    n_refused += fault.n
                    self.iterator._fault(fault._replace(path=path, offset=self.iterator.record_offset))
                if row is None:
                    continue
                if self.filename_col:
                    row = {**row, self.filename_col: os.path.basename(path)}
                n_documents += 1
                yield row
        except (TamisError, MemoryError, OSError):
            raise
        except Exception as exc:
            what = f"{path}: {doing} record {n_records + (doing == 'reading'):,} failed: {type(exc).__name__}: {exc}"
            raise TamisError(what) from exc
        finally:
            self._report(path, n_records, n_documents, n_refused)

    def _report(self, path: str, n_records: int, n_documents: int, n_refused: int) -> None:
        """Log the counts of a file, and note its faults."""
        counts = {"files": 1, "records": n_records, "documents": n_documents}
        skipped = self.extractor.take_skipped() if isinstance(self.extractor, Skips) else {}
        before = self.iterator.take_skipped()  # never handed out as records
        counts |= {f"skipped: {reason}": n for reason, n in {**before, **skipped}.items()}
        n_silent = n_records - n_refused - n_documents - sum(skipped.values())
        if n_silent > 0:
            skipped["records without a document"] = n_silent
        faults = self.iterator.take_faults()
        if faults:
            log.warning("%s: %s parts could not be read; the first: %s", path, f"{len(faults):,}", faults[0].reason)
            counts |= {"quarantined": len(faults), "lost_bytes": sum(f.lost_bytes for f in faults)}
        self._log_metrics(counts)
        self._note_input(faults, n_records - n_refused, _stored_bytes(path), skipped)

    def _batch(self, rows: list[dict[str, Any]], task: FileGroupTask) -> DocumentBatch:
        from tamis.tasks.columns.exact import exact_array

        names = dict.fromkeys(self.outputs()[1]) | dict.fromkeys(name for row in rows for name in row)
        if not rows:
            return DocumentBatch(task.dataset_name, pa.table({n: pa.array([], pa.string()) for n in names}))
        columns = {name: exact_array([row.get(name) for row in rows]) for name in names}
        return DocumentBatch(task.dataset_name, pa.table(columns), task._stage_perf, task._metadata)


def _stored_bytes(path: str) -> int:
    """Return the size of a file; 0 for what only its iterator can open."""
    try:
        return size_of(path)
    except OSError:
        return 0


def _weight(row: dict[str, Any]) -> int:
    """Return the approximate size of a document in bytes."""
    return sum(len(v) if isinstance(v, (str, bytes)) else 16 for v in row.values()) + 64
