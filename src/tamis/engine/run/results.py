"""The results of a run for its caller: written files as tasks, or documents loaded on access."""

from __future__ import annotations

import hmac
import os
from typing import Any

from tamis.engine.job import KEY
from tamis.engine.ledger import Ledger
from tamis.engine.run.run_result import RunResult
from tamis.engine.schema import FileKind
from tamis.errors import RunConflict
from tamis.stores.opening import open_buffered
from tamis.tasks import DocumentBatch, FileGroupTask, Task
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
    for file in result.files:
        if file.kind is FileKind.LISTED:
            tasks.append(FileGroupTask(name, [file.name]))
            continue
        path = os.path.join(result.output, file.name)
        if not result.has_writer and file.name.endswith(".tasks"):
            tasks += _own_tasks(path)
        elif result.has_writer:
            tasks.append(FileGroupTask(name, [path]))
        else:
            tasks.append(StoredBatch(path, file.rows, name))
    if tasks:
        tasks[0]._stage_perf += measured(result.ledger)
    return tasks


def measured(ledger: Ledger) -> list[StagePerfStats]:
    """Return the total cost of each stage.

    The first task carries it, so that sums over all tasks are those of the run.
    """
    first = ledger.read_bytes / 1024**2
    return [
        StagePerfStats(book.name, book.seconds, 0.0, first if i == 0 else 0.0, book.into.n, dict(book.metrics))
        for i, book in enumerate(ledger.stages)
    ]
