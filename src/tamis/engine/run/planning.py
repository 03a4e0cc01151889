"""The plan of an output: what it is made of, in which sampling steps, and which input is left to process.

Covers: making a plan or finding that the one in the run directory still holds; coverage of the input by commits and
other shards; how documents are written. Does not cover: how much memory the work may use (admission.py).
"""

from __future__ import annotations

import time
from dataclasses import field

from tamis._dataclasses import dataclass
from tamis.engine.job import Job
from tamis.engine.run.identity import describe_job, differences
from tamis.engine.run.input_identity import identify_inputs
from tamis.engine.run.inputs import Inputs
from tamis.engine.run.output.directory import Past, RunDir, new_run_id
from tamis.engine.run.settings import RunSettings, SettingsLog, output_settings
from tamis.engine.run.shard import Shard
from tamis.engine.schema import InputIdentity, RunPlan
from tamis.engine.supervisor.coverage import Coverage
from tamis.engine.supervisor.cursor import MAX_FILES_PER_UNIT, Cursor
from tamis.engine.units import PieceKind
from tamis.engine.worker.config import OutputSpec
from tamis.errors import RunConflict
from tamis.formats.registry import table_entries
from tamis.memory.sampler import Mark

_MAX_CHANGES = 3  # that a message names


@dataclass(frozen=True)
class ExecutionContext:
    """The job, inputs and settings of a run, shared by all of its parts."""

    job: Job
    inputs: Inputs
    settings: RunSettings
    dir: RunDir
    record: SettingsLog = field(default_factory=SettingsLog)
    mark: Mark = field(default_factory=Mark)  # of the memory in use
    started_s: float = field(default_factory=time.monotonic)

    @property
    def takes_samples(self) -> bool:
        """True if excerpts of documents are stored: of the output, not of passes in between."""
        is_reported = self.job.writer is None or self.job.writer.is_reported
        return is_reported and not self.settings.no_samples

    @property
    def folders(self) -> list[str]:
        """Folders that the run writes to."""
        return [self.dir.output, self.dir.scratch]


class OutputPlanner:
    """Plans the output of one run."""

    def __init__(self, context: ExecutionContext) -> None:
        self._context = context
        settings, inputs = context.settings, context.inputs
        self._shard = Shard.parse(settings.shard) if settings.shard is not None else None
        shard = self._shard
        self._other_shards = shard.elsewhere(inputs.files.sizes, inputs.kinds) if shard is not None else []

    def plan(self) -> tuple[RunPlan, list[float]]:
        """Return the plan of this output and its sampling steps.

        The earlier plan if it describes the same work, else a new one.

        The inputs are left out of what is returned: there may be a hundred thousand, and they are not needed again.
        """
        context, run_dir = self._context, self._context.dir
        inputs = identify_inputs(context.inputs.files)
        stages = describe_job(context.job, output_settings(vars(context.settings)))
        plan = run_dir.read_plan()
        if plan is not None and (changes := differences(plan.stages, stages) or plan.inputs.changes(inputs)):
            if run_dir.has_commits():
                raise _conflict(run_dir.target, changes)
            run_dir.forget(everything=not run_dir.is_last_pass())  # an attempt that wrote nothing claims nothing
            plan = None
        if plan is None:
            formats = list(context.job.reader.formats) if context.job.reader is not None else []
            shard = str(self._shard) if self._shard is not None else ""
            plan = RunPlan(new_run_id(), context.job.name, inputs, formats, stages, context.job.rules(), shard)
            run_dir.write_plan(plan)
        earlier = (run_dir.read_steps() if run_dir.has_commits() else []) or context.settings.targets[:1]
        plan.inputs = InputIdentity()
        steps = self._steps(earlier)
        run_dir.write_steps(steps)
        return plan, steps

    def _steps(self, earlier: list[float]) -> list[float]:
        """Return the sampling steps (upper ends of hash windows): those of earlier runs, then those still to do."""
        targets = self._context.settings.targets
        if targets[-1] < earlier[-1]:
            raise RunConflict(
                f"{self._context.dir.target} already holds (or is being filled with) {earlier[-1]:.3%} of the "
                "documents; a smaller "
                "sample needs another output, or fresh=True (--fresh)"
            )
        return [*earlier, *(t for t in targets if t > earlier[-1])]

    def output_spec(self) -> OutputSpec:
        """Return how the writer of the pipeline writes documents."""
        writer = self._context.job.writer
        if writer is None:
            return OutputSpec()
        return OutputSpec(
            format=writer.format,
            extension=writer.file_extension,
            codec=writer.codec,
            fields=tuple(writer.fields) if writer.fields is not None else None,
            schema=dict(writer.schema) if writer.schema is not None else None,
            compression=(writer.write_kwargs or {}).get("compression", "zstd"),
            row_group_rows=(writer.write_kwargs or {}).get("row_group_size"),
            options=dict(writer.options or {}),
            partition_by=tuple(writer.partition_by or self._context.settings.partition_fields),
        )

    def cursor(self, past: Past, step: int) -> Cursor:
        """Return the cursor over the input that a sampling step has left to process."""
        inputs, reader = self._context.inputs, self._context.job.reader
        formats = table_entries(reader.formats) if reader is not None else []
        return Cursor(
            inputs.files,
            inputs.kinds,
            self.covered(past, step),
            inputs.files_per_partition,
            min((f.expansion for f in formats), default=4.0),
            any(f.reads_empty for f in formats),
            min((f.files_together for f in formats), default=MAX_FILES_PER_UNIT),
            inputs.files_apart,
        )

    def covered(self, past: Past, step: int) -> Coverage:
        """Return the part of the input that is committed or belongs to other shards."""
        covered = past.coverage(step, self.plain_size)
        for stretch in self._other_shards:
            covered.add(*stretch)
        return covered

    def plain_size(self, file: int) -> int:
        """Return the size of an input file whose coordinate is its bytes; -1 for others."""
        inputs = self._context.inputs
        return inputs.files.sizes[file] if inputs.kinds[file] is PieceKind.BYTES else -1


def _conflict(target: str, changes: list[str]) -> RunConflict:
    more = f" (and {len(changes) - _MAX_CHANGES} more)" if len(changes) > _MAX_CHANGES else ""
    return RunConflict(
        f"{target} already contains a different run: {'; '.join(changes[:_MAX_CHANGES])}{more}. "
        "Give another output, or start over with fresh=True (--fresh)"
    )
