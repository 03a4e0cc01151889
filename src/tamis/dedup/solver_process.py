"""Starting the deciding process (solver.py), listening to it, and turning its end into a result or an error."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from typing import Any

from tamis.backends.warm_process import WarmProcess
from tamis.errors import BudgetError, RunConflict, TamisError, UsageError, WorkerError

_SAID_BYTES = 1 << 20  # a line that is longer is no message of ours


def decide(folder: str, warm_process: WarmProcess, progress: Callable[[dict[str, Any]], None], module: str) -> None:
    """Run the steps of folder/task.json in a process of their own: `main([folder])` of this module."""
    read, write = os.pipe()
    try:
        try:
            process = warm_process.call("solver", module, [folder], write)
        finally:
            os.close(write)
        try:
            told = _listen(read, progress)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    finally:
        os.close(read)
    if code == 0:
        return
    if "error" in told:
        kinds = {4: BudgetError, 2: UsageError, 5: RunConflict}
        raise kinds.get(int(told.get("exit_code", 1)), TamisError)(str(told["error"]))
    raise WorkerError(
        f"the deciding process ended with status {code}; run the same command again. The end of its log:\n{warm_process.log_tail()}"
    )


def _listen(read: int, progress: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Read the solver's messages until it closes its output, and return the last one."""
    told: dict[str, Any] = {}
    buffer = b""
    while data := os.read(read, 1 << 16):
        *lines, buffer = (buffer + data).split(b"\n")
        buffer = buffer[:_SAID_BYTES]
        for line in lines:
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                progress({**told, "pass": "decision"})
    return told
