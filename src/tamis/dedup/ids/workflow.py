"""TextDuplicatesRemovalWorkflow: remove the documents that a table of ids lists."""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Any

from tamis.dedup.alarms import by_shared_ids
from tamis.dedup.ids.stages import check_field, is_without_ids
from tamis.dedup.nemo_compat.finding import DocumentedResult, files_of, tasks_and_executor
from tamis.dedup.nemo_compat.id_generator import IdGenerator
from tamis.dedup.options import Input, WriterFactory, absolute
from tamis.dedup.passes import DedupResult, Passes
from tamis.errors import UsageError
from tamis.pipeline import WorkflowBase
from tamis.stages.io import check_fields
from tamis.stages.text.io.formats import check_file_type, writer_of
from tamis.stages.text.io.options import read_options
from tamis.stages.text.io.reader.ids import CURATOR_DEDUP_ID_STR
from tamis.stores.run_locations import run_dir_of

_WHO = "TextDuplicatesRemovalWorkflow"
_MODES = (None, "ignore", "append", "error", "overwrite")


@dataclass
class TextDuplicatesRemovalWorkflow(WorkflowBase):
    """Removes the documents of `input_path` whose ids `ids_to_remove_path` lists.

    The ids are in Parquet or JSONL: a file, a folder, a glob.

    With `id_generator_path` (what a deduplication wrote) ids are numbers by file and place, `_curator_dedup_id`; input
    may be cut into other partitions than it was for the deduplication. Without it, documents have their ids in
    `id_field`, texts or numbers (7, 7.0 and "7" are one id); documents without an id stay, and an id that several
    documents have takes them all (and is reported). `id_field=None` means the ids by file and position (`000003_12345`)
    of `OUT.tamis/duplicates`; each must name a document, and the input files must be the same.
    `duplicate_id_field`: the column of the table of ids. From an empty folder (a deduplication found nothing) nothing
    is removed.

    The ids are sorted into a table on disk (16 bytes each, 40 more of scratch while it is made); workers look into it
    and never load it.
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
    # Names that three of these have in earlier releases of NeMo Curator.
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
        read_options(_WHO, self.duplicate_id_read_kwargs, "duplicate_id_read_kwargs")
        _, columns = read_options(_WHO, self.input_kwargs, "input_kwargs")
        self.output_path = absolute(self.output_path, "output_path")
        self.ids_to_remove_path = absolute(self.ids_to_remove_path, "ids_to_remove_path")
        check_field("id_field", self.id_field, optional=True)
        check_field("duplicate_id_field", self.duplicate_id_field)
        self.input_fields = check_fields(_WHO, self.input_fields or columns)
        self.output_fields = check_fields(_WHO, self.output_fields)
        check_file_type(_WHO, "output_filetype", self.output_filetype)
        self._check_id_generator()
        if self.output_mode not in _MODES:
            raise UsageError(
                f"{_WHO}: output_mode must be 'ignore' or 'append' (go on where an earlier call stopped), 'error' or "
                f"'overwrite', got {self.output_mode!r}"
            )
        if self.own_field is not None and self.input_fields is not None and self.own_field not in self.input_fields:
            raise UsageError(
                f"{_WHO}: input_fields must hold id_field ({self.own_field!r}); drop_id_field leaves it out"
            )
        self._refuse_own_output()
        self.input_path = absolute(self.input_path, "input_path") if self.input_path else None
        if self.output_filetype is not None:  # the files are looked at when it runs
            writer_of(self.output_filetype)(
                self.output_path, write_kwargs=self.output_kwargs, fields=self.output_fields
            )
        elif self.input_path is not None:
            self._writer()

    def _check_id_generator(self) -> None:
        if self.id_generator_storage_options:
            raise UsageError(
                f"{_WHO}: id_generator_storage_options are for remote paths, which this version does not read"
            )
        if self.id_generator_path is not None:
            self.id_generator_path = absolute(self.id_generator_path, "id_generator_path")
            IdGenerator.from_disk(self.id_generator_path)
        elif self.drop_id_field and self.id_field is None:
            raise UsageError(f"{_WHO}: drop_id_field: without id_field there is no field to drop")

    @property
    def own_field(self) -> str | None:
        """The field that holds the documents' own ids.

        None where ids are those of file and place, which no document carries.
        """
        return self.id_field if self.id_generator_path is None else None

    @property
    def ids_name(self) -> str:
        """The table of ids, in messages."""
        return (
            self.ids_to_remove_path if isinstance(self.ids_to_remove_path, str) else ", ".join(self.ids_to_remove_path)
        )

    @property
    def writes_ids(self) -> bool:
        """True if the ids by file and position are written, as the field that the output must have."""
        is_wanted = CURATOR_DEDUP_ID_STR in (self.output_fields or ())
        return self.id_generator_path is not None and is_wanted and not self.drop_id_field

    def _refuse_own_output(self) -> None:
        ids = [self.ids_to_remove_path] if isinstance(self.ids_to_remove_path, str) else self.ids_to_remove_path
        for path in ids:
            if f"{path}/".startswith((f"{self.output_path}/", f"{run_dir_of(self.output_path)}/")):
                raise UsageError(f"{_WHO}: {path} lies in the output {self.output_path}; give another output_path")

    def _input(self) -> Input:
        more = {"fields": self.input_fields, "limit": self.input_task_limit}
        more["files_per_partition"] = self.input_files_per_partition
        return Input(
            _WHO,
            self.input_path,
            self.input_filetype,
            self.input_blocksize,
            self.input_file_extensions,
            more=more,
            one_per_file=True,
        )

    def _writer(self) -> WriterFactory:
        return self._input().writer(
            self.output_path,
            self.output_filetype,
            self.output_file_extension,
            write_kwargs=self.output_kwargs,
            fields=self.output_fields,
        )

    def remove(self, executor: Any = None, *, progress: Any = True, **settings: Any) -> DedupResult:
        """Run the removal, or resume it. `settings` are those of a run: memory="1GB", workers, scratch, fresh.

        Resumes where it was stopped.
        """
        from tamis.backends.slurm_array import undivided
        from tamis.dedup.ids.procedure import RemovalByIds
        from tamis.dedup.pass_runner import files_read_by
        from tamis.dedup.workflow import Workflow
        from tamis.stages.text.io.reader import DocumentReader

        identity = {
            "input": self.input_path,
            "ids": self.ids_to_remove_path,
            "id_field": self.own_field,
            "fields": self.input_fields,
            "duplicate_id_field": self.duplicate_id_field,
            "output_fields": self.output_fields,
            "drop_id_field": self.drop_id_field and self.own_field is not None,
            "limit": self.input_task_limit,
            "id_generator": self.id_generator_path,
        }
        if self.output_mode == "overwrite":
            settings.setdefault("fresh", True)
        is_empty = is_without_ids(self.ids_to_remove_path)  # a deduplication found nothing: everything stays
        if not is_empty:
            listed = files_read_by(DocumentReader(self.ids_to_remove_path), _WHO)
            identity["ids_files"] = list(map(list, zip(listed.paths, listed.sizes, listed.mtimes_ns, strict=True)))
        passes = Passes(
            "removal of listed duplicates",
            self._input().reader,
            [],
            self.output_path,
            None,
            self._writer(),
            identity=identity,
            procedure=RemovalByIds(self, is_empty),
            instead_of_sample="leave it out",
        )
        with undivided(_WHO, settings):
            result = Workflow(passes, settings, progress, executor).run()
        result.duplicates = self.ids_name
        return result

    def run(
        self, executor: Any = None, initial_tasks: Any = None, *, progress: Any = True, **settings: Any
    ) -> DocumentedResult:
        """Run the workflow. `initial_tasks`: groups of files instead of input_path.

        `settings` are those of a run: memory="1GB", workers, scratch, fresh.
        """
        from tamis.engine.run.results import load_results

        started_s = time.monotonic()
        tasks, executor = tasks_and_executor(_WHO, initial_tasks, executor)
        workflow = copy.copy(self)
        workflow.input_path = absolute(files_of(tasks)) if tasks else self.input_path
        if self.output_mode == "error" and os.path.isdir(workflow.output_path) and os.listdir(workflow.output_path):
            raise UsageError(
                f"{_WHO}: {workflow.output_path} is not empty; choose another folder, or output_mode='overwrite'"
            )
        result = workflow.remove(executor, progress=progress, **settings)
        if result.summary.get("n_by_shared_ids"):
            warnings.warn(f"{_WHO}: {by_shared_ids(result.summary)}", stacklevel=2)
        removed = {"num_duplicates_removed": result.n_duplicates, "total_time": time.monotonic() - started_s}
        written = [] if result.run is None else load_results(result.run, "removal")
        for task in written:
            n_read, n_written = (task._stage_perf[i].num_items_processed for i in (1, -1))
            task._metadata["num_removed"] = n_read - n_written
        tasks_of = {} if result.run is None else {"removal": written}
        return DocumentedResult("text_duplicates_removal", result, tasks_of, removed)
