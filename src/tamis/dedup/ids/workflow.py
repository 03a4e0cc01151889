"""TextDuplicatesRemovalWorkflow: remove the documents that a table of ids lists."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tamis.dedup.ids.stages import TextDuplicatesRemovalStage, check_field
from tamis.dedup.options import Input, WriterFactory, absolute, check_filetype
from tamis.errors import UsageError
from tamis.stages.io import check_fields, refuse_unknown

if TYPE_CHECKING:
    from tamis.dedup.kinds import DedupResult

__all__ = ["TextDuplicatesRemovalStage", "TextDuplicatesRemovalWorkflow"]
_WHO = "TextDuplicatesRemovalWorkflow"


@dataclass
class TextDuplicatesRemovalWorkflow:
    """Removes the documents of `input_path` whose ids are in `ids_to_remove_path` (Parquet or JSONL: a file, a folder, a glob).

    `id_field` None: the ids are those of file and position (`000003_12345`), as `_tamis/duplicates` of a deduplication with
    `perform_removal=False` holds them; each must name a document, and the input files must be the same. With `id_field` they are
    the documents' own, texts or numbers (7, 7.0 and "7" are one id); documents without an id stay. `duplicate_id_field`: the
    field of the table that holds the ids. `id_generator_path`: the files by number, where ids are whole numbers of file and place.

    The ids are sorted into a table on disk (16 bytes each, 40 more of scratch while it is made); workers look into it
    and never load it.
    """

    input_path: Any
    ids_to_remove_path: Any
    output_path: str
    input_filetype: str | None = None
    input_fields: Sequence[str] | None = None
    id_field: str | None = None
    input_files_per_partition: int | None = None
    input_blocksize: str | int | None = None
    input_file_extensions: Sequence[str] | None = None
    input_task_limit: int | None = None
    input_kwargs: Mapping[str, Any] | None = None
    duplicate_id_field: str = "id"
    duplicate_id_read_kwargs: Mapping[str, Any] | None = None
    id_generator_path: str | None = None
    output_file_extension: str | None = None
    output_filetype: str | None = None
    output_kwargs: Mapping[str, Any] | None = None
    output_fields: Sequence[str] | None = None
    output_mode: str | None = None
    drop_id_field: bool = False

    def __post_init__(self) -> None:
        self.input_path, self.output_path = absolute(self.input_path), absolute(self.output_path)
        self.ids_to_remove_path = absolute(self.ids_to_remove_path)
        check_field("id_field", self.id_field, optional=True)
        check_field("duplicate_id_field", self.duplicate_id_field)
        self.input_fields = check_fields(_WHO, self.input_fields)
        self.output_fields = check_fields(_WHO, self.output_fields)
        check_filetype(_WHO, "output_filetype", self.output_filetype)
        refuse_unknown(_WHO, "input_kwargs", self.input_kwargs, ())
        refuse_unknown(_WHO, "duplicate_id_read_kwargs", self.duplicate_id_read_kwargs, ())
        if self.id_generator_path is not None:
            self.id_generator_path = absolute(self.id_generator_path)
            if self.id_field is not None:
                raise UsageError(f"{_WHO}: id_generator_path is for ids by file and place; leave id_field out")
        if self.output_mode not in (None, "ignore", "overwrite"):
            raise UsageError(
                f"{_WHO}: output_mode must be 'ignore' (go on where an earlier call stopped) or 'overwrite', got {self.output_mode!r}"
            )
        if self.drop_id_field and self.id_field is None:
            raise UsageError(f"{_WHO}: drop_id_field: without id_field there is no field to drop")
        if self.id_field is not None and self.input_fields is not None and self.id_field not in self.input_fields:
            raise UsageError(
                f"{_WHO}: input_fields must hold id_field ({self.id_field!r}); drop_id_field leaves it out"
            )
        self._refuse_own_output()
        self._writer()

    def _refuse_own_output(self) -> None:
        ids = [self.ids_to_remove_path] if isinstance(self.ids_to_remove_path, str) else self.ids_to_remove_path
        for path in ids:
            if os.path.commonpath([path, self.output_path]) == self.output_path:
                raise UsageError(f"{_WHO}: {path} lies in the output {self.output_path}; give another output_path")

    def _input(self) -> Input:
        more = {"fields": self.input_fields, "limit": self.input_task_limit}
        more["files_per_partition"] = self.input_files_per_partition
        return Input(
            _WHO, self.input_path, self.input_filetype, self.input_blocksize, self.input_file_extensions, more=more
        )

    def _writer(self) -> WriterFactory:
        return self._input().writer(
            self.output_path,
            self.output_filetype,
            self.output_file_extension,
            write_kwargs=self.output_kwargs,
            fields=self.output_fields,
        )

    def run(self, executor: Any = None, *, progress: Any = True, **settings: Any) -> DedupResult:
        """`settings` are those of a run: memory="1GB", workers, scratch, timeout, fresh. Goes on where it was stopped."""
        from tamis.dedup.ids.removal import RemovalByIds
        from tamis.dedup.kinds import Passes
        from tamis.stages.text.io.reader import DocumentReader

        identity = {
            "input": self.input_path, "ids": self.ids_to_remove_path, "id_field": self.id_field, "fields": self.input_fields,
            "duplicate_id_field": self.duplicate_id_field, "output_fields": self.output_fields,
            "drop_id_field": self.drop_id_field, "limit": self.input_task_limit, "id_generator": self.id_generator_path,
        }  # fmt: skip
        passes = Passes(
            "removal of listed duplicates",
            self._input().reader,
            [],
            self.output_path,
            {},
            self._writer(),
            identity=identity,
        )
        if self.output_mode == "overwrite":
            settings.setdefault("fresh", True)
        fields = (self.id_field, self.duplicate_id_field, self.drop_id_field, self.id_generator_path)
        ids = (
            self.ids_to_remove_path if isinstance(self.ids_to_remove_path, str) else ", ".join(self.ids_to_remove_path)
        )
        return RemovalByIds(
            passes, lambda: DocumentReader(self.ids_to_remove_path), ids, fields, settings, progress, executor
        ).run()
