"""Pipeline: an ordered list of stages, checked early, run by an executor.

pipeline = Pipeline("clean")
pipeline.add_stage(JsonlReader("in/")).add_stage(MyStage()).add_stage(JsonlWriter("out/"))
pipeline.run(memory="2GB")
"""

from __future__ import annotations

import json
import logging
import os
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.errors import Incomplete, PipelineError, RunConflict, TamisError, UsageError
from tamis.hints import command
from tamis.stages.base import CompositeStage, ProcessingStage
from tamis.stages.io import Reader, Writer
from tamis.stores.homes import local_of
from tamis.stores.urls import is_bucket, output_url
from tamis.tasks import DocumentBatch, Task

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.engine.run.run import RunResult

_log = logging.getLogger("tamis.report")


class Pipeline:
    """Stages in order. `run` reads, processes and writes; the same call again resumes or says that all is done."""

    def __init__(
        self,
        name: str = "pipeline",
        description: str | None = None,
        stages: Sequence[ProcessingStage[Any, Any]] | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        self.name, self.description = name, description
        self.config = dict(config or {})
        self.stages: list[ProcessingStage[Any, Any]] = []
        self.decomposition_info: dict[str, list[str]] = {}
        self.last_result: RunResult | None = None
        for stage in stages or ():
            self.add_stage(stage)

    def add_stage(self, stage: ProcessingStage[Any, Any]) -> Pipeline:
        if isinstance(stage, type) and issubclass(stage, ProcessingStage):
            raise TypeError(
                f"{self.name}: add_stage takes a stage object; write {stage.__name__}(...) instead of {stage.__name__}"
            )
        if not isinstance(stage, ProcessingStage):
            raise TypeError(f"{self.name}: add_stage takes a ProcessingStage, got {type(stage).__name__}")
        self.stages.append(stage)
        return self

    # -- building -------------------------------------------------------------------------------------------------------
    def build(self) -> list[ProcessingStage[Any, Any]]:
        """Decompose composites and check order and columns. Returns the stages that will run; changes nothing."""
        if not self.stages:
            raise PipelineError(f"pipeline {self.name!r} has no stages; add some with add_stage()")
        self.decomposition_info = {}
        flat: list[ProcessingStage[Any, Any]] = []
        for stage in self.stages:
            flat += self._decompose(stage)
        self._check_ends(flat)
        self._check_columns(flat)
        return flat

    def _decompose(self, stage: ProcessingStage[Any, Any]) -> list[ProcessingStage[Any, Any]]:
        if not isinstance(stage, CompositeStage):
            return [stage]
        parts = stage.decompose_and_apply_with()
        for part in parts:
            if isinstance(part, CompositeStage):
                raise TypeError(
                    f"{stage.name} decomposes into {part.name}, which is a composite itself; decompose it there"
                )
        self.decomposition_info[stage.name] = [p.name for p in parts]
        return parts

    def _check_ends(self, flat: list[ProcessingStage[Any, Any]]) -> None:
        sources = [s for s in flat if s.is_source_stage]
        sinks = [s for s in flat if s.is_sink_stage]
        if len(sources) > 1:
            raise PipelineError(
                f"pipeline {self.name!r} has two sources, {sources[0].name!r} and {sources[1].name!r}; give one reader several "
                "paths, or run two pipelines"
            )
        if len(sinks) > 1:
            raise PipelineError(
                f"pipeline {self.name!r} has two writers, {sinks[0].name!r} and {sinks[1].name!r}; run two pipelines"
            )
        if sources and flat[0] is not sources[0]:
            raise PipelineError(f"pipeline {self.name!r}: its source {sources[0].name!r} must be the first stage")
        if sinks and flat[-1] is not sinks[0]:
            raise PipelineError(f"pipeline {self.name!r}: its writer {sinks[0].name!r} must be the last stage")

    def _check_columns(self, flat: list[ProcessingStage[Any, Any]]) -> None:
        """Columns that a stage needs, where it is known which ones there are (the reader names its fields)."""
        reader = next((s for s in flat if isinstance(s, Reader)), None)
        if reader is None or reader.fields is None:
            return
        known = dict.fromkeys(reader.fields)
        for stage in flat:
            missing = [c for c in stage.input_columns() if c not in known]
            if missing:
                raise PipelineError(
                    f"stage {stage.name!r} needs column {missing[0]!r}, which nobody provides; {reader.name} reads only "
                    f"{list(reader.fields)} - add {missing[0]!r} to its fields, or put a stage that makes it before {stage.name!r}"
                )
            known.update(dict.fromkeys(stage.output_columns()))
            if isinstance(stage, Writer) and stage.fields is not None:
                absent = [f for f in stage.fields if f not in known]
                if absent:
                    raise PipelineError(
                        f"{stage.name} is to write {absent[0]!r}, which nobody provides; there are {list(known)}"
                    )

    def describe(self) -> str:
        """Stages, what they need and what they give, as text."""
        lines = [f"Pipeline {self.name!r}" + (f": {self.description}" if self.description else "")]
        for i, stage in enumerate(self.build(), 1):
            needs = ", ".join(stage.input_columns())
            gives = ", ".join(stage.output_columns())
            r = stage.resources
            what = [f"cpus={r.cpus:g}"] + [
                f"{n}={getattr(r, n):g}" for n in ("gpus", "gpu_memory_gb", "memory_gb") if getattr(r, n)
            ]
            lines.append(
                f"  {i}. {stage.name} ({type(stage).__name__}; {', '.join(what)}; batch_size={stage.batch_size})"
            )
            if needs:
                lines.append(f"       needs: {needs}")
            if gives:
                lines.append(f"       gives: {gives}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, stages=[{', '.join(s.name for s in self.stages)}])"

    # -- running --------------------------------------------------------------------------------------------------------
    def run(
        self,
        executor: BaseExecutor | None = None,
        initial_tasks: Sequence[Task[Any]] | None = None,
        checkpoint_path: str | None = None,
        progress: bool = True,
        **settings: Any,
    ) -> list[Task[Any]]:
        """Run it and return the written files (FileGroupTask), or the documents (lazily loaded) if there is no writer; these
        lie in a temporary folder that goes when the program ends, unless run_dir names one.

        `settings` are those of a run: memory="2GB", workers, scratch, timeout, max_record, quarantine_limit, sample,
        progressive, fresh, mode ("streaming" or "batch"), run_dir. `checkpoint_path` is another name for run_dir; with a writer the
        run is kept beside its output, and a file in checkpoint_path says where.
        `progress`: a line while it runs and a summary at the end, on stderr; False for neither.
        Raises Incomplete (with everything else committed) when too much went to quarantine. A sample delivered for want of disk
        or memory (on_infeasible="sample") is returned with a warning that says so.
        """
        from tamis.engine.run.results import load_results

        if checkpoint_path is not None:
            if settings.get("run_dir") is not None:
                raise UsageError("give checkpoint_path or run_dir, not both")
            if any(isinstance(s, Writer) for s in self.stages):
                _leave_pointer(checkpoint_path, next(s.path for s in self.stages if isinstance(s, Writer)))
            else:
                settings["run_dir"] = checkpoint_path
        result = (
            self._shown(executor, initial_tasks, settings)
            if progress
            else self.execute(executor, initial_tasks, **settings)
        )
        if result.first_failure and not result.exit_code:
            n = result.ledger.quarantined.n
            warnings.warn(
                f"{self.name}: {n} documents are in quarantine ({command('quarantine', result.output)}); first: {result.first_failure}",
                stacklevel=2,
            )
        if result.status == "sampled":  # what was asked for with on_infeasible="sample"
            warnings.warn(f"{self.name}: {result.message}", stacklevel=2)
            return load_results(result, self.name)
        if result.exit_code == Incomplete.exit_code:
            raise Incomplete(result.message)
        if result.exit_code:
            raise TamisError(result.message)
        return load_results(result, self.name)

    def _shown(
        self, executor: BaseExecutor | None, initial_tasks: Sequence[Task[Any]] | None, settings: dict[str, Any]
    ) -> RunResult:
        """`execute` with its progress shown, unless the executor has somebody who watches already."""
        from tamis.backends.local import LocalExecutor
        from tamis.pipeline.progress import Shown, in_one_line

        executor = executor if executor is not None else LocalExecutor()
        if executor.progress is not None:
            return self.execute(executor, initial_tasks, **settings)
        with Shown() as shown:
            executor.progress = shown.show
            try:
                result = self.execute(executor, initial_tasks, **settings)
            finally:
                executor.progress = None
        shown.note(in_one_line(self.name, result))
        return result

    def execute(
        self, executor: BaseExecutor | None = None, initial_tasks: Sequence[Task[Any]] | None = None, **settings: Any
    ) -> RunResult:
        """As `run`, but returns the whole result (totals, ledger, memory) and leaves judging it to the caller."""
        from tamis.backends.client import default_settings
        from tamis.backends.local import LocalExecutor
        from tamis.engine.job import make_job
        from tamis.engine.run.inputs import find_inputs
        from tamis.engine.run.run import Run
        from tamis.engine.run.settings import RunSettings
        from tamis.engine.run.shard import Shard

        executor = executor if executor is not None else LocalExecutor()
        chosen = RunSettings.from_mapping({**default_settings(), **self.config, **executor.settings(), **settings})
        documents = bool(initial_tasks) and all(isinstance(t, DocumentBatch) for t in initial_tasks or ())
        job = make_job(self.name, self.build(), chosen.mode, documents, executor.is_cluster)
        output = self._output(job.writer, chosen.run_dir)
        everything = output  # never input, whichever part of it this run writes
        if chosen.shard is not None:
            if job.writer is None and chosen.run_dir is None:
                raise UsageError(
                    "shard: the parts must lie where they can be joined; end with a writer, or give run_dir"
                )
            output = Shard.parse(chosen.shard).place_in(output)
        inputs = find_inputs(
            job, initial_tasks, chosen.blocksize, os.path.join(local_of(output), "_tamis", "initial"), everything
        )
        is_part = getattr(executor, "nursery", None) is not None
        run = Run(job, inputs, chosen, executor.make_crew, output, executor.progress, executor.watch, is_part)
        reported = executor.report and (chosen.run_dir is not None if job.writer is None else job.writer.is_reported)
        try:
            result = run.execute()
        except RunConflict:  # what lies there is another run's
            raise
        except (TamisError, KeyboardInterrupt) as exc:
            if reported:
                _leave_report(run.dir.path)
            if job.writer is None and chosen.run_dir is None:
                exc.add_note("The run directory goes with this program; give run_dir=FOLDER to keep it and its log.")
            raise
        if reported:
            kept = os.path.join(run.dir.path, "report.html")
            is_there = result.status == "already" and os.path.exists(kept)
            result.report = kept if is_there else _leave_report(run.dir.path)
            run.dir.keep_files("report.html")
        self.last_result = executor.last_result = result
        return result

    def _output(self, writer: Writer | None, run_dir: str | None) -> str:
        if writer is not None:
            if run_dir is not None:
                raise UsageError(
                    f"run_dir is for pipelines without a writer; {writer.name} writes to {writer.path}, and the run is kept there"
                )
            return writer.path
        if run_dir is not None:
            return output_url(run_dir) if is_bucket(run_dir) else os.path.abspath(run_dir)
        from tamis.engine.run.temporary import temporary_output

        return temporary_output()


def _leave_pointer(checkpoint_path: str, output: str) -> None:
    """A run with a writer is kept in its output: what a checkpoint is for is there, and goes on with the same call."""
    os.makedirs(checkpoint_path, exist_ok=True)
    with files.replacing(os.path.join(checkpoint_path, "tamis-run.json")) as file:
        file.write(json.dumps({"output": output, "run_dir": os.path.join(local_of(output), "_tamis")}).encode())


def _leave_report(run_dir: str) -> str:
    """Write report.html, and return where it lies. A report that cannot be written never fails a run."""
    from tamis.observe.report import write_report

    try:
        return str(write_report(run_dir))
    except (TamisError, OSError) as exc:
        _log.warning("no report: %s", exc)
        return ""


def assign_root_task_ids(initial_tasks: Sequence[Task[Any]]) -> list[Task[Any]]:
    """Number the tasks that a pipeline starts with: "0", "1", ... Tasks that come of them are named after them."""
    for i, task in enumerate(initial_tasks):
        task._set_task_id(str(i))
    return list(initial_tasks)
