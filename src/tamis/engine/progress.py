"""The state of a run while it works, as its caller, the run record, displays and alerts receive it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from tamis.engine.schema import LeakReport


class RunningFigures(TypedDict, total=False):
    """The figures of a run at one moment.

    documents + added = written + dropped + quarantined + not_sampled + in_flight.
    """

    share: float  # of the input that this sampling step covers; of a decision, how much of it is done
    seconds: float
    used_bytes: int
    peak_bytes: int
    budget_bytes: int
    total_bytes: int  # decoded bytes of the input ...
    left_bytes: int  # ... and those that are still to be read
    read_bytes: int  # by this session
    all_read_bytes: int  # by all sessions
    documents: int
    written: int
    dropped: int
    quarantined: int
    not_sampled: int
    added: int
    in_flight: int
    level: int  # of memory pressure


class ProgressState(RunningFigures, total=False):
    """The state of a run, some times a second. `phase` is always there; figures are there as far as the phase has any.

    Phases: opened (a curation), starting, compiling (`done` of `of` kernels, `seconds_left`), schema, working,
    partitioning, sizing, interrupted; those of a decision between passes have names of their own and a `share`. `error`
    and `exit_code` are the last report of a decision that failed.
    """

    phase: str
    pass_label: str  # of a workflow: which pass this is about
    left_s: float | None  # of the whole run, where that is known
    workers: int
    done: int
    of: int
    seconds_left: int
    error: str
    exit_code: int


class GpuFacts(TypedDict):
    """One GPU at one moment, as `memory.gpu.GpuSample`, with the memory that processes of the run hold."""

    gpu: int
    name: str
    used_bytes: int
    total_bytes: int
    busy: float | None
    temperature_c: float | None
    free_bytes: int | None
    ours_bytes: int


class RunSample(RunningFigures, total=False):
    """A run at one moment, as its database records it (columns of `samples`) and alert rules compare it.

    The monitor makes it (engine/monitor/monitor.py); a watch judges it (observe/alerts/watch.py).
    """

    phase: str
    queue_bytes: int
    scratch_bytes: int
    disk_free_bytes: int | None
    disk_total_bytes: int | None  # of the same disk; set by the watch
    machine_used_bytes: int | None
    machine_total_bytes: int | None
    cgroup_used_bytes: int | None
    cgroup_limit_bytes: int | None
    psi_some: float | None  # percent of the last 10 s in which tasks waited for memory
    psi_full: float | None
    cpu_s: float
    n_processes: int
    server_bytes: int
    supervisor_bytes: int
    duplicates: int
    workers: dict[int, int]  # memory of each
    stages: Mapping[str, Mapping[str, object]]  # fields of `StageCost` (monitor/stage_costs.py) by stage
    gpus: list[GpuFacts]
    leaks: list[LeakReport]
    progress_s: float  # since something was committed


Progress = Callable[[ProgressState], None]
"""Called with the state of a run some times a second."""
