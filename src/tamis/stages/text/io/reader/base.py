"""Base classes of custom readers, for formats that Tamis does not know.

A subclass of BaseFileReader follows a FilePartitioningStage in a pipeline. The built-in readers do not use them: the
engine reads ranges of their files itself.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tamis._lazy import pa
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.io import check_fields
from tamis.tasks import DocumentBatch, FileGroupTask, Task


@dataclass
class ReaderOutput:
    """The result of a reader: a table or a frame, and metadata for the task."""

    data: Any
    metadata: dict[str, Any] | None = None


@dataclass(repr=False)
class BaseReader(ProcessingStage[Task[Any], DocumentBatch]):
    """Turns a task into documents by `read_task`. `fields`: the documents have only these; a missing one is an error.

    If nothing was read the batch is empty, with or without `allow_empty`: an empty file has no documents, which is not
    an error.
    """

    fields: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    _generate_ids: bool = False
    _assign_ids: bool = False
    allow_empty: bool = False
    columns_in = ()

    def __post_init__(self) -> None:
        self.name = self.name or type(self).__name__.lower()
        self.fields = check_fields(self.name, self.fields)
        if self._generate_ids or self._assign_ids:
            raise UsageError(f"{self.name}: deduplication workflows assign ids; add others with the stage AddId")

    def outputs(self) -> tuple[list[str], list[str]]:
        return ["data"], list(self.fields or [])

    def ray_stage_spec(self) -> dict[str, Any]:
        return {}

    @abstractmethod
    def read_task(self, task: Any, read_kwargs: Mapping[str, Any], fields: Sequence[str] | None) -> ReaderOutput | None:
        """Read the documents of a task, or return None if there are none."""

    def process(self, task: Any) -> DocumentBatch:
        output = self.read_task(task, dict(self.read_kwargs), self.fields)
        if output is None or output.data is None:
            empty = pa.table({name: pa.array([], pa.string()) for name in self.fields or ()})
            return DocumentBatch(task.dataset_name, empty, task._stage_perf, dict(task._metadata))
        batch = DocumentBatch(
            task.dataset_name, output.data, task._stage_perf, {**task._metadata, **(output.metadata or {})}
        )
        if self.fields is None:
            return batch
        columns = batch.get_columns()
        missing = [name for name in self.fields if name not in columns]
        if missing and batch.num_items:
            raise UsageError(f"{self.name}: {task.data} has no field {', '.join(missing)}; it has {columns}")
        return batch.select(list(self.fields))


@dataclass(repr=False)
class BaseFileReader(BaseReader):
    """Turns groups of files into documents by `read_data`."""

    @abstractmethod
    def read_data(self, file_paths: list[str], read_kwargs: Mapping[str, Any], fields: Sequence[str] | None) -> Any:
        """Read all documents of these files: a pyarrow.Table, a pandas.DataFrame, or None."""

    def read_task(
        self, task: FileGroupTask, read_kwargs: Mapping[str, Any], fields: Sequence[str] | None
    ) -> ReaderOutput | None:
        return ReaderOutput(self.read_data(task.data, read_kwargs, fields), {"source_files": list(task.data)})
