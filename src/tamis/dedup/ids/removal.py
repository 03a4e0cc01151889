"""Removing documents by a table of ids: a pass over the ids, the sorted table, a pass over the documents. Resumable like the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tamis.dedup.ids.stages import IdHashes, NoneListed, RemoveListed
from tamis.dedup.passes import DedupResult, Passes
from tamis.dedup.progress_files import read_json, write_json
from tamis.dedup.record_writer import RecordWriter
from tamis.dedup.workflow import Workflow
from tamis.errors import Incomplete, UsageError
from tamis.hints import command
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress
from tamis.stages.text.io.reader import DocumentReader

if TYPE_CHECKING:
    from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow


class RemovalByIds(Workflow):
    """`asked`: what is to be removed, and where the ids are."""

    instead_of_sample = "leave it out"

    def __init__(
        self,
        asked: TextDuplicatesRemovalWorkflow,
        passes: Passes,
        settings: Mapping[str, Any],
        progress: Progress | bool | None = None,
        executor: Any = None,
    ) -> None:
        super().__init__(passes, settings, progress, executor)
        self.asked = asked
        self._nothing_listed = bool(passes.identity.get("nothing_listed"))

    def run(self) -> DedupResult:
        result = super().run()
        result.duplicates = self.asked.ids_name
        return result

    def _decided(self) -> dict[str, Any]:
        if self._told("summary.json") is None:
            self._note_inputs()
            if self._nothing_listed:
                write_json(os.path.join(self.work, "summary.json"), {"n_ids": 0, "n_rows": 0, "n_rows_without_id": 0})
            else:
                self._make_table()
        return dict(self._told("summary.json"))

    def _make_table(self) -> None:
        try:
            files, id_paths = self._hash_ids()
            self._solve(["ids"], records=files, field=self.asked.duplicate_id_field, id_paths=id_paths)
        except (UsageError, Incomplete):  # a table that is to be mended: it is read anew then
            self._drop("keys-0")
            raise

    def _note_inputs(self) -> None:
        """Record the input files by number.

        Ids by file and position refer to these files, and no others may be read later.
        """
        if self.guard.reference() is not None:
            return
        files = self._files()
        write_json(os.path.join(self.work, "passed_over.json"), files.passed.to_list())
        write_json(os.path.join(self.work, "paths.json"), files.paths)
        self.guard.start(files)

    def _hash_ids(self) -> tuple[list[str], list[str]]:
        paths = os.path.join(self.work, "paths.json") if self.asked.own_field is None else None
        hashes = IdHashes(self.asked.duplicate_id_field, paths, self.asked.id_generator_path)
        stages: list[Any] = [
            DocumentReader(self.asked.ids_to_remove_path),
            hashes,
            RecordWriter(self._output_of("keys-0")),
        ]
        result = self._execute(Pipeline(f"{self.passes.name}: ids", stages=stages), "keys-0")
        n_bad = result.ledger.quarantined.n + result.ledger.n_bad_ranges
        if n_bad:
            raise Incomplete(
                f"nothing was removed: {n_bad:,} records of {self.asked.ids_name} cannot be read, and the documents they "
                f"mean would stay (see: {command('quarantine', result.output)})"
            )
        plan = read_json(os.path.join(result.run_dir, "plan.json")) or {}
        return self._paths_of(result), plan["inputs"]["paths"]

    def _remove(self) -> Any:
        assert self.passes.writer is not None
        pipeline = Pipeline(self.passes.name, stages=[self._source(), *self._removing(), self.passes.writer()])
        return self._execute_guarded(pipeline, "removal")

    def _removing(self) -> list[Any]:
        """Return the stage that removes the listed documents.

        Where nothing is listed, return a stage that drops the field of ids, if that is requested.
        """
        asked = self.asked
        if not self._nothing_listed:
            return [RemoveListed(self.table_of("ids"), asked.own_field, asked.drop_id_field, asked.ids_name)]
        return [NoneListed(asked.own_field, True)] if asked.drop_id_field and asked.own_field is not None else []

    def _counted(self, summary: dict[str, Any], removed: Any) -> dict[str, Any]:
        """Ids that name no document are told, and are an error where each must name one."""
        n_ids = int(summary["n_ids"])
        n_removed = sum(t.n for book in removed.ledger.stages for t in book.dropped.values())
        n_documents = n_removed + removed.ledger.written.n
        if n_ids and not n_removed:
            raise Incomplete(
                f"none of the {n_ids:,} ids in {self.asked.ids_name} is the id of a document; all {n_documents:,} were written to "
                f"{self.passes.output}. Check id_field (now {self.asked.own_field!r}) and duplicate_id_field"
            )
        if self.asked.own_field is None and n_removed != n_ids:
            raise Incomplete(
                f"{n_ids - n_removed:,} of {n_ids:,} ids in {self.asked.ids_name} name no document: the input is not what the ids were made of"
            )
        n_shared = 0
        if "n_rows" in summary:  # earlier versions did not count them
            n_shared = n_removed - (int(summary["n_rows"]) - int(summary["n_rows_without_id"]))
        shared = {"n_by_shared_ids": n_shared} if n_shared > 0 else {}
        return {"n_documents": n_documents, "n_duplicates": n_removed, **shared}
