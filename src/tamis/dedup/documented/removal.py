"""TextDuplicatesRemovalWorkflow and its stage, with the parameters and defaults that their users know."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any

from tamis.dedup.documented.id_generator import IdGenerator
from tamis.dedup.documented.parameters_and_results import DocumentedResult, files_of, tasks_and_executor
from tamis.dedup.ids import workflow as own
from tamis.dedup.ids.stages import check_field, id_texts
from tamis.dedup.keys import text_hashes
from tamis.errors import UsageError
from tamis.formats.registry import is_table
from tamis.pipeline import Pipeline, WorkflowBase
from tamis.stages.base import ProcessingStage
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR
from tamis.tasks import DocumentBatch

if TYPE_CHECKING:
    import numpy as np

_WHO = "TextDuplicatesRemovalWorkflow"
_SAME = (
    "input_filetype", "input_fields", "input_files_per_partition", "input_blocksize", "input_file_extensions", "input_task_limit",
    "duplicate_id_field", "output_file_extension", "output_filetype", "output_kwargs", "output_fields", "drop_id_field",
)  # fmt: skip


@dataclass
class TextDuplicatesRemovalWorkflow(WorkflowBase):
    """Removes the documents of `input_path` whose ids are in `ids_to_remove_path`.

    With `id_generator_path` (what a deduplication wrote) ids are numbers by file and place, `_curator_dedup_id`; input may be cut into
    other partitions than it was for the deduplication. Without it, documents have their ids in `id_field`. `id_field=None` means
    the ids of `_tamis/duplicates`. `duplicate_id_field`: the column of the table of ids.
    """

    input_path: Any
    ids_to_remove_path: Any
    output_path: str
    input_filetype: str | None = "parquet"
    input_fields: Sequence[str] | None = None
    id_field: str | None = CURATOR_DEDUP_ID_STR
    input_files_per_partition: int | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    input_task_limit: int | None = None
    input_kwargs: Mapping[str, Any] | None = None
    duplicate_id_field: str = "id"
    duplicate_id_read_kwargs: Mapping[str, Any] | None = None
    id_generator_path: str | None = None
    id_generator_storage_options: Mapping[str, Any] | None = None
    output_file_extension: str | None = None
    output_filetype: str | None = "parquet"
    output_kwargs: Mapping[str, Any] | None = None
    output_fields: Sequence[str] | None = None
    output_mode: str | None = None
    drop_id_field: bool = False
    # Names that three of these had in an earlier version.
    input_id_field: InitVar[str | None] = field(default=None, kw_only=True)
    ids_to_remove_duplicate_id_field: InitVar[str | None] = field(default=None, kw_only=True)
    ids_to_remove_read_kwargs: InitVar[Mapping[str, Any] | None] = field(default=None, kw_only=True)

    def __post_init__(
        self,
        input_id_field: str | None,
        ids_to_remove_duplicate_id_field: str | None,
        ids_to_remove_read_kwargs: Mapping[str, Any] | None,
    ) -> None:
        self.id_field = input_id_field or self.id_field
        self.duplicate_id_field = ids_to_remove_duplicate_id_field or self.duplicate_id_field
        self.duplicate_id_read_kwargs = ids_to_remove_read_kwargs or self.duplicate_id_read_kwargs
        read_options(_WHO, self.duplicate_id_read_kwargs)
        if self.id_generator_storage_options:
            raise UsageError(
                f"{_WHO}: id_generator_storage_options are for remote paths, which this version does not read"
            )
        if self.id_generator_path is not None:
            IdGenerator.from_disk(self.id_generator_path)
        if self.input_path is not None:
            self._own(self.input_path)

    def _own(self, input_path: Any) -> own.TextDuplicatesRemovalWorkflow:
        _, columns = read_options(_WHO, self.input_kwargs)
        same = {name: getattr(self, name) for name in _SAME}
        same["input_fields"] = same["input_fields"] or columns
        is_placed = self.id_generator_path is not None
        same["drop_id_field"] = same["drop_id_field"] and not is_placed  # no document carries such a number
        mode = "ignore" if self.output_mode in ("append", "error") else self.output_mode
        return own.TextDuplicatesRemovalWorkflow(
            input_path, self.ids_to_remove_path, self.output_path, id_field=None if is_placed else self.id_field,
            id_generator_path=self.id_generator_path, output_mode=mode, **same,
        )  # fmt: skip

    def run(
        self, initial_tasks: Any = None, executor: Any = None, *, progress: Any = True, **settings: Any
    ) -> DocumentedResult:
        """`initial_tasks`: groups of files instead of input_path. `settings` are those of a run: memory="1GB", workers, scratch, fresh."""
        began_s = time.monotonic()
        tasks, executor = tasks_and_executor(_WHO, initial_tasks, executor)
        made = self._own(files_of(tasks) or self.input_path)
        if self.output_mode == "error" and os.path.isdir(made.output_path) and os.listdir(made.output_path):
            raise UsageError(
                f"{_WHO}: {made.output_path} is not empty; choose another folder, or output_mode='overwrite'"
            )
        if _is_without_ids(self.ids_to_remove_path):
            found = self._copied(made, executor, settings)
        else:
            found = made.run(executor, progress=progress, **settings)
        removed = {"num_duplicates_removed": found.n_duplicates, "total_time": time.monotonic() - began_s}
        return DocumentedResult("text_duplicates_removal", found, {}, removed)

    def _copied(self, made: own.TextDuplicatesRemovalWorkflow, executor: Any, settings: Mapping[str, Any]) -> Any:
        """A deduplication found nothing: everything stays."""
        from tamis.dedup.kinds import DedupResult

        pipeline = Pipeline("removal of no duplicates", stages=[made._input().reader(), made._writer()()])
        result = pipeline.execute(executor, **settings)
        about = {"n_documents": result.ledger.written.n, "n_duplicates": 0, "n_ids": 0}
        return DedupResult(
            result.status, result.output, str(self.ids_to_remove_path), about, result.seconds, run=result
        )


def _is_without_ids(path: Any) -> bool:
    """Whether it is a folder in which a deduplication wrote no id, because there is none."""
    if not isinstance(path, (str, os.PathLike)) or not os.path.isdir(path):
        return False
    return not any(
        is_table(name) or ".json" in name for _, _, names in os.walk(os.fspath(path)) for name in map(str, names)
    )


@dataclass(repr=False)
class TextDuplicatesRemovalStage(ProcessingStage[DocumentBatch, DocumentBatch]):
    """Drops the documents whose ids are listed in `ids_to_remove_path`: Parquet or JSONL, a file or a folder.

    A worker holds 16 bytes for each id; TextDuplicatesRemovalWorkflow keeps them on the disk.
    """

    ids_to_remove_path: str
    id_field: str = CURATOR_DEDUP_ID_STR
    duplicate_id_field: str = "id"
    read_kwargs: Mapping[str, Any] | None = None
    drop_id_field: bool = False
    name: str = "remove_listed_duplicates"

    def __post_init__(self) -> None:
        read_options("TextDuplicatesRemovalStage", self.read_kwargs)
        check_field("id_field", self.id_field)
        check_field("duplicate_id_field", self.duplicate_id_field)

    def inputs(self) -> Any:
        return ["data"], [self.id_field]

    def setup(self, worker_metadata: Any = None) -> None:
        import numpy as np

        from tamis.formats.input_files.listing import list_files
        from tamis.formats.whole_file import read_whole_file

        files = list_files(self.ids_to_remove_path, (".parquet", ".jsonl", ".json"))
        found = [_keys(self.name, read_whole_file(os.fsdecode(p)), self.duplicate_id_field) for p in files.paths]
        self._listed = np.unique(np.concatenate([keys[has] for keys, has in found]))

    def process(self, batch: DocumentBatch) -> DocumentBatch:
        import numpy as np

        keys, has_id = _keys(self.name, batch, self.id_field)
        gone = has_id & np.isin(keys, self._listed)
        if gone.any():
            self._note_drops(batch.serial[gone], "listed_duplicate", None, f"listed in {self.ids_to_remove_path}")
        if self.drop_id_field:
            batch = batch.drop_columns([self.id_field])
        return batch.filter(~gone)


def _keys(who: str, batch: DocumentBatch, field: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """The 128-bit hashes of ids, 16 bytes each; and which documents have one."""
    import numpy as np

    if field not in batch.get_columns():
        raise UsageError(f"{who}: there is no field {field!r}; there are {batch.get_columns()}")
    texts = id_texts(batch.column(field))
    if texts is None:
        raise UsageError(f"{who}: {field!r} must hold texts or numbers")
    hi, lo, length = text_hashes(texts)
    pairs = np.ascontiguousarray(np.stack([hi, lo], axis=1)).view("V16").reshape(-1)
    return pairs, length >= 0
