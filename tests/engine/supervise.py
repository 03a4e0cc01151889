"""Short ways to pass events to a supervisor: one function for each event, which returns the actions."""

from __future__ import annotations

from dataclasses import replace

from tamis.engine.messages import (
    Block,
    CoveredRange,
    Done,
    Failure,
    Read,
    Ready,
    RowsTooLarge,
    SetUp,
    StreamTooLarge,
    Vitals,
)
from tamis.engine.supervisor.actions import Action, Committed
from tamis.engine.supervisor.events import AlertFired, MemoryMeasured, NodeJoined, NodeLost, StopRequested, Tick
from tamis.engine.supervisor.state import NodeSpec
from tamis.engine.supervisor.supervisor import Supervisor
from tamis.engine.units import Piece
from tamis.engine.workers_interface import Died, Received


def tick(s: Supervisor, now_s: float) -> list[Action]:
    return s.handle(Tick(), now_s)


def ready(s: Supervisor, worker: int, now_s: float, vitals: Vitals | None = None) -> list[Action]:
    return s.handle(Received(worker, Ready(0, vitals or Vitals())), now_s)


def set_up(s: Supervisor, worker: int, fence: int, retained_bytes: int, peak_bytes: int, now_s: float) -> list[Action]:
    return s.handle(Received(worker, SetUp(fence=fence, retained_bytes=retained_bytes, peak_bytes=peak_bytes)), now_s)


def read(
    s: Supervisor,
    worker: int,
    fence: int,
    n_records: int,
    cut: int,
    decoded_bytes: int = -1,
    largest_record: int = 0,
) -> list[Action]:
    message = Read(
        fence=fence, n_records=n_records, cut=cut, decoded_bytes=decoded_bytes, largest_record=largest_record
    )
    return s.handle(Received(worker, message), 0.0)


def block(
    s: Supervisor, worker: int, fence: int, piece: Piece, n_bytes: int, compressed: int, now_s: float
) -> list[Action]:
    return s.handle(Received(worker, Block(fence=fence, piece=piece, n_bytes=n_bytes, compressed=compressed)), now_s)


def done(s: Supervisor, worker: int, fence: int, report: Done, now_s: float) -> list[Action]:
    return s.handle(Received(worker, replace(report, fence=fence)), now_s)


def too_large(
    s: Supervisor, worker: int, fence: int, report: StreamTooLarge | RowsTooLarge, now_s: float
) -> list[Action]:
    return s.handle(Received(worker, replace(report, fence=fence)), now_s)


def failed(s: Supervisor, worker: int, fence: int, report: Failure, now_s: float) -> list[Action]:
    return s.handle(Received(worker, replace(report, fence=fence)), now_s)


def died(s: Supervisor, worker: int, how: str, signal: int, now_s: float, stage: str = "") -> list[Action]:
    return s.handle(Died(worker, how, signal, stage), now_s)


def measured(s: Supervisor, used_bytes: int, per_worker: dict[int, int], now_s: float, node: int = 0) -> list[Action]:
    return s.handle(MemoryMeasured(used_bytes, per_worker, node), now_s)


def committed(s: Supervisor, partition: int, covered: list[CoveredRange], n_bytes: int, now_s: float) -> list[Action]:
    return s.handle(Committed(partition, covered, n_bytes), now_s)


def commit_failed(s: Supervisor, why: str, now_s: float = 0.0) -> list[Action]:
    return s.handle(Committed(-1, [], 0, why), now_s)


def node_up(s: Supervisor, spec: NodeSpec, now_s: float) -> list[Action]:
    return s.handle(NodeJoined(spec), now_s)


def node_down(s: Supervisor, node: int, now_s: float) -> list[Action]:
    return s.handle(NodeLost(node), now_s)


def alert(s: Supervisor, order: str, now_s: float) -> list[Action]:
    return s.handle(AlertFired(order), now_s)


def stop(s: Supervisor, why: str) -> list[Action]:
    return s.handle(StopRequested(why), 0.0)
