"""Removing documents by a table of ids: a pass over the ids, the sorted table, a pass over the documents. Resumable like the others."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from typing import Any

from tamis.dedup.ids.stages import IdHashes, TextDuplicatesRemovalStage
from tamis.dedup.kinds import DedupResult, Passes
from tamis.dedup.progress_files import read_json, write_json
from tamis.dedup.record_writer import RecordWriter
from tamis.dedup.workflow import Workflow
from tamis.errors import Incomplete, UsageError
from tamis.hints import command
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress
from tamis.stages.base import ProcessingStage


class RemovalByIds(Workflow):
    """`ids`: makes a reader of the table of ids; `id_field` and the rest as in TextDuplicatesRemovalWorkflow."""

    def __init__(
        self,
        passes: Passes,
        ids: Callable[[], ProcessingStage[Any, Any]],
        ids_path: str,
        fields: tuple[str | None, str, bool, str | None],
        settings: Mapping[str, Any],
        progress: Progress | bool | None = None,
        executor: Any = None,
    ) -> None:
        super().__init__(passes, settings, progress, executor)
        self.ids, self.ids_path = ids, ids_path
        self.id_field, self.duplicate_id_field, self.drop_id_field, self.numbers = fields

    def run(self) -> DedupResult:
        result = super().run()
        result.duplicates = self.ids_path
        return result

    def _decided(self) -> dict[str, Any]:
        if self._told("summary.json") is None:
            self._note_inputs()
            try:
                files, id_paths = self._hash_ids()
                self._solve(["ids"], records=files, field=self.duplicate_id_field, id_paths=id_paths)
            except (UsageError, Incomplete):  # a table that is to be mended: it is read anew then
                shutil.rmtree(os.path.join(self.work, "keys-0"), ignore_errors=True)
                raise
        return dict(self._told("summary.json"))

    def _note_inputs(self) -> None:
        """The input files by number: ids by file and position mean these, and no others may be read later."""
        from tamis.engine.run.directory import describe_inputs

        if self._told("inputs.json") is not None:
            return
        files = self._files()
        inputs = describe_inputs(files)
        write_json(os.path.join(self.work, "passed_over.json"), files.passed.to_list())
        write_json(os.path.join(self.work, "paths.json"), inputs["paths"])
        write_json(os.path.join(self.work, "inputs.json"), inputs)

    def _hash_ids(self) -> tuple[list[str], list[str]]:
        hashes = IdHashes(
            self.duplicate_id_field,
            os.path.join(self.work, "paths.json") if self.id_field is None else None,
            self.numbers,
        )
        stages = [self.ids(), hashes, RecordWriter(os.path.join(self.work, "keys-0"))]
        result = self._execute(Pipeline(f"{self.passes.name}: ids", stages=stages), "keys-0")
        n_bad = result.ledger.quarantined.n + result.ledger.n_bad_ranges
        if n_bad:
            raise Incomplete(
                f"nothing was removed: {n_bad:,} records of {self.ids_path} cannot be read, and the documents they "
                f"mean would stay (see: {command('quarantine', result.output)})"
            )
        plan = read_json(os.path.join(result.run_dir, "plan.json")) or {}
        return self._paths_of(result), plan["inputs"]["paths"]

    def _remove(self) -> Any:
        assert self.passes.writer is not None
        table = os.path.join(self.work, "ids")
        remove = TextDuplicatesRemovalStage(table, self.id_field, self.drop_id_field, self.ids_path)
        pipeline = Pipeline(self.passes.name, stages=[self._source(), remove, self.passes.writer()])
        self.check_inputs()
        return self._execute(pipeline, "removal")

    def _counted(self, summary: dict[str, Any], removed: Any) -> dict[str, Any]:
        """Ids that name no document are told, and are an error where each must name one."""
        n_ids = int(summary["n_ids"])
        n_removed = sum(t.n for book in removed.ledger.stages for t in book.dropped.values())
        n_documents = n_removed + removed.ledger.written.n
        if n_ids and not n_removed:
            raise Incomplete(
                f"none of the {n_ids:,} ids in {self.ids_path} is the id of a document; all {n_documents:,} were written to "
                f"{self.passes.output}. Check id_field (now {self.id_field!r}) and duplicate_id_field"
            )
        if self.id_field is None and n_removed != n_ids:
            raise Incomplete(
                f"{n_ids - n_removed:,} of {n_ids:,} ids in {self.ids_path} name no document: the input is not what the ids were made of"
            )
        return {"n_documents": n_documents, "n_duplicates": n_removed}
