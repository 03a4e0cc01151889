"""One warm process for the runs and workflows of a test process: loading the libraries takes most of a small run.

Applies to runs that start inside of the test process: by `Pipeline.run`, by a workflow, by a command that is called
and not started. Their forking servers are forked from one process, which stays. A test of what happens when processes
start, or of their memory to the byte, has the mark `own_processes`. Runs whose environment decides how libraries load
start processes of their own, too.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tamis.backends.local import ForkedWorkers, LocalExecutor
from tamis.backends.warm_process import Child, WarmProcess
from tamis.engine.job import Job
from tamis.engine.worker.config import WorkerConfig
from tamis.kernels.loading.library import all_groups
from tamis.memory.release import hygiene_env

# Variables that are read while libraries load: a process that has loaded them cannot follow.
_LOADING = ("TAMIS_KERNELS", "TAMIS_CACHE_DIR", "XDG_CACHE_HOME", "HOME", "LD_", "OMP_", "NUMBA_")


class SharedProcess:
    """The process, which starts when it is first lent, and again when a test has ended it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._warm_process: WarmProcess | None = None
        self._environment: dict[str, str] = {}
        self._cwd = ""
        self.is_lent = True  # to the test that runs now

    def lend(self, log: str, modules: Sequence[str] = ()) -> WarmProcess | Lent:
        """Return a warm process for one workflow, which also calls functions in it."""
        shared = self._shared(_environment())
        is_same = self._environment == _environment() and self._cwd == os.getcwd()
        return Lent(shared) if shared is not None and is_same else WarmProcess(log, modules)

    def make_workers(
        self, executor: LocalExecutor, job: Job, config: WorkerConfig, log_path: str, count_caller: bool
    ) -> ForkedWorkers:
        """Make the workers of a run, as the executor would (backends/local.py)."""
        environment = _environment()
        shared = self._shared(environment) if executor.warm_process is None else None
        if shared is None:
            return _make_workers(executor, job, config, log_path, count_caller)
        payload = job.pickled()
        if environment != self._environment:
            payload = cloudpickle.dumps(_InEnvironment(hygiene_env(environment), payload))
        return ForkedWorkers(payload, config, log_path, count_caller, shared)

    def _shared(self, environment: Mapping[str, str]) -> WarmProcess | None:
        # It ends with the thread that started it, and reads its messages in one.
        if not self.is_lent or threading.current_thread() is not threading.main_thread():
            return None
        if self._warm_process is None or not self._warm_process.is_alive:
            self.close()
            self._environment, self._cwd = dict(environment), os.getcwd()
            self._warm_process = WarmProcess(str(self._log))
            self._warm_process.ready(all_groups())
        return self._warm_process if loading_part(environment) == loading_part(self._environment) else None

    def close(self) -> None:
        if self._warm_process is not None:
            self._warm_process.close()
            self._warm_process = None


class _InEnvironment:
    """A pickled job that is loaded in another environment."""

    def __init__(self, environment: Mapping[str, str], payload: bytes) -> None:
        self._environment, self._payload = environment, payload

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_in, (self._environment, self._payload)


def _load_in(environment: Mapping[str, str], payload: bytes) -> Any:
    os.environ.clear()
    os.environ.update(environment)
    return pickle.loads(payload)


_make_workers = LocalExecutor.make_workers


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def loading_part(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that decide how libraries load."""
    return {name: value for name, value in environment.items() if name.startswith(_LOADING)}


class Lent:
    """The part of a warm process that a workflow uses; `close` ends what it started."""

    def __init__(self, warm_process: WarmProcess) -> None:
        self._warm_process = warm_process
        self._children: list[Child] = []
        self.start, self.ready = warm_process.start, warm_process.ready
        self.log_tail = warm_process.log_tail

    @property
    def own_bytes(self) -> int:
        return self._warm_process.own_bytes

    def spawn(self) -> Any:
        sock, child = self._warm_process.spawn()
        self._children.append(child)
        return sock, child

    def call(self, *arguments: Any) -> Child:
        child = self._warm_process.call(*arguments)
        self._children.append(child)
        return child

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait(10)


_of_session: SharedProcess | None = None


@contextlib.contextmanager
def shared_process(log: Path) -> Iterator[None]:
    """Have runs and workflows of this process use the shared one while the block works."""
    global _of_session
    process = _of_session = SharedProcess(log)

    def make_workers(
        self: LocalExecutor, job: Job, config: WorkerConfig, log_path: str, count_caller: bool
    ) -> ForkedWorkers:
        return process.make_workers(self, job, config, log_path, count_caller)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tamis.dedup.pass_runner.WarmProcess", process.lend)
        patch.setattr(LocalExecutor, "make_workers", make_workers)
        yield
    process.close()
    _of_session = None


def is_lent() -> bool:
    """Return False while a test runs that has the mark `own_processes`."""
    return _of_session is None or _of_session.is_lent


def lend_to(item: pytest.Item) -> None:
    """Lend the shared process to a test that is about to begin, unless it has the mark `own_processes`."""
    if _of_session is not None:
        _of_session.is_lent = item.get_closest_marker("own_processes") is None
