"""The loop of a worker process: take one unit, run it, report, clean up.

Called by backends/forkserver.py in every forked worker.

The supervisor moves this process's cap (RLIMIT_DATA) from outside. A worker that met any allocation failure says so and
exits: after one, libraries may be in any state, and a fresh fork costs milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from dataclasses import replace

from tamis.engine import messages
from tamis.engine.channel import Channel
from tamis.engine.messages import FailureKind
from tamis.engine.worker.failures import DescriptorReserve
from tamis.engine.worker.probe import PythonProbe
from tamis.engine.worker.process import UnitRunner
from tamis.engine.worker.stage_output import end_lines
from tamis.kernels import spare
from tamis.memory import meter
from tamis.memory.attribution import counts
from tamis.memory.release import PeakMeter, release

EXIT_AFTER_MEMORY_FAILURE = 77
_IDLE_S = 0.05


def work(channel: Channel, runner: UnitRunner) -> int:
    """Run until asked to stop, or until the supervisor is gone. Returns the exit status."""
    spare.activate()
    channel.send(messages.Ready(os.getpid(), _vitals()))
    while (message := _next(channel)) is not None:
        match message:
            case messages.Exit():
                runner.teardown()
                return 0
            case messages.Trim():
                spare.drop()
                release()
            case messages.Assign() if _one_unit(channel, runner, message):
                return EXIT_AFTER_MEMORY_FAILURE
    return 0


def _next(channel: Channel) -> messages.Order | None:
    """Return the next message from the supervisor.

    If none is available at once, buffers that were kept for the next unit are released.
    """
    if spare.held_bytes() and not channel.wait(_IDLE_S):
        spare.drop()
    order: messages.Order | None = channel.receive()
    return order


def _one_unit(channel: Channel, runner: UnitRunner, message: messages.Assign) -> bool:
    """Process one unit and report. True after an allocation failure."""
    unit, fence = message.unit, message.fence

    def send(unit_message: messages.UnitMessage) -> None:
        channel.send(messages.about(unit_message, unit.id, fence))

    def wait() -> int:
        answer = channel.receive()
        if not isinstance(answer, messages.More):
            os._exit(0)  # the supervisor is gone or wants this worker to end: blocks handed out so far are kept
        return answer.block_bytes

    probe = PythonProbe(runner.job.stages) if unit.probe else None  # this worker is under suspicion
    peak_meter = PeakMeter().start()
    floor = peak_meter.peak_bytes - spare.held_bytes()
    cpu = time.process_time()
    with DescriptorReserve():
        report = runner.run(unit, fence, send, wait, message.samples)
    peak_bytes, cpu_s = max(0, peak_meter.stop() - floor), round(time.process_time() - cpu, 6)
    is_starved = isinstance(report, messages.Failure) and report.kind is FailureKind.MEMORY
    if isinstance(report, messages.Failure) and not is_starved:
        with contextlib.suppress(OSError):  # to the run's worker.log, which may be on a full disk
            print(report.trace or report.error, file=sys.__stderr__, flush=True)
    end_lines()
    if not is_starved:
        release(device=False)
    if isinstance(report, messages.Done | messages.Failure):
        vitals = None if is_starved else _vitals()
        report = replace(report, peak_bytes=peak_bytes, cpu_s=cpu_s, vitals=vitals)
    if isinstance(report, messages.Done) and probe is not None and report.retained is not None:
        report = replace(report, retained=probe.with_python_growth(report.retained))
    send(report)
    return is_starved


def _vitals() -> messages.Vitals:
    status = meter.status() or {}
    spare_bytes = spare.held_bytes()
    return messages.Vitals(
        floor_bytes=max(0, status.get("RssAnon", 0) - spare_bytes),
        shared_bytes=status.get("RssShmem", 0),
        file_bytes=status.get("RssFile", 0),
        data_bytes=max(0, status.get("VmData", 0) - spare_bytes),
        **counts(),
        n_descriptors=meter.n_descriptors(),
        max_descriptors=meter.max_descriptors(),
        n_threads=meter.n_threads(),
    )
