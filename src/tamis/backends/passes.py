"""A pass of a workflow (dedup/, curation/): a pipeline between files, run by the workflow's executor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tamis.backends.base import BaseExecutor
from tamis.backends.local import LocalExecutor
from tamis.backends.warm_process import WarmProcess
from tamis.engine.monitor.monitor import Watch
from tamis.engine.run.run_result import RunResult
from tamis.errors import Incomplete, TamisError

if TYPE_CHECKING:
    from tamis.pipeline import Pipeline


def execute_pass(
    pipeline: Pipeline,
    label: str,
    executor: BaseExecutor | None,
    warm_process: WarmProcess | None,
    progress: Callable[[dict[str, Any]], None],
    watch: Watch | None,
    settings: Mapping[str, Any],
) -> RunResult:
    """Execute one pass of a workflow; raise if it did not succeed.

    Runs on the executor that the user gave, or on one whose processes are forked from the workflow's warm
    process. `progress` receives the label of the pass.
    """
    if executor is None:
        executor = local = LocalExecutor()
        local.warm_process = warm_process
    with executor.watched_by(lambda state: progress({**state, "pass": label}), watch, is_part=True):
        result = pipeline.execute(executor, **settings)
    if result.exit_code == Incomplete.exit_code:
        raise Incomplete(f"{label}: {result.message}")
    if result.exit_code:
        raise TamisError(f"{label}: {result.message}")
    return result
