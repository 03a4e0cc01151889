"""Removing documents by a table of ids: a pass over the ids, the sorted table, a pass over the documents.

Resumable like the others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tamis.dedup.ids.stages import IdHashes, NoneListed, RemoveListed
from tamis.dedup.nemo_compat.id_generator import IdGenerator
from tamis.dedup.solver_task import BuildIdTable
from tamis.dedup.stages import RecordWriter
from tamis.dedup.state import FirstPass, Summary
from tamis.engine.schema import read_plan
from tamis.errors import Incomplete, UsageError
from tamis.hints import command
from tamis.pipeline import Pipeline
from tamis.stages.text.io.reader import DocumentReader
from tamis.stages.text.io.reader.ids import AddPositionIds, FileNumbers

if TYPE_CHECKING:
    from tamis.dedup.ids.workflow import TextDuplicatesRemovalWorkflow
    from tamis.dedup.passes import Passes
    from tamis.dedup.workflow import Workflow
    from tamis.engine.run.run_result import RunResult


class RemovalByIds:
    """The procedure of a removal by ids. `request`: what is to be removed, and where the ids are."""

    def __init__(self, request: TextDuplicatesRemovalWorkflow, is_empty: bool) -> None:
        self._request, self._is_empty = request, is_empty

    def plan(self, workflow: Workflow) -> list[str]:
        """Return the labels of the passes to come."""
        return ["removal"] if self._is_empty else ["keys-0", "decision", "removal"]

    def shard_stage(self, passes: Passes) -> None:
        """Return None: ids are sorted as a whole."""

    def decide(self, workflow: Workflow) -> Summary:
        """Sort the ids into a table."""
        state = workflow.work.state
        if not state.summary.exists():
            self._note_inputs(workflow)
            if self._is_empty:
                state.summary.write({"n_ids": 0, "n_rows": 0, "n_rows_without_id": 0})
            else:
                self._make_table(workflow)
        return state.summary.read() or {}

    def _make_table(self, workflow: Workflow) -> None:
        try:
            files, id_paths = self._hash_ids(workflow)
            workflow.solver.solve([BuildIdTable(self._request.duplicate_id_field, id_paths)], files)
        except (UsageError, Incomplete):  # a table that the user has to fix: it is read anew then
            workflow.work.drop("keys-0")
            raise

    def _note_inputs(self, workflow: Workflow) -> None:
        """Record the input files by number.

        Ids by file and position refer to these files, and no others may be read later.
        """
        guard, state = workflow.input.guard, workflow.work.state
        if guard.reference() is not None:
            return
        files = workflow.files()
        state.first_pass.write(FirstPass(skipped_files=files.skipped.entries()))
        state.write_paths(files.paths)
        guard.start(files)

    def _hash_ids(self, workflow: Workflow) -> tuple[list[str], list[str]]:
        request = self._request
        paths = workflow.work.state.paths_file if request.own_field is None else None
        stages: list[Any] = [
            DocumentReader(request.ids_to_remove_path),
            IdHashes(request.duplicate_id_field, paths, request.id_generator_path),
            RecordWriter(workflow.work.pass_output("keys-0")),
        ]
        result = workflow.runner.execute(Pipeline(f"{workflow.passes.name}: ids", stages=stages), "keys-0")
        n_bad = result.ledger.quarantined.n + result.ledger.n_bad_ranges
        if n_bad:
            raise Incomplete(
                f"nothing was removed: {n_bad:,} records of {request.ids_name} cannot be read, and the documents they "
                f"mean would stay (see: {command('quarantine', result.output)})"
            )
        plan = read_plan(os.path.join(result.run_dir, "plan.json"))
        return workflow.solver.files_of(result), plan.inputs.paths

    def remove(self, workflow: Workflow) -> RunResult:
        """Write the documents that are not listed."""
        assert workflow.passes.writer is not None
        ids = self._id_stages(workflow) if self._request.writes_ids else []
        stages = [workflow.input.reader(), *ids, *self._removal_stages(workflow), workflow.passes.writer()]
        pipeline = Pipeline(workflow.passes.name, stages=stages)
        return workflow.execute_checked(pipeline, "removal", **workflow.settings.of_output)

    def _id_stages(self, workflow: Workflow) -> list[Any]:
        """Return the stage that adds the ids by file and place, in the numbers of the id generator."""
        files = IdGenerator.from_disk(str(self._request.id_generator_path)).files
        paths = [os.fsdecode(path) for path in workflow.files().paths]
        return [AddPositionIds(FileNumbers(files).of(paths, known_only=True))]

    def _removal_stages(self, workflow: Workflow) -> list[Any]:
        """Return the stage that removes the listed documents.

        Where nothing is listed, return a stage that drops the field of ids, if that is requested.
        """
        request = self._request
        if not self._is_empty:
            table = workflow.work.table("ids")
            return [RemoveListed(table, request.own_field, request.drop_id_field, request.ids_name)]
        return [NoneListed(request.own_field, True)] if request.drop_id_field and request.own_field is not None else []

    def check_counts(self, workflow: Workflow, summary: Summary, removed: RunResult) -> Summary:
        """Report ids that name no document; raise Incomplete where each must name one."""
        request, n_ids = self._request, summary["n_ids"]
        n_removed = sum(t.n for book in removed.ledger.stages for t in book.dropped.values())
        n_documents = n_removed + removed.ledger.written.n
        if n_ids and not n_removed:
            raise Incomplete(
                f"none of the {n_ids:,} ids in {request.ids_name} is the id of a document; all {n_documents:,} were "
                f"written to {workflow.output.path}. Check id_field (now {request.own_field!r}) and duplicate_id_field"
            )
        if request.own_field is None and n_removed != n_ids:
            raise Incomplete(
                f"{n_ids - n_removed:,} of {n_ids:,} ids in {request.ids_name} name no document: the input is not "
                "what the ids were made of"
            )
        counts: Summary = {"n_documents": n_documents, "n_duplicates": n_removed}
        n_shared = n_removed - (summary["n_rows"] - summary["n_rows_without_id"])
        if n_shared > 0:
            counts["n_by_shared_ids"] = n_shared
        return counts
