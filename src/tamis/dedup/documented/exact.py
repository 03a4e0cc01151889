"""ExactDeduplicationWorkflow with the parameters, defaults and files that its users know."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.documented.common import (
    DocumentedResult,
    check_storage,
    environment,
    files_of,
    forget_ids,
    say_what_is_done_otherwise,
    tasks_and_executor,
    write_ids,
)
from tamis.dedup.documented.id_generator import of_files
from tamis.dedup.exact import workflow as own
from tamis.errors import UsageError
from tamis.pipeline import WorkflowBase

if TYPE_CHECKING:
    from tamis.dedup.planning import DedupPlan

_WHO = "ExactDeduplicationWorkflow"
_IDS, _GENERATOR = "ExactDuplicateIds", "exact_id_generator.json"
_BLOCK = "2GiB"  # an upper bound there; partitions follow from the memory budget here, and are smaller
OWN = ("normalize_text", "output_filetype", "keep", "keep_by", "max_source_loss", "index_path", "against", "append")


@dataclass
class ExactDeduplicationWorkflow(WorkflowBase):
    """Finds documents whose texts are equal.

    `output_path` gets `ExactDuplicateIds/` (Parquet with one column: ids of all documents but one of each group) and
    `exact_id_generator.json`, for TextDuplicatesRemovalWorkflow. Ids are whole numbers, a function of file and place
    (`_curator_dedup_id`), or with `assign_id=False` those that documents have in `id_field`. `perform_removal=True` writes the documents
    that stay instead, in the same call. `input_filetype` None reads JSONL and Parquet. Parameters from `normalize_text` on: see
    tamis.dedup.exact.workflow.
    """

    output_path: str
    input_path: Any = None
    input_filetype: str | None = "parquet"
    input_blocksize: str | int | None = _BLOCK
    identification_batchsize: int = 1
    input_file_extensions: Sequence[str] | None = None
    read_kwargs: Mapping[str, Any] | None = None
    write_kwargs: Mapping[str, Any] | None = None
    assign_id: bool = True
    id_field: str | None = None
    text_field: str = "text"
    perform_removal: bool = False
    total_nparts: int | None = None
    rmm_pool_size: str | int | None = "auto"
    spill_memory_limit: str | int | None = "auto"
    env_vars: Mapping[str, Any] | None = None
    use_async_memory: bool = True
    normalize_text: bool | str = False
    output_filetype: str | None = None
    keep: str = "first"
    keep_by: str | None = None
    max_source_loss: float | str = 0.95
    index_path: str | None = None
    against: str | None = None
    append: bool = False

    def __post_init__(self) -> None:
        usual = {f.name: f.default for f in dataclasses.fields(self)}
        say_what_is_done_otherwise(_WHO, vars(self), usual)
        check_storage(_WHO, "write_kwargs", self.write_kwargs)
        if self.assign_id and self.id_field is not None:
            raise UsageError(f"{_WHO}: id_field goes with assign_id=False; with assign_id=True ids are made here")
        if not self.assign_id and self.id_field is None:
            raise UsageError(f"{_WHO}: assign_id=False needs id_field, the field that holds the documents' own ids")
        self._own(self.input_path)

    def _own(self, input_path: Any) -> own.ExactDeduplicationWorkflow:
        return own.ExactDeduplicationWorkflow(
            self.output_path, input_path, self.input_filetype, None if self.input_blocksize == _BLOCK else self.input_blocksize,
            input_file_extensions=self.input_file_extensions, read_kwargs=self.read_kwargs, text_field=self.text_field,
            perform_removal=self.perform_removal, **{name: getattr(self, name) for name in OWN},
        )  # fmt: skip

    def run(
        self, initial_tasks: Any = None, executor: Any = None, *, progress: Any = True, **settings: Any
    ) -> DocumentedResult:
        """`initial_tasks`: groups of files instead of input_path. `settings` are those of a run: memory="1GB", workers, scratch, fresh."""
        began_s = time.monotonic()
        tasks, executor = tasks_and_executor(_WHO, initial_tasks, executor)
        made = self._own(files_of(tasks) or self.input_path)
        if settings.get("fresh"):
            forget_ids(made.output_path, _IDS, _GENERATOR)
        with environment(self.env_vars):
            found = made.run(executor, progress=progress, **settings)
        identified_s = time.monotonic() - began_s
        metadata: dict[str, Any] = {"num_duplicates": found.n_duplicates, "identification_time": identified_s}
        written = {}
        if not self.perform_removal:
            folder = os.path.join(found.output, _IDS)
            source = made._input().reader()
            shared = {k: v for k, v in settings.items() if k not in ("fresh", "watch")}
            written["identification"] = write_ids(folder, found.duplicates, source, self.id_field, shared, executor)
            if self.assign_id:
                path = os.path.join(found.output, _GENERATOR)
                of_files([os.fsdecode(p) for p in made._input().files().paths]).to_disk(path)
                metadata["id_generator_path"] = path
        metadata["total_time"] = time.monotonic() - began_s
        return DocumentedResult("exact_deduplication", found, written, metadata)

    def own(self) -> own.ExactDeduplicationWorkflow:
        """The workflow behind it, as commands know it."""
        return self._own(self.input_path)

    def plan(self, memory: str | int | None = None, work: str | None = None) -> DedupPlan:
        """What a run would take, from a small sample; `work`: its scratch folder. Nothing is written."""
        return self.own().plan(memory, work)
