"""THE loop: a worker takes one unit at a time, reports, cleans up.

The supervisor moves this process's cap (RLIMIT_DATA) from outside. A worker that met any allocation failure says so and
exits: after one, libraries may be in any state, and a fresh fork costs milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace

from tamis.engine.channel import Channel
from tamis.engine.messages import (
    Assign,
    Done,
    Exit,
    Failure,
    More,
    Order,
    Ready,
    Trim,
    Trimmed,
    UnitNews,
    Vitals,
    about,
)
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
    channel.send(Ready(os.getpid(), _vitals()))
    while (message := _next(channel)) is not None:
        match message:
            case Exit():
                runner.teardown()
                return 0
            case Trim():
                spare.drop()
                release()
                channel.send(Trimmed(_vitals()))
            case Assign() if _one_unit(channel, runner, message):
                return EXIT_AFTER_MEMORY_FAILURE
    return 0


def _next(channel: Channel) -> Order | None:
    """The next message. Who has to wait for it gives back the buffers kept for it."""
    if spare.held_bytes() and not channel.wait(_IDLE_S):
        spare.drop()
    order: Order | None = channel.receive()
    return order


def _one_unit(channel: Channel, runner: UnitRunner, message: Assign) -> bool:
    """Process one unit and report. True after an allocation failure."""
    unit, fence = message.unit, message.fence

    def say(news: UnitNews) -> None:
        channel.send(about(news, unit.id, fence))

    def wait() -> int:
        answer = channel.receive()
        if not isinstance(answer, More):
            os._exit(0)  # the supervisor is gone or wants this worker to end: blocks handed out so far stand
        return answer.block_bytes

    probe = PythonProbe(runner.job.stages) if unit.probe else None  # this worker is under suspicion
    watch = PeakWatch().start()
    floor = watch.peak_bytes - spare.held_bytes()
    cpu = time.process_time()
    report = runner.run(unit, fence, say, wait)
    peak_bytes, cpu_s = max(0, watch.stop() - floor), round(time.process_time() - cpu, 6)
    is_starved = isinstance(report, Failure) and report.kind == "memory"
    if isinstance(report, Failure) and not is_starved:
        with contextlib.suppress(OSError):  # to the run's worker.log, which may lie on a full disk
            print(report.trace, file=sys.stderr, flush=True)
    if not is_starved:
        release(device=False)
    if isinstance(report, Done | Failure):
        vitals = None if is_starved else _vitals()
        report = replace(report, peak_bytes=peak_bytes, cpu_s=cpu_s, vitals=vitals)
    if isinstance(report, Done) and probe is not None and report.held is not None:
        report = replace(report, held=probe.weighed(report.held))
    say(report)
    return is_starved


def _vitals() -> Vitals:
    status = meter.status() or {}
    kept = spare.held_bytes()
    return Vitals(
        floor_bytes=max(0, status.get("RssAnon", 0) - kept),
        shared_bytes=status.get("RssShmem", 0),
        file_bytes=status.get("RssFile", 0),
        data_bytes=max(0, status.get("VmData", 0) - kept),
        **counts().to_dict(),
    )
