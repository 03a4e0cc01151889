"""Executors make the workers that a pipeline runs on; everything else is the engine's."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tamis.engine.job import Job
from tamis.engine.monitor.monitor import Watch
from tamis.engine.progress import Progress
from tamis.engine.run.run_result import RunResult, Show
from tamis.engine.run.settings import SETTINGS
from tamis.engine.worker.config import WorkerConfig
from tamis.engine.worker.node import NodeInfo, WorkerMetadata
from tamis.engine.workers_interface import Workers
from tamis.errors import UsageError
from tamis.tasks import Task

if TYPE_CHECKING:
    from tamis.stages.base import ProcessingStage

__all__ = ["BaseExecutor", "NodeInfo", "WorkerMetadata", "Workers"]

_CONFIG = {s.executor_key: s for s in SETTINGS.values() if s.executor_key}


class BaseExecutor:
    """The base of all executors: checks `config`, and runs stages on the workers that a subclass makes.

    `config`: execution_mode ("streaming" or "batch"), memory, workers, scratch, timeout, max_record
    (engine/run/settings.py).

    `progress` is called with the state of a run some times a second, `watch` with its samples
    (engine/monitor/monitor.py). Without `report` a run leaves no report.html.
    """

    own_config: tuple[str, ...] = ()  # keys of `config` besides those that every executor knows
    show_progress = True  # a line while it runs, unless the caller has a display of its own
    progress_interval = 0.0  # seconds between two of them at least
    is_inline = False  # stages run in this process: what they print and ask for goes to the terminal
    is_cluster = False  # workers are on other machines, or as if they were: GPUs of this one say nothing

    def __init__(
        self,
        config: Mapping[str, Any] | None = None,
        progress: Progress | None = None,
        watch: Watch | None = None,
        report: bool = True,
    ) -> None:
        names = [*_CONFIG, *self.own_config]
        for key in config or {}:
            if key not in names:
                near = difflib.get_close_matches(key, names, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
                raise UsageError(f"{type(self).__name__}: unknown config key {key!r}; {hint}")
        self.config = dict(config or {})
        self._check_config()
        self.progress, self.watch, self.report = progress, watch, report
        self.note: Callable[[str], None] | None = None  # prints a line above the progress line
        self.show: Show | None = None  # ... lines of a run, as they are
        self.last_result: RunResult | None = None
        self.is_part = False  # what it runs now is one pass of a workflow, which is recorded and reported as a whole

    def _check_config(self) -> None:
        """Refuse values now that a run would refuse after it has started."""
        for key, setting in _CONFIG.items():
            if key in self.config and (self.config[key] is not None or setting.kind.choices):
                setting.check(self.config[key], key)

    def settings(self) -> dict[str, Any]:
        return {_CONFIG[k].name: v for k, v in self.config.items() if k in _CONFIG}

    @contextlib.contextmanager
    def watched_by(
        self, progress: Progress | None, watch: Watch | None, is_part: bool = False, show: Show | None = None
    ) -> Iterator[None]:
        """Use these callbacks for a while, unless the executor has its own. `is_part`: for one pass of a workflow."""
        before = self.progress, self.watch, self.is_part, self.show
        self.progress, self.watch, self.is_part = self.progress or progress, self.watch or watch, is_part
        self.show = self.show or show
        try:
            yield
        finally:
            self.progress, self.watch, self.is_part, self.show = before

    def make_workers(self, job: Job, config: WorkerConfig, log_path: str, count_caller: bool) -> Workers:
        """Return the object that starts, reaches and measures the workers of one run (engine/workers_interface.py).

        Called by the run, once. Not abstract: an executor with its own `execute` does not need it.
        """
        raise UsageError(
            f"{type(self).__name__} cannot run a pipeline: it has no make_workers(job, config, log_path, "
            "count_caller); give it one, "
            "or run with LocalExecutor"
        )

    def close(self) -> None:
        """Release what runs of this executor share, such as a cluster; nothing here."""

    def execute(
        self, stages: list[ProcessingStage[Any, Any]], initial_tasks: Sequence[Task[Any]] | None = None
    ) -> list[Task[Any]]:
        """Run these stages (already decomposed, or not)."""
        from tamis.backends.execution import execute, tasks_or_raise, with_progress
        from tamis.stages.expand import expand_stages

        name = "pipeline"
        built = expand_stages(name, stages).stages
        result = with_progress(self, name, lambda: execute(self, name, built, initial_tasks, self.settings()))
        return tasks_or_raise(result, name)
