"""An output that one call at a time writes to, in several passes: of a deduplication (workflow.py), or of a curation (tamis/curation)."""

from __future__ import annotations

import contextlib
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from tamis import files
from tamis.backends.alerting import OFF, alerted
from tamis.backends.passes import execute_pass
from tamis.backends.warm_process import WarmProcess
from tamis.dedup.progress_files import read_json, write_json
from tamis.dedup.solver_process import decide
from tamis.engine.run import disk
from tamis.engine.run.output.directory import RunDir, own_run_dir
from tamis.errors import BudgetError, RunConflict, UsageError
from tamis.kernels.loading.library import RECORDS, are_ready
from tamis.memory import counted_processes
from tamis.pipeline import Pipeline
from tamis.pipeline.passes import Progress, tell
from tamis.stages.base import ProcessingStage
from tamis.stores import scratch_files
from tamis.stores.homes import local_of

# What these settings are where nobody asked for anything: only other values are refused.
_NOT_ASKED: dict[str, tuple[Any, ...]] = {
    "sample": (None,),
    "progressive": (None, False),
    "on_infeasible": (None, "stop"),
    "mode": (None, "streaming"),
    "run_dir": (None,),
}


def refuse_one_pass_settings(settings: Mapping[str, Any], output: str, instead_of_sample: str) -> None:
    """UsageError for a setting that means something only where one pass reads documents and writes them.

    Each pass would follow it by itself: a sample would be written as if it were the whole.
    """
    for name, not_asked in _NOT_ASKED.items():
        if settings.get(name) in not_asked:
            continue
        if name == "run_dir":
            raise UsageError(f"run_dir is for recipes without a writer; this writes to {output}, leave run_dir out")
        instead = "leave it out" if name == "mode" else instead_of_sample
        raise UsageError(f"{name} is for runs of one pass, and this takes several; {instead}")


class HeldOutput(ABC):
    """`settings` are those of a run. Subclasses say what they check before the output is held, what they keep between passes and where (`work`)."""

    called: ClassVar[str]  # in messages
    noted_in: ClassVar[str]  # the file of the run directory that is written when everything is done
    instead_of_sample: ClassVar[str] = "deduplicate what a run with --sample wrote"  # the end of a message
    work: str

    def __init__(self, output: str, settings: Mapping[str, Any], executor: Any) -> None:
        self.output, self.executor = output, executor
        self.settings = dict(settings)
        refuse_one_pass_settings(self.settings, output, self.instead_of_sample)
        scratch_files.refuse_inside(output, self.settings.get("scratch"))
        self.fresh = bool(self.settings.pop("fresh", False))
        self.shard = self.settings.pop("shard", None)  # do this part of the input, as far as that can be done alone
        self.merge = bool(self.settings.pop("merge", False))  # take what shards made
        if self.shard is not None and self.merge:
            raise UsageError("give --shard to make one, or --merge to join all, not both")
        self.watch = self.settings.pop("watch", None)
        self._alerts = self.settings.pop("alerts", None)
        self.leaks: list[dict[str, Any]] = []  # of all passes
        self.progress: Progress = lambda _: None
        self.home = local_of(output)
        self.run_dir = os.path.join(self.home, "_tamis")
        self.warm_process: WarmProcess | None = None

    # -- the folder -----------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the output. A call that ends in an error before anything was committed leaves nothing of its own behind."""
        place = RunDir(self.output)
        self._check_output(place)
        absent = [p for p in (self.home, self.run_dir) if not os.path.lexists(p)]
        own_run_dir(self.run_dir)
        busy = f"another {self.called} is writing to {self.output}; wait for it"
        with files.locked(os.path.join(self.run_dir, "dedup.lock"), busy):
            if self.fresh or place.is_half_forgotten():
                with place.open():
                    place.begin_to_forget()
                    self._forget()
                    place.forget()
            else:
                place.bring_files(self.noted_in)
            self._open_work()
            try:
                yield
            except OSError as exc:
                raise disk.explained(exc, [self.home, self.work]) from exc
            except (UsageError, BudgetError, RunConflict):  # others refer to logs
                if not self.has_commits():
                    self.remove_work()
                    if self.run_dir in absent:
                        shutil.rmtree(self.run_dir, ignore_errors=True)
                    if self.home in absent:
                        with contextlib.suppress(OSError):  # somebody else uses it by now
                            os.rmdir(self.home)
                raise

    @abstractmethod
    def _check_output(self, place: RunDir) -> None:
        """Refuse an output or an input before anything is touched."""

    def _forget(self) -> None:
        """Remove what an earlier call kept or made: it starts over."""
        self.remove_work()

    @abstractmethod
    def _open_work(self) -> None:
        """Make or find the folder of what lies between passes."""

    @abstractmethod
    def remove_work(self) -> None:
        """Remove what lies between passes, wherever it is; what other users put in its place stays."""

    @abstractmethod
    def has_commits(self) -> bool:
        """Return True if anything was done that another call could resume from."""

    def _done(self) -> dict[str, Any] | None:
        """Return what was recorded when everything was done; None if it is not done."""
        done: dict[str, Any] | None = read_json(os.path.join(self.run_dir, self.noted_in))
        return done

    # -- processes ------------------------------------------------------------------------------------------------------
    @contextlib.contextmanager
    def _forking(self, modules: Sequence[str], stages: Iterable[Any], at_once: bool) -> Iterator[None]:
        """Provide the process from which those of all passes, and of the decisions between them, are forked.

        It loads while the caller plans. `modules`: what it imports in addition to the kernels of `stages`;
        `at_once`: whether it is certain to be needed.
        """
        self.warm_process = WarmProcess(os.path.join(self.work, "processes.log"), modules=modules)
        groups = [RECORDS, *dict.fromkeys(k for s in stages if isinstance(s, ProcessingStage) for k in s.kernel_groups)]
        try:
            if at_once and self._done() is None and are_ready(groups):
                self.warm_process.start(groups)
            yield
        finally:
            self.warm_process.close()

    def _execute(self, pipeline: Pipeline, label: str, **more: Any) -> Any:
        """Run one pass over documents and return its result."""
        settings = {**self.settings, "alerts": OFF, **more}  # the watch is that of the whole
        result = execute_pass(pipeline, label, self.executor, self.warm_process, self.progress, self.watch, settings)
        self.leaks += result.leaks
        return result

    @contextlib.contextmanager
    def _alerted(self, name: str, is_shown: bool) -> Iterator[None]:
        """Have all passes watched by the rules of the caller (backends/alerting.py)."""
        with alerted(self._alerts, self.watch, self.settings, self.run_dir, name, tell if is_shown else None) as watch:
            self.watch = watch
            yield

    def do_apart(self, folder: str, task: dict[str, Any], progress: Progress, module: str) -> None:
        """Run the `main` of a module between passes, in a process of its own, under the budget (see solver.py)."""
        write_json(os.path.join(folder, "task.json"), {**task, "budget_bytes": self.budget_bytes()})
        assert self.warm_process is not None
        decide(folder, self.warm_process, progress, module)

    def budget_bytes(self) -> int:
        return counted_processes.budget_left(self.settings.get("memory"))
