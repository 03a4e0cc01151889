"""Pipeline: an ordered list of stages, checked early, run by an executor.

pipeline = Pipeline("clean")
pipeline.add_stage(JsonlReader("in/")).add_stage(MyStage()).add_stage(JsonlWriter("out/"))
pipeline.run(memory="2GB")
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis import files
from tamis.errors import UsageError
from tamis.stages.base import ProcessingStage
from tamis.stages.expand import expand_stages
from tamis.stages.file_partitioning import FilePartitioningStage
from tamis.stages.io import Reader, Writer
from tamis.stores.run_locations import run_dir_of
from tamis.tasks import ROW_ID, DocumentBatch, EmptyTask, Task

if TYPE_CHECKING:
    from tamis.backends.base import BaseExecutor
    from tamis.engine.run.run_result import RunResult


class Pipeline:
    """Stages in order. `run` reads, processes and writes; the same call again resumes, or reports that all is done."""

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
            kind = stage.__name__ if isinstance(stage, type) else type(stage).__name__
            raise TypeError(
                f"{self.name}: add_stage takes a ProcessingStage, got {kind}; a filter goes into ScoreFilter(...), a "
                "modifier into Modify(...), and @processing_stage makes a stage of a function"
            )
        self.stages.append(stage)
        return self

    # -- building ----------------------------------------------------------------------------------------------------
    def build(self) -> list[ProcessingStage[Any, Any]]:
        """Decompose composites and check order and columns. Returns the stages that will run; changes nothing."""
        built = expand_stages(self.name, self.stages)
        self.decomposition_info = built.parts
        return built.stages

    def describe(self) -> str:
        """Return the stages, with the columns they need and give, as text."""
        lines = [f"Pipeline {self.name!r}" + (f": {self.description}" if self.description else "")]
        for i, stage in enumerate(self.build(), 1):
            needs = ", ".join(stage.input_columns())
            gives = ", ".join(stage.output_columns())
            r = stage.resources
            resources = [f"cpus={r.cpus:g}"] + [
                f"{n}={getattr(r, n):g}" for n in ("gpus", "gpu_memory_gb", "memory_gb") if getattr(r, n)
            ]
            lines.append(
                f"  {i}. {stage.name} ({type(stage).__name__}; {', '.join(resources)}; batch_size={stage.batch_size})"
            )
            if needs:
                lines.append(f"       needs: {needs}")
            if gives:
                lines.append(f"       gives: {gives}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, stages=[{', '.join(s.name for s in self.stages)}])"

    # -- running -----------------------------------------------------------------------------------------------------
    def run(
        self,
        executor: BaseExecutor | None = None,
        initial_tasks: Sequence[Task[Any]] | None = None,
        checkpoint_path: str | None = None,
        progress: bool = True,
        alerts: str | os.PathLike[str] | Mapping[str, Any] | bool | None = None,
        **settings: Any,
    ) -> list[Task[Any]]:
        """Run the stages; return the written files (FileGroupTask), or the documents, loaded lazily, without a writer.

        Documents are stored in a temporary folder that is deleted when the program ends, unless run_dir names one.

        `settings`: those of a run: memory="2GB", workers, scratch, timeout, max_record, quarantine_limit, sample,
        progressive, fresh, mode ("streaming" or "batch"), run_dir. In a job of a Slurm array, `shard` is that of the
        environment (backends/slurm_array.py).
        `checkpoint_path`: another name for run_dir; with a writer the run is stored with its output, and a file in
        checkpoint_path names that folder. Jobs of a Slurm array note in it which shards have finished.
        `progress`: show a line while it runs and a summary at the end, on stderr.
        `alerts`: a file of rules, a mapping with the same keys, or "off"; by default $TAMIS_ALERTS
        (docs/guides/alerts.md).

        Leaks and the number of alerts are in `last_result`. Raises Incomplete, with everything else committed, if too
        much was quarantined. A sample that is delivered because disk or memory do not suffice for everything
        (on_infeasible="sample") is returned with a warning.
        """
        from tamis.backends.execution import tasks_or_raise, with_progress
        from tamis.backends.slurm_array import array_shard

        executor = executor if executor is not None else _local()
        if alerts is not None:
            settings["alerts"] = alerts
        if checkpoint_path is not None:
            if settings.get("run_dir") is not None:
                raise UsageError("give checkpoint_path or run_dir, not both")
            if any(isinstance(s, Writer) and not s.writes_itself for s in self.stages):
                _leave_pointer(checkpoint_path, next(s.path for s in self.stages if isinstance(s, Writer)))
            else:
                settings["run_dir"] = checkpoint_path
        merged = {**self.config, **executor.settings(), **settings}
        with array_shard(merged, checkpoint_path) as shard:
            pipeline = self
            if shard is not None:
                settings["shard"] = shard
                if not initial_tasks and self._makes_tasks():
                    pipeline, initial_tasks = self._after_source()
            if progress:
                result = with_progress(
                    executor, self.name, lambda: pipeline.execute(executor, initial_tasks, **settings)
                )
            else:
                result = pipeline.execute(executor, initial_tasks, **settings)
            self.last_result = result
            return tasks_or_raise(result, self.name)

    def _makes_tasks(self) -> bool:
        """Return True if the first stage makes tasks of nothing, and is not one that lists files or addresses."""
        first = next(iter(self.build()), None)
        return (
            first is not None and not isinstance(first, (FilePartitioningStage, Reader)) and not first.traits.lists_work
        )

    def _after_source(self) -> tuple[Pipeline, list[Task[Any]]]:
        """Run the first stage here, so that its tasks can be divided; return the other stages and all tasks."""
        source, *others = self.build()
        source.setup_on_node()
        source.setup()
        result = source.process(EmptyTask())
        source.teardown()
        tasks = [] if result is None else list(result) if isinstance(result, list) else [result]
        if not tasks or not others:
            why = "makes no tasks" if not tasks else "is the only stage"
            raise UsageError(f"{self.name}: there is nothing to divide among the jobs of an array: {source.name} {why}")
        return Pipeline(self.name, self.description, others, self.config), tasks

    def execute(
        self, executor: BaseExecutor | None = None, initial_tasks: Sequence[Task[Any]] | None = None, **settings: Any
    ) -> RunResult:
        """Run the pipeline like `run`, but return the whole result (totals, ledger, memory) unjudged.

        The caller decides whether the result is a success.
        """
        from tamis.backends.execution import execute

        executor = executor if executor is not None else _local()
        self.last_result = execute(
            executor, self.name, self.build(), initial_tasks, {**self.config, **executor.settings(), **settings}
        )
        return self.last_result


class Sequential(Pipeline):
    """A pipeline from a list of stages, which can be called on documents: `Sequential([...])(dataset)`."""

    def __init__(self, stages: Sequence[ProcessingStage[Any, Any]], name: str = "sequential") -> None:
        super().__init__(name, stages=stages)

    def __call__(self, dataset: Any, executor: BaseExecutor | None = None, **settings: Any) -> Any:
        """Run the stages on a dataset and return the documents that come out.

        `dataset`: a DocumentBatch, a list of them, a pandas DataFrame, an Arrow table (each is returned as the same
        type), or the path(s) of JSONL, Parquet or Arrow files: for these, batches are returned, or files if the last
        stage is a writer. `settings` are those of a run, as in `run`.
        """
        if any(isinstance(stage, Reader) for stage in self.build()):
            raise UsageError(
                f"{self.name}: it has a reader of its own; call run(), or leave the reader out to call it on documents"
            )
        settings.setdefault("progress", False)
        if _names_files(dataset):
            return _over_files(self, dataset, executor, settings)
        one = not isinstance(dataset, list)
        kind = type(dataset).__module__.partition(".")[0]
        batches = [
            d if isinstance(d, DocumentBatch) else DocumentBatch(self.name, d) for d in ([dataset] if one else dataset)
        ]
        tasks = self.run(executor, initial_tasks=batches, **settings)
        if not one or not all(isinstance(task, DocumentBatch) for task in tasks):
            return tasks
        table = _concatenate([task for task in tasks if isinstance(task, DocumentBatch)])
        if isinstance(dataset, DocumentBatch):
            return DocumentBatch(dataset.dataset_name, table)
        if kind == "pyarrow":
            return table
        from tamis.tasks.frames import convert_frame

        return convert_frame(table, "cudf" if kind == "cudf" else "pandas")


def _over_files(
    pipeline: Pipeline, paths: str | list[str], executor: BaseExecutor | None, settings: dict[str, Any]
) -> Any:
    from tamis.stages.text.io.reader import DocumentReader

    whole = Pipeline(pipeline.name, stages=[DocumentReader(paths), *pipeline.stages])
    tasks = whole.run(executor, **settings)
    pipeline.last_result = whole.last_result
    return tasks


def _names_files(dataset: Any) -> bool:
    """Return True for a path, or a list of paths."""
    if isinstance(dataset, list):
        return bool(dataset) and all(isinstance(path, str) for path in dataset)
    return isinstance(dataset, str)


def _concatenate(batches: list[DocumentBatch]) -> Any:
    import pyarrow as pa

    tables = [b.to_pyarrow() for b in batches if b.num_items]
    tables = [t.drop_columns([ROW_ID]) if ROW_ID in t.column_names else t for t in tables]
    return pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})


def _local() -> BaseExecutor:
    """Return the executor for a pipeline without an explicit one."""
    from tamis.backends.local import LocalExecutor

    return LocalExecutor()


def _leave_pointer(checkpoint_path: str, output: str) -> None:
    """Write a pointer to the output into the checkpoint path.

    A run with a writer is stored with its output, from where the same call resumes it.
    """
    os.makedirs(checkpoint_path, exist_ok=True)
    with files.replacing(os.path.join(checkpoint_path, "tamis-run.json")) as file:
        file.write(json.dumps({"output": output, "run_dir": run_dir_of(output)}).encode())


def assign_root_task_ids(initial_tasks: Sequence[Task[Any]]) -> list[Task[Any]]:
    """Set ids "0", "1", ... for the tasks that a pipeline starts with; tasks derived from them extend these ids."""
    for i, task in enumerate(initial_tasks):
        task._set_task_id(str(i))
    return list(initial_tasks)
