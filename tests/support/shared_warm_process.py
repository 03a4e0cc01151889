"""One warm process for all workflows of a test module: loading the libraries takes most of the time of a small one.

Import `shared_warm_process` in a conftest.py. Workflows that run in another folder or environment start their own, as
commands do.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tamis.backends.warm_process import Child, WarmProcess
from tamis.kernels.loading.library import all_groups


def surroundings() -> tuple[Any, ...]:
    """Return what a process takes from this one when it starts."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    return environment, os.getcwd(), list(sys.path)


class SharedProcess:
    """The process, which starts when it is first lent."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._warm_process: WarmProcess | None = None
        self._surroundings: tuple[Any, ...] = ()

    def lend(self, log: str, modules: Sequence[str] = ()) -> WarmProcess | Lent:
        """Return a warm process for one workflow."""
        if self._warm_process is None:
            self._surroundings = surroundings()
            self._warm_process = WarmProcess(str(self._log), modules)
            self._warm_process.start(all_groups())
        elif self._surroundings != surroundings():
            return WarmProcess(log, modules)
        return Lent(self._warm_process)

    def close(self) -> None:
        if self._warm_process is not None:
            self._warm_process.close()


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


@pytest.fixture(scope="module")
def shared_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedProcess]:
    process = SharedProcess(tmp_path_factory.mktemp("warm") / "processes.log")
    yield process
    process.close()


@pytest.fixture(autouse=True)
def shared_warm_process(shared_process: SharedProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.dedup.pass_runner.WarmProcess", shared_process.lend)
