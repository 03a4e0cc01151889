"""The results of a run for its caller: written files as tasks, or documents loaded on access."""

from __future__ import annotations

import hmac
import os
from typing import Any

from tamis.engine.job import KEY
from tamis.engine.run.run_result import RunResult
from tamis.engine.schema import FileKind
from tamis.errors import RunConflict
from tamis.stores.opening import open_buffered
from tamis.tasks import DocumentBatch, FileGroupTask, Task
from tamis.tasks.file_group import infer_dataset_name
from tamis.tasks.perf import StagePerfStats

_SIGNED_BYTES = 32


class StoredBatch(DocumentBatch):
    """Documents in a file of the run directory. Loaded when first used, and only then."""

    def __init__(self, path: str, n_rows: int, dataset_name: str) -> None:
        super().__init__(dataset_name)
        self.path, self._n_stored = path, n_rows
        self._loaded = False

    @property
    def num_items(self) -> int:
        return super().num_items if self._loaded else self._n_stored

    def __getattribute__(self, name: str) -> Any:
        if name in _NEED_DATA and not object.__getattribute__(self, "__dict__").get("_loaded", True):
            object.__getattribute__(self, "_load")()
        return object.__getattribute__(self, name)

    def _load(self) -> None:
        from tamis.formats.whole_file import read_whole_file

        self._loaded = True
        loaded = read_whole_file(self.path)
        self._origin, self._rows = loaded._origin, loaded._rows

    def __repr__(self) -> str:
        return f"StoredBatch({self.path!r}, {self.num_items} documents)"


_NEED_DATA = {
    "data",
    "get_columns",
    "column",
    "exact_column",
    "texts",
    "values",
    "kinds",
    "with_texts",
    "to_pyarrow",
    "to_pandas",
    "with_column",
    "drop_columns",
    "select",
    "take",
    "filter",
}


def _own_tasks(path: str) -> list[Task[Any]]:
    """Return tasks of a user's own kinds, pickled by a worker of this program and signed with its key.

    No others are read: a run directory may come from anywhere.
    """
    import pickle

    with open_buffered(path) as file:
        signed, data = file.read(_SIGNED_BYTES), file.read()
    if not hmac.compare_digest(signed, hmac.digest(KEY, data, "sha256")):
        raise RunConflict(
            f"{path} holds tasks that another program made, which are not read back; run it again with fresh=True"
        )
    tasks: list[Task[Any]] = pickle.loads(data)
    return tasks


def load_results(result: RunResult, name: str) -> list[Task[Any]]:
    tasks: list[Task[Any]] = []
    dataset = infer_dataset_name(result.input_paths) or name
    sources = result.sources() if result.input_paths else {}
    for file in result.files:
        metadata: dict[str, Any] = {"source_files": sources[file.name]} if sources.get(file.name) else {}
        if file.kind is FileKind.LISTED:
            tasks.append(FileGroupTask(dataset, [file.name], _metadata=metadata))
            continue
        path = os.path.join(result.output, file.name)
        if not result.has_writer and file.name.endswith(".tasks"):
            tasks += _own_tasks(path)
        elif result.has_writer and tasks and os.path.splitext(tasks[-1].data[0])[0] == os.path.splitext(path)[0]:
            tasks[-1].data.append(path)  # of a format whose documents are in several files
        elif result.has_writer:
            metadata |= {"format": os.path.splitext(path)[1].lstrip(".")}
            tasks.append(FileGroupTask(dataset, [path], _metadata=metadata))
        else:
            tasks.append(StoredBatch(path, file.rows, dataset))
            tasks[-1]._metadata = metadata
            tasks[-1].task_id = f"{FileGroupTask(dataset, sources.get(file.name, [])).task_id}.{len(tasks) - 1}"
    figures = measured(result)
    for i, task in enumerate(tasks):
        task._stage_perf += figures if i == 0 else [StagePerfStats(f.stage_name) for f in figures]
    return tasks


def measured(result: RunResult) -> list[StagePerfStats]:
    """Return the total cost of each stage, in order, with what lists, reads and writes the files.

    The first task carries it and the others have zeros, so that sums over all tasks are those of the run. The time
    of reading and writing is not measured apart from that of the stages.
    """
    ledger, (source, reader, writer) = result.ledger, result.io_names
    read_mb = ledger.read_bytes / 1024**2
    figures = [StagePerfStats(source, num_items_processed=len(result.input_paths))] if source else []
    if reader:
        figures.append(StagePerfStats(reader, 0.0, 0.0, read_mb, ledger.records.n))
    for i, book in enumerate(ledger.stages):
        size_mb = 0.0 if reader or i else read_mb
        figures.append(StagePerfStats(book.name, book.seconds, 0.0, size_mb, book.into.n, dict(book.metrics)))
    if writer:
        figures.append(StagePerfStats(writer, num_items_processed=ledger.written.n))
    return figures
