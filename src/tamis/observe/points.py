"""The rows of a run's series as plain data: what observe/series.py gives and pages, tables and metrics show.

Points are read-only, as is the empty dictionary that is the default of a field: all points share it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

# How hard memory presses (memory/pressure.py), and what is done about it.
LEVELS = (
    ("green", "starts and grows"),
    ("yellow", "no growth"),
    ("orange", "only the end of the pipeline starts"),
    ("red", "workers are stopped"),
    ("black", "one worker"),
)


class Total(NamedTuple):
    """The whole run at one moment: documents + added = written + dropped + quarantined + not_sampled + in_flight.

    `duplicates`: of those dropped. `added`: documents that stages made, less those that they replace. `in_flight`:
    read, and neither written nor dropped so far. `peak_bytes`: the most in use since the moment before.
    """

    at: float = 0.0
    used_bytes: int = 0
    budget_bytes: int = 0
    documents: int = 0
    written: int = 0
    dropped: int = 0
    quarantined: int = 0
    read_bytes: int = 0
    left_bytes: int = 0
    level: int = 0
    workers: dict[str, int] = {}  # number of the worker -> bytes
    queue_bytes: int = 0
    scratch_bytes: int = 0
    disk_free_bytes: int = 0
    machine_used_bytes: int = 0
    machine_total_bytes: int = 0
    cgroup_used_bytes: int = 0
    cgroup_limit_bytes: int = 0  # 0: no limit
    psi_some: float | None = None  # percent of the last 10 s in which tasks waited for memory; None: unknown
    psi_full: float | None = None
    cpu_s: float = 0.0
    n_processes: int = 0
    server_bytes: int = 0
    supervisor_bytes: int = 0
    duplicates: int = 0
    peak_bytes: int = 0
    not_sampled: int = 0
    added: int = 0
    in_flight: int = 0


class ProcessPoint(NamedTuple):
    at: float = 0.0
    pid: int = 0
    role: str = ""  # supervisor, server or worker
    worker: int = 0
    segment: int = 0
    anon_bytes: int = 0
    pss_bytes: int = 0
    peak_bytes: int = 0  # highest resident memory seen in this process
    cpu_s: float = 0.0


class StagePoint(NamedTuple):
    """One stage since the start of the run.

    `peak_bytes`: the most a partition took in it, above what the worker held before.
    """

    at: float = 0.0
    stage: str = ""
    position: int = 0
    n_in: int = 0
    n_out: int = 0
    n_dropped: int = 0
    in_bytes: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0
    peak_bytes: int = 0
    n_quarantined: int = 0


class GpuPoint(NamedTuple):
    at: float = 0.0
    gpu: int = 0
    name: str = ""
    used_bytes: int = 0
    total_bytes: int = 0
    busy: float | None = None  # share of the time, 0 to 1
    temperature_c: float | None = None
    ours_bytes: int = 0
    processes: dict[str, int] = {}  # pid -> bytes


class NodePoint(NamedTuple):
    """One machine of a cluster, as it was last seen. `busy`: workers with something to do."""

    node: int = 0
    name: str = ""
    at: float = 0.0
    is_up: int = 0
    n_workers: int = 0
    busy: int = 0
    n_units: int = 0
    used_bytes: int = 0
    peak_bytes: int = 0
    budget_bytes: int = 0
    level: int = 0


class UnitPoint(NamedTuple):
    """One partition that one worker took through its stages.

    `peak_bytes` and `floor_bytes` as the worker measured them.
    """

    at: float = 0.0
    worker: int = 0
    unit: int = 0
    n_records: int = 0
    decoded_bytes: int = 0
    largest_record: int = 0
    peak_bytes: int = 0
    floor_bytes: int = 0
    seconds: float = 0.0
    cpu_s: float = 0.0


class EventPoint(NamedTuple):
    at: float = 0.0
    kind: str = ""
    data: dict[str, Any] = {}

    @property
    def text(self) -> str:
        """The event in a line; a traceback stays in the database."""
        message = self.data.get("text")
        if message:
            return str(message)
        return ", ".join(f"{k}: {v}" for k, v in self.data.items() if k != "trace" and v is not None)


class AlertPoint(NamedTuple):
    at: float = 0.0
    rule: str = ""
    level: str = ""  # warning, critical or resolved
    text: str = ""
    data: dict[str, Any] = {}


class DroppedPoint(NamedTuple):
    """A document that was dropped a moment ago. `document`: its id, "" if it has none."""

    at: float = 0.0
    stage: str = ""
    reason: str = ""
    path: str = ""
    offset: int = 0
    document: str = ""


class Cell(NamedTuple):
    """A stretch of the input (all files laid end to end, as they lie on disk) and how many of its bytes are where."""

    cell: int = 0
    first_byte: int = 0
    last_byte: int = 0
    waiting: int = 0
    running: int = 0
    committed: int = 0
    quarantined: int = 0
    split: int = 0


class DropPoint(NamedTuple):
    stage: str = ""
    reason: str = ""
    documents: int = 0
    bytes: int = 0
    examples: str = ""
