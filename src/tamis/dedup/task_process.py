"""A separate process between two passes: its task, its start, its messages, and the budget it works under.

It needs numpy and Arrow, which the process that drives the passes does without, and its memory is given back whole. The
driver writes FOLDER/task.json and calls `run_task`; in the process, `main([FOLDER])` of the module that was named calls
`perform_task`. Messages are JSON lines on its output: progress, and why it could not finish. A task that is killed is
performed again from its beginning.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tamis.backends.warm_process import WarmProcess
from tamis.dedup import state
from tamis.engine.progress import Progress, ProgressState
from tamis.engine.run import disk
from tamis.errors import BudgetError, DiskFullError, RunConflict, TamisError, UsageError, WorkerError
from tamis.failures import is_memory_failure
from tamis.files import read_json, write_json
from tamis.memory import meter
from tamis.stores import opening, options, scratch_files

T = TypeVar("T")
_MESSAGE_BYTES = 1 << 20  # a longer line is no message of a task
_DRIVER_BYTES = 40_000_000  # the process that waits for the task
_ERRORS: dict[int, type[TamisError]] = {
    error.exit_code: error for error in (BudgetError, UsageError, RunConflict, DiskFullError)
}


@dataclass(frozen=True)
class TaskEnvironment:
    """The budget of a task, and how it reaches files in buckets.

    `bucket_url`: the location of large files of the folder, if not in it.
    """

    budget_bytes: int
    bucket_url: str = ""
    stores: dict[str, Any] = field(default_factory=options.settings)


@dataclass(frozen=True)
class _TaskFile:
    environment: TaskEnvironment
    task: dict[str, Any]


def write_task(folder: str, environment: TaskEnvironment, task: Any) -> None:
    """Store a task (a dataclass) in its folder."""
    write_json(_path(folder), state.to_dict(_TaskFile(environment, state.to_dict(task))))


def _read_task(folder: str) -> _TaskFile:
    return state.from_dict(_TaskFile, read_json(_path(folder)), _path(folder))


def _path(folder: str) -> str:
    return os.path.join(folder, "task.json")


# -- in the driver ----------------------------------------------------------------------------------------------------
def run_task(folder: str, warm_process: WarmProcess, progress: Progress, module: str) -> None:
    """Run the task of a folder in a separate process, `main([folder])` of this module, and raise what it reports."""
    read, write = os.pipe()
    try:
        try:
            process = warm_process.call("solver", module, [folder], write)
        finally:
            os.close(write)
        try:
            message = _listen(read, progress)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    finally:
        os.close(read)
    if code == 0:
        return
    if "error" in message:
        raise _ERRORS.get(int(message.get("exit_code", 1)), TamisError)(str(message["error"]))
    raise WorkerError(
        f"the deciding process ended with status {code}; run the same command again. The end of its log:\n"
        f"{warm_process.log_tail()}"
    )


def _listen(read: int, progress: Progress) -> ProgressState:
    """Read messages until the process closes its output, and return the last one."""
    message: ProgressState = {}
    buffer = b""
    while data := os.read(read, 1 << 16):
        *lines, buffer = (buffer + data).split(b"\n")
        buffer = buffer[:_MESSAGE_BYTES]
        for line in lines:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                progress(message)
    return message


# -- in the process ---------------------------------------------------------------------------------------------------
def perform_task(arguments: Sequence[str], kind: type[T], work: Callable[[str, T], None], title: str) -> int:
    """Call `work(folder, task)` under the budget of the task; report what fails, and return the exit code.

    `arguments`: the folder alone; `title`: what the task is, for messages.
    """
    (folder,) = arguments
    try:
        # The driver, and the warm process that this one was forked from.
        others = _DRIVER_BYTES + (meter.pss(os.getppid()) or 0)
        stored = _read_task(folder)
        environment = stored.environment
        if environment.bucket_url:
            options.restore(environment.stores)
            opening.warm()
            scratch_files.map_folder(folder, environment.bucket_url)
        task = state.from_dict(kind, stored.task, _path(folder))
        cap_memory(environment.budget_bytes - others)
        work(folder, task)
    except TamisError as exc:
        return _refuse(str(exc), exc.exit_code)
    except (MemoryError, OSError) as exc:
        if isinstance(exc, OSError) and disk.is_full(exc):
            return _refuse(str(disk.explained(exc, [folder])), DiskFullError.exit_code)
        if not is_memory_failure(exc):
            raise
        return _refuse(f"{title} does not fit into the budget; give more --memory, the passes before it are kept", 4)
    return 0


def cap_memory(budget_bytes: int) -> None:
    """Make an allocation beyond the budget fail at once, as in a worker.

    What is loaded now is counted as it is measured.
    """
    status = meter.status() or {}
    free_bytes = budget_bytes - (meter.pss() or 0)
    with contextlib.suppress(OSError, ValueError):  # where limits cannot be set, the parts are still cut to fit
        meter.set_data_limit(os.getpid(), status.get("VmData", 0) + max(free_bytes, 0))


def report_share(phase: str) -> Callable[[float], None]:
    """Return the function that reports the share of a phase that is done."""

    def report(share: float) -> None:
        print(json.dumps({"phase": phase, "share": round(share, 4)}), flush=True)

    return report


def _refuse(message: str, exit_code: int) -> int:
    print(json.dumps({"error": message, "exit_code": exit_code}), flush=True)
    return exit_code
