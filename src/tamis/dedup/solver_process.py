"""Starting the deciding process (solver.py), listening to it, and turning its end into a result or an error."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

from tamis.backends.nursery import Child, Nursery
from tamis.errors import BudgetError, RunConflict, TamisError, UsageError, WorkerError
from tamis.memory import meter

_MEASURE_S = 0.2
_SAID_BYTES = 1 << 20  # a line that is longer is no message of ours


def decide(folder: str, nursery: Nursery, progress: Callable[[dict[str, Any]], None]) -> int:
    """Run the steps of folder/task.json in a process of their own. Returns the peak of all processes in bytes."""
    read, write = os.pipe()
    try:
        try:
            process = nursery.call("solver", "tamis.dedup.solver", [folder], write)
        finally:
            os.close(write)
        try:
            told, peak = _listen(read, process, nursery, progress)
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    finally:
        os.close(read)
    if code == 0:
        return peak
    if "error" in told:
        kinds = {4: BudgetError, 2: UsageError, 5: RunConflict}
        raise kinds.get(int(told.get("exit_code", 1)), TamisError)(str(told["error"]))
    raise WorkerError(
        f"the deciding process ended with status {code}; run the same command again. The end of its log:\n{nursery.log_tail()}"
    )


def _listen(
    read: int, process: Child, nursery: Nursery, progress: Callable[[dict[str, Any]], None]
) -> tuple[dict[str, Any], int]:
    """Its messages, until it has closed its output; the last one, and the largest sum of PSS seen."""
    told: dict[str, Any] = {}
    peak, measured_s, buffer = 0, 0.0, b""
    while True:
        ready, _, _ = select.select([read], [], [], _MEASURE_S)
        # Not with every message: the process cannot map memory while its pages are counted.
        if time.monotonic() - measured_s >= _MEASURE_S:
            peak = max(peak, (meter.pss() or 0) + (meter.pss(process.pid) or 0) + nursery.pss_bytes)
            measured_s = time.monotonic()
        if not ready:
            continue
        data = os.read(read, 1 << 16)
        if not data:
            return told, peak
        *lines, buffer = (buffer + data).split(b"\n")
        buffer = buffer[:_SAID_BYTES]
        for line in lines:
            with contextlib.suppress(ValueError):
                told = json.loads(line)
                progress({**told, "pass": "decision"})
