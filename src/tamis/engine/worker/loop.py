"""THE loop: a worker takes one unit at a time, reports, cleans up.

The supervisor moves this process's cap (RLIMIT_DATA) from outside. A worker that met any allocation failure says so and
exits: after one, libraries may be in any state, and a fresh fork costs milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from typing import Any

from tamis.engine.channel import Channel
from tamis.engine.supervisor.units import Unit
from tamis.engine.worker.probe import PythonProbe
from tamis.engine.worker.process import UnitRunner
from tamis.kernels import spare
from tamis.memory import meter
from tamis.memory.attribution import counts
from tamis.memory.release import PeakWatch, release

EXIT_AFTER_MEMORY_FAILURE = 77
_IDLE_S = 0.05


def work(channel: Channel, runner: UnitRunner) -> int:
    """Run until told to stop, or until the supervisor is gone. Returns the exit status."""
    spare.activate()
    channel.send({"type": "ready", "pid": os.getpid(), **_vitals()})
    while (message := _next(channel)) is not None:
        kind = message["type"]
        if kind == "exit":
            runner.teardown()
            return 0
        if kind == "trim":
            spare.drop()
            release()
            channel.send({"type": "trimmed", **_vitals()})
        elif kind == "assign" and _one_unit(channel, runner, message):
            return EXIT_AFTER_MEMORY_FAILURE
    return 0


def _next(channel: Channel) -> dict[str, Any] | None:
    """The next message. Who has to wait for it gives back the buffers kept for it."""
    if spare.held_bytes() and not channel.wait(_IDLE_S):
        spare.drop()
    return channel.receive()


def _one_unit(channel: Channel, runner: UnitRunner, message: dict[str, Any]) -> bool:
    """Process one unit and report. True after an allocation failure."""
    unit, fence = Unit.from_message(message), message["fence"]
    tag = {"unit": unit.id, "fence": fence}

    def say(news: dict[str, Any]) -> None:
        channel.send({**news, **tag})

    def wait() -> int:
        answer = channel.receive()
        if answer is None or answer["type"] != "more":
            os._exit(0)  # the supervisor is gone or wants this worker to end: blocks handed out so far stand
        return int(answer["block_bytes"])

    probe = PythonProbe(runner.job.stages) if unit.extra.get("probe") else None  # this worker is under suspicion
    watch = PeakWatch().start()
    floor = watch.peak_bytes - spare.held_bytes()
    cpu = time.process_time()
    report = runner.run(unit, fence, say, wait)
    report["peak_bytes"] = max(0, watch.stop() - floor)
    report["cpu_s"] = round(time.process_time() - cpu, 6)
    failed: bool = report["type"] == "failed" and report["kind"] == "memory"
    if report["type"] == "failed" and not failed:
        with contextlib.suppress(OSError):  # to the run's worker.log, which may lie on a full disk
            print(report["trace"], file=sys.stderr, flush=True)
    if not failed:
        release()
        report.update(_vitals())
        if probe is not None and "held" in report:
            report["held"].update(probe.end())
    channel.send({**report, **tag})
    return failed


def _vitals() -> dict[str, int]:
    status = meter.status() or {}
    kept = spare.held_bytes()
    return {
        "floor_bytes": max(0, status.get("RssAnon", 0) - kept),
        "shared_bytes": status.get("RssShmem", 0),
        "file_bytes": status.get("RssFile", 0),
        "data_bytes": max(0, status.get("VmData", 0) - kept),
        **counts().to_dict(),
    }
