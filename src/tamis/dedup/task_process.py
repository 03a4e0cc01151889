"""A separate process between two passes: its task, its start, its messages, and the budget it works under.

It needs numpy and Arrow, which the process that drives the passes does without, and its memory is given back whole. The
driver writes FOLDER/task.json and calls `run_task`; in the process, `main([FOLDER])` of the module that was named calls
`perform_task`. Messages are JSON lines on its output: progress, and why it could not finish. A task that is killed is
performed again from its beginning.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import socket
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any, NamedTuple, TypeVar

from tamis import files
from tamis._dataclasses import dataclass
from tamis.backends.warm_process import Child, WarmProcess
from tamis.dedup import state
from tamis.engine.progress import Progress, ProgressState
from tamis.engine.run import disk
from tamis.errors import BudgetError, DiskFullError, RunConflict, TamisError, UsageError, WorkerError
from tamis.failures import is_memory_failure
from tamis.files import read_json, write_json
from tamis.memory import counted_processes, meter
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


class _TaskFile(NamedTuple):
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
class EarlyProcess(files.Closing):
    """A process that starts before its task is known: `main([folder, function, argument])` of this module.

    It prepares (`await_task`) and waits; its memory counts in the budget of what runs meanwhile. `begin` has it perform
    the task, `close` ends it.
    """

    def __init__(
        self, folder: str, warm_process: WarmProcess, module: str, function: str, argument: int, reserved_bytes: int
    ) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process: Child = warm_process.call(
                "solver", module, [folder, function, str(argument)], theirs.fileno()
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._socket: socket.socket | None = ours
        counted_processes.join(self._process.pid, reserved_bytes, "solver")

    def begin(self) -> tuple[Child, int] | None:
        """Have the task performed; return the process and a descriptor of its output, or None if it has died."""
        ours, self._socket = self._socket, None
        if ours is None:
            return None
        try:
            ours.sendall(b"\n")
        except OSError:
            ours.close()
            return None
        return self._process, ours.detach()

    def leave_budget(self) -> None:
        """Count its memory in the budget of its own task from now on."""
        counted_processes.leave(self._process.pid)

    def close(self) -> None:
        self.leave_budget()
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            self._process.kill()


def run_task(
    folder: str, warm_process: WarmProcess, progress: Progress, module: str, early: EarlyProcess | None = None
) -> None:
    """Run the task of a folder in a separate process, `main([folder])` of this module, and raise what it reports.

    `early`: a process that waits for it.
    """
    begun = early.begin() if early is not None else None
    process, read = begun if begun is not None else _started(folder, warm_process, module)
    try:
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


def _started(folder: str, warm_process: WarmProcess, module: str) -> tuple[Child, int]:
    read, write = os.pipe()
    try:
        return warm_process.call("solver", module, [folder], write), read
    except BaseException:
        os.close(read)
        raise
    finally:
        os.close(write)


def _listen(read: int, progress: Progress) -> ProgressState:
    """Read messages until the process closes its output, and return the last one."""
    message: ProgressState = {}
    buffer = b""
    while data := _read_output(read):
        *lines, buffer = (buffer + data).split(b"\n")
        buffer = buffer[:_MESSAGE_BYTES]
        for line in lines:
            with contextlib.suppress(ValueError):
                message = json.loads(line)
                progress(message)
    return message


def _read_output(read: int) -> bytes:
    try:
        return os.read(read, 1 << 16)
    except ConnectionResetError:  # it died before it took its task
        return b""


# -- in the process ---------------------------------------------------------------------------------------------------
def await_task(function: str, argument: str) -> bool:
    """Prepare, and wait for the task; False if it is not to come. What cannot be prepared, the task will report."""
    module, _, name = function.partition(":")
    with contextlib.suppress(Exception):
        getattr(importlib.import_module(module), name)(int(argument))
    return bool(os.read(1, 1))  # its output is a socket


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
