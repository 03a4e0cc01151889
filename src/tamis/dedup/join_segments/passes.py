"""Joining segments that lie anywhere in the input: a pass that sorts them by id, a pass over ranges of ids. Resumable like the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from tamis.dedup.join_segments.stages import SUFFIX, GatherSegments, SegmentRecords
from tamis.dedup.passes import Passes
from tamis.dedup.progress_files import write_json
from tamis.dedup.workflow import Workflow
from tamis.errors import ConservationError
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.text.modules.joiner import DocumentJoiner
from tamis.stores.opening import size_of

RANGE_BYTES = 8 << 20  # of records that are joined at once, on average


class Joining(Workflow):
    """`joiner` does the joining; its id field is what segments are gathered by."""

    instead_of_sample = "join what a run with --sample wrote"

    def __init__(
        self,
        passes: Passes,
        joiner: DocumentJoiner,
        settings: Mapping[str, Any],
        progress: Progress | bool | None,
        executor: Any,
    ) -> None:
        super().__init__(passes, settings, progress, executor)
        self.joiner = joiner

    def _same(self, earlier: dict[str, Any] | None) -> None:
        """Compare with the identity of an earlier run, ignoring its block size.

        Earlier versions recorded the block size, too, which changes nothing that is written.
        """
        super()._same(earlier and {name: value for name, value in earlier.items() if name != "input_blocksize"})

    def _decided(self) -> dict[str, Any]:
        if self._told("summary.json") is None:
            files = self._pass("keys-0", SegmentRecords(self.joiner.document_id_field))
            n_bytes = sum(size_of(path) for path in files)
            listing = os.path.join(self.work, "files.json")
            write_json(listing, files)
            folder = os.path.join(self.work, "ranges")
            os.makedirs(folder, exist_ok=True)
            n = max(1, -(-n_bytes // RANGE_BYTES))
            for i in range(n):
                about = {"files": listing, "low": i * (1 << 64) // n, "high": (i + 1) * (1 << 64) // n}
                write_json(os.path.join(folder, f"{i:08d}{SUFFIX}"), about)
            self.scratch_bytes = n_bytes
            write_json(os.path.join(self.work, "summary.json"), {"n_ranges": n, "scratch_bytes": n_bytes})
        return dict(self._told("summary.json"))

    def _remove(self) -> Any:
        assert self.passes.writer is not None
        folder = os.path.join(self.work, "ranges")
        source = FilePartitioningStage(folder, files_per_partition=1, file_extensions=[SUFFIX])
        pipeline = Pipeline(self.passes.name, stages=[source, GatherSegments(), self.joiner, self.passes.writer()])
        return self._execute(pipeline, "joining")

    def _counted(self, summary: dict[str, Any], removed: Any) -> dict[str, Any]:
        n_segments = next(b.derived.n + b.out.n for b in removed.ledger.stages)
        n_sorted = self._told("n_records.json")
        if n_segments != n_sorted:
            raise ConservationError(
                f"{n_sorted:,} segments were sorted by their document, but {n_segments:,} were joined; do not use "
                f"{self.passes.output}, start over with fresh (--fresh)"
            )
        return {"n_segments": n_segments, "n_documents": removed.ledger.written.n, "n_duplicates": 0}
