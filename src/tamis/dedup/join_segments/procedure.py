"""Joining segments that are anywhere in the input: a pass that sorts them by id, a pass over ranges of ids.

Resumable like the others.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tamis.dedup.join_segments.stages import SUFFIX, GatherSegments, SegmentRecords
from tamis.dedup.key_comparison import run_key_pass
from tamis.dedup.state import FirstPass, Summary
from tamis.errors import ConservationError
from tamis.files import write_json
from tamis.pipeline import Pipeline
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.modules.joiner import DocumentJoiner
from tamis.stores.opening import size_of

if TYPE_CHECKING:
    from tamis.dedup.passes import Passes
    from tamis.dedup.workflow import Workflow
    from tamis.engine.run.run_result import RunResult

RANGE_BYTES = 8 << 20  # of records that are joined at once, on average


class SegmentJoin:
    """The procedure of a join. `joiner` does the joining; its id field is what segments are gathered by."""

    def __init__(self, joiner: DocumentJoiner) -> None:
        self._joiner = joiner

    def plan(self, workflow: Workflow) -> list[str]:
        """Return the labels of the passes to come."""
        return ["keys-0", "joining"]

    def shard_stage(self, passes: Passes) -> None:
        """Return None: segments are gathered from the whole input."""

    def decide(self, workflow: Workflow) -> Summary:
        """Sort the segments by the hash of their id, and cut the hashes into ranges."""
        state = workflow.work.state
        if not state.summary.exists():
            files = run_key_pass(workflow, "keys-0", SegmentRecords(self._joiner.document_id_field))
            n_bytes = sum(size_of(path) for path in files)
            listing = os.path.join(workflow.work.path, "files.json")
            write_json(listing, files)
            folder = os.path.join(workflow.work.path, "ranges")
            os.makedirs(folder, exist_ok=True)
            n = max(1, -(-n_bytes // RANGE_BYTES))
            for i in range(n):
                key_range = {"files": listing, "low": i * (1 << 64) // n, "high": (i + 1) * (1 << 64) // n}
                write_json(os.path.join(folder, f"{i:08d}{SUFFIX}"), key_range)
            workflow.scratch_bytes = n_bytes
            state.summary.write({"n_ranges": n, "scratch_bytes": n_bytes})
        return state.summary.read() or {}

    def remove(self, workflow: Workflow) -> RunResult:
        """Write the joined documents."""
        assert workflow.passes.writer is not None
        folder = os.path.join(workflow.work.path, "ranges")
        source = FilePartitioningStage(folder, files_per_partition=1, file_extensions=[SUFFIX])
        stages: list[Any] = [source, GatherSegments(), self._joiner, workflow.passes.writer()]
        pipeline = Pipeline(workflow.passes.name, stages=stages)
        return workflow.runner.execute(pipeline, "joining", **workflow.settings.of_output)

    def check_counts(self, workflow: Workflow, summary: Summary, removed: RunResult) -> Summary:
        """Check that every sorted segment was joined."""
        n_segments = next(b.derived.n + b.out.n for b in removed.ledger.stages)
        n_sorted = (workflow.work.state.first_pass.read() or FirstPass()).n_records
        if n_segments != n_sorted:
            raise ConservationError(
                f"{n_sorted:,} segments were sorted by their document, but {n_segments:,} were joined; do not use "
                f"{workflow.output.path}, start over with fresh (--fresh)"
            )
        return {"n_segments": n_segments, "n_documents": removed.ledger.written.n, "n_duplicates": 0}
